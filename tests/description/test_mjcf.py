"""What an MJCF file becomes: names, joints and shapes, and the same kinematics as in MuJoCo."""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from math import inf, radians
from pathlib import Path

import numpy as np
import pytest

from pullback.core.errors import DescriptionError, DescriptionWarning
from pullback.description import mjcf
from pullback.description.mjcf import read_mjcf
from pullback.description.tree import Joint, Limits, Pose, Tree

mujoco = pytest.importorskip("mujoco")

# a few dozen rotations in double precision
EXACT = 1e-12

SPHERE = '<geom type="sphere" size="0.1" mass="1"/>'


@pytest.fixture
def read(tmp_path):
    def read_text(world: str, rest: str = "", name: str = "arm.xml") -> Tree:
        path = tmp_path / name
        path.write_text(f'<mujoco model="arm">{rest}<worldbody>{world}</worldbody></mujoco>')
        return read_mjcf(path)

    return read_text


def body(name: str, inside: str = "", *, pos: str = "0 0 0", more: str = "") -> str:
    return f'<body name="{name}" pos="{pos}" {more}>{SPHERE}{inside}</body>'


# --- the kinematics of a tree, to compare with MuJoCo's


def motion(joint: Joint, q: np.ndarray) -> Pose:
    """Return the motion of a joint at its coordinates, a quaternion wxyz for a ball."""
    if joint.type == "prismatic":
        return Pose(q[0] * joint.axis)
    if joint.type == "fixed":
        return Pose()
    if joint.type in ("ball", "floating"):
        w, axis = q[0], q[1:]
    else:
        w, axis = np.cos(q[0] / 2), np.sin(q[0] / 2) * joint.axis
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return Pose(rotation=np.eye(3) + 2 * w * cross + 2 * cross @ cross)


def link_poses(tree: Tree, root: Pose, positions: dict[str, np.ndarray]) -> dict[str, Pose]:
    poses = {tree.links[0].name: root}
    for joint in tree.joints:
        q = positions.get(joint.name, np.zeros(1))
        poses[joint.child] = poses[joint.parent] @ joint.origin @ motion(joint, q)
    return poses


def assert_same_kinematics(path: Path) -> None:
    tree = read_mjcf(path)
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    free = model.njnt > 0 and model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
    data.qpos[:] = np.random.default_rng(0).uniform(-1, 1, model.nq)
    mujoco.mj_normalizeQuat(model, data.qpos)
    mujoco.mj_kinematics(model, data)
    positions = {}
    for i in range(model.njnt):
        joint = model.joint(i)
        positions[joint.name or f"{model.body(model.jnt_bodyid[i]).name}/joint{i}"] = data.qpos[joint.qposadr[0] :][:4]
    names = [model.body(i).name or f"body{i}" for i in range(model.nbody)]
    first = 1 if tree.links[0].name == names[1] else 0
    root = Pose(data.xpos[first], data.xmat[first].reshape(3, 3)) if first or free else Pose()
    poses = link_poses(tree, root, positions)
    for i in range(first, model.nbody):
        np.testing.assert_allclose(poses[names[i]].translation, data.xpos[i], rtol=0, atol=EXACT)
        np.testing.assert_allclose(poses[names[i]].rotation, data.xmat[i].reshape(3, 3), rtol=0, atol=EXACT)
    masses = {link.name: link.mass for link in tree.links}
    np.testing.assert_allclose([masses[name] for name in names[1:]], model.body_mass[1:], rtol=EXACT)


GYMNASIUM = (
    "ant",
    "half_cheetah",
    "hopper",
    "humanoid",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "pusher",
    "reacher",
    "swimmer",
    "walker2d",
)


@pytest.mark.filterwarnings("ignore:compiler attribute 'settotalmass'", "ignore::pullback.DescriptionWarning")
@pytest.mark.parametrize("robot", GYMNASIUM)
def test_kinematics_of_gymnasium_robots(robot):
    try:
        folder = Path(str(distribution("gymnasium").locate_file("gymnasium/envs/mujoco/assets")))
    except PackageNotFoundError:
        pytest.skip("gymnasium is not installed")
    assert_same_kinematics(folder / f"{robot}.xml")


def test_kinematics_of_anchors_references_and_balls(tmp_path):
    path = tmp_path / "arm.xml"
    wrist = body("hand", '<joint name="wrist" type="ball" pos="0.1 0 0.2"/>', pos="0 0 1", more='euler="10 20 30"')
    elbow = '<joint name="elbow" pos="0.3 -0.2 0.1" axis="1 2 3" ref="40"/><joint name="out" type="slide" ref="0.1"/>'
    twist = '<joint name="twist" axis="0 1 1" pos="0 0.1 0"/>'
    arm = body("arm", elbow + twist + wrist, pos="1 2 3", more='euler="30 20 10"')
    path.write_text(f'<mujoco model="arm"><worldbody>{body("base", arm, pos="0 0 0.5")}</worldbody></mujoco>')
    assert_same_kinematics(path)


# --- names and structure


def test_one_top_body_is_the_root(read):
    tree = read(body("base", body("arm", '<joint name="elbow"/>')))
    assert (tree.name, tree.source, tree.base) == ("arm", "arm.xml", "fixed")
    assert [link.name for link in tree.links] == ["base", "arm"]
    assert [(j.name, j.type, j.parent, j.child) for j in tree.joints] == [("elbow", "continuous", "base", "arm")]
    assert tree.problems == []


def test_free_joint_makes_a_floating_base(read):
    tree = read(body("torso", "<freejoint/>" + body("arm", '<joint name="elbow"/>'), pos="0 0 1"))
    assert tree.base == "floating"
    assert [link.name for link in tree.links] == ["torso", "arm"]
    assert [joint.name for joint in tree.joints] == ["elbow"]
    assert tree.problems == []


def test_place_of_a_fixed_root_is_kept(read):
    tree = read(body("base", pos="0 0 1", more='euler="90 0 0"'))
    assert [link.name for link in tree.links] == ["world", "base"]
    np.testing.assert_array_equal(tree.joints[0].origin.translation, [0, 0, 1])
    np.testing.assert_allclose(tree.joints[0].origin.rotation, [[1, 0, 0], [0, 0, -1], [0, 1, 0]], atol=EXACT)
    assert tree.problems == []


def test_moving_top_body_hangs_on_the_world(read):
    tree = read(body("cart", '<joint name="rail" type="slide" axis="1 0 0"/>', pos="0 0 2"))
    assert tree.base == "fixed"
    assert [link.name for link in tree.links] == ["world", "cart"]
    assert (tree.joints[0].type, tree.joints[0].parent) == ("prismatic", "world")
    np.testing.assert_array_equal(tree.joints[0].origin.translation, [0, 0, 2])


def test_several_top_bodies_hang_on_the_world(read):
    tree = read(body("table", pos="1 0 0") + body("ball", "<freejoint/>", pos="0 0 3"))
    assert [link.name for link in tree.links] == ["world", "table", "ball"]
    assert [(j.type, j.parent, j.child) for j in tree.joints] == [
        ("fixed", "world", "table"),
        ("floating", "world", "ball"),
    ]
    # the coordinates of a free joint are those in the world
    np.testing.assert_array_equal(tree.joints[1].origin.translation, [0, 0, 0])
    np.testing.assert_array_equal(tree.initial["ball/joint0"], [0, 0, 3, 0, 0, 0, 1])


def test_several_joints_become_a_chain(read):
    tree = read(body("base", body("hip", '<joint name="x" axis="1 0 0"/><joint name="y" axis="0 1 0"/>')))
    assert [(link.name, link.mass) for link in tree.links] == [("base", 1.0), ("hip/x", 0.0), ("hip", 1.0)]
    assert [(j.name, j.parent, j.child) for j in tree.joints] == [("x", "base", "hip/x"), ("y", "hip/x", "hip")]


def test_anchor_becomes_a_massless_link(read):
    tree = read(body("base", body("door", '<joint name="hinge" pos="0 0.5 0"/>', pos="1 0 0")))
    assert [link.name for link in tree.links] == ["base", "door/hinge", "door"]
    assert [(j.name, j.type) for j in tree.joints] == [("hinge", "continuous"), ("door/anchor", "fixed")]
    np.testing.assert_array_equal(tree.joints[0].origin.translation, [1, 0.5, 0])
    np.testing.assert_array_equal(tree.joints[1].origin.translation, [0, -0.5, 0])


def test_unnamed_bodies_and_joints_get_names(read):
    tree = read(f"<body>{SPHERE}<body>{SPHERE}<joint/></body><body>{SPHERE}</body></body>")
    assert [link.name for link in tree.links] == ["body1", "body2", "body3"]
    assert [joint.name for joint in tree.joints] == ["body2/joint0", "body3/fixed"]


# --- joints


def test_joint_numbers(read):
    inside = '<joint name="elbow" axis="0 3 4" range="-30 60" damping="0.5" frictionloss="0.25" armature="0.125"/>'
    joint = read(body("base", body("arm", inside))).joints[0]
    assert joint.type == "revolute"
    np.testing.assert_allclose(joint.axis, [0, 0.6, 0.8], rtol=0, atol=EXACT)
    assert joint.limits == Limits(radians(-30), radians(60))
    assert (joint.damping, joint.friction, joint.armature, joint.gear) == (0.5, 0.25, 0.125, None)


def test_range_counts_only_if_limited(read):
    joint = read(body("base", body("arm", '<joint range="-30 60" limited="false"/>'))).joints[0]
    assert (joint.type, joint.limits) == ("continuous", Limits())


def drive(read, actuator: str, joint: str = '<joint name="elbow"/>') -> tuple[Joint, list[str]]:
    tree = read(body("base", body("arm", joint)), f"<actuator>{actuator}</actuator>")
    return tree.joints[0], tree.problems


def test_motor(read):
    joint, problems = drive(read, '<motor joint="elbow" gear="150" ctrlrange="-1 2" ctrllimited="true"/>')
    assert (joint.gear, joint.limits, problems) == (150.0, Limits(effort=300.0), [])
    joint, _ = drive(read, '<motor joint="elbow" gear="-2"/>')
    assert (joint.gear, joint.limits.effort) == (-2.0, inf)
    joint, _ = drive(read, '<motor joint="elbow" gear="2" forcerange="-3 3"/>')
    assert joint.limits.effort == 6.0
    joint, _ = drive(read, '<motor joint="elbow" gear="2"/>', '<joint name="elbow" actuatorfrcrange="-3 3"/>')
    assert joint.limits.effort == 3.0


def test_ball_joint(read):
    with pytest.warns(DescriptionWarning, match="the range of 'wrist', a ball joint"):
        tree = read(body("base", body("hand", '<joint name="wrist" type="ball" damping="2" range="0 30"/>')))
    assert (tree.joints[0].type, tree.joints[0].damping) == ("ball", 2.0)
    assert tree.problems == ["arm.xml: left out: the range of 'wrist', a ball joint"]


# --- links and shapes


def test_shapes(read):
    geoms = (
        '<geom type="sphere" size="0.1" friction="0.7"/><geom type="capsule" size="0.1 0.2"/>'
        '<geom type="cylinder" size="0.1 0.2"/><geom type="box" size="0.1 0.2 0.3" pos="1 2 3" euler="0 0 90"/>'
        '<geom type="ellipsoid" size="0.1 0.2 0.3"/>'
        '<geom type="sphere" size="9" contype="0" conaffinity="0"/>'
    )
    tree = read(f'<body name="base">{geoms}</body>')
    shapes = tree.links[0].shapes
    assert [shape.type for shape in shapes] == ["sphere", "capsule", "cylinder", "box", "ellipsoid"]
    assert [shape.size for shape in shapes] == [(0.1,), (0.1, 0.4), (0.1, 0.4), (0.2, 0.4, 0.6), (0.1, 0.2, 0.3)]
    assert shapes[0].friction == 0.7
    np.testing.assert_array_equal(shapes[3].origin.translation, [1, 2, 3])
    np.testing.assert_allclose(shapes[3].origin.rotation, [[0, -1, 0], [1, 0, 0], [0, 0, 1]], rtol=0, atol=EXACT)
    assert not tree.problems


def test_unknown_shapes_are_left_out(read, monkeypatch):
    monkeypatch.delitem(mjcf.SIZES, "ELLIPSOID")
    with pytest.warns(DescriptionWarning, match="a geom of type ellipsoid of link 'base'"):
        read('<body name="base"><geom type="ellipsoid" size="0.1 0.2 0.3"/></body>')


def test_floor_does_not_belong_to_the_robot(read):
    tree = read('<geom name="floor" type="plane" size="1 1 1"/>' + body("base"))
    assert [link.name for link in tree.links] == ["base"]
    assert tree.problems == ["arm.xml: geoms of the world are left out (floor); add the ground to the World instead"]


@pytest.mark.parametrize("name", ["arm.xml", "arm.mjcf"])
def test_mesh_is_placed_as_in_its_file(read, tmp_path, name):
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3], [1, 2, 0.5]])
    faces = [(1, 3, 2), (1, 4, 3), (1, 2, 4), (2, 5, 4), (3, 4, 5), (2, 3, 5)]
    lines = [f"v {x} {y} {z}" for x, y, z in corners] + [f"f {a} {b} {c}" for a, b, c in faces]
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "part.obj").write_text("\n".join(lines))
    tree = read(
        '<body name="base"><geom type="mesh" mesh="part" pos="1 2 3" euler="0 0 90"/></body>',
        '<compiler meshdir="meshes"/><asset><mesh name="part" file="part.obj" scale="2 2 2"/></asset>',
        name,
    )
    shape = tree.links[0].shapes[0]
    assert (shape.type, shape.size) == ("mesh", (2.0, 2.0, 2.0))
    assert shape.mesh == tmp_path.resolve() / "meshes" / "part.obj"
    np.testing.assert_allclose(shape.origin.translation, [1, 2, 3], rtol=0, atol=EXACT)
    np.testing.assert_allclose(shape.origin.rotation, [[0, -1, 0], [1, 0, 0], [0, 0, 1]], rtol=0, atol=EXACT)


def test_inertia_is_in_link_axes(read):
    inertial = '<inertial pos="0.1 0.2 0.3" mass="2" diaginertia="1 2 2.5" euler="0 0 90"/>'
    link = read(f'<body name="base">{inertial}</body>').links[0]
    assert link.mass == 2.0
    np.testing.assert_array_equal(link.com, [0.1, 0.2, 0.3])
    np.testing.assert_allclose(link.inertia, np.diag([2, 1, 2.5]), rtol=0, atol=EXACT)


# --- errors


def test_errors(read, tmp_path):
    with pytest.raises(DescriptionError, match=r"arm.xml: the world holds no body; expected a robot"):
        read("")
    with pytest.raises(DescriptionError, match=r"arm.xml: MuJoCo cannot compile it: .*unrecognized"):
        read("<bodi/>")
    with pytest.raises(DescriptionError, match=r"no file '.*nothing.xml'"):
        read_mjcf(tmp_path / "nothing.xml")
    path = tmp_path / "arm.urdf"
    path.write_text('<robot name="arm"/>')
    with pytest.raises(DescriptionError, match=r"arm.urdf is not MJCF: .* <robot>, expected <mujoco>; this is URDF"):
        read_mjcf(path)
    path.write_text("<mujoco>\n<worldbody>\n</mujoco>")
    with pytest.raises(DescriptionError, match=r"arm.urdf, line 3: not well-formed XML"):
        read_mjcf(path)


def test_missing_package_says_what_to_install(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(DescriptionError, match=r'needs the package mujoco; .* pip install "pullback\[mjcf\]"'):
        read(body("base"))
