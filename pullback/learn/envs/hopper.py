"""Make the MuJoCo Hopper hop forward: the reward of the published short-horizon benchmark."""

from __future__ import annotations

from math import radians
from typing import ClassVar

import torch

from pullback.description.assets.hopper import GEAR, HEIGHT
from pullback.learn.legged import Legged
from pullback.rigid.state import State
from pullback.rigid.world.world import World
from pullback.robot.load import load

Tensor = torch.Tensor

LOWEST = -0.45
"""Where the root may sink to [m], from its height when standing straight; below, the episode ends."""
TOLERANCE = 0.15
LARGEST_ANGLE = radians(30)


class Hopper(Legged):
    """One leg with a hip, a knee and an ankle in the plane of x and z, with motors of 200 N·m.

    `contact` is "soft", springs under the foot and at the joints' ends, or "rigid" (docs/learning.md).
    """

    follow = "hopper/torso"
    shac: ClassVar = {"critic_rate": 2e-4}
    horizons: ClassVar = {"soft": 16, "rigid": 32}

    def build(self) -> World:
        """Return the hopper above the ground."""
        world, robot = self.empty_world(friction=0.9), load("hopper")
        world.add(robot, name="hopper", q={"rootz": HEIGHT}, actuators=self.motors(robot, GEAR))
        return world

    def start(self) -> tuple[Tensor, Tensor]:
        """Stand almost straight, almost at rest."""
        return self._rest.q + self.uniform(-0.05, 0.05, 6), self.uniform(-0.05, 0.05, 6)

    def observe(self, state: State, action: Tensor) -> Tensor:
        """Return the coordinates without x, the height from that of standing, and all rates."""
        height = state.q[:, 1:2] - HEIGHT
        return torch.cat([height, state.q[:, 2:], state.qd], 1)

    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return speed, height above the lowest and uprightness, minus effort."""
        over = (after.q[:, 1] - HEIGHT - (LOWEST + TOLERANCE)).clamp(-1.0, 0.3)
        height = torch.where(over < 0.0, -200.0 * over.square(), over)
        upright = 1.0 - (after.q[:, 2] / LARGEST_ANGLE).square()
        return after.qd[:, 0] + height + upright - 0.1 * action.square().sum(1)

    def terminated(self, state: State) -> Tensor:
        """End episodes in which it has fallen."""
        return state.q[:, 1] - HEIGHT < LOWEST
