"""Joints that rest at an end of their range: without room held both ways, without load let go.

A row that only pushes would stand on a kink in each step of such a joint, lower and upper end in turn, and a chain of
one-sided derivatives, each right in its own step, is that of no motion at all.
"""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Limits, Link, Pose, Shape, Tree
from tests.rigid.worlds import F64

DT, STEPS = 2e-3, 12
SERVO = pb.PositionServo(60.0, 2.0)


def tower() -> pb.RobotModel:
    """Return a box with two links on it, one above the other, on joints about x that are locked."""
    base = Link("base", 0.5, inertia=2e-3 * np.eye(3), shapes=[Shape("box", (0.1, 0.1, 0.1))])
    arms = [Link(name, 0.2, inertia=5e-4 * np.eye(3), com=np.array([0.0, 0.0, 0.05])) for name in ("lower", "upper")]
    joints = [
        Joint(f"joint{k}", "revolute", parent, child, Pose(np.array([0.0, 0.0, z])), axis=np.array([1.0, 0.0, 0.0]))
        for k, (parent, child, z) in enumerate((("base", "lower", 0.05), ("lower", "upper", 0.1)))
    ]
    for joint in joints:
        joint.limits = Limits(0.0, 0.0)
    return pb.RobotModel(compile_tree(Tree("tower", [base, *arms], joints, source="tower"), "floating"), dtype=F64)


def stand(contact: pb.PGS | pb.Exact) -> pb.Sim:
    """Return the tower on four corners on smooth ground, its servos at rest."""
    world = pb.World(contact=contact)
    world.add(tower(), position=(0.0, 0.0, 0.05), actuators=SERVO)
    world.add_ground(friction=0.0)
    return world.compile(dt=DT, dtype=F64)


def loss(sim: pb.Sim, qd: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Return a weighted sum of the last state (n,), of n worlds that start with velocities qd (n, nv)."""
    start = sim.initial_state(len(qd))
    rolled = sim.rollout(pb.State(start.q, qd, start.impulses), u.expand(-1, len(qd), -1))
    weights = torch.randn(sim.nq + sim.nv, dtype=F64, generator=torch.Generator().manual_seed(1))
    return torch.cat([rolled.q[-1], rolled.qd[-1]], 1) @ weights


@pytest.mark.parametrize("contact", [pb.PGS(), pb.Exact()], ids=["PGS", "Exact"])
def test_a_tower_at_rest_has_the_gradient_of_differences_on_either_side(contact):
    sim = stand(contact)
    qd, u = torch.zeros(1, sim.nv, dtype=F64, requires_grad=True), torch.zeros(STEPS, 1, sim.nu, dtype=F64)
    middle = loss(sim, qd, u)
    (found,) = torch.autograd.grad(middle.sum(), qd)
    step = 1e-6
    for side in (step, -step):
        moved = loss(sim, side * torch.eye(sim.nv, dtype=F64), u)
        differences = (moved - middle).detach() / side
        assert differences.abs().max() > 0.5
        assert (found[0] - differences).abs().max() < 1e-6


@pytest.mark.parametrize("impacts", ["step", "split"])
@pytest.mark.parametrize("speed", [3.0, -3.0])
def test_a_locked_joint_stays_where_it_is(speed, impacts):
    joint = Joint("joint", "revolute", "base", "arm", axis=np.array([0.0, 1.0, 0.0]), limits=Limits(0.2, 0.2))
    links = [Link("base", 1.0), Link("arm", 2.0, inertia=0.1 * np.eye(3))]
    robot = pb.RobotModel(compile_tree(Tree("hinge", links, [joint], source="hinge")), dtype=F64)
    world = pb.World()
    world.add(robot, actuators=pb.Torque(), q={"joint": 0.2})
    sim = world.compile(dt=DT, dtype=F64, impacts=impacts)
    start = sim.initial_state()
    start.qd[:] = speed
    rolled = sim.rollout(start, torch.full((STEPS, 1, 1), speed, dtype=F64))
    assert (rolled.q - 0.2).abs().max() < 1e-8


ENDS = (0.7, -0.2, 0.3)


def drifting(contact: pb.PGS | pb.Exact) -> pb.Sim:
    """Return a box with three links that drifts in space, each joint at its lower end, where its servo wants it."""
    links = [Link("base", 0.5, inertia=2e-3 * np.eye(3))]
    links += [Link(f"arm{k}", 0.2, inertia=5e-4 * np.eye(3), com=np.array([0.02, 0.0, 0.05])) for k in range(3)]
    joints = []
    for k, end in enumerate(ENDS):
        axis, place = np.eye(3)[k % 2], Pose(np.array([0.0, 0.0, 0.1]))
        limits = Limits(end, end + 0.5)
        joint = Joint(f"joint{k}", "revolute", links[k].name, links[k + 1].name, place, axis=axis, limits=limits)
        joints.append(joint)
    robot = pb.RobotModel(compile_tree(Tree("chain", links, joints, source="chain"), "floating"), dtype=F64)
    world = pb.World(contact=contact, gravity=(0.0, 0.0, 0.0))
    world.add(robot, actuators=SERVO, q={joint.name: end for joint, end in zip(joints, ENDS)})
    return world.compile(dt=DT, dtype=F64)


@pytest.mark.parametrize("contact", [pb.PGS(), pb.Exact()], ids=["PGS", "Exact"])
def test_joints_at_their_ends_without_load_have_the_gradient_of_opening(contact):
    """Rounding chose in each step, and the gradient was that of neither side: -0.486 between -0.442 and -0.482."""
    sim = drifting(contact)
    u = torch.tensor(ENDS, dtype=F64).expand(STEPS, 1, -1)
    drift = torch.tensor([[0.0, 0.0, 0.0, 0.3, 0.1, 0.7, 0.0, 0.0, 0.0]], dtype=F64, requires_grad=True)
    opening = torch.tensor([[0.0] * 6 + [1.0] * 3], dtype=F64)
    middle = loss(sim, drift, u)
    (found,) = torch.autograd.grad(middle.sum(), drift)
    step = 1e-6
    opened, pressed = ((loss(sim, (drift + x * opening).detach(), u) - middle).item() / x for x in (step, -step))
    assert abs(opened - pressed) > 0.01
    assert abs((found * opening).sum() - opened) < 1e-6
    # so is what the steps are as linear maps
    starts = [pb.State(sim.initial_state().q, (drift + x * opening).detach()) for x in (0.0, step)]
    rolled, moved = (sim.rollout(start, u) for start in starts)
    change = torch.cat([0.0 * opening, opening], 1)[0]
    for A in sim.linearize(rolled, u).A[:, 0]:
        change = A @ change
    assert (change[sim.nv :] - (moved.qd[-1] - rolled.qd[-1])[0] / step).abs().max() < 1e-5
