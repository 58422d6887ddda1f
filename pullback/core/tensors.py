"""The one file that imports both torch and Warp: types, devices, streams and memory that the two share."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import warp as wp

from pullback.core.modules import initialize

Tensor = torch.Tensor

REAL = {torch.float32: wp.float32, torch.float64: wp.float64}
"""Floating-point types of torch -> those of Warp."""

_SCALARS = {**REAL, torch.int32: wp.int32}


def view(x: Tensor | None, dtype: Any = None) -> Any:
    """Return a tensor as a kernel's array argument over the same memory, of vectors if `dtype` is one; None stays None.

    It is the bare argument, which keeps the tensor alive, and not Warp's array, whose `__del__` would swallow a Ctrl-C
    that arrives inside it. Warp does not check it: type and dimensions are the caller's responsibility.
    """
    if x is None or x.numel() == 0:
        return None
    initialize()
    return wp.from_torch(x.detach(), dtype=dtype or _SCALARS[x.dtype], requires_grad=False, return_ctype=True)


def device_name(device: torch.device) -> str:
    """Return the name by which Warp knows a device of torch."""
    return "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"


def current_stream(device: torch.device) -> Any:
    """Return torch's current stream as Warp knows it, None on a CPU."""
    if device.type == "cpu":
        return None
    return _warp_stream(torch.cuda.current_stream(device).cuda_stream, device_name(device))


@cache
def _warp_stream(cuda_stream: int, device: str) -> Any:
    initialize()
    return wp.Stream(device, cuda_stream=cuda_stream)
