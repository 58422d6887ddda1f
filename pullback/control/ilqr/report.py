"""The result of iLQR, and the table of its iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch

from pullback.control.ilqr.iterate import Iterate
from pullback.control.ilqr.riccati import Policy
from pullback.rigid.state import State, Trajectory

Tensor = torch.Tensor

HEADER = " iter         cost       stop   gradient      regul       step        gap   live"


class Row(NamedTuple):
    """One iteration, a number for each problem (B,)."""

    cost: np.ndarray
    """After the step."""
    stop: np.ndarray
    """The change of cost that the model expects of a full step."""
    gradient: np.ndarray
    """The largest derivative by a control that is not at a bound."""
    regularization: np.ndarray
    step: np.ndarray
    """The step length; 0: no step."""
    feasibility: np.ndarray
    """The largest gap between a step's end and the state that follows it."""
    live: np.ndarray
    """Whether the problem was still being solved."""


class Table:
    """The iterations so far; with `verbose` each is printed: the mean cost, and the worst values of live problems."""

    def __init__(self, batch: int, verbose: bool) -> None:
        self.rows: list[Row] = []
        self.seconds: list[float] = []
        self.batch, self.verbose = batch, verbose
        self._start = perf_counter()

    def add(self, row: Row) -> None:
        """Add an iteration."""
        self.rows.append(row)
        self.seconds.append(perf_counter() - self._start)
        if self.verbose:
            if len(self.rows) == 1:
                print(HEADER)
            print(self.line(len(self.rows) - 1))

    @staticmethod
    def joined(tables: Sequence[Table]) -> Table:
        """Return the concatenation of tables."""
        joined = Table(tables[0].batch, verbose=False)
        for table in tables:
            past = joined.seconds[-1] if joined.seconds else 0.0
            joined.rows += table.rows
            joined.seconds += [past + x for x in table.seconds]
        return joined

    def line(self, number: int) -> str:
        """Return an iteration as a line of text."""
        row = self.rows[number]
        chosen = row.live if row.live.any() else ~row.live
        rest = [f"{x[chosen].max():10.3e}" for x in (row.stop, row.gradient, row.regularization)]
        numbers = [*rest, f"{row.step[chosen].min():10.4f}", f"{row.feasibility.max():10.3e}"]
        cost = row.cost[np.isfinite(row.cost)].mean()
        return f"{number:5d} {cost:12.6g} {' '.join(numbers)} {row.live.sum():6d}"

    def __len__(self) -> int:
        """Return the number of iterations."""
        return len(self.rows)

    def __getitem__(self, number: int) -> Row:
        """Return an iteration."""
        return self.rows[number]

    def __str__(self) -> str:
        """Return the table as text."""
        return "\n".join([HEADER, *map(self.line, range(len(self)))])


@dataclass(frozen=True)
class Result:
    """The motions of B problems, the controls and gains that lead to them, and how each search ended."""

    states: Trajectory
    """T + 1 states; q (T+1, B, nq), qd (T+1, B, nv)."""
    controls: Tensor
    """(T, B, nu)"""
    gains: Tensor
    """K (T, B, nu, 2 nv): u = controls + K sim.difference(state of the plan, state)."""
    feedforward: Tensor
    """The change of the controls in another full step, (T, B, nu)."""
    cost: Tensor
    """(B,)"""
    converged: Tensor
    """Whether the search converged, (B,)."""
    gap: Tensor
    """The largest remaining gap between states, (B,); 0: states follow from controls."""
    reason: list[str]
    """Why each search ended."""
    table: Table
    ended_early: bool = False
    """Whether Ctrl-C or the callback ended it."""
    violation: Tensor | None = None
    """The largest violation of constraints, (B,), if there are any."""

    @staticmethod
    def of(
        here: Iterate, policy: Policy, converged: np.ndarray, failed: np.ndarray, early: str, table: Table
    ) -> Result:
        """Return a result with its reasons."""
        reasons = []
        for done, lost, cost in zip(converged.tolist(), failed.tolist(), here.cost.tolist()):
            if done:
                reasons.append("converged")
            elif lost and cost == np.inf:
                reasons.append("the first motion or its cost is not finite")
            elif lost:
                reasons.append("no step lowers the cost at the largest regularisation; this is the best so far")
            else:
                reasons.append(early or f"{len(table)} iterations used up")
        like = here.controls
        cost, gap = like.new_tensor(here.cost), like.new_tensor(here.gap)
        done = torch.from_numpy(converged).to(like.device)
        return Result(here.states, here.controls, policy.K, policy.k, cost, done, gap, reasons, table, bool(early))

    def constrained(self, cost: Tensor, violation: Tensor, met: float, table: Table) -> Result:
        """Return the result of a problem with constraints: its own cost, and their violation."""
        good = violation <= met
        reasons = [
            reason if fine else f"{reason}; constraints violated by {by:.3g}"
            for reason, fine, by in zip(self.reason, good.tolist(), violation.tolist())
        ]
        return replace(
            self, cost=cost, violation=violation, converged=self.converged & good, reason=reasons, table=table
        )

    @property
    def iterations(self) -> int:
        """The number of iterations."""
        return len(self.table)

    def shifted(self, steps: int = 1) -> tuple[Tensor, State]:
        """Return controls and states shifted by some steps, as a warm start; the last are repeated."""

        def shift(x: Tensor) -> Tensor:
            steps_ = min(steps, len(x) - 1)
            return torch.cat([x[steps_:], x[-1:].expand(steps_, *x.shape[1:])])

        impulses = None if self.states.impulses is None else shift(self.states.impulses)
        return shift(self.controls), State(shift(self.states.q), shift(self.states.qd), impulses)

    def __str__(self) -> str:
        """Return the table and the reasons."""
        counts = {reason: self.reason.count(reason) for reason in dict.fromkeys(self.reason)}
        ends = ", ".join(reason if self.reason == [reason] else f"{n} {reason}" for reason, n in counts.items())
        return f"{self.table}\n{ends}"
