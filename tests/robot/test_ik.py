"""Inverse kinematics: targets that can be reached are, those that cannot are named, limits are kept."""

import pytest
import torch

import pullback as pb
from pullback.robot.ik import _limits
from pullback.spatial.rotations_torch import conjugate, quaternion_product, vector_from_quaternion

ARMS = {"panda": "panda_virtual_ee_link", "iiwa7": "iiwa_link_ee", "ur5": "tool0", "fetch_arm": "virtual_ee_link"}
TARGETS = 50


def arm(name):
    robot = pb.load(name, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    link = ARMS[name] if ARMS[name] in robot.get_link_names() else robot.get_link_names()[-1]
    position, quaternion = robot.compute_forward_kinematics(robot.random_q(TARGETS, generator=generator), link)
    return robot, link, position, quaternion, generator


@pytest.mark.parametrize("name", ARMS)
def test_poses_of_random_configurations_are_reached_within_limits(name):
    robot, link, position, quaternion, generator = arm(name)
    result = pb.inverse_kinematics(robot, link, position, quaternion, generator=generator)
    assert result.reached.all(), str(result)
    # the errors reported are those of the answer
    p, quat = robot.compute_forward_kinematics(result.q, link)
    assert torch.allclose((p - position).norm(dim=-1), result.position_error)
    turned = vector_from_quaternion(quaternion_product(quaternion, conjugate(quat))).norm(dim=-1)
    assert torch.allclose(turned, result.rotation_error, atol=1e-12)
    assert result.position_error.max() <= 1e-4
    assert result.rotation_error.max() <= 1e-3
    lower, upper = _limits(robot)
    assert bool(((result.q >= lower) & (result.q <= upper)).all())


def test_positions_alone_keep_the_shape_of_the_batch():
    robot, link, position, _, generator = arm("panda")
    result = pb.inverse_kinematics(robot, link, position.reshape(5, 10, 3), generator=generator)
    assert result.q.shape == (5, 10, 7)
    assert result.reached.shape == (5, 10)
    assert result.reached.all()
    single = pb.inverse_kinematics(robot, link, position[0], generator=generator)
    assert single.q.shape == (7,)
    assert bool(single.reached)


def test_a_target_out_of_reach_is_named():
    robot, link, position, _, generator = arm("iiwa7")
    targets = torch.stack([position[0], torch.tensor([3.0, 0.0, 0.0], dtype=torch.float64), position[1]])
    result = pb.inverse_kinematics(robot, link, targets, generator=generator)
    assert result.reached.tolist() == [True, False, True]
    assert str(result) == "2 of 3 targets reached; not reached: [1]"
    # the arm stretches towards it: no farther away than the straight arm
    assert 1.0 < result.position_error[1] < 2.2


def test_a_good_start_is_used():
    robot, link, position, quaternion, generator = arm("ur5")
    q0 = pb.inverse_kinematics(robot, link, position, quaternion, generator=generator).q
    again = pb.inverse_kinematics(robot, link, position, quaternion, q0=q0, restarts=1)
    assert torch.equal(again.q, q0)


def test_a_floating_base_and_mimic_joints():
    laikago = pb.load("laikago", "floating", dtype=torch.float64)
    target = torch.tensor([0.4, -0.3, 0.9], dtype=torch.float64)
    result = pb.inverse_kinematics(laikago, laikago.get_link_names()[-1], target, restarts=2)
    assert bool(result.reached)
    assert torch.allclose(result.q[3:7].norm(), torch.ones((), dtype=torch.float64))
    gripper = pb.load("panda_gripper", dtype=torch.float64)
    target, _ = gripper.compute_forward_kinematics(gripper.random_q(), "panda_leftfinger")
    assert bool(pb.inverse_kinematics(gripper, "panda_leftfinger", target).reached)


def test_a_start_outside_the_limits_is_brought_inside():
    robot, link, position, quaternion, generator = arm("panda")
    q0 = robot.random_q(TARGETS, generator=generator) + 2.0 * torch.pi
    result = pb.inverse_kinematics(robot, link, position, quaternion, q0=q0, generator=generator)
    lower, upper = _limits(robot)
    assert bool(((result.q >= lower) & (result.q <= upper)).all())


def test_bad_targets():
    robot, link, position, quaternion, _ = arm("panda")
    with pytest.raises(pb.PullbackError, match=r"position is \(50, 2\).*expected \(\*batch, 3\)"):
        pb.inverse_kinematics(robot, link, position[:, :2])
    with pytest.raises(pb.PullbackError, match=r"quaternion is .*float32"):
        pb.inverse_kinematics(robot, link, position, quaternion.float())
    with pytest.raises(pb.PullbackError, match="did you mean 'panda_link7'"):
        pb.inverse_kinematics(robot, "panda_link77", position)
    with pytest.raises(pb.PullbackError, match="position is a list"):
        pb.inverse_kinematics(robot, link, [0.1, 0.2, 0.3])
    with pytest.raises(pb.PullbackError, match="position is not finite"):
        pb.inverse_kinematics(robot, link, position * float("nan"))
    with pytest.raises(pb.PullbackError, match="quaternion: one of them is zero"):
        pb.inverse_kinematics(robot, link, position, 0.0 * quaternion)
    with pytest.raises(pb.PullbackError, match=r"do not broadcast: position \(50,\), quaternion \(3,\)"):
        pb.inverse_kinematics(robot, link, position, quaternion[:3])
    with pytest.raises(pb.PullbackError, match=r"q0 has shape \(7,\), torch.float32"):
        pb.inverse_kinematics(robot, link, position, q0=torch.zeros(7))
    with pytest.raises(pb.PullbackError, match=r"do not broadcast: targets \(50,\), q0 \(4,\)"):
        pb.inverse_kinematics(robot, link, position, q0=robot.neutral(4))
    with pytest.raises(pb.PullbackError, match="restarts is 0"):
        pb.inverse_kinematics(robot, link, position, restarts=0)
    with pytest.raises(pb.PullbackError, match=r"q0 has shape \(6,\)"):
        pb.inverse_kinematics(robot, link, position, q0=torch.zeros(6, dtype=torch.float64))
