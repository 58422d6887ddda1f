"""Motion data obeys the robot's own equations, keeps to its limits, and repeats with its seed."""

import pytest
import torch
from torch.utils.data import DataLoader

import pullback as pb
from pullback.description.load import shipped_robots

# inverse dynamics undone by forward dynamics, relative to the largest acceleration
ROUND_TRIP = 1e-10
# derivatives by central differences of step h = 1e-4 s: h² times a third derivative of order 1e3
DIFFERENCES = 1e-4

MOTIONS = [pb.sine_motion, pb.random_torque_motion]
ROBOTS = [name.replace("N", "3") for name in shipped_robots()]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("motion", MOTIONS)
@pytest.mark.parametrize("name", ROBOTS)
def test_data_obeys_the_dynamics_within_the_limits(motion, name):
    robot = pb.load(name, dtype=torch.float64)
    data = motion(robot, samples=200, dt=0.01, generator=generator())
    assert data.q.shape == (200, robot.nq)
    assert data.tau.shape == (200, robot.nv)
    qdd = robot.compute_forward_dynamics(data.q, data.qd, data.tau)
    assert (qdd - data.qdd).abs().max() < ROUND_TRIP * data.qdd.abs().max()
    limits = robot.get_joint_limits()
    for joint in robot.joint_names:
        q, limit = data.q[:, robot.model.q_start[joint]], limits[robot.model.v_start[joint]]
        assert limit["lower"] <= q.min()
        assert q.max() <= limit["upper"]


def test_torques_keep_to_the_effort_limits():
    robot = pb.load("panda", dtype=torch.float64)
    data = pb.random_torque_motion(robot, samples=400, dt=0.01, generator=generator())
    effort = torch.tensor([limit["effort"] for limit in robot.get_joint_limits()], dtype=torch.float64)
    assert (data.tau.abs() <= effort + 1e-9).all()
    # and they would not without being weakened: some are at their limit
    assert (data.tau.abs() > effort - 1e-9).any()


@pytest.mark.parametrize("name", ["iiwa7", "ant", "panda_gripper"])
def test_sine_velocities_and_accelerations_are_derivatives(name):
    robot = pb.load(name, dtype=torch.float64)
    dt = 1e-4
    data = pb.sine_motion(robot, samples=3, dt=dt, generator=generator())
    ahead, back = (robot.integrate(data.q[1], step * data.qd[1]) for step in (dt, -dt))
    assert ((ahead - back) - (data.q[2] - data.q[0])).abs().max() < DIFFERENCES * dt
    assert ((data.qd[2] - data.qd[0]) / (2 * dt) - data.qdd[1]).abs().max() < DIFFERENCES


def test_random_torques_are_stepped_semi_implicitly():
    robot = pb.load("ur5", dtype=torch.float64)
    data = pb.random_torque_motion(robot, samples=20, dt=0.01, trajectories=2, generator=generator())
    # two trajectories of ten samples, one after the other
    q, qd, qdd = data.q[:10], data.qd[:10], data.qdd[:10]
    torch.testing.assert_close(qd[1:], qd[:-1] + 0.01 * qdd[:-1])
    torch.testing.assert_close(q[1:], q[:-1] + 0.01 * qd[1:])
    assert not torch.allclose(data.q[10], data.q[9] + 0.01 * data.qd[10], atol=1e-3)


@pytest.mark.parametrize("motion", MOTIONS)
def test_the_seed_decides(motion):
    robot = pb.load("ant", dtype=torch.float64)
    first, second, other = (motion(robot, samples=30, noise=0.1, generator=generator(s)) for s in (1, 1, 2))
    for a, b in zip(first[:], second[:]):
        assert torch.equal(a, b)
    assert not torch.equal(first.q, other.q)


@pytest.mark.parametrize("motion", MOTIONS)
def test_noise_goes_where_a_sensor_is(motion):
    robot = pb.load("iiwa7", dtype=torch.float64)
    clean, noisy = (motion(robot, samples=2000, noise=x, generator=generator()) for x in (0.0, 0.05))
    measured, given = ("tau", "qdd") if motion is pb.sine_motion else ("qdd", "tau")
    assert torch.equal(getattr(clean, given), getattr(noisy, given))
    share = (getattr(noisy, measured) - getattr(clean, measured)).std(0) / getattr(clean, measured).std(0)
    torch.testing.assert_close(share, torch.full_like(share, 0.05), rtol=0.1, atol=0.0)


@pytest.mark.parametrize("motion", MOTIONS)
def test_gravity_damping_and_friction_act_where_asked_for(motion):
    robot = pb.load("iiwa7", dtype=torch.float64)
    robot.set_link_param("iiwa_link_3", "joint_friction", 2.0)
    for terms in ({"include_gravity": False}, {"use_damping": True}, {"use_friction": True}, {"gravity": (1.0, 0, 0)}):
        data = motion(robot, samples=20, generator=generator(), **terms)
        plain = robot.compute_inverse_dynamics(data.q, data.qd, data.qdd)
        same = robot.compute_inverse_dynamics(data.q, data.qd, data.qdd, **terms)
        torch.testing.assert_close(same, data.tau)
        assert not torch.allclose(plain, data.tau)


@pytest.mark.parametrize("motion", MOTIONS)
def test_a_batch_of_different_robots(motion):
    robot = pb.load("pendulum2", dtype=torch.float64)
    robot.set_link_param("link1", "mass", [1.0, 2.0, 3.0])
    data = motion(robot, samples=11, batch=3, generator=generator())
    assert data.q.shape == (11, 3, 2)
    torch.testing.assert_close(robot.compute_inverse_dynamics(data.q, data.qd, data.qdd), data.tau)
    assert len(data) == 11
    assert not torch.allclose(data.q[:, 0], data.q[:, 1])


def test_type_is_the_robots_and_nothing_is_recorded_for_gradients():
    robot = pb.load("ur5", dtype=torch.float32)
    robot.make_link_param_learnable("ee_link", "com", pb.UnconstrainedTensor())
    data = pb.sine_motion(robot, samples=5)
    assert all(x.dtype == torch.float32 and not x.requires_grad for x in data[:])


def test_it_feeds_a_data_loader_and_splits():
    robot = pb.load("ur5", dtype=torch.float64)
    data = pb.sine_motion(robot, samples=50, generator=generator())
    batches = list(DataLoader(data, batch_size=20))
    assert [len(q) for q, *_ in batches] == [20, 20, 10]
    torch.testing.assert_close(torch.cat([tau for *_, tau in batches]), data.tau)
    train, test = data.split(0.8, generator=generator())
    assert (len(train), len(test)) == (40, 10)
    together = torch.cat([train.q, test.q])
    torch.testing.assert_close(together.sort(0).values, data.q.sort(0).values)
    # a sample stays together
    torch.testing.assert_close(robot.compute_inverse_dynamics(test.q, test.qd, test.qdd), test.tau)


def test_errors_say_what_to_do():
    robot = pb.load("pendulum1")
    with pytest.raises(pb.PullbackError, match="samples is 0; give a number above zero"):
        pb.sine_motion(robot, samples=0)
    with pytest.raises(pb.PullbackError, match=r"hold is -1; give a number above zero"):
        pb.random_torque_motion(robot, samples=5, hold=-1)
    data = pb.sine_motion(robot, samples=4)
    with pytest.raises(pb.PullbackError, match=r"split\(0.01\) of 4 samples leaves 0 and 4"):
        data.split(0.01)
    with pytest.raises(pb.PullbackError, match="have 4, 3, 4 and 4 samples"):
        pb.MotionData(data.q, data.qd[:3], data.qdd, data.tau)


def test_the_loss_is_one_for_the_mean_and_weighs_outputs_alike():
    target = torch.randn(1000, 3, dtype=torch.float64, generator=generator()) * torch.tensor([1.0, 1e-3, 1e3])
    loss = pb.NMSELoss(target.var(0, unbiased=False))
    assert loss(target, target) == 0.0
    assert loss(target.mean(0).expand_as(target), target).item() == pytest.approx(1.0)
    one_wrong = target.clone()
    one_wrong[:, 1] = target[:, 1].mean()
    assert loss(one_wrong, target).item() == pytest.approx(1 / 3)
    assert dict(loss.named_parameters()) == {}


def test_the_loss_refuses_an_output_that_never_changes():
    for variance in (torch.tensor([1.0, 0.0]), torch.tensor([1.0, torch.nan])):
        with pytest.raises(pb.PullbackError, match="the variance of output 1 is zero or not a number: the data never"):
            pb.NMSELoss(variance)
