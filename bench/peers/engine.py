"""What every engine of the engine benchmark does: step a Laikago on its toes, differentiate, and check itself.

An engine is a program, `python -m bench.peers.NAME JOB RESULT`. JOB has the robot as MJCF, a settled state in MuJoCo's
order, controls (T, 12) and settings. The loss is the squared last state, as the engine holds it; its gradient is by all
controls. It is compared with central differences of the engine's own loss, along a few random directions, at many step
sizes h: slope + a h² + b h⁴ + c h⁶ is fitted to them, so that the noise of single differences does not count. And once
more with differences of `converged`: the same loss with the solver of contacts run to rounding.
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
from bench.peers.contestant import time_of, times_of

DIRECTIONS = 5
LARGEST = tuple(3e-2 / 2**k for k in range(10))
"""The largest step size of each fit."""
SAMPLES = 1024
WORLDS = 64
"""Robots of a batch, each with controls of its own."""
TIME = 20.0
"""Seconds that differences may take; a slow engine has fewer of them."""


class Scene(NamedTuple):
    """The robot as MJCF and as URDF, its settled state in MuJoCo's order, controls (T, 12), what the run may cost."""

    xml: str
    urdf: str
    qpos: np.ndarray
    qvel: np.ndarray
    controls: np.ndarray
    settings: dict[str, Any]


class Engine(NamedTuple):
    """The loss of controls, its gradient (T, 12) where there is one, and otherwise why not.

    `converged` is the loss with the solver of contacts run to rounding, where the engine has settings for that;
    `reference` the gradient by another tool that differentiates the same physics, where there is one. `batch` takes
    controls (WORLDS, T, 12) and does all steps of as many robots on one core.
    """

    loss: Callable[[np.ndarray], float]
    gradient: Callable[[np.ndarray], np.ndarray] | None
    reason: str = ""
    compiling: float = 0.0
    converged: Callable[[np.ndarray], float] | None = None
    reference: Callable[[np.ndarray], np.ndarray] | None = None
    batch: Callable[[np.ndarray], object] | None = None


def run(prepare: Callable[[Scene], Engine], packages: tuple[str, ...]) -> None:
    """Do a job on one core: the gradient's error first, then memory, then times."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with np.load(sys.argv[1]) as file:
        job = {name: file[name] for name in file.files}
    scene = Scene(
        str(job["xml"]), str(job["urdf"]), job["qpos"], job["qvel"], job["controls"], json.loads(str(job["settings"]))
    )
    engine = prepare(scene)
    found: dict[str, Any] = {"compiling": engine.compiling, "reason": engine.reason}
    found["loss"] = engine.loss(scene.controls)
    gradient, reason = engine.gradient, engine.reason
    if gradient is not None:
        try:
            slopes = []
            found["memory"] = peak_of(lambda: slopes.append(gradient(scene.controls)))
            slopes = slopes[0]
            if scene.settings["checked"]:
                found |= check(engine, scene.controls, slopes)
            found["both"] = times_of(lambda: gradient(scene.controls), scene.settings["seconds"])
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    found["reason"] = reason
    if not np.isfinite([found["loss"], found.get("error", 0.0)]).all():
        found |= {"loss": 0.0, "error": 0.0, "scatter": 0.0}
    found["forward"] = times_of(lambda: engine.loss(scene.controls), scene.settings["seconds"])
    if engine.batch is not None:
        batch, given = engine.batch, batched(scene.controls)
        batch(given)
        found["batch"] = [x / WORLDS for x in times_of(lambda: batch(given), scene.settings["seconds"])]
    found["versions"] = {name: version(name) for name in packages}
    np.savez(sys.argv[2], figures=json.dumps(found))


def check(engine: Engine, controls: np.ndarray, slopes: np.ndarray) -> dict[str, Any]:
    """Return the errors of a gradient by all that it can be compared with."""
    found: dict[str, Any] = {}
    found["error"], found["scatter"] = errors_of(engine.loss, controls, slopes)
    if not np.isfinite(found["error"]):
        raise ArithmeticError("the loss or its gradient is not finite")
    if engine.converged is not None:
        found["converged"] = errors_of(engine.converged, controls, slopes)
    if engine.reference is not None:
        expected = engine.reference(controls)
        along = np.array([[(x * d).sum() for d in directions(slopes)] for x in (slopes, expected)])
        found["autodiff"] = float(np.abs(along[0] - along[1]).max() / np.sqrt(np.mean(along[1] ** 2)))
    return found


def batched(controls: np.ndarray) -> np.ndarray:
    """Return controls (WORLDS, T, 12): the given ones, in each world a little elsewhere."""
    return controls + 0.02 * np.random.default_rng(2).standard_normal((WORLDS, *controls.shape))


def directions(controls: np.ndarray) -> list[np.ndarray]:
    """Return random directions of length one."""
    rng = np.random.default_rng(1)
    drawn = [rng.standard_normal(controls.shape) for _ in range(DIRECTIONS)]
    return [x / np.linalg.norm(x) for x in drawn]


def errors_of(loss: Callable[[np.ndarray], float], controls: np.ndarray, gradient: np.ndarray) -> tuple[float, float]:
    """Return the worst error over directions, and the worst error of the differences themselves.

    Both relative to the root mean square of the slopes by differences.
    """
    _, seconds = time_of(lambda: loss(controls))
    samples = int(np.clip(TIME / (2 * seconds * DIRECTIONS * len(LARGEST)), 6, SAMPLES))
    rows = []
    for direction in directions(controls):
        found = slope_of(lambda change, x=direction: loss(controls + change * x), samples)
        rows.append(((gradient * direction).sum(), *found))
    ours, theirs, uncertain = np.array(rows).T
    if not np.isfinite(rows).all():
        return float("inf"), float("inf")
    size = max(float(np.sqrt(np.mean(theirs**2))), 1e-12)
    return float(np.abs(ours - theirs).max() / size), float(uncertain.max() / size)


def slope_of(function: Callable[[float], float], samples: int) -> tuple[float, float]:
    """Return the slope of a function at 0 and its error: the standard error, and what a term in h⁸ would change.

    Of the fits to step sizes from an eighth of each of `LARGEST` on, the one of the smallest error: a kink within
    reach, or rounding, makes it large.
    """
    best = (float("nan"), float("inf"))
    for largest in LARGEST:
        h = np.linspace(largest / 8, largest, samples)
        differences = np.array([function(x) - function(-x) for x in h]) / (2 * h)
        if not np.isfinite(differences).all():
            continue
        # rounding is the same at every h, so that differences are worth h; columns of about one
        A = np.stack([(h / largest) ** k for k in (0, 2, 4, 6, 8)], 1) * h[:, None]
        fits = [np.linalg.lstsq(A[:, :n], differences * h, rcond=None)[0] for n in (4, 5)]
        fit, A = fits[0], A[:, :4]
        noise = np.sum((A @ fit - differences * h) ** 2) / (samples - 4)
        # what a term more would change is an error as well
        error = float(np.sqrt(noise * np.linalg.inv(A.T @ A)[0, 0])) + abs(float(fits[1][0] - fit[0]))
        if error < best[1]:
            best = (float(fit[0]), error)
    return best
