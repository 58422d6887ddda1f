"""Controls as straight lines between values at knots: the matrices that take the values to every step."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def even_knots(steps: int, knots: int) -> Tensor:
    """Return the matrix (steps, knots) for knots at equal distances, the first at the first step."""
    place = torch.arange(steps, dtype=torch.float64)[:, None] * ((knots - 1) / steps)
    return (1.0 - (place - torch.arange(knots)).abs()).clamp(min=0.0)


def knots_at(steps: int, moments: tuple[float, ...]) -> Tensor:
    """Return the matrix (steps, knots) for knots at moments, fractions of the whole time."""
    place, at = torch.arange(steps, dtype=torch.float64) / steps, torch.tensor(moments, dtype=torch.float64)
    after = torch.searchsorted(at, place, right=True).clamp(1, len(moments) - 1)
    share = (place - at[after - 1]) / (at[after] - at[after - 1])
    matrix = torch.zeros(steps, len(moments), dtype=torch.float64)
    matrix[torch.arange(steps), after - 1] = 1.0 - share
    matrix[torch.arange(steps), after] = share
    return matrix
