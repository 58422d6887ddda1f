"""The task heat-treatment: layers come nearer to the time asked for, and the report says how near."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.tasks import heat_treatment
from pullback.tasks.heat_treatment import (
    BOUNDS,
    LAYER,
    LIQUIDUS,
    Options,
    build,
    loss_of,
    off,
    points,
    run,
    times_of,
)


@pytest.fixture
def tiny(monkeypatch):
    """Take a wall of five layers, watched for a shorter time."""
    monkeypatch.setitem(heat_treatment.SIZES, "short", (0.006, 5))
    monkeypatch.setattr(heat_treatment, "COOLING", 6.0)


@pytest.mark.usefixtures("tiny")
def test_layers_come_nearer_to_the_time_asked_for(tmp_path, capsys):
    found = run(Options(iterations=6, knots=6, target=3.0, out=tmp_path))
    assert found.result.best_loss < 0.75 * found.result.losses[0]
    assert BOUNDS[0] <= found.power.min()
    assert found.power.max() <= BOUNDS[1]
    temperatures = (found.start_temperatures, found.temperatures)
    before, after = (
        off(times_of(T, found.process.times, Options(target=3.0)), Options(target=3.0)) for T in temperatures
    )
    assert after < 0.9 * before
    text = found.report.read_text(encoding="utf-8")
    for name in ("power.png", "times.png", "histories.png", "loss.png", "temperatures.pvd"):
        assert (tmp_path / name).is_file()
        assert name in text
    assert "3 s from 823 to 993 K, layers 3 on" in text
    assert "initial loss [s²]" in capsys.readouterr().out


@pytest.mark.usefixtures("tiny")
def test_the_loss_is_made_of_times_and_of_what_does_not_melt():
    options = Options(target=2.0)
    process = build(options)
    T = process.run(300.0, probes=process.probes(points(options))).probes
    # counted by hand: states between the two temperatures
    counted = ((options.low < T) & (options.high > T)).sum(0) * process.dt
    torch.testing.assert_close(times_of(T, process.times, options), counted.to(T), rtol=0.0, atol=0.15)
    missing = (LIQUIDUS + 25.0 - T.amax(0)).clamp(min=0.0) / 25.0
    assert missing.max() > 1.0
    expected = (times_of(T, process.times, options)[2:] - 2.0).square().mean() + missing.square().mean()
    torch.testing.assert_close(loss_of(T, process.times, options), expected)


@pytest.mark.usefixtures("tiny")
def test_what_a_probe_sees_before_its_layer_is_there_does_not_count(tmp_path):
    found = run(Options(iterations=1, optimizer="adam", out=tmp_path))
    born = found.process.births_at(points(Options()))
    assert (born[1:] > born[:-1]).all()
    for k, time in enumerate(born):
        seen = found.temperatures[found.process.times < time, k]
        assert (seen == 300.0).all()
        assert found.temperatures[found.process.times >= time, k].max() > 1000.0


def test_the_full_wall_is_the_published_one():
    process = build(Options(wall="full"))
    # 40 tracks of 45 mm at 7 mm/s, 0.607 s between them
    assert process.path.duration == pytest.approx(280.8, abs=0.1)
    assert np.ptp(process.mesh.nodes[process.mesh.elements[process.mesh.element_set("build")]], axis=(0, 1)) == (
        pytest.approx([0.045, 0.003, 40 * LAYER])
    )


def test_what_makes_no_sense_is_refused():
    with pytest.raises(pb.PullbackError, match="skip is 12; the wall has 12 layers"):
        run(Options(skip=12))
    with pytest.raises(pb.PullbackError, match="target is 0 s; give a positive time"):
        run(Options(target=0.0))
