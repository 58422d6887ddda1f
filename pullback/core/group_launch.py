"""When a kernel for groups of worlds (groups.py) is used: once it is compiled, which happens in the background.

It gives the bits of the kernel for single worlds, so it may take that one's place at any launch. A process that does
not run batches for seconds never compiles it.
"""

from __future__ import annotations

import platform
import sys
import threading
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

from pullback.core.modules import is_compiled, making_kernels, wait_for

WORLDS = 8
"""Worlds of a batch, at least, that go in groups."""
LOOK = 0.2
"""Seconds of batches after which a compiled kernel is looked for,"""
WORTH = 5.0
"""and after which one is compiled: that takes about ten seconds of another thread."""


def is_supported() -> bool:
    """Return whether this machine can run groups: they ask for the address of a thread's own storage."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")


class GroupKernel:
    """A kernel for groups of worlds, which `make` returns; `is_ready` when it is compiled."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.is_ready = False
        self._make = make
        self._spent = 0.0
        self._looked = False
        self._begun: set[str] = set()

    @cached_property
    def kernel(self) -> Any:
        """The kernel; its functions are imported under the lock too, for this may be another thread."""
        with making_kernels():
            return self._make()

    def spend(self, seconds: float) -> None:
        """Take in how long a launch without groups took."""
        self._spent += seconds
        if self._spent > LOOK:
            self._begin("look", self._look)
        if self._spent > WORTH and self._looked:
            self._begin("compile", self.prepare)

    def prepare(self) -> None:
        """Compile and load the kernel now, unless that has been done."""
        wait_for(self.kernel, "cpu")
        self.is_ready = True

    def _look(self) -> None:
        if is_compiled(self.kernel, "cpu"):
            self.prepare()
        self._looked = True

    def _begin(self, name: str, task: Callable[[], None]) -> None:
        if name not in self._begun:
            self._begun.add(name)
            threading.Thread(target=_attempt, args=(task,), name="pullback prepares groups", daemon=True).start()


def _attempt(task: Callable[[], None]) -> None:
    """Do a task in the background; where it fails, as on a full disk, batches stay as they are."""
    try:
        task()
    except Exception as error:
        text = f"batches go on world by world, with the same results: their faster kernel could not be made: {error!r}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
