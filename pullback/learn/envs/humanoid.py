"""Make the MuJoCo Humanoid run along x: observation and reward of the published short-horizon benchmark.

Its body is read from the file humanoid.xml that the package gymnasium installs: 17 motors, no ankles. The published one
has ankles, 21 motors, of up to 210 N·m.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from pullback.learn.legged import Runner, gymnasium_body, upright_and_heading
from pullback.rigid.state import State
from pullback.rigid.world.world import World
from pullback.spatial.rotations_torch import rotate

Tensor = torch.Tensor

HEIGHT, LOWEST = 1.35, 0.74
"""Height [m] of the torso at the start, and below which an episode ends."""
TOLERANCE = 0.1
"""Height [m] above the lowest that is not punished."""
MOTORS = {
    "abdomen_z": 40.0, "abdomen_y": 40.0, "abdomen_x": 40.0,
    **{f"{side}_{joint}": gain for side in ("right", "left") for joint, gain in {
        "hip_x": 40.0, "hip_z": 40.0, "hip_y": 120.0, "knee": 80.0, "shoulder1": 10.0, "shoulder2": 10.0, "elbow": 10.0,
    }.items()},
}  # fmt: skip
"""Largest torque [N·m] of each motor: gear times range of the control in the file."""


class Humanoid(Runner):
    """A body of 41 kg with two legs and two arms; motors of 10 to 120 N·m."""

    lowest = LOWEST
    follow = "humanoid/torso"
    shac: ClassVar = {"actor_hidden": (256, 128), "critic_rate": 5e-4, "target_mixing": 0.995}

    def build(self) -> World:
        """Return the humanoid above the ground."""
        world, robot = self.empty_world(friction=0.75), gymnasium_body("humanoid.xml")
        world.add(robot, name="humanoid", position=(0.0, 0.0, HEIGHT), actuators=self.motors(robot, MOTORS))
        return world

    def control(self, action: Tensor) -> Tensor:
        """Return controls: the file's motors, of rigid contact, take up to 0.4."""
        return 0.4 * action if self.contact == "rigid" else action

    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return speed along x, uprightness, heading and height, minus effort."""
        quat = after.q[:, 3:7]
        up, heading = upright_and_heading(quat)
        over = (after.q[:, 2] - (LOWEST + TOLERANCE)).clamp(-1.0, TOLERANCE)
        height = torch.where(over < 0.0, -200.0 * over.square(), 10.0 * over)
        speed = rotate(quat, after.qd[:, 3:6])[:, 0]
        return speed + 0.1 * up + heading + height - 0.002 * action.square().sum(1)
