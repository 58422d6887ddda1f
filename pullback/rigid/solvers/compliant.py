"""How long a step compliant contact allows (docs/derivations/compliant_contact.md)."""

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
