"""Sweeps: every combination once, whatever is killed on the way; poor runs stop early; one table and one picture."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from pullback.cli import main as command_line
from pullback.cli.sweep.grid import open_sweep
from pullback.cli.sweep.halving import Halving
from pullback.core.errors import PullbackError
from tests.scale import sweep_driver
from tests.scale.launch import ROOT

COUNT = 8


def attempts(folder):
    """Return how often each run was started."""
    return {f.parent.name: len(f.read_text().splitlines()) for f in sorted(folder.glob("*/attempts"))}


def finished(folder):
    """Return which runs have a result."""
    return {f.parent.name for f in folder.glob("*/result.json")}


def wait_until(condition, seconds=60.0):
    """Wait for something to become true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)


def test_a_sweep_survives_the_death_of_a_worker_and_of_its_driver(tmp_path):
    command = [sys.executable, "-m", "tests.scale.sweep_driver", str(tmp_path), str(COUNT), "0.5"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    driver = subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.DEVNULL)
    # a worker dies in its first run
    wait_until(lambda: (tmp_path / "000" / "pid").exists())
    os.kill(int((tmp_path / "000" / "pid").read_text()), signal.SIGKILL)
    # the driver dies when some runs are done and some are under way
    wait_until(lambda: len(finished(tmp_path)) >= 3)
    driver.kill()
    driver.wait()
    before = finished(tmp_path)
    assert 3 <= len(before) < COUNT
    started = attempts(tmp_path)
    assert sweep_driver.main(tmp_path, COUNT, 0.5) == 0
    assert finished(tmp_path) == {f"{n:03d}" for n in range(COUNT)}
    again = attempts(tmp_path)
    # runs that had ended were not repeated; run 0 once, because it was killed
    assert all(again[name] == started[name] for name in before)
    assert again["000"] == 2 or "000" not in before
    assert sum(again.values()) <= COUNT + 1 + 2, "one killed run and two that the driver had under way"
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert len(rows) == COUNT
    assert all(row["status"] == "done" for row in rows)
    assert (tmp_path / "scores.png").stat().st_size > 10_000


def test_runs_that_are_not_among_the_best_stop_early(tmp_path):
    sweep_driver.main(tmp_path, 6, 1.0, first_rung=2)
    status = [json.loads((tmp_path / f"{n:03d}" / "result.json").read_text())["status"] for n in range(6)]
    assert status[0] == "done"
    assert status[-1] == "stopped"


def test_a_run_goes_on_if_it_is_among_the_best_third():
    halving = Halving(first=2)
    scores = {name: [(1, s + 1.0), (2, s)] for name, s in (("a", 3.0), ("b", 1.0), ("c", 2.0))}
    assert not halving.is_out("a", scores["a"][:1])
    assert not halving.is_out("a", scores["a"]), "nobody to compare with"
    assert not halving.is_out("b", scores["b"])
    assert halving.is_out("c", scores["c"])
    assert halving.is_out("a", scores["a"])
    assert not halving.is_out("b", scores["b"])


def test_a_sweep_by_ray(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'pullback[ray]'")
    assert sweep_driver.main(tmp_path, 3, 0.2, "local") == 0
    assert len(finished(tmp_path)) == 3


def test_the_runs_of_a_sweep(tmp_path):
    runs = open_sweep(tmp_path, "recover-power", ["lr=0.01,0.003", "waves=3,5"], 2, ["--iterations", "3"])
    assert len(runs) == 8
    assert runs[3].name == "learning_rate=0.01 waves=5 seed=1"
    plan = json.loads((runs[3].folder / "plan.json").read_text())
    assert plan["arguments"][:8] == [
        "--iterations", "3", "--learning-rate", "0.01", "--waves", "5", "--seed", "1",
    ]  # fmt: skip
    with pytest.raises(PullbackError, match=r"holds a sweep with seeds = 2, now it is 3"):
        open_sweep(tmp_path, "recover-power", ["lr=0.01,0.003", "waves=3,5"], 3, ["--iterations", "3"])
    with pytest.raises(PullbackError, match="no option to go over named 'learning'"):
        open_sweep(tmp_path / "b", "recover-power", ["learning=1"], 1, [])


@pytest.mark.slow
def test_the_command_itself(tmp_path, capsys):
    fixed = ["--iterations", "2", "--fresh"]
    options = ["--over", "lr=0.01,0.02", "--out", str(tmp_path)]
    assert command_line(["sweep", "recover-power", *options, "--", *fixed]) == 0
    assert "lower scores are better" in capsys.readouterr().out
