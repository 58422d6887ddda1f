"""iLQR against closed forms, scipy and itself: linear problems, bounds, gaps, batches, and what is refused."""

import os
import signal

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import torch

import pullback as pb
from pullback.control import ControlCost, FramePose, Function, Problem, Residual, StateCost
from pullback.control.ilqr.ilqr import ilqr
from pullback.core.errors import PullbackError
from tests.control.scenes import ball_and_box, pendulum, random_state, sleds, sleds_matrices

REAL = torch.float64
Q, R, END = np.array([1.0, 2.0, 0.1, 0.2]), np.array([0.05, 0.03]), np.array([30.0, 20.0, 3.0, 2.0])


def sleds_problem(horizon=30, batch=1, seed=0, **bounds):
    sim = sleds()
    state = sim.initial_state(batch)
    generator = torch.Generator().manual_seed(seed)
    state = sim.retract(state, torch.randn(batch, 4, dtype=REAL, generator=generator))
    return Problem(sim, state, horizon, StateCost(weights=Q) + ControlCost(R), StateCost(weights=END), **bounds)


def swing_problem(batch=2, horizon=40, **bounds):
    sim = pendulum()
    state = sim.retract(sim.initial_state(batch), 0.3 * random_state(sim, batch, seed=3).qd.repeat(1, 2))
    target = pb.State(torch.tensor([0.6, -0.8], dtype=REAL), torch.zeros(2, dtype=REAL))
    running = StateCost(target, (0.1, 0.1, 0.01, 0.01)) + 1e-3 * ControlCost()
    return Problem(sim, state, horizon, running, 50.0 * StateCost(target), **bounds)


def stacked(horizon, x0):
    """Return S, c with all states x_1 .. x_T = S u + c of the sleds, u all controls."""
    A, B = sleds_matrices()
    S, c = np.zeros((4 * horizon, 2 * horizon)), np.zeros(4 * horizon)
    for t in range(horizon):
        x = x0 if t == 0 else c[4 * t - 4 : 4 * t]
        c[4 * t : 4 * t + 4] = A @ x
        if t:
            S[4 * t : 4 * t + 4] = A @ S[4 * t - 4 : 4 * t]
        S[4 * t : 4 * t + 4, 2 * t : 2 * t + 2] = B
    return S, c


def least_squares(horizon, x0):
    """Return M, r with twice the cost = |M u + r|² + what no control changes."""
    S, c = stacked(horizon, x0)
    root = np.sqrt(np.concatenate([np.tile(Q, horizon - 1), END]))
    M = np.vstack([root[:, None] * S, np.diag(np.sqrt(np.tile(R, horizon)))])
    return M, np.concatenate([root * c, np.zeros(2 * horizon)])


def start_of(problem):
    return np.concatenate([problem.state.q[0].numpy(), problem.state.qd[0].numpy()])


# -- linear problems -----------------------------------------------------------------------------------------------


def test_linear_problem_is_solved_in_one_iteration():
    problem = sleds_problem()
    found = ilqr(problem)
    M, r = least_squares(30, start_of(problem))
    u = np.linalg.lstsq(M, -r, rcond=None)[0]
    assert found.converged.all()
    assert found.iterations == 2
    assert found.table[0].step.item() == 1.0
    assert np.abs(found.controls[:, 0].numpy().ravel() - u).max() < 1e-6


def test_gains_are_those_of_the_riccati_equation():
    problem = sleds_problem(horizon=400)
    found = ilqr(problem)
    A, B = sleds_matrices()
    P = scipy.linalg.solve_discrete_are(A, B, np.diag(Q), np.diag(R))
    K = -np.linalg.solve(np.diag(R) + B.T @ P @ B, B.T @ P @ A)
    assert np.abs(found.gains[0, 0].numpy() - K).max() < 1e-6 * np.abs(K).max()


def test_bounds_are_those_of_a_bounded_least_squares_problem():
    problem = sleds_problem(lower=-0.8, upper=(0.5, 1.0))
    found = ilqr(problem)
    M, r = least_squares(30, start_of(problem))
    high = np.tile([0.5, 1.0], 30)
    exact = scipy.optimize.lsq_linear(M, -r, (np.full(60, -0.8), high), tol=1e-13)
    u = found.controls[:, 0].numpy().ravel()
    assert found.converged.all()
    assert (u >= -0.8).all()
    assert (u <= high).all()
    assert ((u == -0.8) | (u == high)).sum() > 5
    assert np.abs(u - exact.x).max() < 1e-5
    # a control at its bound does not answer to the state
    at_bound = torch.from_numpy((u == -0.8) | (u == high)).view(30, 1, 2)
    assert (found.gains[at_bound] == 0.0).all()


# -- motions that are not linear -----------------------------------------------------------------------------------


def test_bounded_swing_against_scipy():
    problem = swing_problem(batch=1, horizon=12, lower=-3.0, upper=3.0)
    found = ilqr(problem, tolerance=1e-13)

    def cost(flat):
        u = torch.tensor(flat, dtype=REAL).view(12, 1, 2).requires_grad_()
        motion = problem.sim.rollout(problem.state, u)
        total = problem.cost(motion, u).sum()
        (gradient,) = torch.autograd.grad(total, u)
        return total.item(), gradient.numpy().ravel()

    start = found.controls.numpy().ravel() * 0.0
    exact = scipy.optimize.minimize(cost, start, jac=True, method="L-BFGS-B", bounds=[(-3.0, 3.0)] * 24)
    assert found.cost.item() <= exact.fun * (1.0 + 1e-6)
    assert (found.controls.abs() == 3.0).any()


def test_gaps_are_closed():
    problem = swing_problem()
    shot = ilqr(problem)
    line = torch.linspace(0, 1, 41, dtype=REAL)[:, None, None]
    target = torch.tensor([0.6, -0.8], dtype=REAL)
    q = problem.state.q + line * (target - problem.state.q)
    guess = pb.State(q, torch.zeros_like(q))
    closed = ilqr(problem, states=guess)
    assert closed.table[0].feasibility.max() < 1.0
    assert closed.converged.all()
    assert (closed.gap == 0.0).all()
    again = problem.sim.rollout(problem.state, closed.controls)
    assert (again.q - closed.states.q).abs().max() < 1e-9
    assert (closed.cost - shot.cost).abs().max() < 1e-5 * shot.cost.max()
    assert (closed.states.q[0] == problem.state.q).all()


def test_a_step_leaves_its_share_of_the_gaps():
    """What a short step leaves is what the simulation says, with a free body's axes in it."""
    from pullback.control.ilqr.ilqr import approximate, best_policy
    from pullback.control.ilqr.iterate import _try, find_gaps, first_iterate

    sim = ball_and_box()
    state = random_state(sim, 1, seed=1, spread=0.3)
    target = random_state(sim, seed=2, spread=0.5)
    problem = Problem(sim, state, 6, StateCost(target) + ControlCost())
    guess = random_state(sim, 7, 1, seed=3, spread=0.7)
    here = first_iterate(problem, None, guess)
    assert here.gap.item() > 0.1
    model = approximate(problem, here, "gauss_newton")
    policy, _, _ = best_policy(problem, here, model, np.full(1, 1e-6), np.ones(1, dtype=bool))
    tried = _try(problem, here, policy, (0.25,), None)
    assert tried.gaps is not None
    assert (tried.gaps - find_gaps(sim, tried.states, tried.controls)).abs().max() < 1e-10


def test_linear_model_past_gaps():
    """A free body's next state as the linear model has it, seen from the axes of the state that is there."""
    from pullback.control.ilqr.ilqr import approximate
    from pullback.control.ilqr.iterate import find_gaps, first_iterate

    sim = ball_and_box()
    state = random_state(sim, 1, seed=1, spread=0.3)
    problem = Problem(sim, state, 2, StateCost() + ControlCost())
    guess = random_state(sim, 3, 1, seed=3, spread=0.5)
    here = first_iterate(problem, None, guess)
    A, _, _ = approximate(problem, here, "gauss_newton")
    h, columns = 1e-6, []
    for k in range(2 * sim.nv):
        gaps = []
        for sign in (h, -h):
            dx = torch.zeros(1, 2 * sim.nv, dtype=REAL)
            dx[0, k] = sign
            moved = sim.retract(here.states[1], dx)
            q, qd = here.states.q.clone(), here.states.qd.clone()
            q[1], qd[1] = moved.q, moved.qd
            nodes = pb.Trajectory(q, qd, here.states.status, here.states.steps)
            gaps.append(find_gaps(sim, nodes, here.controls)[1, 0])
        columns.append((gaps[0] - gaps[1]) / (2 * h))
    assert (A[1, 0] - torch.stack(columns, -1)).abs().max() < 1e-6


def test_batch_equals_single():
    problem = swing_problem(batch=3, lower=-4.0, upper=4.0)
    together = ilqr(problem, iterations=15)
    for k in range(3):
        sim, state = problem.sim, problem.state[k]
        alone = swing_problem(batch=1, lower=-4.0, upper=4.0).start_from(state)
        found = ilqr(alone, iterations=15)
        assert sim is not alone.sim
        assert abs(found.cost.item() - together.cost[k].item()) < 1e-6 * abs(found.cost.item())
        assert (found.controls[:, 0] - together.controls[:, k]).abs().max() < 1e-3
    steps = np.stack([row.step for row in together.table.rows])
    assert (steps > 0).any(0).all()


def test_targets_of_their_own():
    """Problems of a batch may have their own targets, also where a line search tries some of them again."""
    sim = pendulum()
    goals = torch.tensor([[0.3, -0.2], [2.5, 1.0], [-1.5, 0.5]], dtype=REAL)
    target = pb.State(goals, torch.zeros(3, 2, dtype=REAL))
    scale = torch.tensor([50.0, 80.0, 100.0], dtype=REAL)
    costs = StateCost(target, 0.1) + 1e-3 * ControlCost(), scale * StateCost(target)
    found = ilqr(Problem(sim, sim.initial_state(3), 30, *costs), iterations=60)
    assert {float(s) for row in found.table.rows for s in row.step} - {0.0, 1.0}
    for k in range(3):
        mine = pb.State(goals[k], torch.zeros(2, dtype=REAL))
        costs = StateCost(mine, 0.1) + 1e-3 * ControlCost(), scale[k].item() * StateCost(mine)
        alone = ilqr(Problem(sim, sim.initial_state(), 30, *costs), iterations=60)
        assert abs(alone.cost.item() - found.cost[k].item()) < 1e-6 * alone.cost.item()


def test_full_hessian_converges_quadratically():
    problem = swing_problem(batch=1)
    newton = ilqr(problem, hessian="full", tolerance=1e-14, iterations=60)
    gauss = ilqr(problem, tolerance=1e-14, iterations=60)
    assert newton.converged.all()
    assert abs(newton.cost.item() - gauss.cost.item()) < 1e-8 * gauss.cost.item()
    expected = [row.stop.item() for row in newton.table.rows]
    # near the end each iteration squares what is left
    assert expected[-1] < 1e-3 * expected[-2]


def test_parameters_that_differ_between_worlds():
    world = pb.World(gravity=torch.tensor([[0.0, 0.0, -9.81], [0.0, 0.0, -3.0]], dtype=REAL))
    world.add(pb.load("pendulum2"), name="arm", actuators=pb.Torque(limit=float("inf")))
    sim = world.compile(dt=0.02, dtype=REAL)
    target = pb.State(torch.tensor([2.0, 0.3], dtype=REAL), torch.zeros(2, dtype=REAL))
    problem = Problem(sim, sim.initial_state(2), 30, 1e-3 * ControlCost(), 50.0 * StateCost(target))
    found = ilqr(problem, states=None, iterations=60)
    assert found.converged.all()
    assert abs(found.cost[0] - found.cost[1]) > 0.1


def test_a_free_body_is_watched():
    """The cost of a thing that no control moves is part of the cost, and its gains are zero."""
    sim = ball_and_box()
    state = random_state(sim, 1, seed=1, spread=0.3)
    problem = Problem(sim, state, 10, FramePose("box", (2, 0, 1), (0, 0, 0, 1)) + ControlCost())
    found = ilqr(problem)
    assert found.converged.all()
    assert found.cost.item() > 0.1
    assert found.gains.abs().max() < 1e-9


def test_costs_by_torch_functions():
    problem = sleds_problem()
    weights = torch.tensor(Q, dtype=REAL)
    end = torch.tensor(END, dtype=REAL)
    effort = torch.tensor(R, dtype=REAL)

    def running(q, qd, u):
        return 0.5 * (weights * torch.cat([q, qd], -1) ** 2).sum(-1) + 0.5 * (effort * u * u).sum(-1)

    same = Problem(
        problem.sim, problem.state, 30, Function(running), Residual(lambda q, qd, u: torch.cat([q, qd], -1), end)
    )
    a, b = ilqr(problem), ilqr(same)
    assert (a.controls - b.controls).abs().max() < 1e-8
    assert (a.cost - b.cost).abs().max() < 1e-10


# -- how it ends ---------------------------------------------------------------------------------------------------


def test_a_search_that_finds_nothing_says_so():
    """A cost whose derivatives lie: no step lowers it, and what was there before is kept."""
    sim = sleds()

    class Liar(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x * x).sum(-1)

        @staticmethod
        def backward(ctx, adj):
            return torch.ones(*adj.shape, 2, dtype=REAL) * adj[..., None]

    problem = Problem(sim, sim.initial_state(), 5, Function(lambda q, qd, u: Liar.apply(u)) + 1e-6 * ControlCost())
    found = ilqr(problem)
    assert not found.converged.any()
    assert "no step lowers the cost" in found.reason[0]
    assert found.cost.item() == 0.0
    assert (found.controls == 0.0).all()


def test_iterations_used_up():
    found = ilqr(swing_problem(), iterations=2)
    assert found.reason == ["2 iterations used up"] * 2
    assert len(str(found).splitlines()) == 4
    assert "2 iterations used up" in str(found)


def test_interrupt_keeps_what_was_reached():
    calls = []

    def cost(q, qd, u):
        calls.append(0)
        if len(calls) == 12:
            os.kill(os.getpid(), signal.SIGINT)
        return (q - 0.7).square().sum(-1)

    found = ilqr(
        Problem(pendulum(), pendulum().initial_state(), 20, 1e-2 * ControlCost() + Function(cost)), tolerance=0.0
    )
    assert found.reason == ["interrupted"]
    assert 0 < found.iterations < 20


def test_shifted_start():
    found = ilqr(swing_problem(), iterations=3)
    controls, states = found.shifted(2)
    assert (controls[:-2] == found.controls[2:]).all()
    assert (controls[-2:] == found.controls[-1]).all()
    assert states.q.shape == found.states.q.shape


def test_table_is_printed(capsys):
    ilqr(sleds_problem(), verbose=True)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["iter", "cost", "stop", "gradient", "regul", "step", "gap", "live"]
    assert len(printed) == 3


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"horizon": 0}, "the horizon is 0"),
        ({"horizon": 2.5}, "the horizon is 2.5"),
        ({"lower": 2.0, "upper": (1.0, 3.0)}, r"lower is above upper for control 0 \(sleds/x\)"),
        ({"lower": (0.0, 0.0, 0.0)}, r"lower has shape \(3,\)"),
        ({"upper": float("nan")}, "not a number"),
        ({"running": None, "terminal": None}, "without costs"),
        ({"running": 3.0}, "running cost is a float"),
        ({"running": Function(lambda q, qd, u: (q - 5.0).sum(-1).sqrt())}, "is not finite where the world starts"),
        ({"running": Function(lambda q, qd, u: 1.0 / (q[..., 0] - 1.0))}, "cost of problem 1 is not finite"),
        ({"state": pb.State(torch.zeros(2, 3, dtype=REAL), torch.zeros(2, 2, dtype=REAL))}, "the state has q"),
        ({"state": pb.State(torch.zeros(2, 2), torch.zeros(2, 2))}, "float32"),
        ({"state": pb.State(torch.full((2, 2), 9e9, dtype=REAL), torch.zeros(2, 2, dtype=REAL))}, "outside its limits"),
        ({"state": pb.State(torch.full((2, 2), torch.nan, dtype=REAL), torch.zeros(2, 2, dtype=REAL))}, "not finite"),
        ({"sim": None}, "a problem is about a pb.Sim"),
    ],
)
def test_bad_problems(change, words):
    sim = sleds()
    state = pb.State(torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=REAL), torch.zeros(2, 2, dtype=REAL))
    given = {"sim": sim, "state": state, "horizon": 5, "running": StateCost() + ControlCost()} | change
    with pytest.raises(PullbackError, match=words):
        Problem(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"controls": torch.zeros(3, 1, 2, dtype=REAL)}, r"first controls are \(3, 1, 2\); expected \(30, 1, 2\)"),
        ({"controls": torch.zeros(30, 1, 2)}, "float32"),
        ({"controls": torch.full((30, 1, 2), torch.inf, dtype=REAL)}, "not finite"),
        ({"states": pb.State(torch.zeros(30, 1, 2, dtype=REAL), torch.zeros(30, 1, 2, dtype=REAL))}, "one more"),
        ({"iterations": 0}, "iterations is 0"),
        ({"regularization": 0.0}, "regularization is 0.0"),
        ({"hessian": "half"}, "hessian is 'half'"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"tolerence": 1e-3}, "no option of ilqr named 'tolerence'; did you mean 'tolerance'"),
    ],
)
def test_bad_searches(given, words):
    with pytest.raises(PullbackError, match=words):
        ilqr(sleds_problem(), **given)


def test_a_world_that_nothing_drives():
    world = pb.World()
    world.add_sphere("ball", radius=0.1, mass=1.0)
    sim = world.compile(dt=0.01, dtype=REAL, without=["contacts"])
    with pytest.raises(PullbackError, match="nothing in this world is actuated"):
        Problem(sim, sim.initial_state(), 5, StateCost())


def test_problems_that_have_ended_are_left_alone(monkeypatch):
    """One problem starts at its goal: from then on only the other is simulated and linearised."""
    problem = swing_problem(batch=2)
    sizes: list[int] = []
    linearize = type(problem.sim).linearize

    def counted(sim, states, controls):
        sizes.append(controls.shape[1])
        return linearize(sim, states, controls)

    alone = ilqr(problem.start_from(problem.state[torch.tensor([0, 0])]))
    first = alone.controls[:, :1]
    monkeypatch.setattr(type(problem.sim), "linearize", counted)
    controls = torch.cat([first, torch.zeros_like(first)], 1)
    found = ilqr(problem, controls, iterations=60)
    assert sizes[0] == 2
    assert sizes[1] == 1
    assert found.converged.all()
    assert found.cost[0].item() == alone.cost[0].item()
    assert (found.controls[:, 0] == first[:, 0]).all()
    monkeypatch.undo()
    assert (found.gains - ilqr(problem, found.controls, iterations=1).gains).abs().max() < 1e-4


def test_a_motion_that_goes_wild_is_no_improvement():
    """A cost that looks at one joint only is not fooled when the other one is lost."""
    from pullback.control.ilqr.iterate import _costs, first_iterate

    sim = sleds()
    problem = Problem(sim, sim.initial_state(), 5, Function(lambda q, qd, u: q[..., 0].square()))
    here = first_iterate(problem, None, None)
    assert _costs(problem, here, here.states, here.controls, 1, None).item() == 0.0
    here.states.q[-1, :, 1] = torch.inf
    assert problem.cost(here.states, here.controls).item() == 0.0
    assert _costs(problem, here, here.states, here.controls, 1, None).isnan().all()


def test_a_start_that_goes_wild_does_not_stop_the_others():
    problem = swing_problem(batch=3)
    controls = torch.zeros(40, 3, 2, dtype=REAL)
    controls[:, 1] = 1e200
    found = ilqr(problem, controls)
    assert found.reason == ["converged", "the first motion or its cost is not finite", "converged"]
    assert found.cost.isfinite().tolist() == [True, False, True]
    expected = ilqr(problem).cost
    assert (found.cost - expected)[[0, 2]].abs().max() < 1e-6 * expected.max()
    with pytest.raises(PullbackError, match="the first motion or its cost is not finite"):
        ilqr(problem, controls[:, 1:2])


def test_callback_ends_the_search():
    seen = []
    found = ilqr(swing_problem(), callback=lambda k, costs: seen.append((k, costs.copy())) or k == 2)
    assert found.reason == ["ended by the callback"] * 2
    assert [k for k, _ in seen] == [0, 1, 2]
    assert (seen[2][1] == found.cost.numpy()).all()
    assert len(found.table.seconds) == 3


def test_best_of_several_steps():
    best = ilqr(swing_problem(), search="best")
    assert best.converged.all()
    assert (best.cost - ilqr(swing_problem()).cost).abs().max() < 1e-6 * best.cost.max()
    costs = np.stack([row.cost for row in best.table.rows])
    assert (np.diff(costs, axis=0) <= 0.0).all()
