"""Policy and critic, and the normaliser of observations that both look through."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log, pi
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pullback.core.errors import PullbackError
from pullback.core.ranks import ranks
from pullback.core.state_file import read_state, write_state

Tensor = torch.Tensor

FORMAT = "pullback policy 1"
"""Written into every policy file; files with another format are refused."""
LOG_STD_RANGE = (-5.0, 2.0)
"""Within which the logarithm of a deviation that depends on the state stays."""
SMALLEST = 1e-5
"""Added to variances, so that an entry that never changes can be divided by its own."""


class Normalizer(nn.Module):
    """Running mean and variance of observations (B, n); subtracts the one and divides by the root of the other."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size, dtype=dtype))
        self.register_buffer("var", torch.ones(size, dtype=dtype))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Return observations of mean 0 and variance 1, as far as they were seen."""
        return (x - self.mean) / (self.var + SMALLEST).sqrt()

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Take in more observations (N, n), of all ranks: mean and variance of all so far (Chan et al., 1979)."""
        # rows that are not finite are left out, without counting them: that would make a GPU wait
        good = x.isfinite().all(1, keepdim=True)
        x, together = torch.where(good, x, 0.0), ranks()
        number = together.sum(good.sum())
        few = number.clamp(min=1).to(x)
        mean = together.sum(x.sum(0)) / few
        var = together.sum(torch.where(good, x - mean, 0.0).square().sum(0)) / few
        total = self.count + number
        share = (number / total.clamp(min=1.0)).to(mean)
        away = mean - self.mean
        # with nothing seen before, share is 1: the variance of a blank normaliser is forgotten
        self.var.copy_((1 - share) * self.var + share * var + share * (1 - share) * away.square())
        self.mean.add_(share * away)
        self.count.copy_(total)


def perceptron(sizes: Sequence[int], last: float, random: torch.Generator, dtype: torch.dtype) -> nn.Sequential:
    """Return linear layers with ELU and layer normalisation between; `last` scales the weights of the last one."""
    layers: list[nn.Module] = []
    for k, (inputs, outputs) in enumerate(pairwise(sizes)):
        is_last = k == len(sizes) - 2
        linear = nn.Linear(inputs, outputs, dtype=dtype)
        nn.init.orthogonal_(linear.weight, last if is_last else 2.0**0.5, generator=random)
        nn.init.zeros_(linear.bias)
        layers += [linear] if is_last else [linear, nn.ELU(), nn.LayerNorm(outputs, dtype=dtype)]
    return nn.Sequential(*layers)


class Policy(nn.Module):
    """Actions in [-1, 1] from observations: tanh of a normal distribution whose mean is a network's.

    Called, it returns the action of the mean; `sample` adds the noise that it learns with. The deviation is one number
    an action, or, with `state_std`, an output of the network as well.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        hidden: Sequence[int] = (64, 64),
        *,
        log_std: float = -1.0,
        state_std: bool = False,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.sizes = (observation_size, *hidden, action_size)
        self.state_std = state_std
        self.normalizer: Normalizer | None = Normalizer(observation_size, dtype)
        outputs = 2 * action_size if state_std else action_size
        self.mean = perceptron((*self.sizes[:-1], outputs), 0.01, torch.Generator().manual_seed(seed), dtype)
        self.log_std = nn.Parameter(torch.full((action_size,), log_std, dtype=dtype))

    def forward(self, observation: Tensor) -> Tensor:
        """Return the action of the mean (B, nu)."""
        return self.mean(self.normalize(observation))[..., : self.sizes[-1]].tanh()

    def sample(self, observation: Tensor, random: torch.Generator) -> Tensor:
        """Return a random action (B, nu), differentiable by mean and deviation."""
        return self.sample_with_noise(observation, random)[0]

    def sample_with_noise(self, observation: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return a random action (B, nu), its noise in standard deviations, and the density's logarithm (B,)."""
        mean, log_std = self._distribution(self.normalize(observation))
        noise = ranks().draw(torch.randn, mean.shape, dtype=mean.dtype, device=mean.device, generator=random)
        before = mean + log_std.exp() * noise
        # of a normal distribution, and of tanh: log(1 - tanh²x) = 2 (log 2 - x - softplus(-2x))
        normal = -0.5 * noise.square() - log_std - 0.5 * log(2.0 * pi)
        squashed = 2.0 * (log(2.0) - before - nn.functional.softplus(-2.0 * before))
        return before.tanh(), noise, (normal - squashed).sum(-1)

    def std(self, seen: Tensor) -> Tensor:
        """Return the standard deviation of actions before tanh (..., nu) for normalised observations (..., n)."""
        return self._distribution(seen)[1].exp()

    def _distribution(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and logarithm of the deviation (..., nu) before tanh."""
        found = self.mean(seen)
        if not self.state_std:
            return found, self.log_std.expand_as(found)
        mean, change = found.chunk(2, -1)
        return mean, (self.log_std + change).clamp(*LOG_STD_RANGE)

    def normalize(self, observation: Tensor) -> Tensor:
        """Return observations as the network sees them; a policy without its normaliser is an error."""
        if self.normalizer is None:
            raise PullbackError(NO_NORMALIZER)
        size = self.sizes[0]
        if observation.shape[-1] != size:
            raise PullbackError(
                f"the observation is {tuple(observation.shape)}; this policy was made for (B, {size}): take the "
                f"environment that it was trained in, or another policy"
            )
        return self.normalizer(observation)


NO_NORMALIZER = (
    "the policy has no normaliser, or one that has seen no observation: its actions would be those of another policy; "
    "take the policy of a training run, or call policy.normalizer.update(observations) first"
)


class Critic(nn.Module):
    """The value (B,) of normalised observations (B, n)."""

    def __init__(self, size: int, hidden: Sequence[int], *, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.value = perceptron((size, *hidden, 1), 1.0, torch.Generator().manual_seed(seed), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return the values."""
        return self.value(x).squeeze(-1)


def require_normalizer(policy: Policy) -> None:
    """Raise for a policy whose normaliser is missing or blank."""
    if policy.normalizer is None or float(policy.normalizer.count) == 0.0:
        raise PullbackError(NO_NORMALIZER)


def save_policy(policy: Policy, path: str | Path) -> Path:
    """Write a policy with its normaliser to a file of tensors and numbers."""
    require_normalizer(policy)
    sizes, dtype = list(policy.sizes), str(policy.log_std.dtype).removeprefix("torch.")
    weights = {name: x.detach().cpu() for name, x in policy.state_dict().items()}
    about = {"format": FORMAT, "sizes": sizes, "dtype": dtype, "state_std": policy.state_std}
    write_state(path, {**about, "weights": weights})
    return Path(path)


def load_policy(path: str | Path) -> Policy:
    """Return the policy that `save_policy` wrote, on the CPU."""
    saved: Any = read_state(path)
    found = saved.get("format") if isinstance(saved, dict) else type(saved).__name__
    if found != FORMAT:
        raise PullbackError(f"{path} is no policy file (its format is {found!r}, expected {FORMAT!r}); see save_policy")
    weights = saved["weights"]
    if "normalizer.mean" not in weights:
        raise PullbackError(f"{path}: {NO_NORMALIZER}")
    size, *hidden, actions = saved["sizes"]
    dtype = {"float32": torch.float32, "float64": torch.float64}[saved["dtype"]]
    policy = Policy(size, actions, hidden, state_std=saved.get("state_std", False), dtype=dtype)
    policy.load_state_dict(weights)
    require_normalizer(policy)
    return policy
