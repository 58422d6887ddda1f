"""What every engine of the engine benchmark does: step a Laikago on its toes, differentiate, and check itself.

An engine is a program, `python -m bench.peers.NAME JOB RESULT`. JOB has the robot as MJCF, a settled state in MuJoCo's
order, controls (T, 12) and settings. The loss is the squared last state, as the engine holds it; its gradient is by all
controls. It is compared with central differences of the engine's own loss, along a few random directions, the best of
several step sizes, each extrapolated with its half.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from bench.memory import peak_of
from bench.peers.contestant import times_of

DIRECTIONS = 5
CHANGES = tuple(3e-2 / 2**k for k in range(9))


class Scene(NamedTuple):
    """The robot as MJCF, its settled state in MuJoCo's order, controls (T, 12) and what the run may cost."""

    xml: str
    qpos: np.ndarray
    qvel: np.ndarray
    controls: np.ndarray
    settings: dict[str, Any]


class Engine(NamedTuple):
    """The loss of controls, its gradient (T, 12) where there is one, and otherwise why not."""

    loss: Callable[[np.ndarray], float]
    gradient: Callable[[np.ndarray], np.ndarray] | None
    reason: str = ""
    compiling: float = 0.0


def run(prepare: Callable[[Scene], Engine], packages: tuple[str, ...]) -> None:
    """Do a job on one core: the gradient's error first, then memory, then times."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with np.load(sys.argv[1]) as file:
        job = {name: file[name] for name in file.files}
    scene = Scene(str(job["xml"]), job["qpos"], job["qvel"], job["controls"], json.loads(str(job["settings"])))
    engine = prepare(scene)
    found: dict[str, Any] = {"compiling": engine.compiling, "reason": engine.reason}
    found["loss"] = engine.loss(scene.controls)
    gradient, reason = engine.gradient, engine.reason
    if gradient is not None:
        try:
            slopes = gradient(scene.controls)
            found["error"], found["scatter"] = errors_of(engine.loss, scene.controls, slopes)
            if not np.isfinite(found["error"]):
                raise ArithmeticError("the loss or its gradient is not finite")
            found["memory"] = peak_of(lambda: gradient(scene.controls))
            found["both"] = times_of(lambda: gradient(scene.controls), scene.settings["seconds"])
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    found["reason"] = reason
    if not np.isfinite([found["loss"], found.get("error", 0.0)]).all():
        found |= {"loss": 0.0, "error": 0.0, "scatter": 0.0}
    found["forward"] = times_of(lambda: engine.loss(scene.controls), scene.settings["seconds"])
    found["versions"] = {name: version(name) for name in packages}
    np.savez(sys.argv[2], figures=json.dumps(found))


def errors_of(loss: Callable[[np.ndarray], float], controls: np.ndarray, gradient: np.ndarray) -> tuple[float, float]:
    """Return the worst error over directions, relative to the differences, for the best step size of each.

    And by how much differences of neighbouring step sizes disagree at best, in the worst direction: an error of that
    size may be theirs.
    """
    rng, error, scatter = np.random.default_rng(1), 0.0, 0.0
    for _ in range(DIRECTIONS):
        direction = rng.standard_normal(controls.shape)
        direction /= np.linalg.norm(direction)
        slope = float((gradient * direction).sum())
        steps = [change * direction for change in CHANGES]
        found = np.array([(loss(controls + x) - loss(controls - x)) / (2 * c) for x, c in zip(steps, CHANGES)])
        # the error of second order goes
        found = (4 * found[1:] - found[:-1]) / 3
        sizes = np.maximum(np.abs(found), 1e-12)
        if not np.isfinite([slope, *found]).all():
            return float("inf"), float("inf")
        error = max(error, float((np.abs(slope - found) / sizes).min()))
        scatter = max(scatter, float((np.abs(np.diff(found)) / sizes[1:]).min()))
    return error, scatter
