"""Worker threads of the CPU: a kernel releases the interpreter lock, so Python threads run it in parallel."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from ctypes import c_int32
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any

import torch

from pullback.core.errors import PullbackError

WORLDS_PER_SHARD = 64
"""A thread is worth waking for at least this many evaluations of a robot's dynamics."""

_chosen: int | None = None


def set_num_threads(threads: int | None) -> None:
    """Set how many CPU threads simulations use; None, the default: as many as torch, `torch.get_num_threads()`.

    For a small policy beside a simulation, `torch.set_num_threads(1)` and `pb.set_num_threads(n)` are fastest: torch's
    own threads do not pay for small matrices, and on a busy machine they wait for each other.
    """
    global _chosen
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise PullbackError(f"threads is {threads!r}; give a whole number above zero, or None for torch's number")
    _chosen = threads


def get_num_threads() -> int:
    """Return how many CPU threads simulations use."""
    return torch.get_num_threads() if _chosen is None else _chosen


def shards_for(worlds: int, threads: int, work: int = 1) -> int:
    """Return how many threads a batch of worlds is worth, each of which costs `work` evaluations of dynamics.

    Each thread has its own shard of scratch.
    """
    return max(1, min(threads, worlds, worlds * work // WORLDS_PER_SHARD))


def run_on_shards(work: Callable[[int], None], shards: int, stop: c_int32 | None = None) -> None:
    """Call `work(shard)`, which takes pieces until there are none, for every shard on a thread of its own.

    The first thread is this one; others that have not begun when it is done, on a busy machine, are not waited for.
    If there is `stop`, this thread only waits, and Ctrl-C sets it to 1 for the others to see.
    """
    here = 1 if stop is None else 0
    futures: list[Future[None]] = []
    try:
        futures += [_pool(shards - here).submit(work, shard) for shard in range(here, shards)]
        if stop is None:
            work(0)
            futures = [future for future in futures if not future.cancel()]
    finally:
        _wait_for(futures, stop)
    for future in futures:
        future.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="pullback")


def _wait_for(futures: list[Future[None]], stop: c_int32 | None = None) -> None:
    """Wait until all are done, even after Ctrl-C: the arrays they use must outlive them."""
    interrupted = False
    while not all(future.done() for future in futures):
        try:
            # not for ever: an interrupt by another thread, as of a notebook, does not wake this one
            wait(futures, timeout=0.1)
        except KeyboardInterrupt:
            interrupted = True
            if stop is not None:
                stop.value = 1
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
            # a call that has not begun, on a busy machine, is made here
            try:
                waiting = helper.calls.get_nowait()
            except Empty:
                helper.completions.get()
                continue
            assert waiting is not None
            waiting[0](*waiting[1])
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
