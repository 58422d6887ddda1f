"""Ctrl-C as a request: a search ends after its current iteration and keeps its best result."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether the user has asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def __bool__(self) -> bool:
        return self.asked

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note the first Ctrl-C; a second one stops at once."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def gentle_interrupt() -> Iterator[Interrupt]:
    """Yield an object that turns true at the first Ctrl-C inside the block, and that of an enclosing block with it.

    Threads other than the main one receive no signals: there it stays false.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, interrupt.handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
        outer = getattr(before, "__self__", None)
        if interrupt and isinstance(outer, Interrupt):
            outer.asked = True
