"""The task pour: the Panda pours a cup into another."""

from types import SimpleNamespace

import pytest
import torch

from pullback.tasks.pour import AIM_UNIT, CELL, HAND, Options, Task, run


def test_the_aim_is_where_the_stream_passes_the_rim(monkeypatch):
    """Of three particles one falls beside the cup and is pushed away, one falls into it, and one never falls."""
    task = Task(range(1), steps=10)
    x, y, z = (task.middle + torch.tensor([0.0, 0.0, float(task.half[2]) - 0.5 * CELL])).tolist()
    edge = float(task.half[1]) - 0.5 * CELL
    x = torch.tensor(
        [
            [[x, y - edge - 0.01, z + 0.03], [x, y, z + 0.03], [x, y, z + 0.04]],
            [[x, y - edge - 0.03, z - 0.01], [x, y, z - 0.05], [x, y, z + 0.02]],
            [[x, y - edge - 0.20, z - 0.09], [x, y, z - 0.08], [x, y, z + 0.02]],
        ]
    )[:, None].requires_grad_()
    monkeypatch.setattr(task, "rollout", lambda *_: SimpleNamespace(soft=SimpleNamespace(x=x)))
    loss = task.aim(task.first_knots())
    # three quarters of the way from the first frame to the second, 25 mm beside the cup; 20 mm above it
    assert float(loss.detach()) == pytest.approx(100.0 * (0.025**2 + 0.02**2) / 3.0, rel=1e-4)
    (g,) = torch.autograd.grad(loss.sum(), x)
    assert float(g[0, 0, 0, 1]) < 0.0
    assert float(g[1, 0, 0, 1]) == pytest.approx(3.0 * float(g[0, 0, 0, 1]), rel=1e-4)
    assert float(g[2, 0, 2, 2]) > 0.0
    assert not g[2, 0, 0].any()


def test_a_hand_moves_to_aim_as_it_is_told():
    task = Task(range(2), steps=10)
    first = task.first_knots()
    change = task.moved(first)(torch.tensor([[0.2, 0.4, 0.0], [0.0, 0.0, 0.8]])) - first
    radians = (change.unflatten(1, (-1, 7)) * task.unit)[:, -1].double()
    q = task._carried(0.0, 0.0, 0.0)[0][:, -1]
    there = q + torch.nn.functional.pad(radians, (0, q.shape[1] - 7))
    (before, _), (after, _) = (task.robot.compute_forward_kinematics(each, HAND) for each in (q, there))
    torch.testing.assert_close((after - before)[0], torch.tensor([0.02, 0.04, 0.0]).double(), rtol=0.0, atol=8e-3)
    # the last joint tilts the cup where it is
    assert float((after - before)[1].norm()) < 2e-3
    assert float(radians[1, 6]) == pytest.approx(-0.8 * AIM_UNIT[2], abs=0.02)


@torch.no_grad()
def test_a_cup_that_is_held_still_loses_nothing():
    task = Task(range(1), steps=150)
    upright = task.held[:, None].expand(-1, 6, -1) / task.unit
    verdict = task.judge(task.watch(upright.flatten(1)))
    assert float(verdict.left) == 1.0


def test_two_iterations_pour_more(tmp_path):
    poured = run(Options(quick=True, seed=1, out=tmp_path))
    aimed, found = poured.aimed.losses, poured.found.losses
    assert (aimed.shape, found.shape) == ((2, 1), (1, 1))
    assert float(aimed[1, 0]) < 0.9 * float(aimed[0, 0])
    assert not poured.before.good.any()
    assert float(poured.after.poured) > float(poured.before.poured) + 0.1
    assert [path.suffix for path in poured.files] == [".npz", ".png", ".html"]


@pytest.mark.slow
def test_all_cups_are_poured(tmp_path):
    poured = run(Options(out=tmp_path))
    assert poured.before.good.sum() <= 1
    assert poured.after.good.all()
