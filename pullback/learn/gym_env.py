"""Environments as Gymnasium's: all worlds as a `VectorEnv`, one as an `Env`, in numpy and without gradients."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from pullback.core.errors import PullbackError
from pullback.learn.env import Env

Tensor = torch.Tensor


class GymVectorEnv(gymnasium.vector.VectorEnv):
    """An environment for algorithms that read `gymnasium.vector.VectorEnv`; episodes begin again in the same step.

    Where one ended, `infos["final_obs"]` has its last observation.
    """

    def __init__(self, env: Env) -> None:
        self.env = env
        self.num_envs = env.worlds
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}
        self.single_observation_space, self.single_action_space = spaces(env)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode in every world."""
        if isinstance(seed, list):
            raise PullbackError("a seed for each world was given; give one number, from which all worlds draw")
        if options and "reset_mask" in options:
            raise PullbackError("reset_mask chooses worlds to reset; these reset themselves in the step they end")
        super().reset(seed=seed)
        return to_numpy(self.env.reset(seed)), {}

    @torch.no_grad()
    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance all worlds under actions (B, nu)."""
        observation, reward, terminated, truncated, info = self.env.step(to_action(self.env, actions))
        ended = to_numpy(terminated | truncated)
        infos: dict[str, Any] = {"broken": to_numpy(info["broken"]), "_broken": np.ones(self.num_envs, dtype=bool)}
        if ended.any():
            last = np.full(self.num_envs, None, dtype=object)
            final = to_numpy(info["final_observation"])
            for world in np.flatnonzero(ended):
                last[world] = final[world]
            infos |= {"final_obs": last, "_final_obs": ended, "final_info": {}, "_final_info": ended}
        rewards = to_numpy(reward).astype(np.float64)
        return to_numpy(observation), rewards, to_numpy(terminated), to_numpy(truncated), infos


class GymEnv(gymnasium.Env):
    """An environment of one world as `gymnasium.Env`."""

    def __init__(self, env: Env) -> None:
        if env.worlds != 1:
            raise PullbackError(f"the environment has {env.worlds} worlds; make it with worlds=1, or use GymVectorEnv")
        self.env = env
        self.observation_space, self.action_space = spaces(env)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        return to_numpy(self.env.reset(seed))[0], {}

    @torch.no_grad()
    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Advance the world under an action (nu,)."""
        _, reward, terminated, truncated, info = self.env.step(to_action(self.env, np.asarray(action)[None]))
        final = to_numpy(info["final_observation"])[0]
        return final, float(reward[0]), bool(terminated[0]), bool(truncated[0]), {"broken": bool(info["broken"][0])}


def spaces(env: Env) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    """Return the spaces of observations and actions of one world."""
    real = np.dtype(str(env.dtype).removeprefix("torch."))
    observation = gymnasium.spaces.Box(-np.inf, np.inf, (env.observation_size,), real.type)
    return observation, gymnasium.spaces.Box(-1.0, 1.0, (env.action_size,), np.float32)


def to_action(env: Env, action: np.ndarray) -> Tensor:
    """Return actions as a tensor of the environment's type and device."""
    return torch.as_tensor(np.array(action), dtype=env.dtype, device=env.sim.device)


def to_numpy(x: Tensor) -> np.ndarray:
    """Return a tensor as an array of its own."""
    return x.detach().cpu().numpy().copy()
