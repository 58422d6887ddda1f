"""Soft analytic policy optimisation (SAPO): SHAC that is rewarded for acting at random.

Xing et al., "Stabilizing reinforcement learning in differentiable multiphysics simulation", ICLR 2025. The return that
is maximised, and that critics learn, has the policy's entropy in it:

    Σ γ^t (r_t + α h_t) + γ^T V(s_T),    h_t = (-log π(a_t | s_t) - E) / (2 |E|),    E = -|A| / 2

E is the entropy aimed at; h is 0 there, so that a policy is not rewarded for ending episodes. The temperature α goes
where entropy comes to E: its logarithm descends α (-log π - E). As published: the deviation of actions depends on the
state, there are two critics whose mean counts for the policy and whose smaller value counts for the critics, and no
target network.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any, ClassVar

import torch

from pullback.core.ranks import ranks
from pullback.learn.config import Config
from pullback.learn.gradients import Slopes
from pullback.learn.short_horizon import ShortHorizon
from pullback.learn.window import Window

Tensor = torch.Tensor


@dataclass(frozen=True)
class SAPOConfig(Config):
    """Settings of SAPO; the defaults are those published."""

    algorithm: ClassVar[str] = "sapo"

    temperature: float = 1.0
    """α at the start."""
    temperature_rate: float = 5e-3
    """Learning rate of α (Adam)."""
    entropy_share: float = -0.5
    """E: the entropy aimed at, for each entry of an action."""
    critics: int = 2
    target_mixing: float | None = None


class SAPO(ShortHorizon):
    """A run of SAPO."""

    Config: ClassVar[type[Config]] = SAPOConfig
    state_std: ClassVar[bool] = True
    config: SAPOConfig

    def __init__(self, env: Any, config: SAPOConfig | None = None) -> None:
        super().__init__(env, config)
        self.goal = self.config.entropy_share * env.action_size
        self.log_temperature = env.returns.new_full((), log(self.config.temperature)).requires_grad_()
        self.temperature_optimizer = torch.optim.Adam([self.log_temperature], self.config.temperature_rate)

    def sample(self, observation: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return actions, their noise, and what entropy is worth."""
        action, noise, density = self.policy.sample_with_noise(observation, self.random)
        bonus = (-density - self.goal) / (2.0 * abs(self.goal))
        return action, noise, self.log_temperature.detach().exp() * bonus

    def reduce(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of the critics' values for the policy, and the least for the critics."""
        return values.mean(0), values.amin(0)

    def adapt(self, window: Window, slopes: Slopes) -> dict[str, float]:
        """Move the temperature to where entropy comes to its goal."""
        temperature = self.log_temperature.detach().exp()
        # h = (entropy - goal) / 2 |goal|
        over = ranks().mean((window.bonus / temperature).mean()) * (2.0 * abs(self.goal))
        self.log_temperature.grad = temperature * torch.where(over.isfinite(), over, torch.zeros_like(over))
        self.temperature_optimizer.step()
        found = torch.stack([self.log_temperature.detach().exp(), over + self.goal]).tolist()
        return {"temperature": found[0], "entropy": found[1]}

    def state(self) -> dict[str, Any]:
        """Return everything that later iterations depend on."""
        own = {
            "log_temperature": self.log_temperature.detach(),
            "temperature_optimizer": self.temperature_optimizer.state_dict(),
        }
        return {**super().state(), **own}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        super().load_state(state)
        with torch.no_grad():
            self.log_temperature.copy_(state["log_temperature"])
        self.temperature_optimizer.load_state_dict(state["temperature_optimizer"])
