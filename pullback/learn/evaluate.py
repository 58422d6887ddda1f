"""Try a policy: the return of an episode, and its motion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pullback.core.ranks import ranks
from pullback.learn.env import Env
from pullback.rigid.state import Status, Trajectory

Tensor = torch.Tensor
Act = Callable[[Tensor], Tensor]
"""What returns actions (B, nu) for observations (B, n): a `Policy`, or any function."""

LOOK_EVERY = 20
"""Steps after which it is seen whether any world still runs."""


@torch.no_grad()
def evaluate(env: Env, policy: Act, seed: int | None = None) -> Tensor:
    """Return the return (B,) of one episode in each world, those of all ranks, from a reset."""
    observation = env.reset(seed)
    total, running = torch.zeros_like(env.returns), torch.ones_like(env.returns, dtype=torch.bool)
    for step in range(env.episode):
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        total = total + torch.where(running, reward, torch.zeros_like(reward))
        running = running & ~(terminated | truncated)
        # looked at now and then: looking makes a GPU wait
        if step % LOOK_EVERY == LOOK_EVERY - 1 and not bool(running.any()):
            break
    return ranks().gather_rows(total, env.all_worlds)


@torch.no_grad()
def play(env: Env, policy: Act, seed: int | None = None) -> Trajectory:
    """Return the motion of the first world over one episode, for a replay."""
    observation = env.reset(seed)
    states = [env.state]
    for _ in range(env.episode):
        observation, _, terminated, truncated, _ = env.step(policy(observation))
        if bool(terminated[0] | truncated[0]):
            break
        states.append(env.state)
    q, qd = torch.stack([s.q[:1] for s in states]), torch.stack([s.qd[:1] for s in states])
    return Trajectory(q, qd, Status.fine(1, env.substeps), torch.arange(len(states)))


def replay(env: Env, policy: Act, path: str | Path, seed: int | None = None, **options: Any) -> Path:
    """Write one episode of the first world as an HTML page that plays it, or as a video, .mp4 or .gif.

    Options are those of `pb.viewer.save_replay`, and of `save_video`.
    """
    from pullback.viewer import save_replay, save_video

    options = {"forces": False, "follow": env.follow, **options}
    save = save_video if Path(path).suffix.lower() in (".mp4", ".gif") else save_replay
    return save(env.sim, play(env, policy, seed), Path(path), **options)
