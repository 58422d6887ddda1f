"""A motion on its way to the best one, and the search along a policy for a better motion."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pullback.control.problem import Problem, clamp
from pullback.control.riccati import Policy
from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim
from pullback.rigid.state import FINE, State, Status, Trajectory

Tensor = torch.Tensor

SHORTER = tuple(0.5**k for k in range(1, 10))
"""The steps that are tried, side by side, where a whole one is too long."""
ENOUGH, TOO_MUCH = 0.1, 2.0
"""The share of an expected fall of the cost that there must be, and of an expected rise that there may be."""
ROUNDING = 16.0
"""Multiples of the rounding error of a cost that count as no change."""


@dataclass(frozen=True)
class Iterate:
    """States, controls and cost of B problems; gaps f(x, u) - x' (T, B, 2 nv), None where there are none at all."""

    sim: Sim
    states: Trajectory
    controls: Tensor
    gaps: Tensor | None
    cost: Tensor

    @property
    def gap(self) -> Tensor:
        """The largest gap (B,)."""
        return torch.zeros_like(self.cost) if self.gaps is None else self.gaps.abs().amax((0, 2))

    @property
    def feasible(self) -> Tensor:
        """Whether states follow from controls (B,)."""
        return self.gap == 0.0

    def seen_from_next(self, rows: Tensor) -> Tensor:
        """Take rows (T, B, 2 nv, n) of changes after each step to the axes of the state that is there, past the gap."""
        manifold, nv = self.sim.manifold, self.sim.nv
        assert self.gaps is not None
        there = self.states.q[1:]
        J = manifold.difference_jacobian(there, manifold.retract(there, self.gaps[..., :nv]))
        return torch.cat([J @ rows[..., :nv, :], rows[..., nv:, :]], -2)


def first_iterate(problem: Problem, controls: Tensor | None, states: Trajectory | State | None) -> Iterate:
    """Return where the search starts: the rollout of the controls, or the states given with the gaps between them."""
    sim, shape = problem.sim, (problem.horizon, problem.batch, problem.sim.nu)
    if controls is None:
        controls = torch.zeros(shape, dtype=sim.dtype, device=sim.device)
    if not isinstance(controls, Tensor) or controls.shape not in (shape, (shape[0], 1, shape[2])):
        got = tuple(controls.shape) if isinstance(controls, Tensor) else type(controls).__name__
        raise PullbackError(f"the first controls are {got}; expected {shape}: steps, problems, controls")
    sim._check_type("the first controls", controls)
    if not bool(controls.isfinite().all()):
        raise PullbackError("the first controls are not finite")
    controls = clamp(controls.detach().expand(shape), problem.lower, problem.upper).contiguous()
    gaps = None
    if states is None:
        motion = sim.rollout(problem.state, controls)
        _refuse_wild(motion)
    else:
        motion = _given_states(problem, states)
        gaps = find_gaps(sim, motion, controls)
        gaps = gaps if bool(gaps.any()) else None
    return Iterate(sim, motion, controls, gaps, problem.cost(motion, controls))


def _refuse_wild(motion: Trajectory) -> None:
    """Refuse a start that does not stay finite."""
    wild = ~(motion.q[-1].isfinite().all(-1) & motion.qd[-1].isfinite().all(-1))
    if bool(wild.any()):
        raise PullbackError(
            f"the first motion of problem {int(wild.nonzero()[0])} does not stay finite; give other first controls, or a "
            f"first guess of the states (states=...), or take a smaller dt"
        )


def _given_states(problem: Problem, states: Trajectory | State) -> Trajectory:
    """Return a guess of the states as a motion that starts where the problem does."""
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
    status = Status([FINE] * problem.batch, sim.substeps)
    return Trajectory(q, qd, status, torch.arange(shape[0]), impulses)


def find_gaps(sim: Sim, states: Trajectory, controls: Tensor) -> Tensor:
    """Return how far each step leads from the state that follows it, f(x, u) - x', (T, B, 2 nv)."""
    T, B, _ = controls.shape
    if sim.parameters.packed().shape[0] == 1:
        before = [None if x is None else x[:T].flatten(0, 1) for x in (states.q, states.qd, states.impulses)]
        after = sim.step(State(*before), controls.flatten(0, 1))  # pyright: ignore[reportArgumentType]
        q, qd = after.q.unflatten(0, (T, B)), after.qd.unflatten(0, (T, B))
    else:
        steps = [sim.step(states[t], controls[t]) for t in range(T)]
        q, qd = torch.stack([x.q for x in steps]), torch.stack([x.qd for x in steps])
    return sim.difference(State(states.q[1:], states.qd[1:]), State(q, qd))


# -- the search along a policy -------------------------------------------------------------------------------------


def line_search(problem: Problem, here: Iterate, policy: Policy, live: Tensor) -> tuple[Iterate, Tensor]:
    """Return the motion after the longest step that lowers the cost enough, and the steps (B,), 0 where none does.

    A whole step is tried first, and nine shorter ones side by side for the problems that it does not suit.
    """
    step = torch.zeros_like(here.cost)
    if not bool(live.any()):
        return here, step
    whole = _try(problem, here, policy, step.new_ones(1), None)
    fits = live & _is_enough(here, policy, step.new_ones(1), whole.cost[None])[0]
    if bool(fits.all()):
        return whole, torch.ones_like(step)
    moved = _mix(here, whole, fits) if bool(fits.any()) else here
    step = fits.to(step.dtype)
    worlds = (live & ~fits).nonzero()[:, 0]
    if not len(worlds):
        return moved, step
    shares = len(problem.sim.parameters.packed()) == 1
    for tried in (SHORTER,) if shares else [(share,) for share in SHORTER]:
        if not len(worlds):
            break
        alphas = step.new_tensor(tried)
        trial = _try(problem, here, policy, alphas, worlds if shares else None)
        costs = trial.cost.view(len(tried), -1)
        if not shares:
            costs = costs[:, worlds]
        good = _is_enough(here, policy, alphas, costs, worlds)
        found, first = good.any(0), good.int().argmax(0)
        columns = first * len(worlds) + torch.arange(len(worlds), device=worlds.device) if shares else worlds
        moved = _put(moved, worlds[found], trial, columns[found])
        step = step.index_put((worlds[found],), alphas[first[found]])
        worlds = worlds[~found]
    return moved, step


def _is_enough(here: Iterate, policy: Policy, alphas: Tensor, costs: Tensor, worlds: Tensor | None = None) -> Tensor:
    """Tell which costs (A, W) after steps (A,) are close enough to what the model expects."""
    pick = (lambda x: x) if worlds is None else (lambda x: x[worlds])
    a, before = alphas[:, None], pick(here.cost)
    expected = a * pick(policy.linear) + 0.5 * a * a * pick(policy.quadratic)
    noise = ROUNDING * torch.finfo(costs.dtype).eps * before.abs()
    allowed = torch.where(expected <= 0.0, ENOUGH * expected, TOO_MUCH * expected)
    return costs - before <= allowed + noise


def _try(problem: Problem, here: Iterate, policy: Policy, alphas: Tensor, worlds: Tensor | None) -> Iterate:
    """Return the motions after steps (A,) of some problems, all by default, A W of them, those of a step together."""
    sim, many = problem.sim, len(alphas)
    pick = (lambda x, dim: x) if worlds is None else (lambda x, dim: x.index_select(dim, worlds))
    start, k, K = problem.state, pick(policy.k, 1), pick(policy.K, 1)
    count = k.shape[1]
    # (T, A W, ...), the tries of one step side by side
    scale = alphas.repeat_interleave(count)[:, None]

    def spread(x: Tensor | None, dim: int = 1) -> Tensor | None:
        if x is None:
            return None
        x = pick(x, dim)
        return x if many == 1 else torch.cat([x] * many, dim)

    def bound(x: Tensor | None) -> Tensor | None:
        return x if x is None or x.ndim == 1 else spread(x)

    states = here.states
    nominal = Trajectory(spread(states.q), spread(states.qd), states.status, states.steps, spread(states.impulses))  # pyright: ignore
    defects = None if here.gaps is None else (scale - 1.0) * spread(here.gaps)  # pyright: ignore
    controls = spread(here.controls) + scale * spread(policy.k)  # pyright: ignore
    first = State(spread(start.q, 0), spread(start.qd, 0), spread(start.impulses, 0))  # pyright: ignore
    gains = K if many == 1 else torch.cat([K] * many, 1)
    motion, applied = sim.feedback_rollout(
        first, controls, gains, nominal, lower=bound(problem.lower), upper=bound(problem.upper), defects=defects
    )
    gaps = None
    if defects is not None and not (many == 1 and bool((alphas == 1.0).all())):
        gaps = sim.manifold.reverse(defects)
    costs = _costs(problem, here, motion, applied, many, worlds)
    return Iterate(sim, motion, applied, gaps, costs.flatten())


def _costs(
    problem: Problem, here: Iterate, motion: Trajectory, controls: Tensor, many: int, worlds: Tensor | None
) -> Tensor:
    """Return what tries cost, (A, W)."""
    if many == 1 and worlds is None:
        return problem.cost(motion, controls)[None]

    def all_problems(tried: Tensor, known: Tensor) -> Tensor:
        """Return tries (A, N, B, n) of all problems: costs know theirs by their place."""
        tried = tried.unflatten(1, (many, -1)).movedim(1, 0)
        if worlds is None:
            return tried
        full = known.repeat(many, 1, 1, 1)
        full[:, :, worlds] = tried
        return full

    q, qd = all_problems(motion.q, here.states.q), all_problems(motion.qd, here.states.qd)
    costs = problem.cost(Trajectory(q, qd, motion.status, motion.steps), all_problems(controls, here.controls))
    return costs if worlds is None else costs[:, worlds]


def _mix(a: Iterate, b: Iterate, take_b: Tensor) -> Iterate:
    """Return the problems of b that are marked and those of a that are not."""
    chosen = take_b.nonzero()[:, 0]
    return _put(a, chosen, b, chosen)


def _put(into: Iterate, worlds: Tensor, source: Iterate, columns: Tensor) -> Iterate:
    """Return an iterate in which some problems are replaced by columns of another."""
    if not len(worlds):
        return into

    def put(x: Tensor, y: Tensor, dim: int = 1) -> Tensor:
        return x.index_copy(dim, worlds, y.index_select(dim, columns))

    a, b = into.states, source.states
    impulses = None if a.impulses is None or b.impulses is None else put(a.impulses, b.impulses)
    states = Trajectory(put(a.q, b.q), put(a.qd, b.qd), b.status, a.steps, impulses)
    gaps = into.gaps
    if gaps is not None:
        new = (
            torch.zeros_like(gaps[:, :1]).expand(-1, int(columns.max()) + 1, -1) if source.gaps is None else source.gaps
        )
        gaps = put(gaps, new)
        gaps = gaps if bool(gaps.any()) else None
    controls = put(into.controls, source.controls)
    return Iterate(into.sim, states, controls, gaps, put(into.cost, source.cost, 0))
