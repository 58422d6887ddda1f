"""Threads that share a launch are on cores of their own."""

import os
import threading

import pytest

from pullback.core import threads


@pytest.mark.skipif(threads._current_core() < 0, reason="this system does not say which core a thread runs on")
@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: [0])(0)) < 2, reason="one core")
def test_a_helper_leaves_the_core_of_who_asked():
    where: list[int] = []
    allowed = os.sched_getaffinity(0)

    def leave() -> None:
        core = threads._current_core()
        threads._leave_core(core)
        where.extend([core, threads._current_core()])
        assert os.sched_getaffinity(0) == allowed

    # the system may move a thread back at any time: once in ten is enough to see that it moved
    for _ in range(10):
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
    pairs = list(zip(where[::2], where[1::2]))
    assert len(pairs) == 10
    assert any(before != after for before, after in pairs)


def test_nothing_moves_where_the_core_is_not_known(monkeypatch):
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: pytest.fail("moved"), raising=False)
    threads._leave_core(-1)
