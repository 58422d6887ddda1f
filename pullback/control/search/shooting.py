"""Shooting: optimise controls, initial states, parameters or a module by the loss of their rollout.

`minimize` takes an objective of a batch of candidates, `train` a loss of an `nn.Module`. Both work with gradient
methods (any torch optimiser, or an L-BFGS that treats every row separately) and gradient-free ones, and return a
`Found`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pullback.control.search.box import Box
from pullback.control.search.evaluate import Objective, evaluate_batch, evaluate_module
from pullback.control.search.methods import Optimizer, make_method
from pullback.control.search.options import SearchOptions, SearchSettings
from pullback.control.search.search import BatchSearch, Evaluation, Found
from pullback.core.errors import PullbackError
from pullback.core.ranks import ranks

if TYPE_CHECKING:
    from typing_extensions import Unpack

Tensor = torch.Tensor


def minimize(
    objective: Objective,
    start: Tensor,
    *,
    method: str | Optimizer = "adam",
    iterations: int = 100,
    lower: Any = None,
    upper: Any = None,
    **options: Unpack[SearchOptions],
) -> Found:
    """Find the candidate with the lowest loss, from each row of `start` (B, *shape).

    `objective` takes candidates (B, *shape), any number of them, and returns losses (B,), or losses and the contact
    mode of each world (B, k) (`diagnostics.contact_modes`). An iteration is one rollout of the batch, with its backward
    pass; a trial of L-BFGS counts. Rows whose loss or gradient is not finite are reported, and go back towards where
    they were finite last; if all are, from the start or for 20 iterations, that is an error. Ctrl-C ends the search
    with the best result so far.

    Args:
        method: "adam", "sgd", "lbfgs", or a function that makes any torch optimiser from a list of tensors: all of
            these improve every row separately. "cma" and "random" start at the first row and evaluate `population`
            candidates as one batch, with standard deviation `spread` at first (0.1) and random numbers by `seed` (0).
        iterations: the most iterations.
        lower, upper: bounds, kept by construction (`Box`).
        learning_rate: of the optimiser; of "lbfgs" the length of the first step.
        schedule: function of the iteration that multiplies the learning rate.
        longest_gradient: norm to which each row's gradient is clipped.
        target: end at this loss.
        patience, tolerance: end when the best loss has not fallen by the fraction `tolerance` (1e-4) in `patience`
            iterations.
        checkpoint, save_every: file written every `save_every` seconds (30) and at the end.
        resume: checkpoint to continue from, with the same result as without the break.
        callback: called as callback(iteration, evaluation) after each iteration; a true result ends the search.
        progress, label, console: whether, under which label and where to show a progress bar.
    """
    settings = SearchSettings.of("minimize", iterations, options)
    start = _check_start(start)
    box = Box(start, lower, upper)
    shape = start.shape[1:]
    z = box.outside(start).flatten(1) if shape else box.outside(start)[:, None]

    def candidates(z: Tensor) -> Tensor:
        return box.inside(z.reshape(-1, *shape))

    def evaluate(z: Tensor, gradient: bool) -> Evaluation:
        # each rank evaluates its candidates; all of them take the same step
        together = ranks()
        found = evaluate_batch(lambda z: objective(candidates(z)), z[together.own(len(z))], gradient)
        parts = (None if x is None else together.gather_rows(x, len(z)) for x in found)
        return Evaluation(*parts)  # pyright: ignore[reportArgumentType]

    search = BatchSearch(make_method(method, z, settings), evaluate, start, settings)
    reason = search.run()
    return search.record.found(reason, search.method.name, candidates)


def train(
    loss: Callable[[], Tensor],
    module: torch.nn.Module,
    *,
    method: str | Optimizer = "adam",
    iterations: int = 100,
    **options: Unpack[SearchOptions],
) -> Found:
    """Optimise the parameters of a module by the loss that `loss()` computes with it, and leave the best in it.

    The loss is one number, or one per world (B,), whose mean counts: worlds that are not finite are reported and left
    out. Options are those of `minimize` without bounds, which belong in the module. `found.best` holds the parameters
    as one vector.
    """
    for name in ("lower", "upper"):
        if name in options:
            raise PullbackError(f"train takes no {name}; let the module's forward map its parameters into the bounds")
    settings = SearchSettings.of("train", iterations, options)
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters:
        raise PullbackError("the module has no parameters that require a gradient; there is nothing to train")

    def write(x: Tensor) -> None:
        with torch.no_grad():
            torch.nn.utils.vector_to_parameters(x, parameters)

    def evaluate(z: Tensor, gradient: bool) -> Evaluation:
        found = []
        for x in z:
            write(x)
            value, slope, bad = evaluate_module(loss, parameters, gradient)
            if ranks().many:
                # the mean of all ranks that have one
                (slope,), value = ranks().weighted_mean([slope, value], (~bad).double())
                bad = ~value.isfinite()
            found.append((value, slope, bad))
        losses, gradients, bad = zip(*found)
        return Evaluation(torch.stack(losses), torch.stack(gradients) if gradient else None, torch.stack(bad))

    start = _check_start(torch.nn.utils.parameters_to_vector(parameters).detach()[None])
    searcher = make_method(method, start, settings)
    labelled = replace(settings, label=settings.label or f"training by {searcher.name}")
    search = BatchSearch(searcher, evaluate, start, labelled)
    reason = search.run()
    found = search.record.found(reason, searcher.name, lambda z: z)
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
