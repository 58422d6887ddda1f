"""Critics: values of states, fitted to the TD(λ) returns of the steps of an iteration.

G_t = r_t + γ ((1 - λ) V(s_t+1) + λ G_t+1),    and  r_t + γ V(s_t+1)  at the end of an episode or of the horizon
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from pullback.core.ranks import ranks
from pullback.learn.config import Config
from pullback.learn.networks import Critic
from pullback.learn.window import Window

Tensor = torch.Tensor

LOOKED_BACK = 5
"""Passes over which the change of the error is averaged where it may end them."""


class Critics:
    """One or several critics, a target network for each if there is one, and their optimiser."""

    def __init__(self, size: int, config: Config, like: Tensor) -> None:
        self.config = config
        seeds = [config.seed + 1 + k for k in range(config.critics)]
        self.networks, self.targets = (
            torch.nn.ModuleList(
                Critic(size, config.critic_hidden, seed=seed, dtype=like.dtype) for seed in seeds
            ).to(like.device)
            for _ in range(2)
        )  # fmt: skip
        self.targets.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.networks.parameters(), config.critic_rate, config.betas, fused=True)

    def __call__(self, seen: Tensor) -> Tensor:
        """Return the values (n, B) that the slow copies give normalised observations, or the critics if none are."""
        used = self.networks if self.config.target_mixing is None else self.targets
        return torch.stack([network(seen) for network in used])

    def fit(self, window: Window, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Fit to TD(λ) returns and mix into the targets; return the error in the last pass, and the returns (H, B)."""
        config, parameters = self.config, list(self.networks.parameters())
        rewards = window.rewards + window.bonus
        returns = td_returns(rewards, window.values, window.ends, config.discount, config.trace)
        seen, targets = window.seen.flatten(0, 1), returns.flatten()
        # what is not finite is left out, without counting it: that would make a GPU wait
        usable = targets.isfinite() & seen.isfinite().all(1)
        seen, targets = (torch.where(usable[:, None], seen, 0.0), torch.where(usable, targets, 0.0))
        share = usable.to(targets)
        lately: deque[float] = deque(maxlen=LOOKED_BACK)
        error, worlds, together = torch.zeros_like(targets[0]), rewards.shape[1], ranks()
        for _ in range(config.critic_passes):
            order = torch.randperm(len(seen) * together.count, device=seen.device, generator=random)
            losses = []
            for samples in order.chunk(config.critic_batches):
                batch = together.own_samples(samples, worlds)
                x, goal, weight = seen[batch], targets[batch], share[batch]
                total = sum((weight * (network(x) - goal).square()).sum() for network in self.networks)
                loss = total / (len(self.networks) * weight.sum().clamp(min=1.0))
                self.optimizer.zero_grad()
                loss.backward()
                loss = together.share_gradients(parameters, loss, weight.sum())
                torch.nn.utils.clip_grad_norm_(parameters, config.gradient_norm)
                self.optimizer.step()
                losses.append(loss.detach())
            error = torch.stack(losses).mean()
            if config.critic_tolerance > 0.0:
                if len(lately) == LOOKED_BACK and abs(lately[-1] - lately[0]) < config.critic_tolerance * LOOKED_BACK:
                    break
                lately.append(float(error))
        if config.target_mixing is not None:
            with torch.no_grad():
                for slow, fast in zip(self.targets.parameters(), self.networks.parameters()):
                    slow.lerp_(fast, 1.0 - config.target_mixing)
        return error, returns

    def state(self) -> dict[str, Any]:
        """Return everything later passes depend on."""
        parts = {"networks": self.networks, "targets": self.targets, "optimizer": self.optimizer}
        return {name: part.state_dict() for name, part in parts.items()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        for name in ("networks", "targets", "optimizer"):
            getattr(self, name).load_state_dict(state[name])


def td_returns(rewards: Tensor, values: Tensor, ends: Tensor, discount: float, trace: float) -> Tensor:
    """Return the TD(λ) returns (H, B) of rewards, values of the states after each step, and ends of episodes."""
    result = torch.empty_like(rewards)
    # beyond the horizon there is the value alone
    later = values[-1]
    for t in reversed(range(len(rewards))):
        mixed = (1.0 - trace) * values[t] + trace * later
        later = result[t] = rewards[t] + discount * torch.where(ends[t], values[t], mixed)
    return result
