"""The task crawl: a soft robot learns to move."""

import pytest
import torch

from pullback.tasks.crawl import GOAL, Crawler, Options, run


def test_a_few_iterations_teach_it_to_move(tmp_path):
    found = run(Options(iterations=8, starts=2, cma_iterations=0, out=tmp_path))
    first = float(found.comparison.gradient.losses[0].min())
    assert found.way > 1.0 - first + 0.15
    assert found.picture.read_bytes().startswith(b"\x89PNG")


def test_without_muscles_it_stands_still():
    crawler = Crawler()
    with torch.no_grad():
        moved = 1.0 - float(crawler.loss(torch.zeros(1, 20)))
    assert abs(moved) < 5e-3


@pytest.mark.slow
def test_it_reaches_its_goal_from_five_seeds(tmp_path):
    for seed in range(5):
        found = run(Options(cma_iterations=0, seed=seed, out=tmp_path))
        assert found.way >= GOAL, seed
