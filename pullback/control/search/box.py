"""Bounds by construction: a smooth map from unbounded variables into a box, so that any optimiser respects it.

The alternative is projection. It breaks the assumption of quasi-Newton methods and momentum that a step goes where it
points, and gradient-free methods would see a flat loss outside. The drawback of the map: a bound is approached and
never reached exactly, and a start on it is moved inside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from pullback.core.errors import PullbackError

Tensor = torch.Tensor

INSIDE = 1e-3
"""A start closer to a bound than this fraction of the width is moved inside: at the bound the map is flat."""


class Box:
    """The box `lower` to `upper`, each a number, a tensor that broadcasts to a candidate, or None for no bound.

    With both bounds x = middle + half tanh(z / half), with one x = lower + s softplus(z / s), s the start's distance
    from it: in both cases x moves about as fast as z where the search starts. Without bounds x = z.
    """

    def __init__(self, start: Tensor, lower: Any, upper: Any) -> None:
        self.lower = _bound("lower", lower, start, -torch.inf)
        self.upper = _bound("upper", upper, start, torch.inf)
        empty = ~(self.lower < self.upper)
        if bool(empty.any()):
            where = tuple(empty.nonzero()[0].tolist())
            a, b = self.lower[where].item(), self.upper[where].item()
            raise PullbackError(f"the bounds leave no room: lower {a:g}, upper {b:g} at {where}; give lower < upper")
        outside = (start < self.lower) | (start > self.upper)
        if bool(outside.any()):
            where = tuple(outside.nonzero()[0].tolist())
            a, b = (x.expand_as(start)[where].item() for x in (self.lower, self.upper))
            raise PullbackError(
                f"the start is outside the bounds: {start[where].item():g} at {where}, bounds {a:g} to {b:g}"
            )
        self.above, self.below = self.lower.isfinite(), self.upper.isfinite()
        self.free = not bool((self.above | self.below).any())
        width = self.upper - self.lower
        self._half = torch.where(width.isfinite(), width / 2, 1.0)
        self._middle = torch.where(width.isfinite(), (self.upper + self.lower) / 2, 0.0)
        # one-sided bounds: the bound, the free side, and the distance of the first start
        self._edge = torch.where(self.above, self.lower, torch.where(self.below, self.upper, 0.0))
        self._side = torch.where(self.above, 1.0, -1.0).to(start)
        distance = (start[0] - self._edge).abs()
        self._scale = torch.where(distance > 0, distance, 1.0)

    def inside(self, z: Tensor) -> Tensor:
        """Return the points in the box of unbounded variables z (B, *shape)."""
        if self.free:
            return z
        both = self._middle + self._half * torch.tanh(z / self._half)
        one = self._edge + self._side * self._scale * functional.softplus(self._side * z / self._scale)
        mapped = torch.where(self.above & self.below, both, torch.where(self.above | self.below, one, z))
        # rounding may step over a bound
        return torch.clamp(mapped, self.lower, self.upper)

    def outside(self, x: Tensor) -> Tensor:
        """Return the unbounded variables of points in the box; points on its faces are moved inside."""
        if self.free:
            return x.clone()
        share = ((x - self._middle) / self._half).clamp(-1 + INSIDE, 1 - INSIDE)
        far = ((x - self._edge) * self._side / self._scale).clamp(min=INSIDE)
        both = self._half * torch.atanh(share)
        one = self._side * self._scale * (far + torch.log(-torch.expm1(-far)))
        return torch.where(self.above & self.below, both, torch.where(self.above | self.below, one, x))


def _bound(name: str, given: Any, start: Tensor, default: float) -> Tensor:
    """Return a bound in the shape of a candidate."""
    bound = torch.as_tensor(default if given is None else given, dtype=start.dtype, device=start.device)
    if bool(bound.isnan().any()):
        raise PullbackError(f"{name} has values that are not numbers; leave a bound out with None or an infinity")
    try:
        return bound.expand(start.shape[1:]).contiguous()
    except RuntimeError:
        raise PullbackError(
            f"{name} is {tuple(bound.shape)}, a candidate {tuple(start.shape[1:])}; give a number, or one per entry"
        ) from None
