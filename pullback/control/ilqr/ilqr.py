"""Feasibility-driven differential dynamic programming with bounded controls, for many problems side by side.

Each iteration linearises the simulation and expands the cost along the present motion, finds the policy that is best
for that model (`backward_pass`), and tries it on the simulation itself (`line_search`). States given as a start need
not follow from the controls: the gaps between them are closed on the way. Each of the B problems has its own
regularisation, step length and end. Equations: docs/derivations/ilqr.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch

from pullback.control.ilqr.curvature import add_dynamics_curvature
from pullback.control.ilqr.iterate import Iterate, Promise, Search, first_iterate, line_search, on_host
from pullback.control.ilqr.problem import Problem
from pullback.control.ilqr.report import Result, Row, Table
from pullback.control.ilqr.riccati import Policy, Quadratic, backward_pass
from pullback.core.errors import PullbackError
from pullback.core.interrupt import gentle_interrupt
from pullback.rigid.state import State, Trajectory

Tensor = torch.Tensor
Hessian = Literal["gauss_newton", "full"]
Callback = Callable[[int, np.ndarray], object]
"""Called with the number of an iteration and the costs (B,) after it; what is true ends the search."""

LEAST, MOST, FACTOR = 1e-9, 1e9, 10.0
"""Ends of the regularisation, and the factor by which it changes."""
TRUST = {"longest": (0.5, 0.01), "best": (0.1, 0.05)}
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
    search: Search = "longest",
    gains: bool = True,
    verbose: bool = False,
    callback: Callback | None = None,
) -> Result:
    """Improve controls (T, B, nu), zero by default, until no step promises to lower the cost by more than `tolerance`.

    The tolerance is a share of 1 + the cost. `states`, T + 1 of them, are a first guess of the motion that need not be
    consistent. `hessian="full"` adds the curvature of the dynamics. `search="best"` takes, of six steps tried in every
    iteration, the one with the lowest cost, which helps across kinks where contact begins and ends; `"longest"` the
    longest that is good enough. The result has the motion, its feedback gains (of the last motion if `gains`, else of
    the last but one), why each search ended, and a table of iterations. `callback(iteration, costs)` may end it early.
    """
    _check(iterations, tolerance, regularization, hessian, search)
    if problem.constraints:
        from pullback.control.ilqr.constraints import solve_constrained

        options = {"regularization": regularization, "hessian": hessian, "search": search, "verbose": verbose}
        limits = {"iterations": iterations, "tolerance": tolerance, "callback": callback}
        return solve_constrained(problem, controls, states, **limits, **options)
    problem.renew()
    here = first_iterate(problem, controls, states)
    table = Table(problem.batch, verbose)
    damping = np.full(problem.batch, regularization)
    live = np.isfinite(here.cost)
    failed, converged = ~live, np.zeros_like(live)
    longer, shorter = TRUST[search]
    model = policy = None
    is_stale, is_asked = True, False
    with gentle_interrupt() as interrupt:
        for iteration in range(iterations):
            # a quadratic model around the present motion, and the policy that is best for it
            if model is None or is_stale:
                model = approximate(problem, here, hessian, model, live)
            policy, promise, damping = best_policy(problem, here, model, damping, live)
            expected = abs(promise.linear + 0.5 * promise.quadratic)
            is_flat = here.feasible & (expected <= tolerance * (1.0 + abs(here.cost)))
            converged = converged | (live & promise.ok & is_flat)
            live = live & promise.ok & ~converged
            # the longest step that the simulation itself agrees with
            moved, step = line_search(problem, here, policy, promise, live, search)
            table.add(Row(moved.cost, expected, promise.gradient, damping, step, moved.gap, live))
            # trust the model more after long steps, less after short ones
            damping = np.where(live & (step > longer), np.maximum(damping / FACTOR, LEAST), damping)
            damping = np.where(live & (step <= shorter), np.minimum(damping * FACTOR, MOST), damping)
            failed = failed | (~converged & (step == 0.0) & (damping >= MOST))
            live = live & ~failed
            is_stale = moved is not here
            here = moved
            is_asked = callback is not None and bool(callback(iteration, here.cost))
            if interrupt or is_asked or not live.any():
                break
    if policy is None or (gains and is_stale):
        policy, _, _ = best_policy(problem, here, approximate(problem, here, hessian), damping, live)
    early = "interrupted" if interrupt else "ended by the callback" if is_asked else ""
    return Result.of(here, policy, converged, failed, early, table)


class Model(NamedTuple):
    """The steps as linear maps A, B, and the cost as a quadratic, along a motion."""

    A: Tensor
    B: Tensor
    cost: Quadratic


def approximate(
    problem: Problem, here: Iterate, hessian: Hessian, last: Model | None = None, live: np.ndarray | None = None
) -> Model:
    """Return the model of a problem along a motion; where the search has ended the last one will do."""
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
    """Return the policy that a model asks for, what it promises, and the regularisation that made it convex."""
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


def _check(iterations: int, tolerance: float, regularization: float, hessian: str, search: str) -> None:
    """Refuse settings that mean nothing."""
    if not isinstance(iterations, int) or iterations < 1:
        raise PullbackError(f"iterations is {iterations!r}; give 1 or more")
    if not tolerance >= 0.0:
        raise PullbackError(f"tolerance is {tolerance!r}; give 0 or more")
    if not LEAST <= regularization <= MOST:
        raise PullbackError(f"regularization is {regularization!r}; give a number from {LEAST:g} to {MOST:g}")
    if hessian not in ("gauss_newton", "full"):
        raise PullbackError(f"hessian is {hessian!r}; choose 'gauss_newton' or 'full'")
    if search not in TRUST:
        raise PullbackError(f"search is {search!r}; choose 'longest' or 'best'")
