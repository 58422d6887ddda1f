"""Stages of a kernel for a group of worlds at once, in the lanes of a vector, between others that go world by world.

A kernel on a CPU takes a group of worlds. Functions it calls whose names end in `_in_lanes` are compiled once more,
with all that they call, with a vector of numbers in the place of a number (`groups.h`). Where they branch on numbers
all lanes go the way of the first, and those that would have gone another are told of, `disagreements`: what they wrote
is void, and is computed again in the ordinary way. Products are fused with sums as the compiler does it elsewhere, so
that both give the same bits (docs/decisions/0023-worlds-in-lanes.md).
"""

from __future__ import annotations

import re
from pathlib import Path

from pullback.core.cpp_source import function_name, functions

_NUMBERS = {"float32": "float", "float64": "double"}
_IN_LANES = re.compile(r"\b(\w+_in_lanes\w*_\d+)\(")
_CALLED = re.compile(r"\b(\w+_\d+)\(")
_STRUCT = re.compile(r"^struct (\w+)\n\{\n(.*?)\n\n", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^ +([^\n;]+) (\w+);$", re.MULTILINE)
_LOOP = re.compile(
    r"for \(size_t task_index = 0; .*\n +\{\n +(\w+<wp_linear_contiguous>)\(\*dim, task_index, _wp_args\);\n +\}"
)


def in_groups(source: str, real: str) -> str:
    """Return the C++ of a module of one kernel on numbers of the type `real`, some of whose functions are in lanes."""
    first = re.search(r"^struct ", source, re.MULTILINE)
    arguments = re.search(r"struct (wp_args_\w+) \{\n +(\w+) (\w+);\n", source)
    loop = _LOOP.search(source)
    assert first is not None
    assert arguments is not None
    assert loop is not None
    body = source[first.start() :]
    header = Path(__file__).with_name("groups.h").read_text().replace("NUMBER", _NUMBERS[real])
    structs, spread = _structs(body, real)
    kernel = body.index(arguments[0])
    copies = _in_lanes(_needed(body[:kernel]), real)
    args, job_type, job = arguments.groups()
    driver = f"""struct pullback_args : {args} {{
    explicit pullback_args(const {args}& from) : {args}(from) {{}}
    in_lanes::{job_type} in_lanes_job;
}};
"""
    call = f"""pullback_args args(*_wp_args);
    wp::lanes* room = reinterpret_cast<wp::lanes*>(args.scratch.data);
    pullback_spread(args.in_lanes_job, args.{job}, room);
    args.scratch.data = reinterpret_cast<wp::{real}*>(room);
    for (size_t task_index = 0; task_index < dim->size; task_index += wp::LANES)
        {loop[1]}(*dim, task_index, &args);"""
    end = body.index("};\n", kernel) + 3
    rest = body[end:].replace(loop[0], call)
    rest = re.sub(r"\b(\w+_in_lanes\w*_\d+)\((.*)\);", _call, rest)
    laned = f"namespace in_lanes {{\n{structs}}}\n{spread}namespace in_lanes {{\n{copies}}}\n"
    return source[: first.start()] + header + body[:kernel] + laned + body[kernel:end] + driver + rest


def _call(match: re.Match[str]) -> str:
    """Return the call of a function in lanes for that of its namesake: with its own copy of the job."""
    _, *others = match[2].split(", ")
    given = ", ".join(f"wp::in_lanes_of({x})" for x in others)
    return f"in_lanes::{match[1]}(static_cast<pullback_args*>(_wp_args)->in_lanes_job, {given});"


def _structs(body: str, real: str) -> tuple[str, str]:
    """Return all structs with vectors in the place of numbers, and functions that copy to them.

    Structs without numbers too: functions are found by the namespace of their arguments.
    """
    number = re.compile(rf"\bwp::{real}\b|\b{_NUMBERS[real]}\b")
    known: list[str] = []
    structs, spread = [], []
    for name, text in _STRUCT.findall(body):
        fields = _FIELD.findall(text)
        known.append(name)
        lines = [f"    {number.sub('wp::lanes', type_)} {field};\n" for type_, field in fields]
        structs.append(f"struct {name} {{\n{''.join(lines)}}};\n")
        copies = []
        for type_, field in fields:
            if type_ in known or type_ in (f"wp::{real}", f"wp::array_t<wp::{real}>"):
                copies.append(f"    pullback_spread(to.{field}, from.{field}, room);\n")
            elif not number.search(type_):
                copies.append(f"    to.{field} = from.{field};\n")
        spread.append(
            f"static void pullback_spread(in_lanes::{name}& to, const {name}& from, wp::lanes*& room)\n{{\n"
            f"{''.join(copies)}}}\n"
        )
    return "".join(structs), "using wp::pullback_spread;\n" + "".join(spread)


def _needed(body: str) -> list[str]:
    """Return the text of all functions that those in lanes call, and of these, in order."""
    texts = {name: text for text in functions(body)[1] if (name := function_name(text)[0])}
    wanted = [name for name in texts if _IN_LANES.match(f"{name}(")]
    found = set()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            text = texts[name]
            wanted += [x for x in _CALLED.findall(text, text.index("{")) if x in texts]
    return [text for name, text in texts.items() if name in found]


def _in_lanes(texts: list[str], real: str) -> str:
    """Return functions with vectors in the place of numbers."""
    return re.sub(rf"\bwp::{real}\b|\b{_NUMBERS[real]}\b", "wp::lanes", "".join(map(_choices, texts)))


def _choices(text: str) -> str:
    """Let lanes choose each by itself where a comparison is for `wp.where` alone: no way is taken there."""
    for name in re.findall(r"^ +bool (var_\w+);$", text, re.MULTILINE):
        used = len(re.findall(rf"\b{name}\b", text))
        choice = rf"= {name} \? (var_\w+) : (var_\w+);$"
        known = rf"^ +(?:bool {name};|{name} = \(.*\);|var_\w+ {choice})$"
        if used == len(re.findall(known, text, re.MULTILINE)):
            text = text.replace(f"bool {name};", f"wp::lane_mask {name};")
            text = re.sub(choice, rf"= wp::choose({name}, \1, \2);", text, flags=re.MULTILINE)
    return text
