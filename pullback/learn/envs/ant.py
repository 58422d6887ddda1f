"""Make the MuJoCo Ant run along x: observation and reward of the published short-horizon benchmark."""

from __future__ import annotations

from math import radians
from typing import ClassVar

import torch

from pullback.learn.env import Env
from pullback.rigid.state import State
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.spatial.rotations_torch import quaternion_from_vector, rotate

Tensor = torch.Tensor

HEIGHT, LOWEST = 0.75, 0.27
"""Height [m] of the torso at the start, and below which an episode ends."""
KNEES = (1.0, -1.0, -1.0, 1.0)
"""Angle [rad] of each ankle at the start, in the middle of its range."""


class Ant(Env):
    """A torso on four legs with a hip and an ankle each, motors of 150 N·m."""

    substeps = 8
    # gradients of 32 steps through rigid contact taught it nothing (docs/learning.md)
    shac: ClassVar = {"horizon": 8}

    def build(self) -> World:
        """Return the ant above the ground."""
        joints = {f"ankle_{i}": angle for i, angle in enumerate(KNEES, 1)}
        world = World(gravity=(0.0, 0.0, -9.81))
        world.add(load("ant"), name="ant", position=(0.0, 0.0, HEIGHT), q=joints)
        world.add_ground(friction=0.75)
        return world

    def start(self) -> tuple[Tensor, Tensor]:
        """Start above the ground, turned by up to 7.5 degrees, with joints and velocities of some size."""
        position, turn = self.uniform(-0.1, 0.1, 3), self.uniform(-1.0, 1.0, 3)
        turn = turn / turn.norm(dim=1, keepdim=True).clamp(min=1e-6) * self.uniform(0.0, radians(7.5), 1)
        joints = self._rest.q[:, 7:] + self.uniform(-0.2, 0.2, 8)
        q = torch.cat([self._rest.q[:, :3] + position, quaternion_from_vector(turn), joints], 1)
        return q, self.uniform(-0.25, 0.25, 14)

    def observe(self, state: State, action: Tensor) -> Tensor:
        """Return height, orientation, velocities in the world's axes, joints, 0.1 their rates, up, heading, action."""
        q, qd = state.q, state.qd
        quat = q[:, 3:7]
        up, forward, velocity = self._directions(state)
        turning = rotate(quat, qd[:, :3])
        ahead = torch.stack([up[:, 2], forward[:, 0]], 1)
        return torch.cat([q[:, 2:3], quat, velocity, turning, q[:, 7:], 0.1 * qd[:, 6:], ahead, action], 1)

    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return speed along x, uprightness, heading, and height above the lowest."""
        up, forward, velocity = self._directions(after)
        return velocity[:, 0] + 0.1 * up[:, 2] + forward[:, 0] + (after.q[:, 2] - LOWEST)

    def terminated(self, state: State) -> Tensor:
        """End episodes in which the torso is down."""
        return state.q[:, 2] < LOWEST

    def _directions(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return the torso's z and x axes and its velocity [m/s], in the world's axes (B, 3) each."""
        quat = state.q[:, 3:7]
        z, x = (quat.new_tensor(axis).expand(len(quat), 3) for axis in ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0)))
        return rotate(quat, z), rotate(quat, x), rotate(quat, state.qd[:, 3:6])
