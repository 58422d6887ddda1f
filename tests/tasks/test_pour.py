"""The task pour: the Panda pours a cup into another."""

import torch

from pullback.tasks.pour import Options, Task, run


@torch.no_grad()
def test_a_cup_that_is_held_still_loses_nothing():
    task = Task(range(1), steps=150)
    upright = task.held[:, None].expand(-1, 6, -1) / task.unit
    verdict = task.judge(task.watch(upright.flatten(1)))
    assert float(verdict.left) == 1.0


def test_two_iterations_pour_more(tmp_path):
    poured = run(Options(quick=True, seed=1, out=tmp_path))
    assert poured.found.losses.shape == (2, 1)
    assert float(poured.found.losses[1, 0]) < 0.9 * float(poured.found.losses[0, 0])
    assert not poured.before.good.any()
    assert [path.suffix for path in poured.files] == [".npz", ".png", ".html"]
