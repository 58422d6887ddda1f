"""Descend along a gradient for hours: with a progress bar, and a checkpoint after every iteration to go on from."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from pullback.core.errors import PullbackError
from pullback.core.interrupt import Interrupt, gentle_interrupt

Tensor = torch.Tensor

CHECKPOINT = "checkpoint.pt"
RATES = {"adam": 1e-2, "lbfgs": 1.0}
"""Optimisers and their learning rates."""


@dataclass
class Design:
    """What was reached. The module holds the best values, also after an interruption or an error."""

    losses: list[float] = field(default_factory=list)
    """The loss at the beginning of each iteration."""
    best_loss: float = float("inf")
    best_iteration: int = -1
    """In which iteration, from 0 on, the best loss was seen."""
    best: dict[str, Tensor] = field(default_factory=dict)
    """The module's values that gave it."""
    seconds: float = 0.0
    """Time spent in iterations, those before an interruption included."""
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
    """Lower objective() by changing the parameters of a module, and leave the best ones in it.

    Ctrl-C ends it after the iteration it is in. With a folder, a checkpoint is written after every iteration, and the
    same call goes on from it: what comes out is the same, bit for bit, as without an interruption.

    Args:
        objective: returns the loss, one number; it reads the module's parameters.
        optimizer: "adam", or "lbfgs" with a line search, which computes one or several gradients an iteration.
        iterations: in all, those before an interruption included.
        learning_rate: None: 0.01 for adam, 1 for lbfgs.
        folder: where the checkpoint is kept; None: nowhere.
        resume: go on from the folder's checkpoint if there is one; otherwise it is overwritten.
        settings: what else the loss depends on, say a seed; a checkpoint with other settings is refused.
        title: what the progress bar says.
    """
    if optimizer not in RATES:
        raise PullbackError(f"optimizer is {optimizer!r}; choose from {', '.join(map(repr, RATES))}")
    rate = RATES[optimizer] if learning_rate is None else learning_rate
    if iterations < 1 or not rate > 0.0:
        raise PullbackError(f"iterations is {iterations}, learning_rate {rate:g}; expected positive numbers")
    run = _Run(objective, module, optimizer, rate, dict(settings or {}))
    if folder is not None:
        run.result.checkpoint = Path(folder) / CHECKPOINT
        if resume and run.result.checkpoint.exists():
            run.load()
    try:
        with gentle_interrupt() as stop:
            run.descend(iterations, stop, title, console)
    finally:
        run.leave_best()
    return run.result


class _Stopping(ProgressColumn):
    """Tells that a Ctrl-C was heard, while the iteration goes on."""

    def __init__(self, stop: Interrupt) -> None:
        super().__init__()
        self.stop = stop

    def render(self, task: Task) -> Text:
        """Return what stands in the column."""
        return Text("stopping" if self.stop else "", style="yellow")


class _Run:
    """A design under way."""

    def __init__(
        self,
        objective: Callable[[], Tensor],
        module: torch.nn.Module,
        optimizer: str,
        rate: float,
        settings: dict[str, Any],
    ) -> None:
        self.objective, self.module, self.name = objective, module, optimizer
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        if not self.parameters:
            raise PullbackError("the module has no parameter that requires a gradient; there is nothing to design")
        self.settings = {name: repr(value) for name, value in settings.items()} | {"learning_rate": repr(float(rate))}
        self.result = Design()
        if optimizer == "adam":
            self.optimizer: torch.optim.Optimizer = torch.optim.Adam(self.parameters, lr=rate)
        else:
            self.optimizer = torch.optim.LBFGS(
                self.parameters, lr=rate, max_iter=1, max_eval=30, line_search_fn="strong_wolfe",
                tolerance_grad=0.0, tolerance_change=0.0, history_size=20,
            )  # fmt: skip
        # points of this iteration with loss and gradient: a line search ends where the next iteration begins
        self.seen: list[tuple[list[Tensor], Tensor, list[Tensor]]] = []

    def descend(self, iterations: int, stop: Interrupt, title: str, console: Console | None) -> None:
        """Iterate until done, stopped, or at rest."""
        result = self.result
        columns: tuple[ProgressColumn, ...] = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        columns += (TextColumn("loss {task.fields[loss]:.4g}, best {task.fields[best]:.4g}, {task.fields[left]} left"),)
        with Progress(*columns, _Stopping(stop), console=console) as progress:
            done = len(result.losses)
            shown = {"loss": result.losses[-1] if done else float("nan"), "best": result.best_loss, "left": "?"}
            bar = progress.add_task(title, total=iterations, completed=done, **shown)
            while len(result.losses) < iterations and not stop and not result.converged:
                self.iterate()
                self.save()
                left = (iterations - len(result.losses)) * result.seconds / len(result.losses)
                shown = {"loss": result.losses[-1], "best": result.best_loss, "left": clock(left)}
                progress.update(bar, completed=len(result.losses), **shown)
        result.interrupted = bool(stop) and len(result.losses) < iterations
        if result.interrupted:
            where = f"; go on from {result.checkpoint}" if result.checkpoint else ""
            text = f"[yellow]stopped after {len(result.losses)} iterations; this is what was reached{where}[/]"
            (console or Console()).print(text)

    def iterate(self) -> None:
        """Step once."""
        start = time.perf_counter()
        before = [p.detach().clone() for p in self.parameters]
        losses: list[float] = []

        def closure() -> Tensor:
            loss = self.evaluate()
            losses.append(loss.item())
            return loss

        self.optimizer.step(closure)  # type: ignore[arg-type]
        self.seen = [point for point in self.seen if self._is_here(point[0])]
        self.result.converged = self._is_here(before)
        self.result.losses.append(losses[0])
        self.result.seconds += time.perf_counter() - start

    def evaluate(self) -> Tensor:
        """Return the loss and set the gradients, computed anew unless this point was seen in this iteration."""
        for values, loss, gradients in self.seen:
            if self._is_here(values):
                for p, gradient in zip(self.parameters, gradients):
                    p.grad = gradient.clone()
                return loss
        iteration, result = len(self.result.losses), self.result
        self.optimizer.zero_grad()
        with torch.enable_grad():
            loss = self.objective()
            _check_loss(loss, iteration, result)
            loss.backward()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for p in self.parameters]
        if not all(bool(g.isfinite().all()) for g in gradients):
            raise PullbackError(
                f"the gradient in iteration {iteration} is not finite (loss {loss.item():g}){_kept(result)}"
            )
        result.evaluations += 1
        if loss.item() < result.best_loss:
            result.best_loss, result.best_iteration, result.best = loss.item(), iteration, _values(self.module)
        if self.name == "lbfgs":
            self.seen.append(([p.detach().clone() for p in self.parameters], loss.detach(), gradients))
        return loss.detach()

    def _is_here(self, values: list[Tensor]) -> bool:
        return all(torch.equal(p.detach(), value) for p, value in zip(self.parameters, values))

    def leave_best(self) -> None:
        """Put the best values into the module."""
        if self.result.best:
            self.module.load_state_dict(self.result.best)

    def save(self) -> None:
        """Write the checkpoint; whatever happens, the file is a whole one, the one before or this."""
        path = self.result.checkpoint
        if path is None:
            return
        state = {
            "module": _values(self.module),
            "optimizer": self.optimizer.state_dict(),
            "optimizer_name": self.name,
            "settings": self.settings,
            "random": torch.get_rng_state(),
            **{name: getattr(self.result, name) for name in KEPT},
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        with open(new, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)

    def load(self) -> None:
        """Take up the checkpoint, after a look at whether it is one of the same design."""
        path = self.result.checkpoint
        assert path is not None
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            found, settings = state["optimizer_name"], state["settings"]
        except Exception as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise PullbackError(
                f"{path} cannot be read ({lines[0]}); remove it, or start over with resume=False"
            ) from None
        advice = "; give another folder, or start over with resume=False"
        if found != self.name:
            raise PullbackError(f"{path} was written with optimizer {found!r}, now it is {self.name!r}{advice}")
        for name in sorted(settings.keys() | self.settings.keys()):
            before, now = settings.get(name, "not given"), self.settings.get(name, "not given")
            if before != now:
                raise PullbackError(f"{path} was written with {name} = {before}, now it is {now}{advice}")
        try:
            self.module.load_state_dict(state["module"])
        except RuntimeError:
            raise PullbackError(f"{path} was written for another module than {self.module}{advice}") from None
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        for name in KEPT:
            setattr(self.result, name, state[name])


KEPT = ("losses", "best_loss", "best_iteration", "best", "seconds", "evaluations", "converged")
"""What of the result a checkpoint keeps."""


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def _values(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}


def _check_loss(loss: Tensor, iteration: int, result: Design) -> None:
    """Refuse what is not one finite number that depends on the parameters."""
    if loss.numel() != 1:
        raise PullbackError(f"the objective returned shape {tuple(loss.shape)}; expected one number")
    if not isfinite(loss.item()):
        raise PullbackError(f"the loss in iteration {iteration} is {loss.item()}{_kept(result)}")
    if not loss.requires_grad:
        raise PullbackError("the objective does not depend on the module's parameters; call the module inside of it")


def _kept(result: Design) -> str:
    """Say what is left after an error."""
    if not result.losses:
        return "; check the objective at the start values"
    text = f"; the module holds the best values, of iteration {result.best_iteration} (loss {result.best_loss:.4g})"
    if result.checkpoint:
        text += f", and {result.checkpoint} the last good state"
    return text + ". A smaller learning_rate may help"
