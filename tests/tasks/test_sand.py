"""The task sand: a leg pulls a robot through sand."""

import pytest
import torch

from pullback.tasks.sand import BED, FOOT, GOAL, Leg, Options, run


@torch.no_grad()
def test_a_leg_that_rests_stays_where_it_is():
    task = Leg(steps=100)
    motion = task.watch(torch.zeros(1, 10))
    assert abs(float(task.way(motion))) < 1e-3
    # the sole is above the sand, which rests
    assert float(task.feet(motion)[1][0]) - 0.5 * FOOT[2] >= BED[2]
    assert float((motion.soft.x[-1] - motion.soft.x[0]).norm(dim=-1).max()) < 5e-3


def test_two_iterations_turn_its_strokes_around(tmp_path):
    strokes = run(Options(quick=True, out=tmp_path))
    first, second = strokes.found.losses[:, 0].tolist()
    assert second < first - 0.1
    assert [path.suffix for path in strokes.files] == [".npz", ".png", ".html"]


@pytest.mark.slow
def test_it_reaches_its_goal_from_five_seeds(tmp_path):
    assert (run(Options(out=tmp_path)).after >= GOAL).all()
