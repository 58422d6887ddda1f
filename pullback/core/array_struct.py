"""Arrays that kernels take as one argument: a struct of them, for each floating-point type.

Such a struct lies in memory as its arrays one after another would, so a launch costs the same (`launch.py`). Functions
take one as `Any`: whichever struct has the arrays that they read.
"""

from __future__ import annotations

from typing import Any

import warp as wp

from pullback.core.modules import kernel_module, made_once


@made_once
def array_struct(name: str, arrays: tuple[str, ...], real: type) -> Any:
    """Return the Warp struct of arrays [row, world] with these names, in their order among a kernel's arguments."""
    annotations = dict.fromkeys(arrays, wp.array2d(dtype=real))
    plain = type(f"{name}_{real.__name__}", (), {"__annotations__": annotations})
    return wp.struct(plain, module=kernel_module(name, real))
