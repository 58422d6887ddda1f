"""The code of the pages on learning runs."""

import re
from pathlib import Path

import pytest
import torch

from pullback.learn import SHAC, Config

DOCS = Path(__file__).parents[2] / "docs"


def blocks_of(page, kind="python"):
    """Return the code of a page."""
    return re.findall(rf"```{kind}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_first_lines_of_the_page(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxscript")
    monkeypatch.chdir(tmp_path)
    first = blocks_of("learning.md")[0]
    shorter = first.replace("iterations=200", "iterations=2").replace("worlds=64", "worlds=4")
    assert shorter.count("worlds=4") == 2
    exec(shorter, {})
    assert float(capsys.readouterr().out.splitlines()[-1].split("(")[1].split(")")[0].split(",")[0]) < 0.0
    assert {"cart_pole.pt", "policy.pt", "policy.onnx"} <= {file.name for file in Path("out").iterdir()}


def test_the_environment_of_the_page():
    names: dict = {}
    exec(next(block for block in blocks_of("learning.md") if "class Reach" in block), names)
    # in float64 its kernels are those of other tests
    env = names["Reach"](4, seed=1, dtype=torch.float64)
    run = SHAC(env, Config.of(env, horizon=3, critic_passes=1))
    run.iterate()
    assert run.history[-1].gradient_norm > 0.0
    assert env._randomized[0].value.unique().numel() == 4
    assert torch.isfinite(env.state.q).all()


def test_a_robot_is_trained_from_its_urdf(tmp_path, monkeypatch, capsys):
    for package in ("viser", "onnxscript"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    (robot,) = blocks_of("train_your_robot.md", "xml")
    Path("my_arm.urdf").write_text(robot)
    names: dict = {}
    load, task, rest = blocks_of("train_your_robot.md")
    exec(load, names)
    exec(task, names)
    names["MyTask"].episode = 6
    # the page's own settings, for a moment
    shorter = rest.replace("iterations=150, horizon=24", "iterations=2, horizon=4").replace(
        "worlds=64", "worlds=8, dtype=torch.float64"
    )
    assert shorter != rest
    exec(shorter.replace("train(env, config,", "train(env, config, progress=False,"), names)
    assert "off by [m]" in capsys.readouterr().out
    assert all(Path(file).stat().st_size > 0 for file in ("my_policy.pt", "my_policy.onnx", "my_robot.html"))


@pytest.mark.slow
def test_the_robot_learns_to_reach(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (robot,) = blocks_of("train_your_robot.md", "xml")
    Path("my_arm.urdf").write_text(robot)
    names: dict = {}
    _, task, rest = blocks_of("train_your_robot.md")
    exec(task, names)
    exec(rest.split("save_policy(run")[0].replace("train(env, config,", "train(env, config, progress=False,"), names)
    assert names["off"].median() < 0.05


def test_the_look_at_gradients_of_the_page(capsys):
    (look,) = blocks_of("contact_gradients.md")
    exec(look, {})
    assert "first over zeroth order" in capsys.readouterr().out


def test_algorithms_of_the_page_run():
    names: dict = {}
    exec(next(block for block in blocks_of("learning.md") if "AHACConfig" in block), names)
    assert {"horizon", "stiffness"} == set(names["run"].history[-1].extra)
    assert {"temperature", "entropy"} == set(names["other"].history[-1].extra)


def test_the_enhancements_of_the_page_run():
    (block,) = blocks_of("reinforcement_learning.md")
    names: dict = {}
    exec(block.replace("links=1)", "links=1, dtype=torch.float64)"), {"torch": torch, **names}, names)
    assert len(names["run"].history[-1].returns) == 2
    # nine extra samples of each of 100 actions an epoch
    assert names["other"].replay.count == 2000
