"""What every library of the robot benchmark does: compute five functions of an arm and their gradients, be timed.

A library is a program, `python -m bench.peers.NAME JOB RESULT`. JOB has the arm as URDF and as SDF, the link, q, qd and
w (B, n), which is an acceleration to RNEA and a force to ABA, a cotangent for each function, and settings. An
`Operation` computes its function for the whole batch, and the same with its gradient by all inputs; FK's gradient is
that of the position. Where there is no such function, it says why.
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

from bench.peers.contestant import times_of

NAMES = ("FK", "Jacobian", "RNEA", "CRBA", "ABA")
KEPT = 8
"""Robots of a batch whose results are compared."""
SHORTEST = 2e-3
"""Seconds that a sample of the clock is long, by several calls where one is shorter."""

Array = np.ndarray


class Task(NamedTuple):
    """The arm, its link, states (B, n), cotangents by function, and what the run may cost."""

    urdf: str
    sdf: str
    link: str
    q: Array
    qd: Array
    w: Array
    cotangents: dict[str, Array]
    settings: dict[str, Any]


class Operation(NamedTuple):
    """A function of the whole batch: its value, and its cotangents of q, or of q, qd and w; or why there is none."""

    value: Callable[[], Any] | None
    both: Callable[[], tuple[Any, ...]] | None
    reason: str = ""


Operations = dict[str, Operation]


def run(prepare: Callable[[Task], tuple[Operations, float]], packages: tuple[str, ...]) -> None:
    """Do a job on one core: results first, then times. `prepare` returns the operations and what compiling took [s]."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with np.load(sys.argv[1]) as file:
        job = {name: file[name] for name in file.files}
    settings = json.loads(str(job["settings"]))
    urdf, sdf, link = (str(job[name]) for name in ("urdf", "sdf", "link"))
    cotangents = {name: job[name] for name in NAMES}
    task = Task(urdf, sdf, link, job["q"], job["qd"], job["w"], cotangents, settings)
    operations, compiling = prepare(task)
    if settings.get("build"):
        # it was asked for what `prepare` keeps only
        np.savez(sys.argv[2])
        return
    results: dict[str, Array] = {}
    found: dict[str, Any] = {}
    for name in NAMES:
        value, both, reason = operations.get(name, Operation(None, None, "has none"))
        row: dict[str, Any] = {"reason": reason}
        try:
            if value is not None:
                results[f"{name}/value"] = first(value())
                row["value"] = times_a_call(value, settings["seconds"])
            if both is not None:
                for k, x in enumerate(both()):
                    results[f"{name}/{k}"] = first(x)
                row["both"] = times_a_call(both, settings["seconds"])
        except Exception as error:
            row["reason"] = reason_of(error)
        found[name] = row
    figures = {"functions": found, "compiling": compiling, "versions": {name: version(name) for name in packages}}
    arrays: dict[str, Any] = {"figures": json.dumps(figures), **results}
    np.savez(sys.argv[2], **arrays)


def first(x: Any) -> Array:
    """Return the first robots of a result as one array."""
    if isinstance(x, tuple):
        return np.concatenate([first(each) for each in x], -1)
    return np.asarray(x)[:KEPT].reshape(min(KEPT, len(x)), -1).copy()


def reason_of(error: Exception) -> str:
    """Return why a function has no figure."""
    text = f"{type(error).__name__}: {error}"
    signs = ("MemoryError", "alloc", "not enough memory", "RESOURCE_EXHAUSTED", "Out of memory")
    return "out of memory" if any(sign in text for sign in signs) else text.splitlines()[0][:120]


def times_a_call(function: Callable[[], object], seconds: float) -> list[float]:
    """Return times of a call [s]; short ones are timed several at a time."""
    before = time.perf_counter()
    function()
    calls = max(1, int(SHORTEST / (time.perf_counter() - before)))

    def several() -> None:
        for _ in range(calls):
            function()

    return [x / calls for x in times_of(several, seconds)]
