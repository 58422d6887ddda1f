"""The task leap: the robot leaves the ground, lands where it was asked to and stands; and a Ctrl-C loses nothing."""

import signal

import pytest
import torch

import pullback as pb
from pullback.tasks import leap
from pullback.tasks.common.knots import even_knots
from pullback.tasks.leap import DT, Options, build, loss_of, run, targets_of


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_it_leaps_and_lands_on_its_feet(tmp_path, seed):
    found = run(Options(seed=seed, out=tmp_path))
    assert found.losses.min() < 0.05 * found.losses[0].min()
    assert found.apex == pytest.approx((0.2, 0.7), abs=0.06)
    assert found.end == pytest.approx((0.4, 0.48), abs=0.03)
    # a flight in which all four toes are well above the ground, and half a second later it still stands
    assert found.flight > 0.3
    assert found.clearance.max() > 0.15
    assert found.upright > 0.99
    assert found.q[-1, 2].item() == pytest.approx(0.48, abs=0.02)


def test_a_few_epochs_lower_the_loss_and_give_a_picture(tmp_path, capsys):
    found = run(Options(starts=2, epochs=8, duration=0.6, out=tmp_path / "new" / "folder"))
    assert found.losses.shape == (8, 2)
    assert found.losses.min() < 0.7 * found.losses[0].min()
    assert not found.interrupted
    assert found.picture is not None
    assert found.picture.read_bytes().startswith(b"\x89PNG")
    text = capsys.readouterr().out
    assert "the best of 2 starts after 8 epochs" in text
    assert "at its best" in text


def test_stopped_by_the_user_it_keeps_the_best_and_still_reports(tmp_path, monkeypatch, capsys):
    calls = []

    def impatient(*arguments):
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)
        return loss_of(*arguments)

    monkeypatch.setattr(leap, "loss_of", impatient)
    found = run(Options(starts=2, duration=0.4, out=tmp_path))
    assert found.interrupted
    assert len(found.losses) == 4
    assert "stopped after 4 iterations" in capsys.readouterr().out
    assert found.picture is not None
    assert found.picture.is_file()


def test_what_it_reports_is_the_motion_of_the_best_targets(tmp_path):
    options = Options(starts=2, epochs=3, duration=0.4, out=tmp_path)
    found = run(options)
    steps = round(options.duration / DT)
    sim = build().compile(dt=DT, dtype=torch.float64)
    motion = sim.rollout(sim.initial_state(), found.targets[:steps, None])
    torch.testing.assert_close(motion.q[:, 0], found.q[: steps + 1], rtol=0.0, atol=0.0)
    torch.testing.assert_close(loss_of(motion.q, motion.qd, options)[0], found.losses.min(), rtol=1e-9, atol=0.0)


def test_targets_are_straight_lines_between_knots_the_same_left_and_right():
    between = even_knots(100, 5)
    torch.testing.assert_close(between.sum(1), torch.ones(100, dtype=torch.float64))
    knots = torch.zeros(1, 5, 6, dtype=torch.float64)
    knots[0, 2] = torch.arange(6)
    targets = targets_of(knots, between)[:, 0]
    torch.testing.assert_close(targets[:, :3], targets[:, 3:6])
    torch.testing.assert_close(targets[:, 6:9], targets[:, 9:])
    # the third knot is half way; a quarter of the way between two knots, a quarter of the value
    standing = torch.tensor([0.2, 0.0, -0.5], dtype=torch.float64)
    torch.testing.assert_close(targets[50, :3] - standing, torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64))
    torch.testing.assert_close((targets[30] - targets[25])[7].item(), 0.2 * 4.0)


@pytest.mark.parametrize(("name", "value"), [("starts", 0), ("epochs", 0), ("duration", 0.1), ("height", -1.0)])
def test_what_cannot_be_leapt_is_refused(name, value):
    with pytest.raises(pb.PullbackError, match=rf"{name} is {value}; give at least"):
        run(Options(**{name: value}))
