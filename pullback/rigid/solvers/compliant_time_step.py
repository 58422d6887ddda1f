"""How long a step compliant contact allows, or wants (docs/derivations/compliant_contact.md)."""

import math

from pullback.core.errors import PullbackError


def stable_time_step(
    *,
    stiffness: float,
    inverse_mass: float,
    depth: float,
    damping: float = 0.0,
    power: float = 1.0,
    friction: float = 0.0,
    speed: float = math.inf,
    inverse_mass_tangent: float | None = None,
) -> float:
    """Return the longest stable time step [s] of an explicit compliant contact that is pressed in by `depth`.

    The spring's limit 2 (sqrt(1 + zeta^2) - zeta) / omega or the friction's 2 / rate, the shorter: eqs. (9) and (10).

    Args:
        stiffness: k of the force k depth^power [N / m^power].
        inverse_mass: what a unit impulse along the normal changes the contact's velocity by [1/kg], the diagonal of
            J M^-1 J^T; for n contacts that share a load, n times as much.
        depth: the deepest penetration that is expected [m].
        damping: d of the factor 1 - d u_n [s/m].
        friction: coefficient of friction.
        speed: velocity at which friction is smoothed [m/s].
        inverse_mass_tangent: as inverse_mass, for the tangents; the same if not given.
    """
    for name, value in (("stiffness", stiffness), ("inverse_mass", inverse_mass), ("depth", depth), ("speed", speed)):
        if not value > 0.0:
            raise PullbackError(f"{name} is {value}; a stable time step needs a positive {name}")
    if power < 1.0:
        raise PullbackError(f"power is {power}; give at least 1, where the spring has a finite stiffness at its onset")
    force = stiffness * depth**power
    omega = math.sqrt(inverse_mass * power * force / depth)
    zeta = 0.5 * inverse_mass * damping * force / omega
    spring = 2.0 * (math.sqrt(1.0 + zeta * zeta) - zeta) / omega
    rate = friction * force * (inverse_mass if inverse_mass_tangent is None else inverse_mass_tangent) / speed
    return min(spring, 2.0 / rate) if rate > 0.0 else spring


def contact_frequency(*, stiffness: float, mass: float, power: float = 1.0, speed: float = 1.0) -> float:
    """Return omega [rad/s] of a body on the spring k depth^power, at the depth that an impact at a speed reaches."""
    for name, value in (("stiffness", stiffness), ("mass", mass), ("speed", speed)):
        if not value > 0.0:
            raise PullbackError(f"{name} is {value}; a time step needs a positive {name}")
    # energy: m speed^2 / 2 = k depth^(p + 1) / (p + 1)
    depth = (0.5 * (power + 1.0) * mass * speed * speed / stiffness) ** (1.0 / (power + 1.0))
    return math.sqrt(power * stiffness * depth ** (power - 1.0) / mass)


def followed_time_step(
    *, stiffness: float, mass: float, power: float = 1.0, speed: float = 1.0, kept: float = 0.9
) -> float:
    """Return the step [s] of the implicit variant that keeps the share `kept` of a rebound's speed: eq. (17)."""
    if not 0.0 < kept < 1.0:
        raise PullbackError(f"kept is {kept}; give the share of a rebound that the step keeps, between 0 and 1")
    omega = contact_frequency(stiffness=stiffness, mass=mass, power=power, speed=speed)
    return -2.0 * math.log(kept) / (math.pi * omega)
