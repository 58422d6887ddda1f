"""Make the MuJoCo Hopper hop forward: the reward of the published short-horizon benchmark."""

from __future__ import annotations

from math import radians
from typing import Any, Literal

import torch

from pullback.core.errors import unknown_name
from pullback.description.assets.hopper import GEAR, HEIGHT
from pullback.learn.env import Env
from pullback.rigid.sim import Sim
from pullback.rigid.solvers.compliant import Compliant
from pullback.rigid.state import State
from pullback.rigid.world.soft_stop import SoftStopMotor
from pullback.rigid.world.world import World
from pullback.robot.load import load

Tensor = torch.Tensor

LOWEST = -0.45
"""Where the root may sink to [m], from its height when standing straight; below, the episode ends."""
TOLERANCE = 0.15
LARGEST_ANGLE = radians(30)


class Hopper(Env):
    """One leg with a hip, a knee and an ankle in the plane of x and z, with motors of 200 N·m.

    `contact` is "soft", springs under the foot and at the joints' ends, or "rigid" (docs/learning.md).
    """

    substeps = 8

    def __init__(self, worlds: int = 64, *, contact: Literal["soft", "rigid"] = "soft", **options: Any) -> None:
        if contact not in ("soft", "rigid"):
            raise unknown_name("contact", contact, ["soft", "rigid"])
        self.contact = contact
        self.shac = {"critic_rate": 2e-4}
        super().__init__(worlds, **options)

    @property
    def options(self) -> dict[str, Any]:
        """What a checkpoint must agree in."""
        return {"contact": self.contact}

    def build(self) -> World:
        """Return the hopper above the ground."""
        robot, height = load("hopper"), {"rootz": HEIGHT}
        if self.contact == "rigid":
            world = World(gravity=(0.0, 0.0, -9.81))
            world.add(robot, name="hopper", q=height)
        else:
            soft = Compliant(stiffness=2e4, damping=5.0, onset=5e-3, slip_speed=0.1, margin=0.03)
            world = World(gravity=(0.0, 0.0, -9.81), contact=soft)
            world.add(robot, name="hopper", q=height, actuators=SoftStopMotor.of(robot, gain=GEAR))
        world.add_ground(friction=0.9)
        return world

    def compile(self, world: World) -> Sim:
        """Return the simulation; soft stops are in the place of joint limits."""
        return world.compile(
            dt=self.dt, substeps=self.substeps, dtype=self.dtype, device=self.device,
            without=["limits"] if self.contact == "soft" else [],
        )  # fmt: skip

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
