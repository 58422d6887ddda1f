"""The task pareto-heat: the front is nowhere worse than constant power, and the report has it."""

import numpy as np
import pytest

import pullback as pb
from pullback.tasks.pareto_heat import Options, places, run

SMALL = {"length": 6.0, "layers": 3, "cooling": 2.0, "points": 3, "low": 150.0, "high": 500.0}


def test_the_front_is_beyond_constant_power(tmp_path, capsys):
    front = run(Options(iterations=20, out=tmp_path, **SMALL))
    values = front.values
    assert len(values) == 3
    assert front.wishes[0] == np.inf
    # less and less energy, less and less time
    assert (np.diff(values[:, 0]) < 0.0).all()
    assert (np.diff(values[:, 1]) < 0.0).all()
    assert not any(point.dominated for point in front.found)
    alone = np.interp(values[:, 0], front.constant[:, 0], front.constant[:, 1])
    assert (values[:, 1] > alone - 0.02).all()
    assert values[0, 1] >= front.constant[:, 1].max() - 1e-3
    assert "heat-treatment time against energy spent" in capsys.readouterr().out
    for name in ("report.md", "front.png", "powers.png", "frugal.png", "lavish.png", "temperature.pvd"):
        assert (tmp_path / name).is_file(), name


def test_points_are_inside_the_wall():
    for layers in (1, 2, 6):
        x, y, z = places(Options(layers=layers)).T
        assert (np.abs(x) < 6e-3).all()
        assert (y == 0.0).all()
        assert (z > 0.0).all()
        assert (z < layers * 0.75e-3).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cold": 993.0, "hot": 823.0}, "cold must be below hot"),
        ({"low": 500.0, "high": 400.0}, "expected 0 ≤ low < high"),
        ({"points": 1}, "a front needs two"),
        ({"worth": 0.0}, "worth is 0 kJ"),
        ({"low": 1.0, "high": 5.0}, "no power from 1 to 5 W holds the wall between 823 and 993 K"),
    ],
)
def test_bad_options(options, text, tmp_path):
    with pytest.raises(pb.PullbackError, match=text):
        run(Options(**{**SMALL, "out": tmp_path, **options}))
