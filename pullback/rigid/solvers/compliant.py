"""Contact by springs with damping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pullback.core.errors import PullbackError
from pullback.rigid.solvers.compliant_time_step import followed_time_step
from pullback.rigid.solvers.solver import Solver, check_iterations
from pullback.rigid.world.values import Given, Tensor, check_single, check_value

NEWTON_STEPS = 4
"""Newton's steps on the contact problem, at most, after sweeps that were used up."""


@dataclass(frozen=True, eq=False)
class Compliant(Solver):
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
    max_push_speed: ClassVar[float] = 0.2
    max_limit_speed: ClassVar[float] = 2.0
    cfm: ClassVar[float] = 1e-6
    restitution_threshold: ClassVar[float] = 0.01

    def __post_init__(self) -> None:
        check_iterations(self.iterations)
        check_value("stiffness", self.stiffness, above=0.0)
        for name in ("onset", "slip_speed", "margin"):
            check_single(name, getattr(self, name), above=0.0)
        check_value("damping", self.damping, least=0.0)
        check_single("power", self.power, least=1.0)
        if self.tolerance is not None:
            check_single("tolerance", self.tolerance, above=0.0)
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

    @property
    def kernels(self) -> str:
        """The kernels file."""
        return "pullback.rigid.solvers.compliant_kernels"

    def polishing_rounds(self, *, double: bool) -> int:
        """Return the number of Newton's steps that follow sweeps that were used up."""
        return NEWTON_STEPS

    def material(self) -> dict[str, Any]:
        """Return stiffness and damping, in the order that kernels read them."""
        return {"stiffness": self.stiffness, "damping": self.damping}

    def write_settings(self, settings: Any, *, dt: float, double: bool) -> None:
        """Write what kernels are told, the force law as well."""
        super().write_settings(settings, dt=dt, double=double)
        law = settings.compliance
        law.dt = law.ahead = dt
        law.onset, law.power, law.speed = self.onset, self.power, self.slip_speed
