"""Several ranks compute what one does: learning, searches and one part, and a rank that is lost is named."""

import os
import signal
import time

import pytest
import torch

from pullback.core.errors import PullbackError
from pullback.core.ranks import Ranks
from tests.scale.launch import finish, start
from tests.scale.rank_cases import CASES

ROUNDING = 1e-12
"""Sums over ranks are in another order than sums in one process; errors are relative to what is compared."""
SHORT = ("shac", "explicit_part", "particles")


@pytest.fixture(scope="module")
def alone():
    """Return what one process computes, by case, when it is asked for."""
    return {name: case() for name, case in CASES.items()}


def compare(folder, count, names, alone):
    finish(start(count, "-W", "ignore", "-m", "tests.scale.rank_cases", str(folder), *names))
    for rank in range(count):
        found = torch.load(folder / f"{rank}_of_{count}.pt")
        assert found.keys() == set(names)
        for name, values in found.items():
            for key, value in values.items():
                expected = alone[name][key]
                # small gradients relative to the largest of their kind
                scale = expected.abs().clamp(min=min(1.0, float(expected.abs().max())) or 1.0)
                error = ((value - expected).abs() / scale).max()
                assert error <= ROUNDING, f"{name}, {key}: rank {rank} of {count} is off by {error:.1e}"


@pytest.mark.filterwarnings("ignore")
def test_two_ranks_compute_what_one_does(tmp_path, alone):
    compare(tmp_path, 2, list(CASES), alone)


@pytest.mark.filterwarnings("ignore")
def test_four_ranks_compute_what_one_does(tmp_path, alone):
    compare(tmp_path, 4, SHORT, alone)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [3, 4])
def test_more_ranks_in_every_case(tmp_path, alone, count):
    # eight worlds cannot be shared by three
    names = [name for name in CASES if count == 4 or name.endswith(("part", "materials", "particles"))]
    compare(tmp_path, count, names, alone)


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


def test_a_rank_with_another_robot_is_refused_and_a_lost_one_is_named(tmp_path):
    ranks = start(2, "-m", "tests.scale.lost_rank", str(tmp_path))
    until = time.monotonic() + 120
    while not (tmp_path / "searching").exists() and time.monotonic() < until:
        time.sleep(0.1)
    os.kill(ranks[1].pid, signal.SIGKILL)
    text = ranks[0].communicate(timeout=60)[0]
    ranks[1].communicate(timeout=60)
    assert ranks[0].returncode == 0, text
    assert "refused: the robot on rank" in text
    assert "lost: rank 1 of 2 has ended or does not answer" in text
    assert "the last checkpoint is complete" in text
    saved = torch.load(tmp_path / "search.pt")
    assert saved["state"]["done"] >= 1
