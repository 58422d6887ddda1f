"""The task insert-bottle: a short run writes its files, and contact keeps the bottle out of the walls."""

import pytest
import torch

from pullback.core.errors import PullbackError
from pullback.learn import load_policy
from pullback.rigid.state import Status, Trajectory
from pullback.tasks.insert_bottle import Options, Trial, holds, run


def trial(distance, angle, depth, haste=0.9, worlds=10):
    q = torch.zeros(2, worlds, 9)
    motion = Trajectory(q, q, Status.fine(worlds, 1), torch.arange(2))
    numbers = (torch.full((worlds,), x) for x in (distance, angle, 0.0, depth, haste))
    return Trial(*numbers, motion)


def test_what_counts_as_inserted():
    assert trial(0.9e-3, 0.9, 0.9e-4).rate == 1.0
    assert trial(1.1e-3, 0.9, 0.9e-4).rate == 0.0
    assert trial(0.9e-3, 1.1, 0.9e-4).rate == 0.0
    assert trial(0.9e-3, 0.9, 1.1e-4).rate == 0.0
    good, fast = trial(0.9e-3, 0.9, 0.0), trial(0.9e-3, 0.9, 0.0, haste=1.2)
    assert holds({"static": good, "moving": good})
    assert not holds({"static": good, "moving": fast})


def test_what_does_not_fit_is_said(tmp_path):
    with pytest.raises(PullbackError, match="worlds is 0; give at least 1"):
        run(Options(worlds=0, out=tmp_path))
    with pytest.raises(PullbackError, match="shrink is -1; give at least 0"):
        run(Options(shrink=-1, out=tmp_path))


@pytest.mark.slow
def test_a_short_run_writes_all_its_files(tmp_path, capsys):
    options = Options(
        iterations=2, fine_iterations=1, contact_iterations=2, worlds=4, targets=4, shrink=2, shrink_iterations=1,
        ppo=1.0, out=tmp_path, replay=False,
    )  # fmt: skip
    found = run(options)
    assert {"static", "moving", "static, noise", "moving, noise", "static, PPO", "moving, PPO"} == set(found.trials)
    assert list(found.shorter) == [28]
    assert [r.steps for r in found.history] == [120, 240, 360, 480, 600]
    assert found.ppo[-1].steps == 8 * 4 * 30
    assert load_policy(tmp_path / "insert_bottle.pt").sizes == (19, 256, 6)
    assert (tmp_path / "insert_bottle.png").stat().st_size > 10_000
    assert found.microseconds["torch"] > 0.0
    assert "an action on one core" in capsys.readouterr().out
    # walls hold whatever the policy does
    assert found.trials["static"].depth.max() < 5e-3
    options.resume = True
    again = run(options)
    torch.testing.assert_close(again.trials["static"].distance, found.trials["static"].distance)
