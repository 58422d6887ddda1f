"""The task lift-ball: the Panda lifts a soft ball without crushing it."""

import pytest
import torch

from pullback.tasks.lift_ball import FINGER_UNIT, Options, Task, run


@pytest.fixture(scope="module")
def short():
    """Return a short scene in which the hand closes, and knots."""
    task = Task(1, 0, steps=100, dtype=torch.float64)
    knots = task.first_knots()
    knots[:, :42] = knots[:, :7].repeat(1, 6)
    return task, knots


def test_the_gradient_by_the_fingers_targets_is_that_of_differences(short):
    task, knots = short
    knots = knots.clone()
    knots[:, -1] = 0.026 / FINGER_UNIT
    given = knots.clone().requires_grad_()
    direction = torch.zeros_like(knots)
    direction[:, -1] = 1.0

    def squeeze(at):
        # the mean width of the ball between the fingers, in mm
        run = task.rollout(at, [task.steps], task.steps)
        return 1e3 * run.soft.x[-1, ..., 1].abs().mean()

    (found,) = torch.autograd.grad(squeeze(given), given)
    with torch.no_grad():
        slope = float(squeeze(knots + 1e-6 * direction) - squeeze(knots - 1e-6 * direction)) / 2e-6
    assert abs(slope) > 0.1
    assert float((found * direction).sum()) == pytest.approx(slope, rel=1e-4)


@pytest.mark.slow
def test_most_balls_are_lifted(tmp_path):
    lifted = run(Options(out=tmp_path))
    assert not lifted.before.lifted.any()
    assert lifted.after.lifted.sum() >= 4
    assert [path.suffix for path in lifted.files] == [".npz", ".png", ".html"]
