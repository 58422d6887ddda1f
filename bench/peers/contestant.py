"""What every contestant of the gradient benchmark does: read the job, show its results, be timed, write figures.

A contestant is a program, `python -m bench.peers.NAME JOB RESULT`. JOB (.npz) has the robot's arrays, the state it
starts in, controls (T, 12) and the seconds that timing may take. It hands two functions to `run`: one takes all steps
and returns the last state, the other returns the gradient of its square in initial state and controls as well.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from bench.memory import peak_of

CALLS = 30


class Job(NamedTuple):
    """The arrays of the robot, its state, its controls (T, 12), and what the run may cost."""

    robot: dict[str, np.ndarray]
    q: np.ndarray
    qd: np.ndarray
    controls: np.ndarray
    settings: dict[str, Any]

    def constants(self, make: Callable[[np.ndarray], Any]) -> dict[str, Any]:
        """Return the robot's arrays as those of another library; numbers stay numbers."""
        arrays = {name: make(x) if x.ndim else float(x) for name, x in self.robot.items() if name != "order"}
        return {**arrays, "order": tuple(self.robot["order"].tolist())}

    def first(self, steps: int) -> Job:
        """Return the same job with its first steps only."""
        return self._replace(controls=self.controls[:steps])


class Functions(NamedTuple):
    """The contestant's two functions, and how long it took to compile them [s]."""

    forward: Callable[[], Any]
    gradient: Callable[[], Any]
    compiling: float = 0.0


def times_of(function: Callable[[], object], seconds: float) -> list[float]:
    """Return the times [s] of calls, as many as fit into some seconds, at least one."""
    times: list[float] = []
    while not times or (len(times) < CALLS and sum(times) + times[-1] < seconds):
        before = time.perf_counter()
        function()
        times.append(time.perf_counter() - before)
    return times


def run(prepare: Callable[[Job], Functions], packages: tuple[str, ...]) -> None:
    """Do a job: on one core, results first, then memory, then times."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with np.load(sys.argv[1]) as file:
        arrays = dict(file)
    settings = json.loads(str(arrays.pop("settings")))
    job = Job(arrays, arrays.pop("q"), arrays.pop("qd"), arrays.pop("controls"), settings)
    functions = prepare(job)
    found: dict[str, Any] = {"compiling": functions.compiling, "memory": [], "settings": settings}
    results: list[Any] = []
    found["memory"] = peak_of(lambda: results.append(functions.gradient()))
    final = functions.forward()
    found["forward"] = times_of(functions.forward, settings["seconds"])
    found["both"] = times_of(functions.gradient, settings["seconds"])
    found["versions"] = {name: version(name) for name in packages}
    arrays = dict(zip(("q", "qd", "adj_q", "adj_qd", "adj_controls"), (*final, *results[0])))
    np.savez(sys.argv[2], figures=json.dumps(found), **arrays)


def time_of(function: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a function returns, and how long it took [s]."""
    before = time.perf_counter()
    result = function()
    return result, time.perf_counter() - before
