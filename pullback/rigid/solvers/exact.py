"""Contact solved to the end."""

from __future__ import annotations

from dataclasses import dataclass

from pullback.core.errors import PullbackError
from pullback.rigid.solvers.pgs import PGS


@dataclass(frozen=True)
class Exact(PGS):
    """Contact solved to the end after few sweeps, for contacts so redundant that more of them are of no use.

    `PGS` solves to the end as well, where its sweeps are used up: this is the same with fewer of them.
    """

    iterations: int = 20
    """Sweeps to start from, at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gradient != "implicit" or not self.finish:
            raise PullbackError(
                "pb.Exact differentiates the solution; leave gradient='implicit' and finish=True, or take pb.PGS"
            )

    @property
    def finishes(self) -> bool:
        """True, whatever the tolerance is."""
        return True
