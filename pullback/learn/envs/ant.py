"""Make the MuJoCo Ant run along x: observation and reward of the published short-horizon benchmark."""

from __future__ import annotations

from math import radians
from typing import Any, Literal

import torch

from pullback.core.errors import unknown_name
from pullback.description.assets.ant import GEAR, tree
from pullback.learn.env import Env
from pullback.rigid.sim import Sim
from pullback.rigid.solvers.compliant import Compliant
from pullback.rigid.state import State
from pullback.rigid.world.soft_stop import SoftStopMotor
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.spatial.rotations_torch import quaternion_from_vector, rotate

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


class Ant(Env):
    """A torso on four legs with a hip and an ankle each.

    `body` is "gymnasium", 0.91 kg with motors of 150 N·m, or "published", 182 kg with 200 N·m. `contact` is "soft",
    springs under the feet and at the joints' ends, or "rigid": gradients of soft contact stay short over longer
    horizons (docs/learning.md).
    """

    substeps = 8

    def __init__(
        self,
        worlds: int = 64,
        *,
        body: Literal["gymnasium", "published"] = "gymnasium",
        contact: Literal["soft", "rigid"] = "soft",
        **options: Any,
    ) -> None:
        if body not in BODIES:
            raise unknown_name("body", body, list(BODIES))
        if contact not in ("soft", "rigid"):
            raise unknown_name("contact", contact, ["soft", "rigid"])
        self.body, self.contact = body, contact
        # gradients of 32 steps through rigid contact taught it nothing (docs/learning.md)
        self.shac = {"horizon": 8 if contact == "rigid" else 16}
        super().__init__(worlds, **options)

    @property
    def options(self) -> dict[str, Any]:
        """What a checkpoint must agree in."""
        return {"body": self.body, "contact": self.contact}

    def build(self) -> World:
        """Return the ant above the ground."""
        joints = {f"ankle_{i}": angle for i, angle in enumerate(KNEES, 1)}
        numbers, place = BODIES[self.body], (0.0, 0.0, HEIGHT)
        robot = load(tree(**numbers))
        if self.contact == "rigid":
            world = World(gravity=(0.0, 0.0, -9.81))
            world.add(robot, name="ant", position=place, q=joints)
        else:
            soft = Compliant(stiffness=STIFFNESS[self.body], damping=5.0, onset=5e-3, slip_speed=0.1, margin=0.03)
            world = World(gravity=(0.0, 0.0, -9.81), contact=soft)
            motors = SoftStopMotor.of(robot, gain=numbers["gear"])
            world.add(robot, name="ant", position=place, q=joints, actuators=motors)
        world.add_ground(friction=0.75)
        return world

    def compile(self, world: World) -> Sim:
        """Return the simulation; soft stops are in the place of joint limits."""
        return world.compile(
            dt=self.dt, substeps=self.substeps, dtype=self.dtype, device=self.device,
            without=["limits"] if self.contact == "soft" else [],
        )  # fmt: skip

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
        velocity, turning = rotate(quat, qd[:, 3:6]), rotate(quat, qd[:, :3])
        ahead = torch.stack(upright_and_heading(quat), 1)
        return torch.cat([q[:, 2:3], quat, velocity, turning, q[:, 7:], 0.1 * qd[:, 6:], ahead, action], 1)

    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return speed along x, uprightness, heading, and height above the lowest."""
        quat = after.q[:, 3:7]
        up, heading = upright_and_heading(quat)
        return rotate(quat, after.qd[:, 3:6])[:, 0] + 0.1 * up + heading + (after.q[:, 2] - LOWEST)

    def terminated(self, state: State) -> Tensor:
        """End episodes in which the torso is down."""
        return state.q[:, 2] < LOWEST


def upright_and_heading(quat: Tensor) -> tuple[Tensor, Tensor]:
    """Return how far a body's z axis points up and its x axis along x (B,), of unit quaternions xyzw (B, 4)."""
    x, y, z, _ = quat.unbind(1)
    return 1.0 - 2.0 * (x.square() + y.square()), 1.0 - 2.0 * (y.square() + z.square())
