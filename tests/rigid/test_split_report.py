"""Contact forces of steps that are split at touches: they are the change of momentum, and have gradients."""

from typing import Any

import pytest
import torch

import pullback as pb
from pullback.rigid.compile import layout
from tests.rigid.worlds import F64

Tensor = torch.Tensor
DT = 1e-3
RADII, MASSES = (0.1, 0.12, 0.08), (1.5, 1.0, 0.7)
NAMES = ("left", "middle", "right")
DIFFERENCES = 1e-5
"""Of central differences of forces, which change by 1 / dt with a velocity."""


def balls(contact: pb.PGS | None = None, dtype: torch.dtype = F64) -> pb.Sim:
    """Return three balls above the ground."""
    world = pb.World(contact=contact or pb.PGS(tolerance=1e-13))
    surface: dict[str, Any] = {"friction": 0.3, "restitution": 0.5}
    world.add_ground(**surface)
    for k, (name, radius, mass) in enumerate(zip(NAMES, RADII, MASSES)):
        world.add_sphere(name, radius=radius, mass=mass, position=(k, 0.0, 1.0), **surface)
    return world.compile(dt=DT, dtype=dtype, impacts="split")


# where the balls are above the ground, what is between them, and velocities (vx, vy, vz) each
STARTS = {
    "lands": ((3e-4, -5e-4, -5e-4), (0.1, 0.1), ((0.8, 0.3, -1.0), (0.1, 0, 0), (0, 0, 0))),
    "hits, lands later": ((9e-4, 0.1, 0.1), (2e-4, 0.1), ((1.0, 0.2, -1.2), (0, 0, 0), (0, 0, 0))),
    "one hits the next": ((0.1, 0.1, 0.1), (2e-4, 1e-4), ((1.0, 0.2, 0.1), (0, 0, 0.02), (0, 0, 0))),
    "begins with an impact": ((-2e-4, 0.1, -5e-4), (0.1, 0.1), ((0.5, 0, -0.5), (0, 0, 0), (0.2, 0, 0))),
    "flies past": ((0.1, 0.1, -5e-4), (5e-4, 0.1), ((0.3, 5.0, 0.0), (0, -5.0, 0), (0, 0, 0))),
    "touches nothing": ((-5e-4, 0.1, -5e-4), (0.1, 0.1), ((0.3, 0.1, 0.0), (0, 0, 0), (0.1, 0.2, 0))),
}


def start_of(sim: pb.Sim, case: str) -> pb.State:
    """Return the balls as they are before the step."""
    heights, gaps, velocities = STARTS[case]
    state = sim.initial_state()
    q, qd = state.q.clone(), state.qd.clone()
    x = 0.0
    for k, (radius, height, v) in enumerate(zip(RADII, heights, velocities)):
        z = radius + height
        if k > 0:
            # so far to the side that the gap is right
            apart, below = RADII[k - 1] + radius + gaps[k - 1], z - float(q[0, 7 * k - 5])
            x += (apart**2 - below**2) ** 0.5
        q[0, 7 * k : 7 * k + 3] = torch.tensor([x, 0.0, z])
        qd[0, 6 * k + 3 : 6 * k + 6] = torch.tensor(v)
    return pb.State(q, qd, state.impulses)


def gained(sim: pb.Sim, state: pb.State) -> tuple[Tensor, Tensor]:
    """Return the rates at which linear momentum, but for weight, and spin change in a step."""
    after = sim.step(state)
    (v0, w0), (v1, w1) = (sim.link_velocities(s, NAMES) for s in (state, after))
    mass = torch.tensor(MASSES, dtype=sim.dtype)[:, None]
    radius = torch.tensor(RADII, dtype=sim.dtype)[:, None]
    weight = torch.tensor([0.0, 0.0, -9.81], dtype=sim.dtype)
    return mass * ((v1 - v0) / DT - weight), 0.4 * mass * radius**2 * (w1 - w0) / DT


@pytest.mark.parametrize("margin", [0.01, 0.0])
@pytest.mark.parametrize("case", STARTS)
def test_wrenches_are_the_change_of_momentum(case, margin):
    """Also where several things touch in one step; torques are those about centres at the moments of touching."""
    sim = balls(pb.PGS(tolerance=1e-13, margin=margin))
    state = start_of(sim, case)
    force, torque = sim.contact_wrenches(state, NAMES)
    linear, angular = gained(sim, state)
    torch.testing.assert_close(force, linear, rtol=0.0, atol=1e-6)
    # a pair that comes within reach during the step is found when bodies have moved on
    found_late = margin == 0.0 and case == "one hits the next"
    atol = 5e-3 * float(torque.abs().max()) if found_late else 1e-7
    torch.testing.assert_close(torque, angular, rtol=0.0, atol=atol)
    # impacts stand out
    assert (float(force.abs().max()) > 250.0) == (case not in ("flies past", "touches nothing"))


def test_pairs_that_come_within_reach_during_the_step():
    """The ball that is hit is fast only then: without a margin its next pair is not seen at the start of the step."""
    sim = balls(pb.PGS(tolerance=1e-13, margin=0.0))
    state = start_of(sim, "one hits the next")
    found = {contact.shapes: contact for contact in sim.contacts(state)[0]}
    assert set(found) == {("left", "middle"), ("middle", "right")}
    # seen when it touches
    assert abs(found["middle", "right"].gap) < 1e-9 < found["left", "middle"].gap
    torch.testing.assert_close(sim.contact_wrenches(state, NAMES)[0], gained(sim, state)[0], rtol=0.0, atol=1e-6)


def test_a_box_that_lands_on_one_corner():
    """Forces go to the corner that they act at, and room is made for contacts."""
    world = pb.World(contact=pb.PGS(tolerance=1e-13))
    world.add_ground(friction=0.5, restitution=0.3)
    world.add_box("box", size=(0.2, 0.3, 0.1), mass=2.0, position=(0.0, 0.0, 1.0), friction=0.5, restitution=0.3)
    sim = world.compile(dt=DT, dtype=F64, impacts="split")
    turn = torch.tensor([0.002, 0.003, 0.0], dtype=F64)
    place = torch.tensor([0.0, 0.0, 0.0516], dtype=F64)
    q = torch.cat([place, turn, (1.0 - (turn * turn).sum()).sqrt()[None]])[None]
    qd = torch.tensor([[0.0, 0.0, 0.0, 0.2, 0.0, -1.5]], dtype=F64)
    state = pb.State(q, qd, sim.initial_state().impulses)
    contacts = sim.contacts(state)[0]
    pressed = [c for c in contacts if c.force[2] > 0.0]
    assert len(contacts) == 4
    assert 0 < len(pressed) < 4
    assert min(contacts, key=lambda c: c.gap) in pressed
    force, torque = sim.contact_wrenches(state, ["box"])
    after = sim.step(state)
    (v0, _), (v1, w1) = (sim.link_velocities(s, ["box"]) for s in (state, after))
    weight = torch.tensor([0.0, 0.0, -9.81], dtype=F64)
    torch.testing.assert_close(force, 2.0 * ((v1 - v0) / DT - weight), rtol=0.0, atol=1e-6)
    inertia = torch.tensor([0.1**2 + 0.3**2, 0.1**2 + 0.2**2, 0.2**2 + 0.3**2], dtype=F64) * 2.0 / 12.0
    # axes of the box and of the world differ by some milliradians
    torch.testing.assert_close(torque, inertia * w1 / DT, rtol=0.0, atol=0.02 * float(torque.abs().max()))


def test_float32():
    sim = balls(pb.PGS(), torch.float32)
    state = start_of(sim, "lands")
    force, linear = sim.contact_wrenches(state, NAMES)[0], gained(sim, state)[0]
    torch.testing.assert_close(force, linear, rtol=0.0, atol=1e-3 * float(linear.abs().max()))


# -- gradients -------------------------------------------------------------------------------------------------------

SOLVERS = {
    "sweeps": pb.PGS(tolerance=1e-13),
    "no margin": pb.PGS(tolerance=1e-13, margin=0.0),
    "warm start": pb.PGS(tolerance=1e-13, warm_start=True),
    "few sweeps, unrolled": pb.PGS(gradient="unrolled", iterations=10, tolerance=0.0),
    "exact": pb.Exact(cfm=1e-3),
}


def check_gradients(sim: pb.Sim, case: str) -> None:
    """Compare gradients of all that is reported, by state and friction, with differences."""
    state = start_of(sim, case)
    generator = torch.Generator().manual_seed(5)
    # turning, so that levers matter
    spin = 0.3 * torch.randn(state.qd.shape, dtype=F64, generator=generator)
    spin[:, [3, 4, 5, 9, 10, 11, 15, 16, 17]] = 0.0
    values = {"q": state.q, "qd": state.qd + spin, "mu": torch.tensor(0.3, dtype=F64)}
    seen = sim.contact_tensors(pb.State(values["q"], values["qd"], state.impulses))
    weights = [torch.randn(x.shape, dtype=F64, generator=generator) for x in seen[1:]]

    def loss(x: dict[str, Tensor]) -> Tensor:
        for name in NAMES:
            sim.world.set_shape(name, friction=x["mu"])
        found = sim.contact_tensors(pb.State(x["q"], x["qd"], state.impulses))
        return torch.stack([(w * part).sum() for w, part in zip(weights, found[1:])]).sum()

    leaves = {key: value.clone().requires_grad_() for key, value in values.items()}
    gradients = torch.autograd.grad(loss(leaves), list(leaves.values()))
    for key, gradient in zip(values, gradients):
        d = torch.randn(values[key].shape, dtype=F64, generator=generator)
        given, errors = float((gradient * d).sum()), []
        with torch.no_grad():
            for h in (1e-6, 1e-7, 1e-8):
                up, down = (loss(values | {key: values[key] + s * h * d}) for s in (1.0, -1.0))
                errors.append(abs(float((up - down) / (2 * h)) - given))
        assert min(errors) < DIFFERENCES * max(1.0, abs(given)), (key, given, errors)


@pytest.mark.parametrize("case", STARTS)
def test_gradients_of_forces(case):
    check_gradients(balls(), case)


@pytest.mark.parametrize("name", list(SOLVERS)[1:])
def test_gradients_of_forces_with_other_solvers(name):
    for case in ("hits, lands later", "one hits the next"):
        check_gradients(balls(SOLVERS[name]), case)


def test_gradients_where_parts_are_solved_again(monkeypatch):
    monkeypatch.setattr(layout, "MOST_KEPT_ROWS", 0)
    sim = balls()
    assert layout.kept_parts(sim._programs.sizes(reports=True)) == 0
    check_gradients(sim, "hits, lands later")
