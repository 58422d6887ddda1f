"""Damping at the velocity after a step: stable however stiff, and differentiable like everything else."""

from math import exp

import pytest
import torch

import pullback as pb
from tests.rigid.worlds import F64, load

DT = 1e-2


def damped(damping, kd=0.0, servo=False):
    """Return a pendulum without gravity with a damper in its joint, and a velocity servo if asked for."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    arm = load("pendulum1")
    link = arm.model.bodies[0].joint.child
    arm.set_link_param(link, "joint_damping", damping)
    world.add(arm, name="arm", actuators=pb.VelocityServo(kd=kd) if servo else pb.Torque())
    return world, arm


def last_speed(sim, steps=20):
    start = sim.initial_state()
    start.qd[0, 0] = 1.0
    return sim.rollout(start, steps).qd[-1, 0, 0]


def inertia(arm):
    return float(arm.compute_lagrangian_inertia_matrix(torch.zeros(1, dtype=F64))[0, 0])


def test_a_stiff_damper_stops_a_pendulum_and_explicitly_throws_it():
    world, arm = damped(100.0 * 5.0)
    ratio = DT * 500.0 / inertia(arm)
    assert ratio > 4
    assert last_speed(world.compile(dt=DT, dtype=F64, damping="implicit")) == pytest.approx((1 + ratio) ** -20)
    assert abs(last_speed(world.compile(dt=DT, dtype=F64))) > 1e6


def test_a_gentle_damper_is_an_exponential_either_way():
    world, arm = damped(0.5)
    expected = exp(-0.5 * 0.2 / inertia(arm))
    implicit, explicit = (
        float(last_speed(world.compile(dt=1e-4, dtype=F64, damping=d), 2000)) for d in ("implicit", "explicit")
    )
    assert implicit == pytest.approx(expected, rel=1e-3)
    assert explicit == pytest.approx(expected, rel=1e-3)
    assert (implicit - expected) * (explicit - expected) < 0


@pytest.mark.parametrize("substeps", [1, 3])
def test_gradients_by_damping_and_by_the_gain_of_a_servo(substeps):
    def speed(damping, kd):
        world, _ = damped(damping, kd, servo=True)
        return last_speed(world.compile(dt=DT, dtype=F64, damping="implicit", substeps=substeps), 10)

    values = [torch.tensor(x, dtype=F64, requires_grad=True) for x in (30.0, 20.0)]
    found = torch.autograd.grad(speed(*values), values)
    for k, gradient in enumerate(found):
        ends = [[x.item() + (i == k) * sign * 1e-3 for i, x in enumerate(values)] for sign in (1, -1)]
        difference = (speed(*ends[0]) - speed(*ends[1])) / 2e-3
        assert gradient == pytest.approx(float(difference), rel=1e-6)


def test_energies_do_not_know_of_it_and_a_typo_is_told():
    world, _ = damped(50.0)
    sims = [world.compile(dt=DT, dtype=F64, damping=d) for d in ("implicit", "explicit")]
    state = pb.State(torch.zeros(1, 1, dtype=F64), torch.ones(1, 1, dtype=F64))
    assert sims[0].energies(state) == sims[1].energies(state)
    with pytest.raises(pb.PullbackError, match="damping is 'implict'; choose 'explicit' or 'implicit'"):
        world.compile(dt=DT, damping="implict")
