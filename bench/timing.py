"""Timing functions that stand in one table: they take turns, and medians are compared as ratios."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from statistics import median
from typing import TypeVar

import torch

Key = TypeVar("Key", bound=Hashable)
CALLS = 4


def time_in_turns(
    functions: Mapping[Key, Callable[[], object]], *, rounds: int, seconds: float = 60.0
) -> dict[Key, float]:
    """Return the median time [s] of each function; see `times_in_turns`."""
    return {name: median(values) for name, values in times_in_turns(functions, rounds=rounds, seconds=seconds).items()}


def times_in_turns(
    functions: Mapping[Key, Callable[[], object]], *, rounds: int, seconds: float = 60.0
) -> dict[Key, list[float]]:
    """Return all times [s] of each function.

    All take turns in every round, so that noise meets all alike; each is called a few times a turn, the first of which,
    with the caches full of another's data, is not counted.
    """
    for function in functions.values():
        function()
    times: dict[Key, list[float]] = {name: [] for name in functions}
    start = time.perf_counter()
    for _ in range(rounds):
        for name, function in functions.items():
            function()
            for _ in range(CALLS):
                synchronize()
                before = time.perf_counter()
                function()
                synchronize()
                times[name].append(time.perf_counter() - before)
        if time.perf_counter() - start > seconds:
            break
    return times


def time_beyond(more: Callable[[], object], less: Callable[[], object], *, rounds: int) -> float:
    """Return what one function takes beyond another [s]: the median difference of calls next to each other.

    What slows a machine down for a while slows both of a pair, while medians may be of different times.
    """
    differences: list[float] = []
    for function in (more, less):
        function()
    for _ in range(rounds):
        start = time.perf_counter()
        more()
        between = time.perf_counter()
        less()
        differences.append(between - start - (time.perf_counter() - between))
    return median(differences)


def synchronize() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
