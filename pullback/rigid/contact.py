"""How contact is solved, and how the solution is differentiated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pullback.core.errors import PullbackError
from pullback.rigid.values import check_value

CHOICES = {"friction": ("cone", "pyramid"), "gradient": ("implicit", "unrolled"), "kinks": ("computed", "downhill")}


@dataclass(frozen=True)
class PGS:
    """Contact by projected Gauss–Seidel: how impulses are found, and how the solution is differentiated."""

    iterations: int = 50
    """Sweeps over all rows, at most."""
    tolerance: float | None = None
    """Stop when no row's velocity [m/s, rad/s] changes by more than this in a sweep; 0: never. By default 1e-11, in
    float32 1e-6."""
    friction: Literal["cone", "pyramid"] = "cone"
    gradient: Literal["implicit", "unrolled"] = "implicit"
    """Differentiate the solution the sweeps converge to, or the sweeps one by one."""
    kinks: Literal["computed", "downhill"] = "computed"
    """Where a contact, its friction or a joint limit stands between two cases: differentiate the case that was
    computed, or the one in which the loss falls (docs/gradient_care.md). For implicit gradients."""
    kink_width: float | None = None
    """How close to a kink [m/s, rad/s] counts as on it. By default 1e-9, in float32 1e-5."""
    warm_start: bool = False
    """Start from the impulses of the step before, which are then part of the state."""
    erp: float = 0.1
    """Fraction of a penetration that one step corrects."""
    loop_erp: float = 0.5
    """Fraction of a loop's opening that one step corrects."""
    cfm: float = 1e-6
    """Softness added to the diagonal [1/kg]."""
    margin: float = 0.01
    """Shapes closer than this [m] are in contact."""
    restitution_threshold: float = 0.01
    """Slower impacts [m/s] do not bounce."""

    def __post_init__(self) -> None:
        if isinstance(self.iterations, bool) or not isinstance(self.iterations, int) or self.iterations < 1:
            raise PullbackError(f"iterations is {self.iterations!r}; give a whole number from 1 on")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise PullbackError(f"{name} is {getattr(self, name)!r}; choose {' or '.join(map(repr, choices))}")
        if self.kinks == "downhill" and self.gradient == "unrolled":
            raise PullbackError("kinks='downhill' chooses between solutions; leave gradient='implicit'")
        for name in ("tolerance", "kink_width", "cfm", "margin", "restitution_threshold"):
            if getattr(self, name) is not None:
                check_value(name, getattr(self, name), least=0.0)
        for name in ("erp", "loop_erp"):
            check_value(name, getattr(self, name), least=0.0, most=1.0)


@dataclass(frozen=True)
class Exact(PGS):
    """Contact solved to the end, for up to a few dozen rows: sweeps, then Newton's method along a smoothed path.

    Where that finds no solution, the impulses and their gradient are those of the sweeps, and the status says so.
    """

    iterations: int = 20
    """Sweeps to start from, at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gradient != "implicit":
            raise PullbackError("pb.Exact differentiates the solution; leave gradient='implicit', or take pb.PGS")
