"""Worker threads of the CPU: a kernel releases the interpreter lock, so Python threads run it in parallel."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from queue import SimpleQueue
from typing import Any

WORLDS_PER_SHARD = 64
"""A thread is worth waking for at least this many worlds."""


def shards_for(worlds: int, threads: int) -> int:
    """Return how many threads a batch of worlds is worth; each has its own shard of scratch."""
    return max(1, min(threads, worlds // WORLDS_PER_SHARD))


def run_on_shards(work: Callable[[int], None], shards: int) -> None:
    """Call `work(shard)` for every shard, each on a thread of its own, the first on this one."""
    futures: list[Future[None]] = []
    try:
        futures += [_pool(shards - 1).submit(work, shard) for shard in range(1, shards)]
        work(0)
    finally:
        _wait_for(futures)
    for future in futures:
        future.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="pullback")


def _wait_for(futures: list[Future[None]]) -> None:
    """Wait until all are done, even after Ctrl-C: the arrays they use must outlive them."""
    interrupted = False
    while not all(future.done() for future in futures):
        try:
            wait(futures)
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt


class _Helper(threading.Thread):
    """A thread that waits for one call after another, and wakes in a third of the time a pool takes.

    Calls go in and completions come out through queues: a queue operation is done or not done when Ctrl-C arrives,
    never half done.
    """

    def __init__(self) -> None:
        super().__init__(name="pullback helps", daemon=True)
        self.calls: SimpleQueue[tuple[Callable[..., Any], Sequence[Any]] | None] = SimpleQueue()
        self.completions: SimpleQueue[None] = SimpleQueue()
        self.start()

    def run(self) -> None:
        """Make calls until None arrives."""
        while (call := self.calls.get()) is not None:
            call[0](*call[1])
            self.completions.put(None)

    def dismiss(self) -> None:
        """Wait until all queued calls are done, even after Ctrl-C: the arrays they use must outlive them."""
        last = threading.Event()
        self.calls.put((last.set, ()))
        self.calls.put(None)
        while not last.is_set():
            try:
                last.wait()
            except KeyboardInterrupt:
                continue


_IDLE: deque[_Helper] = deque()


def run_side_by_side(function: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> None:
    """Call a function once with each tuple of arguments, at the same time; the first call is made on this thread."""
    helpers: list[_Helper] = []
    try:
        for others in arguments[1:]:
            helpers.append(_idle_helper())
            helpers[-1].calls.put((function, others))
        function(*arguments[0])
        for helper in helpers:
            helper.completions.get()
    except BaseException:
        # after an interrupt nobody knows which calls have begun: these helpers are not used again
        for helper in helpers:
            helper.dismiss()
        raise
    _IDLE.extend(helpers)


def _idle_helper() -> _Helper:
    try:
        return _IDLE.pop()
    except IndexError:
        return _Helper()


def _after_fork() -> None:
    """Forget the threads in a forked child, where they do not exist."""
    _pool.cache_clear()
    _IDLE.clear()


os.register_at_fork(after_in_child=_after_fork)
