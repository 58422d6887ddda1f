"""Many cotangents in one backward pass: `is_grads_batched=True`, `jacobian(vectorize=True)`, `check_batched_grad=True`.

torch maps the backward pass over them by a vmap older than functorch's, whose tensors have no data of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = torch.Tensor

_C: Any = torch._C
_torch: Any = torch
is_mapped: Callable[[Tensor], bool] = _C._functorch.is_legacy_batchedtensor
"""Return whether a tensor is one of many that a backward pass is mapped over."""


def are_mapped(adj_outputs: Sequence[Tensor | None]) -> bool:
    """Return whether a backward pass is mapped over these cotangents."""
    return any(x is not None and is_mapped(x) for x in adj_outputs)


def map_vjp(
    vjp: Callable[[int, Sequence[int | None], Sequence[Tensor | None]], Sequence[Tensor | None]],
    adj_outputs: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Return the cotangents of inputs, mapped, for cotangents of outputs some of which are.

    `vjp(V, dims, adj_outputs)` gets plain tensors, where `dims` is 0 with V of them in front, and returns all with V of
    them in front.
    """
    level: int = _C._vmapmode_increment_nesting() - 1
    _C._vmapmode_decrement_nesting()
    dims = [0 if x is not None and is_mapped(x) else None for x in adj_outputs]
    plain: list[Any] = [x if d is None else _torch._remove_batch_dim(x, level, 1, 0) for x, d in zip(adj_outputs, dims)]
    size = next(len(x) for x, d in zip(plain, dims) if d == 0)
    found = vjp(size, dims, plain)
    return [None if x is None else _torch._add_batch_dim(x, 0, level) for x in found]
