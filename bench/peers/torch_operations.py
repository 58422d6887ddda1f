"""Operations of the robot benchmark for libraries on PyTorch: values without recording, gradients by autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from bench.peers.library import Operation, Operations, Task

Tensor = torch.Tensor
Function = Callable[..., Any]


def operations_of(task: Task, functions: dict[str, Function], dtype: torch.dtype = torch.float64) -> Operations:
    """Return the operations of functions (B, n) -> tensor or tuple of tensors; FK is differentiated in its position."""
    states = [torch.tensor(x, dtype=dtype) for x in (task.q, task.qd, task.w)]
    leaves = [x.clone().requires_grad_() for x in states]
    found: Operations = {}
    for name, function in functions.items():
        count = 3 if name in ("RNEA", "ABA") else 1
        cotangent = torch.tensor(task.cotangents[name], dtype=dtype)
        found[name] = operation(function, states[:count], leaves[:count], cotangent)
    return found


def operation(function: Function, states: Sequence[Tensor], leaves: Sequence[Tensor], cotangent: Tensor) -> Operation:
    """Return one operation; the last three axes of a Jacobian's two halves are those of its cotangent."""

    def value() -> Any:
        with torch.no_grad():
            return function(*states)

    def both() -> tuple[np.ndarray, ...]:
        out = function(*leaves)
        outs = out if isinstance(out, tuple) else (out,)
        if cotangent.shape[1:2] == (6,) and len(outs) == 2:
            found = torch.autograd.grad(outs, leaves, (cotangent[:, :3], cotangent[:, 3:]))
        else:
            found = torch.autograd.grad(outs[0], leaves, cotangent)
        return tuple(x.numpy() for x in found)

    return Operation(value, both)
