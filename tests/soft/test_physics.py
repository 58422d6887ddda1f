"""Laws and formulas: momentum, energy, free fall, waves, bending, pressure."""

import numpy as np
import pytest
import torch

import pullback.soft as soft
from tests.reference import mpm
from tests.soft.scenes import MATERIALS, in_reference, numbers_of, reference_state, scene, start

OPEN = soft.Domain((0.0,) * 3, (2.5, 1.2, 1.2), 0.1, sides="open")


@pytest.mark.parametrize("dim", [2, 3])
def test_momentum_is_kept_to_rounding(dim):
    domain = soft.Domain((0.0,) * dim, (2.5, 1.2, 1.2)[:dim], 0.1, sides="open")
    sim = scene(dim=dim, domain=domain, gravity=(0.0,) * dim, drag=0.0)
    state = start(sim, speed=0.3)
    before = sim.momentum(state)
    after = sim.momentum(sim.rollout(state, 100, actuation=torch.full((100, 2), 5.0)).final)
    scale = float((sim.masses()[:, None] * state.v.abs()).sum())
    assert (after[0] - before[0]).abs().max() < 1e-14 * scale * 100
    assert (after[1] - before[1]).abs().max() < 1e-14 * scale * 100
    # and it is something
    assert before[0].abs().max() > 1e-3 * scale


def test_drag_and_gravity_act_on_the_momentum_as_they_should():
    sim = scene(tuple(MATERIALS), domain=OPEN, gravity=(0.5, 0.0, -1.0), drag=0.7)
    state = start(sim, speed=0.3)
    before, _ = sim.momentum(state)
    after, _ = sim.momentum(sim.rollout(state, 50).final)
    keep = 1.0 - 0.7 * sim.dt
    push = sim.dt * sim.masses().sum() * torch.tensor([0.5, 0.0, -1.0]).double()
    expected = keep**50 * before + push * (1 - keep**50) / (1 - keep)
    assert torch.allclose(after, expected, rtol=1e-12, atol=1e-14)


def test_free_fall_is_exact():
    material = soft.Elastic(youngs=300.0)
    body = soft.ball((0.5, 0.5, 0.9), 0.2, spacing=0.05, material=material, velocity=(0.1, 0.0, 0.2))
    sim = soft.SoftSim(OPEN, [body], dt=1e-3, gravity=(0, 0, -9.81), dtype=torch.float64)
    run = sim.rollout(sim.state(), 300)
    v = torch.tensor([0.1, 0.0, 0.2 - 9.81 * 0.3], dtype=torch.float64)
    fallen = torch.tensor([0.03, 0.0, 0.06 - 9.81 * 1e-6 * 300 * 301 / 2], dtype=torch.float64)
    assert torch.allclose(run.final.v, v.expand_as(run.final.v), rtol=0.0, atol=1e-11)
    assert torch.allclose(run.final.x, sim.state().x + fallen, rtol=0.0, atol=1e-11)
    assert torch.allclose(run.final.F, sim.state().F, rtol=0.0, atol=1e-11)


@pytest.mark.parametrize("kind", ["neo_hookean", "fixed_corotated"])
def test_energy_only_falls_and_less_with_finer_cells(kind):
    """APIC keeps momentum, and smooths what moves on the scale of cells; no step makes energy."""
    lost = []
    for cell in (0.1, 0.05):
        model = soft.Elastic(youngs=300.0, poisson=0.3, model=kind)
        body = soft.block((0.5, 0.4, 0.4), (1.1, 0.8, 0.8), spacing=cell / 2, material=model)
        domain = soft.Domain((0.0,) * 3, (2.5, 1.2, 1.2), cell, sides="open")
        sim = soft.SoftSim(domain, [body], dt=1e-3, dtype=torch.float64, threads=2)
        reference = in_reference(sim, numbers_of(sim))
        state = sim.state()
        along = 0.3 * torch.sin(np.pi * (state.x[:, 0] - 0.8) / 0.6)
        state = state.replace(v=torch.stack([along, 0.0 * along, 0.0 * along], 1))
        energies = [float(mpm.energy(reference, reference_state(state)))]
        for _ in range(4):
            state = sim.rollout(state, 100).final
            energies.append(float(mpm.energy(reference, reference_state(state))))
        assert (np.diff(energies) < 0).all()
        lost.append(1.0 - energies[-1] / energies[0])
    assert lost[1] < 0.5 * lost[0]
    assert lost[1] < 0.06


def held_bar(cell, youngs=1e4, length=1.0, height=0.2, **options):
    """Return a bar in the plane that sticks to the wall x = 0, without Poisson's effect."""
    material = soft.Elastic(youngs=youngs, poisson=0.0, model="fixed_corotated", density=1000.0)
    # nodes at and behind the wall are held: material ends there
    body = soft.block((0.0, 0.5 - height / 2), (length, 0.5 + height / 2), spacing=cell / 2, material=material)
    domain = soft.Domain(
        (0.0, 0.0), (1.5 * length, 1.0), cell, sides={"x-": "stick", "x+": "open", "y-": "open", "y+": "open"}
    )
    settings = {"dt": 1.0, "dtype": torch.float64, "threads": 2, **options}
    settings["dt"] = 0.4 * cell / np.sqrt(2.0 * youngs / 1000.0)
    return soft.SoftSim(domain, [body], **settings)


@pytest.mark.parametrize(("cell", "tolerance"), [(0.05, 0.05), (0.025, 0.02)])
def test_a_bar_vibrates_at_its_frequency(cell, tolerance):
    """Held at one end, free at the other: f = c/(4 L), c = √(E/ρ)."""
    sim = held_bar(cell)
    period = 4.0 * 1.0 / np.sqrt(10.0)
    state = sim.state()
    shape = torch.sin(np.pi / 2.0 * state.x[:, 0])
    state = state.replace(v=torch.stack([1e-3 * shape, 0.0 * shape], 1))
    run = sim.rollout(state, int(1.4 * period / sim.dt), frames=1)
    moved = ((run.x - run.x[0])[..., 0] * shape).sum(1)
    crossings = np.flatnonzero(np.diff(np.sign(moved.numpy()[5:]))) + 5
    first, second = (k + float(moved[k] / (moved[k] - moved[k + 1])) for k in crossings[:2])
    assert 2.0 * (second - first) * sim.dt == pytest.approx(period, rel=tolerance)


def test_nodes_on_a_wall_belong_to_it_however_they_are_rounded():
    """With steps in proportion to cells the particles next to a wall fall by the same share at any size of cell."""
    shares = []
    for cell in (0.05, 0.02, 0.025, 0.1 / 3.0):
        sim = held_bar(cell, gravity=(1.0, 0.0))
        moved = sim.rollout(sim.state(), 20).final.x - sim.state().x
        next_to_wall = sim.state().x[:, 0] < 0.5 * cell
        shares.append(float(moved[next_to_wall, 0].mean()) / (20.0 * sim.dt) ** 2)
    assert shares == pytest.approx(shares[:1] * 4, rel=0.02)


def bent(cell, length=1.0, height=0.2):
    """Return the deflection of the tip under its weight over that of Timoshenko's beam, once it is still."""
    youngs, load = 1e5, 0.01
    slow = 3.516 * np.sqrt(youngs * height**2 / 12.0 / 1000.0) / length**2
    sim = held_bar(cell, youngs, length, height, gravity=(0.0, -load), drag=1.6 * slow)
    still = sim.rollout(sim.state(), int(2.5 * 2.0 * np.pi / slow / sim.dt)).final
    tip = sim.state().x[:, 0] > length - 0.6 * cell
    found = float((sim.state().x - still.x)[tip, 1].mean())
    weight = 1000.0 * load * height
    where = float(sim.state().x[tip, 0].mean())
    bending = (
        weight / (24.0 * youngs * height**3 / 12.0) * where**2 * (6.0 * length**2 - 4.0 * length * where + where**2)
    )
    shear = weight / (5.0 / 6.0 * 0.5 * youngs * height) * (length * where - where**2 / 2.0)
    return found / (bending + shear)


@pytest.mark.slow
def test_a_beam_bends_under_its_weight():
    coarse, fine = bent(0.05), bent(0.02)
    assert abs(fine - 1.0) < abs(coarse - 1.0)
    assert fine == pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
def test_a_column_of_fluid_rests_on_its_pressure():
    """Hydrostatic: p = ρ g depth, averaged over layers of two cells; shares of the pressure at the bottom."""
    cell = 0.025
    body = soft.block((0.0, 0.0), (0.5, 1.0), spacing=cell / 2, material=soft.Fluid(bulk=2e5, viscosity=1.0))
    domain = soft.Domain((0.0, 0.0), (0.5, 1.5), cell)
    sim = soft.SoftSim(domain, [body], dt=5e-4, gravity=(0.0, -9.81), drag=10.0, dtype=torch.float64)
    still = sim.rollout(sim.state(), 12000).final
    y = still.x[:, 1].numpy()
    pressure = 2e5 / 7.0 * (still.F[:, 0, 0].numpy() ** -7.0 - 1.0)
    surface = y.max() + cell / 4.0
    layer = (y / (2.0 * cell)).astype(int)
    wrong = [
        (pressure[layer == k] - 9810.0 * (surface - y[layer == k])).mean() / (9810.0 * surface)
        for k in range(layer.max())
    ]
    assert np.abs(wrong).mean() < 0.03
    assert np.abs(wrong).max() < 0.06


@pytest.mark.slow
def test_the_front_of_a_breaking_dam():
    """Martin and Moyce (1952): water a = 2.25 in wide and 2a high; front Z = x/a over T = t √(2g/a), 10 %."""
    T = [0.84, 1.19, 1.43, 1.63, 1.83, 1.98, 2.20, 2.32, 2.51, 2.65, 2.83, 2.98, 3.11, 3.33]
    Z = [1.22, 1.44, 1.67, 1.89, 2.11, 2.33, 2.56, 2.78, 3.00, 3.22, 3.44, 3.67, 3.89, 4.11]
    a, g = 0.05715, 9.81
    cell = a / 24.0
    water = soft.Fluid(bulk=1000.0 * (12.0 * np.sqrt(2.0 * g * a)) ** 2, density=1000.0, viscosity=1e-3)
    body = soft.block((0.0, 0.0), (a, 2.0 * a), spacing=cell / 2.0, material=water)
    domain = soft.Domain((0.0, 0.0), (5.0 * a, 2.6 * a), cell, sides={"y+": "open"})
    sim = soft.SoftSim(domain, [body], dt=2e-5, gravity=(0.0, -g), dtype=torch.float64)
    unit = np.sqrt(a / (2.0 * g))
    run = sim.rollout(sim.state(), int(3.4 * unit / sim.dt), frames=20)
    # a few particles splash ahead
    front = np.quantile(run.x[..., 0].numpy(), 0.998, axis=1) / a
    found = np.interp(np.array(T) * unit, run.times, front)
    assert np.abs(found / Z - 1.0).max() < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("aspect", [1.0, 1.5])
def test_the_run_out_of_a_column_of_sand(aspect):
    """Lube et al. (2005), in the plane: a column of width d and height a d comes to rest 1.2 a d farther out, 10 %."""
    d = 0.1
    cell = d / 16.0
    sand = soft.Sand(youngs=2e6, poisson=0.3, density=1600.0, friction_angle=np.radians(31.0))
    body = soft.block((0.0, 0.0), (d, aspect * d), spacing=cell / 2.0, material=sand)
    domain = soft.Domain((0.0, 0.0), (0.5, 1.5 * aspect * d), cell, sides={"y-": "stick", "y+": "open"})
    sim = soft.SoftSim(domain, [body], dt=6e-5, gravity=(0.0, -9.81), dtype=torch.float64)
    still = sim.rollout(sim.state(), int((4.5 * np.sqrt(aspect * d / 9.81) + 0.05) / sim.dt)).final
    reached = (float(still.x[:, 0].max()) + cell / 4.0) / d - 1.0
    assert reached == pytest.approx(1.2 * aspect, rel=0.1)
