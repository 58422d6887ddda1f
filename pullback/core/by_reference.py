"""Structs by reference in the C++ that Warp writes for our kernels on a CPU.

Warp hands structs to functions by value, and a job is 4.7 KB: copies that clang takes a tenth of its time to remove
where it inlines, and that take microseconds where it does not. No function of ours writes to a struct it is given
(tests/core/test_by_reference.py), so that references mean the same. Warp's own `wp.ref` is not for generic functions.
"""

from __future__ import annotations

import re
from typing import Any

from warp._src.context import ModuleBuilder

PREFIX = "pullback."
"""Of the names of our modules: kernels of others stay as Warp writes them."""

REWRITTEN = "-DPULLBACK_BY_REFERENCE=1"
"""A compiler flag that does nothing but tell such binaries from those that Warp may have kept from before."""


def by_reference(source: str) -> str:
    """Return the source with structs as references, where functions take them and kernels unpack them."""
    structs = "|".join(re.findall(r"^struct (\w+)$", source, re.MULTILINE))
    if not structs:
        return source
    return re.sub(rf"^(    (?:{structs})) (var_\w+(?:[,)]| = _wp_args->))", r"\1& \2", source, flags=re.MULTILINE)


_written_by_warp = ModuleBuilder.codegen


def _codegen(self: Any, device: str) -> str:
    source = _written_by_warp(self, device)
    return by_reference(source) if device == "cpu" and self.module.name.startswith(PREFIX) else source


ModuleBuilder.codegen = _codegen
