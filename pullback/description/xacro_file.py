"""Expand a xacro file by the package `xacro`.

A xacro file is a program: `$(eval ...)` runs any Python, and files anywhere can be included. So it is expanded only
where the caller says so.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pullback.core.errors import DescriptionError, shortened
from pullback.core.files import check_limit
from pullback.description.packages import find_package
from pullback.description.xml_file import check_file

ADVICE = (
    "a xacro file is a program and can run any Python: if you trust it, load it with xacro=True, or with its "
    "arguments, xacro={'name': value}"
)
# xacro keeps its state in module globals
_LOCK = threading.Lock()


def expand_xacro(path: Path, arguments: Mapping[str, object], packages: Mapping[str, Path]) -> bytes:
    """Return the URDF that a xacro file stands for; `arguments` are those of its `<xacro:arg>`."""
    check_file(path)
    try:
        import xacro
        from xacro import substitution_args
    except ImportError as error:
        raise DescriptionError(
            f'{path.name}: expanding xacro needs the package xacro; install it with pip install "pullback[xacro]"'
        ) from error
    mappings = {str(name): _text(value) for name, value in arguments.items()}
    with _LOCK, _finding(substitution_args, path, packages), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            document: Any = xacro.process_file(str(path), mappings=mappings)
            expanded: bytes = document.toxml("utf-8")
        except DescriptionError:
            raise
        except (Exception, RecursionError) as error:
            reason = " ".join(f"{error} {said.getvalue()}".split()) or type(error).__name__
            raise DescriptionError(f"{path.name}: xacro cannot expand it: {shortened(reason, 400)}") from error
    check_limit("description_bytes", len(expanded), f"{path.name}, expanded, has", DescriptionError)
    return expanded


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextlib.contextmanager
def _finding(module: Any, path: Path, packages: Mapping[str, Path]) -> Iterator[None]:
    """Let `$(find NAME)` look where meshes are looked for, without an installation of ROS."""

    def find(name: str) -> str:
        folder = find_package(name, path, packages)
        if folder is None:
            raise DescriptionError(
                f"{path.name}: no folder found for $(find {shortened(name)}); give packages={{{name!r}: '/path/to/it'}}"
            )
        return str(folder)

    before, entry = module._eval_find, module._eval_dict["find"]
    module._eval_find = module._eval_dict["find"] = find
    try:
        yield
    finally:
        module._eval_find, module._eval_dict["find"] = before, entry
