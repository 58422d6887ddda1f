"""The robot benchmark: an arm as SDF, and figures only where results agree."""

import json
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
import torch

import pullback as pb
from bench import models
from bench.benchmark import NoResultError, Options
from bench.environments import INSTALLING, run_in

pytest.importorskip("diff_robot_data")


def test_our_own_library_runs_in_a_process_of_its_own_and_agrees_with_itself():
    job = models.job_of(3, {"seconds": 0.0})
    result = run_in("", "pullback_models", job, cap=300)
    assert result["ABA/value"].shape == (3, 7)
    assert result["ABA/2"].shape == (3, 7)
    assert result["Jacobian/value"].shape == (3, 42)
    arm = pb.load(job["urdf"], dtype=torch.float64)
    tau = arm.compute_inverse_dynamics(*(torch.tensor(job[name]) for name in ("q", "qd", "w")))
    assert np.abs(result["RNEA/value"] - tau.numpy()).max() < 1e-12


def test_results_that_differ_have_no_figure():
    found = {"value": [1.0], "both": [2.0], "reason": ""}
    assert models.entry_of(found, 2, 1e-12)["value"]["median"] == 0.5
    assert models.entry_of(found, 2, 1e-3) == {"reason": "differs by 1e-03"}


def test_the_arm_as_sdf_has_its_masses_and_hinges():
    root = fromstring(models.job_of(1, {})["sdf"])
    masses = [float(each.text) for each in root.iter("mass")]
    arm = pb.load("iiwa7")
    assert sum(masses) == pytest.approx(sum(link.mass for link in arm.model.links))
    assert len([joint for joint in root.iter("joint") if joint.get("type") == "revolute"]) == 7


def test_angles_give_back_the_rotation():
    R = next(joint.origin.rotation for joint in pb.load("iiwa7").model.tree.joints if joint.name.endswith("2"))
    roll, pitch, yaw = models.angles_of(R)
    c, s = np.cos, np.sin
    Rx = np.array([[1, 0, 0], [0, c(roll), -s(roll)], [0, s(roll), c(roll)]])
    Ry = np.array([[c(pitch), 0, s(pitch)], [0, 1, 0], [-s(pitch), 0, c(pitch)]])
    Rz = np.array([[c(yaw), -s(yaw), 0], [s(yaw), c(yaw), 0], [0, 0, 1]])
    assert np.abs(Rz @ Ry @ Rx - R).max() < 1e-12


def test_a_library_is_built_once_a_run_outside_of_the_cap(monkeypatch):
    calls = []

    def building(environment, module, job, *, cap):
        calls.append((module, json.loads(job["settings"]).get("build"), cap))
        raise NoResultError("no g++")

    monkeypatch.setattr(models, "python_of", lambda environment: "python")
    monkeypatch.setattr(models, "run_in", building)
    models.built.cache_clear()
    for batch in (1, 64):
        with pytest.raises(NoResultError, match=r"does not build: no g\+\+"):
            models.measure("Pinocchio, C++", batch, Options(cap=3.0))
    models.built.cache_clear()
    assert calls == [("pinocchio_models", True, INSTALLING)]


def test_building_keeps_no_figures():
    assert run_in("", "pullback_models", models.job_of(1, {"build": True}), cap=300) == {}
