"""Checks for NaN and infinity that wake no threads of torch's and never wait for a GPU."""

from __future__ import annotations

import math

import numpy as np
import torch

from pullback.core.errors import PullbackError

Tensor = torch.Tensor

FEW = 64
"""Numbers that Python adds up faster than numpy is called."""

in_transform = torch._C._are_functorch_transforms_active
"""Return whether a functorch transform (vmap, grad, jacrev) is active."""


def is_readable(x: Tensor) -> bool:
    """Return whether entries can be read without waiting: not on a GPU, and not inside a functorch transform."""
    return x.is_cpu and not in_transform()


def are_finite(*tensors: Tensor) -> bool:
    """Return whether all tensors (B, n) are finite; True for those that are not readable.

    Small ones are judged by their sum, which may overflow: False means look again. numpy looks at large ones, because
    torch would wake threads that keep spinning on the cores that kernels should run on.
    """
    if not is_readable(tensors[0]):
        return True
    total = 0.0
    for x in tensors:
        if x.numel() > FEW:
            if not np.isfinite(x.detach().numpy()).all():
                return False
        else:
            for row in x.tolist():
                total += sum(row)
    return math.isfinite(total)


def refuse_not_finite(name: str, x: Tensor) -> None:
    """Raise if an entry of x (B, n) is not finite; not on a GPU, nor inside a functorch transform or a graph."""
    if torch.compiler.is_compiling() or are_finite(x):
        return
    bad = (~torch.isfinite(x)).nonzero().tolist()
    if bad:
        world, entry = bad[0]
        raise PullbackError(
            f"{name} is not finite: entry {entry} of batch element {world} is {x[world, entry].item()}, "
            f"{len(bad)} such in all; check what produced it"
        )
