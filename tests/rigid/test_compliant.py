"""Compliant contact: its equations against scipy, its gradient against differences, bounces, and stable time steps."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import warp as wp

from pullback.core.errors import PullbackError
from pullback.core.modules import kernel_module
from pullback.rigid.solvers.compliant_time_step import stable_time_step
from pullback.rigid.solvers.force_law_kernels import Compliance, compliant_impulse, compliant_vjp

Array = np.ndarray
wp.init()
ROWS = 10
"""Of a contact: gap, velocity (3), stiffness, damping, friction, speed, response, response of the tangents."""
DT, ONSET = 1e-3, 1e-4
both_variants = pytest.mark.parametrize("ahead", [0.0, DT], ids=["explicit", "implicit"])


@cache
def kernels(real: type) -> tuple[Any, Any]:
    array = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("test_compliant", real))
    def forward(c: Compliance, x: array, lam: array):
        w = wp.tid()
        u = wp.vector(x[1, w], x[2, w], x[3, w])
        found = compliant_impulse(x[0, w], u, x[4, w], x[5, w], x[6, w], x[7, w], x[8, w], x[9, w], c)
        for k in range(3):
            lam[k, w] = found[k]

    @wp.kernel(module=kernel_module("test_compliant", real))
    def vjp(c: Compliance, x: array, lam: array, adj_lam: array, adj: array):
        w = wp.tid()
        u = wp.vector(x[1, w], x[2, w], x[3, w])
        adj_gap, adj_u, adj_parameters = compliant_vjp(
            x[0, w], u, x[4, w], x[5, w], x[6, w], x[7, w], x[8, w], x[9, w], c,
            wp.vector(lam[0, w], lam[1, w], lam[2, w]), wp.vector(adj_lam[0, w], adj_lam[1, w], adj_lam[2, w]),
        )  # fmt: skip
        adj[0, w] = adj_gap
        for k in range(3):
            adj[1 + k, w] = adj_u[k]
        for k in range(6):
            adj[4 + k, w] = adj_parameters[k]

    return forward, vjp


def material(ahead: float, power: float, dt: float = DT, onset: float = ONSET) -> Any:
    c = Compliance()
    c.dt, c.ahead, c.onset, c.power = dt, ahead, onset, power
    return c


def impulses(c: Any, x: Array, real: type = wp.float64) -> Array:
    """Return the impulses (3, n) of contacts (ROWS, n)."""
    lam = wp.zeros((3, x.shape[1]), dtype=real, device="cpu")
    wp.launch(kernels(real)[0], dim=x.shape[1], inputs=[c, wp.array(x, dtype=real, device="cpu"), lam], device="cpu")
    return lam.numpy()


def cotangents(c: Any, x: Array, adj_lam: Array, real: type = wp.float64) -> Array:
    adj = wp.zeros(x.shape, dtype=real, device="cpu")
    given = [wp.array(y, dtype=real, device="cpu") for y in (x, impulses(c, x, real), adj_lam)]
    wp.launch(kernels(real)[1], dim=x.shape[1], inputs=[c, *given, adj], device="cpu")
    return adj.numpy()


def contacts(count: int, ahead: float, seed: int = 0) -> Array:
    """Return contacts from open to deep, closing and opening, at rest and sliding."""
    rng = np.random.default_rng(seed)
    gap = rng.uniform(-5, 1.5, count) * ONSET
    u = rng.normal(size=(3, count)) * 10 ** rng.uniform(-4, 0.5, count)
    stiffness, damping = 10 ** rng.uniform(3, 6, count), 10 ** rng.uniform(-2, 1, count)
    mu, speed = rng.uniform(0.0, 1.5, count), 10 ** rng.uniform(-4, -1, count)
    response = 10 ** rng.uniform(-1, 1, (2, count)) * (ahead > 0)
    return np.stack([gap, *u, stiffness, damping, mu, speed, *response])


def ramp(x: Array, width: float) -> Array:
    return np.where(x >= width, x, np.maximum(x + width, 0.0) ** 2 / (4 * width))


def normal_value(x: Array, lam: float, ahead: float, power: float) -> float:
    """Return the right side of eq. (1) for one contact."""
    after = x[1] + x[8] * lam
    return float(DT * x[4] * ramp(-x[0] - ahead * after, ONSET) ** power * ramp(1 - x[5] * after, 0.5))


@both_variants
@pytest.mark.parametrize("power", [1.0, 1.5])
def test_impulses_solve_their_equations(ahead, power):
    """Roots against scipy's, by bisection and interpolation."""
    x = contacts(200, ahead)
    lam = impulses(material(ahead, power), x)
    assert (lam[0] == 0).any()
    assert (lam[0] > 0).sum() > 100
    for w in range(x.shape[1]):
        most = normal_value(x[:, w], 0.0, ahead, power)
        right = 0.0
        if most > 0:
            right = scipy.optimize.brentq(
                lambda y: y - normal_value(x[:, w], y, ahead, power), 0, most * 1.001, xtol=1e-300, rtol=1e-14  # noqa: B023
            )  # fmt: skip
        assert lam[0, w] == pytest.approx(right, rel=1e-11, abs=1e-15)
    slip = x[2:4] + x[9] * lam[1:]
    friction = -x[6] * lam[0] * slip / np.sqrt((slip**2).sum(0) + x[7] ** 2)
    # where friction stops nearly everything, what remains is a difference of two large numbers
    rounding = 1e-14 * x[6] * lam[0] * np.abs(x[2:4]) / x[7]
    assert (np.abs(lam[1:] - friction) <= 1e-10 * np.abs(friction) + rounding + 1e-16).all()


@both_variants
@pytest.mark.parametrize("power", [1.0, 1.5])
def test_vjp_is_central_differences(ahead, power):
    c, x = material(ahead, power), contacts(400, ahead, 1)
    rng = np.random.default_rng(2)
    adj_lam = rng.normal(size=(3, x.shape[1]))
    adj = cotangents(c, x, adj_lam)
    scale = np.maximum(np.abs(x), np.array([ONSET, *3 * [1e-4], *6 * [0.0]])[:, None])
    for row in range(ROWS):
        h = 1e-6 * scale[row]
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[row] += sign * h
            ends.append((adj_lam * impulses(c, moved)).sum(0))
        difference = (ends[0] - ends[1]) / 2
        size = np.abs(adj_lam * impulses(c, x)).sum(0)
        error = np.abs(difference - adj[row] * h)
        # the parabola of the ramp has a kink in its slope: second differences of the order of h
        assert (error <= 1e-5 * np.abs(adj[row] * h) + 1e-9 * size + 1e-16).all(), row


@both_variants
def test_the_gradient_is_continuous(ahead):
    """Across the onset, the end of damping, and rest."""
    c, x = material(ahead, 1.0), contacts(3, ahead, 3)
    x[0], x[1:4] = (ONSET, -20 * ONSET, -2 * ONSET), 0.0
    x[5] = 2.0
    x[1, 1] = 0.75
    across = np.zeros((ROWS, 3))
    across[0, 0], across[1, 1], across[2, 2] = 1.0, 1.0, 1.0
    jump = {}
    for h in (1e-7, 1e-10):
        ends = [cotangents(c, x + sign * h * across, np.ones((3, 3))) for sign in (1, -1)]
        jump[h] = np.abs(ends[0] - ends[1])
    assert (jump[1e-7] > 0).any(0).all()
    assert (jump[1e-10] <= 0.01 * jump[1e-7] + 1e-14 * np.abs(ends[0]).max()).all()


def bounce(c: Any, x: Array, mass: float, dt: float, steps: int) -> tuple[Array, Array]:
    """Return gaps and normal velocities of a body without gravity that meets a wall."""
    x, path = x.copy(), []
    for _ in range(steps):
        lam = impulses(c, x)[0]
        x[1] += lam / mass
        x[0] += dt * x[1]
        path.append((x[0, 0], x[1, 0]))
    gap, u = np.array(path).T
    return gap, u


def wall(stiffness: float, damping: float, mass: float, u: float, gap: float, implicit: bool) -> Array:
    response = 1 / mass if implicit else 0.0
    return np.array([[gap, u, 0.0, 0.0, stiffness, damping, 0.0, 1e-3, response, response]]).T


def spring_energy(gap: Array, stiffness: float, onset: float) -> Array:
    """Return the energy of a linear spring with a parabola as onset: the integral of the ramp."""
    x = -gap
    inside = np.clip(x + onset, 0, 2 * onset) ** 3 / (12 * onset)
    return stiffness * (inside + np.where(x > onset, (x**2 - onset**2) / 2, 0.0))


@pytest.mark.parametrize("damping", [0.0, 0.5, 20.0])
@pytest.mark.parametrize("dt", [1e-5, 1e-3, 1e-1])
def test_energy_never_grows_in_an_implicit_bounce(damping, dt):
    """At any step of the implicit variant, however long the time step."""
    mass, stiffness = 2.0, 1e5
    c = material(dt, 1.0, dt)
    gap, u = bounce(c, wall(stiffness, damping, mass, -1.0, 5e-3, True), mass, dt, int(min(3000, 0.05 / dt + 20)))
    energy = np.concatenate([[0.5 * mass], 0.5 * mass * u**2 + spring_energy(gap, stiffness, ONSET)])
    assert gap.min() < ONSET
    assert (np.diff(energy) <= 1e-12).all()
    assert u[-1] >= 0
    assert (u <= 1.0).all()


@pytest.mark.parametrize("power", [1.0, 1.5])
def test_a_bounce_is_that_of_the_differential_equation(power):
    """Explicit, with short steps, against scipy's integrator; and restitution of about 1 - 2/3 d u."""
    mass, stiffness, damping, dt = 2.0, 1e5, 0.2, 2e-6

    def rates(_: float, y: Array) -> list[float]:
        force = stiffness * ramp(-y[0], ONSET) ** power * ramp(1 - damping * y[1], 0.5)
        return [y[1], float(force) / mass]

    time = 0.05 if power == 1.0 else 0.2
    right = scipy.integrate.solve_ivp(rates, (0, time), [1e-3, -0.5], rtol=1e-10, atol=1e-12, max_step=1e-3).y[:, -1]
    count = 5 if power == 1.0 else 20
    c = material(0.0, power, count * dt)
    _, u = bounce(c, wall(stiffness, damping, mass, -0.5, 1e-3, False), mass, count * dt, round(time / dt / count))
    assert u[-1] == pytest.approx(right[1], rel=2e-3)
    assert u[-1] / 0.5 == pytest.approx(1 - 2 / 3 * damping * 0.5, abs=0.01)


@pytest.mark.parametrize("damping", [0.0, 100.0])
@pytest.mark.parametrize("power", [1.0, 1.5])
def test_the_advised_time_step_is_stable_and_four_times_it_is_not(damping, power):
    """A mass that gravity presses on a spring, moved a little from where it rests."""
    mass, stiffness, depth = 2.0, 1e5, 1e-3
    force = stiffness * depth**power
    limit = stable_time_step(stiffness=stiffness, inverse_mass=1 / mass, depth=depth, damping=damping, power=power)
    start = 1e-4 * depth
    swing = {}
    for factor in (0.98, 4.0):
        dt = factor * limit
        c, x = material(0.0, power, dt), wall(stiffness, damping, mass, 0.0, -depth - start, False)
        largest = []
        for _ in range(200):
            x[1] += (impulses(c, x)[0] - dt * force) / mass
            x[0] += dt * x[1]
            largest.append(abs(float(x[0, 0]) + depth))
        swing[factor] = max(largest[-50:])
    assert swing[0.98] < 12 * start
    assert swing[4.0] > 100 * start


def test_friction_limits_the_time_step_too():
    mass, stiffness, depth, mu, speed = 2.0, 1e5, 1e-3, 0.8, 1e-4
    limit = stable_time_step(stiffness=stiffness, inverse_mass=1 / mass, depth=depth, friction=mu, speed=speed)
    assert limit < 0.1 * stable_time_step(stiffness=stiffness, inverse_mass=1 / mass, depth=depth)
    ends = []
    for factor, ahead in ((0.98, 0.0), (4.0, 0.0), (1000.0, 1.0)):
        dt = factor * limit
        c, x = material(ahead * dt, 1.0, dt), wall(stiffness, 0.0, mass, 0.0, -depth, ahead > 0)
        x[6], x[7], x[2], x[8] = mu, speed, 1e-6, 0.0
        for _ in range(400):
            x[2] += impulses(c, x)[1] / mass
        ends.append(abs(float(x[2, 0])))
    assert ends[0] < 1e-8
    assert ends[1] > 1e-5
    assert ends[2] < 1e-8


def test_float32_follows_float64():
    for ahead in (0.0, DT):
        c, x = material(ahead, 1.5), contacts(300, ahead, 5)
        x32 = x.astype(np.float32)
        right = impulses(c, x32.astype(np.float64))
        assert (np.abs(impulses(c, x32, wp.float32) - right) <= 1e-3 * np.abs(right).max(0) + 1e-9).all()


def test_a_time_step_needs_something_to_press_on():
    with pytest.raises(PullbackError, match=r"depth is 0\.0; a stable time step needs a positive depth"):
        stable_time_step(stiffness=1e5, inverse_mass=1.0, depth=0.0)
    with pytest.raises(PullbackError, match=r"power is 0\.5; give at least 1"):
        stable_time_step(stiffness=1e5, inverse_mass=1.0, depth=1e-3, power=0.5)
