"""Keyword options of `ilqr`, and their defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict

import numpy as np

from pullback.control.ilqr.iterate import Search
from pullback.core.errors import PullbackError, unknown_name

Hessian = Literal["gauss_newton", "full"]
Callback = Callable[[int, np.ndarray], object]
"""Called with the number of an iteration and the costs (B,) after it; a true result ends the search."""

LEAST, MOST = 1e-9, 1e9
"""Bounds of the regularisation."""


class IlqrOptions(TypedDict, total=False):
    """Keyword options of `ilqr` and `mpc`; `IlqrSettings` has the defaults."""

    tolerance: float
    """A problem has converged when the expected decrease is below this fraction of 1 + cost."""
    regularization: float
    """The first regularisation of the backward pass."""
    hessian: Hessian
    """Whether to include second derivatives of the dynamics ("full")."""
    search: Search
    """The line search: the "longest" step that lowers the cost enough, or the "best" of six."""
    verbose: bool
    """Print one line per iteration."""
    callback: Callback | None


@dataclass(frozen=True)
class IlqrSettings:
    """All options of `ilqr` with defaults, checked."""

    iterations: int = 100
    gains: bool = True
    tolerance: float = 1e-9
    regularization: float = LEAST
    hessian: Hessian = "gauss_newton"
    search: Search = "longest"
    verbose: bool = False
    callback: Callback | None = None

    @staticmethod
    def of(iterations: int, gains: bool, options: Mapping[str, Any]) -> IlqrSettings:
        """Return the settings of a call; an unknown option is an error that names the close ones."""
        known = [field.name for field in fields(IlqrSettings)]
        for name in options:
            if name not in known:
                raise unknown_name("option of ilqr", name, known)
        return IlqrSettings(iterations, gains, **options)

    def __post_init__(self) -> None:
        """Raise for values out of range and unknown choices."""
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise PullbackError(f"iterations is {self.iterations!r}; give 1 or more")
        if not self.tolerance >= 0.0:
            raise PullbackError(f"tolerance is {self.tolerance!r}; give 0 or more")
        if not LEAST <= self.regularization <= MOST:
            raise PullbackError(f"regularization is {self.regularization!r}; give a number from {LEAST:g} to {MOST:g}")
        if self.hessian not in ("gauss_newton", "full"):
            raise PullbackError(f"hessian is {self.hessian!r}; choose 'gauss_newton' or 'full'")
        if self.search not in ("longest", "best"):
            raise PullbackError(f"search is {self.search!r}; choose 'longest' or 'best'")
