"""The steps of one iteration: a policy acts in all worlds for a horizon, and its loss keeps the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from pullback.learn.env import Env
from pullback.rigid.state import State

Tensor = torch.Tensor


class Actor(Protocol):
    """What acts: the part of an algorithm that `collect` needs."""

    def sample(self, observation: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return actions (B, nu), the noise in them (B, nu), and what is added to the reward (B,), if anything."""
        ...

    def value(self, observation: Tensor, terminated: Tensor) -> tuple[Tensor, Tensor]:
        """Return what steps to come are worth (B,): for the policy's loss, with the graph, and for the critics."""
        ...

    def normalize(self, observation: Tensor) -> Tensor:
        """Return observations as networks see them."""
        ...


@dataclass
class Window:
    """The steps of one iteration, (H, B, ...) each."""

    loss: Tensor
    """(B,), with the graph."""
    actions: list[Tensor]
    """H times (B, nu), with the graph."""
    states: list[State]
    """The states after each step, with the graph; starts where episodes ended."""
    noise: Tensor
    """Of the actions before tanh, in standard deviations."""
    observations: Tensor
    seen: Tensor
    """The observations, normalised."""
    rewards: Tensor
    bonus: Tensor
    """What the algorithm added to them."""
    reward_graph: Tensor
    """Sum of all rewards, with the graph."""
    values: Tensor
    """Of the state after each step; 0 after a failure."""
    ends: Tensor
    """Whether an episode ended with the step."""
    returns: Tensor
    """Of the episode so far, complete where it ended."""
    lengths: Tensor
    """Of the episode so far."""


def collect(env: Env, actor: Actor, horizon: int, discount: float) -> Window:
    """Act for `horizon` steps; return the loss of each world and what critics learn from.

    Nothing is read back from the device: looking makes a GPU wait.
    """
    observation = env.detach()
    weight = torch.ones_like(env.returns)
    gained, loss, total = (torch.zeros_like(weight) for _ in range(3))
    actions, states, noises, observations, seen, rewards, bonuses = ([] for _ in range(7))
    values, ends, returns, lengths = ([] for _ in range(4))
    for t in range(horizon):
        observations.append(observation.detach())
        seen.append(actor.normalize(observation).detach())
        action, noise, bonus = actor.sample(observation)
        observation, reward, terminated, truncated, info = env.step(action)
        over = terminated | truncated
        value, plain = actor.value(info["final_observation"], terminated)
        added = torch.zeros_like(reward) if bonus is None else bonus
        gained = gained + weight * (reward + added)
        weight = discount * weight
        # a world's return is complete where its episode ends and at the horizon
        complete = over if t < horizon - 1 else torch.ones_like(over)
        loss = loss - torch.where(complete, gained + weight * value, torch.zeros_like(gained))
        gained = torch.where(over, torch.zeros_like(gained), gained)
        weight = torch.where(over, torch.ones_like(weight), weight)
        total = total + reward
        for kept, x in (
            (noises, noise), (rewards, reward), (bonuses, added), (values, plain), (ends, over),
            (returns, info["episode_return"]), (lengths, info["episode_length"]),
        ):  # fmt: skip
            kept.append(x.detach())
        actions.append(action)
        states.append(env.state)
    return Window(
        loss=loss / horizon, actions=actions, states=states, noise=torch.stack(noises),
        observations=torch.stack(observations), seen=torch.stack(seen), rewards=torch.stack(rewards),
        bonus=torch.stack(bonuses), reward_graph=total.sum(), values=torch.stack(values), ends=torch.stack(ends),
        returns=torch.stack(returns), lengths=torch.stack(lengths),
    )  # fmt: skip
