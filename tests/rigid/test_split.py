"""Steps that are split where something touches: gradients against central differences, physics, other launches."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Limits, Link, Shape, Tree
from pullback.rigid.compile import layout
from tests.rigid.worlds import F64, TOES

Tensor = torch.Tensor
DIFFERENCES = 1e-5
STEP = 1e-7


def free(*place: float, turn: tuple[float, float, float] = (0.1, 0.2, -0.15)) -> list[float]:
    """Return the coordinates of a body at a place, turned."""
    return [*place, *turn, (1.0 - sum(x * x for x in turn)) ** 0.5]


def directional(sim: pb.Sim, q: Tensor, qd: Tensor, steps: int, **options) -> tuple[float, float]:
    """Return the derivative of a weighted last state along a direction, by the adjoint and by differences."""
    weights = torch.linspace(0.5, 20.0, q.shape[1] + qd.shape[1], dtype=F64).sin()
    dq = torch.linspace(1.0, 9.0, q.shape[1], dtype=F64).cos()
    dqd = torch.linspace(2.0, 7.0, qd.shape[1], dtype=F64).cos()

    def loss(s: Tensor) -> Tensor:
        state = pb.State(q + s * dq, qd + s * dqd, sim.initial_state(len(q)).impulses)
        end = sim.rollout(state, steps, **options)
        return (torch.cat([end.q[-1], end.qd[-1]], 1) * weights).sum()

    s = torch.zeros((), dtype=F64, requires_grad=True)
    (found,) = torch.autograd.grad(loss(s), s)
    with torch.no_grad():
        expected = (loss(s + STEP) - loss(s - STEP)) / (2.0 * STEP)
    return float(found), float(expected)


# -- shapes ----------------------------------------------------------------------------------------------------------


def two_bodies(shape: str, restitution: float) -> tuple[pb.World, Tensor, Tensor]:
    """Return a body that flies at a ball, or falls on the ground, and the state they start from."""
    world = pb.World(gravity=(0.0, 0.0, -9.81))
    surface = {"friction": 0.3, "restitution": restitution}
    world.add_ground(**surface)
    add = {
        "sphere": lambda: world.add_sphere("a", radius=0.1, mass=1.0, **surface),
        "capsule": lambda: world.add_capsule("a", radius=0.05, length=0.2, mass=1.0, **surface),
        "box": lambda: world.add_box("a", size=(0.2, 0.15, 0.1), mass=1.0, **surface),
        "cylinder": lambda: world.add_cylinder("a", radius=0.06, length=0.2, mass=1.0, **surface),
        "ellipsoid": lambda: world.add_ellipsoid("a", radii=(0.1, 0.08, 0.06), mass=1.0, **surface),
    }
    add[shape]()
    world.add_sphere("b", radius=0.1, mass=0.5, **surface)
    q = torch.tensor([free(0.0, 0.0, 0.4) + free(0.27, 0.03, 0.42)], dtype=F64)
    qd = torch.tensor([[0.5, 1.0, 0.3, 1.5, 0.1, -0.2, 0.0, 0.0, 0.0, -1.0, 0.0, 0.1]], dtype=F64)
    return world, q, qd


@pytest.mark.parametrize("restitution", [0.6, 0.0])
@pytest.mark.parametrize("shape", ["sphere", "box", "cylinder", "ellipsoid"])
def test_gradients_agree_with_differences(shape, restitution):
    """The bodies meet, then both come down; a box that lies flat and slides has gradients like 1 / cfm, at kinks."""
    world, q, qd = two_bodies(shape, restitution)
    sim = world.compile(dt=2e-3, dtype=F64, impacts="split")
    for steps in (40, 110):
        found, expected = directional(sim, q, qd, steps)
        assert found == pytest.approx(expected, rel=DIFFERENCES)


def test_schedules_agree():
    world, q, qd = two_bodies("sphere", 0.6)
    sim = world.compile(dt=2e-3, dtype=F64, impacts="split")
    found = [directional(sim, q, qd, 60, checkpoint=c)[0] for c in (1, 7, pb.Binomial(3))]
    assert found[1:] == pytest.approx(found[:1] * 2, rel=1e-11)


def test_parts_that_are_not_kept_are_solved_again(monkeypatch):
    world, q, qd = two_bodies("sphere", 0.6)
    found = []
    for most in (layout.MOST_KEPT_ROWS, 0):
        monkeypatch.setattr(layout, "MOST_KEPT_ROWS", most)
        sim = world.compile(dt=2e-3, dtype=F64, impacts="split")
        assert layout.kept_parts(sim._programs.sizes()) == (2 if most else 0)
        found.append(directional(sim, q, qd, 110)[0])
    assert found[1] == pytest.approx(found[0], rel=1e-13)


def test_a_warm_start_changes_nothing_but_the_start():
    world, q, qd = two_bodies("sphere", 0.6)
    cold = directional(world.compile(dt=2e-3, dtype=F64, impacts="split"), q, qd, 130)
    world.contact = pb.PGS(warm_start=True)
    warm = directional(world.compile(dt=2e-3, dtype=F64, impacts="split"), q, qd, 130)
    assert warm[0] == pytest.approx(cold[0], rel=1e-6)


# -- robots ----------------------------------------------------------------------------------------------------------


def pendulum(upper: float) -> pb.RobotModel:
    """Return two hinges about y with a limit, a ball at the end."""
    links = [Link("root")]
    links += [Link(n, 1.0, np.array([0.25, 0.0, 0.0]), 0.02 * np.eye(3)) for n in ("upper", "lower")]
    links[2].shapes.append(Shape("sphere", (0.05,)))
    y = np.array([0.0, 1.0, 0.0])
    ends = Limits(-2.0, upper)
    joints = [Joint("j0", "revolute", "root", "upper", axis=y, limits=ends, friction=0.02)]
    joints.append(Joint("j1", "revolute", "upper", "lower", axis=y, limits=ends, damping=0.01))
    joints[1].origin.translation = np.array([0.5, 0.0, 0.0])
    return pb.RobotModel(compile_tree(Tree("pendulum", links, joints)), dtype=F64)


def test_limits_are_touched_too():
    """The first joint comes to its end at 2 rad/s: gradients agree with differences, and the joint stops there."""
    world = pb.World(gravity=(0.0, 0.0, -9.81))
    world.add(pendulum(0.5), name="arm", collision_links=[])
    sim = world.compile(dt=2e-3, dtype=F64, impacts="split")
    q, qd = torch.tensor([[0.31, -0.4]], dtype=F64), torch.tensor([[2.0, 0.5]], dtype=F64)
    assert float(sim.rollout(pb.State(q, qd), 60).q[-1, 0, 0]) == pytest.approx(0.5, abs=1e-6)
    found, expected = directional(sim, q, qd, 60)
    assert found == pytest.approx(expected, rel=DIFFERENCES)


def test_a_closed_loop_lands():
    """Two balls that are held together at a point between them come down."""
    world = pb.World(gravity=(0.0, 0.0, -9.81))
    world.add_ground(friction=0.3, restitution=0.5)
    for name, x in (("a", 0.0), ("b", 0.24)):
        world.add_sphere(name, radius=0.1, mass=1.0, position=(x, 0.0, 0.16), friction=0.3, restitution=0.5)
    world.connect("a", "b", position_a=(0.12, 0.0, 0.0))
    sim = world.compile(dt=2e-3, dtype=F64, impacts="split")
    q = torch.tensor([[0.0, 0.0, 0.16, 0.0, 0.0, 0.0, 1.0, 0.24, 0.0, 0.16, 0.0, 0.0, 0.0, 1.0]], dtype=F64)
    qd = torch.tensor([[0.0, 0.3, 0.0, 1.0, 0.0, -0.5, 0.0, 0.3, 0.0, 1.0, 0.0, -0.572]], dtype=F64)
    found, expected = directional(sim, q, qd, 70)
    assert found == pytest.approx(expected, rel=DIFFERENCES)


@pytest.mark.parametrize("contact", [
    pb.PGS(),
    pb.PGS(iterations=3, tolerance=0.0),
    pb.PGS(iterations=6, gradient="unrolled"),
], ids=["converged", "unconverged", "unrolled"])  # fmt: skip
def test_a_dog_lands(contact):
    """Its toes touch one after the other, and stay. Where sweeps are used up, inertias of servos count as well."""
    world = pb.World(gravity=(0.0, 0.0, -9.81), contact=contact)
    world.add_ground(friction=0.8)
    dog = pb.load("laikago", "floating", dtype=F64)
    servo = pb.PositionServo(kp=80.0, kd=2.0)
    world.add(dog, name="dog", position=(0.0, 0.0, 0.6), collision_links=TOES, actuators=servo)
    sim = world.compile(dt=2e-3, dtype=F64, impacts="split")
    state = sim.initial_state()
    q = state.q.clone()
    q[:, 2] -= min(c.gap for c in sim.contacts(pb.State(q - 0.1 * (torch.arange(q.shape[1]) == 2), state.qd))[0]) + 0.07
    q[:, 3:6] = torch.tensor([0.02, 0.03, 0.0])
    qd = state.qd.clone()
    qd[:, 5] = -1.0
    controls = q[:, 7:].expand(40, 1, -1)
    weights = torch.linspace(0.5, 20.0, sim.nv, dtype=F64).sin()

    def loss(height: Tensor) -> Tensor:
        moved = torch.cat([q[:, :2], q[:, 2:3] + height, q[:, 3:]], 1)
        return (sim.rollout(pb.State(moved, qd), controls).qd[-1] * weights).sum()

    h = torch.zeros((), dtype=F64, requires_grad=True)
    (found,) = torch.autograd.grad(loss(h), h)
    with torch.no_grad():
        expected = (loss(h + STEP) - loss(h - STEP)) / (2.0 * STEP)
    assert float(found) == pytest.approx(float(expected), rel=DIFFERENCES)


# -- physics -----------------------------------------------------------------------------------------------------------


def test_a_cradle_passes_its_speed_on_within_a_step():
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    for k in range(4):
        place = (0.2002 * k, 0.0, 0.0)
        world.add_sphere(f"ball{k}", radius=0.1, mass=1.0, position=place, friction=0.0, restitution=1.0)
    sim = world.compile(dt=1e-3, dtype=F64, impacts="split")
    start = sim.initial_state(8)
    q, qd = start.q.clone(), start.qd.clone()
    q[:, 0] -= 1e-3 * torch.arange(8, dtype=F64) / 8
    qd[:, 3] = 1.0
    end = sim.rollout(pb.State(q, qd), 4).qd[-1][:, 3::6]
    assert end[:, 3].tolist() == pytest.approx([1.0] * 8, abs=1e-5)
    assert end[:, :3].abs().max() < 1e-5


def test_fast_and_thin_is_not_missed():
    """A ball at 50 m/s, 5 cm a step, does not pass a plate of 2 cm."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    world.add_box("plate", size=(1.0, 1.0, 0.02), static=True, friction=0.0)
    world.add_sphere("ball", radius=0.01, mass=1.0, friction=0.0)
    sim = world.compile(dt=1e-3, dtype=F64, impacts="split")
    start = sim.initial_state(32)
    q, qd = start.q.clone(), start.qd.clone()
    q[:, 2] = 0.1 + 0.05 * torch.arange(32, dtype=F64) / 32
    qd[:, 5] = -50.0
    end = sim.rollout(pb.State(q, qd), 8)
    assert end.q[-1][:, 2].min() > 0.02 - 1e-6


# -- other launches ----------------------------------------------------------------------------------------------------


def test_linearize_and_feedback_agree_with_the_step():
    world, q, qd = two_bodies("sphere", 0.6)
    sim = world.compile(dt=2e-3, dtype=F64, impacts="split")
    steps = 40
    nominal = sim.rollout(pb.State(q, qd), steps)
    controls = torch.zeros(steps, 1, 0, dtype=F64)
    gains = torch.zeros(steps, 1, 0, 2 * sim.nv, dtype=F64)
    again, _ = sim.feedback_rollout(pb.State(q, qd), controls, gains, nominal)
    assert (again.q - nominal.q).abs().max() == 0.0
    found = sim.linearize(nominal, controls).A[:, 0]
    # the steps with a jump of velocity are those with a touch
    touched = int((nominal.qd[1:] - nominal.qd[:-1]).abs().amax((1, 2)).argmax())
    for k in (0, touched):
        state = pb.State(nominal.q[k], nominal.qd[k])
        after = sim.step(state)

        def moved(dx, state=state, after=after):
            return sim.difference(after, sim.step(sim.retract(state, dx)))[0]

        jacobian = torch.autograd.functional.jacobian(moved, torch.zeros(1, 2 * sim.nv, dtype=F64))[:, 0]
        assert (found[k] - jacobian).abs().max() < 1e-7 * jacobian.abs().max()


def test_float32_follows():
    world, q, qd = two_bodies("sphere", 0.6)
    ends = []
    for dtype in (torch.float32, F64):
        sim = world.compile(dt=2e-3, dtype=dtype, impacts="split")
        ends.append(sim.rollout(pb.State(q.to(dtype), qd.to(dtype)), 60).q[-1].double())
    assert (ends[0] - ends[1]).abs().max() < 1e-3


def test_compliant_contact_is_refused():
    world = pb.World(contact=pb.Compliant(stiffness=1e4))
    world.add_ground()
    world.add_sphere("ball", radius=0.1, mass=1.0)
    with pytest.raises(pb.PullbackError, match="rigid contact"):
        world.compile(dt=1e-3, impacts="split")
    with pytest.raises(pb.PullbackError, match="impacts is 'both'"):
        world.compile(dt=1e-3, impacts="both")
