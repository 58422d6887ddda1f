"""Motors with soft stops: against the oscillation of a spring, a plain reference, and central differences."""

from math import pi

import numpy as np
import pytest
import torch

import pullback as pb
from tests.rigid.worlds import F64, load

DT = 1e-3
AGREE = 1e-6
"""Central differences, relative."""
GAIN, LOWER, UPPER, K, D, W = 20.0, -0.4, 0.5, 300.0, 2.0, 0.1


def pendulum(dt=DT, **numbers):
    """Return a pendulum without gravity between two stops, compiled, and its inertia."""
    world, arm = pb.World(gravity=(0.0, 0.0, 0.0)), load("pendulum1")
    given = {"gain": GAIN, "lower": LOWER, "upper": UPPER, "stiffness": K, "damping": D, "width": W, **numbers}
    world.add(arm, name="arm", actuators=pb.SoftStopMotor(**given))
    inertia = float(arm.compute_lagrangian_inertia_matrix(torch.zeros(1, dtype=F64))[0, 0])
    return world.compile(dt=dt, dtype=F64, damping="explicit", without=["limits"]), inertia


def reference(u, q, qd, gain, lower, upper, k, d, w, most=1e9):
    """Return the torque in plain torch (docs/derivations/actuators.md, eq. (6))."""
    torque = (gain * u).clamp(-most, most)
    for side, depth in ((1.0, lower - q), (-1.0, q - upper)):
        x = depth.clamp(min=0.0)
        s = torch.where(x < w, 0.5 * x * x / w, x - 0.5 * w)
        rise = torch.where(x < w, x / w, torch.ones_like(x))
        torque = torque + side * k * s - d * rise * qd
    return torque


@pytest.mark.parametrize("q", [-0.7, -0.45, 0.1, 0.55, 0.9])
@pytest.mark.parametrize("u", [-3.0, 0.3])
def test_a_step_feels_the_torque_of_the_reference(q, u):
    sim, inertia = pendulum(limit=40.0)
    start = pb.State(torch.tensor([[q]], dtype=F64), torch.tensor([[1.5]], dtype=F64))
    after = sim.step(start, torch.tensor([[u]], dtype=F64)).qd[0, 0]
    force = reference(torch.tensor(u, dtype=F64), start.q, start.qd, GAIN, LOWER, UPPER, K, D, W, 40.0)[0, 0]
    assert after.item() == pytest.approx(1.5 + DT * force.item() / inertia, rel=1e-12)


def test_a_stop_bounces_like_half_a_swing_of_a_spring():
    # a width of next to nothing: a spring, in which the arm stays for half a period
    sim, inertia = pendulum(dt=1e-5, damping=0.0, width=1e-6)
    period = 2.0 * pi * (inertia / K) ** 0.5
    start = pb.State(torch.full((1, 1), UPPER, dtype=F64), torch.full((1, 1), 2.0, dtype=F64))
    steps = round(0.5 * period / 1e-5)
    end = sim.rollout(start, steps, checkpoint=pb.Binomial(8))[-1]
    assert end.qd.item() == pytest.approx(-2.0, rel=1e-3)
    assert end.q.item() == pytest.approx(UPPER, abs=1e-4)


def loss(values, u):
    """Return a sum over the motion of a pendulum that is driven into both stops."""
    gain, lower, upper, k, d, w = values
    motor = pb.SoftStopMotor(gain, lower, upper, stiffness=k, damping=d, width=w)
    world = pb.World(gravity=(0.0, 0.0, -9.81))
    world.add(load("pendulum1"), name="arm", actuators=motor)
    sim = world.compile(dt=5e-3, dtype=F64, without=["limits"])
    motion = sim.rollout(sim.initial_state(), u[:, None, None])
    weights = torch.linspace(0.5, 1.5, len(motion.q), dtype=F64)
    return (weights * (motion.q[:, 0, 0].sin() + 0.1 * motion.qd[:, 0, 0])).sum(), motion


def test_gradients_by_all_numbers_and_controls_agree_with_differences():
    values = [torch.tensor(x, dtype=F64, requires_grad=True) for x in (GAIN, LOWER, UPPER, K, D, W)]
    u = (1.5 * torch.sin(torch.linspace(0.0, 9.0, 120, dtype=F64))).requires_grad_()
    value, motion = loss(values, u)
    # both stops are met, within their width and beyond it
    assert motion.q.min() < LOWER - W
    assert motion.q.max() > UPPER + W
    slopes = torch.autograd.grad(value, [*values, u])
    for k, x in enumerate(values):
        h = 1e-6 * abs(x.item())
        up, down = ([y.detach() + (s * h if j == k else 0.0) for j, y in enumerate(values)] for s in (1.0, -1.0))
        difference = (loss(up, u.detach())[0] - loss(down, u.detach())[0]) / (2 * h)
        assert slopes[k].item() == pytest.approx(difference.item(), rel=AGREE, abs=1e-7)
    # the dot-product test, along a random change of all controls
    along = torch.randn(120, dtype=F64, generator=torch.Generator().manual_seed(0))
    fixed = [x.detach() for x in values]
    h = 1e-6
    difference = (loss(fixed, u.detach() + h * along)[0] - loss(fixed, u.detach() - h * along)[0]) / (2 * h)
    assert float(slopes[-1] @ along) == pytest.approx(difference.item(), rel=AGREE)


def test_a_motor_that_leans_on_its_stop_still_has_a_gradient():
    def slope(soft):
        world, arm = pb.World(gravity=(0.0, 0.0, 0.0)), load("hopper")
        motors = pb.SoftStopMotor.of(arm, 200.0) if soft else None
        world.add(arm, name="hopper", q={"rootz": 5.0}, actuators=motors)
        sim = world.compile(dt=2e-3, dtype=F64, without=["limits"] if soft else [])
        u = torch.zeros(1, sim.nu, dtype=F64)
        # the knee is stretched, up to where it ends, and held there
        knee = next(k for k, name in enumerate(sim.arrays.actuator_names) if "leg_joint" in name)
        u[0, knee] = 0.5
        u.requires_grad_()
        motion = sim.rollout(sim.initial_state(), u.expand(40, 1, -1))
        return torch.autograd.grad(motion.q[-1, 0, 4], u)[0][0, knee].item()

    assert slope(soft=False) == pytest.approx(0.0, abs=1e-6)
    assert slope(soft=True) > 1e-3


def test_numbers_without_sense_are_refused():
    world = pb.World()
    with pytest.raises(pb.PullbackError, match="width is zero somewhere; give how far"):
        world.add(load("pendulum1"), name="arm", actuators=pb.SoftStopMotor(width=0.0))
    with pytest.raises(pb.PullbackError, match="stiffness"):
        world.add(load("pendulum1"), name="arm", actuators=pb.SoftStopMotor(stiffness=-1.0))
    with pytest.raises(pb.PullbackError, match=r"no joint of 'pendulum1' has limits; drive its joints by pb.Torque"):
        pb.SoftStopMotor.of(load("pendulum1"))
    assert np.isinf(pb.SoftStopMotor().lower)
