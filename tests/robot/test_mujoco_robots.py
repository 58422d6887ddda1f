"""Robots of MJCF files: MuJoCo's coordinates, keyframes, springs, and all forces as MuJoCo has them."""

import warnings
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pytest
import torch

import pullback as pb
from checks.mujoco_forces import compare
from pullback.core.errors import PullbackError

mujoco = pytest.importorskip("mujoco")

F64 = torch.float64
# a few dozen rotations in double precision
EXACT = 1e-12
FORCES = 1e-10

TWO = """<mujoco model="two"><option gravity="1 2 -3"/>
<worldbody>
<body name="torso" pos="0.1 0.2 1.3" euler="10 20 30"><freejoint name="root"/><geom size="0.1" pos="0.1 0.05 0"/>
<body name="leg" pos="0 0 -0.3"><joint name="hip" type="ball" damping="0.3"/><geom size="0.1" pos="0 0.1 -.2"/>
<body name="shin" pos="0 0 -0.3"><joint name="knee" axis="0 1 0" ref="20" stiffness="4" springref="50"/>
<geom size="0.1" pos="0 0.1 -.2"/><site name="toe" pos="0 0 -.3" euler="5 6 7"/></body></body></body>
<body name="cart" pos="1 1 0.5" euler="0 30 0"><joint name="rail" type="slide" axis="1 0 0" stiffness="2"/>
<joint name="lift" type="slide" axis="0 0 1" ref="0.2"/><geom size="0.1"/></body>
<body name="ball" pos="0.4 0.5 1.6" euler="40 50 60"><freejoint name="fly"/><geom size="0.1" pos="0.1 0 0"/></body>
</worldbody>
<tendon><fixed name="band" stiffness="3" damping="0.4" springlength="0.1"><joint joint="knee" coef="2"/>
<joint joint="rail" coef="-1"/></fixed></tendon>
<actuator><position name="push" joint="rail" kp="9" gear="2"/>
<motor name="kick" joint="knee" ctrlrange="-1 0.5"/></actuator>
<keyframe><key name="home" qpos="1 2 3 0.5 0.5 0.5 0.5  0.8 0.6 0 0  0.3  0.4 0.5  4 5 6 1 0 0 0"
qvel="1 2 3 4 5 6  7 8 9  10  11 12  13 14 15 16 17 18" ctrl="0.7 -0.2"/></keyframe></mujoco>"""


@pytest.fixture
def two(tmp_path):
    path = tmp_path / "two.xml"
    path.write_text(TWO)
    with pytest.warns(pb.DescriptionWarning, match=r"two.xml: left out: gravity \(1.0, 2.0, -3.0\) of worlds"):
        return path, pb.load(path, dtype=F64)


def quiet(file: Path) -> pb.RobotModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pb.load(file, dtype=F64)


def test_all_forces_are_those_of_mujoco(two):
    errors, said = compare(two[1], two[0])
    assert not said
    assert max(errors) < FORCES


@pytest.mark.parametrize("name", ["half_cheetah", "humanoid", "inverted_double_pendulum"])
def test_gymnasium_robots_have_the_forces_of_mujoco(name):
    try:
        folder = Path(str(distribution("gymnasium").locate_file("gymnasium/envs/mujoco/assets")))
    except PackageNotFoundError:
        pytest.skip("gymnasium is not installed")
    file = folder / f"{name}.xml"
    errors, said = compare(quiet(file), file, states=3)
    assert not said
    assert max(errors) < FORCES


def test_mujoco_coordinates_there_and_back(two):
    path, robot = two
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    qpos, qvel = rng.standard_normal((5, model.nq)), rng.standard_normal((5, model.nv))
    for row in qpos:
        mujoco.mj_normalizeQuat(model, row)
    q, qd = robot.from_mujoco(torch.from_numpy(qpos), torch.from_numpy(qvel))
    back = robot.to_mujoco(q, qd)
    np.testing.assert_allclose(back[0].numpy(), qpos, atol=EXACT)
    np.testing.assert_allclose(back[1].numpy(), qvel, atol=EXACT)
    linear, angular = robot.compute_endeffector_jacobian(q, "toe")
    for k in range(5):
        data.qpos[:], data.qvel[:] = qpos[k], qvel[k]
        mujoco.mj_forward(model, data)
        for name, place in (("toe", data.site("toe").xpos), ("ball", data.body("ball").xpos)):
            position, _ = robot.compute_forward_kinematics(q[k], name)
            np.testing.assert_allclose(position.numpy(), place, atol=EXACT)
        velocity = np.zeros(6)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_SITE, data.site("toe").id, velocity, 0)
        found = torch.cat([angular[k] @ qd[k], linear[k] @ qd[k]])
        np.testing.assert_allclose(found.numpy(), velocity, atol=EXACT)
    with pytest.raises(PullbackError, match=r"qpos has shape \(3,\); expected \(\*batch, 21\)"):
        robot.from_mujoco(torch.zeros(3, dtype=F64))


def test_where_a_robot_starts(two):
    path, robot = two
    data = mujoco.MjData(mujoco.MjModel.from_xml_path(str(path)))
    np.testing.assert_allclose(robot.to_mujoco(robot.initial_q())[0].numpy(), data.qpos, atol=EXACT)
    world = pb.World(gravity=robot.gravity)
    world.add(robot, name="two", collision_links=[])
    np.testing.assert_allclose(robot.to_mujoco(world.initial_q(dtype=F64))[0].numpy(), data.qpos, atol=EXACT)
    assert world.actuator_names == ["two/push", "two/kick"]
    assert robot.initial_q(2, 3).shape == (2, 3, robot.nq)


def test_a_floating_base_starts_where_the_file_has_it(tmp_path):
    path = tmp_path / "torso.xml"
    path.write_text(
        '<mujoco><worldbody><body name="torso" pos="0 0 1.5"><freejoint/><geom size="0.1"/></body></worldbody></mujoco>'
    )
    world = pb.World()
    world.add(pb.load(path), name="a")
    world.add(pb.load(path), name="b", position=(1, 2, 3))
    assert world.initial_q().tolist() == [0, 0, 1.5, 0, 0, 0, 1, 1, 2, 3, 0, 0, 0, 1]


def test_keyframes_are_states(two):
    path, robot = two
    model = mujoco.MjModel.from_xml_path(str(path))
    home = robot.keyframes["home"]
    qpos, qvel = robot.to_mujoco(home.q, home.qd)
    np.testing.assert_allclose(qpos.numpy(), model.key_qpos[0], atol=EXACT)
    np.testing.assert_allclose(qvel.numpy(), model.key_qvel[0], atol=EXACT)
    assert dict(zip(robot.actuator_names, home.controls.tolist())) == {"push": 0.7, "kick": -0.2}


def test_springs_in_dynamics_and_their_gradients(two):
    robot = two[1]
    q, qd = robot.random_q(3, generator=torch.Generator().manual_seed(0)), torch.ones(3, robot.nv, dtype=F64)
    tau = torch.ones(3, robot.nv, dtype=F64)
    qdd = robot.compute_forward_dynamics(q, qd, tau, use_damping=True)
    back = robot.compute_inverse_dynamics(q, qd, qdd, use_damping=True)
    torch.testing.assert_close(back, tau)
    without = robot.compute_inverse_dynamics(q, qd, qdd, use_damping=True, include_springs=False)
    assert float((without - tau).abs().max()) > 0.1

    def acceleration(stiffness, rest, q):
        robot.learned[robot._key("shin", "joint_stiffness")] = Constant(stiffness)
        robot.learned[robot._key("shin", "joint_rest")] = Constant(rest)
        return robot.compute_forward_dynamics(q, qd, tau), robot.compute_potential_energy(q)

    given = (torch.tensor([4.0, 5.0, 6.0], dtype=F64), torch.tensor(0.3, dtype=F64), q)
    assert torch.autograd.gradcheck(acceleration, tuple(x.clone().requires_grad_() for x in given))


class Constant(torch.nn.Module):
    """A tensor in the place of a parameter."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.held = [value]

    def forward(self) -> torch.Tensor:
        return self.held[0]
