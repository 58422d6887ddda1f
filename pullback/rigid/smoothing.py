"""Losses and gradients averaged over perturbed worlds, for tasks whose gradient is zero or misleading at contacts.

Of a loss L(x) and noise of standard deviation sigma, x + sigma xi with xi normal, the smoothed loss is E[L(x + sigma
xi)]. Its gradient has two estimates, equal in the mean where L is continuous (docs/gradient_care.md):

    first order     mean of dL/dx in each world, which differentiates the motion
    zeroth order    mean of (L(x + sigma xi) - L(x - sigma xi)) / (2 sigma) xi, which only looks at losses
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.rollout.checkpoint import Schedule

Tensor = torch.Tensor
Order = Literal["first", "zeroth", "mixed"]
ORDERS: tuple[Order, ...] = ("first", "zeroth", "mixed")

DOUBT = 2.0
"""So many standard errors apart, the two estimates are no longer taken to estimate the same."""


class Smoothing:
    """Average losses over `worlds` perturbed worlds, in pairs whose noise is opposite, and choose how to differentiate.

    `order="first"` takes the mean of the worlds' gradients, `"zeroth"` compares losses only, and `"mixed"` weighs the
    two by what they scatter and by how far they disagree. Each call draws new noise; `seed` makes the sequence of them
    reproducible. What is not perturbed, and parameters of the world, have the mean of the worlds' gradients always.
    """

    def __init__(self, worlds: int = 32, *, order: Order = "first", seed: int = 0) -> None:
        if order not in ORDERS:
            raise PullbackError(f"order is {order!r}; choose {' or '.join(map(repr, ORDERS))}")
        least = 4 if order == "mixed" else 2
        if isinstance(worlds, bool) or not isinstance(worlds, int) or worlds < least or worlds % 2:
            raise PullbackError(f"worlds is {worlds!r}; they come in pairs: give an even number from {least} on")
        self.worlds = worlds
        self.order = order
        self.shares: list[float] = []
        """The weight of the first order in each input's gradient, after a backward pass with `order="mixed"`."""
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, losses: Callable[..., Tensor], *inputs: tuple[Tensor, float | Tensor]) -> Tensor:
        """Return the mean of `losses(*perturbed)`, (B,) of inputs (B, *shape), to be differentiated by `backward`.

        `inputs`: pairs of a tensor (*shape) and the standard deviation of its noise, a number or a tensor that
        broadcasts to it, in the tensor's unit; where it is zero the tensor is not perturbed.
        """
        if not inputs:
            raise PullbackError("nothing to perturb; give pairs of a tensor and the standard deviation of its noise")
        draws = [self._draw(x, deviation) for x, deviation in inputs]
        if self.order == "first":
            perturbed = [x + sigma * xi for (x, _), (sigma, xi) in zip(inputs, draws)]
            return self._checked(losses(*perturbed)).mean()
        self.shares = [1.0 if self.order == "mixed" else 0.0] * len(inputs)
        forks = [
            _Fork.apply(x, sigma, xi, self.shares, number if self.order == "mixed" else -1)
            for number, ((x, _), (sigma, xi)) in enumerate(zip(inputs, draws))
        ]
        perturbed = [path for path, _ in forks]
        if self.order == "zeroth":
            # what is perturbed needs no gradient through the motion
            perturbed = [
                p.detach() if bool((sigma > 0).all()) else torch.where(sigma > 0, p.detach(), p)
                for p, (sigma, _) in zip(perturbed, draws)
            ]
        values = self._checked(losses(*perturbed))
        half = self.worlds // 2
        difference = 0.5 * (values - values.roll(half)).detach()
        for (_, origin), (sigma, xi) in zip(forks, draws):
            # adds nothing to the value, and to the gradient the estimate that looks at losses only
            score = torch.where(sigma > 0, xi / sigma, torch.zeros_like(xi))
            values = values + difference * (score * (origin - origin.detach())).flatten(1).sum(1)
        return values.mean()

    def rollout(
        self,
        sim: Sim,
        state: State,
        controls: Tensor | int,
        loss: Callable[[Trajectory], Tensor],
        *,
        controls_noise: float | Tensor = 0.0,
        q_noise: float | Tensor = 0.0,
        qd_noise: float | Tensor = 0.0,
        checkpoint: int | Schedule = 1,
    ) -> Tensor:
        """Return the mean of `loss(trajectory)`, (B,), over rollouts from one state (1, n) under controls (T, 1, nu).

        Noise has the units of what it perturbs: `controls_noise` broadcasts to (T, nu), and is drawn anew in each step;
        `qd_noise` to (nv,); `q_noise` to (nv,) as well, a displacement on the manifold, [rad] and [m].
        """
        if state.q.shape[0] != 1:
            raise PullbackError(f"the state has {state.q.shape[0]} worlds; smoothing makes its own of one: state[0]")
        steps = controls if isinstance(controls, int) else 0
        if isinstance(controls, int):
            driven = state.qd.new_zeros(steps, sim.nu)
        elif controls.ndim == 3 and controls.shape[1] == 1:
            driven = controls[:, 0]
        else:
            raise PullbackError(
                f"controls are {tuple(controls.shape)}; smoothing perturbs one world's, (T, 1, {sim.nu})"
            )
        impulses = None if state.impulses is None else state.impulses.expand(self.worlds, -1)
        origin = state.q[0].detach()

        def losses(step: Tensor, qd: Tensor, u: Tensor) -> Tensor:
            start = State(sim.manifold.retract(origin, step), qd, impulses)
            return loss(sim.rollout(start, steps or u.transpose(0, 1), checkpoint=checkpoint))

        here = sim.manifold.difference(origin, state.q[0])
        return self(losses, (here, q_noise), (state.qd[0], qd_noise), (driven, controls_noise))

    def _draw(self, x: Tensor, deviation: float | Tensor) -> tuple[Tensor, Tensor]:
        """Return the standard deviation, like x, and normal noise (B, *shape): the second half mirrors the first."""
        sigma = torch.as_tensor(deviation, dtype=x.dtype, device=x.device).detach()
        if not bool((sigma.isfinite() & (sigma >= 0)).all()):
            raise PullbackError(f"the noise is {deviation}; give a standard deviation, finite and not negative")
        try:
            sigma = sigma.expand(x.shape)
        except RuntimeError as error:
            raise PullbackError(
                f"the noise has shape {tuple(sigma.shape)}, what it perturbs {tuple(x.shape)}; give a number, or a "
                f"tensor that broadcasts to it"
            ) from error
        xi = torch.randn(self.worlds // 2, *x.shape, dtype=x.dtype, generator=self._generator).to(x.device)
        return sigma, torch.cat([xi, -xi])

    def _checked(self, values: Tensor) -> Tensor:
        """Return the losses if there is one a world, and all are finite."""
        if not isinstance(values, Tensor) or values.shape != (self.worlds,):
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise PullbackError(f"the loss is {got}; expected one number a world, ({self.worlds},)")
        lost = int((~values.detach().isfinite()).sum())
        if lost:
            raise PullbackError(
                f"the losses of {lost} of {self.worlds} perturbed worlds are not finite; take less noise"
            )
        return values


class _Fork(torch.autograd.Function):
    """An input as the motion sees it, perturbed, and as the zeroth order does; their cotangents meet again here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sigma: Tensor, xi: Tensor, shares: list[float], number: int) -> Any:
        """Return x + sigma xi, and x once for each world."""
        ctx.save_for_backward(sigma)
        ctx.shares, ctx.number = shares, number
        return x + sigma * xi, x.expand_as(xi).clone()

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Return the mixed gradient; `number` is which share to write, or -1 where there is nothing to choose."""
        (sigma,) = ctx.saved_tensors
        first, zeroth = cotangents
        share = 0.0
        if ctx.number >= 0:
            share = first_order_share(*(_pair_means(x)[:, sigma > 0] for x in (first, zeroth)))
            ctx.shares[ctx.number] = share
        mixed = share * first.sum(0) + (1.0 - share) * zeroth.sum(0)
        return torch.where(sigma > 0, mixed, first.sum(0)), None, None, None, None


def _pair_means(x: Tensor) -> Tensor:
    """Return the means of the worlds and their mirror images (B / 2, *shape)."""
    return x.unflatten(0, (2, -1)).mean(0)


def first_order_share(first: Tensor, zeroth: Tensor) -> float:
    """Return the weight of the first order that makes the mean square error of the mix least.

    Of samples (n, k) of both, with variances v1 and v0 of their means, the covariance c and the means' distance d:
    alpha = (v0 - c) / (v1 + v0 - 2 c), or (v0 - c) / d² where d is too large for chance; see docs/gradient_care.md.
    """
    n = first.shape[0]
    gap = zeroth - first
    scattered, apart = gap - gap.mean(0), zeroth - zeroth.mean(0)
    variance = scattered.square().sum() / (n * (n - 1))
    excess = (apart * scattered).sum() / (n * (n - 1))
    distance = gap.mean(0).square().sum()
    below = float(torch.where(distance > DOUBT**2 * variance, distance, variance))
    return min(1.0, max(0.0, float(excess) / below)) if below > 0.0 else 1.0
