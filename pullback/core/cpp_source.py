"""The C++ that Warp writes for a module, rewritten so that compilers have less to do: for CPUs and for CUDA.

Warp writes regular code: a declaration or a statement a line, variables `var_...`, one function after another, each
with an empty adjoint where a module has none. What each of these rewrites gives is in docs/decisions/0020.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_HEAD = re.compile(r"^(?:static|extern) .*\($", re.MULTILINE)
_NAME = re.compile(r"static (WP_NOINLINE )?(?:CUDA_CALLABLE )?[\w:<>, ]*?(\w+)\($", re.MULTILINE)
_COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)
_EMPTY = re.compile(r"\n\{\s*(?://.*)?\n\}\n")
_STATEMENT = re.compile(r"^ +(?:var_\w+ = |\w+\(|wp::\w+\()", re.MULTILINE)
_CALLED = re.compile(r"\b(\w+_\d+)\(")
_SCALAR = re.compile(r"^ +(?:const )?(?:wp::(?:float32|float64|int32)|bool) (var_\w+)(?=;| =|[,)])", re.MULTILINE)
_OPERATORS = {"add": "+", "sub": "-", "mul": "*"}


def struct_names(source: str) -> str:
    """Return the names of a module's structs with bars between them, for regular expressions."""
    return "|".join(re.findall(r"^struct (\w+)$", source, re.MULTILINE))


def functions(source: str) -> tuple[str, list[str]]:
    """Return what stands before the first function, and the text from each function or kernel to the next."""
    starts = [head.start() for head in _HEAD.finditer(source)]
    if not starts:
        return source, []
    return source[: starts[0]], [source[a:b] for a, b in zip(starts, [*starts[1:], len(source)])]


def each_function(source: str, rewrite: Callable[[str], str]) -> str:
    """Return the source with every function and kernel rewritten."""
    preamble, texts = functions(source)
    return preamble + "".join(map(rewrite, texts))


def function_name(text: str) -> tuple[str, bool]:
    """Return the name of a function and whether it is marked never to be inlined; no name for a kernel."""
    head = _NAME.match(text)
    return (head[2], bool(head[1])) if head else ("", False)


def references(source: str, structs: str) -> str:
    """Return C++ source with references to structs, whose names stand between bars, where they are arguments."""
    return re.sub(rf"^(    (?:{structs})) (var_\w+(?:[,)]| = _wp_args->))", r"\1& \2", source, flags=re.MULTILINE)


def without_adjoints(source: str) -> str:
    """Leave out comments and the empty adjoints of functions: two fifths of the text."""

    def left(text: str) -> str:
        # a function of ours may be called adj_... too
        name, _ = function_name(text)
        is_empty = name.startswith("adj_") and _EMPTY.search(text[: text.index("\n}\n") + 3])
        return text[text.index("\n}\n") + 3 :] if is_empty else text

    return each_function(_COMMENT.sub("", source), left)


def without_copies(source: str, structs: str) -> str:
    """Let local variables that hold a part of a struct point to it.

    Compilers remove such a copy, of up to 4.7 KB, by splitting it into its fields, or it stays on the stack.
    """
    return each_function(source, lambda text: _point_to_parts(text, structs)) if structs else source


def _point_to_parts(function: str, structs: str) -> str:
    pointers = {}
    for struct, name in re.findall(rf"^ +({structs}) (var_\w+);$", function, re.MULTILINE):
        assigned = re.findall(rf"\b{name} = (wp::(?:load|copy)\(var_\w+\);)?", function)
        written = re.search(rf"\({name}\)\.[\w.]+\)? = |wp::store\(&?\(?{name}\b", function)
        if len(assigned) == 1 and assigned[0] and not written:
            pointers[name] = struct
    if not pointers:
        return function
    names = "|".join(pointers)
    declared = re.compile(rf"^( +)(?:{structs}) ({names});$", re.MULTILINE)
    function = declared.sub(lambda m: f"{m[1]}{pointers[m[2]]}* at_{m[2]};", function)
    function = re.sub(rf"\b({names}) = wp::load\((var_\w+)\);", r"at_\1 = \2;", function)
    function = re.sub(rf"\b({names}) = wp::copy\((var_\w+)\);", r"at_\1 = &\2;", function)
    return re.sub(rf"\b({names})\b", r"(*at_\1)", function)


def plain_statements(source: str) -> str:
    """Write loads, copies, sums, products and choices of numbers as C++ does, instead of calls of Warp's functions."""
    return each_function(source, _plain_statements)


def _plain_statements(text: str) -> str:
    scalars = set(_SCALAR.findall(text))

    def binary(match: re.Match[str]) -> str:
        operator, a, b = _OPERATORS[match[1]], match[2], match[3]
        return f"{a} {operator} {b}" if a in scalars and b in scalars else match[0]

    def choice(match: re.Match[str]) -> str:
        return f"{match[1]} ? {match[2]} : {match[3]}" if scalars.issuperset(match.groups()) else match[0]

    text = re.sub(r"wp::load\((var_\w+)\)", r"*\1", text)
    text = re.sub(r"wp::copy\((var_\w+)\)", r"\1", text)
    text = re.sub(r"wp::(add|sub|mul)\((var_\w+), (var_\w+)\)", binary, text)
    text = re.sub(r"wp::where\((var_\w+), (var_\w+), (var_\w+)\)", choice, text)
    return re.sub(r"wp::neg\((var_\w+)\)", lambda m: f"-{m[1]}" if m[1] in scalars else m[0], text)


def addresses(source: str, at: str) -> str:
    """Find elements of arrays [row, world] by `pullback_at`, which `at` defines, instead of Warp's nested calls."""
    first = re.search(r"^struct |^static ", source, re.MULTILINE)
    if first is None:
        return source
    body = source[first.start() :]
    body = re.sub(r"wp::address\((var_\w+), (var_\w+), (var_\w+)\)", r"pullback_at(\1, \2, \3)", body)
    stored = r"wp::array_store\((var_\w+), (var_\w+), (var_\w+), (var_\w+)\);"
    return source[: first.start()] + at + re.sub(stored, r"*pullback_at(\1, \2, \3) = \4;", body)


def outlined(source: str, limit: int) -> str:
    """Call functions that have more than `limit` statements, with those of what they call, instead of inlining them.

    Left to itself a compiler makes one function of a kernel, 48,000 statements for the adjoint of a rollout, and
    simplifies each part of it again in every function that it is inlined into.
    """
    sizes: dict[str, int] = {}

    def mark(text: str) -> str:
        name, is_marked = function_name(text)
        if not name:
            return text
        size = len(_STATEMENT.findall(text)) + sum(sizes.get(x, 0) for x in _CALLED.findall(text, text.index("{")))
        if size <= limit and not is_marked:
            sizes[name] = size
            return text
        return text if is_marked else text.replace("static ", "static WP_NOINLINE ", 1)

    return each_function(source, mark)
