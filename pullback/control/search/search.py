"""The loop that every search runs: ask for candidates, evaluate them as one batch, tell the method, keep the best.

What the methods share stands here: the history, early stop, the progress bar, Ctrl-C, and checkpoints that a later run
continues from with the identical result.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pullback.core.errors import PullbackError
from pullback.core.interrupt import gentle_interrupt

Tensor = torch.Tensor


class Evaluation(NamedTuple):
    """What a batch of candidates is worth: losses (B,), gradients (B, n) if asked for, and which are not finite."""

    losses: Tensor
    gradients: Tensor | None
    bad: Tensor
    modes: Tensor | None = None
    """The contact mode of each world (B, k) where the objective tells it."""


class Method(Protocol):
    """A way to search: proposes free numbers (B, n), and learns what they are worth."""

    name: str
    uses_gradient: bool

    def ask(self) -> Tensor:
        """Return the candidates to evaluate next."""
        ...

    def tell(self, found: Evaluation) -> None:
        """Take in what the candidates asked for are worth."""
        ...

    def state(self) -> dict[str, Any]:
        """Return all that the next steps depend on: tensors, numbers, lists and dicts."""
        ...

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        ...


@dataclass
class Found:
    """What a search found. An iteration is one batch of rollouts, with its backward pass where gradients are used."""

    best: Tensor
    """The best candidate of all (*shape); of `train` the module's parameters in a row."""
    loss: float
    losses: Tensor
    """Loss of every candidate in every iteration (iterations, B); NaN where it was not finite or left out."""
    seconds: Tensor
    """Wall-clock time from the start to the end of each iteration (iterations,)."""
    evaluations: Tensor
    """Rollouts up to the end of each iteration (iterations,)."""
    gradient_norms: Tensor
    """(iterations, B); NaN for methods without gradients."""
    mode_changes: Tensor
    """Share of worlds whose contact mode is another than in the iteration before (iterations,); NaN if not told."""
    bad: Tensor
    """How many worlds were not finite in each iteration (iterations,)."""
    each: Tensor
    """The best candidate of each start (B, *shape); of gradient-free methods the last population."""
    each_loss: Tensor
    method: str
    reason: str
    """Why it ended: 'iterations', 'target', 'patience', 'interrupted', or what the method says."""

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.reason == "interrupted"

    @property
    def curve(self) -> Tensor:
        """The best loss so far after each iteration (iterations,)."""
        return self.losses.nan_to_num(nan=torch.inf).amin(1).cummin(0).values


@dataclass
class Record:
    """The history of a search: one row an iteration."""

    losses: list[Tensor] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)
    gradient_norms: list[Tensor] = field(default_factory=list)
    mode_changes: list[float] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    best: Tensor | None = None
    best_loss: float = float("inf")
    each: Tensor | None = None
    each_loss: Tensor | None = None
    modes: Tensor | None = None

    def add(self, z: Tensor, found: Evaluation, seconds: float, keep_each: bool) -> None:
        """Add an iteration."""
        losses = torch.where(found.bad, torch.nan, found.losses).detach()
        comparable = losses.nan_to_num(nan=torch.inf)
        no_norm = torch.full_like(losses, torch.nan)
        norms = no_norm if found.gradients is None else found.gradients.norm(dim=1)
        changed = float("nan")
        if found.modes is not None and self.modes is not None and self.modes.shape == found.modes.shape:
            changed = (found.modes != self.modes).flatten(1).any(1).double().mean().item()
        self.modes = found.modes
        self.losses.append(losses.cpu())
        self.seconds.append(seconds)
        self.evaluations.append((self.evaluations[-1] if self.evaluations else 0) + len(z))
        self.gradient_norms.append(torch.where(found.bad, torch.nan, norms).cpu())
        self.mode_changes.append(changed)
        self.bad.append(int(found.bad.sum()))
        first = int(comparable.argmin())
        if comparable[first] < self.best_loss:
            self.best, self.best_loss = z[first].clone(), comparable[first].item()
        if not keep_each or self.each is None or self.each_loss is None:
            self.each, self.each_loss = z.clone(), comparable
        else:
            better = comparable < self.each_loss
            self.each = torch.where(better[:, None], z, self.each)
            self.each_loss = torch.where(better, comparable, self.each_loss)


@dataclass
class Settings:
    """When a search ends, what it shows and where it saves."""

    iterations: int
    target: float | None = None
    patience: int | None = None
    tolerance: float = 1e-4
    checkpoint: Path | None = None
    resume: Path | None = None
    save_every: float = 30.0
    progress: bool = True
    label: str = "searching"
    fingerprint: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse settings that make no search."""
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise PullbackError(f"iterations is {self.iterations!r}; give 1 or more")
        if self.patience is not None and self.patience < 1:
            raise PullbackError(f"patience is {self.patience}; give 1 iteration or more, or None")
        if self.resume is not None and not Path(self.resume).is_file():
            raise PullbackError(f"no checkpoint to resume from at {self.resume}; leave resume out to start anew")


def run_search(
    method: Method,
    evaluate: Callable[[Tensor, bool], Evaluation],
    settings: Settings,
    callback: Callable[[int, Evaluation], bool | None] | None = None,
    console: Console | None = None,
) -> tuple[Record, str]:
    """Iterate until the settings, the method, the callback or the user say stop; return the history and the reason."""
    settings.check()
    record = Record() if settings.resume is None else load_checkpoint(settings.resume, method, settings.fingerprint)
    path = settings.checkpoint or settings.resume
    spent = record.seconds[-1] if record.seconds else 0.0
    begun = saved = time.perf_counter()
    reason = _reason_to_stop(record, settings)
    bar = _Bar(settings, console, done=len(record.losses))
    with bar, gentle_interrupt() as stop:
        try:
            while not reason:
                z = method.ask()
                found = evaluate(z, method.uses_gradient)
                record.add(z, found, spent + time.perf_counter() - begun, method.uses_gradient)
                _speak_of_bad(record, found, len(record.losses) - 1)
                method.tell(found)
                bar.show(record)
                reason = _reason_to_stop(record, settings) or getattr(method, "ended", "")
                if callback is not None and callback(len(record.losses) - 1, found):
                    reason = reason or "callback"
                if stop:
                    reason = reason or "interrupted"
                if path is not None and not reason and time.perf_counter() - saved > settings.save_every:
                    save_checkpoint(path, method, record, settings.fingerprint)
                    saved = time.perf_counter()
        finally:
            # also when a second Ctrl-C or an error ends it
            if path is not None and record.losses:
                save_checkpoint(path, method, record, settings.fingerprint)
    return record, reason


def _reason_to_stop(record: Record, settings: Settings) -> str:
    """Return why the history is enough, or nothing."""
    done = len(record.losses)
    if settings.target is not None and record.best_loss <= settings.target:
        return "target"
    if settings.patience is not None and done > settings.patience:
        lowest = [row.nan_to_num(nan=torch.inf).min().item() for row in record.losses]
        before, lately = min(lowest[: -settings.patience]), min(lowest[-settings.patience :])
        if not lately < before - settings.tolerance * abs(before):
            return "patience"
    return "iterations" if done >= settings.iterations else ""


def _speak_of_bad(record: Record, found: Evaluation, iteration: int) -> None:
    """Warn of worlds that are not finite, once they become more; raise if no world is left."""
    count, size = int(found.bad.sum()), len(found.bad)
    if count == size:
        raise PullbackError(
            f"iteration {iteration}: the loss or its gradient is not finite in all {size} worlds; start elsewhere, "
            f"take smaller steps (learning_rate, spread), or look at what the rollout's status says"
        )
    if count > max(record.bad[:-1], default=0):
        rows = found.bad.nonzero().flatten().tolist()
        few = ", ".join(map(str, rows[:5])) + (", ..." if count > 5 else "")
        warnings.warn(
            f"iteration {iteration}: the loss or its gradient is not finite in {count} of {size} worlds ({few}); they "
            f"stay where they were",
            stacklevel=3,
        )


# -- what is shown -------------------------------------------------------------------------------------------------


class _Bar:
    """A progress bar with loss, gradient norm and time left, or none at all."""

    def __init__(self, settings: Settings, console: Console | None, done: int) -> None:
        self._context: Any = nullcontext()
        self._progress: Progress | None = None
        if settings.progress:
            told = TextColumn("{task.fields[told]}")
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), told, TimeElapsedColumn())
            self._progress = Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console)
            self._context = self._progress
            self._task = self._progress.add_task(settings.label, total=settings.iterations, completed=done, told="")

    def __enter__(self) -> _Bar:
        self._context.__enter__()
        return self

    def __exit__(self, *what: Any) -> None:
        self._context.__exit__(*what)

    def show(self, record: Record) -> None:
        """Show the last iteration."""
        if self._progress is None:
            return
        told = f"best loss {record.best_loss:.3g}"
        norm = record.gradient_norms[-1].nanmedian().item()
        if norm == norm:
            told += f"  gradient {norm:.2g}"
        if record.bad[-1]:
            told += f"  [red]{record.bad[-1]} not finite[/]"
        self._progress.update(self._task, completed=len(record.losses), told=told)


# -- checkpoints ---------------------------------------------------------------------------------------------------


def save_checkpoint(path: str | os.PathLike[str], method: Method, record: Record, fingerprint: dict[str, Any]) -> None:
    """Write all that the search goes on from; the file is replaced in one go."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    torch.save({"fingerprint": fingerprint, "record": dict(vars(record)), "method": method.state()}, beside)
    os.replace(beside, path)


def load_checkpoint(path: str | os.PathLike[str], method: Method, fingerprint: dict[str, Any]) -> Record:
    """Bring the method to where it was, and return the history up to there."""
    try:
        saved = torch.load(path, weights_only=True)
        theirs, record, state = saved["fingerprint"], Record(**saved["record"]), saved["method"]
    except Exception as error:
        raise PullbackError(f"{path} is no checkpoint of a search: {str(error).splitlines()[0]}") from error
    for name, value in fingerprint.items():
        if theirs.get(name) != value:
            raise PullbackError(
                f"the checkpoint {path} is of another search: {name} {theirs.get(name)!r}, now {value!r}; "
                f"give what it was saved with, or start anew without resume"
            )
    method.load(state)
    return record
