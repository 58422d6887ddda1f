"""Ctrl-C in the middle of a rollout: heard at once, and nothing is broken after it."""

import pytest
import torch

import pullback as pb
from tests.interrupts import assert_heard


@pytest.fixture(scope="module")
def sim():
    world = pb.World()
    world.add_ground()
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0, 0, 0.1))
    return world.compile(dt=1e-3, dtype=torch.float64)


def gradient(sim, steps, batch):
    """Return a rollout's last positions and what the way back through it gives."""
    start = sim.initial_state(batch=batch)
    start.qd.requires_grad_()
    last = sim.rollout(start, steps, checkpoint=100).q[-1].sum()
    return last, lambda: torch.autograd.grad(last, start.qd, retain_graph=True)[0]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("backward", [False, True])
def test_an_interrupted_rollout_leaves_nothing_broken(sim, backward, threads):
    pb.set_num_threads(threads)
    try:
        expected = gradient(sim, 50, 4)[1]()
        _, walk_back = gradient(sim, 10_000, 64)

        def work():
            for _ in range(100):
                walk_back() if backward else sim.rollout(sim.initial_state(batch=64), 10_000, checkpoint=1000)

        assert_heard(work)
        assert torch.equal(gradient(sim, 50, 4)[1](), expected)
    finally:
        pb.set_num_threads(None)


@pytest.mark.parametrize("threads", [0, -1, 1.5, "two"])
def test_threads_are_a_whole_number_above_zero(threads):
    with pytest.raises(pb.PullbackError, match="give a whole number above zero, or None"):
        pb.set_num_threads(threads)
