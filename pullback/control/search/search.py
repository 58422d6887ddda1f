"""Search over a batch of candidates: ask a method for them, evaluate them together, tell the method, keep the best."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from pullback.control.search.options import SearchSettings
from pullback.core.errors import PullbackError
from pullback.core.search_loop import Checkpoint, SearchLoop, has_stalled

Tensor = torch.Tensor

RETRIES = 20
"""Iterations in a row in which all worlds of a gradient method may be not finite, after they were."""


class Evaluation(NamedTuple):
    """Losses (B,) of a batch of candidates, gradients (B, n) if asked for, and which rows are not finite."""

    losses: Tensor
    gradients: Tensor | None
    bad: Tensor
    modes: Tensor | None = None
    """The contact mode of each world (B, k), if the objective returns it."""


class Method(Protocol):
    """An optimiser that proposes unbounded candidates (B, n) and learns from their evaluation."""

    name: str
    uses_gradient: bool
    ended: str
    """Why the method cannot improve any further, or an empty string."""
    settings: dict[str, Any]
    """Settings of its own in which a resumed search must agree."""

    def ask(self) -> Tensor:
        """Return the candidates to evaluate next."""
        ...

    def tell(self, found: Evaluation) -> None:
        """Take in the evaluation of the candidates asked for."""
        ...

    def state(self) -> dict[str, Any]:
        """Return everything later steps depend on: tensors, numbers, lists and dicts."""
        ...

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        ...


@dataclass
class Found:
    """The result of a search. An iteration is one batch of rollouts, with a backward pass where gradients are used."""

    best: Tensor
    """The best candidate of all (*shape); of `train` the module's parameters as one vector."""
    loss: float
    losses: Tensor
    """Loss of every candidate in every iteration (iterations, B); NaN where it was not finite or left out."""
    seconds: Tensor
    """Wall-clock time from the start to the end of each iteration (iterations,)."""
    evaluations: Tensor
    """Number of rollouts up to the end of each iteration (iterations,)."""
    gradient_norms: Tensor
    """(iterations, B); NaN for methods without gradients."""
    mode_changes: Tensor
    """Fraction of worlds whose contact mode changed since the last iteration (iterations,); NaN if not returned."""
    bad: Tensor
    """Number of worlds that were not finite in each iteration (iterations,)."""
    each: Tensor
    """The best candidate of each start (B, *shape); of gradient-free methods the last population."""
    each_loss: Tensor
    method: str
    reason: str
    """Why it ended: "iterations", "target", "patience", "callback", "interrupted", or the method's own reason."""

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
    """The history of a search: one row per iteration."""

    losses: list[Tensor] = field(default_factory=list)
    lowest: list[float] = field(default_factory=list)
    """The lowest loss of each iteration."""
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
        self.lowest.append(comparable[first].item())
        if self.lowest[-1] < self.best_loss:
            self.best, self.best_loss = z[first].clone(), self.lowest[-1]
        if not keep_each or self.each is None or self.each_loss is None:
            self.each, self.each_loss = z.clone(), comparable
        else:
            better = comparable < self.each_loss
            self.each = torch.where(better[:, None], z, self.each)
            self.each_loss = torch.where(better, comparable, self.each_loss)

    def to(self, device: torch.device) -> Record:
        """Return the record with its candidates on a device."""
        for name in ("best", "each", "each_loss", "modes"):
            value = getattr(self, name)
            setattr(self, name, None if value is None else value.to(device))
        return self

    def found(self, reason: str, name: str, candidates: Callable[[Tensor], Tensor]) -> Found:
        """Return the result, with candidates in their own shape and within their bounds."""
        assert self.best is not None
        assert self.each is not None
        assert self.each_loss is not None
        with torch.no_grad():
            best, each = candidates(self.best[None])[0], candidates(self.each)
        return Found(
            best,
            self.best_loss,
            torch.stack(self.losses),
            torch.tensor(self.seconds, dtype=torch.float64),
            torch.tensor(self.evaluations),
            torch.stack(self.gradient_norms),
            torch.tensor(self.mode_changes, dtype=torch.float64),
            torch.tensor(self.bad),
            each,
            self.each_loss,
            name,
            reason,
        )


class BatchSearch:
    """A method on an objective: each iteration evaluates the method's candidates as one batch."""

    def __init__(
        self, method: Method, evaluate: Callable[[Tensor, bool], Evaluation], start: Tensor, settings: SearchSettings
    ) -> None:
        self.method, self.settings, self.record = method, settings, Record()
        self._evaluate, self._start = evaluate, start
        self._begun, self._spent, self._called_off = time.perf_counter(), 0.0, False

    @property
    def done(self) -> int:
        """Number of finished iterations."""
        return len(self.record.losses)

    @property
    def ended(self) -> str:
        """Why the search is over, or an empty string."""
        settings, record = self.settings, self.record
        if settings.target is not None and record.best_loss <= settings.target:
            return "target"
        if settings.patience is not None and has_stalled(record.lowest, settings.patience, settings.tolerance):
            return "patience"
        return self.method.ended or ("callback" if self._called_off else "")

    def iterate(self) -> None:
        """Evaluate one batch of candidates and tell the method."""
        z = self.method.ask()
        found = self._evaluate(z, self.method.uses_gradient)
        self._report_bad(found)
        seconds = self._spent + time.perf_counter() - self._begun
        self.record.add(z, found, seconds, self.method.uses_gradient)
        self.method.tell(found)
        callback = self.settings.callback
        self._called_off = callback is not None and bool(callback(self.done - 1, found))

    def _report_bad(self, found: Evaluation) -> None:
        """Warn of worlds that are not finite when their number grows; raise if no world is left.

        A gradient method whose worlds were finite before shortens its steps, and may try a few times.
        """
        count, size = int(found.bad.sum()), len(found.bad)
        shortened = self.method.uses_gradient and min(self.record.bad, default=size) < size
        lately = self.record.bad[-RETRIES:]
        if count == size and not (shortened and min(lately) < size):
            raise PullbackError(
                f"iteration {self.done}: the loss or its gradient is not finite in all {size} worlds; start elsewhere, "
                f"take smaller steps (learning_rate, spread), or look at the rollout's status"
            )
        if count > max(self.record.bad, default=0):
            rows = found.bad.nonzero().flatten().tolist()
            few = ", ".join(map(str, rows[:5])) + (", ..." if count > 5 else "")
            warnings.warn(
                f"iteration {self.done}: the loss or its gradient is not finite in {count} of {size} worlds ({few}); "
                f"{'their steps are shortened' if self.method.uses_gradient else 'they count as the worst'}",
                stacklevel=5,
            )

    @property
    def score(self) -> float:
        """What sweeps compare: the best loss."""
        return self.record.best_loss

    def summary(self) -> str:
        """Return best loss, gradient norm and the number of bad worlds as text."""
        record = self.record
        if not record.losses:
            return ""
        text = f"best loss {record.best_loss:.3g}"
        norm = record.gradient_norms[-1].nanmedian().item()
        if norm == norm:
            text += f"  gradient {norm:.2g}"
        if record.bad[-1]:
            text += f"  [red]{record.bad[-1]} not finite[/]"
        return text

    def metrics(self) -> dict[str, float]:
        """Return best loss, gradient norm and the number of bad worlds of the last iteration."""
        record = self.record
        norm = record.gradient_norms[-1].nanmedian().item()
        return {"best_loss": float(record.best_loss), "gradient_norm": norm, "not_finite": float(record.bad[-1])}

    def state(self) -> dict[str, Any]:
        """Return the history and the method's state."""
        return {"record": dict(vars(self.record)), "method": self.method.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.method.load_state(state["method"])
        self.record = Record(**state["record"]).to(self._start.device)
        self._begun, self._spent = time.perf_counter(), self.record.seconds[-1]

    def run(self) -> str:
        """Search until it ends, from the checkpoint if one is to be resumed; return why it ended."""
        settings, method = self.settings, self.method
        agree = {"method": method.name, "start": list(self._start.shape), "seed": settings.seed, **method.settings}
        resume, save = (None if x is None else Path(x) for x in (settings.resume, settings.checkpoint))
        checkpoint = None
        if resume is not None:
            checkpoint = Checkpoint(self, resume, agree)
            checkpoint.resume()
        if save is not None and save != resume:
            checkpoint = Checkpoint(self, save, agree)
            checkpoint.begin(resume=False)
        label = settings.label or method.name
        loop = SearchLoop(settings.iterations, label, settings.progress, settings.console, settings.save_every)
        return loop.run(self, checkpoint)
