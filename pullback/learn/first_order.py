"""How far an action can go before the first-order sample is wrong, and a radius chosen by that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from pullback.core.errors import PullbackError
from pullback.learn.enhance import step_with_jacobian
from pullback.learn.env import Env

Tensor = torch.Tensor

RADII = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)


class FirstOrderErrors(NamedTuple):
    """Errors of first-order samples against real steps, each (R, B): R radii, B worlds, relative to the change."""

    radii: tuple[float, ...]
    observation: Tensor
    """‖s'(a + Δa) - s' - ∂s'/∂a Δa‖ / ‖s'(a + Δa) - s'‖"""
    reward: Tensor
    """|r(a + Δa) - r - ∂r/∂a Δa| / |r(a + Δa) - r|"""

    def radius(self, tolerance: float = 0.1, share: float = 0.75) -> float:
        """Return the largest radius up to which that share of observations, and of rewards, is within a tolerance."""
        both = (self.observation, self.reward)
        fine = torch.stack([torch.quantile(errors.double(), share, dim=1) <= tolerance for errors in both]).all(0)
        if not bool(fine[0]):
            raise PullbackError(
                f"at the smallest radius, {self.radii[0]}, {100 * share:.0f} % of the samples are off by more than "
                f"{tolerance}; give smaller radii, or a larger tolerance"
            )
        return self.radii[int(fine.int().cumprod(0).sum()) - 1]


@torch.no_grad()
def first_order_errors(
    env: Env, action: Tensor, random: torch.Generator, radii: Sequence[float] = RADII
) -> FirstOrderErrors:
    """Compare first-order samples with real steps from the states that the worlds are in; Δa is uniform in ± radius.

    Actions (B, nu) stay within [-1, 1]. The environment is left as it was. Worlds whose episode ends, or without a
    finite Jacobian, or in which nothing changes, count with an error of 0.
    """
    saved = env.save_state()
    step, jacobian = step_with_jacobian(env, action)
    after, reward = step.info["final_observation"], step.reward
    found = []
    for radius in radii:
        drawn = torch.rand(action.shape, dtype=action.dtype, device=action.device, generator=random)
        moved = (action + radius * (2.0 * drawn - 1.0)).clamp(-1.0, 1.0)
        change = moved - action
        env.load_state(saved)
        real = env.step(moved)
        counts = jacobian.good & ~(real.terminated | step.terminated)
        by_observation = real.info["final_observation"] - after, (jacobian.next @ change[..., None]).squeeze(-1)
        by_reward = (real.reward - reward)[:, None], (jacobian.reward * change).sum(-1, keepdim=True)
        found.append([_relative(*pair, counts) for pair in (by_observation, by_reward)])
    env.load_state(saved)
    observations, rewards = (torch.stack(x) for x in zip(*found))
    return FirstOrderErrors(tuple(radii), observations, rewards)


def _relative(true: Tensor, expected: Tensor, counts: Tensor) -> Tensor:
    """Return the length of the difference over that of what is true (B,)."""
    size = true.norm(dim=1)
    error = (true - expected).norm(dim=1) / size.clamp(min=torch.finfo(true.dtype).tiny)
    return torch.where(counts & (size > 0.0), error, torch.zeros_like(error))
