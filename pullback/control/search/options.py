"""Keyword options of `minimize` and `train`, and their defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from rich.console import Console

from pullback.core.errors import PullbackError, unknown_name

if TYPE_CHECKING:
    from pullback.control.search.search import Evaluation

Tensor = torch.Tensor
File = str | os.PathLike[str]


class SearchOptions(TypedDict, total=False):
    """Keyword options of `minimize` and `train`; `SearchSettings` has the defaults."""

    learning_rate: float | None
    """Of the optimiser; of "lbfgs" the length of the first step."""
    schedule: Callable[[int], float] | None
    """Factor on the learning rate by iteration."""
    longest_gradient: float | None
    """Norm to which each row's gradient is clipped."""
    population: int | None
    """Candidates in an iteration of "cma" and "random"."""
    spread: float
    """Standard deviation of the first candidates of "cma" and "random"."""
    seed: int
    target: float | None
    """Loss at which the search ends."""
    patience: int | None
    """Iterations after which the search ends if they do not lower the best loss by the fraction `tolerance`."""
    tolerance: float
    checkpoint: File | None
    """File to save to."""
    resume: File | None
    """Checkpoint to continue from."""
    save_every: float
    """Time [s] between two checkpoints."""
    callback: Callable[[int, Evaluation], bool | None] | None
    """Called after each iteration with its number and evaluation; a true result ends the search."""
    progress: bool
    """Whether to show a progress bar."""
    label: str | None
    """Label of the progress bar."""
    console: Console | None
    """Where to show it."""


@dataclass(frozen=True)
class SearchSettings:
    """`SearchOptions` with defaults, checked."""

    iterations: int
    learning_rate: float | None = None
    schedule: Callable[[int], float] | None = None
    longest_gradient: float | None = None
    population: int | None = None
    spread: float = 0.1
    seed: int = 0
    target: float | None = None
    patience: int | None = None
    tolerance: float = 1e-4
    checkpoint: File | None = None
    resume: File | None = None
    save_every: float = 30.0
    callback: Callable[[int, Evaluation], bool | None] | None = None
    progress: bool = True
    label: str | None = None
    console: Console | None = None

    @staticmethod
    def of(caller: str, iterations: int, options: Mapping[str, Any]) -> SearchSettings:
        """Return the settings of a call; an unknown option is an error that names the close ones."""
        known = [field.name for field in fields(SearchSettings)]
        for name in options:
            if name not in known:
                raise unknown_name(f"option of {caller}", name, known)
        return SearchSettings(iterations, **options)

    def __post_init__(self) -> None:
        """Raise for values that no search can have."""
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise PullbackError(f"iterations is {self.iterations!r}; give 1 or more")
        if self.patience is not None and self.patience < 1:
            raise PullbackError(f"patience is {self.patience}; give 1 iteration or more, or None")
        if self.resume is not None and not Path(self.resume).is_file():
            raise PullbackError(f"no checkpoint to resume from at {self.resume}; leave resume out to start anew")
