"""A robot written to URDF and read again is the same robot, learned values included."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import pullback as pb
from pullback.core.errors import DescriptionError, DescriptionWarning
from pullback.description.compile import compile_tree
from pullback.description.load import read, shipped_robots
from pullback.description.tree import Joint, Limits, Link, Pose, Shape, Tree
from pullback.description.urdf import read_urdf
from pullback.description.urdf_writer import UNBOUNDED, write_urdf
from pullback.robot.model import RobotModel

# numbers are written with all digits; roll, pitch and yaw cost the last ones
TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}

ROBOTS = [name.replace("N", "3") for name in shipped_robots()]


def exported(robot: RobotModel, path, base=None) -> RobotModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DescriptionWarning)
        return pb.load(pb.export_urdf(robot, path / "exported.urdf"), base or robot.model.base, dtype=robot.dtype)


def assert_same_dynamics(first: RobotModel, second: RobotModel) -> None:
    generator = torch.Generator().manual_seed(0)
    q = first.random_q(8, generator=generator)
    qd, qdd = torch.randn(2, 8, first.nv, dtype=first.dtype, generator=generator)
    with torch.no_grad():
        for robot_function in (
            lambda robot: robot.compute_lagrangian_inertia_matrix(q),
            lambda robot: robot.compute_inverse_dynamics(q, qd, qdd, use_damping=True, use_friction=True),
            lambda robot: torch.cat([torch.cat(x, -1) for x in robot.compute_forward_kinematics_all_links(q).values()]),
        ):
            torch.testing.assert_close(robot_function(second), robot_function(first), **TOLERANCE)


@pytest.mark.parametrize("name", ROBOTS)
def test_every_shipped_robot_survives(name, tmp_path):
    robot = pb.load(name, dtype=torch.float64)
    again = exported(robot, tmp_path)
    assert again.get_link_names() == robot.get_link_names()
    assert again.joint_names == robot.joint_names
    assert_same_dynamics(robot, again)
    for before, after in zip(robot.get_joint_limits(), again.get_joint_limits()):
        for key, value in before.items():
            assert after[key] == value or abs(after[key]) == UNBOUNDED


@pytest.mark.parametrize("name", ROBOTS)
def test_shapes_survive(name, tmp_path):
    tree = read(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DescriptionWarning)
        again = read_urdf(write_urdf(tree, tmp_path / "robot.urdf"))
    for before, after in zip(tree.links, again.links):
        assert [(s.type, s.size, s.friction) for s in before.shapes] == [
            (s.type, s.size, s.friction) for s in after.shapes
        ]
        for a, b in zip(before.shapes, after.shapes):
            np.testing.assert_allclose(a.origin.translation, b.origin.translation)
            np.testing.assert_allclose(a.origin.rotation, b.origin.rotation, atol=1e-12)


def test_another_reader_agrees(tmp_path):
    pin = pytest.importorskip("pinocchio")
    robot = pb.load("iiwa7", dtype=torch.float64)
    robot.set_link_param("iiwa_link_4", "mass", 5.0)
    model = pin.buildModelFromUrdf(str(pb.export_urdf(robot, tmp_path / "iiwa.urdf")))
    q = robot.random_q(generator=torch.Generator().manual_seed(0))
    data = model.createData()
    upper = np.triu(pin.crba(model, data, q.numpy()))
    mass = robot.compute_lagrangian_inertia_matrix(q).numpy()
    np.testing.assert_allclose(upper, np.triu(mass), rtol=1e-9, atol=1e-9)


def test_learned_values_are_written(tmp_path):
    robot = pb.load("iiwa7", dtype=torch.float64)
    robot.make_link_param_learnable("iiwa_link_2", "mass", pb.PositiveScalar(4.4))
    robot.make_link_param_learnable("iiwa_link_3", "com", pb.UnconstrainedTensor([0.1, 0.2, 0.3]))
    robot.make_link_param_learnable("iiwa_link_4", "inertia_mat", pb.PhysicalInertia())
    robot.make_link_param_learnable("iiwa_link_5", "inertial", pb.PhysicalInertia())
    robot.make_link_param_learnable("iiwa_link_5", "trans", pb.UnconstrainedTensor())
    robot.make_link_param_learnable("iiwa_link_6", "rot_angles", pb.UnconstrainedTensor())
    for parameter in ("joint_damping", "joint_friction", "joint_armature"):
        robot.make_link_param_learnable("iiwa_link_7", parameter, pb.PositiveScalar(0.3))
    optimizer = torch.optim.SGD(robot.parameters(), lr=1e-3)
    x = 0.3 * torch.ones(7, dtype=torch.float64)
    robot.compute_inverse_dynamics(x, x, x, use_damping=True, use_friction=True).sum().backward()
    optimizer.step()
    again = exported(robot, tmp_path)
    assert again.get_link_param("iiwa_link_2", "mass") == robot.get_link_param("iiwa_link_2", "mass")
    assert again.get_link_param("iiwa_link_2", "mass") != 4.4
    assert_same_dynamics(robot, again)


def test_a_float32_robot_keeps_the_digits_it_did_not_learn(tmp_path):
    robot = pb.load("iiwa7", dtype=torch.float32)
    robot.set_link_param("iiwa_link_2", "mass", 0.1)
    tree = read_urdf(pb.export_urdf(robot, tmp_path / "robot.urdf"))
    masses = {link.name: link.mass for link in tree.links}
    assert masses["iiwa_link_3"] == 4.05623
    assert masses["iiwa_link_2"] == pytest.approx(0.1, rel=1e-7)


def test_a_floating_base_is_not_written(tmp_path):
    robot = pb.load("laikago", "floating", dtype=torch.float64)
    robot.set_link_param("chassis", "mass", 20.0)
    file = pb.export_urdf(robot, tmp_path / "robot.urdf")
    assert "floating" not in file.read_text()
    assert_same_dynamics(robot, pb.load(file, "floating", dtype=torch.float64))


def hinged(kind, **joint) -> Tree:
    inertia = np.diag([1.0, 2.0, 2.5])
    links = [Link("a"), Link("b", 2.0, np.array([0.1, 0.2, 0.3]), inertia)]
    rotation = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    origin = Pose(np.array([0.5, 0.0, 0.0]), rotation)
    return Tree("hinged", links, [Joint("j", kind, "a", "b", origin, **joint)], source="hinged")


@pytest.mark.parametrize("kind", ["revolute", "continuous", "prismatic", "planar", "floating", "fixed"])
def test_every_joint_of_urdf_survives(kind, tmp_path):
    axis = {} if kind in ("floating", "fixed") else {"axis": np.array([0.6, 0.0, 0.8])}
    robot = RobotModel(compile_tree(hinged(kind, damping=0.2, friction=0.1, **axis)), dtype=torch.float64)
    assert_same_dynamics(robot, exported(robot, tmp_path)) if robot.nv else exported(robot, tmp_path)


def test_pitch_of_a_quarter_turn_survives(tmp_path):
    tree = hinged("continuous")
    for sign in (1.0, -1.0):
        rotation = np.array([[0.0, 0.6 * sign, 0.8 * sign], [0.0, 0.8, -0.6], [-sign, 0.0, 0.0]])
        tree.joints[0].origin = Pose(rotation=rotation)
        again = read_urdf(write_urdf(tree, tmp_path / "robot.urdf"))
        np.testing.assert_allclose(again.joints[0].origin.rotation, rotation, atol=1e-12)


def test_limits_that_are_infinite_on_one_side(tmp_path):
    tree = hinged("revolute", limits=Limits(lower=-1.0))
    limits = read_urdf(write_urdf(tree, tmp_path / "robot.urdf")).joints[0].limits
    assert (limits.lower, limits.upper) == (-1.0, UNBOUNDED)
    tree = hinged("revolute")
    assert read_urdf(write_urdf(tree, tmp_path / "robot.urdf")).joints[0].type == "continuous"


def test_meshes_are_named_relative_to_the_file_where_they_lie_below_it(tmp_path):
    tree = hinged("continuous")
    for place, name in ((tmp_path / "meshes" / "a.stl", "meshes/a.stl"), (tmp_path.parent / "b.stl", None)):
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"solid")
        tree.links[1].shapes = [Shape("mesh", (1.0, 2.0, 3.0), mesh=place)]
        file = write_urdf(tree, tmp_path / "robot.urdf")
        assert f'filename="{name or place.as_posix()}"' in file.read_text()
        (shape,) = read_urdf(file).links[1].shapes
        assert (shape.mesh, shape.size) == (place, (1.0, 2.0, 3.0))


def test_what_a_urdf_cannot_hold_is_said(tmp_path):
    with pytest.raises(DescriptionError, match=r"joint 'j' in hinged: a URDF has no ball joint; replace it by three"):
        write_urdf(hinged("ball"), tmp_path / "robot.urdf")
    with pytest.raises(DescriptionError, match=r"a URDF has no screw joint; replace it by a revolute joint and"):
        write_urdf(hinged("screw", pitch=0.1), tmp_path / "robot.urdf")
    tree = hinged("continuous", gear=3.0)
    with pytest.warns(DescriptionWarning, match="the gears of j are left out"):
        write_urdf(tree, tmp_path / "robot.urdf")
    with pytest.warns(DescriptionWarning, match="the springs of j are left out"):
        write_urdf(hinged("continuous", stiffness=3.0), tmp_path / "robot.urdf")
    tree = hinged("continuous")
    tree.links[1].shapes = [Shape("plane", ())]
    with pytest.warns(DescriptionWarning, match="link 'b' in hinged: a plane is left out"):
        write_urdf(tree, tmp_path / "robot.urdf")
    tree.links[1].shapes = [Shape("sphere", (1.0,), friction=0.5), Shape("sphere", (1.0,), friction=0.6)]
    with pytest.warns(DescriptionWarning, match=r"one friction for all shapes; 0.5 is written"):
        write_urdf(tree, tmp_path / "robot.urdf")


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    robot = pb.load("ur5", dtype=torch.float64)
    robot.make_link_param_learnable("forearm_link", "mass", pb.UnconstrainedTensor(-1.0))
    with pytest.raises(DescriptionError, match="mass is negative"):
        pb.export_urdf(robot, tmp_path / "robot.urdf")
    assert not (tmp_path / "robot.urdf").exists()


class SpeedDependent(nn.Module):
    def forward(self, qd):
        return qd[:, 0].abs()


def test_parameters_that_are_no_single_number_are_refused(tmp_path):
    robot = pb.load("ur5", dtype=torch.float64)
    robot.set_link_param("forearm_link", "mass", [1.0, 2.0])
    with pytest.raises(pb.PullbackError, match=r"mass of 'forearm_link' differs between 2 robots, and a URDF is one"):
        pb.export_urdf(robot, tmp_path / "robot.urdf")
    robot.set_link_param("forearm_link", "mass", 1.0)
    robot.make_link_param_learnable("forearm_link", "joint_friction", SpeedDependent())
    with pytest.raises(pb.PullbackError, match="joint_friction of 'forearm_link' cannot be written as a number"):
        pb.export_urdf(robot, tmp_path / "robot.urdf")
    robot = pb.load("ur5", "floating", dtype=torch.float64)
    _, root, *_ = robot.get_link_names()
    robot.set_link_param(root, "trans", [0.0, 0.0, 1.0])
    with pytest.raises(pb.PullbackError, match="the root link of a URDF has no joint above it"):
        pb.export_urdf(robot, tmp_path / "robot.urdf")
