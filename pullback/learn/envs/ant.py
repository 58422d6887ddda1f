"""Make the MuJoCo Ant run along x: observation and reward of the published short-horizon benchmark."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch

from pullback.core.errors import unknown_name
from pullback.description.assets.ant import GEAR, tree
from pullback.learn.legged import Runner, upright_and_heading
from pullback.rigid.state import State
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.spatial.rotations_torch import rotate

Tensor = torch.Tensor

HEIGHT, LOWEST = 0.75, 0.27
"""Height [m] of the torso at the start, and below which an episode ends."""
KNEES = (1.0, -1.0, -1.0, 1.0)
"""Angle [rad] of each ankle at the start, in the middle of its range."""
BODIES = {
    "gymnasium": {"density": 5.0, "gear": GEAR, "armature": 1.0},
    "published": {"density": 1000.0, "gear": 200.0, "armature": 0.05},
}
"""The ant of Gymnasium, and that of the published short-horizon benchmark (DFlex)."""
STIFFNESS = {"gymnasium": 1e4, "published": 4e4}
"""Of soft contact [N/m]."""


class Ant(Runner):
    """A torso on four legs with a hip and an ankle each.

    `body` is "gymnasium", 0.91 kg with motors of 150 N·m, or "published", 182 kg with 200 N·m. `contact` is "soft",
    springs under the feet and at the joints' ends, or "rigid": gradients of soft contact stay short over longer
    horizons (docs/learning.md).
    """

    lowest = LOWEST
    follow = "ant/torso"
    # gradients of 32 steps through rigid contact taught it nothing (docs/learning.md)
    horizons: ClassVar = {"soft": 16, "rigid": 8}

    def __init__(
        self, worlds: int = 64, *, body: Literal["gymnasium", "published"] = "gymnasium", **options: Any
    ) -> None:
        if body not in BODIES:
            raise unknown_name("body", body, list(BODIES))
        self.body, self.stiffness = body, STIFFNESS[body]
        super().__init__(worlds, **options)

    @property
    def options(self) -> dict[str, Any]:
        """What a checkpoint must agree in."""
        return {**super().options, "body": self.body}

    def build(self) -> World:
        """Return the ant above the ground."""
        joints = {f"ankle_{i}": angle for i, angle in enumerate(KNEES, 1)}
        numbers = BODIES[self.body]
        world, robot = self.empty_world(friction=0.75), load(tree(**numbers))
        motors = self.motors(robot, numbers["gear"])
        world.add(robot, name="ant", position=(0.0, 0.0, HEIGHT), q=joints, actuators=motors)
        return world

    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return speed along x, uprightness, heading, and height above the lowest."""
        quat = after.q[:, 3:7]
        up, heading = upright_and_heading(quat)
        return rotate(quat, after.qd[:, 3:6])[:, 0] + 0.1 * up + heading + (after.q[:, 2] - LOWEST)
