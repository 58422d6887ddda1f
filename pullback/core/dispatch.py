"""Kernel functions that are one of several, chosen by a number at run time."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from inspect import get_annotations, signature
from typing import Any

import warp as wp


def dispatched(declaration: Callable[..., Any], number: str, branches: Mapping[int, Any]) -> Any:
    """Return the kernel function that `declaration` declares: a chain of ifs on `number`.

    `number` is an expression of its arguments. A branch is a kernel function of the same arguments, or a constant.
    Where the declaration says that something is returned, the last branch stands for all other numbers too; else
    nothing is done for a number without a branch.
    """
    name, annotations = declaration.__name__, get_annotations(declaration, eval_str=True)
    returns = annotations.pop("return", None) is not None
    arguments = list(signature(declaration).parameters)
    groups: list[tuple[Any, list[int]]] = []
    for key, branch in branches.items():
        known = next((keys for other, keys in groups if other is branch), None)
        if known is None:
            groups.append((branch, [key]))
        else:
            known.append(key)
    lines = [f"def {name}({', '.join(arguments)}):", f"    number = {number}"]
    for count, (branch, keys) in enumerate(groups, start=1):
        taken = f"branch_{keys[0]}({', '.join(arguments)})" if callable(branch) else repr(branch)
        if returns and count == len(groups):
            lines.append(f"    return {taken}")
        else:
            test = " or ".join(f"number == {key}" for key in keys)
            lines.append(f"    {'if' if returns or count == 1 else 'elif'} {test}:")
            lines.append(f"        {'return ' if returns else ''}{taken}")
    # Warp reads the source of a function, so it has to be found under the name of a file
    source, file = "\n".join(lines) + "\n", f"<{declaration.__module__}.{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = {"__name__": declaration.__module__, **{f"branch_{key}": branch for key, branch in branches.items()}}
    exec(compile(source, file, "exec"), names)
    function = names[name]
    function.__annotations__, function.__doc__ = annotations, declaration.__doc__
    return wp.func(function)
