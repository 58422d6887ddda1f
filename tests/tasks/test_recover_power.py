"""The task recover-power: the loss falls as far as published, and a run that was stopped goes on."""

import signal
from pathlib import Path

import pytest
import torch

import pullback as pb
import pullback.thermal as th
from pullback.tasks import recover_power
from pullback.tasks.recover_power import FULL_POWER, Options, build, observation_step, pattern, run


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    """Take the hourglass in seven layers: cells of 4 mm."""
    monkeypatch.setitem(recover_power.CELL, "small", 4e-3)
    monkeypatch.setitem(recover_power.DT, "small", 0.4)


def test_the_power_is_found_again(tmp_path, capsys):
    found = run(Options(iterations=60, seed=1, out=tmp_path))
    assert found.result.reduction > 20.0
    lit = torch.as_tensor(found.process.laser.on)
    before = (found.start - found.hidden)[lit].square().mean().sqrt().item()
    assert found.power_error < 0.35 * before
    text = found.report.read_text(encoding="utf-8")
    assert all((tmp_path / name).is_file() for name in ("power.png", "histories.png", "loss.png", "temperatures.pvd"))
    assert f"| times smaller | {found.result.reduction:.5g} |" in text
    assert "initial loss [K²]" in capsys.readouterr().out


def test_stopped_and_run_again_it_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch, capsys):
    whole = run(Options(iterations=5, out=tmp_path / "whole"))
    original, calls = th.Process.run, []

    def impatient(self, *arguments, **options):
        calls.append(1)
        # the first run makes the target
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)
        return original(self, *arguments, **options)

    monkeypatch.setattr(th.Process, "run", impatient)
    first = run(Options(iterations=5, out=tmp_path / "stopped"))
    assert len(first.result.losses) == 3
    assert first.report.is_file()
    assert "stopped after 3 iterations" in capsys.readouterr().out
    second = run(Options(iterations=5, out=tmp_path / "stopped"))
    assert second.result.losses == whole.result.losses
    assert torch.equal(second.power, whole.power)
    with pytest.raises(pb.PullbackError, match="was written with seed = 0, now it is 1; give another folder"):
        run(Options(iterations=5, seed=1, out=tmp_path / "stopped"))
    assert len(run(Options(iterations=1, seed=1, fresh=True, out=tmp_path / "stopped")).result.losses) == 1


@pytest.mark.parametrize("seed", [0, 1])
def test_the_hidden_power_fills_its_bounds_and_has_no_faster_waves(seed):
    power = pattern(1000, 5, seed)
    assert power.min().item() == pytest.approx(0.2 * FULL_POWER)
    assert power.max().item() == pytest.approx(FULL_POWER)
    spectrum = torch.fft.rfft(power - power.mean()).abs()
    assert spectrum[1:6].min() > 1.0
    assert spectrum[6:].max() < 1e-9
    assert torch.equal(power, pattern(1000, 5, seed))
    assert not torch.equal(power, pattern(1000, 5, seed + 1))


def test_the_published_files_give_the_published_print():
    data = Path(__file__).parents[1] / "thermal" / "data"
    options = Options(mesh=data / "hourglass.k.xz", toolpath=data / "hourglass_toolpath.crs.xz", size="full")
    process = build(options)
    assert (len(process.mesh.nodes), len(process.mesh.elements), process.steps) == (18_438, 15_070, 16_673)
    assert process.dt == 0.02 < process.stable_dt
    assert observation_step(options, process) == 50


def test_what_makes_no_sense_is_refused(tmp_path):
    with pytest.raises(pb.PullbackError, match="give both --mesh and --toolpath, or neither"):
        run(Options(mesh=tmp_path / "x.k"))
    with pytest.raises(pb.PullbackError, match="observe is 0; give at least 1"):
        run(Options(observe=0))
    with pytest.raises(pb.PullbackError, match="waves is 0; give at least 1"):
        run(Options(waves=0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_loss_falls_as_far_as_published(tmp_path, monkeypatch, seed):
    monkeypatch.undo()
    assert run(Options(seed=seed, out=tmp_path)).result.reduction > recover_power.REDUCTION


def test_the_hourglass_of_full_size_waits_for_its_support():
    process = build(Options(size="full"))
    assert len(process.mesh.elements) > 9_000
