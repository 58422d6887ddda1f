"""PPO of rsl_rl in our environments, one iteration at a time: the baseline that others know."""

from __future__ import annotations

import time
from collections import deque
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from rsl_rl.runners import OnPolicyRunner

from pullback.learn.env import Env, Step
from pullback.learn.rsl_env import GROUP, RslEnv, ppo_settings
from pullback.learn.short_horizon import RECENT

Tensor = torch.Tensor


@dataclass(frozen=True)
class RslReport:
    """What an iteration did."""

    steps: int
    """Steps of worlds so far."""
    seconds: float
    """Wall-clock so far, of iterations alone."""
    episode_return: float
    """Mean of the last episodes, with noise; NaN before the first is over."""
    step_reward: float


class RslPPO:
    """A training run by PPO of rsl_rl; a search of `core/search_loop.py`.

    rsl_rl draws from torch's global generator, which is seeded here.
    """

    ended = ""
    """Nothing but the number of iterations ends it."""

    def __init__(self, env: Env, *, seed: int = 0, **settings: Any) -> None:
        torch.manual_seed(seed)
        self.env, self.history = RslEnv(env), list[RslReport]()
        self.settings = ppo_settings(seed=seed, **settings)
        self.env.watch = self._note
        self._steps: list[Step] = []
        self._returns: deque[float] = deque(maxlen=RECENT)
        with redirect_stdout(StringIO()):
            self.runner: Any = OnPolicyRunner(self.env, self.settings, log_dir=None, device=str(self.env.device))

    @property
    def batch(self) -> int:
        """Steps of worlds in an iteration."""
        return self.env.num_envs * self.settings["num_steps_per_env"]

    @property
    def done(self) -> int:
        """Number of finished iterations."""
        return len(self.history)

    def iterate(self) -> None:
        """Collect and improve."""
        began = time.perf_counter()
        with redirect_stdout(StringIO()):
            self.runner.learn(1)
        returns = torch.stack([step.info["episode_return"] for step in self._steps])
        ends = torch.stack([step.terminated | step.truncated for step in self._steps])
        reward = torch.stack([step.reward for step in self._steps]).mean().item()
        self._steps.clear()
        self._returns.extend(returns[ends].tolist())
        mean = sum(self._returns) / len(self._returns) if self._returns else float("nan")
        before = self.history[-1].seconds if self.history else 0.0
        spent = before + time.perf_counter() - began
        self.history.append(RslReport((self.done + 1) * self.batch, spent, mean, reward))

    def summary(self) -> str:
        """Return the text beside the progress bar."""
        return f"return {self.history[-1].episode_return:.4g}" if self.history else ""

    def act(self, observation: Tensor) -> Tensor:
        """Return actions (B, nu) without noise, of any number of observations (B, n)."""
        policy = self.runner.get_inference_policy(device=self.env.device)
        seen = type(self.env.get_observations())({GROUP: observation}, batch_size=[len(observation)])
        with torch.no_grad():
            return policy(seen).clamp(-1.0, 1.0)

    def save(self, path: Path) -> None:
        """Write networks and optimiser; episodes are not in it."""
        self.runner.save(str(path))

    def load(self, path: Path, history: list[RslReport]) -> None:
        """Go on from what `save` wrote, and the reports so far; episodes begin anew."""
        self.runner.load(str(path))
        self.history = history

    def _note(self, step: Step) -> None:
        self._steps.append(step)
