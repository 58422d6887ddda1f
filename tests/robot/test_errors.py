"""What a user may not pass: each mistake is an error that names the offender, and nothing is changed."""

import pytest
import torch
from torch import nn

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Link, Tree
from tests.robot.operators import OPERATORS, each_operator, inputs_of, random_inputs
from tests.robot.synthetic import TIP, synthetic_robot

# torch's own forward-mode differentiation, which the reference uses, warns about torch
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


# -- errors -------------------------------------------------------------------------------------------------------


def refuse(robot: pb.RobotModel, match: str, call) -> None:
    """Check that a call raises and leaves the robot as it was."""
    saved = {name: value.clone() for name, value in robot.state_dict().items()}
    q = random_inputs(robot, 2)["q"]
    before = robot.compute_center_of_mass(q)
    with pytest.raises(pb.PullbackError, match=match):
        call()
    assert robot.state_dict().keys() == saved.keys()
    assert all(torch.equal(value, saved[name]) for name, value in robot.state_dict().items())
    assert torch.equal(robot.compute_center_of_mass(q), before)


def test_wrong_last_dimension(robot):
    x = random_inputs(robot, 3)
    q, qd, qdd = x["q"], x["qd"], x["qdd"]
    refuse(
        robot,
        r"q has shape \(3, 27\); synthetic expects \(\*batch, 28\)",
        lambda: robot.compute_center_of_mass(q[:, 1:]),
    )
    refuse(robot, r"q has shape \(\); synthetic expects", lambda: robot.compute_center_of_mass(q[0, 0]))
    for call in (robot.compute_inverse_dynamics, robot.compute_forward_dynamics):
        refuse(robot, r"qd has shape \(3, 24\); synthetic expects \(\*batch, 25\)", lambda f=call: f(q, qd[:, 1:], qdd))
    wide = torch.cat([qdd, qdd], -1)
    refuse(robot, r"qdd_des has shape \(3, 50\)", lambda: robot.compute_inverse_dynamics(q, qd, wide))
    refuse(robot, r"f has shape \(3, 50\)", lambda: robot.compute_forward_dynamics(q, qd, wide))
    short = {TIP: x["wrench"][:, :3]}
    refuse(
        robot,
        r"external_forces\['ball_tip'\] has shape \(3, 3\); synthetic expects \(\*batch, 6\)",
        lambda: robot.compute_inverse_dynamics(q, qd, qdd, external_forces=short),
    )


@pytest.mark.parametrize("gravity", [(0.0, -9.81), (0.0, 0.0, -9.81, 0.0), torch.zeros(2, dtype=torch.float64)])
def test_wrong_gravity(robot, gravity):
    x = random_inputs(robot, 3)
    state = (x["q"], x["qd"], x["qdd"])
    match = r"gravity is \(\d,\) torch.float64 on cpu; expected \(3,\) or \(\*batch, 3\)"
    refuse(robot, match, lambda: robot.compute_inverse_dynamics(*state, gravity=gravity))
    refuse(robot, match, lambda: robot.compute_potential_energy(x["q"], gravity=gravity))
    single = torch.zeros(3, dtype=torch.float32)
    refuse(robot, "gravity is .*float32", lambda: robot.compute_inverse_dynamics(*state, gravity=single))


def test_gravity_of_another_batch(robot):
    x = random_inputs(robot, 3)
    gravity = torch.zeros(2, 3, dtype=torch.float64)
    call = lambda: robot.compute_inverse_dynamics(x["q"], x["qd"], x["qdd"], gravity=gravity)  # noqa: E731
    refuse(robot, r"gravity.*\(2, 3\)", call)


def test_mixed_types(robot):
    x = random_inputs(robot, 3)
    match = r"qd is torch.float32 on cpu, the robot is torch.float64 on cpu; pass qd.to\(robot.device"
    refuse(robot, match, lambda: robot.compute_inverse_dynamics(x["q"], x["qd"].float(), x["qdd"]))
    match = r"q is torch.int64 on cpu, the robot is torch.float64"
    refuse(robot, match, lambda: robot.compute_center_of_mass(x["q"].long()))


def test_mixed_devices(robot):
    x = random_inputs(robot, 3)
    match = r"qd is torch.float64 on meta, the robot is torch.float64 on cpu; pass qd.to"
    refuse(robot, match, lambda: robot.compute_inverse_dynamics(x["q"], x["qd"].to("meta"), x["qdd"]))


def test_not_a_tensor(robot):
    q = random_inputs(robot)["q"]
    match = r"q is a list; expected a torch tensor of shape \(\*batch, 28\)"
    refuse(robot, match, lambda: robot.compute_center_of_mass(q.tolist()))
    refuse(robot, r"q is a ndarray; expected", lambda: robot.compute_forward_kinematics(q.numpy(), TIP))


@each_operator
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite(robot, operator, value):
    x = random_inputs(robot, 3)
    x["q"][1, 4] = value
    match = rf"q is not finite: entry 4 of batch element 1 is {value}, 1 such in all; check what produced it"
    refuse(robot, match, lambda: operator.compute(robot, *inputs_of(operator, x)))


@pytest.mark.parametrize("name", ["qd", "tau", "gravity", "external_forces"])
def test_other_inputs_that_are_not_finite(robot, name):
    x = random_inputs(robot, 3)
    x["wrench" if name == "external_forces" else name][2, 1] = float("nan")
    operator = next(o for o in OPERATORS if o.name == "forward_dynamics")
    shown = {"tau": "f", "external_forces": r"external_forces\['\w+'\]"}.get(name, name)
    match = rf"{shown} is not finite: entry \d+ of batch element 2 is nan"
    refuse(robot, match, lambda: operator.compute(robot, *inputs_of(operator, x)))


def test_large_values_are_finite(robot):
    """Their sum overflows, they do not."""
    q = random_inputs(robot, 200)["q"]
    q[:, :3] = 1e306
    assert bool(torch.isfinite(robot.compute_center_of_mass(q)).all())


def test_batches_that_do_not_broadcast(robot):
    x = random_inputs(robot, 3)
    match = r"batch dimensions do not broadcast: q \(3, 28\), qd \(2, 25\), qdd_des \(3, 25\)"
    refuse(robot, match, lambda: robot.compute_inverse_dynamics(x["q"], x["qd"][:2], x["qdd"]))


def test_unknown_links(robot):
    x = random_inputs(robot, 3)
    q, state = x["q"], (x["q"], x["qd"], x["qdd"])
    close = r"no link named 'ball_tap' in synthetic; did you mean 'ball_tip' or 'ball'\?"
    refuse(robot, close, lambda: robot.compute_forward_kinematics(q, "ball_tap"))
    refuse(robot, close, lambda: robot.compute_endeffector_jacobian(q, "ball_tap"))
    forces = {"ball_tap": x["wrench"]}
    refuse(robot, close, lambda: robot.compute_inverse_dynamics(*state, external_forces=forces))
    refuse(robot, close, lambda: robot.get_link_param("ball_tap", "mass"))
    refuse(robot, close, lambda: robot.make_link_param_learnable("ball_tap", "mass", pb.PositiveScalar()))
    match = r"no link named 'zzz' in synthetic; choose from: world, base, hinge, hinge_plate"
    refuse(robot, match, lambda: robot.compute_forward_kinematics(q, "zzz"))


def test_wrong_parameters(robot):
    refuse(
        robot,
        r"no link parameter named 'weight'; choose from: mass, com|did you mean",
        lambda: robot.set_link_param("ball", "weight", 1.0),
    )
    refuse(
        robot, r"no link parameter named 'masss'; did you mean 'mass'\?", lambda: robot.get_link_param("ball", "masss")
    )
    refuse(
        robot,
        r"com of 'ball'.* shape \(2,\).* expected \(3,\) or \(batch",
        lambda: robot.set_link_param("ball", "com", [1.0, 2.0]),
    )
    refuse(
        robot,
        r"mass of 'ball' was not made learnable; those that were: none",
        lambda: robot.freeze_learnable_link_param("ball", "mass"),
    )


class Returns(nn.Module):
    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.value = value

    def forward(self) -> torch.Tensor:
        return self.value


def test_modules_that_return_something_else(own):
    match = r"the module for 'com' returned shape \(4,\); expected \(3,\) or \(batch"
    with pytest.raises(pb.PullbackError, match=match):
        own.make_link_param_learnable("ball", "com", Returns(torch.zeros(4, dtype=torch.float64)))
    with pytest.raises(pb.PullbackError, match=r"the module for 'com' returned torch.float32 on cpu, the robot is"):
        own.make_link_param_learnable("ball", "com", Returns(torch.zeros(3, dtype=torch.float32)))
    assert not own.learned


class GrowsWithTheFirstAngle(nn.Module):
    def forward(self, q: torch.Tensor) -> torch.Tensor:
        return 1.0 + q[:, 0] ** 2


def test_kinetic_energy_with_an_armature_that_depends_on_q():
    robot = pb.load("pendulum3", dtype=torch.float64)
    robot.make_link_param_learnable("link0", "joint_armature", GrowsWithTheFirstAngle())
    q = robot.random_q(3, generator=torch.Generator().manual_seed(0))
    M = robot.compute_lagrangian_inertia_matrix(q)
    torch.testing.assert_close(robot.compute_kinetic_energy(q, q), 0.5 * torch.einsum("bi,bij,bj->b", q, M, q))


def test_parameters_for_another_number_of_robots(own):
    own.set_link_param("ball", "mass", torch.ones(4))
    x = random_inputs(own, 3)
    match = r"parameters are given for 4 robots, the state has batch \(3,\); its last batch dimension must be 4"
    with pytest.raises(pb.PullbackError, match=match):
        own.compute_inverse_dynamics(x["q"], x["qd"], x["qdd"])
    with pytest.raises(pb.PullbackError, match=r"parameters are given for 4 robots, the state has batch \(\)"):
        own.compute_center_of_mass(x["q"][0])
    own.set_link_param("hinge", "mass", torch.ones(3))
    with pytest.raises(pb.PullbackError, match=r"per-robot parameters have different batches: \[3, 4\]"):
        own.compute_center_of_mass(x["q"])


@pytest.mark.parametrize("other", ["com", "joint_armature"])
def test_different_parameters_for_different_numbers_of_robots(own, other):
    own.set_link_param("ball", "mass" if other == "com" else "joint_damping", torch.ones(3))
    own.set_link_param("ball", other, torch.ones(4, 3) if other == "com" else torch.ones(4))
    x = random_inputs(own, 3)
    with pytest.raises(pb.PullbackError, match=r"different batches: \[3, 4\]"):
        own.compute_inverse_dynamics(x["q"], x["qd"], x["qdd"], use_damping=True)


def test_parameters_of_joints_that_have_none(robot):
    refuse(
        robot,
        "joint_armature of 'drone': a floating joint on a moving link cannot have armature",
        lambda: robot.set_link_param("drone", "joint_armature", 0.5),
    )
    refuse(
        robot,
        r"joint_damping of 'ball_tip': the fixed joint 'ball_tip_joint' is above it; choose a link that moves",
        lambda: robot.make_link_param_learnable("ball_tip", "joint_damping", pb.PositiveScalar(0.1)),
    )
    refuse(
        robot,
        r"'world' is the root link: no joint is above it, so it has no trans",
        lambda: robot.set_link_param("world", "trans", [0.0, 0.0, 0.0]),
    )


def test_a_joint_that_moves_no_mass():
    hinge = Joint("hinge", "revolute", "base", "arm")
    robot = pb.RobotModel(compile_tree(Tree("ghost", [Link("base", 1.0), Link("arm")], [hinge])), dtype=torch.float64)
    x = torch.ones(3, 1, dtype=torch.float64)
    match = r"forward dynamics gave values that are not finite in 3 batch elements, .*a joint that moves no mass"
    with pytest.raises(pb.PullbackError, match=match):
        robot.compute_forward_dynamics(x, x, x)


# robots with joints that follow others solve their forward dynamics by another way; its border is the same


@pytest.fixture(scope="module")
def mimic_robot() -> pb.RobotModel:
    return synthetic_robot(mimic=True)


@each_operator
def test_batch_shapes_with_mimic_joints(mimic_robot, operator):
    inputs = inputs_of(operator, random_inputs(mimic_robot, 2, 3))
    expected = operator.compute(mimic_robot, *inputs)
    single = operator.compute(mimic_robot, *(i[1, 2] for i in inputs))
    torch.testing.assert_close(single, expected[1, 2], rtol=1e-12, atol=1e-12)
    assert operator.compute(mimic_robot, *(i[:, :0] for i in inputs)).shape == (2, 0, *single.shape)


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda f: f[:, 1:], r"f has shape \(3, 23\)"),
        (lambda f: f[:, :1], r"f has shape \(3, 1\)"),
        (lambda f: f.float(), "f is torch.float32"),
        (lambda f: f.tolist(), "f is a list"),
        (lambda f: f * float("nan"), "is not finite"),
    ],
    ids=["short", "one", "float32", "list", "nan"],
)
def test_forces_are_checked_with_mimic_joints(mimic_robot, spoil, match):
    x = random_inputs(mimic_robot, 3)
    refuse(mimic_robot, match, lambda: mimic_robot.compute_forward_dynamics(x["q"], x["qd"], spoil(x["tau"])))


def test_displacements_are_checked():
    robot = pb.load("pendulum3", dtype=torch.float64)
    q = robot.random_q(2)
    refuse(robot, r"step has shape \(2, 2\)", lambda: robot.integrate(q, q[:, :2]))


# -- robots without moving joints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [(), (3,), (0,)], ids=str)
def test_a_robot_without_moving_joints(batch):
    tree = Tree("rock", [Link("rock", 2.0), Link("pebble", 1.0)], [Joint("glue", "fixed", "rock", "pebble")])
    robot = pb.RobotModel(compile_tree(tree), dtype=torch.float64)
    assert (robot.nq, robot.nv, robot.joint_names) == (0, 0, [])
    q = torch.zeros(*batch, 0, dtype=torch.float64)
    position, quat = robot.compute_forward_kinematics(q, "pebble")
    assert position.shape == (*batch, 3)
    assert torch.equal(quat, torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64).expand(*batch, 4))
    assert robot.compute_inverse_dynamics(q, q, q).shape == (*batch, 0)
    assert robot.compute_forward_dynamics(q, q, q).shape == (*batch, 0)
    assert robot.compute_lagrangian_inertia_matrix(q).shape == (*batch, 0, 0)
    assert torch.equal(robot.compute_kinetic_energy(q, q), torch.zeros(batch, dtype=torch.float64))
    assert robot.integrate(q, q).shape == q.shape
