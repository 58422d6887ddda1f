"""Cut off the gradient of a world where it is not finite, without looking: looking makes a GPU wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pullback.core.mapped_cotangents import are_mapped, map_vjp

Tensor = torch.Tensor


class _Guard(torch.autograd.Function):
    """Tensors (B, n) as they are; where the cotangents of a world are not finite, all of them become zero."""

    @staticmethod
    def forward(ctx: Any, lost: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.lost = lost
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx: Any, *adj: Tensor) -> tuple[Tensor | None, ...]:
        if not are_mapped(adj):
            return None, *_cut(ctx.lost, adj)

        def vjp(size: int, dims: Sequence[int | None], given: Sequence[Any]) -> list[Tensor]:
            return _cut(ctx.lost, [x.expand(size, *x.shape) if d is None else x for x, d in zip(given, dims)])

        return None, *map_vjp(vjp, adj)


def _cut(lost: Tensor, adj: Sequence[Tensor]) -> list[Tensor]:
    """Return cotangents (..., B, n), zero in worlds where one is not finite; mark those in `lost` (B,)."""
    good = torch.stack([x.isfinite().all(-1) for x in adj]).all(0)
    lost |= ~good.reshape(-1, len(lost)).all(0)
    zero = adj[0].new_zeros(())
    return [torch.where(good[..., None], x, zero) for x in adj]


def guard(lost: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return tensors (B, n); going back, worlds whose cotangents are not finite are marked in `lost` (B,) and cut."""
    return _Guard.apply(lost, *tensors)  # pyright: ignore[reportReturnType]
