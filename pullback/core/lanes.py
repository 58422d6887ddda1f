"""Several worlds in the lanes of a vector: the C++ of a CPU kernel with a vector of numbers in the place of a number.

For kernels that take all worlds through the same instructions, as those of a robot's dynamics do: they branch on
joints, not on numbers. The kernel stays as it is written. It is called once for as many worlds as a vector has lanes,
on arrays whose rows are such vectors; around it the worlds are gathered from the arrays of the launch, and what it
wrote is put back (`lanes.h`; docs/decisions/0023-worlds-in-lanes.md). A kernel that compares numbers by `<` or `>` does
not compile so, and `==` holds where it holds in all lanes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import warp as wp

from pullback.core.cpp_source import without_adjoints

ROW = 64
"""Bytes of a row in lanes, at most."""

GROUP = 16
"""Worlds that go together, at most: numbers of 4 bytes in a row."""

_NUMBERS = {"float32": "float", "float64": "double"}


class Lanes(NamedTuple):
    """What a kernel does with its arguments: those it writes for each world, and its scratch; it reads the others."""

    writes: tuple[str, ...]
    scratch: tuple[str, ...] = ("scratch",)


def lanes_of(kernel: Any) -> Lanes | None:
    """Return what was declared for a kernel whose worlds go in lanes on a CPU, None for others."""
    return getattr(kernel.module, "pullback_lanes", None)


def constant_rows(constants: Any) -> int:
    """Return how many numbers the arrays of a kernel's constants have, and of structs in them."""
    rows = 0
    for value in (getattr(constants, name) for name in constants._cls.vars):
        if hasattr(value, "_cls"):
            rows += constant_rows(value)
        elif isinstance(value, wp.array) and value.dtype in (wp.float32, wp.float64):
            rows += value.size
    return rows


def in_lanes(source: str, lanes: Lanes, real: str) -> str:
    """Return the C++ of a module of one kernel on numbers of the type `real` with its worlds in lanes."""
    source = without_adjoints(source)
    first = re.search(r"^struct ", source, re.MULTILINE)
    arguments = re.search(r"struct (wp_args_\w+) \{\n(.*?)\n\};", source, re.DOTALL)
    assert first is not None
    assert arguments is not None
    fields = [line.strip(" ;").rsplit(" ", 1) for line in arguments[2].splitlines()]
    unknown = {*lanes.writes, *lanes.scratch}.difference(name for _, name in fields)
    if unknown:
        raise ValueError(f"{arguments[1]} has no argument {', '.join(sorted(unknown))}")
    body = re.sub(rf"\bwp::{real}\b|\b{_NUMBERS[real]}\b", "wp::lanes", source[first.start() :])
    loop = re.search(
        r"for \(size_t task_index = 0; .*\n +\{\n +(\w+<wp_linear_contiguous>)\(\*dim, task_index, _wp_args\);\n +\}",
        body,
    )
    assert loop is not None
    (constants_type, constants), *others = fields
    shared = [f"&args.{constants}.{name}, " for name in _arrays(body, constants_type)]
    roles = "".join(_role(name, lanes) * (len(_arrays(body, type_)) or 1) for type_, name in others)
    call = f"""{arguments[1]} args = *_wp_args;
    wp::array_t<wp::lanes>* arrays = reinterpret_cast<wp::array_t<wp::lanes>*>(&args.{others[0][1]});
    wp::array_t<wp::lanes>* constants[] = {{{"".join(shared)}nullptr}};
    wp::pullback_in_lanes(arrays, "{roles}", constants, dim->size, [&]() {{
        {loop[1]}(*dim, 0, &args);
    }});"""
    header = Path(__file__).with_name("lanes.h").read_text().replace("NUMBER", _NUMBERS[real])
    return source[: first.start()] + header + body.replace(loop[0], call)


def _role(name: str, lanes: Lanes) -> str:
    if name in lanes.scratch:
        return "s"
    if name in lanes.writes:
        return "w"
    return "c" if name.startswith("adj_") else "r"


def _arrays(body: str, struct: str) -> list[str]:
    """Return the names of a struct's arrays of numbers."""
    found = re.search(rf"^struct {struct}\n\{{\n(.*?)\n\n", body, re.MULTILINE | re.DOTALL)
    return re.findall(r"^ +wp::array_t<wp::lanes> (\w+);", found[1], re.MULTILINE) if found else []
