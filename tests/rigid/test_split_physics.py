"""Steps that are split where something touches: laws of impacts, fast thin bodies, servos and solvers."""

import numpy as np
import pytest
import torch

import pullback as pb
from checks.fuzz_checks import side_by_side
from checks.fuzz_split import deepest
from checks.random_worlds import draw
from checks.reliability_worlds import energies
from pullback.rigid.state import TURNED_FAR
from tests.rigid.test_split import DIFFERENCES, STEP, pendulum
from tests.rigid.worlds import F64

Tensor = torch.Tensor


# -- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("friction", [0.0, 0.4])
def test_bodies_that_meet_keep_their_momentum_and_gain_no_energy(friction):
    """A box, a capsule and two balls without weight fly at each other, in eight worlds."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    surface = {"friction": friction, "restitution": 0.7}
    world.add_box("box", size=(0.2, 0.15, 0.1), mass=1.0, **surface)
    world.add_capsule("capsule", radius=0.05, length=0.2, mass=0.6, **surface)
    world.add_sphere("ball", radius=0.1, mass=0.5, **surface)
    world.add_sphere("small", radius=0.05, mass=0.2, **surface)
    sim = world.compile(dt=2e-3, dtype=F64, impacts="split")
    generator = torch.Generator().manual_seed(3)
    start = sim.initial_state(8)
    q, qd = start.q.clone(), start.qd.clone()
    places = torch.tensor([[0.3, 0.0, 0.0], [-0.3, 0.0, 0.0], [0.0, 0.3, 0.0], [0.0, 0.0, 0.3]], dtype=F64)
    for k, place in enumerate(places):
        q[:, 7 * k : 7 * k + 3] = place + 0.02 * torch.randn(8, 3, generator=generator, dtype=F64)
        qd[:, 6 * k + 3 : 6 * k + 6] = -5.0 * place
        qd[:, 6 * k : 6 * k + 3] = torch.randn(8, 3, generator=generator, dtype=F64)
    states = sim.rollout(pb.State(q, qd), 120, check=True)
    assert float((states.qd[-1] - qd).abs().amax(1).min()) > 0.1
    kinetic, _ = energies(sim, states)
    assert np.diff(kinetic, axis=0).max() < 1e-9 * kinetic[0].max()
    masses = (1.0, 0.6, 0.5, 0.2)
    momenta = [sum(m * _turned(q, qd, k) for k, m in enumerate(masses)) for q, qd in zip(states.q, states.qd)]
    assert float((momenta[-1] - momenta[0]).abs().max()) < 1e-9


def _turned(q: Tensor, qd: Tensor, k: int) -> Tensor:
    """Return the linear velocity of body k in world axes."""
    u, s, v = q[:, 7 * k + 3 : 7 * k + 6], q[:, 7 * k + 6 : 7 * k + 7], qd[:, 6 * k + 3 : 6 * k + 6]
    across = torch.linalg.cross(u, v)
    return v + 2.0 * s * across + 2.0 * torch.linalg.cross(u, across)


@pytest.mark.parametrize("mass", [1.0, 100.0])
def test_a_plastic_impact_hardly_gives_way(mass):
    """A ball meets the ground and stays: its height there does not depend on where it came from."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    world.add_ground(friction=0.0)
    world.add_sphere("ball", radius=0.1, mass=mass, position=(0.0, 0.0, 0.2), friction=0.0)
    for dt in (1e-3, 1e-5):
        sim = world.compile(dt=dt, dtype=F64, impacts="split")
        start = sim.initial_state(8)
        z = (0.1 + dt * (3.0 + torch.arange(8, dtype=F64) / 8)).requires_grad_()
        q = torch.cat([start.q[:, :2], z[:, None], start.q[:, 3:]], 1)
        qd = start.qd.clone()
        qd[:, 5] = -1.0
        end = sim.rollout(pb.State(q, qd), 8)
        (by_place,) = torch.autograd.grad(end.q[-1, :, 2].sum(), z, retain_graph=True)
        (by_speed,) = torch.autograd.grad(end.qd[-1, :, 5].sum(), z)
        assert float(by_place.abs().max()) < PLASTIC * mass
        # what it gave way by is pushed out, a tenth a step
        assert float(by_speed.abs().max()) < 0.1 * PLASTIC * mass / dt


PLASTIC = 1e-9
"""The softness of contacts in an impact [1/kg], a thousandth of cfm."""


# -- fast and thin -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aside", [0.0, 0.4])
def test_a_bullet_does_not_pass_a_wall(aside):
    """200 m/s, 0.2 m a step, at a wall of 5 mm, straight and aslant."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    world.add_box("wall", size=(0.005, 2.0, 2.0), static=True, friction=0.0)
    world.add_sphere("bullet", radius=0.003, mass=0.01, friction=0.0)
    sim = world.compile(dt=1e-3, dtype=F64, impacts="split")
    start = sim.initial_state(32)
    q, qd = start.q.clone(), start.qd.clone()
    q[:, 0] = -0.5 - 0.2 * torch.arange(32, dtype=F64) / 32
    q[:, 1] = -aside
    qd[:, 3], qd[:, 4] = 200.0, 200.0 * aside
    end = sim.rollout(pb.State(q, qd), 8).q[-1]
    assert float(end[:, 0].max()) < -0.005


def turning_rod(speed: float) -> tuple[pb.Sim, Tensor, Tensor]:
    """Return a capsule of 1 cm that turns about x, from z towards y, and a ball of 2 cm near its end's circle."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    world.add_capsule("rod", radius=0.005, length=1.0, mass=1.0, friction=0.0, restitution=1.0)
    world.add_sphere("ball", radius=0.01, mass=0.01, friction=0.0, restitution=1.0)
    sim = world.compile(dt=1e-3, dtype=F64, impacts="split")
    start = sim.initial_state(32)
    q, qd = start.q.clone(), start.qd.clone()
    qd[:, 0] = -speed
    return sim, q, qd


@pytest.mark.parametrize("turn", [0.2, 1.3])
def test_a_thin_rod_that_turns_fast_hits_what_is_in_its_way(turn):
    """Its ends move at 100 and 650 m/s; on the arc of 1.3 rad a step it meets what its tangent misses."""
    sim, q, qd = turning_rod(1e3 * turn)
    angle = 0.35 + max(0.2, turn - 0.4) * torch.arange(32, dtype=F64) / 32
    q[:, 8], q[:, 9] = 0.45 * angle.sin(), 0.45 * angle.cos()
    states = sim.rollout(pb.State(q, qd), 8)
    assert float(states.qd[-1, :, 9:12].norm(dim=1).min()) > 50.0
    assert (states.status.code == 0).all()


def test_what_turns_more_than_once_in_a_step_is_told_of():
    sim, q, qd = turning_rod(8e3)
    q[:, 8] = 0.45
    with pytest.warns(pb.SimulationWarning, match="turned by more than a whole turn in step 0"):
        states = sim.rollout(pb.State(q, qd), 2)
    assert (states.status.code & TURNED_FAR > 0).any()


# -- servos and damping -----------------------------------------------------------------------------------------------


def test_gradients_by_servos_and_damping_agree_with_differences():
    """A joint with damping and a servo comes to its end: parts of a step look ahead by their own time."""

    def loss(x: Tensor) -> Tensor:
        robot = pendulum(0.5)
        robot.set_link_param("upper", "joint_damping", x[2])
        world = pb.World(gravity=(0.0, 0.0, -9.81))
        servo = pb.PositionServo(kp=x[0], kd=x[1])
        world.add(robot, name="arm", collision_links=[], actuators=servo)
        sim = world.compile(dt=2e-3, dtype=F64, impacts="split")
        q, qd = torch.tensor([[0.31, -0.4]], dtype=F64), torch.tensor([[2.0, 0.5]], dtype=F64)
        targets = torch.tensor([0.8, 0.2], dtype=F64).expand(60, 1, 2)
        end = sim.rollout(pb.State(q, qd), targets)
        return (end.q[-1] * torch.tensor([0.3, 1.0])).sum() + (end.qd[-1] * torch.tensor([0.7, 0.5])).sum()

    x = torch.tensor([30.0, 1.5, 0.1], dtype=F64, requires_grad=True)
    (found,) = torch.autograd.grad(loss(x), x)
    with torch.no_grad():
        for k in range(3):
            d = STEP * 30.0 * torch.eye(3, dtype=F64)[k]
            expected = (loss(x + d) - loss(x - d)) / (2.0 * float(d.max()))
            assert float(found[k]) == pytest.approx(float(expected), rel=DIFFERENCES)


# -- other launches and solvers ----------------------------------------------------------------------------------------


def driven_pendulum(contact: pb.PGS | pb.Exact) -> tuple[pb.Sim, pb.State, Tensor]:
    """Return a pendulum under servos that comes to its end, above a floor that its tip strikes, and its targets."""
    world = pb.World(gravity=(0.0, 0.0, -9.81), contact=contact)
    world.add_plane("floor", position=(0.0, 0.0, -0.3), friction=0.3, restitution=0.4)
    world.add(pendulum(0.5), name="arm", actuators=pb.PositionServo(kp=30.0, kd=1.5))
    sim = world.compile(dt=2e-3, dtype=F64, impacts="split")
    state = pb.State(torch.tensor([[0.31, 0.4]], dtype=F64), torch.tensor([[2.0, 0.5]], dtype=F64))
    return sim, state, torch.tensor([0.8, 0.2], dtype=F64).expand(80, 1, 2)


def test_step_linearize_and_feedback_agree_at_limits_and_under_servos():
    sim, start, targets = driven_pendulum(pb.PGS())
    nominal = sim.rollout(start, targets)
    gains = torch.zeros(80, 1, 2, 4, dtype=F64)
    again, _ = sim.feedback_rollout(start, targets, gains, nominal)
    assert (again.q - nominal.q).abs().max() == 0.0
    state = start
    for u in targets:
        state = sim.step(state, u)
    assert (state.q - nominal.q[-1]).abs().max() == 0.0
    found = sim.linearize(nominal, targets)
    # the steps in which velocities jump most are those with touches
    touched = (nominal.qd[1:] - nominal.qd[:-1]).abs().amax((1, 2)).topk(2).indices.tolist()
    for k in (0, *touched):
        before = pb.State(nominal.q[k], nominal.qd[k])
        after = sim.step(before, targets[k])

        def moved(dx: Tensor, du: Tensor, before=before, after=after, k=k) -> Tensor:
            return sim.difference(after, sim.step(sim.retract(before, dx), targets[k] + du))[0]

        zeros = torch.zeros(1, 4, dtype=F64), torch.zeros(1, 2, dtype=F64)
        by_state, by_control = torch.autograd.functional.jacobian(moved, zeros)
        assert (found.A[k, 0] - by_state[:, 0]).abs().max() < 1e-7 * by_state.abs().max()
        assert (found.B[k, 0] - by_control[:, 0]).abs().max() < 1e-7 * by_control.abs().max()


@pytest.mark.slow
def test_solvers_agree():
    ends = [sim.rollout(start, targets).q[-1] for sim, start, targets in map(driven_pendulum, (pb.PGS(), pb.Exact()))]
    assert (ends[0] - ends[1]).abs().max() < 1e-7


@pytest.mark.parametrize(("mass", "dt", "bar"), [(1.0, 1e-3, 1e-12), (100.0, 1e-5, 1e-9)])
def test_plastic_impacts_leave_no_softness_in_derivatives(mass, dt, bar):
    """The speed after a plastic impact does not depend on the height: once it did, by 5e-5 cfm m / dt, 5e-4 here."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    world.add_ground(friction=0.2)
    world.add_sphere("ball", radius=0.1, mass=mass, position=(0.0, 0.0, 0.1 + 1.3 * dt))
    sim = world.compile(dt=dt, dtype=F64, impacts="split")
    start = sim.initial_state(8)
    q, qd = start.q.clone(), start.qd.clone()
    # the touch comes at eight places within a step
    q[:, 2] += dt * torch.arange(8, dtype=F64) / 8.0
    qd[:, 5] = -1.0
    q.requires_grad_()
    speed = sim.rollout(pb.State(q, qd), 12).qd[-1, :, 5]
    assert float(speed.abs().max()) < 1e-6
    (found,) = torch.autograd.grad(speed.sum(), q)
    assert float(found[:, 2].abs().max()) < bar


def test_fast_trees_are_seen_without_a_margin():
    """A random world in which a link that swings at 3 m/s once came down 1.6 mm deep: how far to look was not known."""
    drawn = draw(282, kind="passive", worlds=8, steps=96, plain=True, impacts="split")
    assert drawn.world.contact.margin == 0.0
    states = drawn.sim.rollout(drawn.state, drawn.controls, check=False)
    steps = side_by_side(drawn, states)
    deeper = deepest(drawn, steps.after) - deepest(drawn, steps.state)
    assert deeper.max() < 1e-4
