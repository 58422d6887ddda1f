"""How kernel functions become C++: structs passed by reference, less for compilers to do, functions with other callees.

Warp passes structs to functions by value, and a `Job` has 4.7 KB. Clang spends a tenth of its time on removing the
copies where it inlines, and where it does not they take microseconds. No function of ours writes to a struct it is
given (tests/core/test_codegen.py), so references mean the same. Warp's own `wp.ref` does not work in generic functions.
"""

from __future__ import annotations

from functools import partial
from types import FunctionType
from typing import Any

import warp as wp

from pullback.core.cpp_source import (
    addresses,
    plain_statements,
    references,
    struct_names,
    without_adjoints,
    without_copies,
)
from pullback.core.cuda_codegen import for_cuda
from pullback.core.groups import in_groups
from pullback.core.host import collection_paused
from pullback.core.lanes import Lanes, in_lanes

BY_REFERENCE = "-DPULLBACK_CODE=4"
"""A compiler flag without effect on the code: it is part of the cache key, so that binaries of one way to write code
are never mistaken for those of another. Count it up with each change of this file, cpp_source.py or
cuda_codegen.py."""

IN_LANES = "-DPULLBACK_LANES=2"
"""The same for kernels whose worlds go in lanes: count it up with each change of lanes.py or lanes.h."""

IN_GROUPS = "-DPULLBACK_GROUPS=4"
"""The same for kernels of groups of worlds: count it up with each change of groups.py or groups.h."""

_AT = """
template <typename T> static WP_FORCEINLINE T* pullback_at(const wp::array_t<T>& a, int i, int j)
{
    const size_t offset = i * size_t(a.strides[0]) + j * size_t(a.strides[1]);
    return reinterpret_cast<T*>(reinterpret_cast<char*>(a.data) + offset);
}

"""

INLINE = {"noinline": False, "forceinline": True}


def by_reference(source: str) -> str:
    """Return C++ source with structs as references wherever functions take them and kernels unpack them."""
    structs = struct_names(source)
    return references(source, structs) if structs else source


def for_large_module(source: str) -> str:
    """Return the C++ source of a module that takes seconds to compile: the same arithmetic in less code."""
    source = by_reference(without_adjoints(source))
    return addresses(plain_statements(without_copies(source, struct_names(source))), _AT)


def for_lanes(lanes: Lanes, real: str, source: str) -> str:
    """Return the C++ source of a module whose worlds go in lanes."""
    return in_lanes(by_reference(source), lanes, real)


def for_groups(real: str, source: str) -> str:
    """Return the C++ source of a module of one kernel for groups of worlds."""
    return in_groups(for_large_module(source), real)


def rewrite_code(module: Any, real: type, *, large: bool, lanes: Lanes | None = None, groups: bool = False) -> None:
    """Make one Warp module write its code with structs by reference, for a GPU with all of `cuda_codegen.py`.

    No other module is affected.
    """
    written_by_warp = module._run_codegen
    for_cpu = for_large_module if large else by_reference
    if lanes is not None:
        for_cpu = partial(for_lanes, lanes, real.__name__)
    if groups:
        for_cpu = partial(for_groups, real.__name__)

    def run_codegen(options: dict[str, Any], is_cpu: bool) -> tuple[Any, ...]:
        with collection_paused:
            source, *rest = written_by_warp(options, is_cpu)
            if is_cpu and large:
                # a large module is alone: precompiling Warp's headers takes longer than reading them once
                options["use_precompiled_headers"] = False
            return for_cpu(source) if is_cpu else for_cuda(source), *rest

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
