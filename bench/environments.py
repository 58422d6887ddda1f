"""Environments of peers that cannot live beside us, and programs run in them.

An environment is a venv in a cache folder (`PULLBACK_BENCH_CACHE`, by default ~/.cache/pullback/bench), made when it is
first asked for, of the packages that pyproject.toml lists under the extra `bench-NAME`. One with `torch` in its list
sees the packages of this environment behind its own, so that torch is not installed again; no other version of torch is
ever installed, a package that asks for one does not install.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import signal
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

import numpy as np

from bench.benchmark import NoResultError, TooMuchError
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
    packages, folder = tuple(wanted(name)), cache() / name
    reason = _made(name, packages, folder)
    if reason:
        raise NoResultError(f"does not install: {reason[:160]}")
    return str(folder / "bin" / "python")


@lru_cache
def _made(name: str, packages: tuple[str, ...], folder: Path) -> str:
    """Make an environment unless it is there; return why that fails, which another run tries again."""
    stamp, torch = folder / "installed.json", version("torch").split("+")[0]
    about = {"packages": list(packages), "python": platform.python_version(), "torch": torch}
    if "torch" in packages:
        # what is here was not installed there: without it the environment is not whole
        about["beside"] = sorted({found.name for found in distributions()})
    if not (stamp.exists() and json.loads(stamp.read_text()) == about):
        print(f"  making the environment of {name}: {', '.join(packages)}", flush=True)
        reason = _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        if not reason:
            pins = folder / "constraints.txt"
            pins.write_text(f"torch=={torch}\n")
            _see_ours(folder, packages)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            reason = _run([*pip, "-c", str(pins), *packages])
        if reason:
            return reason
        stamp.write_text(json.dumps(about))
    # of this checkout, when another one made it
    _see_ours(folder, packages)
    return ""


def _see_ours(folder: Path, packages: tuple[str, ...]) -> None:
    if "torch" in packages:
        (here,) = folder.glob("lib/python*/site-packages")
        (here / "zz_beside.pth").write_text(sysconfig.get_path("purelib") + "\n")


def _run(command: list[str]) -> str:
    """Run a command of an installation; return why it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALLING, check=False)
    except subprocess.TimeoutExpired:
        return f"not installed after {INSTALLING} s"
    text = done.stderr or done.stdout
    errors = [line for line in text.splitlines() if "ERROR" in line] or [text.strip()[-200:] or "no message"]
    return errors[0].replace("ERROR: ", "") if done.returncode else ""


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))


def run_alone(command: list[str], environment: dict[str, str], log: Path, cap: float) -> int:
    """Run a program, what it prints into a log; what it starts ends with it. Return its exit status."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=errors, stderr=errors, preexec_fn=_limit,
            start_new_session=True,
        )  # fmt: skip
    try:
        return process.wait(cap)
    except subprocess.TimeoutExpired:
        raise TooMuchError(f"over {cap:.0f} s") from None
    finally:
        # compilers that it has started would slow the next program down
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_in(name: str, module: str, job: dict[str, Any], *, cap: float) -> dict[str, np.ndarray]:
    """Run `python -m bench.peers.MODULE JOB RESULT` in an environment, alone on one thread, and return its result."""
    python = python_of(name)
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
        "JAX_PLATFORMS": "cpu", "PYTHONUNBUFFERED": "1", **KEEPING,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / each) for each in ("job.npz", "result.npz")]
        np.savez(paths[0], **job)
        command = [python, "-m", f"bench.peers.{module}", *paths]
        log = Path(folder) / "errors.txt"
        code = run_alone(command, environment, log, cap)
        if code != 0:
            errors = log.read_text(errors="replace")
            last = [line for line in errors.splitlines() if line.strip()][-1:] or [f"no message, exit status {code}"]
            signs = ("MemoryError", "bad_alloc", "not enough memory", "RESOURCE_EXHAUSTED", "Out of memory")
            if code == -signal.SIGKILL or any(sign in errors for sign in signs):
                raise TooMuchError("out of memory (10 GB)")
            raise NoResultError(f"failed: {last[0][:200]}")
        with np.load(paths[1]) as result:
            return dict(result)
