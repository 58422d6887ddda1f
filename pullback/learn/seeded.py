"""Networks of many seeds side by side: one batched matrix product a layer, whatever the number of seeds.

Every tensor has a leading dimension S of seeds. No number passes from one seed to another, and Adam works entry by
entry, so a batch of seeds trains as the seeds would on their own; on a GPU ten of them cost little more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import log, pi, sqrt
from typing import Literal

import torch
from torch import nn

Tensor = torch.Tensor

First = Literal["torch", "glorot"]
"""How weights are drawn at first. "torch": as torch's linear layers do, within the inputs' number to the power of -1/2,
biases too. "glorot": as Keras does, within sqrt(6 / (inputs + outputs)), biases zero."""

LOG_STD_RANGE = (-20.0, 2.0)
"""Within which the logarithm of an action's deviation stays, as in SAC."""


class Perceptrons(nn.Module):
    """N perceptrons of equal sizes, each with weights of its own."""

    def __init__(
        self,
        randoms: Sequence[torch.Generator],
        sizes: Sequence[int],
        *,
        activation: Callable[[Tensor], Tensor] = nn.functional.relu,
        dtype: torch.dtype = torch.float32,
        first: First = "torch",
    ) -> None:
        super().__init__()
        self.activation = activation
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for inputs, outputs in pairwise(sizes):
            bounds = (inputs**-0.5,) * 2 if first == "torch" else (sqrt(6.0 / (inputs + outputs)), 0.0)
            shapes = (inputs, outputs), (1, outputs)
            for kept, shape, bound in zip((self.weights, self.biases), shapes, bounds):
                drawn = [torch.empty(shape, dtype=dtype).uniform_(-bound, bound, generator=g) for g in randoms]
                kept.append(nn.Parameter(torch.stack(drawn)))

    def forward(self, x: Tensor, members: Tensor | None = None, *, frozen: bool = False) -> Tensor:
        """Return outputs (N, B, m) of inputs (N, B, n); `members` (M,) chooses M of the networks.

        `frozen`: no gradient by weights and biases, which a compiled gradient would have for all or none.
        """
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            if k:
                x = self.activation(x)
            chosen = (weight, bias) if members is None else (weight[members], bias[members])
            if frozen:
                chosen = chosen[0].detach(), chosen[1].detach()
            x = torch.baddbmm(chosen[1], x, chosen[0])
        return x


class SeededPolicy(nn.Module):
    """Policies of S seeds: tanh of a normal distribution whose mean and deviation are a network's."""

    def __init__(
        self,
        randoms: Sequence[torch.Generator],
        sizes: Sequence[int],
        dtype: torch.dtype = torch.float32,
        first: First = "torch",
    ) -> None:
        super().__init__()
        self.action_size = sizes[-1]
        self.network = Perceptrons(randoms, [*sizes[:-1], 2 * sizes[-1]], dtype=dtype, first=first)

    def forward(self, observation: Tensor) -> Tensor:
        """Return the action of the mean (S, B, nu) for observations (S, B, n)."""
        return self.network(observation)[..., : self.action_size].tanh()

    def sample(self, observation: Tensor, noise: Tensor, *, frozen: bool = False) -> tuple[Tensor, Tensor]:
        """Return actions (S, B, nu) of standard normal `noise`, and the logarithm of their density (S, B)."""
        mean, log_std = self.network(observation, frozen=frozen).chunk(2, -1)
        log_std = log_std.clamp(*LOG_STD_RANGE)
        before = mean + log_std.exp() * noise
        # of a normal distribution, and of tanh: log(1 - tanh²x) = 2 (log 2 - x - softplus(-2x))
        normal = -0.5 * noise.square() - log_std - 0.5 * log(2.0 * pi)
        squashed = 2.0 * (log(2.0) - before - nn.functional.softplus(-2.0 * before))
        return before.tanh(), (normal - squashed).sum(-1)


class TwinCritics(nn.Module):
    """Two critics for each of S seeds: values (2, S, B) of observations and actions (S, B, ...)."""

    def __init__(
        self,
        randoms: Sequence[torch.Generator],
        sizes: Sequence[int],
        dtype: torch.dtype = torch.float32,
        first: First = "torch",
    ) -> None:
        super().__init__()
        self.network = Perceptrons([*randoms, *randoms], [*sizes, 1], dtype=dtype, first=first)

    def forward(self, observation: Tensor, action: Tensor, *, frozen: bool = False) -> Tensor:
        """Return both values of each pair."""
        x = torch.cat([observation, action], -1)
        return self.network(torch.cat([x, x]), frozen=frozen).view(2, *x.shape[:2])


def generators(seed: int, seeds: int) -> list[torch.Generator]:
    """Return one generator a seed, from `seed` on, for weights."""
    return [torch.Generator().manual_seed(seed + k) for k in range(seeds)]
