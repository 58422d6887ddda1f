"""Losses and gradients of a batch of candidates or of a module, with worlds that are not finite kept apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from pullback.control.search.search import Evaluation
from pullback.core.errors import GradientError, PullbackError

Tensor = torch.Tensor
Objective = Callable[[Tensor], "Tensor | tuple[Tensor, Tensor]"]


def evaluate_batch(objective: Objective, z: Tensor, gradient: bool) -> Evaluation:
    """Return losses and gradients of the rows; rows that are not finite do not affect the others."""
    rows = torch.arange(len(z), device=z.device)
    bad = torch.zeros(len(z), dtype=torch.bool, device=z.device)
    losses = z.new_full((len(z),), torch.nan)
    gradients = torch.zeros_like(z) if gradient else None
    modes = None
    while len(rows):
        free = z[rows].detach().requires_grad_(gradient)
        with torch.set_grad_enabled(gradient):
            found, returned = _call(objective, free)
        losses[rows] = found.detach()
        if returned is not None and len(rows) == len(z):
            modes = returned
        finite = found.detach().isfinite()
        if gradients is None or not bool(finite.any()):
            break
        try:
            (slope,) = torch.autograd.grad(found[finite].sum(), free)
        except GradientError as error:
            # again without the worlds named by the error
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


def evaluate_module(
    loss: Callable[[], Tensor], parameters: Sequence[Tensor], gradient: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean loss over the finite worlds, its gradient as a vector, and whether there is none."""
    lost: set[int] = set()
    like = parameters[0].detach()
    nothing = like.new_full((sum(p.numel() for p in parameters),), torch.nan)
    while True:
        with torch.set_grad_enabled(gradient):
            losses = loss()
            if not isinstance(losses, Tensor) or losses.ndim > 1:
                raise PullbackError("the loss of a module is one number or one per world (B,)")
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
