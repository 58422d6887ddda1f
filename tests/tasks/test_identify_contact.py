"""The task identify-contact finds numbers from MuJoCo's motion, and says what it needs."""

import builtins

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.tasks.common.mujoco_scenes import make_scene, with_noise
from pullback.tasks.identify_contact import Options, run

pytest.importorskip("mujoco")


def test_a_ball_that_rolls_gives_away_its_friction_and_its_radius(tmp_path, capsys):
    found = run(Options(scene="roll", methods=("lm",), seconds=0.3, window=15, out=tmp_path))
    assert found.error("lm").max() < 0.02
    search = found.searches["lm"]
    assert search.losses[-1] < 1e-2 * search.losses[0]
    text = capsys.readouterr().out
    assert "friction of ball" in text
    assert "Levenberg" in text
    assert found.picture is not None
    assert found.picture.read_bytes().startswith(b"\x89PNG")
    saved = np.load(tmp_path / "identify_contact_roll.npz")
    assert saved["lm_numbers"].shape == (len(search.losses), 2)
    assert saved["q0"].shape == (31, 7)


def test_a_pushed_sled_gives_away_its_mass_and_its_friction(tmp_path):
    # mass shows as the sled speeds up, friction as it slides
    found = run(Options(scene="push", methods=("lm",), seconds=0.4, window=20, iterations=6, out=tmp_path))
    assert found.error("lm").max() < 0.05


def test_searches_start_alike_and_the_same_seed_gives_the_same_numbers(tmp_path):
    options = Options(scene="roll", methods=("lm", "adam"), seconds=0.2, noise=0.01, iterations=2, seed=3, out=tmp_path)
    first, second = run(options), run(options)
    torch.testing.assert_close(first.searches["lm"].path[0], first.searches["adam"].path[0], rtol=0.0, atol=0.0)
    for method in ("lm", "adam"):
        torch.testing.assert_close(first.searches[method].numbers, second.searches[method].numbers, rtol=0.0, atol=0.0)


def test_noise_is_a_share_of_what_each_number_varies_by():
    clean = make_scene("roll", seconds=0.5).recordings
    noisy = with_noise(clean, 0.01, torch.Generator().manual_seed(0))
    for a, b in zip(clean, noisy):
        share = (b.qd - a.qd).std(0) / a.qd.std(0)
        assert ((share > 0.005) & (share < 0.015)).all()


def test_without_mujoco_it_says_how_to_get_it(tmp_path, monkeypatch):
    real = builtins.__import__

    def missing(name, *arguments, **options):
        if name == "mujoco":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(pb.PullbackError, match=r'not installed; pip install "pullback\[mjcf\]"'):
        run(Options(out=tmp_path))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (Options(noise=-0.1), "noise is -0.1; it cannot be negative"),
        (Options(window=-1), "window is -1"),
        (Options(methods=()), "methods is empty; choose from: lm, adam, cma"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(options, text):
    with pytest.raises(pb.PullbackError, match=text):
        run(options)
