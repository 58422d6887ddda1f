"""Bounds of controls that nobody gave: those of the motors."""

import pytest
import torch

import pullback as pb
from pullback.control import ControlCost, Problem, StateCost
from pullback.control.ilqr.ilqr import ilqr
from pullback.core.errors import PullbackError

REAL = torch.float64


def test_motors_bound_torques():
    world = pb.World()
    world.add(pb.load("pendulum2"), name="arm", actuators=pb.Torque(gain=2.0, limit=3.0))
    sim = world.compile(dt=0.02, dtype=REAL)
    costs = (ControlCost(), StateCost(pb.State(torch.ones(2, dtype=REAL), torch.zeros(2, dtype=REAL)), 1e4))
    problem = Problem(sim, sim.initial_state(), 20, *costs, upper=1.0)
    assert problem.lower.tolist() == [-1.5, -1.5]
    assert problem.upper.tolist() == [1.0, 1.0]
    found = ilqr(problem, iterations=20)
    assert found.controls.min() >= -1.5
    assert found.controls.max() <= 1.0
    with pytest.raises(PullbackError, match=r"control 0 \(.*\) lie beyond its motor's limit, 1.5"):
        Problem(sim, sim.initial_state(), 20, *costs, lower=2.0)
