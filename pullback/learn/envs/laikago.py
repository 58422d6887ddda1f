"""Let a Laikago trot as it is told: speeds forward, sideways and about z are commands, one for each world."""

from __future__ import annotations

from math import pi
from typing import Any, ClassVar

import torch

from pullback.learn.legged import Legged
from pullback.rigid.state import State
from pullback.rigid.world.actuators import PositionServo
from pullback.rigid.world.world import World
from pullback.robot.load import load

Tensor = torch.Tensor

LEG = (0.2, 0.0, -0.5)
"""Angles [rad] of a standing leg: abduction, hip, knee."""
HEIGHT, LOWEST = 0.4835, 0.25
"""Height [m] of the standing base, and below which an episode ends."""
TOES = ("toeFR", "toeFL", "toeRR", "toeRL")
PAIRS = (1.0, -1.0, -1.0, 1.0)
"""Which toes swing together: front right with rear left."""
TOE_RADIUS, CLEARANCE = 0.03, 0.06
"""Of a toe [m], and how high it is in the middle of its swing."""
TOE_WEIGHT = 0.3
"""What a toe costs that is off by the clearance."""
PERIOD = 0.4
"""Of the gait [s]: one pair swings in its first half, the other in its second."""
REACH = 0.6
"""How far [rad] an action moves the target of a joint from standing."""


class Laikago(Legged):
    """A quadruped of 25.6 kg on servos that follows commands (vx [m/s], vy [m/s], turning [rad/s]).

    `speed`, `side` and `turn` are the ranges (low, high) that a command is drawn from when an episode begins.
    `env.command` (B, 3) may be written to.
    """

    episode = 600
    follow = "laikago/chassis"
    stiffness = 2e4
    # noise of 0.37, the default, moves a toe by about as much as it is to be lifted
    shac: ClassVar = {"actor_hidden": (256, 128, 64), "critic_hidden": (128, 128), "log_std": -2.0}
    horizons: ClassVar = {"soft": 16, "rigid": 16}

    def __init__(
        self,
        worlds: int = 64,
        *,
        speed: tuple[float, float] = (-0.5, 1.0),
        side: tuple[float, float] = (-0.3, 0.3),
        turn: tuple[float, float] = (-0.7, 0.7),
        **options: Any,
    ) -> None:
        self.ranges = (speed, side, turn)
        super().__init__(worlds, **options)

    @property
    def options(self) -> dict[str, Any]:
        """What a checkpoint must agree in."""
        return {**super().options, "speed": self.ranges[0], "side": self.ranges[1], "turn": self.ranges[2]}

    def build(self) -> World:
        """Return the robot on the ground."""
        world, robot = self.empty_world(friction=1.0), load("laikago", base="floating")
        self.command = self.drawn([low for low, _ in self.ranges], [high for _, high in self.ranges], 3)
        """Speed along the body's x and y [m/s] and about z [rad/s] that is asked for (B, 3)."""
        self.standing, self.pairs = self.constant(4 * LEG), self.constant(PAIRS)
        self.upright = self.constant([0.0, 0.0, 1.0])
        world.add(
            robot,
            name="laikago",
            position=(0.0, 0.0, HEIGHT),
            q=dict(zip(robot.joint_names[1:], 4 * LEG)),
            actuators=PositionServo(kp=150.0, kd=3.0, limit=100.0),
            collision_links=("chassis", *TOES),
        )
        return world

    def control(self, action: Tensor) -> Tensor:
        """Return targets of the joints [rad]."""
        return self.standing + REACH * action

    def start(self) -> tuple[Tensor, Tensor]:
        """Stand, almost straight and almost at rest."""
        noise = torch.cat([self.uniform(-0.02, 0.02, 2), self.uniform(0.0, 0.02, 1)], 1)
        joints = self._rest.q[:, 7:] + self.uniform(-0.1, 0.1, 12)
        return torch.cat([self._rest.q[:, :3] + noise, self._rest.q[:, 3:7], joints], 1), self.uniform(-0.1, 0.1, 18)

    def observe(self, state: State, action: Tensor) -> Tensor:
        """Return up and velocities in the body's axes, height, joints, 0.1 their rates, command, phase, action."""
        q, qd = state.q, state.qd
        clock = torch.stack([self._phase().sin(), self._phase().cos()], 1)
        body = [self._up(q), qd[:, :3], qd[:, 3:6], q[:, 2:3] - HEIGHT]
        return torch.cat([*body, q[:, 7:] - self.standing, 0.1 * qd[:, 6:], self.command, clock, action], 1)

    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return 1, less what speed, posture and toes are off by, and effort."""
        q, qd = after.q, after.qd
        speed = (qd[:, 3:5] - self.command[:, :2]).square().sum(1) + 0.5 * (qd[:, 2] - self.command[:, 2]).square()
        up = self._up(q)
        posture = (up - self.upright).square().sum(1) + 10.0 * (q[:, 2] - HEIGHT).square()
        posture = posture + 0.2 * qd[:, 5].square() + 0.05 * qd[:, :2].square().sum(1)
        # where each toe should be: on the ground, or on an arc above it
        places, _ = self.sim.link_poses(after, [f"laikago/{toe}" for toe in TOES])
        lift = CLEARANCE * (self._phase()[:, None].sin() * self.pairs).clamp(min=0.0)
        toes = (places[..., 2] - TOE_RADIUS - lift).square().sum(1) / CLEARANCE**2
        effort = 0.01 * action.square().sum(1) + 0.01 * (action - self.action).square().sum(1)
        return 1.0 - speed - posture - TOE_WEIGHT * toes - effort

    def terminated(self, state: State) -> Tensor:
        """End episodes in which it has fallen, or leans by more than 60 degrees."""
        return (state.q[:, 2] < LOWEST) | (self._up(state.q)[:, 2] < 0.5)

    def _up(self, q: Tensor) -> Tensor:
        """Return the direction that is up, in the body's axes (B, 3)."""
        x, y, z, w = q[:, 3:7].unbind(1)
        return torch.stack([2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x.square() + y.square())], 1)

    def _phase(self) -> Tensor:
        """Return the angle of the gait's clock (B,)."""
        return (2.0 * pi * self.dt / PERIOD) * self.steps.to(self.dtype)
