"""How kernel functions become C++: structs passed by reference, and functions with other callees.

Warp passes structs to functions by value, and a `Job` has 4.7 KB. Clang spends a tenth of its time on removing the
copies where it inlines, and where it does not they take microseconds. No function of ours writes to a struct it is
given (tests/core/test_codegen.py), so references mean the same. Warp's own `wp.ref` does not work in generic functions.
"""

from __future__ import annotations

import re
from types import FunctionType
from typing import Any

import warp as wp

from pullback.core.cuda_codegen import for_cuda, references
from pullback.core.host import collection_paused

BY_REFERENCE = "-DPULLBACK_CODE=2"
"""A compiler flag without effect on the code: it is part of the cache key, so that binaries of one way to write code
are never mistaken for those of another. Count it up with each change of this file or of cuda_codegen.py."""

INLINE = {"noinline": False, "forceinline": True}


def by_reference(source: str) -> str:
    """Return C++ source with structs as references wherever functions take them and kernels unpack them."""
    structs = "|".join(re.findall(r"^struct (\w+)$", source, re.MULTILINE))
    return references(source, structs) if structs else source


def pass_structs_by_reference(module: Any) -> None:
    """Make one Warp module write its code with structs by reference, for a GPU with all of `cuda_codegen.py`.

    No other module is affected.
    """
    written_by_warp = module._run_codegen

    def run_codegen(options: dict[str, Any], is_cpu: bool) -> tuple[Any, ...]:
        with collection_paused:
            source, *rest = written_by_warp(options, is_cpu)
        return by_reference(source) if is_cpu else for_cuda(source), *rest

    module._run_codegen = run_codegen


def rebound(function: Any, name: str, **others: Any) -> Any:
    """Return a copy of a kernel function, called `name`, that calls `others` where the original calls their namesakes.

    One source so serves kernels that differ deep inside, and each is compiled with what it needs and nothing else.
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
