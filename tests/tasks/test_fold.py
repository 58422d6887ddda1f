"""The task fold: the Panda folds a cloth over a board."""

import pytest
import torch

from pullback.tasks.fold import GOAL, Options, Task, run


def test_the_gradient_by_the_arms_targets_is_that_of_differences():
    """Over the first tenth of the way, in which the edge is lifted off the table."""
    task = Task(range(1))
    knots = task.first_knots()
    weights = torch.cos(torch.arange(3.0 * task.coupled.soft.vertices, dtype=torch.float64)).view(-1, 3)

    def shape(at):
        controls = task.controls(at)[: task.steps // 10]
        run = task.coupled.rollout(task.start(), controls, materials={"cloth": task.fabric})
        return (weights * run.final.soft.x[0]).sum()

    given = knots.clone().requires_grad_()
    (found,) = torch.autograd.grad(shape(given), given)
    direction = torch.cos(torch.arange(35.0, dtype=torch.float64))[None]
    h = 1e-4
    with torch.no_grad():
        ends = [float(shape(knots + k * h * direction)) for k in (-2, -1, 1, 2)]
    slope = (8.0 * (ends[2] - ends[1]) - (ends[3] - ends[0])) / (12.0 * h)
    assert abs(slope) > 1e-3
    assert float((found * direction).sum()) == pytest.approx(slope, rel=1e-4)


def test_a_quick_run_writes_its_files(tmp_path):
    folded = run(Options(quick=True, out=tmp_path))
    assert [path.suffix for path in folded.files] == [".npz", ".png", ".html"]
    assert not folded.before.folded.any()
    assert float(folded.found.losses[-1].min()) < 0.8 * float(folded.found.losses[0].min())


@pytest.mark.slow
def test_all_cloths_are_folded(tmp_path):
    folded = run(Options(out=tmp_path))
    assert not folded.before.folded.any()
    assert folded.after.folded.all()
    assert float(folded.after.mean.max()) < GOAL
