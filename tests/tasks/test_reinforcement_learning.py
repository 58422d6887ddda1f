"""The tasks of reinforcement learning with the Jacobian: quick versions run, and go on where they stopped."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from pullback.core.errors import PullbackError
from pullback.learn import make
from pullback.tasks import figure_5, table_4, table_5
from pullback.tasks.common.learning_curves import Curves, spread
from pullback.tasks.common.swing_systems import pendulum


def test_table_4_learns_audits_and_resumes(tmp_path, capsys):
    methods = ("ours", "mbpo", "shac", "ilqr")
    found = table_4.run(table_4.Options(quick=True, methods=methods, out=tmp_path))
    assert [curve.method for curve in found.curves] == list(methods)
    assert "Table 4, 2 seeds" in capsys.readouterr().out
    assert "| 0.49 ± 0.01 | 0.5 |" in (tmp_path / "table_4.md").read_text()
    saved = json.loads((tmp_path / "table_4.json").read_text())
    assert len(saved["curves"][0]["notes"]["numerical"]) == 2
    lines = list(csv.DictReader((tmp_path / "table_4.csv").open()))
    assert {line["method"] for line in lines} == set(methods)
    assert (tmp_path / "table_4.png").stat().st_size > 0
    # a finished run is read back, not repeated
    again = table_4.run(table_4.Options(quick=True, methods=("ours",), out=tmp_path, resume=True))
    assert again.curves[0].returns == found.curves[0].returns
    assert again.curves[0].seconds == found.curves[0].seconds


def test_figure_5_compares_with_and_without_extra_samples(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    methods = ("mbpo", "one-row", "ppo")
    found = figure_5.run(figure_5.Options(quick=True, methods=methods, radius=0.0, out=tmp_path))
    assert found.radius in found.errors.radii
    assert found.errors.observation.shape == (7, 4)
    assert "pairs won" in capsys.readouterr().out
    # a finished run is read back, not repeated
    again = figure_5.run(figure_5.Options(quick=True, methods=("ppo",), out=tmp_path, resume=True))
    assert again.curves[0].returns == found.curves[-1].returns
    assert again.curves[0].seconds == found.curves[-1].seconds
    assert {path.name for path in found.files} == {f"figure_5_ant_walk.{end}" for end in ("json", "csv", "md", "png")}


def test_table_5_transplants_into_mujoco(tmp_path):
    for package in ("mujoco", "gymnasium"):
        pytest.importorskip(package)
    found = table_5.run(table_5.Options(quick=True, out=tmp_path))
    here, moved, plain = found.curves
    assert [curve.case for curve in found.curves] == ["ant-walk", "mujoco-ant", "mujoco-ant"]
    assert moved.steps == plain.steps == [0, 8]
    assert moved.returns[0] != plain.returns[0]
    assert len(here.last) == 2
    # where figure-5 keeps it, so that either goes on from the other
    assert figure_5.checkpoint_file(tmp_path, "ant-walk", "sac").exists()


def test_a_learned_swing_is_audited_as_a_planned_one():
    trial = make("swing-up", 2, links=2, dtype=torch.float64)
    actions = torch.tensor([[1.0, -0.5], [0.2, 0.1]], dtype=torch.float64)
    found = table_4.audit_policy(trial, lambda seen: actions, 2)
    total = torch.zeros(2, dtype=torch.float64)
    trial.reset()
    for _ in range(100):
        total += trial.step(actions).reward
    # the sum of rewards is that of the whole motion
    assert found["final_return"] == pytest.approx(total.tolist(), abs=1e-9)
    assert trial.largest == pendulum(2).maximum
    assert np.allclose(np.subtract(found["gained"], found["work"]), found["numerical"])


def test_a_swing_that_became_not_finite_is_not_audited(monkeypatch):
    trial = make("swing-up", 2, links=2, dtype=torch.float64)
    actions, plain = torch.full((2, 2), 0.5, dtype=torch.float64), trial.sim.rollout

    def rollout(*given):
        states = plain(*given)
        q = states.q.clone()
        q[60:, 1] = torch.nan
        return replace(states, q=q)

    whole = table_4.audit_policy(trial, lambda seen: actions, 2)
    monkeypatch.setattr(trial.sim, "rollout", rollout)
    found = table_4.audit_policy(trial, lambda seen: actions, 2)
    for name, (first, second) in found.items():
        assert first == whole[name][0]
        assert second is None


def test_what_does_not_fit_is_said(tmp_path):
    with pytest.raises(PullbackError, match="no method named 'our'; did you mean 'ours'"):
        table_4.run(table_4.Options(methods=("our",), out=tmp_path))
    with pytest.raises(PullbackError, match="give a multiple of 100"):
        table_4.run(table_4.Options(steps=150, out=tmp_path))
    with pytest.raises(PullbackError, match="no method named 'sql'"):
        figure_5.run(figure_5.Options(methods=("sql",), out=tmp_path))


def test_curves_know_when_a_goal_was_reached():
    curve = Curves("sac", "", [10, 20, 30], [[0.0, 1.0], [2.0, 4.0], [1.0, 9.0]], 0.0)
    assert curve.best.tolist() == [2.0, 9.0]
    assert curve.steps_to(3.0) == 20
    assert curve.steps_to(6.0) == float("inf")
    assert spread(np.array([1.0, 2.0, 3.0]), 1) == "2.0 (1.5 to 2.5)"
