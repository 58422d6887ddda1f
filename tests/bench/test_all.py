"""The runner of all benchmarks: cells by name, rows kept apart, figures only after equal results."""

import json
from functools import partial

import numpy as np
import pytest
import torch

import pullback as pb
from bench import all as bench_all
from bench import tapes
from bench.benchmark import Benchmark, NoResultError, Options, spread
from bench.environments import run_in
from bench.laikago_arrays import laikago_arrays
from bench.laikagos import stand
from bench.peers import laikago_step, torch_tape
from bench.peers.contestant import Job
from bench.peers.engine import errors_of

# float64, 20 steps; impulses of sweeps stop where they change by less than 1e-11
SAME = 1e-8


def answer(value: float) -> dict:
    if value < 0.0:
        raise NoResultError("does not install: no such package")
    return {"value": value}


def toy() -> Benchmark:
    cells = {"fast/1": partial(answer, 1.0), "fast/2": partial(answer, 2.0), "gone": partial(answer, -1.0)}

    def tables(rows: dict) -> list[str]:
        return [f"{name} {row.get('value', row.get('failed'))}" for name, row in rows.items()]

    return Benchmark("toy", "A toy", "How fast?", "None.", "None.", lambda _: cells, tables)


@pytest.fixture
def runner(monkeypatch, tmp_path):
    monkeypatch.setattr(bench_all, "BENCHMARKS", (toy(),))
    return lambda *words: bench_all.main([*words, "--json", str(tmp_path / "rows.json")]), tmp_path


def test_rows_of_several_runs_are_kept_in_one_file(runner):
    run, folder = runner
    run("toy/fast/1")
    run("toy/gone")
    rows = json.loads((folder / "rows.json").read_text())["toy"]
    assert set(rows) == {"fast/1", "gone"}
    assert rows["gone"]["failed"].startswith("does not install")
    assert rows["fast/1"]["machine"]
    assert rows["fast/1"]["date"]
    page = (folder / "measured.md").read_text()
    assert "fast/1 1.0" in page
    assert "gone does not install" in page
    assert "python -m bench.all toy" in page


def test_missing_leaves_rows_that_are_there(runner):
    run, folder = runner
    run("toy/fast/1")
    (folder / "rows.json").write_text((folder / "rows.json").read_text().replace("1.0", "7.0"))
    run("--missing")
    rows = json.loads((folder / "rows.json").read_text())["toy"]
    assert rows["fast/1"]["value"] == 7.0
    assert rows["fast/2"]["value"] == 2.0


def test_an_unknown_cell_is_an_error(runner):
    with pytest.raises(SystemExit, match="no cell begins with toy/fa; see --list"):
        runner[0]("toy/fa")


def test_spread_is_median_and_quartiles():
    assert spread([3.0, 1.0, 2.0, 4.0, 5.0]) == {"median": 3.0, "low": 1.5, "high": 4.5, "calls": 5}
    assert spread([2.0])["median"] == 2.0


@pytest.mark.parametrize("module", ["pullback_tape", "torch_tape"])
def test_a_competitor_computes_our_rollout_in_a_process_of_its_own(module):
    job = tapes.job_of(3, {"seconds": 0.0})
    result = run_in("", module, job, cap=300)
    standing = stand()
    controls = torch.tensor(job["controls"])[:, None]
    last = standing.sim.rollout(standing.state, controls)[-1]
    assert np.abs(result["q"] - last.q[0].numpy()).max() < SAME
    assert np.abs(result["qd"] - last.qd[0].numpy()).max() < SAME
    figures = tapes.figures(result, 3)
    assert figures["memory"] >= 0.0
    assert figures["forward"]["median"] > 0.0


def test_the_step_of_array_libraries_is_ours_and_so_is_its_gradient():
    job = tapes.job_of(20, {})
    arrays = {name: x for name, x in job.items() if name not in ("q", "qd", "controls", "settings")}
    functions = torch_tape.prepare(Job(arrays, job["q"], job["qd"], job["controls"], {}))
    adj_q, adj_qd, adj_controls = functions.gradient()
    standing = stand()
    leaves = [x.clone().requires_grad_() for x in (standing.state.q, standing.state.qd)]
    controls = torch.tensor(job["controls"])[:, None].requires_grad_()
    last = standing.sim.rollout(pb.State(leaves[0], leaves[1]), controls)[-1]
    found = torch.autograd.grad(last.q.square().sum() + last.qd.square().sum(), [*leaves, controls])
    for ours, theirs in zip(found, (adj_q, adj_qd, adj_controls)):
        assert np.abs(ours.squeeze().numpy() - theirs).max() < SAME * float(ours.abs().max())


def test_results_that_differ_have_no_figures(monkeypatch):
    def other_physics(environment, module, job, *, cap):
        value = 1.0 if module == "pullback_tape" else 1.1
        figures = json.dumps({"both": [1.0], "forward": [1.0], "memory": 1, "compiling": 0, "versions": {}})
        return {"q": np.full(3, value), "figures": np.array(figures)}

    monkeypatch.setattr(tapes, "run_in", other_physics)
    with pytest.raises(NoResultError, match=r"results differ by 1\.0e-01"):
        tapes.measure("PyTorch", 2, Options())


def test_a_wrong_gradient_shows_in_its_error():
    controls = np.linspace(0.0, 1.0, 24).reshape(2, 12)
    gradient = np.cos(controls)
    error, scatter = errors_of(lambda u: float(np.sin(u).sum()), controls, gradient)
    assert error < 1e-9
    assert scatter < 1e-9
    assert errors_of(lambda u: float(np.sin(u).sum()), controls, 1.1 * gradient)[0] > 0.05
    assert errors_of(lambda u: float("nan"), controls, gradient)[0] == float("inf")


def test_arrays_are_those_of_the_robot():
    arrays = laikago_arrays()
    dog = pb.load("laikago", base="floating")
    total = arrays["mass"].sum() + arrays["base_mass"]
    assert total == pytest.approx(sum(link.mass for link in dog.model.links))
    assert laikago_step.SWEEPS == 50
