"""Gradients of whole episodes: unroll a policy through the simulation, add up rewards, back-propagate, step with Adam.

For tasks that are over in some dozens of steps, always as many. There is no critic and no noise on actions, so that
policies become as exact as the network allows; longer tasks want `SHAC`.
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
from pullback.learn.networks import Policy

Tensor = torch.Tensor

RATES = (0.9, 0.99)
"""Adam's betas."""


@dataclass(frozen=True)
class EpisodeConfig:
    """How to learn from whole episodes."""

    iterations: int = 1000
    """Iterations, each an episode in every world and one step of Adam."""
    rate: float = 2e-4
    """Adam's learning rate at the start; it falls to `last_rate` by the same factor in every iteration: errors of a
    policy that aims at a point are as large as Adam's steps."""
    last_rate: float = 1e-6
    longest_gradient: float = 1.0
    """Gradients are clipped to this length."""
    outlier: float = 0.0
    """In each step a world's gradient by its action is cut to this multiple of the median world's: a world that jams
    has a large one that leads nowhere. 0: as it is."""
    hidden: tuple[int, ...] = (256,)
    """Sizes of the hidden layers."""
    normalize: int = 100
    """Iterations whose observations the normaliser learns from; then it stays as it is."""
    seed: int = 0


@dataclass(frozen=True)
class EpisodeReport:
    """What an iteration did."""

    steps: int
    """Steps of worlds since the beginning."""
    seconds: float
    loss: float
    """Minus the mean sum of rewards."""
    gradient: float
    """Length of the gradient before it was clipped."""
    lost: float
    """Fraction of worlds left out: no longer finite."""
    score: float = float("nan")
    """What a `Watch` said of the policy before the iteration, where it looked."""


class EpisodeSearch(Learner[EpisodeReport]):
    """A policy that learns from episodes; `train_episodes` runs it."""

    def __init__(
        self, env: Env, config: EpisodeConfig, policy: Policy | None = None, watch: Watch | None = None
    ) -> None:
        if config.iterations < 1 or not config.rate >= config.last_rate > 0.0:
            raise PullbackError(
                f"iterations is {config.iterations}, rate {config.rate} and last_rate {config.last_rate}; give at "
                f"least one iteration, and rates above 0 that do not rise"
            )
        self.config = config
        sizes = env.observation_size, env.action_size
        super().__init__(
            env, policy, lambda: Policy(*sizes, config.hidden, seed=config.seed, dtype=env.dtype), watch
        )  # fmt: skip
        self._normalizes = config.normalize if self.normalizes else 0
        self.adam = torch.optim.Adam(self.policy.mean.parameters(), lr=config.rate, betas=RATES)

    # -- a search of core/search_loop.py ---------------------------------------------------------------------------

    @property
    def score(self) -> float:
        """What sweeps compare: the loss."""
        return self.history[-1].loss

    def summary(self) -> str:
        """Return the text beside the progress bar."""
        return f"loss {self.history[-1].loss:.4g}" if self.history else ""

    def iterate(self) -> None:
        """Let all worlds act for an episode, and improve the policy."""
        score = self.look()
        for group in self.adam.param_groups:
            group["lr"] = self.rate()
        returns, broken = self.unroll()
        kept = ~broken & returns.isfinite()
        if not bool(kept.any()):
            raise PullbackError(f"no world of {self.env.name} is finite at the end of an episode; take more substeps")
        loss = -returns[kept].mean()
        if not loss.requires_grad:
            raise self._deaf("they carry no gradient")
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        loss = ranks().share_gradients(list(self.policy.mean.parameters()), loss, kept.sum())
        length = nn.utils.clip_grad_norm_(self.policy.mean.parameters(), self.config.longest_gradient)
        if self.done == 0 and float(length) == 0.0:
            raise self._deaf("their gradient is zero")
        if bool(length.isfinite()):
            self.adam.step()
        lost = 1.0 - ranks().mean(kept.to(loss.dtype).mean()).item()
        steps = (self.done + 1) * self.env.all_worlds * self.env.episode
        self.history.append(EpisodeReport(steps, self.seconds, loss.item(), length.item(), lost, score))

    def rate(self) -> float:
        """Return the learning rate of the iteration to come."""
        share = min(1.0, self.done / max(1, self.config.iterations - 1))
        return self.config.rate * (self.config.last_rate / self.config.rate) ** share

    def unroll(self) -> tuple[Tensor, Tensor]:
        """Return the sum of rewards (B,) of an episode from a reset, and which worlds (B,) were no longer finite."""
        env = self.env
        observation, total, broken = env.reset(), 0.0, False
        seen: list[Tensor] = []
        for _ in range(env.episode):
            seen.append(observation.detach())
            if self.done == 0 and self._normalizes and len(seen) == 1:
                self.learn_observations(seen)
            action = self.policy(observation)
            if self.config.outlier > 0.0:
                action.register_hook(self._even)
            step = env.step(action)
            observation, total, broken = step.observation, total + step.reward, broken | step.info["broken"]
        if self.done < self._normalizes:
            self.learn_observations(seen)
        assert isinstance(total, Tensor)
        assert isinstance(broken, Tensor)
        return total, broken

    def _deaf(self, found: str) -> PullbackError:
        """Return the error of rewards that no action changes."""
        return PullbackError(
            f"the rewards of {self.env.name} do not depend on the actions: {found}. Compute them by torch from the "
            f"state and the action, without detach, item, numpy or comparisons"
        )

    def _even(self, gradient: Tensor) -> Tensor:
        """Return gradients (B, nu) of which none is much longer than the median one; those not finite become zero."""
        finite = gradient.isfinite().all(1, keepdim=True)
        gradient = torch.where(finite, gradient, torch.zeros_like(gradient))
        length = gradient.norm(dim=1, keepdim=True)
        limit = self.config.outlier * length.median()
        return torch.where(length > limit, gradient * (limit / length.clamp(min=1e-30)), gradient)

    # -- saving ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all that later iterations depend on."""
        return {
            "policy": self.policy.state_dict(), "adam": self.adam.state_dict(), "env": self.env.save_state(),
            "history": [asdict(report) for report in self.history],
        }  # fmt: skip

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.policy.load_state_dict(state["policy"])
        self.adam.load_state_dict(state["adam"])
        self.env.load_state(state["env"])
        self.restore([EpisodeReport(**report) for report in state["history"]])


def train_episodes(
    env: Env,
    config: EpisodeConfig | None = None,
    *,
    policy: Policy | None = None,
    watch: Watch | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    console: Console | None = None,
) -> EpisodeSearch:
    """Train a policy, or train one further; return the search with its policy and history.

    `checkpoint` is a file to save to every 30 s and at the end; with `resume` training goes on from it.
    `watch` looks at the policy now and then.
    """
    search = EpisodeSearch(env, config or EpisodeConfig(), policy, watch)
    return run_learner(
        search, "learning", checkpoint=checkpoint, resume=resume, progress=progress, console=console
    )  # fmt: skip
