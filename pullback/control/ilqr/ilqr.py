"""Feasibility-driven differential dynamic programming with bounded controls, for a batch of problems.

Each iteration linearises the simulation and expands the cost along the present motion, computes the optimal policy of
that model (`backward_pass`), and tries it on the simulation (`line_search`). Initial states need not follow from the
controls: the gaps between them are closed during the search. Each of the B problems has its own regularisation, step
length and termination. Equations: docs/derivations/ilqr.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from pullback.control.ilqr.curvature import add_dynamics_curvature
from pullback.control.ilqr.iterate import Iterate, Promise, first_iterate, line_search, on_host
from pullback.control.ilqr.options import LEAST, MOST, Hessian, IlqrOptions, IlqrSettings
from pullback.control.ilqr.problem import Problem
from pullback.control.ilqr.report import Result, Row, Table
from pullback.control.ilqr.riccati import Policy, Quadratic, backward_pass
from pullback.core.interrupt import gentle_interrupt
from pullback.rigid.state import State, Trajectory

if TYPE_CHECKING:
    from typing_extensions import Unpack

Tensor = torch.Tensor

FACTOR = 10.0
"""The factor by which the regularisation changes."""
TRUST = {"longest": (0.5, 0.01), "best": (0.1, 0.05)}
"""Steps longer than the first value lower the regularisation, steps up to the second raise it."""


@torch.no_grad()
def ilqr(
    problem: Problem,
    controls: Tensor | None = None,
    states: Trajectory | State | None = None,
    *,
    iterations: int = 100,
    gains: bool = True,
    **options: Unpack[IlqrOptions],
) -> Result:
    """Minimise the cost of a problem, or of B problems side by side, over its controls (T, B, nu).

    The result has the motion, its feedback gains, why each search ended, and a table of iterations. Ctrl-C ends the
    search with the best motion so far.

    Args:
        controls: first controls (T, B, nu), zero by default.
        states: T + 1 states, a first guess of the motion that need not follow from the controls.
        iterations: the most iterations.
        gains: compute the gains of the last motion; otherwise they are those of the last but one.
        tolerance: a problem has converged when the model expects a decrease of less than tolerance (1 + cost), 1e-9.
        regularization: the first regularisation of the backward pass.
        hessian: "full" adds second derivatives of the dynamics to the default "gauss_newton".
        search: "longest" takes the longest step that lowers the cost enough, "best" the lowest cost of six steps, which
            helps across kinks where contact begins and ends.
        verbose: print one line per iteration.
        callback: called as callback(iteration, costs) after each iteration; a true result ends the search.
    """
    settings = IlqrSettings.of(iterations, gains, options)
    if problem.constraints:
        from pullback.control.ilqr.constraints import solve_constrained

        return solve_constrained(problem, controls, states, settings)
    return solve(problem, controls, states, settings)


def solve(
    problem: Problem, controls: Tensor | None, states: Trajectory | State | None, settings: IlqrSettings
) -> Result:
    """Solve problems without constraints."""
    problem.renew()
    here = first_iterate(problem, controls, states)
    table = Table(problem.batch, settings.verbose)
    damping = np.full(problem.batch, settings.regularization)
    live = np.isfinite(here.cost)
    failed, converged = ~live, np.zeros_like(live)
    longer, shorter = TRUST[settings.search]
    hessian, callback = settings.hessian, settings.callback
    model = policy = None
    is_stale, is_asked = True, False
    with gentle_interrupt() as interrupt:
        for iteration in range(settings.iterations):
            # a quadratic model around the present motion, and its optimal policy
            if model is None or is_stale:
                model = approximate(problem, here, hessian, model, live)
            policy, promise, damping = best_policy(problem, here, model, damping, live)
            expected = abs(promise.linear + 0.5 * promise.quadratic)
            is_flat = here.feasible & (expected <= settings.tolerance * (1.0 + abs(here.cost)))
            converged = converged | (live & promise.ok & is_flat)
            live = live & promise.ok & ~converged
            # line search on the simulation
            moved, step = line_search(problem, here, policy, promise, live, settings.search)
            table.add(Row(moved.cost, expected, promise.gradient, damping, step, moved.gap, live))
            # less regularisation after long steps, more after short ones
            damping = np.where(live & (step > longer), np.maximum(damping / FACTOR, LEAST), damping)
            damping = np.where(live & (step <= shorter), np.minimum(damping * FACTOR, MOST), damping)
            failed = failed | (~converged & (step == 0.0) & (damping >= MOST))
            live = live & ~failed
            is_stale = moved is not here
            here = moved
            is_asked = callback is not None and bool(callback(iteration, here.cost))
            if interrupt or is_asked or not live.any():
                break
    if policy is None or (settings.gains and is_stale):
        policy, _, _ = best_policy(problem, here, approximate(problem, here, hessian), damping, live)
    early = "interrupted" if interrupt else "ended by the callback" if is_asked else ""
    return Result.of(here, policy, converged, failed, early, table)


class Model(NamedTuple):
    """Linearised dynamics A, B and quadratic cost along a motion."""

    A: Tensor
    B: Tensor
    cost: Quadratic


def approximate(
    problem: Problem, here: Iterate, hessian: Hessian, last: Model | None = None, live: np.ndarray | None = None
) -> Model:
    """Return the model of a problem along a motion; problems that have ended keep the last one."""
    sim = problem.sim
    worlds = None if last is None or live is None else problem.numbers_of(live)
    maps = sim.linearize(*here.motions(worlds))
    A, B = maps.A, maps.B
    if last is not None and worlds is not None:
        A, B = last.A.index_copy(1, worlds, A), last.B.index_copy(1, worlds, B)
    cost = problem.expand(here.states, here.controls)
    if hessian == "full":
        add_dynamics_curvature(problem, here, A, B, cost)
    if here.gaps is not None and not sim.manifold.is_flat:
        A, B = here.seen_from_next(A), here.seen_from_next(B)
    return Model(A, B, cost)


def best_policy(
    problem: Problem, here: Iterate, model: Model, damping: np.ndarray, live: np.ndarray
) -> tuple[Policy, Promise, np.ndarray]:
    """Return the optimal policy of a model, its expected decrease, and the regularisation that made it convex."""
    gaps = torch.zeros_like(model.cost.x[1:]) if here.gaps is None else here.gaps
    while True:
        policy = backward_pass(
            *model[:2], gaps, model.cost, here.controls, problem.lower, problem.upper, gaps.new_tensor(damping)
        )
        promise = Promise(*on_host(policy.linear, policy.quadratic, policy.gradient), *on_host(policy.ok))
        again = live & ~promise.ok & (damping < MOST)
        if not again.any():
            return policy, promise, damping
        damping = np.where(again, np.minimum(damping * FACTOR, MOST), damping)
