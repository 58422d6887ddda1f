"""Bring a pendulum of n links to the top and keep it there, with motors too weak to lift it at once."""

from __future__ import annotations

from math import pi
from typing import Any, ClassVar

import torch

from pullback.description.assets.pendulum import LENGTH
from pullback.learn.env import Env
from pullback.rigid.sim import Sim
from pullback.rigid.state import State
from pullback.rigid.world.actuators import Torque
from pullback.rigid.world.world import World
from pullback.robot.load import load

Tensor = torch.Tensor

TORQUE = 10.0
"""Of each motor [N·m], as in Qiao et al. (ICML 2021)."""


class Pendulum(Env):
    """A pendulum of `links` links of half a metre, a motor in each joint, hanging at the start."""

    substeps = 8
    episode = 240
    shac: ClassVar = {"actor_hidden": (64, 64), "actor_rate": 1e-2, "critic_rate": 1e-3, "iterations": 500}

    def __init__(self, worlds: int = 64, *, links: int = 2, **options: Any) -> None:
        self.links = links
        super().__init__(worlds, **options)

    @property
    def options(self) -> dict[str, Any]:
        """What a checkpoint must agree in."""
        return {"links": self.links}

    def build(self) -> World:
        """Return the pendulum."""
        world = World(gravity=(0.0, 0.0, -9.81))
        world.add(load(f"pendulum{self.links}"), name="arm", actuators=Torque(gain=TORQUE))
        return world

    def compile(self, world: World) -> Sim:
        """Return the simulation; nothing touches anything."""
        return world.compile(
            dt=self.dt, substeps=self.substeps, dtype=self.dtype, device=self.device, without=["contacts"]
        )

    def start(self) -> tuple[Tensor, Tensor]:
        """Hang, a little bent, moving slowly; the links lie along y at angle 0."""
        q = self.uniform(-0.2, 0.2, self.links)
        q[:, 0] -= 0.5 * pi
        return q, self.uniform(-0.1, 0.1, self.links)

    def observe(self, state: State, action: Tensor) -> Tensor:
        """Return sine and cosine of the angles, and their rates."""
        return torch.cat([state.q.sin(), state.q.cos(), state.qd], 1)

    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return minus the squared distance of the tip from the top, relative to its length, and small efforts."""
        direction = after.q.cumsum(1)
        y, z = direction.cos().mean(1), direction.sin().mean(1)
        distance2 = y.square() + (z - 1.0).square()
        return -distance2 - 1e-3 * after.qd.square().mean(1) - 1e-2 * action.square().mean(1)

    def tip(self, state: State) -> Tensor:
        """Return y and z [m] of the tip (B, 2)."""
        direction = state.q.cumsum(1)
        return LENGTH * torch.stack([direction.cos().sum(1), direction.sin().sum(1)], 1)
