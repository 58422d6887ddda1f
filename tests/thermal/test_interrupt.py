"""Ctrl-C in the middle of a run: heard at once, and nothing is broken after it."""

import time

import pytest
import torch

from tests.interrupts import assert_heard
from tests.thermal.cases import wall


def walk_back_for(seconds, final, power):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        torch.autograd.grad(final, power, retain_graph=True)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_interrupted_runs_leave_nothing_broken(backward, threads, monkeypatch):
    monkeypatch.setattr("pullback.core.passes.Pass.ITEMS_PER_THREAD", 8)
    short = wall(threads=threads)
    expected = short.run(300.0).final
    # many seconds of steps; if it is the way back that is interrupted, fewer, walked again and again
    process = wall(duration=20.0 if backward else 1000.0, threads=threads)
    power = torch.full((process.steps,), 100.0, dtype=torch.float64, requires_grad=True)
    final = process.run(power).final.sum() if backward else power
    assert_heard(lambda: walk_back_for(60.0, final, power) if backward else process.run(power))
    assert torch.equal(short.run(300.0).final, expected)
