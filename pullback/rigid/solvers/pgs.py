"""Contact by projected Gauss-Seidel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pullback.core.errors import PullbackError, shortened
from pullback.rigid.solvers.solver import Solver, check_iterations
from pullback.rigid.world.values import check_single, check_switch

CHOICES = {"friction": ("cone", "pyramid"), "gradient": ("implicit", "unrolled"), "kinks": ("computed", "downhill")}


@dataclass(frozen=True)
class PGS(Solver):
    """Contact by projected Gauss–Seidel: how impulses are found, and how the solution is differentiated.

    Where no solution is found, the impulses and their gradient are those of the sweeps, and the status says so.
    """

    iterations: int = 50
    """Sweeps over all rows, at most."""
    tolerance: float | None = None
    """Stop when every row's velocity [m/s, rad/s] changes by less than this in a sweep; by default 1e-11, in float32
    1e-6, and at least 1e-14 and 1e-7. 0: never stop, and differentiate the sweeps, for they did not converge; `Exact`
    goes on from there as ever. Joint limits that touch with less load than this are differentiated as open."""
    finish: bool = True
    """Solve to the end where sweeps are used up, up to some hundred rows in contact with each other; False: what they
    found stands, and is differentiated as such. For implicit gradients."""
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
    """Fraction of a penetration that one step corrects, as far as `max_push_speed` lets it."""
    max_push_speed: float = 0.2
    """Bodies are pushed out of a penetration no faster than this [m/s]; leaving at it, they rise 2 mm."""
    max_limit_speed: float = 2.0
    """A joint is pushed back from beyond its limit no faster than this [rad/s, m/s]."""
    loop_erp: float = 0.5
    """Fraction of a loop's opening that one step corrects."""
    cfm: float | None = None
    """Softness added to the diagonal [1/kg]. By default 1e-6; in float32 1e-4 over the mass of the heaviest robot or
    body, if that is more: with less, rounding decides how contacts share a load that fewer could carry, and so the
    gradient."""
    margin: float = 0.01
    """Shapes closer than this [m] are in contact."""
    restitution_threshold: float = 0.01
    """Slower impacts [m/s] do not bounce."""

    def __post_init__(self) -> None:
        check_iterations(self.iterations)
        for name in ("warm_start", "finish"):
            check_switch(name, getattr(self, name))
        for name, choices in CHOICES.items():
            given = getattr(self, name)
            if not isinstance(given, str) or given not in choices:
                raise PullbackError(f"{name} is {shortened(repr(given))}; choose {' or '.join(map(repr, choices))}")
        if self.kinks == "downhill" and (self.gradient == "unrolled" or self.tolerance == 0.0):
            raise PullbackError("kinks='downhill' chooses between solutions; leave gradient='implicit', tolerance=None")
        for name in ("tolerance", "kink_width", "cfm", "margin", "restitution_threshold"):
            if getattr(self, name) is not None:
                check_single(name, getattr(self, name), least=0.0)
        for name in ("max_push_speed", "max_limit_speed"):
            check_single(name, getattr(self, name), above=0.0, finite=False)
        for name in ("erp", "loop_erp"):
            check_single(name, getattr(self, name), least=0.0, most=1.0)

    @property
    def finishes(self) -> bool:
        """Whether sweeps that are used up are followed by the exact solver."""
        return self.finish and self.gradient == "implicit" and self.tolerance != 0.0

    @property
    def kernels(self) -> str:
        """The kernels file: that of sweeps alone compiles sooner."""
        return f"pullback.rigid.solvers.{'finish' if self.finishes else 'pgs'}_kernels"

    def polishing_rounds(self, *, double: bool) -> int:
        """Return 1, the exact solver, or 0."""
        return int(self.finishes)
