"""Python's garbage collector while libraries are imported."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Collect no garbage for a while, and leave the objects there are at its end out of later collections.

    Importing torch, Warp and kernels makes half a million objects that stay. Looking through them again and again was a
    quarter of the time to a first gradient.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
