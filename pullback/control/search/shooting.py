"""Shooting: improve controls, initial states, parameters or a module by what a rollout of them is worth.

`minimize` takes an objective of a batch of candidates, `train` a loss of an `nn.Module`. Both work with gradient
methods (any torch optimiser, or an L-BFGS that searches every row for itself) and gradient-free ones, and return a
`Found`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from pullback.control.ilqr.box import Box
from pullback.control.search.lbfgs import BatchLBFGS
from pullback.control.search.search import Evaluation, Found, Method, Record, Settings, run_search
from pullback.core.errors import GradientError, PullbackError, unknown_name

Tensor = torch.Tensor
Objective = Callable[[Tensor], "Tensor | tuple[Tensor, Tensor]"]
Optimizer = Callable[[list[Tensor]], torch.optim.Optimizer]
File = str | os.PathLike[str]

LEARNING_RATES = {"adam": 1e-2, "sgd": 1e-2, "lbfgs": 1e-1}
GRADIENT_FREE = ("cma", "random")
METHODS = (*LEARNING_RATES, *GRADIENT_FREE)


def minimize(
    objective: Objective,
    start: Tensor,
    *,
    method: str | Optimizer = "adam",
    iterations: int = 100,
    lower: Any = None,
    upper: Any = None,
    learning_rate: float | None = None,
    schedule: Callable[[int], float] | None = None,
    longest_gradient: float | None = None,
    population: int | None = None,
    spread: float = 0.1,
    seed: int = 0,
    target: float | None = None,
    patience: int | None = None,
    tolerance: float = 1e-4,
    checkpoint: File | None = None,
    resume: File | None = None,
    save_every: float = 30.0,
    callback: Callable[[int, Evaluation], bool | None] | None = None,
    progress: bool = True,
    label: str | None = None,
    console: Console | None = None,
) -> Found:
    """Find the candidate with the lowest loss, from each row of `start` (B, *shape).

    `objective` takes candidates (B, *shape), any number of them, and returns losses (B,), or losses and the contact
    mode of each world (B, k) (`diagnostics.contact_modes`). Methods: "adam", "sgd", "lbfgs", or a function that makes
    any torch optimiser of a list of tensors, all of which improve every row for itself; "cma" and "random", which start
    at the first row with standard deviation `spread` and evaluate `population` candidates as one batch.

    `lower` and `upper` are kept by construction (`Box`). `learning_rate` is that of the optimiser, of "lbfgs" the
    length of the first step; `schedule(iteration)` multiplies it. `longest_gradient` shortens each row's gradient to
    that norm. It ends after `iterations` (each one rollout of the batch, with its backward pass; an L-BFGS trial
    counts), at a loss of `target`, when the best has not fallen by the share `tolerance` in `patience` iterations, when
    `callback(iteration, evaluation)` is true, or at Ctrl-C. `checkpoint` is a file written every `save_every` seconds
    and at the end; `resume` continues from one as if there had been no break.

    Rows whose loss or gradient is not finite are reported and left where they were; all of them, and it is an error.
    """
    start = _check_start(start)
    box = Box(start, lower, upper)
    shape = start.shape[1:]
    z = box.outside(start).flatten(1) if shape else box.outside(start)[:, None]
    searcher = _make_method(method, z, learning_rate, schedule, longest_gradient, population, spread, seed)
    settings = Settings(
        iterations, target, patience, tolerance, _path(checkpoint), _path(resume), save_every, progress,
        label or searcher.name, {"method": searcher.name, "start": list(start.shape), "seed": seed},
    )  # fmt: skip

    def candidates(z: Tensor) -> Tensor:
        return box.inside(z.reshape(-1, *shape))

    def evaluate(z: Tensor, gradient: bool) -> Evaluation:
        return _evaluate(lambda z: objective(candidates(z)), z, gradient)

    record, reason = run_search(searcher, evaluate, settings, callback, console)
    return _found(record, reason, searcher.name, candidates)


def train(
    loss: Callable[[], Tensor],
    module: torch.nn.Module,
    *,
    method: str | Optimizer = "adam",
    iterations: int = 100,
    **options: Any,
) -> Found:
    """Improve the parameters of a module by the loss that `loss()` computes with it, and leave it with the best.

    The loss is a number, or one a world (B,), whose mean counts: worlds that are not finite are reported and left out.
    The options are those of `minimize`, but for bounds: those belong into the module. `found.best` are the parameters
    in a row.
    """
    for name in ("lower", "upper"):
        if options.pop(name, None) is not None:
            raise PullbackError(f"train takes no {name}; let the module's forward map its parameters into the bounds")
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters:
        raise PullbackError("the module has no parameters that require a gradient; there is nothing to train")
    row = torch.nn.utils.parameters_to_vector(parameters).detach()

    def write(x: Tensor) -> None:
        with torch.no_grad():
            torch.nn.utils.vector_to_parameters(x, parameters)

    def evaluate(z: Tensor, gradient: bool) -> Evaluation:
        found = []
        for x in z:
            write(x)
            found.append(_evaluate_module(loss, parameters, gradient))
        losses, gradients, bad = zip(*found)
        return Evaluation(torch.stack(losses), torch.stack(gradients) if gradient else None, torch.stack(bad))

    start = _check_start(row[None])
    known = ("learning_rate", "schedule", "longest_gradient", "population", "spread", "seed")
    choice = {"spread": 0.1, "seed": 0} | {k: options.pop(k) for k in known if k in options}
    searcher = _make_method(method, start, *(choice.get(k) for k in known))  # pyright: ignore[reportArgumentType]
    callback, console = options.pop("callback", None), options.pop("console", None)
    for name in ("checkpoint", "resume"):
        options[name] = _path(options.get(name))
    fingerprint = {"method": searcher.name, "start": list(start.shape), "seed": choice["seed"]}
    options["label"] = options.get("label") or f"training by {searcher.name}"
    settings = Settings(iterations, fingerprint=fingerprint, **options)
    record, reason = run_search(searcher, evaluate, settings, callback, console)
    found = _found(record, reason, searcher.name, lambda z: z)
    write(found.best)
    return found


def random_starts(
    like: Tensor, count: int, spread: float, seed: int = 0, lower: Any = None, upper: Any = None
) -> Tensor:
    """Return `count` starts (count, *shape): `like` itself, and others normally spread around it, within the bounds."""
    if count < 1:
        raise PullbackError(f"{count} starts; give 1 or more")
    noise = torch.randn(count - 1, *like.shape, dtype=like.dtype, generator=torch.Generator().manual_seed(seed))
    starts = torch.cat([like[None], like + spread * noise.to(like.device)])
    for bound, limit in ((lower, torch.maximum), (upper, torch.minimum)):
        if bound is not None:
            starts = limit(starts, torch.as_tensor(bound, dtype=starts.dtype, device=starts.device))
    return starts


# -- one evaluation ------------------------------------------------------------------------------------------------


def _evaluate(objective: Objective, z: Tensor, gradient: bool) -> Evaluation:
    """Return losses and gradients of the rows; those that are not finite are evaluated apart from the others."""
    rows = torch.arange(len(z), device=z.device)
    bad = torch.zeros(len(z), dtype=torch.bool, device=z.device)
    losses = z.new_full((len(z),), torch.nan)
    gradients = torch.zeros_like(z) if gradient else None
    modes = None
    while len(rows):
        free = z[rows].detach().requires_grad_(gradient)
        with torch.set_grad_enabled(gradient):
            found, told = _call(objective, free)
        losses[rows] = found.detach()
        if told is not None and len(rows) == len(z):
            modes = told
        finite = found.detach().isfinite()
        if gradients is None or not bool(finite.any()):
            break
        try:
            (slope,) = torch.autograd.grad(found[finite].sum(), free)
        except GradientError as error:
            # once more without the worlds that it names
            lost = torch.zeros_like(finite)
            lost[[world for world in error.worlds if world < len(rows)] or slice(None)] = True
            bad[rows[lost | ~finite]] = True
            rows = rows[~lost & finite]
            continue
        except RuntimeError as error:
            if found.requires_grad:
                raise
            raise PullbackError("the loss does not depend on the candidates, or was detached from them") from error
        gradients[rows] = slope
        break
    bad |= ~losses.isfinite()
    if gradients is not None:
        bad |= ~gradients.isfinite().all(1)
        gradients = torch.where(bad[:, None], torch.nan, gradients)
    return Evaluation(losses, gradients, bad, modes)


def _call(objective: Objective, z: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the losses (B,), and the modes if there are any."""
    result = objective(z)
    losses, modes = result if isinstance(result, tuple) else (result, None)
    if not isinstance(losses, Tensor) or losses.shape != (len(z),):
        got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise PullbackError(f"the objective returned {got} for {len(z)} candidates; return one loss each, ({len(z)},)")
    return losses, modes


def _evaluate_module(
    loss: Callable[[], Tensor], parameters: Sequence[Tensor], gradient: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean loss over the worlds that are finite, its gradient in a row, and whether there is none."""
    lost: set[int] = set()
    like = parameters[0].detach()
    nothing = like.new_full((sum(p.numel() for p in parameters),), torch.nan)
    while True:
        with torch.set_grad_enabled(gradient):
            losses = loss()
            if not isinstance(losses, Tensor) or losses.ndim > 1:
                raise PullbackError("the loss of a module is a number or one a world (B,)")
            losses = losses.reshape(-1)
            good = losses.detach().isfinite()
            good[list(lost)] = False
            if not bool(good.any()):
                return like.new_tensor(torch.nan), nothing, torch.tensor(True, device=like.device)
            mean = losses[good].mean()
        if not gradient:
            return mean.detach(), nothing, torch.tensor(False, device=like.device)
        try:
            slopes = torch.autograd.grad(mean, parameters, allow_unused=True)
        except GradientError as error:
            before = len(lost)
            lost |= set(error.worlds)
            if len(lost) == before or not error.worlds:
                return mean.detach(), nothing, torch.tensor(True, device=like.device)
            continue
        row = torch.cat([(torch.zeros_like(p) if s is None else s).flatten() for s, p in zip(slopes, parameters)])
        return mean.detach(), row, ~row.isfinite().all()


def _found(record: Record, reason: str, name: str, candidates: Callable[[Tensor], Tensor]) -> Found:
    """Return the result with candidates in their own shape."""
    assert record.best is not None
    assert record.each is not None
    assert record.each_loss is not None
    with torch.no_grad():
        best, each = candidates(record.best[None])[0], candidates(record.each)
    return Found(
        best,
        record.best_loss,
        torch.stack(record.losses),
        torch.tensor(record.seconds, dtype=torch.float64),
        torch.tensor(record.evaluations),
        torch.stack(record.gradient_norms),
        torch.tensor(record.mode_changes, dtype=torch.float64),
        torch.tensor(record.bad),
        each,
        record.each_loss,
        name,
        reason,
    )


# -- methods -------------------------------------------------------------------------------------------------------


class Descent:
    """A torch optimiser on all rows at once; torch's optimisers treat every number for itself, so rows do not mix."""

    uses_gradient = True

    def __init__(
        self,
        z: Tensor,
        make: Optimizer,
        name: str,
        schedule: Callable[[int], float] | None,
        longest: float | None,
    ) -> None:
        self.name = name
        self._z = z.clone().requires_grad_()
        self._optimizer = make([self._z])
        if isinstance(self._optimizer, torch.optim.LBFGS):
            raise PullbackError("torch.optim.LBFGS mixes the rows and evaluates unasked; give method='lbfgs'")
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        self._schedule, self._longest, self._done = schedule, longest, 0

    def ask(self) -> Tensor:
        """Return where the rows are."""
        return self._z.detach().clone()

    def tell(self, found: Evaluation) -> None:
        """Take a step, but for the rows that are not finite."""
        before = self.ask()
        assert found.gradients is not None
        gradient = torch.where(found.bad[:, None], 0.0, found.gradients)
        if self._longest is not None:
            norm = gradient.norm(dim=1, keepdim=True)
            gradient = gradient * (self._longest / norm.clamp(min=self._longest))
        for group, rate in zip(self._optimizer.param_groups, self._rates):
            group["lr"] = rate * (1.0 if self._schedule is None else self._schedule(self._done))
        self._z.grad = gradient
        self._optimizer.step()
        self._done += 1
        with torch.no_grad():
            self._z.copy_(torch.where(found.bad[:, None], before, self._z))

    def state(self) -> dict[str, Any]:
        """Return the rows and the optimiser's own state."""
        return {"z": self.ask(), "optimizer": self._optimizer.state_dict(), "done": self._done}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        with torch.no_grad():
            self._z.copy_(state["z"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._done = state["done"]


def _make_method(
    method: str | Optimizer,
    z: Tensor,
    learning_rate: float | None,
    schedule: Callable[[int], float] | None,
    longest: float | None,
    population: int | None,
    spread: float,
    seed: int,
) -> Method:
    """Return the searcher for free numbers that start at z (B, n)."""
    if callable(method):
        if learning_rate is not None:
            raise PullbackError("an optimiser of your own has its learning rate already; leave learning_rate out")
        return Descent(z, method, getattr(method, "__name__", "optimizer").strip("<>"), schedule, longest)
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if method in GRADIENT_FREE:
        from pullback.control.search.gradient_free import make_gradient_free

        return make_gradient_free(method, z[0], population, spread, seed)
    rate = LEARNING_RATES[method] if learning_rate is None else learning_rate
    if not 0.0 < rate < float("inf"):
        raise PullbackError(f"learning_rate is {rate}; give a positive number")
    if method == "lbfgs":
        if schedule is not None or longest is not None:
            raise PullbackError("lbfgs finds its own step; leave out schedule and longest_gradient")
        return BatchLBFGS(z, rate)
    kinds: dict[str, Any] = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    return Descent(z, lambda tensors: kinds[method](tensors, lr=rate), method, schedule, longest)


# -- the border ----------------------------------------------------------------------------------------------------


def _check_start(start: Tensor) -> Tensor:
    """Return the start without its graph; refuse what is no batch of finite numbers."""
    if not isinstance(start, Tensor) or start.ndim < 1 or start.numel() == 0 or not start.is_floating_point():
        got = f"{start.dtype} {tuple(start.shape)}" if isinstance(start, Tensor) else type(start).__name__
        raise PullbackError(f"the start is {got}; give a floating-point tensor (B, *shape), one row a start")
    finite = start.detach().isfinite()
    if not bool(finite.all()):
        where = tuple((~finite).nonzero()[0].tolist())
        raise PullbackError(f"the start is not finite at {where}: {start[where].item()}")
    return start.detach()


def _path(file: File | None) -> Path | None:
    return None if file is None else Path(file)
