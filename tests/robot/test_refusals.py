"""Requests that cannot have a right answer are refused, with the offender named."""

import numpy as np
import pytest
import torch
from torch import nn

import pullback as pb
from pullback.description.tree import Joint, Link, Mimic, Tree

BODY = {"mass": 1.0, "inertia": np.diag([0.1, 0.2, 0.25])}


def chain(*types, last=None, **options):
    """Return a chain of joints of the given types on links with mass, except that the last link is `last`."""
    links = [Link("base", **BODY)] + [Link(f"link{k}", **BODY) for k in range(len(types))]
    if last is not None:
        links[-1] = last
    joints = [Joint(f"joint{k}", t, links[k].name, links[k + 1].name) for k, t in enumerate(types)]
    return pb.load(Tree("chain", links, joints, source="chain"), dtype=torch.float64, **options)


@pytest.mark.parametrize("kind", ["revolute", "prismatic", "ball", "floating"])
def test_a_joint_that_moves_no_mass_has_no_forward_dynamics(kind):
    robot = chain("revolute", kind, last=Link("tip"))
    assert robot.model.tree.problems == [
        "joint 'joint1' moves no mass, so forward dynamics is not defined; give its links mass, or the joint armature"
    ]
    zero = torch.zeros(robot.nv, dtype=torch.float64)
    with pytest.raises(pb.PullbackError, match=r"forward dynamics gave values that are not finite.*moves no mass"):
        robot.compute_forward_dynamics(robot.neutral(), zero, zero + 1.0)
    # all else is well defined
    assert torch.isfinite(robot.compute_inverse_dynamics(robot.neutral(), zero, zero + 1.0)).all()
    assert torch.isfinite(robot.compute_forward_kinematics(robot.neutral(), "tip")[0]).all()


def test_armature_of_a_floating_joint_on_a_moving_link():
    robot = chain("revolute", "floating")
    with pytest.raises(pb.PullbackError, match="joint_armature of 'link1': a floating joint on a moving link"):
        robot.set_link_param("link1", "joint_armature", 0.3)
    with pytest.raises(pb.PullbackError, match="joint_armature of 'link1': a floating joint on a moving link"):
        robot.make_link_param_learnable("link1", "joint_armature", pb.PositiveScalar(0.1))
    assert not robot.learned


def test_parameters_of_joints_that_are_not_there():
    robot = chain("revolute", "fixed")
    with pytest.raises(pb.PullbackError, match="joint_damping of 'link1': the fixed joint 'joint1' is above it"):
        robot.make_link_param_learnable("link1", "joint_damping", pb.PositiveScalar(0.1))
    with pytest.raises(pb.PullbackError, match="joint_friction of 'base': no joint is above it"):
        robot.set_link_param("base", "joint_friction", 0.1)
    with pytest.raises(pb.PullbackError, match="'base' is the root link: no joint is above it, so it has no trans"):
        robot.make_link_param_learnable("base", "trans", pb.UnconstrainedTensor())
    assert not robot.learned


def test_an_unsymmetric_inertia_counts_as_its_symmetric_part():
    robot, twin = chain("revolute", "ball"), chain("revolute", "ball")
    inertia = torch.tensor([[0.3, 0.05, 0.0], [0.01, 0.4, 0.02], [0.0, -0.02, 0.5]], dtype=torch.float64)
    robot.set_link_param("link1", "inertia_mat", inertia)
    twin.set_link_param("link1", "inertia_mat", 0.5 * (inertia + inertia.mT))
    q = robot.random_q(4)
    assert torch.equal(robot.compute_lagrangian_inertia_matrix(q), twin.compute_lagrangian_inertia_matrix(q))


def test_per_robot_parameters_over_time_and_together():
    """Per-robot placements, inertias and masses, one trajectory dimension in front: equal to each robot on its own."""
    robots, steps = 3, 4
    robot = chain("revolute", "revolute")
    generator = torch.Generator().manual_seed(0)
    draw = {"dtype": torch.float64, "generator": generator}
    values = {
        "mass": 1.0 + torch.rand(robots, **draw),
        "trans": torch.randn(robots, 3, **draw),
        "inertia_mat": torch.diag_embed(1.0 + 0.1 * torch.rand(robots, 3, **draw)),
    }
    for name, value in values.items():
        robot.set_link_param("link1", name, value)
    q, qd, qdd = (torch.randn(steps, robots, 2, **draw) for _ in range(3))
    tau = robot.compute_inverse_dynamics(q, qd, qdd)
    momentum = robot.compute_centroidal_momentum(q, qd)
    for k in range(robots):
        one = chain("revolute", "revolute")
        for name, value in values.items():
            one.set_link_param("link1", name, value[k])
        assert torch.allclose(tau[:, k], one.compute_inverse_dynamics(q[:, k], qd[:, k], qdd[:, k]), rtol=1e-12)
        assert torch.allclose(momentum[:, k], one.compute_centroidal_momentum(q[:, k], qd[:, k]), rtol=1e-12)
    # one per-robot parameter alone sets the batch too
    robot = chain("revolute", "revolute")
    robot.set_link_param("link1", "inertia_mat", values["inertia_mat"])
    assert robot.compute_lagrangian_inertia_matrix(q[0]).shape == (robots, 2, 2)


def test_a_hand_made_tree_with_a_chain_of_mimics():
    links = [Link("base", **BODY), *(Link(name, **BODY) for name in "abc")]
    joints = [
        Joint("ja", "revolute", "base", "a", mimic=Mimic("jb", 2.0, 0.1)),
        Joint("jb", "revolute", "base", "b", mimic=Mimic("jc", 3.0, 0.2)),
        Joint("jc", "revolute", "base", "c"),
    ]
    robot = pb.load(Tree("hand", links, joints, source="hand"), dtype=torch.float64)
    coupling = robot.model.coupling
    assert coupling is not None
    assert coupling.position.tolist() == [[6.0], [3.0], [1.0]]
    assert np.allclose(coupling.offset, [0.5, 0.2, 0.0])
    q, qd, f = (torch.randn(5, 1, dtype=torch.float64) for _ in range(3))
    qdd = robot.compute_forward_dynamics(q, qd, f)
    assert torch.allclose(robot.compute_inverse_dynamics(q, qd, qdd), f, rtol=1e-10)


def test_inertial_and_its_parts_exclude_each_other():
    robot = chain("revolute", "revolute")
    robot.make_link_param_learnable("link1", "inertial", pb.PhysicalInertia())
    with pytest.raises(pb.PullbackError, match="mass of 'link1': inertial was given a value or made learnable before"):
        robot.set_link_param("link1", "mass", 9.0)
    robot.set_link_param("link0", "com", [0.1, 0.0, 0.0])
    with pytest.raises(pb.PullbackError, match="inertial of 'link0': com was given a value"):
        robot.make_link_param_learnable("link0", "inertial", pb.PhysicalInertia())


def test_a_parametrization_without_a_value_starts_from_the_present_one():
    robot = chain("revolute", "revolute")
    robot.set_link_param("link1", "mass", 2.5)
    robot.make_link_param_learnable("link1", "mass", pb.PositiveScalar())
    assert torch.allclose(robot.get_link_param("link1", "mass"), torch.tensor(2.5, dtype=torch.float64))


def test_one_pose_and_many_displacements():
    robot = chain("revolute", base="floating")
    moved = robot.integrate(robot.neutral(), torch.zeros(5, robot.nv, dtype=torch.float64))
    assert torch.equal(moved, robot.neutral(5))


@pytest.mark.parametrize(
    ("parameter", "module", "match"),
    [
        ("com", pb.PositiveScalar(1.0), r"PositiveScalar cannot hold 'com', which has shape \(3,\)"),
        ("mass", pb.PhysicalInertia(), "PhysicalInertia cannot hold 'mass'"),
        ("mass", pb.PositiveScalar, "mass is given by a module, got <class"),
        ("mass", 3.0, "mass is given by a module, got 3.0"),
        ("mass", nn.Linear(3, 1), "its forward needs 'input'; wrap it"),
    ],
)
def test_modules_that_cannot_stand_in_for_a_parameter(parameter, module, match):
    robot = chain("revolute", "revolute")
    with pytest.raises(pb.PullbackError, match=match):
        robot.make_link_param_learnable("link1", parameter, module)
    assert not robot.learned


def test_given_values_are_copied_and_checked():
    robot = chain("revolute", "revolute")
    value = torch.tensor(2.0, dtype=torch.float64)
    robot.set_link_param("link1", "mass", value)
    robot.load_state_dict({key: torch.full_like(x, 7.0) for key, x in robot.state_dict().items()})
    assert value == 2.0
    assert robot.get_link_param("link1", "mass") == 7.0
    with pytest.raises(pb.PullbackError, match="mass of 'link1' is -1; it cannot be negative"):
        robot.set_link_param("link1", "mass", -1.0)
    with pytest.raises(pb.PullbackError, match="com of 'link1' is not finite"):
        robot.set_link_param("link1", "com", [0.0, float("nan"), 0.0])


def test_a_quaternion_of_length_zero():
    robot = chain("revolute", base="floating")
    zero = torch.zeros(robot.nv, dtype=torch.float64)
    with pytest.raises(pb.PullbackError, match="a quaternion of length zero"):
        robot.compute_forward_kinematics(torch.zeros(robot.nq, dtype=torch.float64), "link0")
    with pytest.raises(pb.PullbackError, match="a quaternion of length zero"):
        robot.compute_forward_dynamics(torch.zeros(robot.nq, dtype=torch.float64), zero, zero)


def test_types_that_robots_do_not_compute_in():
    with pytest.raises(pb.PullbackError, match=r"dtype is torch.bfloat16; a robot computes in torch.float32"):
        pb.load("iiwa7", dtype=torch.bfloat16)
    with pytest.raises(pb.PullbackError, match=r"a robot computes in torch.float32"):
        pb.load("iiwa7", dtype=np.zeros((2, 3)))
    robot = pb.load("iiwa7").half()
    with pytest.raises(pb.PullbackError, match=r"a robot of torch.float16 cannot compute; convert it to float32"):
        robot.compute_forward_kinematics(torch.zeros(7, dtype=torch.float16), "iiwa_link_7")


def test_a_mimic_robot_that_moves_no_mass():
    links = [Link("base", **BODY), Link("a"), Link("b")]
    joints = [
        Joint("ja", "revolute", "base", "a"),
        Joint("jb", "revolute", "base", "b", mimic=Mimic("ja")),
    ]
    robot = pb.load(Tree("ghost", links, joints, source="ghost"), dtype=torch.float64)
    x = torch.ones(1, dtype=torch.float64)
    with pytest.raises(pb.PullbackError, match="forward dynamics: the mass matrix is singular"):
        robot.compute_forward_dynamics(x, x, x)
