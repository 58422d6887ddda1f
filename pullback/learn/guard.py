"""Cut off the gradient of a world where it is not finite, without looking: looking makes a GPU wait."""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor


class _Guard(torch.autograd.Function):
    """Tensors (B, n) as they are; where the cotangents of a world are not finite, all of them become zero."""

    @staticmethod
    def forward(ctx: Any, lost: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.lost = lost
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx: Any, *adj: Tensor) -> tuple[Tensor | None, ...]:
        good = torch.stack([x.isfinite().all(1) for x in adj]).all(0)
        ctx.lost |= ~good
        zero = adj[0].new_zeros(())
        return None, *[torch.where(good[:, None], x, zero) for x in adj]


def guard(lost: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return tensors (B, n); going back, worlds whose cotangents are not finite are marked in `lost` (B,) and cut."""
    return _Guard.apply(lost, *tensors)  # pyright: ignore[reportReturnType]
