"""How kernel functions become CUDA source: Warp's, made smaller and quicker to compile.

What each of these gives on an H200 is in docs/decisions/0016-gpu-lockstep.md. Warp writes regular code: a declaration
or a statement a line, variables `var_...`, loops by labels.
"""

from __future__ import annotations

import re

OUTLINED = 600
"""Statements of the largest functions that the compiler may inline."""

_FUNCTION = re.compile(r"^static (WP_NOINLINE )?CUDA_CALLABLE [\w:<>, ]*?(\w+)\($", re.MULTILINE)
_KERNEL = re.compile(r'^extern "C" __global__', re.MULTILINE)
_STATEMENT = re.compile(r"^ +(?:var_\w+ = |\w+\(|wp::\w+\()", re.MULTILINE)
_LOOP = re.compile(r"^( *)start_for_(\d+):;\n *if \(iter_cmp\((var_\w+)\) == 0\) goto end_for_\2;", re.MULTILINE)
_LOOP_END = re.compile(r"^ *goto start_for_(\d+);\n( *)end_for_\1:;", re.MULTILINE)

_AT = """
template <typename T> static CUDA_CALLABLE T* pullback_at(const wp::array_t<T>& a, int i, int j)
{
    char* world = reinterpret_cast<char*>(a.data) + static_cast<long long>(j) * a.strides[1];
    return reinterpret_cast<T*>(world + static_cast<long long>(i) * a.strides[0]);
}

"""


def for_cuda(source: str) -> str:
    """Return the CUDA source of a module as our kernels want it."""
    structs = "|".join(re.findall(r"^struct (\w+)$", source, re.MULTILINE))
    if structs:
        source = _without_copies(_with_constants(source, structs), structs)
    return _rolled(_with_short_addresses(_outlined(source)))


def references(source: str, structs: str) -> str:
    """Return C++ source with references to structs, whose names stand between bars, where they are arguments."""
    return re.sub(rf"^(    (?:{structs})) (var_\w+(?:[,)]| = _wp_args->))", r"\1& \2", source, flags=re.MULTILINE)


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


def _parts(source: str) -> tuple[str, list[tuple[re.Match[str], str]]]:
    """Return what stands before the first function, and each function and kernel with its text."""
    heads = [*_FUNCTION.finditer(source), *_KERNEL.finditer(source)]
    starts = [head.start() for head in heads]
    texts = [source[a:b] for a, b in zip(starts, [*starts[1:], len(source)])]
    return source[: starts[0]] if starts else source, list(zip(heads, texts))


def _without_copies(source: str, structs: str) -> str:
    """Let local variables that hold a part of a struct point to it.

    Where one is passed on to a function that is not inlined, every thread has a copy of it on its stack.
    """
    preamble, functions = _parts(source)
    return preamble + "".join(_point_to_parts(text, structs) for _, text in functions)


def _point_to_parts(function: str, structs: str) -> str:
    for struct, name in re.findall(rf"^ +({structs}) (var_\w+);$", function, re.MULTILINE):
        assigned = re.findall(rf"\b{name} = (wp::(?:load|copy)\(var_\w+\);)?", function)
        written = re.search(rf"\({name}\)\.[\w.]+\)? = |wp::store\(&?\(?{name}\b", function)
        if len(assigned) == 1 and assigned[0] and not written:
            function = re.sub(rf"^( +){struct} {name};$", rf"\1{struct}* at_{name};", function, flags=re.MULTILINE)
            function = re.sub(rf"\b{name} = wp::load\((var_\w+)\);", rf"at_{name} = \1;", function)
            function = re.sub(rf"\b{name} = wp::copy\((var_\w+)\);", rf"at_{name} = &\1;", function)
            function = re.sub(rf"\b{name}\b", f"(*at_{name})", function)
    return function


def _outlined(source: str) -> str:
    """Call functions that have more than `OUTLINED` statements, with those of what they call, instead of inlining them.

    Left to itself the compiler makes one function of a kernel: 48,000 statements for the adjoint of a rollout. Stages
    that are compiled by themselves also round alike in a rollout and in its adjoint, which computes steps again.
    """
    sizes: dict[str, int] = {}
    preamble, functions = _parts(source)
    texts = [preamble]
    for head, text in functions:
        if head.re is _FUNCTION and not head[2].startswith("adj_"):
            called = re.findall(r"\b(\w+_\d+)\(", text[text.index("{") :])
            size = len(_STATEMENT.findall(text)) + sum(sizes.get(name, 0) for name in called)
            if size > OUTLINED and not head[1]:
                text = text.replace("static ", "static WP_NOINLINE ", 1)
            sizes[head[2]] = 0 if head[1] or size > OUTLINED else size
        texts.append(text)
    return "".join(texts)


def _with_short_addresses(source: str) -> str:
    """Find elements of arrays [row, world] by products of 32-bit numbers: Warp's are of 64 bits, four instructions."""
    first = re.search(r"^struct |^static ", source, re.MULTILINE)
    if first is None:
        return source
    body = source[first.start() :]
    body = re.sub(r"wp::address\((var_\w+), (var_\w+), (var_\w+)\)", r"pullback_at(\1, \2, \3)", body)
    stored = r"wp::array_store\((var_\w+), (var_\w+), (var_\w+), (var_\w+)\);"
    return source[: first.start()] + _AT + re.sub(stored, r"*pullback_at(\1, \2, \3) = \4;", body)


def _rolled(source: str) -> str:
    """Keep loops as they are: unrolled, the code is half as large again and fits the instruction cache worse."""
    source = _LOOP.sub(r"#pragma unroll 1\n\1for (; iter_cmp(\3) != 0;) {", source)
    source = _LOOP_END.sub(r"\2next_for_\1:; }\n\2end_for_\1:;", source)
    return re.sub(r"goto start_for_(\d+);", r"goto next_for_\1;", source)
