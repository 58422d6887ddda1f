"""Let the MuJoCo Ant walk along x with the reward of its standard task, as in Qiao et al. (ICML 2021), Figure 5."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from pullback.learn.envs.ant import Ant
from pullback.learn.legged import Contact
from pullback.rigid.state import State
from pullback.rigid.world.world import World

Tensor = torch.Tensor

HEIGHTS = (0.2, 1.0)
"""Of the torso [m], outside of which an episode ends."""
RATE_SCALE = 0.05
"""Of velocities in observations."""
FRICTION = 1.0


class AntWalk(Ant):
    """The ant of Gymnasium, an action every 0.05 s: speed along x, plus 1, minus half the squared action.

    The observation (27) is orientation, height, joints and 0.05 times the velocities.
    """

    dt = 0.05
    substeps = 10
    # joints at their limits make a statue on four feet of it, more than carry it: in float32 the slopes of one step in
    # 700 are wrong with the default, of one in 3,000 with this (docs/gradient_care.md)
    cfm = 1e-3
    shac: ClassVar = {"horizon": 8}

    def __init__(self, worlds: int = 64, *, contact: Contact = "rigid", **options: Any) -> None:
        super().__init__(worlds, contact=contact, **options)

    def empty_world(self, friction: float) -> World:
        """Return the ground, with the friction of the ant's own file."""
        return super().empty_world(FRICTION)

    def start(self) -> tuple[Tensor, Tensor]:
        """Stand above the ground, joints within 0.1 rad, moving a little, as in Gymnasium."""
        q = self._rest.q + self.uniform(-0.1, 0.1, self.sim.nq)
        q = torch.cat([q[:, :3], torch.nn.functional.normalize(q[:, 3:7], dim=1), q[:, 7:]], 1)
        drawn = torch.randn(self.worlds, self.sim.nv, dtype=self.dtype, device=self.device, generator=self.random)
        return q, 0.1 * drawn

    def observe(self, state: State, action: Tensor) -> Tensor:
        """Return quaternion xyzw, height, joint angles, and velocities in the torso's axes times 0.05."""
        q = state.q
        return torch.cat([q[:, 3:7], q[:, 2:3], q[:, 7:], RATE_SCALE * state.qd], 1)

    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return the speed along x [m/s], 1 for being alive, minus half the squared action."""
        return (after.q[:, 0] - before.q[:, 0]) / self.dt + 1.0 - 0.5 * action.square().sum(1)

    def terminated(self, state: State) -> Tensor:
        """End where the torso is too low or too high."""
        return (state.q[:, 2] < HEIGHTS[0]) | (state.q[:, 2] > HEIGHTS[1])

    def ends_at(self, observation: Tensor) -> Tensor:
        """Return whether observations (..., n) are those of an end (...)."""
        height = observation[..., 4]
        return ~((height >= HEIGHTS[0]) & (height <= HEIGHTS[1]))
