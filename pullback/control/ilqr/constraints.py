"""Constraints on states and controls, met by an augmented Lagrangian around the unconstrained solver.

A constraint c = 0 adds (ρ/2) |c + λ/ρ|² to the cost, one c <= 0 adds (ρ/2) |max(0, c + λ/ρ)|². After each solution
λ becomes ρ (c + λ/ρ), or its positive part, and ρ grows where c has not shrunk enough; each problem has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from pullback.control.costs.costs import Blocks, BoundSum, Place, Torch
from pullback.control.costs.torch_costs import BoundResidual, try_function
from pullback.control.ilqr.ilqr import solve
from pullback.control.ilqr.options import IlqrSettings
from pullback.control.ilqr.problem import Problem
from pullback.control.ilqr.report import Result, Table
from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory

Tensor = torch.Tensor

FIRST_PENALTY, GROWTH, MOST = 10.0, 10.0, 1e9
"""The first penalty ρ, the factor it grows by, and its largest value."""
SHRINK = 0.25
"""The penalty grows unless the violation falls below this fraction of the last one."""
FIRST_TOLERANCE, FINER = 1e-3, 0.1
"""Tolerance of the first round, and the factor by which it shrinks."""
ROUNDS = 20
"""The most updates of the multipliers."""


class Constraint:
    """A torch function of q, qd and u whose values (..., N, B, k) must be zero, or with "inequality" at most zero.

    It is called like the function of a `Residual`. `at` says where it holds: at every step ("running"), at the end
    ("terminal": u is None there), or "always", where its u is None too.
    """

    def __init__(
        self,
        function: Torch,
        kind: Literal["equality", "inequality"] = "equality",
        at: Literal["running", "terminal", "always"] = "running",
    ) -> None:
        if kind not in ("equality", "inequality") or at not in ("running", "terminal", "always"):
            raise PullbackError(
                f"a constraint of kind {kind!r} at {at!r}; kinds are 'equality' and 'inequality', places 'running', "
                f"'terminal' and 'always'"
            )
        self.function, self.kind, self.at = function, kind, at


def joint_limits(sim: Sim, margin: float = 0.0) -> Constraint:
    """Return the constraint that joints stay within their limits by `margin` [rad, m].

    Use it with a simulation without joint stops, `compile(without=["limits"])`: at a stop controls have no gradient.
    """
    ends = sim.parameters().limits.detach().unflatten(1, (-1, 2))[0]
    coordinate = torch.as_tensor(sim.arrays.dof_coordinate, device=sim.device).long()
    limited = (coordinate >= 0) & ends.isfinite().any(-1)
    if not bool(limited.any()):
        raise PullbackError("no joint of this world has limits")
    where, (low, high) = coordinate[limited], ends[limited].unbind(-1)
    has_low, has_high = low.isfinite(), high.isfinite()

    def beyond(q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        q = q[..., where]
        return torch.cat([(low + margin - q)[..., has_low], (q - high + margin)[..., has_high]], -1)

    return Constraint(beyond, "inequality", at="always")


class Penalty(BoundResidual):
    """The term of a constraint in the augmented Lagrangian, at N nodes of B problems."""

    def __init__(self, constraint: Constraint, place: Place) -> None:
        def function(q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
            return constraint.function(q, qd, None if constraint.at == "always" else u)

        found = try_function(function, place, residual=True)
        super().__init__(place.sim, function, torch.ones_like(found[:1, :1]))
        self.is_equality = constraint.kind == "equality"
        self.multiplier = torch.zeros_like(found)
        self.penalty = torch.full_like(found[:1, :, :1], FIRST_PENALTY)

    def _shifted(self, c: Tensor) -> Tensor:
        shifted = c + self.multiplier / self.penalty
        return shifted if self.is_equality else shifted.clamp(min=0.0)

    def values(self, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        """Return the cost of each node; zero for a constraint that holds with a zero multiplier."""
        shifted = self._shifted(self.residual(q, qd, u))
        return 0.5 * (self.penalty * shifted.square() - self.multiplier.square() / self.penalty).sum(-1)

    def add(self, q: Tensor, qd: Tensor, u: Tensor | None, into: Blocks) -> None:
        """Add the derivatives of the active constraints."""

        def outer(c: Tensor) -> tuple[Tensor, Tensor]:
            shifted = self._shifted(c)
            pushes = torch.ones_like(c) if self.is_equality else (shifted > 0.0).to(c.dtype)
            return self.penalty * shifted, self.penalty * pushes

        self.add_weighted(q, qd, u, into, outer)

    def violation(self, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        """Return the largest violation in each problem (B,)."""
        c = self.residual(q, qd, u)
        return (c.abs() if self.is_equality else c.clamp(min=0.0)).amax((0, 2))

    def update(self, q: Tensor, qd: Tensor, u: Tensor | None, grow: Tensor) -> None:
        """Update the multipliers from a solution, and raise the penalty of some problems (B,)."""
        self.multiplier = self.penalty * self._shifted(self.residual(q, qd, u))
        self.penalty = torch.where(grow[:, None], (self.penalty * GROWTH).clamp(max=MOST), self.penalty)


def solve_constrained(
    problem: Problem,
    controls: Tensor | None,
    states: Trajectory | State | None,
    settings: IlqrSettings,
    violation: float = 1e-6,
) -> Result:
    """Solve problems until constraints are violated by at most `violation`; iterations are those of all rounds."""
    T, sim = problem.horizon, problem.sim
    ran = _penalties(problem.constraints, ("running", "always"), Place(sim, T, problem.batch, is_end=False))
    ended = _penalties(problem.constraints, ("terminal", "always"), Place(sim, 1, problem.batch, is_end=True))

    def at_nodes(found: Result) -> list[tuple[Penalty, tuple[Tensor, Tensor, Tensor | None]]]:
        """Return each penalty with its nodes."""
        q, qd = found.states.q, found.states.qd
        before, after = (q[:T], qd[:T], found.controls), (q[T:], qd[T:], None)
        return [*[(penalty, before) for penalty in ran], *[(penalty, after) for penalty in ended]]

    def worst(found: Result) -> Tensor:
        return torch.stack([penalty.violation(*nodes) for penalty, nodes in at_nodes(found)]).amax(0)

    inner = problem.with_costs(BoundSum([*problem.running.terms, *ran]), BoundSum([*problem.terminal.terms, *ended]))
    left, rough, last, tables = settings.iterations, FIRST_TOLERANCE, torch.inf, []
    for _ in range(ROUNDS):
        rough = max(rough, settings.tolerance)
        found = solve(inner, controls, states, replace(settings, iterations=left, tolerance=rough, gains=True))
        tables.append(found.table)
        left -= found.iterations
        missed = worst(found)
        is_met = bool((missed <= violation).all())
        if left < 1 or (is_met and rough == settings.tolerance) or found.ended_early:
            break
        grow = (missed > violation) & (missed > SHRINK * last)
        for penalty, nodes in at_nodes(found):
            penalty.update(*nodes, grow)
        # solve more accurately as multipliers converge, and to the full tolerance once constraints hold
        rough = 0.0 if is_met else FINER * rough
        controls, states, last = found.controls, None, missed
    cost = problem.cost(found.states, found.controls)
    return found.constrained(cost, missed, violation, Table.joined(tables))


def _penalties(constraints: Sequence[Constraint], places: tuple[str, ...], place: Place) -> list[Penalty]:
    for constraint in constraints:
        if not isinstance(constraint, Constraint):
            raise PullbackError(f"a constraint is a {type(constraint).__name__}; expected pb.control.Constraint(...)")
    return [Penalty(constraint, place) for constraint in constraints if constraint.at in places]
