"""Environments of peers that cannot live beside us, and programs run in them.

An environment is a venv in a cache folder (`PULLBACK_BENCH_CACHE`, by default ~/.cache/pullback/bench), made when it is
first asked for, of the packages that pyproject.toml lists under the extra `bench-NAME`. One with `torch` in its list
sees the packages of this environment behind its own, so that torch is not installed again; no other version of torch is
ever installed, a package that asks for one does not install.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bench.benchmark import NoResultError
from bench.memory import KEEPING

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = None

ROOT = Path(__file__).parent.parent
LIMIT = 10 * 10**9
"""Bytes of memory that a competitor may take."""
INSTALLING = 900
"""Seconds that an installation may take."""


def cache() -> Path:
    """Return the folder of environments."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pullback" / "bench"
    return Path(os.environ.get("PULLBACK_BENCH_CACHE", default))


def wanted(name: str) -> list[str]:
    """Return the packages of an environment."""
    if tomllib is None:
        raise NoResultError("Python 3.11 or newer is needed to make environments")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["optional-dependencies"][f"bench-{name}"]


def python_of(name: str) -> str:
    """Return the interpreter of an environment, made if need be; "" is this one."""
    if not name:
        return sys.executable
    packages, folder = wanted(name), cache() / name
    python, stamp = folder / "bin" / "python", folder / "installed.json"
    if not stamp.exists() or json.loads(stamp.read_text())["packages"] != packages:
        print(f"  making the environment of {name}: {', '.join(packages)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        if "torch" in packages:
            (here,) = folder.glob("lib/python*/site-packages")
            (here / "zz_beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pins = folder / "constraints.txt"
        pins.write_text(f"torch=={version('torch').split('+')[0]}\n")
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(pins)]
        install += packages
        reason = ""
        try:
            done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALLING, check=False)
            if done.returncode != 0:
                errors = [line for line in done.stderr.splitlines() if "ERROR" in line] or [done.stderr[-200:]]
                reason = errors[0].replace("ERROR: ", "")
        except subprocess.TimeoutExpired:
            reason = f"not installed after {INSTALLING} s"
        stamp.write_text(json.dumps({"packages": packages, "reason": reason}))
    reason = json.loads(stamp.read_text())["reason"]
    if reason:
        raise NoResultError(f"does not install: {reason[:160]}")
    return str(python)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))


def run_in(name: str, module: str, job: dict[str, Any], *, cap: float) -> dict[str, np.ndarray]:
    """Run `python -m bench.peers.MODULE JOB RESULT` in an environment, alone on one thread, and return its result."""
    python = python_of(name)
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
        "JAX_PLATFORMS": "cpu", **KEEPING,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / each) for each in ("job.npz", "result.npz")]
        np.savez(paths[0], **job)
        command = [python, "-m", f"bench.peers.{module}", *paths]
        try:
            done = subprocess.run(
                command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=cap, preexec_fn=_limit
            )
        except subprocess.TimeoutExpired:
            raise NoResultError(f"over {cap:.0f} s") from None
        if done.returncode != 0:
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
            signs = ("MemoryError", "bad_alloc", "not enough memory", "RESOURCE_EXHAUSTED", "Out of memory")
            full = done.returncode == -9 or any(sign in done.stderr for sign in signs)
            raise NoResultError("out of memory (10 GB)" if full else f"failed: {' '.join(last)[:200]}")
        with np.load(paths[1]) as result:
            return dict(result)
