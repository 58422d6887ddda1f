"""Process-wide settings that belong to the host program: changed for the length of a block, then restored."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Undo = Callable[[], None]


class Held:
    """A context manager that changes a process-wide setting while any thread is inside it.

    `change` makes the change and returns how to undo it. The first thread to enter makes it, the last to leave undoes
    it, so blocks may nest and overlap.
    """

    def __init__(self, change: Callable[[], Undo]) -> None:
        self._change = change
        self._reset()
        os.register_at_fork(after_in_child=self._release)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._undo: Undo = _nothing

    def _release(self) -> None:
        # the other threads that were inside do not exist in a forked child
        undo = self._undo
        self._reset()
        undo()

    def __enter__(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._undo = self._change()
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                undo, self._undo = self._undo, _nothing
                undo()


def _nothing() -> None:
    pass


def _pause_collection() -> Undo:
    if not gc.isenabled():
        return _nothing
    gc.disable()
    return gc.enable


def _silence_warp() -> Undo:
    import warp as wp

    # a level other than the default was chosen by the user: leave it
    if wp.config.log_level != wp.LOG_INFO:
        return _nothing
    wp.config.log_level = wp.LOG_WARNING

    def undo() -> None:
        if wp.config.log_level == wp.LOG_WARNING:
            wp.config.log_level = wp.LOG_INFO

    return undo


collection_paused = Held(_pause_collection)
"""Run no garbage collection: imports and kernel construction make 500,000 objects that stay, and searching those
again and again took a quarter of the time to the first gradient."""

warp_silenced = Held(_silence_warp)
"""Hide Warp's greeting and its line for each module that it loads, unless the user set a log level."""

NO_DRIVER = b"Could not find or load the NVIDIA CUDA driver"


def _has_driver() -> bool:
    for name in ("libcuda.so", "libcuda.so.1"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


def _copy_of_stderr() -> int | None:
    try:
        return os.dup(2)
    except OSError:  # it is closed
        return None


@contextmanager
def without_driver_warning() -> Iterator[None]:
    """Leave out Warp's line on a machine without a CUDA driver, which its library writes to stderr when it starts.

    All else that is written there meanwhile comes after the block. `device="cuda"` is an error of its own.
    """
    stderr = None if sys.platform != "linux" or _has_driver() else _copy_of_stderr()
    if stderr is None:
        yield
        return
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            written.seek(0)
            for line in written:
                if NO_DRIVER not in line:
                    os.write(2, line)
