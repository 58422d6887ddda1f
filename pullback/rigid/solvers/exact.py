"""Contact solved to the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback.core.errors import PullbackError
from pullback.rigid.solvers.pgs import PGS


@dataclass(frozen=True)
class Exact(PGS):
    """Contact solved to the end, for up to a few dozen rows: sweeps, then Newton's method along a smoothed path.

    Where that finds no solution, the impulses and their gradient are those of the sweeps, and the status says so.
    """

    kernels: ClassVar[str] = "pullback.rigid.solvers.exact_kernels"

    iterations: int = 20
    """Sweeps to start from, at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gradient != "implicit":
            raise PullbackError("pb.Exact differentiates the solution; leave gradient='implicit', or take pb.PGS")

    def finishing_steps(self, *, double: bool) -> int:
        """Return 1: the solver itself, whatever the sweeps were."""
        return 1
