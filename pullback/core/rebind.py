"""Kernel functions that call others than those they were written with."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import warp as wp

INLINE = {"noinline": False, "forceinline": True}


def rebound(function: Any, name: str, **others: Any) -> Any:
    """Return a copy of a kernel function, called `name`, for which some names of its module mean other functions.

    So one source serves kernels that differ deep inside, and each is compiled with what it needs and nothing else.
    """
    source = function.func
    missing = sorted(set(others) - set(source.__code__.co_names))
    if missing:
        raise ValueError(f"{function.key} does not call {', '.join(missing)}")
    copy = FunctionType(
        source.__code__, {**source.__globals__, **others}, name, source.__defaults__, source.__closure__
    )
    copy.__annotations__, copy.__doc__, copy.__qualname__ = source.__annotations__, source.__doc__, name
    return wp.func(name=name, inline=INLINE.get(function.inline_hint))(copy)
