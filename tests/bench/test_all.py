"""The runner of all benchmarks: cells by name, rows kept apart, figures only after equal results."""

import json
import shlex
import signal
from functools import partial

import numpy as np
import pytest
import torch

import pullback as pb
from bench import all as bench_all
from bench import engines, models, scaling, tapes, ten
from bench.benchmark import Benchmark, Cell, NoResultError, NotHereError, Options, TooMuchError, markdown, spread
from bench.environments import run_in
from bench.laikago_arrays import laikago_arrays
from bench.laikagos import stand
from bench.peers import laikago_step, torch_tape
from bench.peers.contestant import Job
from bench.peers.engine import errors_of

# float64, 20 steps; impulses of sweeps stop where they change by less than 1e-11
SAME = 1e-8

TIMES = {"size": 0, "forward": spread([1.0]), "backward": spread([1.0])}
WAYS = ("forward", "backward", "every_forward", "every_backward")


def answer(value: float) -> dict:
    if value < 0.0:
        raise NoResultError("does not install: no such package")
    return {"value": value}


def toy(**more: Cell) -> Benchmark:
    cells = {"fast/1": partial(answer, 1.0), "fast/2": partial(answer, 2.0), "gone": partial(answer, -1.0), **more}

    def tables(rows: dict) -> list[str]:
        return [f"{name} {row.get('value', row.get('failed'))}" for name, row in rows.items()]

    return Benchmark("toy", "A toy", "How fast?", "None.", "None.", lambda _: cells, tables)


@pytest.fixture
def runner(monkeypatch, tmp_path):
    monkeypatch.setattr(bench_all, "BENCHMARKS", (toy(),))
    # a folder that is not there yet
    path = tmp_path / "new" / "rows.json"
    return lambda *words: bench_all.main([*words, "--json", str(path)]), path.parent


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


def test_larger_settings_are_not_tried_after_one_that_takes_too_much(monkeypatch, tmp_path):
    def slow() -> dict:
        raise TooMuchError("over 180 s")

    cells = {"slow/5": slow, "slow/6": partial(answer, 1.0), "slow/7": partial(answer, 1.0)}
    found = {}
    for grows in (True, False):
        # a competitor of that name in another benchmark is none of its business
        other = toy(**{"slow/7": partial(answer, 3.0)})._replace(name="other")
        monkeypatch.setattr(bench_all, "BENCHMARKS", (toy(**cells)._replace(grows=grows), other))
        path = tmp_path / f"{grows}.json"
        bench_all.main(["--json", str(path)])
        rows = json.loads(path.read_text())
        found[grows] = rows["toy"]
        assert rows["other"]["slow/7"]["value"] == 3.0
    assert [found[True][f"slow/{k}"]["failed"] for k in (5, 6, 7)] == ["over 180 s", *["over 180 s at 5"] * 2]
    assert found[True]["fast/2"]["value"] == 2.0
    assert found[False]["slow/6"]["value"] == 1.0


def test_figures_of_a_machine_with_a_gpu_stay_on_one_without(monkeypatch, tmp_path):
    def needs_a_gpu() -> dict:
        raise NotHereError("no GPU")

    path = tmp_path / "rows.json"
    for cell in (needs_a_gpu, partial(answer, 5.0), needs_a_gpu):
        monkeypatch.setattr(bench_all, "BENCHMARKS", (toy(large=cell),))
        bench_all.main(["toy/large", "--json", str(path)])
        row = json.loads(path.read_text())["toy"]["large"]
        if cell is needs_a_gpu and "value" not in row:
            assert row["failed"] == "no GPU"
    assert row["value"] == 5.0


def test_an_unknown_cell_is_an_error(runner):
    with pytest.raises(SystemExit, match="no cell begins with toy/fa; see --list"):
        runner[0]("toy/fa")


def test_one_unknown_cell_of_several_is_an_error(runner):
    with pytest.raises(SystemExit, match="no cell begins with toy/slow; see --list"):
        runner[0]("toy/fast", "toy/slow")


def test_a_cell_that_breaks_is_a_row_and_others_go_on(runner, monkeypatch, capsys):
    def broken() -> dict:
        raise ValueError("two\nlines")

    run, folder = runner
    monkeypatch.setattr(bench_all, "BENCHMARKS", (toy(broken=broken, last=partial(answer, 3.0)),))
    run()
    rows = json.loads((folder / "rows.json").read_text())["toy"]
    assert rows["broken"]["failed"] == "failed: ValueError: two lines"
    assert rows["last"]["value"] == 3.0
    printed = capsys.readouterr().out
    assert "3 cells with figures, 2 without" in printed
    assert "  toy/gone: does not install: no such package" in printed


def test_an_interrupt_keeps_rows_and_says_how_to_go_on(runner, monkeypatch, capsys):
    def interrupted() -> dict:
        raise KeyboardInterrupt

    run, folder = runner
    stopping = toy(stop=interrupted, last=partial(answer, 3.0))
    monkeypatch.setattr(bench_all, "BENCHMARKS", (stopping,))
    with pytest.raises(SystemExit) as stopped:
        run("toy")
    assert stopped.value.code == 130
    assert set(json.loads((folder / "rows.json").read_text())["toy"]) == {"fast/1", "fast/2", "gone"}
    printed = capsys.readouterr().err
    assert "stopped at toy/stop; the rows so far are kept in " in printed
    command = shlex.split(printed.splitlines()[-1])
    assert command[1:3] == ["-m", "bench.all"]
    monkeypatch.setattr(bench_all, "BENCHMARKS", (toy(stop=partial(answer, 5.0), last=partial(answer, 3.0)),))
    (folder / "rows.json").write_text((folder / "rows.json").read_text().replace("1.0", "7.0"))
    bench_all.main(command[3:])
    rows = json.loads((folder / "rows.json").read_text())["toy"]
    assert [rows[name]["value"] for name in ("fast/1", "stop", "last")] == [7.0, 5.0, 3.0]


def test_kill_ends_the_command_as_ctrl_c_does():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        bench_all.heed_signals()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_going_on_from_a_cell_that_was_not_asked_for_is_an_error(runner):
    with pytest.raises(SystemExit, match="no cell to go on from begins with toy/gone; see --list"):
        runner[0]("toy/fast", "--from", "toy/gone")


def test_a_bar_in_a_reason_stays_in_its_cell():
    assert markdown(["a"], [["x | y"]])[2] == "| x \\| y |"


def test_pages_name_what_has_no_figures():
    gone = {"failed": "over 180 s"}
    lines = scaling.tables({"contacts/0": TIMES, "contacts/5": TIMES | {"size": 5}, "contacts/20": gone})
    assert "| contacts | 20 | over 180 s |  |" in lines
    assert not any("exponent" in line for line in lines)
    assert "| 5,000 | 2 | over 180 s |  |  |  |" in ten.tables({"5000/2": gone})
    bars = tapes.bars({"PyTorch/1000": gone})
    assert [(bar.figure, bar.holds) for bar in bars] == [("over 180 s", None)] * 2


def test_pages_show_what_was_not_measured():
    for each in (tapes, engines, models, ten, scaling):
        names = each.BENCHMARK.cells(Options())
        lines = each.tables({})
        assert sum(line.count("| – ") for line in lines) >= len(names)
    assert "| Brax, positional | – |  |  |  |  |  |  |  |  |" in engines.tables({})


def test_ten_robots_are_shown_by_interval_in_whatever_order_they_were_measured():
    row = {"steps": 1000, "memory": 1.0, **{name: spread([1.0]) for name in WAYS}}
    rows = {f"1000/{k}": row | {"interval": k} for k in (1, 100, 10)}
    lines = [line.split(" | ") for line in ten.tables(rows)[2:]]
    assert [line[1] for line in lines[:7]] == ["1", "2", "5", "10", "20", "50", "100"]
    assert [line[1] for line in lines if line[2] != "–"] == ["1", "10", "100"]


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
