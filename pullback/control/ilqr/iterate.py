"""An iterate of iLQR: states, controls, gaps and cost; and the line search along a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch

from pullback.control.ilqr.problem import Problem, clamp
from pullback.control.ilqr.riccati import Policy
from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Status, Trajectory

Tensor = torch.Tensor
Search = Literal["longest", "best"]

WHOLE = (1.0,)
SHORTER = tuple(0.5**k for k in range(1, 10))
"""The step length tried first, and those tried where it fails."""
SPREAD = (1.0, 0.5, 0.25, 0.125, 0.03, 0.005)
"""Step lengths of the "best" line search."""
ENOUGH, TOO_MUCH = 0.1, 2.0
"""Required fraction of an expected decrease of the cost, and allowed multiple of an expected increase."""
ROUNDING = 16.0
"""Multiples of the rounding error of a cost that count as no change."""


def on_host(*tensors: Tensor) -> list[np.ndarray]:
    """Return tensors of one shape as numpy arrays, in one transfer from the device."""
    if tensors[0].is_cpu:
        return [x.numpy() for x in tensors]
    return list(torch.stack(tensors).cpu().numpy())


class Promise(NamedTuple):
    """Expected change of cost (linear, quadratic), largest control gradient, whether there is a policy; (B,) each."""

    linear: np.ndarray
    quadratic: np.ndarray
    gradient: np.ndarray
    ok: np.ndarray


@dataclass(frozen=True)
class Iterate:
    """States, controls and cost (B,) of B problems; gaps f(x, u) - x' (T, B, 2 nv), None where all are zero."""

    sim: Sim
    states: Trajectory
    controls: Tensor
    gaps: Tensor | None
    cost: np.ndarray

    @property
    def gap(self) -> np.ndarray:
        """The largest gap (B,)."""
        return np.zeros_like(self.cost) if self.gaps is None else on_host(self.gaps.abs().amax((0, 2)))[0]

    @property
    def feasible(self) -> np.ndarray:
        """Whether states follow from controls (B,)."""
        return self.gap == 0.0

    def motions(self, worlds: Tensor | None) -> tuple[Trajectory, Tensor]:
        """Return states and controls of the given problems, by default all."""
        if worlds is None:
            return self.states, self.controls
        x = self.states
        impulses = None if x.impulses is None else x.impulses.index_select(1, worlds)
        states = Trajectory(x.q.index_select(1, worlds), x.qd.index_select(1, worlds), x.status, x.steps, impulses)
        return states, self.controls.index_select(1, worlds)

    def seen_from_next(self, rows: Tensor) -> Tensor:
        """Transport tangent rows (T, B, 2 nv, n) after each step across the gap, to the axes of the next state."""
        manifold, nv = self.sim.manifold, self.sim.nv
        assert self.gaps is not None
        there = self.states.q[1:]
        J = manifold.difference_jacobian(there, manifold.retract(there, self.gaps[..., :nv]))
        return torch.cat([J @ rows[..., :nv, :], rows[..., nv:, :]], -2)


def first_iterate(problem: Problem, controls: Tensor | None, states: Trajectory | State | None) -> Iterate:
    """Return the first iterate: the rollout of the controls, or the given states with the gaps between them.

    A problem whose first motion is not finite has infinite cost and keeps its initial state.
    """
    sim, gaps = problem.sim, None
    controls = _given_controls(problem, controls)
    if states is None:
        motion = sim.rollout(problem.state, controls)
        wild = ~(motion.q[-1].isfinite().all(-1) & motion.qd[-1].isfinite().all(-1))
        (is_wild,) = on_host(wild)
        if is_wild.any():
            motion.q[:, wild], motion.qd[:, wild] = problem.state.q[wild], 0.0
            if motion.impulses is not None:
                motion.impulses[:, wild] = 0.0
    else:
        motion, is_wild = _given_states(problem, states), False
        gaps = find_gaps(sim, motion, controls)
        gaps = gaps if bool(gaps.any()) else None
    (cost,) = on_host(problem.cost(motion, controls))
    cost = np.where(np.isfinite(cost) & ~np.asarray(is_wild), cost, np.inf)
    if not np.isfinite(cost).any():
        raise PullbackError(
            "the first motion or its cost is not finite; give other first controls, a first guess of the states "
            "(states=...), or a smaller dt"
        )
    return Iterate(sim, motion, controls, gaps, cost)


def _given_controls(problem: Problem, controls: Tensor | None) -> Tensor:
    """Return the first controls within their bounds, by default zero."""
    sim, shape = problem.sim, (problem.horizon, problem.batch, problem.sim.nu)
    if controls is None:
        controls = torch.zeros(shape, dtype=sim.dtype, device=sim.device)
    if not isinstance(controls, Tensor) or controls.shape not in (shape, (shape[0], 1, shape[2])):
        got = tuple(controls.shape) if isinstance(controls, Tensor) else type(controls).__name__
        raise PullbackError(f"the first controls are {got}; expected {shape}: steps, problems, controls")
    sim._check_type("the first controls", controls)
    if not bool(controls.isfinite().all()):
        raise PullbackError("the first controls are not finite")
    return clamp(controls.detach().expand(shape), problem.lower, problem.upper).contiguous()


def _given_states(problem: Problem, states: Trajectory | State) -> Trajectory:
    """Return the guessed states as a motion that starts at the problem's initial state."""
    sim = problem.sim
    shape = (problem.horizon + 1, problem.batch)
    q, qd, impulses = states.q.detach(), states.qd.detach(), states.impulses
    if q.ndim != 3 or q.shape != (*shape, sim.nq) or qd.shape != (*shape, sim.nv):
        raise PullbackError(
            f"the first states have q {tuple(q.shape)} and qd {tuple(qd.shape)}; expected {(*shape, sim.nq)} and "
            f"{(*shape, sim.nv)}: one more than there are steps"
        )
    sim._check_type("q", q)
    sim._check_type("qd", qd)
    if not bool(q.isfinite().all() and qd.isfinite().all()):
        raise PullbackError("the first states are not finite")
    start = problem.state
    q, qd = torch.cat([start.q[None], q[1:]]), torch.cat([start.qd[None], qd[1:]])
    if start.impulses is not None:
        impulses = start.impulses.new_zeros(*shape, start.impulses.shape[1]) if impulses is None else impulses
        impulses = torch.cat([start.impulses[None], impulses[1:]])
    status = Status.fine(problem.batch, sim.substeps)
    return Trajectory(q, qd, status, torch.arange(shape[0]), impulses)


def find_gaps(sim: Sim, states: Trajectory, controls: Tensor) -> Tensor:
    """Return the gaps between each step's result and the next state, f(x, u) - x', (T, B, 2 nv)."""
    T, B, _ = controls.shape
    if sim.parameters.packed().shape[0] == 1:
        before = [None if x is None else x[:T].flatten(0, 1) for x in (states.q, states.qd, states.impulses)]
        after = sim.step(State(*before), controls.flatten(0, 1))  # pyright: ignore[reportArgumentType]
        q, qd = after.q.unflatten(0, (T, B)), after.qd.unflatten(0, (T, B))
    else:
        steps = [sim.step(states[t], controls[t]) for t in range(T)]
        q, qd = torch.stack([x.q for x in steps]), torch.stack([x.qd for x in steps])
    return sim.difference(State(states.q[1:], states.qd[1:]), State(q, qd))


# -- line search ---------------------------------------------------------------------------------------------------


def line_search(
    problem: Problem, here: Iterate, policy: Policy, promise: Promise, live: np.ndarray, search: Search = "longest"
) -> tuple[Iterate, np.ndarray]:
    """Return the motion after the longest step that lowers the cost enough, and the step lengths (B,), 0 for none.

    The full step is tried first, then nine shorter ones for the problems where it fails: all at once on a GPU, longer
    ones first on a CPU. With `search="best"` several are tried at once, and the lowest cost is taken.
    """
    # worlds with their own parameters need a launch of all worlds, so step lengths are tried one by one
    shares = len(problem.sim.parameters.packed()) == 1
    takes_best = search == "best" and here.gaps is None
    few = (SHORTER,) if here.controls.is_cuda else (SHORTER[:1], SHORTER[1:3], SHORTER[3:])
    rounds: Sequence[Sequence[float]] = (SPREAD,) if takes_best else (WHOLE, *few)
    moved, step, worlds = here, np.zeros(problem.batch), live.nonzero()[0]
    for tried in rounds if shares else [(share,) for steps in rounds for share in steps]:
        if not len(worlds):
            break
        some = worlds if shares and (len(tried) > 1 or len(worlds) < problem.batch) else None
        trial = _try(problem, here, policy, tried, some)
        costs = trial.cost.reshape(len(tried), -1)
        costs = costs[:, worlds] if some is None else costs
        found, which = _choose(here, promise, tried, costs, worlds, takes_best)
        if some is None and len(found) == problem.batch and found.all():
            return trial, np.full(problem.batch, max(tried))
        columns = worlds if some is None else which * len(worlds) + np.arange(len(worlds))
        moved = _put(moved, worlds[found], trial, columns[found])
        step[worlds[found]] = np.asarray(tried)[which[found]]
        worlds = worlds[~found]
    return moved, step


def _choose(
    here: Iterate, promise: Promise, steps: Sequence[float], costs: np.ndarray, worlds: np.ndarray, takes_best: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return which problems accept one of the costs (A, W) after steps (A,), and the index of that step."""
    before = here.cost[worlds]
    noise = ROUNDING * np.finfo(costs.dtype).eps * abs(before)
    if takes_best:
        costs = np.where(np.isfinite(costs), costs, np.inf)
        return costs.min(0) < before - noise, costs.argmin(0)
    a = np.asarray(steps)[:, None]
    expected = a * promise.linear[worlds] + 0.5 * a * a * promise.quadratic[worlds]
    allowed = np.where(expected <= 0.0, ENOUGH * expected, TOO_MUCH * expected)
    good = costs - before <= allowed + noise
    return good.any(0), good.argmax(0)


def _try(problem: Problem, here: Iterate, policy: Policy, steps: Sequence[float], worlds: np.ndarray | None) -> Iterate:
    """Return the motions (A W) after steps (A,) of the given problems, by default all, ordered by step."""
    sim, many, device = problem.sim, len(steps), here.controls.device
    chosen = None if worlds is None else torch.from_numpy(worlds).to(device).repeat(many)

    def spread(x: Tensor, dim: int = 1) -> Tensor:
        """Repeat data (T, B, ...), or with dim 0 (B, ...), for each trial."""
        return x if chosen is None else x.index_select(dim, chosen)

    def bound(x: Tensor | None) -> Tensor | None:
        return x if x is None or x.ndim == 1 else spread(x)

    def impulses(x: Tensor | None, dim: int) -> Tensor | None:
        return None if x is None else spread(x, dim)

    start, now = problem.state, here.states
    nominal = Trajectory(spread(now.q), spread(now.qd), now.status, now.steps, impulses(now.impulses, 1))
    controls, defects, gaps = spread(here.controls), None, None
    if many == 1:
        controls = controls + (spread(policy.k) if steps[0] == 1.0 else steps[0] * spread(policy.k))
        share: Tensor | float = steps[0]
    else:
        share = controls.new_tensor(steps).repeat_interleave(controls.shape[1] // many)[:, None]
        controls = controls + share * spread(policy.k)
    if here.gaps is not None and steps[0] != 1.0:
        # the remaining gaps after a partial step
        defects = (share - 1.0) * spread(here.gaps)
        gaps = sim.manifold.reverse(defects)
    motion, applied = sim.feedback_rollout(
        State(spread(start.q, 0), spread(start.qd, 0), impulses(start.impulses, 0)),
        controls,
        spread(policy.K),
        nominal,
        lower=bound(problem.lower),
        upper=bound(problem.upper),
        defects=defects,
    )
    return Iterate(sim, motion, applied, gaps, *on_host(_costs(problem, here, motion, applied, many, worlds).flatten()))


def _costs(
    problem: Problem, here: Iterate, motion: Trajectory, controls: Tensor, many: int, worlds: np.ndarray | None
) -> Tensor:
    """Return the costs (A, W) of trials; NaN for motions that are not finite, whatever the cost depends on."""
    left = (0.0 * motion.q[-1]).sum(-1) + (0.0 * motion.qd[-1]).sum(-1)
    if worlds is None:
        return (problem.cost(motion, controls) + left)[None]

    def all_problems(tried: Tensor, known: Tensor) -> Tensor:
        """Return trials (A, N, B, n) for all problems: costs identify a problem by its index."""
        full = known.repeat(many, 1, 1, 1)
        full[:, :, worlds] = tried.unflatten(1, (many, -1)).movedim(1, 0)
        return full

    q, qd = all_problems(motion.q, here.states.q), all_problems(motion.qd, here.states.qd)
    tries = Trajectory(q, qd, motion.status, motion.steps)
    return problem.cost(tries, all_problems(controls, here.controls))[:, worlds] + left.view(many, -1)


def _put(into: Iterate, worlds: np.ndarray, source: Iterate, columns: np.ndarray) -> Iterate:
    """Return an iterate in which some problems are replaced by columns of another."""
    if not len(worlds):
        return into
    device = into.controls.device
    to, of = torch.from_numpy(worlds).to(device), torch.from_numpy(columns).to(device)

    def put(x: Tensor, y: Tensor) -> Tensor:
        return x.index_copy(1, to, y.index_select(1, of))

    a, b = into.states, source.states
    impulses = None if a.impulses is None or b.impulses is None else put(a.impulses, b.impulses)
    states = Trajectory(put(a.q, b.q), put(a.qd, b.qd), b.status, a.steps, impulses)
    gaps = into.gaps
    if gaps is not None:
        left = torch.zeros_like(gaps[:, of * 0]) if source.gaps is None else source.gaps.index_select(1, of)
        gaps = gaps.index_copy(1, to, left)
        gaps = gaps if bool(gaps.any()) else None
    cost = into.cost.copy()
    cost[worlds] = source.cost[columns]
    return Iterate(into.sim, states, put(into.controls, source.controls), gaps, cost)
