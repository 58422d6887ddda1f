"""Asynchronous successive halving: stop runs that are not among the best at certain iterations.

Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020, in its stopping form: at iterations
first · factor^k a run goes on only if its score is among the best 1/factor of all that have come so far. Nobody waits
for anybody.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from pullback.core.errors import PullbackError

FACTOR = 3
"""One run in so many goes on at a rung."""


@dataclass
class Halving:
    """The scores at each rung, and who is to stop."""

    first: int
    """Iterations before the first rung."""
    factor: int = FACTOR
    rungs: dict[int, dict[str, float]] = field(default_factory=dict)
    """Iteration of the rung -> name of the run -> its best score until then."""

    def __post_init__(self) -> None:
        if self.first < 1:
            raise PullbackError(f"stop_early is {self.first}; give the iteration of the first rung, 1 or more")

    def is_out(self, name: str, scores: list[tuple[int, float]]) -> bool:
        """Take in the scores of a run so far, and return whether it is to stop."""
        rung, out = self.first, False
        while scores and scores[-1][0] >= rung:
            known = self.rungs.setdefault(rung, {})
            if name not in known:
                known[name] = min((s for done, s in scores if done <= rung and s == s), default=float("inf"))
            best = sorted(known.values())[: max(1, ceil(len(known) / self.factor))]
            # with fewer than `factor` runs there is nothing to compare with yet
            out |= len(known) >= self.factor and known[name] > best[-1]
            rung *= self.factor
        return out
