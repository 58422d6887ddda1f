"""How kernel functions become CUDA source: Warp's, made smaller and quicker to compile.

What each of these gives on an H200 is in docs/decisions/0016-gpu-lockstep.md.
"""

from __future__ import annotations

import re

from pullback.core.cpp_source import (
    addresses,
    outlined,
    references,
    struct_names,
    without_adjoints,
    without_copies,
)

OUTLINED = 600
"""Statements of the largest functions that the compiler may inline. Stages that are compiled by themselves also round
alike in a rollout and in its adjoint, which computes steps again."""

_KERNEL = re.compile(r'^extern "C" __global__', re.MULTILINE)
_LOOP = re.compile(r"^( *)start_for_(\d+):;\n *if \((.*)\) goto end_for_\2;", re.MULTILINE)
_LOOP_END = re.compile(r"^ *goto start_for_(\d+);\n( *)end_for_\1:;", re.MULTILINE)

_AT = """
// products of 32-bit numbers: Warp's are of 64 bits, four instructions
template <typename T> static CUDA_CALLABLE T* pullback_at(const wp::array_t<T>& a, int i, int j)
{
    char* world = reinterpret_cast<char*>(a.data) + static_cast<long long>(j) * a.strides[1];
    return reinterpret_cast<T*>(world + static_cast<long long>(i) * a.strides[0]);
}

"""


def for_cuda(source: str) -> str:
    """Return the CUDA source of a module as our kernels want it."""
    source = without_adjoints(source)
    structs = struct_names(source)
    if structs:
        source = without_copies(_with_constants(source, structs), structs)
    return _rolled(addresses(outlined(source, OUTLINED), _AT))


def _with_constants(source: str, structs: str) -> str:
    """Pass structs by reference, and leave those that a kernel is given in constant memory.

    By value, every thread has copies of its own on its stack, 4.7 KB for a `Job`.
    """
    functions, *kernels = re.split(rf"(?={_KERNEL.pattern})", source, flags=re.MULTILINE)
    given = re.compile(rf"^    ({structs}) (var_\w+)(?=[,)])", re.MULTILINE)

    def constant(kernel: str) -> str:
        head, body = kernel.split("{", 1)
        names = "".join(
            f"\n    {struct}& {name} = const_cast<{struct}&>(given_{name});" for struct, name in given.findall(head)
        )
        return given.sub(r"    const __grid_constant__ \1 given_\2", head) + "{" + names + body

    return references(functions, structs) + "".join(map(constant, kernels))


def _rolled(source: str) -> str:
    """Keep loops as they are: unrolled, the code is half as large again and fits the instruction cache worse."""
    if len(_LOOP.findall(source)) != len(_LOOP_END.findall(source)):
        # loops that Warp writes in a way not known here stay as they are
        return source
    source = _LOOP.sub(r"#pragma unroll 1\n\1for (; !(\3);) {", source)
    source = _LOOP_END.sub(r"\2next_for_\1:; }\n\2end_for_\1:;", source)
    return re.sub(r"goto start_for_(\d+);", r"goto next_for_\1;", source)
