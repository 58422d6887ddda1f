"""Press Ctrl-C while something runs."""

import _thread
import threading
import time
from contextlib import suppress

import pytest


def assert_heard(work, after=0.1, within=1.0):
    """Check that `work()` raises KeyboardInterrupt within a second of Ctrl-C, which comes after `after` seconds.

    It is pressed once more after half of that time: Python drops an interrupt that arrives while a destructor runs,
    and the collector may run those of earlier tests' objects.
    """
    ended = threading.Event()
    pressed = []

    def press():
        for delay in (after, within / 2):
            if ended.wait(delay):
                return
            pressed.append(time.perf_counter())
            _thread.interrupt_main()

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        work()
    waited = time.perf_counter() - pressed[0]
    # the second one may have been on its way
    with suppress(KeyboardInterrupt):
        ended.set()
        presser.join()
    assert waited < within
