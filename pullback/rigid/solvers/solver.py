"""What a contact solver is to a simulation: its settings, and the kernels file that solves and differentiates."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

from pullback.rigid.world.values import check_whole

MAX_ITERATIONS = 100_000
TOLERANCE = {True: 1e-11, False: 1e-6}
"""The default tolerance [m/s, rad/s] in float64 and in float32."""
LEAST_TOLERANCE = {True: 1e-14, False: 1e-7}
"""Below, rounding would decide whether sweeps converged, and so which impulses are taken."""
CFM = 1e-6
"""The default softness [1/kg]."""
SINGLE_SOFTNESS = 1e-4
"""In float32 the default is at least this over the heaviest mass (docs/decisions/0026)."""
LEAST_MASS = 0.1
"""Lighter worlds [kg] count as this heavy there."""
KINK_WIDTH = {True: 1e-9, False: 1e-5}
"""How close [m/s, rad/s] to a kink a row is on it, in float64 and in float32."""
LIMIT_MARGIN = 0.1
"""A joint this close [rad, m] to an end has a row in the contact problem."""


class Solver:
    """Settings that every contact solver has. A solver is a subclass of this, and a kernels file.

    `kernels` names that file; it provides the functions listed in solvers/pgs_kernels.py, by `functions(real)`, and
    `work_rows(m, sweeps)`, the rows of scratch it needs for a problem of m rows.
    """

    iterations: int
    tolerance: float | None
    friction: Literal["cone", "pyramid"]
    gradient: Literal["implicit", "unrolled"]
    kinks: Literal["computed", "downhill"]
    kink_width: float | None
    warm_start: bool
    erp: float
    loop_erp: float
    max_push_speed: float
    max_limit_speed: float
    cfm: float | None
    margin: float
    restitution_threshold: float

    @property
    def kernels(self) -> str:
        """The import path of the kernels file."""
        raise NotImplementedError

    def load_kernels(self) -> Any:
        """Import the kernels file; rare solvers are imported lazily, for Warp takes 0.3 s to read one."""
        return import_module(self.kernels)

    def polishing_rounds(self, *, double: bool) -> int:
        """Return how often `polish` may improve what sweeps left; 0: the sweeps are what is differentiated."""
        raise NotImplementedError

    def material(self) -> dict[str, Any]:
        """Return numbers of a force law that gradients reach, by name: at most MATERIAL_ROWS of compile/scene.py."""
        return {}

    def tolerance_for(self, *, double: bool) -> float:
        """Return the tolerance [m/s, rad/s] in a floating-point type."""
        if self.tolerance is None:
            return TOLERANCE[double]
        return max(self.tolerance, LEAST_TOLERANCE[double]) if self.tolerance > 0.0 else 0.0

    def cfm_for(self, heaviest: float, *, double: bool) -> float:
        """Return the softness [1/kg] in a floating-point type, with the mass [kg] of the heaviest robot or body."""
        if self.cfm is not None:
            return self.cfm
        return CFM if double else max(CFM, SINGLE_SOFTNESS / max(heaviest, LEAST_MASS))

    def write_settings(self, settings: Any, *, dt: float, double: bool) -> None:
        """Write what kernels are told, a ContactSettings, but for the softness."""
        settings.dt = dt
        settings.limit_margin = LIMIT_MARGIN
        settings.threshold = self.restitution_threshold
        settings.push_speed, settings.limit_speed = self.max_push_speed, self.max_limit_speed
        for name in ("erp", "loop_erp", "margin", "iterations"):
            setattr(settings, name, getattr(self, name))
        settings.tolerance = self.tolerance_for(double=double)
        settings.polishing_rounds = self.polishing_rounds(double=double)
        settings.cone = int(self.friction == "cone")
        settings.unrolled = int(self.gradient == "unrolled")
        settings.kinks = int(self.kinks == "downhill")
        settings.kink_width = KINK_WIDTH[double] if self.kink_width is None else self.kink_width


def check_iterations(iterations: object) -> None:
    """Raise unless this is a number of sweeps."""
    check_whole("iterations", iterations, 1, MAX_ITERATIONS)
