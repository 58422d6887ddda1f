"""Identify parameters of a world, such as masses, frictions and sizes, from recorded motion."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

import torch

from pullback.control.identify.ambiguity import (
    Ambiguity,
    AmbiguityWarning,
    Names,
    ambiguities,
    covariance_of,
    projected,
)
from pullback.control.identify.fit import Fit, Method
from pullback.control.identify.unknowns import Unknown, Unknowns
from pullback.control.identify.windows import Recording, cut, linearized
from pullback.core.errors import PullbackError, unknown_name
from pullback.rigid.sim import Sim

if TYPE_CHECKING:
    from typing_extensions import Unpack

Tensor = torch.Tensor

ITERATIONS = {"lm": 50, "gauss-newton": 50, "adam": 300, "cma": 100}
"""The most iterations of each method by default."""


class IdentifyOptions(TypedDict, total=False):
    """Further keyword options of `identify`."""

    window: int | None
    """Samples predicted from one measured state; by default a whole recording."""
    stride: int | None
    """Samples between the starts of two windows; by default one window."""
    fit_starts: bool
    """Whether the initial state of a window may deviate from the measured one."""
    noise: tuple[Tensor | float, Tensor | float] | None
    """Standard deviation of measured positions and velocities."""
    learning_rate: float
    """Of "adam"."""
    seed: int
    """Of "cma"."""


DEFAULTS: dict[str, Any] = {
    "window": None, "stride": None, "fit_starts": True, "noise": None, "learning_rate": 0.03, "seed": 0,
}  # fmt: skip


@dataclass
class Identification:
    """Identified values, their covariance, and the history of the search."""

    values: dict[str, Tensor]
    """The value of each unknown by its name, `mass of block`."""
    entries: list[str]
    """A name for each single number: `com x of arm/link2`."""
    numbers: Tensor
    """All numbers (n,), in the order of `entries`."""
    covariance: Tensor
    """Their covariance (n, n), from the residual; huge where the data determines nothing."""
    noise: float
    """The standard deviation of a residual, in units of the noise or of the spread that residuals are divided by."""
    ambiguities: list[Ambiguity]
    """Directions that the data does not determine, or hardly."""
    losses: list[float] = field(default_factory=list)
    """The mean square of the residuals at the start and after each iteration."""
    seconds: list[float] = field(default_factory=list)
    """Time [s] since the start at each of these."""
    path: list[Tensor] = field(default_factory=list)
    """The numbers (n,) at each of these."""
    reason: str = ""
    """Why the search ended."""
    converged: bool = False
    interrupted: bool = False

    @property
    def standard_error(self) -> Tensor:
        """The standard error (n,) of each number."""
        return self.covariance.diagonal().clamp(min=0.0).sqrt()

    @property
    def correlation(self) -> Tensor:
        """The correlation (n, n) of the numbers."""
        error = self.standard_error.clamp(min=torch.finfo(self.numbers.dtype).tiny)
        return self.covariance / (error[:, None] * error)

    def __getitem__(self, name: str) -> Tensor:
        """Return the value of an unknown: `found["mass of block"]`."""
        return self.values[name]

    def __str__(self) -> str:
        """Return the numbers with their standard errors, and what is ambiguous."""
        width = max(map(len, self.entries))
        rows = zip(self.entries, self.numbers.tolist(), self.standard_error.tolist())
        lines = [f"{name:{width}}  {value:.6g} ± {error:.2g}" for name, value, error in rows]
        return "\n".join([*lines, *(each.text for each in self.ambiguities), self.reason])


def identify(
    sim: Sim,
    recordings: Recording | Sequence[Recording],
    unknowns: Sequence[Unknown],
    *,
    method: Method = "lm",
    iterations: int | None = None,
    tolerance: float = 1e-5,
    progress: bool = False,
    **options: Unpack[IdentifyOptions],
) -> Identification:
    """Fit the unknowns so that the simulation reproduces the recordings, and leave the fitted values in its world.

    What the data cannot determine is reported as an `AmbiguityWarning`. Ctrl-C ends the search with the best so far.

    Args:
        method: "lm" (Levenberg–Marquardt), "gauss-newton", "adam", or for comparison "cma", which keeps the measured
            initial states.
        iterations: the most iterations; 0 only evaluates the start.
        tolerance: the search ends when an iteration lowers the loss by less than this fraction.
        progress: whether to show a progress bar.
        window: number of samples predicted from one measured state; by default a whole recording.
        stride: number of samples between the starts of two windows; by default the window.
        fit_starts: let the initial state of a window deviate from the measured one, which is noisy too.
        noise: standard deviations of measured positions and of velocities, each a number or (nv,); by default estimated
            from the roughness of the data.
        learning_rate: of "adam", 0.03 by default.
        seed: of "cma".
    """
    for name in options:
        if name not in DEFAULTS:
            raise unknown_name("option of identify", name, ["method", "iterations", "tolerance", "progress", *DEFAULTS])
    given: dict[str, Any] = {**DEFAULTS, **options}
    if method not in ITERATIONS:
        raise PullbackError(f"method is {method!r}; choose from: {', '.join(ITERATIONS)}")
    limit = ITERATIONS[method] if iterations is None else iterations
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise PullbackError(f"iterations is {iterations!r}; give a whole number, 0 only to evaluate the start")
    rate = given["learning_rate"]
    if not rate > 0.0 or not tolerance >= 0.0:
        raise PullbackError(f"learning_rate {rate:g} must be positive, tolerance {tolerance:g} not negative")
    windows = cut(sim, recordings, given["window"], given["stride"], given["noise"])
    found = Unknowns(sim, unknowns)
    z, shift = windows.q.new_zeros(found.size), windows.q.new_zeros(windows.count, 2 * sim.nv)
    fit = Fit(sim, found, windows, given["fit_starts"] and method != "cma", tolerance, z, shift)
    try:
        fit.run(method, rate, given["seed"], limit, progress)
        result = _report(fit)
    finally:
        # after an error, too, the world has one value for all worlds
        found.settle(fit.z)
    for each in result.ambiguities:
        warnings.warn(each.text, AmbiguityWarning, stacklevel=2)
    return result


def _report(fit: Fit) -> Identification:
    """Return the best values with their covariance and what the data cannot determine."""
    r, Jx, Jz = linearized(fit.sim, fit.unknowns, fit.windows, fit.z, fit.shift)
    J = projected(Jx, Jz) if fit.fit_starts else Jz.flatten(0, 1)
    count = fit.unknowns.size + (Jx.shape[0] * Jx.shape[2] if fit.fit_starts else 0)
    sigma = float((r.square().sum() / max(1, r.numel() - count)).sqrt())
    covariance, s, V = covariance_of(J, sigma)
    slope = fit.unknowns.slope(fit.z)
    numbers = fit.unknowns.numbers(fit.z).detach()
    return Identification(
        fit.unknowns.values(fit.z),
        fit.unknowns.entries,
        numbers,
        slope @ covariance @ slope.mT,
        sigma,
        ambiguities(s, V, sigma, _names(fit, numbers, slope)),
        fit.losses,
        fit.seconds,
        fit.path,
        fit.ended,
        fit.converged,
        fit.interrupted,
    )


def _names(fit: Fit, numbers: Tensor, slope: Tensor) -> Names:
    """Return the name of each variable: of its number if it has one of its own, else of its unknown."""
    labels, parameters, values, slopes, single = [], [], [], [], []
    row = 0
    for variable in fit.unknowns.variables:
        entries = variable.entries
        alone = variable.size == len(entries) and variable.unknown.parameter not in ("inertial", "inertia_mat")
        for k in range(variable.size):
            labels.append(entries[k] if alone else variable.unknown.name)
            parameters.append(variable.unknown.parameter)
            values.append(numbers[row + k] if alone else numbers.new_ones(()))
            slopes.append(slope[row + k, len(labels) - 1] if alone else numbers.new_ones(()))
            single.append(alone)
        row += len(entries)
    return Names(labels, parameters, torch.stack(values), torch.stack(slopes), single)
