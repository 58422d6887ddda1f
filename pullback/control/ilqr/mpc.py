"""Model-predictive control by iLQR, on a plant that may differ from the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from pullback.control.ilqr.ilqr import ilqr
from pullback.control.ilqr.options import IlqrOptions
from pullback.control.ilqr.problem import Problem, clamp
from pullback.core.errors import PullbackError
from pullback.core.interrupt import gentle_interrupt
from pullback.rigid.sim import Sim
from pullback.rigid.state import State

if TYPE_CHECKING:
    from typing_extensions import Unpack

Tensor = torch.Tensor


@dataclass(frozen=True)
class Drive:
    """The motion of the plant under replanning: one entry for each of its steps."""

    q: Tensor
    """(S + 1, B, nq)"""
    qd: Tensor
    """(S + 1, B, nv)"""
    controls: Tensor
    """(S, B, nu)"""
    cost: Tensor
    """Cost of each plan, (plans, B)."""
    planning: list[float]
    """Computing time [s] of each plan."""
    duration: float
    """Simulated time [s] of the plant."""
    interrupted: bool = False

    @property
    def real_time_factor(self) -> float:
        """Simulated time per planning time, without the first plan; above 1 it runs in real time."""
        later = self.planning[1:] or self.planning
        return self.duration / len(self.planning) * len(later) / sum(later)

    def __str__(self) -> str:
        """Return duration, planning time and real-time factor as text."""
        plan = 1e3 * sum(self.planning) / len(self.planning)
        return (
            f"{self.duration:.3g} s with {len(self.planning)} plans of {plan:.3g} ms: "
            f"{self.real_time_factor:.3g} times real time"
        )


@torch.no_grad()
def mpc(
    problem: Problem,
    plant: Sim,
    steps: int,
    *,
    state: State | None = None,
    replan_every: int = 1,
    iterations: int = 1,
    first_iterations: int = 50,
    feedback: bool = True,
    update: Callable[[int, Problem], Problem] | None = None,
    **options: Unpack[IlqrOptions],
) -> Drive:
    """Control a plant for `steps` steps of the model, with a new plan every `replan_every` steps.

    Each plan starts at the plant's state, is warm-started from the shifted last plan, and gets `iterations` iterations,
    the first one `first_iterations`. With `feedback` the gains of the plan act on the plant's deviation from it. The
    plant's dt is the model's or an integer fraction of it. `update(step, problem)` may return another problem, for
    instance with a new target. Further options are those of `ilqr`.
    """
    ratio = _check(problem, plant, steps, replan_every)
    here = problem.state if state is None else state.detach()
    if plant._programs.nimpulse and here.impulses is None:
        here = State(here.q, here.qd, plant.initial_state(len(here.q)).impulses)
    visited, applied, costs, planning = [here], [], [], []
    controls = guess = found = None
    with gentle_interrupt() as interrupt:
        for step in range(steps):
            if step % replan_every == 0:
                problem = problem if update is None else update(step, problem)
                start = perf_counter()
                budget = first_iterations if found is None else iterations
                found = ilqr(_from(problem, here), controls, guess, iterations=budget, gains=False, **options)
                planning.append(perf_counter() - start)
                costs.append(found.cost)
                controls, guess = found.shifted(replan_every)
            assert found is not None
            k = step % replan_every
            for _ in range(ratio):
                u = found.controls[k]
                if feedback:
                    dx = problem.sim.difference(found.states[k], here)
                    u = u + (found.gains[k] @ dx[..., None])[..., 0]
                u = clamp(u, *(x if x is None or x.ndim == 1 else x[k] for x in (problem.lower, problem.upper)))
                here = plant.step(here, u)
                visited.append(here)
                applied.append(u)
            if interrupt:
                break
    q, qd = torch.stack([x.q for x in visited]), torch.stack([x.qd for x in visited])
    duration = plant.dt * len(applied)
    return Drive(q, qd, torch.stack(applied), torch.stack(costs), planning, duration, bool(interrupt))


def _from(problem: Problem, here: State) -> Problem:
    """Return the problem from the plant's state; contact impulses are the model's own."""
    return problem.start_from(State(here.q, here.qd, problem.state.impulses))


def _check(problem: Problem, plant: Sim, steps: int, replan_every: int) -> int:
    """Return the number of plant steps in a model step."""
    model = problem.sim
    if (plant.nq, plant.nv, plant.nu, plant.dtype, plant.device) != (
        model.nq,
        model.nv,
        model.nu,
        model.dtype,
        model.device,
    ):
        raise PullbackError(f"the plant is {plant!r}, the model {model!r}; both need the same coordinates and controls")
    ratio = round(model.dt / plant.dt)
    if ratio < 1 or abs(ratio * plant.dt - model.dt) > 1e-9 * model.dt:
        raise PullbackError(f"the model's dt {model.dt:g} is no multiple of the plant's {plant.dt:g}")
    if steps < 1 or not 1 <= replan_every <= problem.horizon:
        raise PullbackError(
            f"steps={steps}, replan_every={replan_every}: give 1 step or more, and plan again within the horizon "
            f"of {problem.horizon}"
        )
    return ratio
