"""The task lift-ball: the Panda lifts a soft ball without crushing it."""

import pytest
import torch

from pullback.tasks.lift_ball import FINGER_UNIT, TRIED, Options, Task, run


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


def test_the_best_of_a_few_grips_is_taken(short, monkeypatch):
    task, knots = short
    wanted = (FINGER_UNIT * knots[:, -1] + TRIED[1] + 1e-4) / FINGER_UNIT
    monkeypatch.setattr(task, "loss", lambda z: (z[:, -1] - wanted).abs())
    best = task.with_best_grip(knots)
    torch.testing.assert_close(FINGER_UNIT * (best - knots)[:, -1], torch.full((1,), TRIED[1]).to(knots))
    assert torch.equal(best[:, :-1], knots[:, :-1])
    # a world that failed is not the best one
    monkeypatch.setattr(task, "loss", lambda z: torch.where(z[:, -1] < knots[:, -1], torch.nan, z[:, -1]))
    assert torch.equal(task.with_best_grip(knots), knots)


@pytest.mark.slow
def test_all_balls_are_lifted(tmp_path):
    lifted = run(Options(out=tmp_path))
    assert not lifted.before.lifted.any()
    assert lifted.after.lifted.all()
    assert [path.suffix for path in lifted.files] == [".npz", ".png", ".html"]
