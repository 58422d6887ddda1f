"""The task racecar: the friction found is that of the sliding car's formula."""

import pytest
import torch

import pullback as pb
from pullback.tasks.racecar import Car, Options, run


def test_ten_iterations_find_the_friction_that_explains_where_the_car_was(tmp_path, capsys):
    found = run(Options(random_iterations=1, out=tmp_path))
    # x = v t - mu g t² / 2
    assert found.friction == pytest.approx(2 * (1.0 - 0.75) / 9.81, rel=5e-3)
    assert found.miss < 1e-6
    reached = found.comparison.reached(found.comparison.gradient, 1.0)
    assert reached is not None
    assert reached <= 6
    assert len(found.comparison.gradient.losses) <= 10
    assert "wheels locked" in capsys.readouterr().out
    assert found.picture.read_bytes().startswith(b"\x89PNG")


def test_wheels_that_turn_are_slowed_less():
    friction = torch.tensor([0.05], dtype=torch.float64)
    ends = {}
    for locked in (True, False):
        with torch.no_grad():
            ends[locked] = Car(False, locked, 0.75).rollout(friction).q[-1, 0, 0].item()
    assert ends[True] == pytest.approx(1.0 - 0.05 * 9.81 / 2, abs=2e-3)
    assert ends[False] > ends[True] + 0.05


def test_the_released_descent_converges_within_ten(tmp_path):
    found = run(Options(variant="released", random_iterations=0, out=tmp_path))
    assert found.miss < 1.5
    assert found.comparison.gradient.reason == "target"


def test_a_place_that_no_friction_explains_is_refused():
    with pytest.raises(pb.PullbackError, match=r"seen is 1\.2"):
        run(Options(seen=1.2))
