"""Each shipped robot against its public original: through our reader, and through an independent one."""

import warnings
from importlib.metadata import PackageNotFoundError, distribution
from math import inf
from pathlib import Path

import numpy as np
import pytest

from pullback.core.errors import DescriptionError, PullbackError
from pullback.description.load import read, shipped_robots
from pullback.description.tree import Joint, Pose, Tree

# frames and inertias after a chain of rotations; numbers copied from a file are compared exactly
FRAMES = 1e-12
INERTIAS = 1e-9

DRM, ERD, BULLET = "differentiable-robot-model", "example-robot-data", "pybullet"
ROBOTS_OF_ERD = "cmeel.prefix/share/example-robot-data/robots"
ORIGINALS = {
    "allegro": (DRM, "diff_robot_data/allegro/urdf/allegro_hand_description_left.urdf"),
    "fetch_arm": (DRM, "diff_robot_data/fetch_description/urdf/fetch_arm_no_gripper.urdf"),
    "iiwa7": (DRM, "diff_robot_data/kuka_iiwa/urdf/iiwa7.urdf"),
    "laikago": (BULLET, "pybullet_data/laikago/laikago_toes_zup.urdf"),
    "panda": (DRM, "diff_robot_data/panda_description/urdf/panda_no_gripper.urdf"),
    "panda_gripper": (ERD, f"{ROBOTS_OF_ERD}/panda_description/urdf/panda.urdf"),
    "racecar": (BULLET, "pybullet_data/racecar/racecar.urdf"),
    "ur5": (ERD, f"{ROBOTS_OF_ERD}/ur_description/urdf/ur5_robot.urdf"),
}
MASSES = {"allegro": 0.9549, "fetch_arm": 83.3273, "iiwa7": 27.11193, "laikago": 25.567, "panda": 16.95}
MASSES |= {"panda_gripper": 17.451901, "racecar": 5.89223, "ur5": 20.9939}


def locate(package: str, path: str) -> Path:
    try:
        file = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    if not file.is_file():
        pytest.skip(f"{package} does not contain {path}")
    return file


@pytest.fixture(params=ORIGINALS)
def robot(request) -> str:
    return request.param


@pytest.fixture
def original(robot) -> Path:
    return locate(*ORIGINALS[robot])


def test_shipped_robots_load_without_complaint():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in shipped_robots():
            tree = read(name.replace("N", "2"), strict=True)
            assert tree.problems == []
            assert tree.name == tree.source == name.replace("N", "2")
            assert all(shape.mesh is None for link in tree.links for shape in link.shapes)


def test_every_call_returns_a_tree_of_its_own(robot):
    first, second = read(robot), read(robot)
    first.links[0].mass = 99.0
    first.links[0].inertia[:] = 99.0
    assert second.links[0].mass != 99.0
    assert not np.any(second.links[0].inertia == 99.0)


@pytest.mark.filterwarnings("ignore::pullback.core.errors.DescriptionWarning")
def test_same_as_our_reader_finds(robot, original):
    shipped, found = read(robot), read(original)
    for link, other in zip(shipped.links, found.links, strict=True):
        assert (link.name, link.mass) == (other.name, other.mass)
        np.testing.assert_allclose(link.com, other.com, rtol=0, atol=FRAMES)
        np.testing.assert_allclose(link.inertia, other.inertia, rtol=0, atol=FRAMES)
    for joint, other in zip(shipped.joints, found.joints, strict=True):
        for name in ("name", "type", "parent", "child", "limits", "damping", "friction", "armature", "mimic"):
            assert getattr(joint, name) == getattr(other, name), joint.name
        assert_same_pose(joint.origin, other.origin)
        if joint.type != "fixed":
            np.testing.assert_allclose(joint.axis, other.axis, rtol=0, atol=FRAMES)


@pytest.mark.filterwarnings("ignore::pullback.core.errors.DescriptionWarning")
def test_shapes_that_are_no_meshes_are_the_originals(robot, original):
    for link, other in zip(read(robot).links, read(original).links, strict=True):
        if any(shape.type == "mesh" for shape in other.shapes):
            assert link.shapes, link.name
            continue
        for shape, expected in zip(link.shapes, other.shapes, strict=True):
            assert (shape.type, shape.friction) == (expected.type, expected.friction)
            np.testing.assert_allclose(shape.size, expected.size, rtol=0, atol=FRAMES)
            np.testing.assert_allclose(shape.origin.translation, expected.origin.translation, rtol=0, atol=FRAMES)
            if shape.type == "box":
                np.testing.assert_allclose(shape.origin.rotation, expected.origin.rotation, rtol=0, atol=FRAMES)


@pytest.mark.parametrize("q_scale", [0.0, 1.0])
def test_same_as_pinocchio_finds(robot, original, q_scale):
    pin = pytest.importorskip("pinocchio")
    tree = read(robot)
    model = pin.buildModelFromUrdf(str(original))
    data = model.createData()
    velocity = q_scale * np.random.default_rng(0).uniform(-1, 1, model.nv)
    pin.framesForwardKinematics(model, data, pin.integrate(model, pin.neutral(model), velocity))
    moving = [joint for joint in tree.joints if joint.type != "fixed"]
    assert {joint.name for joint in moving} == set(list(model.names)[1:])
    q = {name: velocity[model.idx_vs[i]] for i, name in enumerate(model.names) if i}
    poses = link_poses(tree, q)
    for link in tree.links:
        placement = data.oMf[model.getFrameId(link.name)]
        assert_same_pose(poses[link.name], Pose(placement.translation, placement.rotation))
    assert_same_inertias(tree, poses, model, data)
    for joint in moving:
        assert_same_limits(joint, model)


def assert_same_inertias(tree: Tree, poses: dict[str, Pose], model, data) -> None:
    """Compare the bodies Pinocchio makes of links fixed to each other, in the world's axes."""
    carrier = carriers(tree)
    for i, name in enumerate(model.names):
        expected = data.oMi[i].act(model.inertias[i])
        links = [link for link in tree.links if carrier[link.name] == (name if i else None)]
        mass = sum(link.mass for link in links)
        assert mass == pytest.approx(expected.mass, abs=FRAMES)
        if mass == 0.0:
            continue
        centres = [poses[link.name].translation + poses[link.name].rotation @ link.com for link in links]
        centre = sum(link.mass * place for link, place in zip(links, centres)) / mass
        inertia = np.zeros((3, 3))
        for link, place in zip(links, centres):
            rotation, arm = poses[link.name].rotation, place - centre
            inertia += rotation @ link.inertia @ rotation.T + link.mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))
        np.testing.assert_allclose(centre, expected.lever, rtol=0, atol=INERTIAS)
        np.testing.assert_allclose(inertia, expected.inertia, rtol=0, atol=INERTIAS)


def assert_same_limits(joint: Joint, model) -> None:
    index = model.getJointId(joint.name)
    v = model.idx_vs[index]
    assert joint.limits.velocity == model.velocityLimit[v]
    assert joint.limits.effort == model.effortLimit[v]
    if joint.type == "continuous":
        assert (joint.limits.lower, joint.limits.upper) == (-inf, inf)
    else:
        q = model.idx_qs[index]
        assert joint.limits.lower == model.lowerPositionLimit[q]
        assert joint.limits.upper == model.upperPositionLimit[q]
    assert joint.damping == model.damping[v]


def carriers(tree: Tree) -> dict[str, str | None]:
    """Return for each link the moving joint that carries it, None for what is fixed to the root."""
    above = {joint.child: joint for joint in tree.joints}

    def carrier(name: str) -> str | None:
        if name not in above:
            return None
        return carrier(above[name].parent) if above[name].type == "fixed" else above[name].name

    return {link.name: carrier(link.name) for link in tree.links}


def link_poses(tree: Tree, q: dict[str, float]) -> dict[str, Pose]:
    above = {joint.child: joint for joint in tree.joints}

    def pose(name: str) -> Pose:
        if name not in above:
            return Pose()
        joint = above[name]
        return pose(joint.parent) @ joint.origin @ motion(joint, q.get(joint.name, 0.0))

    return {link.name: pose(link.name) for link in tree.links}


def motion(joint: Joint, q: float) -> Pose:
    if joint.type == "prismatic":
        return Pose(q * joint.axis)
    x, y, z = joint.axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return Pose(rotation=np.eye(3) + np.sin(q) * cross + (1 - np.cos(q)) * cross @ cross)


def assert_same_pose(pose: Pose, other: Pose) -> None:
    np.testing.assert_allclose(pose.translation, other.translation, rtol=0, atol=FRAMES)
    np.testing.assert_allclose(pose.rotation, other.rotation, rtol=0, atol=FRAMES)


def test_total_mass(robot):
    assert sum(link.mass for link in read(robot).links) == pytest.approx(MASSES[robot], abs=FRAMES)


# --- those that are no URDF


def ant_file() -> Path:
    pytest.importorskip("mujoco")
    return locate("gymnasium", "gymnasium/envs/mujoco/assets/ant.xml")


def test_ant_is_what_our_reader_finds():
    shipped, found = read("ant"), read(ant_file())
    assert shipped.base == found.base == "floating"
    new_name = {other.name: link.name for link, other in zip(shipped.links, found.links, strict=True)}
    for link, other in zip(shipped.links, found.links):
        assert link.name == other.name or link.name.startswith("foot_")
        assert link.mass == pytest.approx(other.mass, abs=FRAMES)
        np.testing.assert_allclose(link.com, other.com, rtol=0, atol=FRAMES)
        np.testing.assert_allclose(link.inertia, other.inertia, rtol=0, atol=FRAMES)
        for shape, expected in zip(link.shapes, other.shapes, strict=True):
            assert (shape.type, shape.friction) == (expected.type, expected.friction)
            np.testing.assert_allclose(shape.size, expected.size, rtol=0, atol=FRAMES)
            np.testing.assert_allclose(shape.origin.translation, expected.origin.translation, rtol=0, atol=FRAMES)
            along, expected_along = shape.origin.rotation[:, 2], expected.origin.rotation[:, 2]
            assert abs(along @ expected_along) == pytest.approx(1.0, abs=FRAMES)
    for joint, other in zip(shipped.joints, found.joints, strict=True):
        assert (joint.parent, joint.child) == (new_name[other.parent], new_name[other.child])
        for name in ("name", "type", "damping", "friction", "armature", "gear"):
            assert getattr(joint, name) == getattr(other, name), joint.name
        assert_same_pose(joint.origin, other.origin)
        np.testing.assert_allclose(joint.axis, other.axis, rtol=0, atol=FRAMES)
        for name in ("lower", "upper", "velocity", "effort"):
            assert getattr(joint.limits, name) == pytest.approx(getattr(other.limits, name), abs=FRAMES)


def test_ant_is_what_mujoco_finds():
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_path(str(ant_file()))
    data = mujoco.MjData(model)
    tree = read("ant")
    rng = np.random.default_rng(0)
    data.qpos[:7] = (0, 0, 0, 1, 0, 0, 0)
    data.qpos[7:] = rng.uniform(-1, 1, 8)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    moving = [joint for joint in tree.joints if joint.type != "fixed"]
    poses = link_poses(tree, {joint.name: data.joint(joint.name).qpos[0] for joint in moving})
    assert model.nbody == len(tree.links) + 1
    for i, link in enumerate(tree.links, start=1):
        pose = poses[link.name]
        assert link.mass == pytest.approx(model.body_mass[i], abs=FRAMES)
        assert_same_pose(pose, Pose(data.xpos[i], data.xmat[i].reshape(3, 3)))
        axes = data.ximat[i].reshape(3, 3)
        inertia = axes @ np.diag(model.body_inertia[i]) @ axes.T
        np.testing.assert_allclose(pose.rotation @ link.inertia @ pose.rotation.T, inertia, rtol=0, atol=FRAMES)
        np.testing.assert_allclose(pose.translation + pose.rotation @ link.com, data.xipos[i], rtol=0, atol=FRAMES)
    for joint in moving:
        np.testing.assert_allclose(
            (joint.limits.lower, joint.limits.upper), model.joint(joint.name).range, rtol=0, atol=FRAMES
        )


@pytest.mark.filterwarnings("ignore::pullback.core.errors.DescriptionWarning")
def test_hopper_has_the_dynamics_and_shapes_of_the_original():
    pytest.importorskip("mujoco")
    shipped, found = read("hopper"), read(locate("gymnasium", "gymnasium/envs/mujoco/assets/hopper.xml"))
    moving = [[joint for joint in tree.joints if joint.type != "fixed"] for tree in (shipped, found)]
    for joint, other in zip(*moving, strict=True):
        for name in ("name", "type", "damping", "friction", "armature", "gear"):
            assert getattr(joint, name) == getattr(other, name), joint.name
        np.testing.assert_allclose(joint.axis, other.axis, rtol=0, atol=FRAMES)
        for name in ("lower", "upper", "velocity", "effort"):
            assert getattr(joint.limits, name) == pytest.approx(getattr(other.limits, name), abs=FRAMES)
    # links of the original have frames of their own: compare what is where, for some angles
    q = dict(zip((joint.name for joint in moving[0]), np.random.default_rng(0).uniform(-1, 1, 6)))
    poses, expected = link_poses(shipped, q), link_poses(found, q)
    for name in ("torso", "thigh", "leg", "foot"):
        a, b = (next(link for link in tree.links if link.name == name) for tree in (shipped, found))
        X, Y = poses[name], expected[name]
        assert a.mass == pytest.approx(b.mass, abs=FRAMES)
        np.testing.assert_allclose(
            X.translation + X.rotation @ a.com, Y.translation + Y.rotation @ b.com, rtol=0, atol=FRAMES
        )
        np.testing.assert_allclose(
            X.rotation @ a.inertia @ X.rotation.T, Y.rotation @ b.inertia @ Y.rotation.T, rtol=0, atol=FRAMES
        )
        (shape,), (other,) = a.shapes, b.shapes
        assert (shape.type, shape.friction) == (other.type, other.friction)
        np.testing.assert_allclose(shape.size, other.size, rtol=0, atol=FRAMES)
        np.testing.assert_allclose(
            X.translation + X.rotation @ shape.origin.translation,
            Y.translation + Y.rotation @ other.origin.translation,
            rtol=0,
            atol=FRAMES,
        )


@pytest.mark.parametrize("n", [1, 2, 7])
def test_pendulum(n):
    tree = read(f"pendulum{n}")
    assert [link.name for link in tree.links] == ["world", *(f"link{i}" for i in range(n)), "link-1"]
    assert sum(link.mass for link in tree.links) == pytest.approx(1.0 + 2.16 * (n - 1) + 0.01)
    moving = [joint for joint in tree.joints if joint.type == "continuous"]
    assert [joint.name for joint in moving] == [f"joint{i}" for i in range(n)]
    assert all(joint.damping == joint.friction == 0.0 for joint in tree.joints)
    # stretched along y at rest, upright after a quarter turn about x
    assert_same_pose(link_poses(tree, {})["link-1"], Pose(np.array([0.0, 0.5 * n, 0.0])))
    upright = link_poses(tree, {"joint0": np.pi / 2})["link-1"]
    np.testing.assert_allclose(upright.translation, [0, 0, 0.5 * n], rtol=0, atol=FRAMES)


# --- choosing by name


def test_unknown_names():
    with pytest.raises(PullbackError, match=r"no robot named 'pandas'; did you mean 'panda'.* Or give the path of a"):
        read("pandas")
    with pytest.raises(DescriptionError, match=r"no robot named 'xyz'; choose from: allegro, .*pendulumN"):
        read("xyz")
    with pytest.raises(DescriptionError, match=r"a pendulum of 0 links; give one or more"):
        read("pendulum0")


def test_files_are_told_apart_by_their_root(tmp_path):
    path = tmp_path / "arm.xml"
    path.write_text('<robot name="arm"><link name="base"/></robot>')
    assert read(str(path)).links[0].name == "base"
    path.write_text("<html/>")
    with pytest.raises(DescriptionError, match=r"arm.xml is no robot description: its root element is <html>"):
        read(path)
    with pytest.raises(DescriptionError, match=r"no file '.*/none.urdf'; did you mean|no file there has a similar"):
        read(str(tmp_path / "none.urdf"))


def test_mjcf_by_suffix_and_by_root(tmp_path):
    pytest.importorskip("mujoco")
    text = '<mujoco><worldbody><body name="base"><geom size="1"/></body></worldbody></mujoco>'
    for name in ("arm.xml", "arm.mjcf"):
        (tmp_path / name).write_text(text)
        assert read(tmp_path / name).links[0].name == "base"
