"""Several ranks compute what one does: learning, searches and one part, and a rank that is lost is named."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from pullback.core.errors import PullbackError
from pullback.core.ranks import Ranks
from tests.scale.launch import ROOT, finish, start
from tests.scale.rank_cases import CASES

ROUNDING = 1e-12
"""Sums over ranks are in another order than sums in one process; errors are relative to what is compared."""
SHORT = ("shac", "explicit_part", "particles", "messages")


@pytest.fixture(scope="module")
def alone():
    """Return what one process computes, by case, when it is asked for."""
    return {name: case() for name, case in CASES.items()}


def run(folder, count, names):
    """Return what each of some ranks computes."""
    folder.mkdir(exist_ok=True)
    finish(start(count, "-W", "ignore", "-m", "tests.scale.rank_cases", str(folder), *names))
    return [torch.load(folder / f"{rank}_of_{count}.pt") for rank in range(count)]


def compare(found, names, alone):
    """Fail unless all ranks have the same bits, and one process the same but for rounding."""
    for rank, cases in enumerate(found):
        assert cases.keys() == set(names)
        for name, values in cases.items():
            for key, value in values.items():
                assert torch.equal(value, found[0][name][key]), f"{name}, {key}: ranks {rank} and 0 differ"
                expected = alone[name][key]
                # small gradients relative to the largest of their kind
                scale = expected.abs().clamp(min=min(1.0, float(expected.abs().max())) or 1.0)
                error = ((value - expected).abs() / scale).max()
                assert error <= ROUNDING, f"{name}, {key}: rank {rank} of {len(found)} is off by {error:.1e}"


@pytest.mark.filterwarnings("ignore")
def test_two_ranks_compute_what_one_does(tmp_path, alone):
    found = run(tmp_path, 2, list(CASES))
    compare(found, list(CASES), alone)
    # and again: the same bits
    for name, values in run(tmp_path / "again", 2, SHORT)[0].items():
        assert all(torch.equal(value, found[0][name][key]) for key, value in values.items()), name


@pytest.mark.filterwarnings("ignore")
def test_four_ranks_compute_what_one_does(tmp_path, alone):
    compare(run(tmp_path, 4, SHORT), SHORT, alone)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [3, 4])
def test_more_ranks_in_every_case(tmp_path, alone, count):
    # eight worlds cannot be shared by three
    names = [name for name in CASES if count == 4 or name.endswith(("part", "materials", "particles"))]
    compare(run(tmp_path, count, names), names, alone)


def test_shares_cover_everything_once():
    for count in (1, 2, 3, 5):
        rows = [row for rank in range(count) for row in range(13)[Ranks(rank, count).own(13)]]
        assert rows == list(range(13))
    with pytest.raises(PullbackError, match="10 worlds cannot be shared evenly by 3 ranks"):
        Ranks(0, 3).share(10, "worlds")


def test_samples_of_a_batch_are_shared_by_their_world():
    order = torch.randperm(5 * 6, generator=torch.Generator().manual_seed(0))
    whole = torch.arange(30).view(5, 6)
    found = []
    for rank in range(3):
        local = whole[:, 2 * rank : 2 * rank + 2].flatten()
        found.append(local[Ranks(rank, 3).own_samples(order[:11], 2)])
    assert sorted(torch.cat(found).tolist()) == sorted(order[:11].tolist())


def test_others_are_refused_a_slow_rank_and_a_lost_one_are_named(tmp_path):
    ranks = start(2, "-m", "tests.scale.lost_rank", str(tmp_path))
    until = time.monotonic() + 120
    while not (tmp_path / "saved 12").exists() and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(ranks[1].pid, signal.SIGKILL)
    text = ranks[0].communicate(timeout=60)[0]
    ranks[1].communicate(timeout=60)
    assert ranks[0].returncode == 0, text
    assert "refused: the version of numpy on rank 0" in text
    assert "refused: the robot or world on rank 0" in text
    assert re.findall(r"warned: rank (\d) takes 0.0?\d+ s for an iteration and the others", text) == ["1"], text
    assert "lost: rank 1 of 2 has ended or does not answer" in text
    assert "the last checkpoint is complete" in text
    saved = torch.load(tmp_path / "search.pt")
    assert saved["state"]["done"] >= 12


def torchrun(*arguments, restarts=0, meanwhile=None):
    """Run two ranks by torchrun, and return what they and it print; meanwhile(pid of torchrun) is called."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [*launcher, "--max-restarts", str(restarts), "-m", *arguments]
    running = subprocess.Popen(
        command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )  # fmt: skip
    try:
        if meanwhile is not None:
            meanwhile(running.pid)
        text = running.communicate(timeout=300)[0]
    finally:
        running.kill()
    return running.returncode, text


@pytest.mark.slow
def test_torchrun_goes_on_after_kill_9_with_the_same_result(tmp_path):
    folders = [tmp_path / name for name in ("whole", "cut")]
    for folder in folders:
        folder.mkdir()
    code, text = torchrun("tests.scale.restarted", str(folders[0]))
    assert code == 0, text
    code, text = torchrun("tests.scale.restarted", str(folders[1]), "3", restarts=1)
    assert code == 0, text
    assert text.count("lost: rank 1 of 2 has ended or does not answer") == 1, text
    assert text.count("begins after 0 iterations") == 2, text
    assert text.count("begins after 3 iterations") == 2, text
    expected, *found = [torch.load(folder / f"found {rank}.pt") for folder in folders for rank in range(2)]
    assert all(torch.equal(x, expected) for x in found)


@pytest.mark.slow
def test_a_command_goes_on_in_its_folder_after_kill_9(tmp_path):
    folders = [tmp_path / name for name in ("whole", "cut")]

    def kill(pid):
        until = time.monotonic() + 200
        while not (folders[1] / "checkpoint.pt").exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        # the ranks are the children of torchrun, the first one first
        os.kill(int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[-1]), signal.SIGKILL)

    task = ["pullback", "run", "recover-power", "--iterations", "12", "--out"]
    found = []
    for folder, restarts, meanwhile in zip(folders, (0, 1), (None, kill)):
        code, text = torchrun(*task, str(folder), restarts=restarts, meanwhile=meanwhile)
        assert code == 0, text
        found.append(json.loads((folder / "run.json").read_text()))
    assert "error: rank 1 of 2 has ended or does not answer" in text
    assert [run["status"] for run in found] == ["finished"] * 2
    saved = [torch.load(folder / "checkpoint.pt")["state"] for folder in folders]
    assert saved[0]["losses"] == saved[1]["losses"]
    assert len(saved[1]["losses"]) == 12
