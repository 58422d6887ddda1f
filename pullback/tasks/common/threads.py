"""Leave the cores to the simulation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pullback.core.threads import get_num_threads, set_num_threads


@contextmanager
def simulation_threads() -> Iterator[None]:
    """Give the simulation all threads and torch one: small networks gain nothing from more."""
    threads, before = get_num_threads(), torch.get_num_threads()
    set_num_threads(threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        set_num_threads(None)
