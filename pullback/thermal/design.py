"""Optimise a module, such as the laser power over time, by the gradient of a simulated process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from pullback.core.errors import PullbackError
from pullback.core.module_descent import ModuleDescent
from pullback.core.search_loop import Checkpoint, SearchLoop

Tensor = torch.Tensor

CHECKPOINT = "checkpoint.pt"


@dataclass
class Design:
    """The result of `design`. The module holds the best values, also after an interruption or an error."""

    losses: list[float] = field(default_factory=list)
    """The loss at the beginning of each iteration."""
    best_loss: float = float("inf")
    best_iteration: int = -1
    """The iteration, counted from 0, in which the best loss was found."""
    best: dict[str, Tensor] = field(default_factory=dict)
    """The module's values at the best loss."""
    seconds: float = 0.0
    """Time spent in iterations, those before a resume included."""
    evaluations: int = 0
    """How often loss and gradient were computed."""
    interrupted: bool = False
    converged: bool = False
    """Whether the optimiser could not move any further."""
    checkpoint: Path | None = None

    @property
    def reduction(self) -> float:
        """How many times smaller than the first loss the best one is."""
        return self.losses[0] / self.best_loss if self.best_loss > 0.0 else float("inf")


def design(
    objective: Callable[[], Tensor],
    module: torch.nn.Module,
    *,
    optimizer: str = "adam",
    iterations: int = 100,
    learning_rate: float | None = None,
    folder: str | Path | None = None,
    resume: bool = True,
    settings: Mapping[str, Any] | None = None,
    title: str = "designing",
    console: Console | None = None,
) -> Design:
    """Minimise objective() over the parameters of a module, and leave the best ones in it.

    Ctrl-C ends the search after the current iteration. With a folder, a checkpoint is written after every iteration,
    and the same call resumes from it: the result is the same, bit for bit, as without an interruption.

    Args:
        objective: returns the loss, one number; it reads the module's parameters.
        optimizer: "adam", or "lbfgs" with a line search, which computes one or several gradients an iteration.
        iterations: the most iterations, those before a resume included.
        learning_rate: by default 0.01 for adam, 1 for lbfgs.
        folder: where the checkpoint is kept; None: no checkpoint.
        resume: continue from the folder's checkpoint if there is one; otherwise it is overwritten.
        settings: what else the loss depends on, for instance a seed; a checkpoint with other settings is refused.
        title: label of the progress bar.
    """
    if iterations < 1:
        raise PullbackError(f"iterations is {iterations}; expected a positive number")
    search = ModuleDescent(objective, module, optimizer, learning_rate)
    checkpoint = None
    if folder is not None:
        agree = {**(settings or {}), "optimizer": optimizer, "learning_rate": float(search.learning_rate)}
        advice = "give another folder, or start over with resume=False"
        checkpoint = Checkpoint(search, Path(folder) / CHECKPOINT, agree, advice)
        checkpoint.begin(resume=resume and checkpoint.exists())
    try:
        reason = SearchLoop(iterations, title, console=console).run(search, checkpoint)
    finally:
        search.restore_best()
    kept = search.losses, search.best_loss, search.best_iteration, search.best, search.seconds, search.evaluations
    path = checkpoint.path if checkpoint is not None else None
    return Design(*kept, reason == "interrupted", search.at_rest, path)
