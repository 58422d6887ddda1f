"""Many cotangents in one backward pass: `is_grads_batched=True`, `jacobian(vectorize=True)`, `check_batched_grad=True`.

torch maps the backward pass over them by a vmap older than functorch's, whose tensors have no data of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pullback.core.errors import PullbackError

Tensor = torch.Tensor

_C: Any = torch._C
_torch: Any = torch
is_mapped: Callable[[Tensor], bool] = _C._functorch.is_legacy_batchedtensor
"""Return whether a tensor is one of many that a backward pass is mapped over."""
MOST_LEVELS = 64
"""Of torch's own: batched tensors cannot be nested deeper."""


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
    dims = [0 if x is not None and is_mapped(x) else None for x in adj_outputs]
    level = _level(next(x for x, d in zip(adj_outputs, dims) if d == 0))
    plain: list[Any] = [x if d is None else _torch._remove_batch_dim(x, level, 1, 0) for x, d in zip(adj_outputs, dims)]
    size = next(len(x) for x, d in zip(plain, dims) if d == 0)
    found = vjp(size, dims, plain)
    return [None if x is None else _torch._add_batch_dim(x, 0, level) for x in found]


def _level(mapped: Any) -> int:
    """Return the level of vmap that a tensor is mapped at.

    The thread that called the backward pass could be asked for its level, but for a GPU the pass runs in another one.
    """
    for level in range(1, MOST_LEVELS + 1):
        if not is_mapped(_torch._remove_batch_dim(mapped, level, 1, 0)):
            return level
    raise PullbackError(
        "a backward pass was mapped over cotangents more than once (is_grads_batched within is_grads_batched); use "
        "torch.func.vmap"
    )
