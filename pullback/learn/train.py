"""Train a policy: an algorithm by its name, with progress, Ctrl-C, checkpoints and a log."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from pullback.core.errors import PullbackError, unknown_name
from pullback.core.search_loop import Checkpoint, SearchLoop
from pullback.learn.ahac import AHAC
from pullback.learn.config import Config
from pullback.learn.env import Env
from pullback.learn.sapo import SAPO
from pullback.learn.shac import SHAC
from pullback.learn.short_horizon import ShortHorizon

ALGORITHMS: dict[str, type[ShortHorizon]] = {"shac": SHAC, "ahac": AHAC, "sapo": SAPO}
"""By name."""


def find_algorithm(name: str) -> type[ShortHorizon]:
    """Return the class of an algorithm; an unknown name is an error that lists the choices."""
    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, list(ALGORITHMS))
    return ALGORITHMS[name]


def train(
    env: Env,
    config: Config | None = None,
    *,
    algorithm: str | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    log: str | Path | None = None,
    progress: bool = True,
    console: Console | None = None,
) -> ShortHorizon:
    """Train a policy; Ctrl-C ends after the current iteration, `resume` goes on from the checkpoint, bit for bit.

    The algorithm is that of the settings, or SHAC, unless it is named. `log` is a folder for TensorBoard.
    """
    if algorithm is None:
        algorithm = "shac" if config is None else config.algorithm
    run = find_algorithm(algorithm)(env, config)
    file = None
    if checkpoint is not None:
        file = Checkpoint(run, Path(checkpoint), run.settings)
        file.begin(resume)
    elif resume:
        raise PullbackError("resume without a checkpoint; say which file to go on from: checkpoint=...")
    label = f"{type(run).__name__ if run.config.critic else 'BPTT'} on {env.name}"
    loop = SearchLoop(run.config.iterations, label, progress, console, save_every=30.0)
    if log is None:
        loop.run(run, file)
    else:
        from pullback.learn.tensorboard import logging_to

        with logging_to(run, log):
            loop.run(run, file)
    return run
