"""Kernels compiled ahead of time: found by hash and version, checked, and left aside where they do not fit."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from pullback.core import ready_made
from pullback.core.ready_made import PORTABLE, RECORD, find, folders, is_known_target, shipped_modules

SHIP = """
import sys
from pathlib import Path
import warp as wp
from pullback.core.prepare import ship
from pullback.robot.operators import MASS_MATRIX

print([x.found for x in ship(MASS_MATRIX.kernels(wp.float64)[:1], "x86-64-v3", Path(sys.argv[1]))])
"""

RUN = """
import torch, warp
from warp._src import build

def no_compiler(*args, **kwargs):
    raise RuntimeError("there is no compiler here")

build.build_cpu = no_compiler
import pullback as pb

robot = pb.load("pendulum2", dtype=torch.float64)
print(robot.compute_lagrangian_inertia_matrix(torch.full((1, 2), 0.3, dtype=torch.float64)).sum().item())
"""

portable = pytest.mark.skipif(
    not ready_made.runs_portable_code(), reason=f"this processor does not run {PORTABLE} code"
)


def run(program, *arguments, **given):
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **given}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """Return a folder of shipped kernels: one module."""
    folder = tmp_path_factory.mktemp("shipped")
    for expected in ("['none']", "['shipped']"):
        done = run(SHIP, str(folder))
        assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
    return folder


@portable
def test_shipped_kernels_need_no_compiler(shipped, tmp_path):
    # pendulum2 at 0.3, 0.3: the same number as with kernels compiled here (tests/core/test_kernel_cache.py)
    given = {"WARP_CACHE_PATH": str(tmp_path), "PULLBACK_KERNELS": str(shipped)}
    done = run(RUN, **given)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.0
    assert not list(tmp_path.rglob("*.o"))
    ((name, targets, size),) = shipped_modules(shipped)
    assert (name.startswith("wp_pullback.crba.float64_"), targets, size > 5000) == (True, [PORTABLE], True)


class Module:
    """What is asked of a Warp module before its code is loaded."""

    def __init__(self, folder=None):
        self.identifier = folder.name if folder else "wp_pullback.x.float64_0123456"
        self.hash = json.loads((folder / RECORD).read_text())["hash"] if folder else "00" * 32

    def get_module_identifier(self, block_dim):
        return self.identifier

    def get_module_hash(self, block_dim):
        return bytes.fromhex(self.hash)


@portable
@pytest.mark.parametrize("damage", ["code", "record", "hash", "version"])
def test_what_does_not_fit_is_left_aside(shipped, tmp_path, monkeypatch, damage):
    monkeypatch.setenv("PULLBACK_KERNELS", str(tmp_path))
    (folder,) = shutil.copytree(shipped, tmp_path, dirs_exist_ok=True).glob("wp_*")
    module, record = Module(folder), folder / RECORD
    assert find(module, "cpu", 1) is not None
    (code,) = folder.glob("*.o")
    made = json.loads(record.read_text())
    if damage == "code":
        code.write_bytes(code.read_bytes()[:-8] + bytes(8))
    elif damage == "record":
        record.write_text(record.read_text()[:40])
    elif damage == "hash":
        record.write_text(json.dumps(made | {"hash": "0" * 64}))
    else:
        made["targets"][PORTABLE]["made_by"] = "1.18.0-Linux"
        record.write_text(json.dumps(made))
    assert find(module, "cpu", 1) is None


def test_without_a_compiler_the_error_says_what_to_do(tmp_path):
    done = run(RUN, WARP_CACHE_PATH=str(tmp_path), PULLBACK_KERNELS="none")
    assert done.returncode != 0
    assert "PullbackError" in done.stderr
    assert "there is no compiler here" in done.stderr
    assert str(tmp_path) in done.stderr
    assert "pullback doctor" in done.stderr


def test_the_search_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PULLBACK_KERNELS", os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")]))
    assert folders()[:2] == [tmp_path / "a", tmp_path / "b"]
    assert folders()[2].name == "kernels"
    monkeypatch.setenv("PULLBACK_KERNELS", "none")
    assert folders() == []


def test_a_processor_without_shipped_kernels(monkeypatch, shipped):
    monkeypatch.setenv("PULLBACK_KERNELS", str(shipped))
    monkeypatch.setattr(ready_made, "runs_portable_code", lambda: False)
    assert find(Module(), "cpu", 1) is None


def test_targets():
    assert [is_known_target(x) for x in (PORTABLE, "sm_90", "sm_", "native", "avx2")] == [
        True,
        True,
        False,
        False,
        False,
    ]
