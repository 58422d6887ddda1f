"""A robot that was read from a URDF file is written into a copy of that file, which loses nothing."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from lxml import etree

import pullback as pb
from pullback.core.errors import DescriptionWarning
from pullback.description.urdf import read_urdf
from pullback.description.visuals import read_visuals
from tests.description.test_assets import ERD, ROBOTS_OF_ERD, locate

# numbers are written with all digits; roll, pitch and yaw cost the last ones
TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}

ARM = """<?xml version="1.0"?>
<!-- an arm -->
<robot name="arm">
  <material name="red"><color rgba="1 0 0 1"/></material>
  <link name="base">
    <visual><geometry><mesh filename="meshes/base.stl"/></geometry><material name="red"/></visual>
  </link>
  <link name="upper">
    <!-- weighed -->
    <inertial>
      <origin xyz="0.1 0 0" rpy="0 0 0.5"/><mass value="2.0"/>
      <inertia ixx="1" ixy="0.1" ixz="0" iyy="2" iyz="0" izz="2.5"/>
    </inertial>
    <visual><geometry><box size="1 2 3"/></geometry></visual>
    <collision><geometry><mesh filename="package://arm/meshes/base.stl" scale="1 1 1"/></geometry></collision>
  </link>
  <joint name="shoulder" type="revolute">
    <origin xyz="0 0 1" rpy="0.1 0.2 0.3"/><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="10" velocity="5"/>
    <safety_controller k_velocity="3"/>
  </joint>
  <gazebo reference="upper"><kp>1000</kp></gazebo>
  <transmission name="t"><joint name="shoulder"/></transmission>
</robot>
"""


@pytest.fixture
def arm(tmp_path) -> Path:
    folder = tmp_path / "arm" / "meshes"
    folder.mkdir(parents=True)
    (folder / "base.stl").write_bytes(bytes(84))
    path = tmp_path / "arm" / "arm.urdf"
    path.write_text(ARM)
    return path


def changed_lines(before: str, after: str) -> list[str]:
    """Return the lines of a text that are not in another, in which elements are written alike."""
    return sorted({*after.splitlines()} - {*before.splitlines()})


def test_an_unchanged_robot_is_written_as_it_was(arm):
    written = pb.export_urdf(pb.load(arm), arm.with_name("copy.urdf"))
    # the declaration has an encoding now
    assert written.read_text().splitlines()[1:] == ARM.splitlines()[1:]


def test_only_numbers_that_changed_are_written(arm):
    robot = pb.load(arm, dtype=torch.float64)
    robot.set_link_param("upper", "mass", 3.0)
    robot.set_link_param("upper", "joint_damping", 0.25)
    written = pb.export_urdf(robot, arm.with_name("copy.urdf")).read_text()
    assert changed_lines(ARM, written) == [
        '      <origin xyz="0.1 0 0" rpy="0 0 0.5"/><mass value="3.0"/>',
        '  <dynamics damping="0.25"/></joint>',
        '<?xml version="1.0" encoding="utf-8"?>',
    ]
    for kept in ("<!-- an arm -->", "<!-- weighed -->", "<kp>1000</kp>", "<transmission", 'rgba="1 0 0 1"'):
        assert kept in written


def test_every_parameter_is_read_again(arm):
    robot = pb.load(arm, dtype=torch.float64)
    robot.set_link_param("upper", "com", [0.3, 0.2, 0.1])
    robot.set_link_param("upper", "inertia_mat", torch.diag(torch.tensor([3.0, 4.0, 5.0], dtype=torch.float64)))
    robot.set_link_param("upper", "trans", [0.0, 0.5, 1.0])
    robot.set_link_param("upper", "rot_angles", [0.3, -0.2, 0.1])
    for name in ("joint_damping", "joint_friction", "joint_armature"):
        robot.set_link_param("upper", name, 0.5)
    again = pb.load(pb.export_urdf(robot, arm.with_name("copy.urdf")), dtype=torch.float64)
    for name in (
        "mass",
        "com",
        "inertia_mat",
        "trans",
        "rot_angles",
        "joint_damping",
        "joint_friction",
        "joint_armature",
    ):
        torch.testing.assert_close(
            again.get_link_param("upper", name), robot.get_link_param("upper", name), **TOLERANCE
        )


def test_meshes_are_found_from_the_new_place(arm, tmp_path):
    robot = pb.load(arm)
    for folder in ("elsewhere", "arm/deeper", "arm"):
        written = pb.export_urdf(robot, tmp_path / folder / "copy.urdf")
        assert read_visuals(written)["base"][0].shape.mesh.resolve() == (tmp_path / "arm/meshes/base.stl").resolve()
        assert read_urdf(written).links[1].shapes[0].mesh.resolve() == (tmp_path / "arm/meshes/base.stl").resolve()
    # beside the original nothing changes, and elsewhere names stay relative
    assert 'filename="meshes/base.stl"' in written.read_text()
    assert 'filename="../arm/meshes/base.stl"' in (tmp_path / "elsewhere/copy.urdf").read_text()


def test_a_repaired_inertia_is_written(arm):
    arm.write_text(ARM.replace('izz="2.5"', 'izz="20"'))
    with pytest.warns(DescriptionWarning, match="repaired to"):
        robot = pb.load(arm, repair=True, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pb.load(pb.export_urdf(robot, arm.with_name("copy.urdf")), dtype=torch.float64)
    inertia = [np.asarray(r.model.links[1].inertia) for r in (robot, again)]
    np.testing.assert_allclose(*inertia, **TOLERANCE)


def test_an_original_that_is_gone_or_another(arm):
    robot = pb.load(arm)
    arm.write_text(ARM.replace('"shoulder"', '"elbow"'))
    with pytest.warns(DescriptionWarning, match=r"arm.urdf is written anew, .*: its joints are not those of arm.urdf"):
        pb.export_urdf(robot, arm.with_name("copy.urdf"))
    arm.unlink()
    with pytest.warns(DescriptionWarning, match=r"arm.urdf is written anew, without visuals and materials: no file"):
        written = pb.export_urdf(robot, arm.with_name("copy.urdf"))
    assert pb.load(written).joint_names == ["shoulder"]


def test_over_the_original_itself(arm):
    robot = pb.load(arm)
    robot.set_link_param("upper", "mass", 3.0)
    pb.export_urdf(robot, arm)
    assert "<!-- weighed -->" in arm.read_text()
    assert pb.load(arm).get_link_param("upper", "mass") == 3.0


def counts(path: Path) -> dict[str, int]:
    root = etree.parse(str(path)).getroot()
    return {
        tag: len(list(root.iter(tag))) for tag in ("visual", "collision", "material", "color", "mesh", "transmission")
    }


@pytest.mark.filterwarnings("ignore::pullback.core.errors.DescriptionWarning")
@pytest.mark.parametrize(
    "name",
    [
        "panda_description/urdf/panda.urdf",
        "talos_data/robots/talos_full_v2.urdf",
        "anymal_b_simple_description/robots/anymal.urdf",
    ],
)
def test_public_robots_lose_nothing(name, tmp_path):
    original = locate(ERD, f"{ROBOTS_OF_ERD}/{name}")
    robot = pb.load(original, dtype=torch.float64)
    link = next(link.name for link in reversed(robot.model.links) if link.mass > 0)
    robot.set_link_param(link, "mass", 2.0)
    written = pb.export_urdf(robot, tmp_path / "robot.urdf")
    assert counts(written) == counts(original)
    before, after = read_visuals(original), read_visuals(written)
    assert before.keys() == after.keys()
    assert all(a.shape.mesh == b.shape.mesh for k in before for a, b in zip(before[k], after[k]))
    again = pb.load(written, dtype=torch.float64)
    q = robot.random_q(4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        again.compute_lagrangian_inertia_matrix(q), robot.compute_lagrangian_inertia_matrix(q), **TOLERANCE
    )
