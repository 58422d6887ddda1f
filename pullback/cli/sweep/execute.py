"""Run one process of a sweep to its end, on whatever machine this is called."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from pullback.cli.run_folder import METRICS
from pullback.cli.sweep.grid import FILES

POLL = 0.2
"""Seconds between two looks at the process."""
GRACE = 600.0
"""Seconds that a run has for its last iteration once it is asked to stop."""


def execute(folder: Path, command: Sequence[str]) -> int:
    """Run a command in a process of its own and return its exit status; nothing is run if a result is there already.

    The process holds a lock on its folder: should it outlive the sweep that started it, the next one waits for it.
    """
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "result.json").exists():
            return 0
        (folder / FILES / METRICS).unlink(missing_ok=True)
        with open(folder / "attempts", "a") as attempts:
            attempts.write(f"{time.time():.1f} {os.uname().nodename}\n")
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        with open(folder / "output.txt", "w") as output:
            process = subprocess.Popen(
                list(command), env=env, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                pass_fds=[lock.fileno()],
            )  # fmt: skip
            (folder / "pid").write_text(str(process.pid))
            try:
                return _watch(process, folder)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def _watch(process: subprocess.Popen[bytes], folder: Path) -> int:
    asked = 0.0
    while process.poll() is None:
        if not asked and (folder / "stop").exists():
            # as Ctrl-C: the search ends after its iteration, and the task reports what it has
            process.send_signal(signal.SIGINT)
            asked = time.monotonic()
        if asked and time.monotonic() - asked > GRACE:
            process.kill()
        try:
            process.wait(POLL)
        except subprocess.TimeoutExpired:
            continue
    return process.returncode
