"""The task hold-melt-pool: the depth comes nearer to the target, and what cannot be held is said."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.tasks.hold_melt_pool import Options, run, settled

SMALL = {"length": 5.0, "layers": 1, "dwell": 0.2}


def test_the_depth_comes_nearer_to_the_target(tmp_path, capsys):
    held = run(Options(iterations=12, out=tmp_path, **SMALL))
    assert held.deviation(held.depth, 0.5e-3) < 0.7 * held.deviation(held.start_depth, 0.5e-3)
    assert float(held.power.min()) >= 50.0
    assert float(held.power.max()) <= 700.0
    assert "melt pool of 0.5 mm, after 12 iterations" in capsys.readouterr().out
    for name in ("report.md", "depth.png", "power.png", "loss.png", "temperature.pvd"):
        assert (tmp_path / name).is_file(), name
    # a run that is done goes on to the same end
    again = run(Options(iterations=12, out=tmp_path, **SMALL))
    assert torch.equal(again.power, held.power)
    assert settled(held.process, 0.0).sum() == held.process.on.sum()
    assert (settled(held.process, 0.25) <= held.process.on).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"target": 0.0}, "target is 0 mm"),
        ({"low": 300.0, "high": 200.0}, "expected 0 ≤ low < high"),
        ({"settle": 10.0}, "longer than every track"),
        ({"target": 1.5, "low": 10.0, "high": 100.0}, r"1.5 mm is out of reach: 100 W all the time give at most 0 mm"),
        ({"target": 0.1, "low": 600.0}, r"0.1 mm is out of reach: 600 W all the time give at least .* mm; lower"),
        ({"layers": 0}, "layers is 0; give at least 1"),
    ],
)
def test_what_cannot_be_held(options, text, tmp_path):
    with pytest.raises(pb.PullbackError, match=text):
        run(Options(**{**SMALL, "out": tmp_path, **options}))


def test_steps_out_of_reach_are_counted(tmp_path, capsys):
    held = run(Options(iterations=1, target=0.45, high=400.0, out=tmp_path, **SMALL))
    assert 0 < held.out_of_reach.sum() < held.asked.sum()
    assert np.all(held.out_of_reach <= held.asked)
    assert (
        f"in {held.out_of_reach.sum()} of {held.asked.sum()} steps the target is out of reach"
        in capsys.readouterr().out
    )
