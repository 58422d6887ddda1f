"""How contact is solved, and how the solution is differentiated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pullback.core.errors import PullbackError
from pullback.rigid.solvers.compliant import followed_time_step
from pullback.rigid.world.values import Given, Tensor, check_value

CHOICES = {"friction": ("cone", "pyramid"), "gradient": ("implicit", "unrolled"), "kinks": ("computed", "downhill")}


@dataclass(frozen=True)
class PGS:
    """Contact by projected Gauss–Seidel: how impulses are found, and how the solution is differentiated."""

    iterations: int = 50
    """Sweeps over all rows, at most."""
    tolerance: float | None = None
    """Stop when every row's velocity [m/s, rad/s] changes by less than this in a sweep; by default 1e-11, in float32
    1e-6, and at least 1e-14 and 1e-7. 0: never stop, and differentiate the sweeps, for they did not converge; `Exact`
    goes on from there as ever."""
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
        _check_iterations(self.iterations)
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise PullbackError(f"{name} is {getattr(self, name)!r}; choose {' or '.join(map(repr, choices))}")
        if self.kinks == "downhill" and (self.gradient == "unrolled" or self.tolerance == 0.0):
            raise PullbackError("kinks='downhill' chooses between solutions; leave gradient='implicit', tolerance=None")
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


@dataclass(frozen=True, eq=False)
class Compliant:
    """Contact by springs with damping, and smoothed friction: impulses, and so gradients, without kinks.

    All forces are those at the end of the step, so that no stiffness makes it unstable. Joint limits and dry friction
    of joints stay rigid, as `PGS` has them. Restitution has no part in it: bounces follow from stiffness and damping.
    """

    stiffness: Given = 1e5
    """k of the normal force k depth^power [N / m^power], or one for each world."""
    damping: Given = 2.0
    """d of the factor 1 - d u on the spring's force [s/m], u the speed of opening; restitution is about 1 - 2/3 d |u|
    as long as d |u| is small."""
    power: float = 1.0
    """Of the depth; 1.5 is Hertz's law."""
    onset: float = 1e-4
    """The gap [m] at which force sets in, with slope zero; from a depth of this size on it is that of the spring."""
    slip_speed: float = 1e-3
    """The speed [m/s] well above which friction is Coulomb's; below, it is viscous, and bodies creep."""
    iterations: int = 20
    """Sweeps over all contacts, at most; Newton's steps follow where they do not converge."""
    tolerance: float | None = None
    """As for `PGS`, and above 0."""
    margin: float = 0.01
    """Shapes closer than this [m] are looked at; give more than the way of a step, or fast bodies are met too late."""

    friction: ClassVar[Literal["cone"]] = "cone"
    gradient: ClassVar[Literal["implicit"]] = "implicit"
    warm_start: ClassVar[bool] = False
    kinks: ClassVar[Literal["computed"]] = "computed"
    kink_width: ClassVar[None] = None
    erp: ClassVar[float] = 0.1
    loop_erp: ClassVar[float] = 0.5
    cfm: ClassVar[float] = 1e-6
    restitution_threshold: ClassVar[float] = 0.01

    def __post_init__(self) -> None:
        _check_iterations(self.iterations)
        for name in ("stiffness", "onset", "slip_speed"):
            check_value(name, getattr(self, name), above=0.0)
        check_value("damping", self.damping, least=0.0)
        check_value("power", self.power, least=1.0)
        if self.tolerance is not None:
            check_value("tolerance", self.tolerance, above=0.0)
        if not self.margin > self.onset:
            raise PullbackError(f"margin is {self.margin:g} m; give more than the onset, {self.onset:g} m")

    def time_step(self, mass: float, *, speed: float = 1.0, kept: float = 0.9) -> float:
        """Return the time step [s] that keeps the share `kept` of the speed at which a body bounces off.

        Longer steps are as stable, but take more of a bounce than damping does. `mass` [kg] is that of the body, or
        1 / (1 / m1 + 1 / m2) of two; `speed` [m/s] that of the impact, which matters if power is not 1.
        """
        return followed_time_step(stiffness=self.stiffest(), power=self.power, mass=mass, speed=speed, kept=kept)

    def stiffest(self) -> float:
        """Return the largest stiffness of all worlds."""
        value = check_value("stiffness", self.stiffness)
        return float((value.detach() if isinstance(value, Tensor) else value).max())


def _check_iterations(iterations: object) -> None:
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise PullbackError(f"iterations is {iterations!r}; give a whole number from 1 on")
