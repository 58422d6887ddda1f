"""Feasibility-driven differential dynamic programming with bounded controls, for many problems side by side.

Each iteration linearises the simulation and expands the cost along the present motion, finds the policy that is best for
that model (`backward_pass`), and tries it on the simulation itself (`line_search`). States that are given as a start need
not follow from the controls: the gaps between them are closed on the way. Each of the B problems has its own
regularisation, step length and end. Equations: docs/derivations/ilqr.md.
"""

from __future__ import annotations

from typing import Literal

import torch

from pullback.control.curvature import add_dynamics_curvature
from pullback.control.iterate import Iterate, first_iterate, line_search
from pullback.control.problem import Problem
from pullback.control.report import Result, Row, Table
from pullback.control.riccati import Policy, Quadratic, backward_pass
from pullback.core.errors import PullbackError
from pullback.core.interrupt import gentle_interrupt
from pullback.rigid.state import State, Trajectory

Tensor = torch.Tensor
Hessian = Literal["gauss_newton", "full"]

LEAST, MOST, FACTOR = 1e-9, 1e9, 10.0
"""Ends of the regularisation, and the factor by which it changes."""
LONG, SHORT = 0.5, 0.01
"""Steps longer than the first lower the regularisation, those no longer than the second raise it."""


@torch.no_grad()
def ilqr(
    problem: Problem,
    controls: Tensor | None = None,
    states: Trajectory | State | None = None,
    *,
    iterations: int = 100,
    tolerance: float = 1e-9,
    regularization: float = LEAST,
    hessian: Hessian = "gauss_newton",
    gains: bool = True,
    verbose: bool = False,
) -> Result:
    """Improve controls (T, B, nu), zero by default, until no step promises to lower the cost by more than `tolerance`.

    The tolerance is a share of 1 + the cost. `states`, T + 1 of them, are a first guess of the motion that need not be
    consistent. `hessian="full"` adds the curvature of the dynamics. The result has the motion, its feedback gains (of the
    last motion if `gains`, else of the last but one), the reason for each problem's end, and a table of iterations.
    """
    _check(iterations, tolerance, regularization, hessian)
    if problem.constraints:
        from pullback.control.constraints import solve_constrained

        options = {"tolerance": tolerance, "regularization": regularization, "hessian": hessian}
        return solve_constrained(problem, controls, states, iterations=iterations, verbose=verbose, **options)
    problem.renew()
    here = first_iterate(problem, controls, states)
    table = Table(problem.batch, verbose)
    damping = torch.full_like(here.cost, regularization)
    live = torch.ones_like(here.cost, dtype=torch.bool)
    converged = failed = ~live
    policy, is_stale = None, True
    with gentle_interrupt() as interrupt:
        for _ in range(iterations):
            # a quadratic model around the present motion, and the policy that is best for it
            if is_stale:
                A, B, cost = approximate(problem, here, hessian)
            policy, damping = best_policy(problem, here, A, B, cost, damping, live)
            expected = (policy.linear + 0.5 * policy.quadratic).abs()
            converged = converged | (
                live & policy.ok & here.feasible & (expected <= tolerance * (1.0 + here.cost.abs()))
            )
            live = live & ~converged & policy.ok
            # the longest step that the simulation itself agrees with
            moved, step = line_search(problem, here, policy, live)
            table.add(Row(moved.cost, expected, policy.gradient, damping, step, moved.gap))
            # trust the model more after long steps, less after short ones
            damping = damping.where(~live | (step <= LONG), (damping / FACTOR).clamp(min=LEAST))
            damping = damping.where(~live | (step > SHORT), (damping * FACTOR).clamp(max=MOST))
            failed = failed | (~converged & (damping >= MOST) & (step == 0.0))
            live = live & ~failed
            is_stale = moved is not here
            here = moved
            if not bool(live.any()) or interrupt:
                break
    if policy is None or (gains and is_stale):
        policy, _ = best_policy(problem, here, *approximate(problem, here, hessian), damping, live)
    return Result.of(here, policy, converged, failed, bool(interrupt), table)


def approximate(problem: Problem, here: Iterate, hessian: Hessian) -> tuple[Tensor, Tensor, Quadratic]:
    """Return the linear model A, B of the steps and the quadratic one of the cost along a motion."""
    sim = problem.sim
    model = sim.linearize(here.states, here.controls)
    A, B = model.A, model.B
    cost = problem.expand(here.states, here.controls)
    if hessian == "full":
        add_dynamics_curvature(problem, here, A, B, cost)
    if here.gaps is not None and not sim.manifold.is_flat:
        A, B = here.seen_from_next(A), here.seen_from_next(B)
    return A, B, cost


def best_policy(
    problem: Problem, here: Iterate, A: Tensor, B: Tensor, cost: Quadratic, damping: Tensor, live: Tensor
) -> tuple[Policy, Tensor]:
    """Return the policy that the model asks for, and the regularisation that made its quadratics convex."""
    gaps = torch.zeros_like(cost.x[1:]) if here.gaps is None else here.gaps
    while True:
        policy = backward_pass(A, B, gaps, cost, here.controls, problem.lower, problem.upper, damping)
        again = live & ~policy.ok & (damping < MOST)
        if not bool(again.any()):
            return policy, damping
        damping = damping.where(~again, (damping * FACTOR).clamp(max=MOST))


def _check(iterations: int, tolerance: float, regularization: float, hessian: str) -> None:
    """Refuse settings that mean nothing."""
    if not isinstance(iterations, int) or iterations < 1:
        raise PullbackError(f"iterations is {iterations!r}; give 1 or more")
    if not tolerance >= 0.0:
        raise PullbackError(f"tolerance is {tolerance!r}; give 0 or more")
    if not LEAST <= regularization <= MOST:
        raise PullbackError(f"regularization is {regularization!r}; give a number from {LEAST:g} to {MOST:g}")
    if hessian not in ("gauss_newton", "full"):
        raise PullbackError(f"hessian is {hessian!r}; choose 'gauss_newton' or 'full'")
