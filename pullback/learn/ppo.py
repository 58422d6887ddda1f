"""Proximal policy optimisation (Schulman et al., 2017): reinforcement learning without the simulation's gradient.

It is here to compare with: the same environment, network and normaliser, and a count of the steps it takes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from pullback.core.errors import PullbackError
from pullback.core.ranks import ranks
from pullback.learn.env import Env
from pullback.learn.learner import Learner, Watch, run_learner
from pullback.learn.networks import Critic, Policy

Tensor = torch.Tensor


@dataclass(frozen=True)
class PPOConfig:
    """Settings of PPO; the defaults are the usual ones of continuous control."""

    iterations: int = 500
    """Iterations, each of `horizon` steps in every world."""
    horizon: int = 30
    """Steps in an iteration."""
    gamma: float = 0.99
    """Discount of rewards."""
    lam: float = 0.95
    """λ of generalised advantages."""
    clip: float = 0.2
    """How far the ratio of probabilities may go from 1."""
    passes: int = 5
    """Passes over an iteration's samples."""
    batches: int = 4
    """Batches in a pass."""
    rate: float = 3e-4
    """Adam's learning rate at the start; it falls to zero along a line."""
    value: float = 0.5
    """What the critic's error weighs in the loss."""
    entropy: float = 0.0
    """What the entropy of actions weighs in the loss."""
    longest_gradient: float = 0.5
    hidden: tuple[int, ...] = (256,)
    """Hidden layers of the policy, and of the critic."""
    log_std: float = -1.0
    """Logarithm of the first standard deviation of actions, before tanh."""
    seed: int = 0


@dataclass(frozen=True)
class PPOReport:
    """What an iteration did."""

    steps: int
    seconds: float
    reward: float
    """Mean reward of a step."""
    std: float
    """Mean standard deviation of actions."""
    score: float = float("nan")
    """What a `Watch` said of the policy before the iteration, where it looked."""


class PPO(Learner[PPOReport]):
    """A policy that learns from what it tries; a search of `core/search_loop.py`."""

    def __init__(self, env: Env, config: PPOConfig, policy: Policy | None = None, watch: Watch | None = None) -> None:
        if config.iterations < 1 or config.horizon < 1 or config.passes < 1 or config.batches < 1:
            raise PullbackError("iterations, horizon, passes and batches of PPO are numbers from 1 on")
        if env.worlds * config.horizon < config.batches:
            raise PullbackError(f"{env.worlds} worlds of {config.horizon} steps are less than {config.batches} batches")
        self.config = config
        sizes, settings = (env.observation_size, env.action_size), {"seed": config.seed, "dtype": env.dtype}
        super().__init__(
            env, policy, lambda: Policy(*sizes, config.hidden, log_std=config.log_std, **settings), watch
        )  # fmt: skip
        self.critic = Critic(sizes[0], config.hidden, seed=config.seed + 1, dtype=env.dtype).to(env.device)
        weights = [*self.policy.parameters(), *self.critic.parameters()]
        self.adam = torch.optim.Adam(weights, lr=config.rate, eps=1e-5)
        self._weights = weights
        self.random = torch.Generator(env.device).manual_seed(config.seed)
        self._observation = env.reset()

    @property
    def score(self) -> float:
        """What sweeps compare: minus the mean reward of a step."""
        return -self.history[-1].reward

    def summary(self) -> str:
        """Return the text beside the progress bar."""
        return f"reward {self.history[-1].reward:.4g}" if self.history else ""

    def iterate(self) -> None:
        """Act, estimate advantages, improve policy and critic."""
        config, score = self.config, self.look()
        for group in self.adam.param_groups:
            group["lr"] = config.rate * (1.0 - self.done / config.iterations)
        seen, tried, chance, advantage, target, reward = self._collect()
        together = ranks()
        count = len(seen) * together.count
        for _ in range(config.passes):
            order = torch.randperm(count, generator=self.random, device=seen.device)
            for samples in order.chunk(config.batches):
                rows = together.own_samples(samples, self.env.worlds)
                self._improve(seen[rows], tried[rows], chance[rows], advantage[rows], target[rows])
        steps = (self.done + 1) * config.horizon * self.env.all_worlds
        std = self.policy.log_std.detach().exp().mean().item()
        self.history.append(PPOReport(steps, self.seconds, reward, std, score))

    @torch.no_grad()
    def _collect(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float]:
        """Return normalised observations, actions before tanh, their log-probabilities, advantages, values, reward."""
        env, config, policy = self.env, self.config, self.policy
        rows: list[tuple[Tensor, ...]] = []
        raw = []
        for _ in range(config.horizon):
            raw.append(self._observation)
            if self.normalizes and self.done == 0 and len(raw) == 1:
                self.learn_observations(raw)
            seen = policy.normalize(self._observation)
            mean = policy.mean(seen)
            noise = ranks().draw(torch.randn, mean.shape, dtype=mean.dtype, device=mean.device, generator=self.random)
            tried = mean + policy.log_std.exp() * noise
            step = env.step(tried.tanh())
            done = step.terminated | step.truncated
            # an episode that was cut off by time has a value after it; one that failed has none
            after = self.critic(policy.normalize(step.info["final_observation"]))
            after = torch.where(step.terminated, torch.zeros_like(after), after)
            rows.append((seen, tried, self._log_chance(mean, tried), step.reward, self.critic(seen), after, done))
            self._observation = step.observation
        env.detach()
        seen, tried, chance, reward, value, after, done = (torch.stack(x) for x in zip(*rows))
        advantage = torch.zeros_like(reward)
        carried = torch.zeros_like(reward[0])
        for t in reversed(range(config.horizon)):
            surprise = reward[t] + config.gamma * after[t] - value[t]
            carried = surprise + config.gamma * config.lam * torch.where(done[t], torch.zeros_like(carried), carried)
            advantage[t] = carried
        if self.normalizes:
            self.learn_observations(raw)
        seen, tried, chance = seen.flatten(0, 1), tried.flatten(0, 1), chance.flatten()
        return (
            seen,
            tried,
            chance,
            advantage.flatten(),
            (advantage + value).flatten(),
            float(ranks().mean(reward.mean())),
        )

    def _improve(self, seen: Tensor, tried: Tensor, chance: Tensor, advantage: Tensor, target: Tensor) -> None:
        """Take one step of Adam with a batch."""
        config, policy = self.config, self.policy
        together = ranks()
        count = together.sum(torch.as_tensor(float(len(seen)), dtype=seen.dtype, device=seen.device))
        off = advantage - together.sum(advantage.sum()) / count
        advantage = off / ((together.sum(off.square().sum()) / (count - 1.0)).sqrt() + 1e-8)
        ratio = (self._log_chance(policy.mean(seen), tried) - chance).exp()
        clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
        gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
        error = (self.critic(seen) - target).square().mean()
        loss = -gain + config.value * error - config.entropy * policy.log_std.sum()
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        together.share_gradients(self._weights, loss, len(seen))
        nn.utils.clip_grad_norm_(self._weights, config.longest_gradient)
        self.adam.step()

    def _log_chance(self, mean: Tensor, tried: Tensor) -> Tensor:
        """Return the log-probability (B,) of actions before tanh, up to a constant."""
        log_std = self.policy.log_std
        return -(0.5 * ((tried - mean) / log_std.exp()).square() + log_std).sum(-1)

    # -- saving ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all that later iterations depend on."""
        return {
            "policy": self.policy.state_dict(), "critic": self.critic.state_dict(), "adam": self.adam.state_dict(),
            "env": self.env.save_state(), "random": self.random.get_state(),
            "history": [asdict(report) for report in self.history],
        }  # fmt: skip

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        for name in ("policy", "critic", "adam"):
            getattr(self, name).load_state_dict(state[name])
        self.env.load_state(state["env"])
        self._observation = self.env.detach()
        self.random.set_state(state["random"])
        self.restore([PPOReport(**report) for report in state["history"]])


def train_ppo(
    env: Env,
    config: PPOConfig | None = None,
    *,
    policy: Policy | None = None,
    watch: Watch | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    console: Console | None = None,
) -> PPO:
    """Train a policy by PPO; return the search with its policy and history.

    `policy` is one to begin with; `watch` looks at it now and then. `checkpoint` is a file to save to every 30 s and at
    the end; with `resume` training goes on from it.
    """
    search = PPO(env, config or PPOConfig(), policy, watch)
    return run_learner(search, "PPO", checkpoint=checkpoint, resume=resume, progress=progress, console=console)
