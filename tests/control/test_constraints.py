"""Constraints met by the augmented Lagrangian, against scipy's answer to the same problem."""

import numpy as np
import pytest
import scipy.optimize
import torch

import pullback as pb
from pullback.control import Constraint, ControlCost, FramePose, LinkFrame, Problem, StateCost, joint_limits
from pullback.control.ilqr.ilqr import ilqr
from pullback.core.errors import PullbackError
from tests.control.scenes import pendulum, sleds, sleds_matrices, sleds_world

REAL = torch.float64
HORIZON = 20
GOAL = np.array([1.0, -0.5, 0.0, 0.0])
FASTEST = 0.7


def too_fast(q, qd, u):
    return torch.cat([qd - FASTEST, -qd - FASTEST], -1)


def not_there(q, qd, u):
    return torch.cat([q, qd], -1) - torch.as_tensor(GOAL)


def sleds_problem(constraints, batch=1):
    sim = sleds(dt=0.1)
    return Problem(sim, sim.initial_state(batch), HORIZON, 0.01 * ControlCost(), None, constraints=constraints)


def test_speed_limit_and_goal_against_scipy():
    """Of all ways to the goal within a speed limit the one with the least effort: a quadratic program."""
    limits = [Constraint(too_fast, "inequality", at="always"), Constraint(not_there, at="terminal")]
    found = ilqr(sleds_problem(limits), iterations=300)
    assert found.violation is not None
    assert found.violation.item() <= 1e-6
    assert found.converged.all()
    A, B = sleds_matrices(0.1)

    def states(u):
        x, out = np.zeros(4), []
        for t in range(HORIZON):
            x = A @ x + B @ u[2 * t : 2 * t + 2]
            out.append(x)
        return np.array(out)

    exact = scipy.optimize.minimize(
        lambda u: (0.005 * u @ u, 0.01 * u),
        np.zeros(2 * HORIZON),
        jac=True,
        method="SLSQP",
        constraints=[
            {"type": "eq", "fun": lambda u: states(u)[-1] - GOAL},
            {"type": "ineq", "fun": lambda u: FASTEST - np.abs(states(u)[:, 2:]).ravel()},
        ],
        options={"maxiter": 300, "ftol": 1e-12},
    )
    assert exact.success
    assert found.cost.item() == pytest.approx(exact.fun, rel=1e-4)
    # the limit matters
    assert found.states.qd.abs().max().item() == pytest.approx(FASTEST, abs=1e-5)


def test_each_problem_of_a_batch_meets_its_constraints():
    sim = pendulum()
    state = sim.retract(sim.initial_state(3), torch.tensor([[0.1], [0.4], [-0.3]], dtype=REAL).repeat(1, 4))
    frame = LinkFrame(sim, "arm/" + sim.world.robots["arm"].get_link_names()[-1])
    ceiling = frame.pose(state.q)[0][:, 2].amax() + 0.2

    def too_high(q, qd, u):
        return frame.pose(q)[0][..., 2:] - ceiling

    target = pb.State(torch.tensor([2.0, 0.0], dtype=REAL), torch.zeros(2, dtype=REAL))
    costs = StateCost(target, 0.1) + 1e-3 * ControlCost(), 10.0 * StateCost(target)
    free = ilqr(Problem(sim, state, 30, *costs))
    held = ilqr(
        Problem(sim, state, 30, *costs, constraints=[Constraint(too_high, "inequality", at="always")]), iterations=400
    )
    assert (too_high(free.states.q, None, None) > 0.05).any()
    assert held.violation is not None
    assert (held.violation <= 1e-6).all()
    assert (held.cost >= free.cost - 1e-6).all()
    assert (held.cost > free.cost + 0.1).any()
    assert too_high(held.states.q, None, None).max() <= 1e-6


def test_joint_limits():
    sim = sleds_world(lower=-0.5, upper=0.5).compile(dt=0.1, dtype=REAL, without=["limits"])
    goal = FramePose("sleds/second", (2.0, -2.0, 0.0))
    problem = Problem(
        sim, sim.initial_state(), HORIZON, goal + 1e-3 * ControlCost(), constraints=[joint_limits(sim, 0.1)]
    )
    found = ilqr(problem, iterations=200)
    assert found.states.q.abs().max().item() == pytest.approx(0.4, abs=1e-4)


def test_constraints_that_cannot_be_met_say_so():
    both = [Constraint(not_there, at="terminal"), Constraint(lambda q, qd, u: q, at="terminal")]
    found = ilqr(sleds_problem(both), iterations=60)
    assert not found.converged.any()
    assert "constraints violated by" in found.reason[0]


def test_bad_constraints():
    with pytest.raises(PullbackError, match="kind 'below'"):
        Constraint(too_fast, "below")  # pyright: ignore
    with pytest.raises(PullbackError, match="a constraint is a function"):
        ilqr(sleds_problem([too_fast]))
    with pytest.raises(PullbackError, match="expected residuals"):
        ilqr(sleds_problem([Constraint(lambda q, qd, u: q.sum())]))
    world = pb.World()
    world.add_sphere("ball", radius=0.1, mass=1.0)
    with pytest.raises(PullbackError, match="no joint of this world has limits"):
        joint_limits(world.compile(dt=0.01, dtype=REAL, without=["contacts"]))
