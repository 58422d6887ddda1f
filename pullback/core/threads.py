"""Worker threads of the CPU: a kernel releases the interpreter lock, so Python threads run it in parallel."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from ctypes import PyDLL, c_int32
from queue import Empty, SimpleQueue
from time import perf_counter, thread_time
from typing import Any

import torch

from pullback.core.errors import PullbackError

WORLDS_PER_SHARD = 64
"""A thread is worth waking for at least this many evaluations of a robot's dynamics."""

_chosen: int | None = None


def set_num_threads(threads: int | None) -> None:
    """Set how many CPU threads simulations use; None, the default: as many as torch, `torch.get_num_threads()`.

    For a small policy beside a simulation, `torch.set_num_threads(1)` and `pb.set_num_threads(n)` are fastest: torch's
    own threads do not pay for small matrices, and keep cores busy while they wait for more work.
    """
    global _chosen
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise PullbackError(f"threads is {threads!r}; give a whole number above zero, or None for torch's number")
    _chosen = threads


def get_num_threads() -> int:
    """Return how many CPU threads simulations use."""
    return torch.get_num_threads() if _chosen is None else _chosen


def shards_for(worlds: int, threads: int, work: float = 1) -> int:
    """Return how many threads a batch of worlds is worth, each of which costs `work` evaluations of dynamics.

    Each thread has its own shard of scratch.
    """
    return max(1, min(threads, worlds, int(worlds * work / WORLDS_PER_SHARD)))


class Sharing:
    """Decide from earlier launches whether other threads help.

    One thread would take about as long as all took of the CPU together. Where that is hardly more than the time that
    passed, threads had to wait for a core, which other programs or torch's threads held; then launches stay on one
    thread for a while, longer each time that sharing fails again.
    """

    GAIN = 1.1
    """How many times faster sharing has to be."""
    FIRST_REST = 4.0
    """How long one thread works alone at first, in times of the launch that failed."""
    LONGEST_REST = 0.5
    """How long at most until sharing is tried again [s]."""

    def __init__(self) -> None:
        self.rest = 0.0
        self.until = 0.0

    def is_worth_it(self) -> bool:
        """Return whether the next launch should be shared."""
        return self.until == 0.0 or perf_counter() >= self.until

    def learn(self, elapsed: float, busy: float) -> None:
        """Take in a shared launch: seconds that passed, and CPU seconds of all its threads."""
        if busy >= self.GAIN * elapsed:
            self.rest = self.until = 0.0
        else:
            self.rest = min(max(2.0 * self.rest, self.FIRST_REST * elapsed), self.LONGEST_REST)
            self.until = perf_counter() + self.rest


def _find_current_core() -> Callable[[], int]:
    """Return a function that returns the core its thread runs on; on systems that do not say so, always -1."""
    if not hasattr(os, "sched_setaffinity"):
        return lambda: -1
    return getattr(PyDLL(None), "sched_getcpu", lambda: -1)


_current_core = _find_current_core()


def _leave_core(core: int) -> None:
    """Move this thread to another core than the given one, if it is there and may run elsewhere.

    Linux often wakes a thread on the core of the one that woke it, and corrects that only after milliseconds.
    """
    if core < 0 or _current_core() != core:
        return
    allowed = os.sched_getaffinity(0)
    if len(allowed) > 1:
        os.sched_setaffinity(0, allowed - {core})
        os.sched_setaffinity(0, allowed)


class _Helper(threading.Thread):
    """A thread that waits for one call after another, and wakes in a third of the time that a pool of Python's takes.

    Calls go in and completions come out through queues: a queue operation is done or not done when Ctrl-C arrives,
    never half done.
    """

    def __init__(self) -> None:
        super().__init__(name="pullback helps", daemon=True)
        self.calls: SimpleQueue[tuple[Callable[..., Any], Sequence[Any], int] | None] = SimpleQueue()
        self.completions: SimpleQueue[tuple[float, Exception | None]] = SimpleQueue()
        self.start()

    def run(self) -> None:
        """Make calls until None arrives, and then be on another core than that of who asked, for the next one.

        Each completion is the CPU seconds it took and the error it raised.
        """
        while (call := self.calls.get()) is not None:
            error = None
            start = thread_time()
            try:
                call[0](*call[1])
            except Exception as raised:
                error = raised
            self.completions.put((thread_time() - start, error))
            # not before the call: a thread that waits for a busy core would hold it up
            _leave_core(call[2])

    def completed(self) -> float:
        """Wait for the call that was begun, raise its error, and return the CPU seconds it took."""
        while True:
            try:
                # not for ever: an interrupt by another thread, as of a notebook, does not wake this one
                seconds, error = self.completions.get(timeout=0.1)
            except Empty:
                continue
            if error is not None:
                raise error
            return seconds

    def dismiss(self) -> None:
        """Wait until all queued calls are done, even after Ctrl-C: the arrays they use must outlive them."""
        last = threading.Event()
        self.calls.put((last.set, (), -1))
        self.calls.put(None)
        while not last.is_set():
            try:
                last.wait()
            except KeyboardInterrupt:
                continue


_IDLE: deque[_Helper] = deque()


def run_side_by_side(
    function: Callable[..., Any], arguments: Sequence[Sequence[Any]], sharing: Sharing | None = None
) -> None:
    """Call a function once with each tuple of arguments, at the same time; the first call is made on this thread.

    Calls that another thread has not begun when this one is done, on a busy machine, are made here too.
    """
    if sharing is not None and not sharing.is_worth_it():
        for given in arguments:
            function(*given)
        return
    helpers: list[_Helper] = []
    start, start_busy = perf_counter(), thread_time()
    busy, core = 0.0, _current_core()
    try:
        for others in arguments[1:]:
            helpers.append(_idle_helper())
            helpers[-1].calls.put((function, others, core))
        function(*arguments[0])
        for helper in helpers:
            try:
                waiting = helper.calls.get_nowait()
            except Empty:
                busy += helper.completed()
                continue
            assert waiting is not None
            waiting[0](*waiting[1])
    except BaseException:
        # after an interrupt nobody knows which calls have begun: these helpers are not used again
        for helper in helpers:
            helper.dismiss()
        raise
    _IDLE.extend(helpers)
    if sharing is not None:
        sharing.learn(perf_counter() - start, busy + thread_time() - start_busy)


def run_interruptibly(work: Callable[[int], None], shards: int, stop: c_int32) -> None:
    """Call `work(shard)` for every shard on another thread; Ctrl-C sets `stop` to 1, at which they should return."""
    helpers: list[_Helper] = []
    try:
        for shard in range(shards):
            helpers.append(_idle_helper())
            helpers[-1].calls.put((work, (shard,), -1))
        for helper in helpers:
            helper.completed()
    except BaseException:
        stop.value = 1
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
    _IDLE.clear()


os.register_at_fork(after_in_child=_after_fork)
