"""What every engine of the engine benchmark does: step a Laikago on its toes, differentiate, and check itself.

An engine is a program, `python -m bench.peers.NAME JOB RESULT`. JOB has the robot as MJCF, a settled state in MuJoCo's
order, controls (T, 12) and settings. The loss is the squared last state, as the engine holds it; its gradient is by all
controls. It is compared with central differences of the engine's own loss, along a few random directions, the best of
several step sizes.
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
CHANGES = (1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6)


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
            found["error"] = error_of(engine.loss, scene.controls, slopes)
            found["memory"] = peak_of(lambda: gradient(scene.controls))
            found["both"] = times_of(lambda: gradient(scene.controls), scene.settings["seconds"])
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    found["reason"] = reason
    found["forward"] = times_of(lambda: engine.loss(scene.controls), scene.settings["seconds"])
    found["versions"] = {name: version(name) for name in packages}
    np.savez(sys.argv[2], figures=json.dumps(found))


def error_of(loss: Callable[[np.ndarray], float], controls: np.ndarray, gradient: np.ndarray) -> float:
    """Return the worst error over directions, relative to the differences, for the best step size of each."""
    rng, worst = np.random.default_rng(1), 0.0
    for _ in range(DIRECTIONS):
        direction = rng.standard_normal(controls.shape)
        direction /= np.linalg.norm(direction)
        slope = float((gradient * direction).sum())
        errors = []
        for change in CHANGES:
            by = change * direction
            difference = (loss(controls + by) - loss(controls - by)) / (2 * change)
            errors.append(abs(slope - difference) / max(abs(difference), 1e-12))
        worst = max(worst, min(errors))
    return worst
