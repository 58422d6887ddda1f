"""Make the MuJoCo Half-cheetah run: the reward of the published short-horizon benchmark.

Its body is read from the file half_cheetah.xml that the package gymnasium installs.
"""

from __future__ import annotations

import torch

from pullback.learn.env import Env
from pullback.learn.legged import gymnasium_body
from pullback.rigid.state import State
from pullback.rigid.world.world import World

Tensor = torch.Tensor


class HalfCheetah(Env):
    """A trunk on two legs of three joints with springs in the plane of x and z, motors of 30 to 120 N·m."""

    substeps = 8

    def build(self) -> World:
        """Return the cheetah above the ground."""
        world = World(gravity=(0.0, 0.0, -9.81))
        world.add(gymnasium_body("half_cheetah.xml"), name="cheetah")
        world.add_ground(friction=1.0)
        return world

    def start(self) -> tuple[Tensor, Tensor]:
        """Start above the ground, with coordinates and velocities of some size."""
        return self._rest.q + self.uniform(-0.1, 0.1, 9), self.uniform(-0.25, 0.25, 9)

    def observe(self, state: State, action: Tensor) -> Tensor:
        """Return the coordinates without x, and all rates."""
        return torch.cat([state.q[:, 1:], state.qd], 1)

    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return speed, minus effort."""
        return after.qd[:, 0] - 0.1 * action.square().sum(1)
