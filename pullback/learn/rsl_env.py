"""Environments as rsl_rl's `VecEnv`, for its PPO; and that PPO's settings for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from pullback.learn.env import Env, Step

Tensor = torch.Tensor

GROUP = "policy"
"""The one group of observations there is."""


class RslEnv(VecEnv):
    """An environment for rsl_rl; episodes begin again in the step they end, as it expects."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.num_envs = env.worlds
        self.num_actions = env.action_size
        self.max_episode_length = env.episode
        self.device = env.sim.device
        self.cfg: dict[str, Any] = {name: repr(value) for name, value in env.settings.items()}
        self.watch: Callable[[Step], None] = lambda step: None
        """Called with every step."""
        self._observation = env.reset()

    @property
    def episode_length_buf(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Steps of the current episodes (B,)."""
        return self.env.steps

    @episode_length_buf.setter
    def episode_length_buf(self, steps: Tensor) -> None:
        self.env.steps = steps.to(self.env.steps)

    def get_observations(self) -> TensorDict:
        """Return the current observations."""
        return TensorDict({GROUP: self._observation}, batch_size=[self.num_envs], device=self.device)

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Advance all worlds under actions (B, nu), clamped to [-1, 1]."""
        # rsl_rl collects in inference mode, whose tensors nothing else could use
        with torch.inference_mode(False), torch.no_grad():
            found = self.env.step(actions.clone().to(self.env.dtype))
        self.watch(found)
        self._observation = found.observation
        extras = {"time_outs": found.truncated}
        return self.get_observations(), found.reward, (found.terminated | found.truncated).long(), extras


def ppo_settings(*, steps: int = 24, hidden: tuple[int, ...] = (256, 128, 64), seed: int = 0) -> dict[str, Any]:
    """Return settings of `rsl_rl.runners.OnPolicyRunner` for PPO, those that are usual for legged robots."""
    network = {"class_name": "rsl_rl.models.MLPModel", "hidden_dims": list(hidden), "activation": "elu"}
    network |= {"obs_normalization": True}
    noise = {"class_name": "rsl_rl.modules.distribution.GaussianDistribution", "init_std": 1.0, "std_type": "scalar"}
    return {
        "seed": seed,
        "num_steps_per_env": steps,
        "save_interval": 10**9,
        "obs_groups": {"actor": [GROUP], "critic": [GROUP]},
        "actor": {**network, "distribution_cfg": noise},
        "critic": network,
        "algorithm": {
            "class_name": "rsl_rl.algorithms.PPO", "num_learning_epochs": 5, "num_mini_batches": 4, "clip_param": 0.2,
            "gamma": 0.99, "lam": 0.95, "value_loss_coef": 1.0, "entropy_coef": 0.005, "learning_rate": 1e-3,
            "max_grad_norm": 1.0, "use_clipped_value_loss": True, "schedule": "adaptive", "desired_kl": 0.01,
        },
    }  # fmt: skip
