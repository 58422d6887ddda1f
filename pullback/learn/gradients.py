"""The gradient of a window's loss by the policy: worlds without one are left out, and what it did is reported.

On a CPU the simulation raises where a world's gradient is not finite; the world is named, and the rest is computed
again. On a GPU looking would make it wait: there the gradient of such a world stops where it breaks (`guard.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pullback.core.errors import GradientError
from pullback.learn.window import Window

Tensor = torch.Tensor


@dataclass
class Slopes:
    """Derivatives of the mean loss, and how good they are."""

    parameters: list[Tensor] | None
    """By each of the policy's parameters; None where no world has a gradient."""
    by_action: Tensor
    """(H, B, nu)"""
    by_state: Tensor | None
    """Length of the gradient by q and qd after each step (H, B), if it was asked for."""
    lost: Tensor
    """Share of worlds left out, or cut short, because their gradient was not finite."""


def policy_slopes(window: Window, parameters: Sequence[Tensor], lost: Tensor, *, states: bool = False) -> Slopes:
    """Return the gradient of the mean loss of all worlds that have one; `lost` is what their guard marks.

    On a CPU worlds whose gradient is not finite are left out one after the other; on a GPU nothing waits.
    """
    good = window.loss.detach().isfinite()
    after = [x for state in window.states[:-1] for x in (state.q, state.qd)] if states else []
    # a state that no gradient reaches, since all episodes began there, is left out
    after = after if all(x.requires_grad for x in after) else []
    wanted = [*parameters, *window.actions, *after]
    while not good.is_cpu or bool(good.any()):
        loss = torch.where(good, window.loss, torch.zeros_like(window.loss)).sum() / len(good)
        try:
            found = torch.autograd.grad(loss, wanted, retain_graph=good.is_cpu, allow_unused=True)
        except GradientError as error:
            # on a CPU the simulation names the worlds whose gradient is not finite
            bad = torch.zeros_like(good)
            bad[[world for world in error.worlds if world < len(good)]] = True
        else:
            slopes = [torch.zeros_like(x) if g is None else g for g, x in zip(found, wanted)]
            count, steps = len(parameters), len(window.actions)
            by_action = torch.stack(slopes[count : count + steps])
            bad = ~by_action.isfinite().all(2).all(0)
            if not good.is_cpu or all(bool(slope.isfinite().all()) for slope in slopes[:count]):
                share = (lost | ~good).float().mean()
                return Slopes(slopes[:count], by_action, _lengths(slopes[count + steps :]), share)
        if not bool((bad & good).any()):
            break
        good = good & ~bad
    # no gradient of any use
    nothing = torch.zeros(len(window.actions), *window.actions[0].shape, dtype=window.loss.dtype, device=good.device)
    return Slopes(None, nothing, None, torch.ones((), device=good.device))


def _lengths(slopes: Sequence[Tensor]) -> Tensor | None:
    """Return the length of pairs of gradients by q and qd, (H - 1, B)."""
    if not slopes:
        return None
    return torch.stack(
        [
            (a.square().sum(1) + b.square().sum(1)).sqrt()
            for a, b in zip(slopes[::2], slopes[1::2])
        ]
    )  # fmt: skip


def clip(slopes: Sequence[Tensor], most: float) -> tuple[list[Tensor], Tensor]:
    """Return gradients of a length of at most `most`, and the length before; zero if it is not finite."""
    norm = torch.stack([x.norm() for x in slopes]).norm()
    scale = torch.where(norm.isfinite(), (most / (norm + 1e-6)).clamp(max=1.0), torch.zeros_like(norm))
    return [torch.where(norm.isfinite(), x, torch.zeros_like(x)) * scale for x in slopes], norm


def order_variances(window: Window, by_action: Tensor, std: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    """Return the variances, over worlds, of two estimates of the gradient by the mean of the actions.

    The first-order one comes through the simulation, the zeroth-order one is REINFORCE's, advantage times ξ / σ, of the
    same steps. Both are summed over the horizon; the variance is the trace. A first order whose variance is above that
    of the zeroth is no help: the horizon is too long for the contacts it goes through.
    """
    actions = torch.stack([action.detach() for action in window.actions])
    worlds = len(window.loss)
    first = worlds * by_action * (1.0 - actions.square())
    zeroth = -advantages[..., None] * window.noise / std.clamp(min=1e-6) / len(actions)
    return first.sum(0).var(0).sum(), zeroth.sum(0).var(0).sum()
