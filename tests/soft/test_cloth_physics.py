"""Sheets and ropes against solutions from outside: catenary, elastica, a stretched membrane, a swinging rope."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_bvp
from scipy.optimize import brentq

import pullback as pb

soft = pb.soft


def settled(sim, steps, state=None, **options):
    """Return the state after steps with much drag."""
    run = sim.rollout(sim.state() if state is None else state, steps, **options)
    assert float(run.final.v.abs().max()) < 1e-3
    return run


def test_a_hanging_rope_is_a_catenary():
    """Sag and pull at the ends of a rope 1.2 m long between nails 1 m apart: 0.5 %."""
    n, span, length, density = 48, 1.0, 1.2, 0.5
    a = brentq(lambda a: 2 * a * np.sinh(span / (2 * a)) - length, 0.05, 10.0)
    sag = a * (np.cosh(span / (2 * a)) - 1)
    s = np.linspace(-0.5 * length, 0.5 * length, n + 1)
    # it starts as a V, of the right length
    points = np.stack([s * span / length, 0 * s, np.sqrt(1 - (span / length) ** 2) * np.abs(s)], 1)
    rope = soft.Rope("rope", points, soft.Cord(stretch=5e3, density=density), pins=[0, n])
    sim = soft.ClothSim([rope], dt=0.05, gravity=(0, 0, -9.81), drag=20.0, dtype=torch.float64)
    run = settled(sim, 80)
    z = run.final.x[:, 2]
    assert float(z[0] - z.min()) == pytest.approx(sag, rel=5e-3)
    pull = run.reactions[-1, 0]
    assert float(pull[0].abs()) == pytest.approx(density * 9.81 * a, rel=1e-2)
    assert float(pull[2]) == pytest.approx(0.5 * density * 9.81 * length, rel=1e-3)


def elastica_tip(load, stiffness, length):
    """Return how far the tip of a heavy cantilever sinks and reaches: EI θ'' = -w (L - s) cos θ, by collocation."""

    def slope(s, y):
        return np.stack([y[1], -load / stiffness * (length - s) * np.cos(y[0])])

    s = np.linspace(0.0, length, 200)
    found = solve_bvp(slope, lambda a, b: np.stack([a[0], b[1]]), s, np.zeros((2, 200)), tol=1e-8)
    theta = found.sol(s)[0]
    return np.trapezoid(np.sin(theta), s), np.trapezoid(np.cos(theta), s)


@pytest.mark.parametrize("kind", ["strip", "rope"])
def test_a_cantilever_is_an_elastica(kind):
    """A strip that is held level at one end bends under its weight by a third of its length: 2 %."""
    length, bending, density, n = 0.3, 3e-3, 0.1, 60 if kind == "strip" else 30
    # where it is held a strip cannot curve across, which a wide one feels: 3 cells of 60
    width = 3 * length / n
    if kind == "strip":
        fabric = soft.Fabric(youngs=2000.0, poisson=0.0, bending=bending, density=density)
        piece = soft.sheet((0, 0, 0), (length, 0, 0), (0, width, 0), cells=(n, 3), material=fabric, pins=range(8))
    else:
        cord = soft.Cord(stretch=500.0, bending=bending * width, density=density * width)
        piece = soft.rope((0, 0, 0), (length, 0, 0), segments=n, material=cord, pins=[0, 1])
    sim = soft.ClothSim([piece], dt=0.05, gravity=(0, 0, -9.81), drag=10.0, dtype=torch.float64)
    run = settled(sim, 60)
    # it is held half way between its pins
    free = length * (1.0 - 0.5 / n)
    sink, reach = elastica_tip(density * 9.81, bending, free)
    x = run.final.x[-1]
    assert sink > 0.1
    assert float(x[2]) == pytest.approx(-sink, rel=2e-2)
    assert float(x[0]) - length + free == pytest.approx(reach, rel=2e-2)


def equilateral(n, rows):
    """Return points and triangles of a rectangle one wide, in rows of equilateral triangles of edge 1/n."""
    points, starts = [], []
    for j in range(rows + 1):
        x = np.arange(n + 1) / n if j % 2 == 0 else np.concatenate([[0.0], (np.arange(n) + 0.5) / n, [1.0]])
        starts.append(len(points))
        points += [(a, j * 0.75**0.5 / n, 0.0) for a in x]
    triangles = []
    for j in range(rows):
        # the row with n + 1 points is `even`; both rows have their points from left to right
        even, odd = (starts[j], starts[j + 1]) if j % 2 == 0 else (starts[j + 1], starts[j])
        up = [(even + k, even + k + 1, odd + k + 1) for k in range(n)]
        down = [(even + k, odd + k + 1, odd + k) for k in range(n + 1)]
        triangles += [t if j % 2 == 0 else t[::-1] for t in up + down]
    return np.array(points), np.array(triangles)


@pytest.mark.parametrize("kind", ["lattice", "long cells", "equilateral"])
def test_a_clamped_plate_bends_as_kirchhoffs(kind):
    """A square clamped all round sags by 0.00126532 q L⁴/D in its middle, D = 9/8 of what strips have: 1 %."""
    fabric = soft.Fabric(youngs=1.0, poisson=0.0, bending=1e-2, density=1e-4)

    def sag(n):
        if kind == "equilateral":
            # 15 rows of 13 are a square within a thousandth
            points, triangles = equilateral(n, n // 13 * 15)
            sheet = soft.Sheet("sheet", points, triangles, fabric)
            edge = 1.0 / n, 0.75**0.5 / n
        else:
            cells = n, n if kind == "lattice" else n // 13 * 11
            sheet = soft.sheet((0, 0, 0), (1, 0, 0), (0, 1, 0), cells=cells, material=fabric)
            edge = 1.0 / cells[0], 1.0 / cells[1]
        x = sheet.points
        size = x[:, :2].max(0)
        held = (x[:, :2] < 1.01 * np.array(edge)).any(1) | (x[:, :2] > size - 1.01 * np.array(edge)).any(1)
        pinned = soft.Sheet(
            "sheet", x, sheet.triangles, fabric, pins=np.flatnonzero(held), hinge_weights=sheet.hinge_weights
        )
        # steps this long are at rest, and far below where stretch matters
        sim = soft.ClothSim([pinned], dt=100.0, gravity=(0, 0, -1.0), dtype=torch.float64)
        return -float(sim.rollout(sim.state(), 2).final.x[:, 2].min())

    # pins hold a side that is shorter by a share of a cell: the limit of the sag's fourth root
    coarse, fine = sag(26) ** 0.25, sag(52) ** 0.25
    limit = (2.0 * fine - coarse) ** 4
    assert limit == pytest.approx(0.00126532 * 1e-4 / (9.0 / 8.0 * 1e-2), rel=1e-2)


def test_a_stretched_sheet_is_linear_elasticity():
    """A square pulled along the warp: force and lateral strain of an orthotropic sheet, small strain, 1 %."""
    fabric = soft.Fabric(youngs=300.0, youngs_across=120.0, poisson=0.4, shear=50.0, density=0.2)
    n = 8
    left, right = list(range(n + 1)), list(range(n * (n + 1), (n + 1) ** 2))
    piece = soft.sheet((0, 0, 0), (1, 0, 0), (0, 1, 0), cells=(n, n), material=fabric, pins=left + right)
    sim = soft.ClothSim([piece], dt=0.1, drag=20.0, dtype=torch.float64)
    # the edges may narrow as they like: their pins follow the strain across that is looked for
    strain, across = 0.01, -0.4 * 120.0 / 300.0 * 0.01
    pins = sim.state().x[torch.as_tensor(sim.pins)]
    pins = torch.stack(
        [pins[:, 0] * (1 + strain), 0.5 + (pins[:, 1] - 0.5) * (1 + across * 300.0 / 120.0), pins[:, 2]], -1
    )
    run = settled(sim, 40, pins=pins.expand(40, -1, -1))
    force = float(run.reactions[-1, n + 1 :, 0].sum())
    assert force == pytest.approx(300.0 * strain, rel=2e-2)
    y = run.final.x.view(n + 1, n + 1, 3)[n // 2, :, 1]
    assert float(y[-1] - y[0]) - 1.0 == pytest.approx(across * 300.0 / 120.0, rel=2e-2)


def test_a_swinging_rope_keeps_its_energy_better_with_shorter_steps():
    """Energy never grows; half the step, half the loss (implicit Euler is of first order)."""
    lost = []
    for dt in (2e-3, 1e-3):
        rope = soft.rope((0, 0, 0), (0.5, 0, 0), segments=8, material=soft.Cord(stretch=400.0, density=0.2), pins=[0])
        sim = soft.ClothSim([rope], dt=dt, gravity=(0, 0, -9.81), dtype=torch.float64)
        run = sim.rollout(sim.state(), round(0.3 / dt), frames=1)
        total = torch.stack([sim.energy(soft.ClothState(x, v)).sum() for x, v in zip(run.x, run.v)])
        assert float((total[1:] - total[:-1]).max()) < 1e-9
        lost.append(float(total[0] - total[-1]))
    assert lost[0] > 0.0
    assert lost[1] == pytest.approx(0.5 * lost[0], rel=0.2)


def test_free_fall_and_momentum():
    """A crumpled sheet in free fall: its centre falls as a stone does, and momentum is kept to rounding."""
    fabric = soft.Fabric(youngs=50.0, bending=1e-3, density=0.2, damping=0.01, bending_damping=0.01)
    piece = soft.sheet((0, 0, 0), (0.4, 0, 0), (0, 0.4, 0), cells=(4, 4), material=fabric)
    sim = soft.ClothSim([piece], dt=0.01, gravity=(0, 0, -9.81), dtype=torch.float64)
    state = sim.state()
    noise = 0.03 * torch.rand(state.x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    start = state.replace(x=state.x + noise)
    run = sim.rollout(start, 50)
    m = sim.masses()[:, None]
    fallen = (m * (run.final.x - start.x)).sum(0) / m.sum()
    assert fallen.tolist() == pytest.approx([0.0, 0.0, -9.81 * 0.01**2 * 50 * 51 / 2], abs=1e-11)
    assert sim.momentum(run.final)[0].tolist() == pytest.approx([0.0, 0.0, -9.81 * 0.5 * float(m.sum())], abs=1e-12)
