"""Objectives of a temperature history: smooth functions in plain torch, to minimise or report.

T (N + 1, p) are the temperatures [K] of p points at times t (N + 1,) [s], as `History.probes` and `History.times` hold
them. What counts is smooth in T, so that a gradient says which way to go; a width [K] says how smooth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import softplus

from pullback.core.errors import PullbackError, unknown_name

Tensor = torch.Tensor

NOTHING = 1e-9
"""A drop that is this share of the range from liquidus to solidus is no solidification."""


def history_error(temperatures: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared difference [K²] of a history and its target, both of the same shape."""
    if temperatures.shape != target.shape:
        raise PullbackError(
            f"the target has shape {tuple(target.shape)} and the temperatures {tuple(temperatures.shape)}; "
            "expected the same"
        )
    if not temperatures.numel():
        raise PullbackError("no temperatures to compare; give the run probes or snapshots")
    return (temperatures - target).square().mean()


def heat_treatment_time(temperatures: Tensor, times: Any, low: float, high: float, width: float = 10.0) -> Tensor:
    """Return how long [s] each point (p,) is between two temperatures [K].

    H = ∫ σ((T − low)/width) σ((high − T)/width) dt by the trapezoidal rule; σ is the logistic function. As the width
    goes to zero this is the time between the bounds, to within a step.
    """
    T, t = _history(temperatures, times)
    _ordered("low", low, "high", high)
    _positive("width", width)
    inside = torch.sigmoid((T - low) / width) * torch.sigmoid((high - T) / width)
    return torch.trapezoid(inside, t, dim=0)


def melt_pool_depth(profile: Tensor, depths: Any, melting: float, signed: bool = False) -> Tensor:
    """Return how deep [m] the melt is in each row (N,) of temperatures [K] (N, d) at d depths [m] under the beam.

    Between two depths the temperature is a straight line; the depth is the length of what is above the melting
    temperature, and so, where it only falls on the way down, the depth of the isotherm. Rows in which nothing melts
    have depth 0, rows that are molten at every depth the last of them. There the length is constant and its
    gradient zero: backward, and with signed=True forward as well, it continues linearly by (d_last − d_first)/melting
    per kelvin that the hottest point is too cold, or the coldest too hot.

    Args:
        signed: return the depth with that continuation, below 0 and beyond the last depth; its gradient is exact.
    """
    d = torch.as_tensor(np.asarray(depths, dtype=np.float64)).to(profile)
    if d.ndim != 1 or len(d) < 2 or not bool((d[1:] > d[:-1]).all()):
        raise PullbackError(f"depths are {d.tolist()}; expected two or more numbers [m], increasing")
    if profile.ndim != 2 or profile.shape[1] != len(d):
        raise PullbackError(f"the profile has shape {tuple(profile.shape)}; expected (N, {len(d)}), a column a depth")
    _positive("melting", melting)
    excess = profile - melting
    above, size = excess.clamp(min=0.0), excess.abs()
    total = size[:, :-1] + size[:, 1:]
    molten = (above[:, :-1] + above[:, 1:]) / torch.where(total > 0.0, total, 1.0)
    length = molten @ (d[1:] - d[:-1])
    beyond = excess.amin(1).clamp(min=0.0) + excess.amax(1).clamp(max=0.0)
    going_on = beyond * ((d[-1] - d[0]) / melting)
    return length + going_on if signed else length + (going_on - going_on.detach())


def cooling_rate_at_solidification(
    temperatures: Tensor, times: Any, solidus: float, liquidus: float, width: float | None = None
) -> Tensor:
    """Return how fast [K/s] each point (p,) cools while it solidifies; 0 where it never does.

    The mean of −dT/dt over the temperatures from liquidus to solidus, by straight lines between the states: a step
    counts by the drop it makes within that range, and a step that heats up not at all. A point that melts and
    solidifies several times has the mean of all. width [K] blurs the ends of the range; by default 1/20 of it.
    """
    T, t = _history(temperatures, times)
    _ordered("solidus", solidus, "liquidus", liquidus)
    width = (liquidus - solidus) / 20.0 if width is None else width
    _positive("width", width)
    # T cut to the range, smoothly; seen from the nearer end, so that far away it does not change at all
    up, down = (T - solidus) / width, (T - liquidus) / width
    cold = width * (softplus(up) - softplus(down))
    hot = width * (softplus(-up) - softplus(-down)) + (liquidus - solidus)
    within = torch.where(up + down < 0.0, cold, hot)
    drop = (within[:-1] - within[1:]).clamp(min=0.0)
    rate = (T[:-1] - T[1:]) / (t[1:] - t[:-1])[:, None]
    return (drop * rate).sum(0) / (drop.sum(0) + NOTHING * (liquidus - solidus))


def spent_energy(power: Tensor, dt: float, on: Any = None) -> Tensor:
    """Return the energy [J] of a laser power [W] (N,) in steps of dt [s]; on (N,): the steps in which it is lit."""
    _positive("dt", dt)
    if on is not None:
        lit = torch.as_tensor(np.asarray(on)).to(power)
        if lit.shape != power.shape:
            raise PullbackError(f"on has shape {tuple(lit.shape)} and power {tuple(power.shape)}; expected the same")
        power = power * lit
    return power.sum() * dt


# -- several at once -------------------------------------------------------------------------------------------------


def weighted_sum(objectives: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """Return the weighted sum of objectives, each a number; one without a weight does not count."""
    for name in weights:
        if name not in objectives:
            raise unknown_name("objective", name, objectives)
    if not weights:
        raise PullbackError(f"no weights; give one for at least one of: {', '.join(objectives)}")
    for name in weights:
        if objectives[name].numel() != 1:
            raise PullbackError(
                f"objective {name!r} has shape {tuple(objectives[name].shape)}; expected one number: take its mean, "
                "or its sum"
            )
    return torch.stack([weight * objectives[name].reshape(()) for name, weight in weights.items()]).sum()


@dataclass(frozen=True, eq=False)
class ParetoPoint:
    """The result for one choice of weights: the design, its objectives, and whether another point dominates it."""

    weights: dict[str, float]
    design: Any
    objectives: dict[str, float]
    dominated: bool = False


def pareto_sweep(
    objectives: Callable[[Any], Mapping[str, Tensor]],
    weights: Sequence[Mapping[str, float]],
    minimise: Callable[[Callable[[Any], Tensor], Any], Any],
    start: Any,
    compare: Sequence[str] | None = None,
) -> list[ParetoPoint]:
    """Minimise weighted sums of objectives one after the other, each from where the one before ended.

    Weighted sums find the parts of a front that bulge towards the better; where it bulges the other way they jump
    across. For points in such a gap add objectives that are zero from a value on, one a point, say the square of what
    is missing to a time, and weigh one of them at a time.

    Args:
        objectives: design -> {name: number to be small}.
        weights: one choice of {name: weight} for each point of the front, neighbours next to each other.
        minimise: (design -> loss, start) -> best design, or None to end the sweep here.
        start: the first design.
        compare: the objectives that make a point better or worse than another; none: all.
    """
    if not len(weights):
        raise PullbackError("no weights; a front needs at least one choice of them")
    found: list[ParetoPoint] = []
    design = start
    for choice in weights:
        better = minimise(lambda x, choice=choice: weighted_sum(objectives(x), choice), design)
        if better is None:
            break
        design = better
        with torch.no_grad():
            values = {name: float(value) for name, value in objectives(design).items()}
        found.append(ParetoPoint(dict(choice), design, values))
    names = list(found[0].objectives if compare is None else compare) if found else []
    worse = dominated([{name: point.objectives[name] for name in names} for point in found])
    return [ParetoPoint(p.weights, p.design, p.objectives, bool(w)) for p, w in zip(found, worse)]


def dominated(points: Sequence[Mapping[str, float]]) -> np.ndarray:
    """Return (n,) which points are dominated: another one is nowhere worse and somewhere better."""
    values = np.array([list(point.values()) for point in points]).reshape(len(points), -1)
    no_worse = np.all(values[None] <= values[:, None], axis=2)
    better = np.any(values[None] < values[:, None], axis=2)
    return np.asarray(np.any(no_worse & better, axis=-1))


# -- what is refused -------------------------------------------------------------------------------------------------


def _history(temperatures: Tensor, times: Any) -> tuple[Tensor, Tensor]:
    """Return temperatures (N + 1, p) and times (N + 1,) of their type, checked."""
    t = torch.as_tensor(np.asarray(times, dtype=np.float64)) if not isinstance(times, torch.Tensor) else times
    if temperatures.ndim != 2 or not temperatures.shape[1]:
        raise PullbackError(
            f"temperatures have shape {tuple(temperatures.shape)}; expected (N + 1, p) with p ≥ 1 points: "
            "give the run probes"
        )
    if t.shape != temperatures.shape[:1] or len(t) < 2:
        raise PullbackError(
            f"times have shape {tuple(t.shape)} and temperatures {tuple(temperatures.shape)}; expected a time a row, "
            "two or more"
        )
    t = t.to(temperatures.device, torch.float64)
    backward = (t[1:] <= t[:-1]).nonzero()
    if len(backward):
        row = int(backward[0]) + 1
        raise PullbackError(f"times[{row}] = {t[row]:g} s after {t[row - 1]:g} s; times must increase")
    return temperatures, t.to(temperatures)


def _ordered(name: str, low: float, other: str, high: float) -> None:
    if not low < high:
        raise PullbackError(f"{name} is {low:g} K and {other} {high:g} K; {name} must be below {other}")


def _positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise PullbackError(f"{name} is {value:g}; expected a positive number")
