"""Heat against closed forms: orders of convergence, moving beams, melting, cooling, and where the energy goes."""

from itertools import pairwise
from math import pi

import numpy as np
import pytest
import torch

import pullback.thermal as th
from pullback.thermal.geometry import corner_volumes
from pullback.thermal.part import Beam
from pullback.thermal.solids import grid_mesh
from tests.reference import heat_solutions as exact
from tests.thermal.cases import OTHER, TOY, wall


class VolumeHeat:
    """In the place of a laser: [W/m³] of points (n, 3) and time, for all nodes, at the times that suit the method."""

    parameters = ()

    def __init__(self, process, density):
        self.process, self.density = process, density

    def heat(self, power, parameters):
        process = self.process
        theta = getattr(process.method, "theta", 0.0)
        x = process.mesh.nodes[process.growth.user]
        rates = np.array([self.density(x, t) for t in process.times])
        watts = process.growth.volume.sum(0) * (theta * rates[1:] + (1 - theta) * rates[:-1])
        nodes = torch.arange(len(x), dtype=torch.int32).repeat(process.steps)
        return torch.as_tensor(watts.ravel()), Beam(np.arange(process.steps + 1) * len(x), nodes)


def slope(errors):
    """Return the orders that successive halvings show."""
    return np.log2(np.array(errors[:-1]) / np.array(errors[1:]))


def lines_mesh(x, y, z, **sets):
    """Return the mesh between lines, none of it printed, with sets of nodes."""
    keep = np.ones((len(x) - 1, len(y) - 1, len(z) - 1), dtype=bool)
    return grid_mesh(x, y, z, keep, ~keep).with_sets(nodes=sets)


def graded(first, growth, length):
    """Return lines from 0 to about `length` whose spacing grows."""
    lines = [0.0]
    while lines[-1] < length:
        lines.append(lines[-1] + first)
        first *= growth
    return np.array(lines)


# -- manufactured solutions ----------------------------------------------------------------------------------------

CUBE = exact.Manufactured(L=0.01, tau=0.8, middle=500.0, amplitude=200.0, k=(20.0, 0.03), cp=(500.0, 0.6), rho=8000.0)
LINEAR = th.Material("linear", [100, 900], [8, 32], [260, 740], 8000.0)
END = 0.4


def bent_cube(n):
    """Return n³ elements of the cube, bent smoothly so that none is a box."""
    L = CUBE.L
    mesh = th.box((L, L, L), L / n)
    a = mesh.nodes * pi / L
    bend = 0.06 * L * np.sin(a[:, [0]]) * np.sin(a[:, [1]]) * np.sin(a[:, [2]]) * np.array([1.0, -0.7, 0.5])
    edge = (np.abs(mesh.nodes[:, :2] - L / 2) > L / 2 * (1 - 1e-9)).any(1)
    return th.Mesh(mesh.nodes + bend, mesh.elements, mesh.element_sets, {"sides": np.flatnonzero(edge)})


def run_cube(mesh, method, steps):
    """Return the temperatures at the end."""
    start = torch.as_tensor(CUBE.temperature(mesh.nodes, 0.0))
    process = th.Process(
        mesh, dt=END / steps, duration=END, material=LINEAR, initial=start, fixed={"sides": CUBE.middle}, method=method,
        threads=1,
    )  # fmt: skip
    process.laser = VolumeHeat(process, CUBE.source)
    return process.run().final.numpy()


def rms(x, mesh):
    """Return the root of the mean square over the volume of a mesh."""
    volume = np.bincount(mesh.elements.ravel(), corner_volumes(mesh.nodes[mesh.elements]).ravel())
    return float(np.sqrt(volume @ np.square(x) / volume.sum()))


@pytest.mark.parametrize(("method", "steps"), [("explicit", 12), (th.Implicit(0.5), 4)])
def test_second_order_in_space_with_k_and_cp_of_temperature(method, steps):
    errors = []
    for n in (4, 8, 16):
        mesh = bent_cube(n)
        # explicit: dt as h², so that the error in time shrinks as fast as that in space
        count = steps * (n // 4) ** (2 if method == "explicit" else 1)
        errors.append(rms(run_cube(mesh, method, count) - CUBE.temperature(mesh.nodes, END), mesh))
    assert errors[-1] < 0.5
    assert slope(errors)[-1] == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize(("method", "steps", "order"), [("explicit", 20, 1), (th.Implicit(1.0), 20, 1),
                                                        (th.Implicit(0.5), 10, 2)])  # fmt: skip
def test_order_in_time_with_k_and_cp_of_temperature(method, steps, order):
    mesh = bent_cube(6)
    ends = [run_cube(mesh, method, steps * 2**k) for k in range(4)]
    assert slope([rms(b - a, mesh) for a, b in pairwise(ends)]) == pytest.approx(order, abs=0.1)


@pytest.mark.parametrize(("method", "count"), [("explicit", 16), (th.Implicit(0.5), 4)])
def test_where_k_and_cp_grow_alike_the_potential_obeys_a_linear_equation(method, count):
    sides, waves = (0.012, 0.01, 0.008), (1, 1, 1)
    material = th.Material("alike", [300, 1300], [10, 30], [400, 1200], 8000.0)
    alpha, slope_of = 10 / 400 / 8000, 2e-3
    case = (sides, waves, alpha, 300.0, 500.0, 400.0, slope_of)
    errors = []
    for n in (1, 2, 4):
        mesh = th.box(sides, 0.002 / n)
        steps = count * (n * n if method == "explicit" else n)
        start = torch.as_tensor(exact.kirchhoff_cosines(mesh.nodes, 0.0, *case))
        process = th.Process(mesh, dt=0.5 / steps, duration=0.5, material=material, initial=start, method=method)
        errors.append(rms(process.run().final.numpy() - exact.kirchhoff_cosines(mesh.nodes, 0.5, *case), mesh))
    # it starts between 335 K and 1,000 K
    assert errors[-1] < 1.0
    assert slope(errors)[-1] == pytest.approx(2, abs=0.1)


def test_a_steady_slab_with_k_of_temperature_is_exact_at_the_nodes():
    ends = {"left": lambda x: x[:, 0] < 1e-9, "right": lambda x: x[:, 0] > 0.01 - 1e-9}
    mesh = th.box((0.01, 0.002, 0.002), 0.001).with_sets(nodes=ends)
    material = th.Material("linear", [300, 1300], [10, 30], [500, 600], 8000.0)
    held = {"left": 1200.0, "right": 400.0}
    process = th.Process(mesh, dt=1e7, duration=5e7, material=material, fixed=held, method=th.Implicit())
    expected = exact.slab_between(mesh.nodes[:, 0], 0.01, 1200.0, 400.0, 300.0, 2e-3)
    assert np.abs(process.run().final.numpy() - expected).max() < 1e-8


# -- beams on a half-space -----------------------------------------------------------------------------------------

STEEL = th.constant_material(20.0, 500.0, 8000.0)
ALPHA = 5e-6
SPEED = 0.01


def half_space(length, cell, down, fine):
    """Return a mesh of the half y > 0 of a block below z = 0 under a track along x from 0 to `length`.

    Cells of `cell` along the surface and `down` below it as far as `fine` from the track, larger and larger beyond.
    """

    def outwards(first):
        even = np.arange(round(fine / first)) * first
        return np.concatenate([even, even[-1] + first + graded(first, 1.3, 4e-3 - fine)])

    ahead = graded(cell, 1.3, 4e-3)[1:]
    along = np.concatenate([-ahead[::-1], np.linspace(0, length, round(length / cell) + 1), length + ahead])
    return lines_mesh(along, outwards(cell), -outwards(down)[::-1])


def nearest(mesh, points):
    """Return the nodes nearest to points, and where they are."""
    nodes = np.array([np.linalg.norm(mesh.nodes - point, axis=1).argmin() for point in points])
    return nodes, mesh.nodes[nodes]


def track(length):
    """Return a path along x from 0 at SPEED."""
    return th.Toolpath([0.0, length / SPEED], [0.0, length], [0.0, 0.0], [0.0, 0.0], [0, 1])


def position(t):
    """Return where the beam is (n, 2)."""
    return np.stack([SPEED * t, np.zeros_like(t)], axis=-1)


def test_moving_gaussian_temperature_and_its_gradient_by_power():
    radius, length, lit, pause = 1e-3, 4e-3, 450, 45
    mesh = half_space(length, radius / 5, radius / 10, radius)
    dt = length / SPEED / lit
    process = th.Process(
        mesh, track(length), material=STEEL, dt=dt, duration=dt * (lit + pause), source=th.Gaussian(radius, 0.4),
        threads=1,
    )  # fmt: skip
    # behind the beam, below it, beside it, and in its middle when it goes out
    nodes, points = nearest(mesh, np.array([[2, 0, 0], [3, 0, -0.5], [3, 0.8, 0], [4, 0, 0]]) * 1e-3)
    t = process.times
    watts = 200.0 + 150.0 * np.sin(2 * pi * t[:-1] / 0.23) + 100.0 * (t[:-1] > 0.2)
    # the mesh is one half of the block, and gets all of the power
    power = torch.tensor(watts / 2, requires_grad=True)
    history = process.run(power, probes=process.probes(nodes=nodes))

    def rises(step):
        count = min(step, lit)
        return 0.4 * exact.moving_gaussian(points, t[step], t[: count + 1], position, radius, ALPHA, 4e6)

    for step in (lit // 2, lit, lit + pause):
        kernel = rises(step)
        expected = kernel @ watts[: kernel.shape[1]]
        # where the beam has been
        warm = expected > 100.0
        assert warm.sum() >= (1 if step < lit else 4)
        assert history.probes[step].detach().numpy()[warm] - 300.0 == pytest.approx(expected[warm], rel=0.01)
    for k, theirs in enumerate(kernel):
        (g,) = torch.autograd.grad(history.probes[-1, k], power, retain_graph=True)
        ours = 0.5 * g.numpy()[:lit]
        assert not g[lit:].any()
        assert np.linalg.norm(ours - theirs) < 0.01 * np.linalg.norm(theirs), points[k]
        assert np.abs(ours - theirs).max() < 0.015 * theirs.max(), points[k]


def test_gradients_by_conductivity_capacity_radius_and_absorptivity():
    radius, length = 1e-3, 4e-3
    mesh = half_space(length, radius / 5, radius / 10, radius)
    process = th.Process(
        mesh, track(length), material=STEEL, dt=length / SPEED / 450, source=th.Gaussian(radius, 0.4), threads=1
    )
    nodes, points = nearest(mesh, np.array([[2.4, 0.4, -0.3]]) * 1e-3)
    values = {"conductivity": 20.0, "heat_capacity": 500.0, "radius": radius, "absorptivity": 0.4}
    leaves = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in values.items()}
    rise = process.run(100.0, probes=process.probes(nodes=nodes), **leaves).probes[-1, 0] - 300.0
    found = torch.autograd.grad(rise, list(leaves.values()))
    rise = float(rise.detach())

    def closed(conductivity, heat_capacity, radius, absorptivity):
        rho_cp = 8000.0 * heat_capacity
        parts = exact.moving_gaussian(points, 0.4, process.times, position, radius, conductivity / rho_cp, rho_cp)
        return 200.0 * absorptivity * float(parts.sum())

    assert rise == pytest.approx(closed(**values), rel=0.01)
    for (name, value), ours in zip(values.items(), found):
        high, low = (closed(**{**values, name: value * (1 + change)}) for change in (1e-4, -1e-4))
        # per share of change: some of these nearly cancel
        assert value * float(ours) == pytest.approx((high - low) / 2e-4, abs=0.01 * rise), name


def test_moving_ellipsoid():
    sizes, length = (1.1e-3, 0.9e-3, 0.8e-3), 2e-3
    mesh = half_space(length, 2e-4, 1e-4, 1e-3)
    source = th.Goldak(front=sizes[0], back=sizes[0], width=sizes[1], depth=sizes[2], absorptivity=0.4)
    process = th.Process(mesh, track(length), material=STEEL, dt=length / SPEED / 220, source=source, threads=1)
    nodes, points = nearest(mesh, np.array([[1, 0, 0], [1, 0, -0.5], [1, 0.8, 0], [2, 0, 0]]) * 1e-3)
    rise = process.run(100.0, probes=process.probes(nodes=nodes)).probes[-1].numpy() - 300.0
    expected = 0.4 * 200.0 * exact.moving_ellipsoid(points, 0.2, position, sizes, ALPHA, 4e6)
    assert rise == pytest.approx(expected, rel=0.01)


BEHIND = [[-1.4, 0, 0], [-2, 0, 0], [-2.6, 0, 0], [-0.6, 1, 0], [-1, 1, 0], [-2, 1, -0.5], [-0.6, 0, -1], [-1, 0, -1],
          [-2, 0, -1.4]]  # fmt: skip
ABEAM = [[0, 1, 0], [0, 0, -1]]


@pytest.mark.parametrize(("cell", "offsets", "bound"), [
    (2e-4, BEHIND, 0.025), pytest.param(1e-4, BEHIND + ABEAM, 0.03, marks=pytest.mark.slow)
])  # fmt: skip
def test_rosenthal_beyond_three_radii(cell, offsets, bound):
    radius, length, watts = 2e-4, 8e-3, 100.0
    mesh = half_space(length, cell, 1e-4, 1.4e-3)
    nodes, points = nearest(mesh, np.array(offsets) * 1e-3 + [length, 0, 0])
    away = points - [length, 0, 0]
    assert np.linalg.norm(away, axis=1).min() >= 3 * radius
    process = th.Process(
        mesh, track(length), material=STEEL, dt=length / SPEED / 1200, source=th.Gaussian(radius), threads=1
    )
    rise = process.run(watts / 2, probes=process.probes(nodes=nodes)).probes[-1].numpy() - 300.0
    assert rise == pytest.approx(exact.rosenthal(*away.T, watts, SPEED, 20.0, ALPHA), rel=bound)


# -- melting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["explicit", th.Implicit()])
def test_stefan_front_and_enthalpy(method):
    latent, melting, band = 2.7e5, 1000.0, 8.0
    material = th.constant_material(25.0, 600.0, 8000.0, latent, melting - band / 2, melting + band / 2)
    solution = exact.Stefan(1500.0, melting, 800.0, 25.0, 8000.0, 600.0, latent)
    cell, length, end = 1e-4, 0.016, 4.0
    mesh = th.box((length, 1e-3, 1e-3), (cell, 1e-3, 1e-3)).with_sets(nodes={"wall": lambda x: x[:, 0] < 1e-9})
    dt = 8e-4 if method == "explicit" else 0.02
    process = th.Process(
        mesh, dt=dt, duration=end, material=material, initial=800.0, fixed={"wall": 1500.0}, method=method, threads=1
    )
    times = [1.0, 2.0, 4.0]
    history = process.run(snapshots=[round(t / dt) for t in times])
    line = np.argsort(mesh.nodes[:, 0], kind="stable")[::4]
    x = mesh.nodes[line, 0]
    for t, T in zip(times, history.snapshots.numpy()[:, line]):
        part = np.clip((T - material.solidus) / band, 0, 1)
        molten = part**2 * (3 - 2 * part)
        front = cell * (molten.sum() - molten[0] / 2)
        assert front == pytest.approx(solution.front(t), rel=0.02)
        assert np.abs(T - solution.temperature(x, t)).mean() < 2.0
    ledger = history.ledger
    assert abs(ledger.error) < 1e-10
    # the wall's own half cell was hot and molten from the start
    given = ledger.fixed / 1e-6 + cell / 2 * 8000.0 * (600.0 * 700.0 + latent)
    assert given == pytest.approx(solution.heat(end), rel=0.02)
    # what has molten took its latent heat, and the rest is warmth
    warmth = 8000.0 * 600.0 * cell * (T[1:].sum() - T[-1] / 2 + T[0] / 2 - 800.0 * (len(T) - 1))
    assert given == pytest.approx(warmth + 8000.0 * latent * front, rel=1e-9)


# -- cooling -------------------------------------------------------------------------------------------------------


def cooling(method, steps, **options):
    """Return times and temperatures of a cube of one element, every corner of it alike."""
    mesh = th.box((0.002, 0.002, 0.002), 0.002)
    process = th.Process(mesh, duration=40.0, dt=40.0 / steps, material=STEEL, initial=1200.0, method=method, **options)
    history = process.run(probes=process.probes(nodes=[0, 6]))
    assert torch.allclose(history.probes[:, 0], history.probes[:, 1], rtol=1e-13)
    return history.times, history.probes[:, 0].numpy()


AREA_OVER_CAPACITY = 6 / 0.002 / 4e6


@pytest.mark.parametrize(("method", "steps"), [("explicit", 10000), (th.Implicit(0.5), 200)])
def test_convection_cools_exponentially(method, steps):
    t, T = cooling(method, steps, convection=40.0, ambient=300.0)
    expected = exact.cooled_by_air(t, 1200.0, 300.0, 40.0 * AREA_OVER_CAPACITY)
    assert T[-1] < 620.0
    assert np.abs(T - expected).max() < 1e-4 * (T[-1] - 300.0)


@pytest.mark.parametrize(("method", "steps"), [("explicit", 30000), (th.Implicit(0.5), 400)])
def test_radiation_cools_as_its_closed_form(method, steps):
    t, T = cooling(method, steps, emissivity=0.8, ambient=400.0)
    some = np.linspace(0, steps, 9).astype(int)
    expected = exact.cooled_by_radiation(t[some], 1200.0, 400.0, 0.8 * exact.SIGMA * AREA_OVER_CAPACITY)
    assert T[-1] < 900.0
    assert np.abs(T[some] - expected).max() < 1e-4 * (T[-1] - 400.0)


def test_a_fin_in_air():
    length, thick, h, k = 0.02, 0.001, 200.0, 50.0
    mesh = th.box((length, thick, thick), (length / 80, thick, thick)).with_sets(
        nodes={"root": lambda x: x[:, 0] < 1e-9}
    )
    material = th.constant_material(k, 500.0, 8000.0)
    process = th.Process(
        mesh, dt=1e7, duration=3e7, material=material, convection=h, fixed={"root": 600.0}, method=th.Implicit()
    )
    m = np.sqrt(h * 4 * thick / (k * thick**2))
    expected = 300.0 + 300.0 * exact.fin(mesh.nodes[:, 0], length, m, h / (m * k))
    assert np.abs(process.run().final.numpy() - expected).max() < 1e-4 * 300.0


# -- energy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [th.Gaussian(2e-3, 0.4), th.Goldak(1e-3, 2e-3, 1.5e-3, 1e-3, 0.4)])
@pytest.mark.parametrize("options", [{}, {"material": {"plate": OTHER, "build": TOY}}, {"method": th.Implicit(0.5)},
                                     {"method": th.Implicit()}])  # fmt: skip
def test_energy_with_everything_on(source, options):
    process = wall(source=source, **options)
    power = 250.0 + 150.0 * torch.rand(process.steps, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    history = process.run(power, snapshots=range(process.steps + 1))
    ledger = history.ledger
    # it melts and freezes, grows, is held, and loses heat to the air in both ways
    assert float(history.snapshots.max()) > TOY.liquidus > float(history.final.max())
    assert min(abs(x) for x in (ledger.laser, ledger.convection, ledger.radiation, ledger.fixed, ledger.births)) > 0
    assert ledger.laser == pytest.approx(
        0.4 * float(power[torch.as_tensor(process.laser.on)].sum()) * process.dt, rel=1e-12
    )
    assert abs(ledger.error) < 1e-10
