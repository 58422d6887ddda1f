"""The step kernels and their adjoint against the plain torch of tests/reference/step.py and torch's own autograd.

Sweeps are counted, not stopped, and differentiated one by one, so that both sides do the same arithmetic.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.load import read
from pullback.description.tree import Joint, Limits, Link, Shape, Tree
from tests.reference.actuators import Actuators, actuators
from tests.reference.dynamics import description_parameters, link_poses
from tests.reference.step import Ball, Pair, Settings, rollout
from tests.rigid.worlds import F64, TOES

# the same arithmetic in another order, over a few dozen steps
STATES = 1e-10
GRADIENTS = 1e-8
SWEEPS = 12
RADIUS = 0.1

Tensor = torch.Tensor


class Case(NamedTuple):
    """A world, what it depends on by name, and the reference's rollout as a function of the same tensors."""

    world: pb.World
    leaves: dict[str, Tensor]
    reference: Callable[[dict[str, Tensor]], tuple[Tensor, Tensor]]
    dt: float
    steps: int


def leaf(*values: float) -> Tensor:
    value = torch.tensor(values, dtype=F64)
    return (value[0] if len(values) == 1 else value).requires_grad_()


def solver(cone: bool) -> pb.PGS:
    friction = "cone" if cone else "pyramid"
    return pb.PGS(iterations=SWEEPS, tolerance=0.0, friction=friction, gradient="unrolled")


def settings(cone: bool, dt: float = 1e-3) -> Settings:
    return Settings(dt=dt, sweeps=SWEEPS, cone=cone)


def learn(robot: pb.RobotModel, link: str, *names: str) -> dict[str, Tensor]:
    """Make parameters of a link learnable and return the tensors that they are."""
    found = {}
    for name in names:
        module = pb.UnconstrainedTensor()
        robot.make_link_param_learnable(link, name, module)
        found[f"{link} {name}"] = module.raw
    return found


def learned(model, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters of the reference with the learnable ones in their places."""
    parameters = description_parameters(model)
    for key, value in leaves.items():
        link, _, name = key.partition(" ")
        if name in parameters:
            index = torch.tensor([model.link_index[link]])
            parameters[name] = parameters[name].index_copy(0, index, value[None])
    return parameters


# -- cases ---------------------------------------------------------------------------------------------------------


def ball(cone: bool, height: float, qd: Tensor, friction: float, restitution: float, steps: int) -> Case:
    contact = solver(cone)
    world = pb.World(contact=contact, gravity=leaf(0.3, 0.1, -9.81))
    ground = {"friction": leaf(friction)} | ({"restitution": leaf(restitution)} if restitution else {})
    world.add_ground(**ground)
    world.add_sphere("ball", radius=RADIUS, mass=2.0)
    robot = world.robots["ball"].to(F64)
    leaves = {"q": leaf(0.2, -0.1, height, 0.1, 0.2, -0.3, 0.9), "qd": qd, "gravity": world.gravity, **ground}
    leaves |= {"radius": leaf(RADIUS), "centre": leaf(0.004, -0.005, 0.002)}
    leaves |= learn(robot, "ball", "mass", "com", "inertia_mat")
    world.set_shape("ball", size=leaves["radius"][None], position=leaves["centre"])

    def reference(x):
        shape = Ball(robot.model.link_index["ball"], x["centre"], x["radius"])
        pair = Pair(shape, None, x["friction"], x.get("restitution", torch.zeros((), dtype=F64)))
        options = {"gravity": x["gravity"], "settings": settings(cone), "pairs": [pair]}
        return rollout(robot.model, learned(robot.model, x), x["q"], x["qd"], steps, **options)

    return Case(world, leaves, reference, 1e-3, steps)


def ball_slides(cone: bool) -> Case:
    return ball(cone, RADIUS - 0.006, leaf(0.3, -0.2, 0.4, 0.7, 0.3, 0.0), 0.2, 0.0, 20)


def ball_bounces(cone: bool) -> Case:
    return ball(cone, RADIUS + 0.0054, leaf(3.0, -2.0, 1.0, 0.5, -0.2, -1.0), 0.02, 0.7, 12)


def balls_collide(cone: bool) -> Case:
    world = pb.World(contact=solver(cone), gravity=leaf(0.0, 0.0, -9.81))
    surface = {"friction": leaf(0.02), "restitution": leaf(0.6)}
    leaves = {"gravity": world.gravity, **surface, "radius a": leaf(RADIUS), "radius b": leaf(1.1 * RADIUS)}
    for name in "ab":
        world.add_sphere(name, radius=RADIUS, mass=2.0, **(surface if name == "a" else {}))
        leaves |= learn(world.robots[name].to(F64), name, "mass")
        world.set_shape(name, size=leaves[f"radius {name}"][None])
    leaves["q"] = leaf(0, 0, 1, 0, 0, 0, 1, 0.15, 0.1, 1.11, 0.1, 0.3, 0.2, 1.1)
    leaves["qd"] = leaf(1, 2, 3, 1, 0.5, 0.2, 0, -1, 2, -0.5, 0, 0)
    links = [
        Link(name, 2.0, np.zeros(3), 0.4 * 2.0 * RADIUS**2 * np.eye(3), [Shape("sphere", (RADIUS,))]) for name in "ab"
    ]
    joints = [Joint(f"{name}_joint", "floating", "root", name) for name in "ab"]
    model = compile_tree(Tree("balls", [Link("root"), *links], joints))

    def reference(x):
        balls = [Ball(model.link_index[n], torch.zeros(3, dtype=F64), x[f"radius {n}"]) for n in "ab"]
        pairs = [Pair(*balls, x["friction"], x["restitution"])]
        options = {"gravity": x["gravity"], "settings": settings(cone), "pairs": pairs}
        return rollout(model, learned(model, x), x["q"], x["qd"], 10, **options)

    return Case(world, leaves, reference, 1e-3, 10)


def pendulum_at_its_limits(cone: bool, first: tuple[float, float] = (-0.3, 0.3)) -> Case:
    tree = read("pendulum2")
    ends = (Limits(*first), Limits(-0.3, 0.3))
    joints = [replace(joint, limits=x, friction=0.05, damping=0.1) for joint, x in zip(tree.joints, ends)]
    robot = pb.RobotModel(compile_tree(replace(tree, joints=joints)), dtype=F64)
    world = pb.World(contact=solver(cone), gravity=leaf(0.1, 0.2, -9.81))
    gains = {"kp": leaf(0.5), "kd": leaf(0.01), "limit": leaf(0.3)}
    world.add(robot, name="arm", actuators=pb.PositionServo(**gains), collision_links=[])
    links = [body.joint.child for body in robot.model.bodies]
    leaves = {"q": leaf(0.28, -0.1), "qd": leaf(1.0, 0.5), "gravity": world.gravity, **gains}
    leaves |= learn(robot, links[0], "joint_damping", "joint_friction", "joint_armature")
    leaves |= learn(robot, links[1], "joint_damping", "joint_friction", "mass", "com", "trans")
    # the first is weak, the second wants more than it may
    leaves["u"] = torch.tensor([[0.3, -2.0]] * 10, dtype=F64).requires_grad_()

    def reference(x):
        row = torch.stack([x["kp"], x["kp"], x["kd"], x["limit"]])
        options = {"settings": settings(cone, 5e-3), "driven": Actuators([0, 1], torch.stack([row, row]))}
        parameters = learned(robot.model, x)
        return rollout(robot.model, parameters, x["q"], x["qd"], x["u"], gravity=x["gravity"], **options)

    return Case(world, leaves, reference, 5e-3, 10)


def arm_with_a_far_target(cone: bool) -> Case:
    """The servo of the first joint is at its limit all the time, that of the second joins it and leaves it."""
    robot = pb.load("pendulum2", dtype=F64)
    world = pb.World(contact=solver(cone), gravity=leaf(0.0, 0.0, 0.0))
    gains = {"kp": leaf(5000.0), "kd": leaf(20.0), "limit": leaf(3.0)}
    world.add(robot, name="arm", actuators=pb.PositionServo(**gains), collision_links=[])
    leaves = {"q": leaf(0.0, 0.0), "qd": leaf(0.0, 0.0), "gravity": world.gravity, **gains}
    leaves["u"] = torch.tensor([[1.0, target] for target in (0.05, 1e-3, 1e-3, -0.05, 0.0, 0.0)], dtype=F64)
    leaves["u"].requires_grad_()

    def reference(x):
        row = torch.stack([x["kp"], x["kp"], x["kd"], x["limit"]])
        options = {"settings": settings(cone, 1e-2), "driven": Actuators([0, 1], torch.stack([row, row]))}
        return rollout(robot.model, learned(robot.model, x), x["q"], x["qd"], x["u"], gravity=x["gravity"], **options)

    return Case(world, leaves, reference, 1e-2, 6)


def pendulum_locked(cone: bool) -> Case:
    """The first joint has no room between its ends, and starts beside them."""
    return pendulum_at_its_limits(cone, (0.279, 0.279))


def laikago_stands(cone: bool, steps: int = 2) -> Case:
    robot = pb.load("laikago", "floating", dtype=F64)
    model = robot.model
    world = pb.World(contact=solver(cone), gravity=leaf(0.0, 0.0, -9.81))
    gains, limit = {"kp": leaf(150.0), "kd": leaf(3.0)}, torch.tensor(100.0, dtype=F64)
    leaves = {"gravity": world.gravity, "radius": leaf(0.03), "friction": leaf(0.25), **gains}
    servos = pb.PositionServo(**gains, limit=limit)
    world.add(robot, name="dog", actuators=servos, collision_links=TOES, friction=leaves["friction"])
    world.add_ground()
    leaves |= learn(robot, "chassis", "mass", "com") | learn(robot, "toeFL", "mass", "trans")
    world.set_shape("dog", size=leaves["radius"][None])
    q = torch.tensor([0, 0, 0, 0.02, -0.01, 0.03, 1.0] + [0.05, 0.1, -0.7] * 4, dtype=F64)
    _, p, _ = link_poses(model, description_parameters(model), q)
    q[2] = 0.03 - max(float(p[model.link_index[toe]][2]) for toe in TOES) - 1e-3
    leaves["q"] = q.requires_grad_()
    qd = 0.05 * torch.from_numpy(np.random.default_rng(1).normal(size=model.nv))
    leaves["qd"] = qd.requires_grad_()
    leaves["u"] = (q.detach()[7:] + 0.02).repeat(steps, 1).requires_grad_()

    def reference(x):
        rows = torch.stack([x["kp"], x["kp"], x["kd"], limit]).repeat(12, 1)
        zero = torch.zeros(3, dtype=F64)
        toes = [Ball(link, zero, x["radius"]) for link in sorted(map(model.link_index.__getitem__, TOES))]
        pairs = [Pair(toe, None, x["friction"], zero[0]) for toe in toes]
        options = {"pairs": pairs, "driven": Actuators(actuators(model).dofs, rows), "settings": settings(cone)}
        return rollout(model, learned(model, x), x["q"], x["qd"], x["u"], gravity=x["gravity"], **options)

    return Case(world, leaves, reference, 1e-3, steps)


def laikago_stands_longer(cone: bool) -> Case:
    return laikago_stands(cone, 20)


# -- the comparison ------------------------------------------------------------------------------------------------


def ours(case: Case) -> tuple[Tensor, Tensor]:
    sim = case.world.compile(dt=case.dt, dtype=F64)
    start = pb.State(case.leaves["q"][None], case.leaves["qd"][None])
    controls = case.leaves["u"][:, None] if "u" in case.leaves else case.steps
    trajectory = sim.rollout(start, controls, check=True)
    return trajectory.q[:, 0], trajectory.qd[:, 0]


def weighted(q: Tensor, qd: Tensor) -> Tensor:
    """Return a sum of all states' entries with weights that no symmetry cancels."""
    states = torch.cat([q[1:], qd[1:]], 1)
    return (states * torch.linspace(0.5, 50.0, states.numel(), dtype=F64).sin().view_as(states)).sum()


CASES = [
    *[(case, cone) for case in (ball_slides, ball_bounces, balls_collide) for cone in (True, False)],
    (pendulum_at_its_limits, True),
    (pendulum_locked, True),
    (arm_with_a_far_target, True),
    (laikago_stands, True),
    *[pytest.param(laikago_stands_longer, cone, marks=pytest.mark.slow) for cone in (True, False)],
]


@pytest.mark.parametrize(("case", "cone"), CASES, ids=lambda x: {True: "cone", False: "pyramid"}.get(x) or x.__name__)
def test_states_and_gradients_agree_with_the_reference(case, cone):
    case = case(cone)
    found, expected = ours(case), case.reference(case.leaves)
    for name, a, b in zip(("q", "qd"), found, expected):
        worst = float((a - b).detach().abs().max())
        assert worst < STATES, f"{name} differs by {worst:.1e}"
    gradients = [torch.autograd.grad(weighted(*x), list(case.leaves.values())) for x in (found, expected)]
    for name, a, b in zip(case.leaves, *gradients):
        if name.endswith("inertia_mat"):
            # a change of an inertia is symmetric
            a, b = a + a.T, b + b.T
        assert float(b.abs().max()) > 0.0, f"{name} does nothing here"
        worst = float((a - b).abs().max() / (1.0 + b.abs().max()))
        assert worst < GRADIENTS, f"the gradient of {name} differs by {worst:.1e}: {a} instead of {b}"


def test_the_cases_are_what_they_are_called():
    """The ball slides all along and bounces once, the pendulum reaches a limit, the dog stands on all feet."""
    q, qd = (x.detach() for x in ours(ball_bounces(True)))
    assert int((q[1:, 2] > q[:-1, 2]).diff().sum()) == 1
    case = ball_slides(True)
    sim = case.world.compile(dt=case.dt, dtype=F64)
    q, qd = (x.detach() for x in ours(case))
    for state in (0, -1):
        (contacts,) = sim.contacts(pb.State(q[[state]], qd[[state]]))
        (force,) = [torch.tensor(contact.force, dtype=F64) for contact in contacts]
        assert float(force[:2].norm()) == pytest.approx(0.2 * float(force[2]), rel=1e-9)
    q, _ = (x.detach() for x in ours(pendulum_at_its_limits(True)))
    assert float(q[:, 0].max()) == pytest.approx(0.3, abs=1e-3)
    case = laikago_stands(True)
    sim = case.world.compile(dt=case.dt, dtype=F64)
    (contacts,) = sim.contacts(pb.State(case.leaves["q"].detach()[None], case.leaves["qd"].detach()[None]))
    assert len(contacts) == 4
