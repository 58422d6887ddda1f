"""Compiled kernels on disk: what is damaged is compiled again, and errors name the folder."""

import os
import subprocess
import sys

import pytest

from pullback.core.kernel_cache import SEAL

RUN = """
import torch
import pullback as pb

robot = pb.load("pendulum2", dtype=torch.float64)
print(robot.compute_lagrangian_inertia_matrix(torch.full((1, 2), 0.3, dtype=torch.float64)).sum().item())
"""


def run(cache):
    given = {**os.environ, "WARP_CACHE_PATH": str(cache), "PULLBACK_KERNELS": "none"}
    return subprocess.run(
        [sys.executable, "-c", RUN], env=given, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Return a cache with one module in it, and what its kernel computes."""
    cache = tmp_path_factory.mktemp("kernels")
    done = run(cache)
    assert done.returncode == 0, done.stderr
    return cache, done.stdout


def objects(cache):
    return sorted(path for path in cache.rglob("*.o") if (path.parent / SEAL).exists())


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:2000] + bytes(len(data) - 2000),
    ],
    ids=["empty", "zeros"],
)
def test_a_damaged_module_is_compiled_again(filled, damage):
    cache, expected = filled
    path = objects(cache)[0]
    path.write_bytes(damage(path.read_bytes()))
    again = run(cache)
    assert (again.returncode, again.stdout) == (0, expected), again.stderr
    assert len(objects(cache)[0].read_bytes()) > 2000


def test_two_processes_fill_one_cache(tmp_path):
    given = {**os.environ, "WARP_CACHE_PATH": str(tmp_path), "PULLBACK_KERNELS": "none"}
    both = [
        subprocess.Popen([sys.executable, "-c", RUN], env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    ended = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    assert ended[0][0] == ended[1][0] != b""
    # the second waited: no folder of a compiler that came too late, and one sealed module
    assert len(objects(tmp_path)) == 1
    assert not list(tmp_path.rglob("*_p*_t*"))


def test_a_cache_that_cannot_be_used_is_named(tmp_path):
    place = tmp_path / "a file"
    place.write_text("in the way")
    done = run(place)
    assert done.returncode != 0
    assert "PullbackError" in done.stderr
    assert str(place) in done.stderr
