"""The task identify-thermal: parameters are found, and what the data does not determine is named."""

import pytest
import torch

import pullback as pb
from pullback.tasks.identify_thermal import Options, run

SMALL = {"length": 4.0, "layers": 1, "cooling": 3.0}


def test_without_noise_the_numbers_are_found(tmp_path, capsys):
    found = run(Options(noise=0.0, iterations=12, out=tmp_path, **SMALL))
    assert (found.start - 1.0).abs().max() > 0.1
    assert (found.found - 1.0).abs().max() < 1e-5
    assert found.losses[-1] < 1e-6 * found.losses[0]
    assert found.names == ["heat_capacity", "conductivity", "convection", "absorptivity"]
    # in the direction of one factor on all four
    assert bool((found.directions[:, -1].sign() == found.directions[0, -1].sign()).all())
    assert any(set(pair[:2]) == {"heat_capacity", "absorptivity"} for pair in found.alike)
    text = capsys.readouterr().out.replace("\n", " ")
    assert "heat_capacity and absorptivity trade off against each other" in text
    assert "condition number" in text
    for name in ("report.md", "temperatures.png", "correlation.png", "loss.png", "temperature.pvd"):
        assert (tmp_path / name).is_file(), name


def test_a_known_number_makes_the_others_better_told(tmp_path):
    options = {"noise": 5.0, "seed": 3, **SMALL}
    everything = run(Options(out=tmp_path / "all", **options))
    known = run(Options(known=("absorptivity",), out=tmp_path / "known", **options))
    assert known.names == ["heat_capacity", "conductivity", "convection"]
    assert bool((known.standard_error[:2] < 0.6 * everything.standard_error[:2]).all())
    # errors are what the noise explains
    assert bool(((known.found - 1.0).abs() < 4.0 * known.standard_error).all())
    assert torch.allclose(known.correlation.diagonal(), torch.ones(3, dtype=torch.float64))


def test_a_run_goes_on_where_it_was_stopped(tmp_path):
    whole = run(Options(iterations=3, out=tmp_path / "whole", **SMALL))
    run(Options(iterations=2, out=tmp_path / "parts", **SMALL))
    parts = run(Options(iterations=3, out=tmp_path / "parts", **SMALL))
    assert torch.equal(parts.found, whole.found)
    assert parts.losses == whole.losses
    # a search that has used up its iterations is only reported again
    assert run(Options(iterations=3, out=tmp_path / "parts", **SMALL)).losses == whole.losses
    with pytest.raises(pb.PullbackError, match=r"noise = 5\.0, now it is 1\.0; give another --out, or --fresh"):
        run(Options(iterations=3, noise=1.0, out=tmp_path / "parts", **SMALL))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"known": ("absorptvity",)}, "no parameter named 'absorptvity'; did you mean 'absorptivity'"),
        ({"known": ("heat_capacity", "conductivity", "convection", "absorptivity")}, "there is nothing to find"),
        ({"wrong_by": 1.0}, "expected more than 1"),
        ({"iterations": 0}, "iterations is 0; give 1 or more"),
        ({"noise": -1.0}, "noise is -1 K"),
    ],
)
def test_bad_options(options, text):
    with pytest.raises(pb.PullbackError, match=text):
        run(Options(**options))
