"""Swing up a pole on a cart and balance it: the reward of the published short-horizon benchmark."""

from __future__ import annotations

from math import pi
from typing import Any, ClassVar

import torch

from pullback.learn.env import Env, set_link
from pullback.rigid.sim import Sim
from pullback.rigid.state import State
from pullback.rigid.world.actuators import Torque
from pullback.rigid.world.world import World
from pullback.robot.load import load

Tensor = torch.Tensor

FORCE = 20.0
"""Largest force [N] on the cart."""


class CartPole(Env):
    """A pole of 0.3 kg at 0.5 m on a cart of 1 kg, hanging within a quarter turn at the start; angle 0 is upright.

    `pole_mass` (low, high) [kg] draws a mass for each episode.
    """

    substeps = 4
    episode = 240
    shac: ClassVar = {"actor_hidden": (64, 64), "actor_rate": 1e-2, "critic_rate": 1e-3, "iterations": 500}

    def __init__(self, worlds: int = 64, *, pole_mass: tuple[float, float] | None = None, **options: Any) -> None:
        self.pole_mass = pole_mass
        super().__init__(worlds, **options)

    @property
    def options(self) -> dict[str, Any]:
        """What a checkpoint must agree in."""
        return {"pole_mass": self.pole_mass}

    def build(self) -> World:
        """Return the cart on its rail."""
        world, robot = World(gravity=(0.0, 0.0, -9.81)), load("cart_pole", dtype=self.dtype, device=self.device)
        if self.pole_mass is not None:
            set_link(robot, "pole", "mass", self.randomized(*self.pole_mass))
        world.add(robot, name="cart", actuators={"cart": Torque(gain=FORCE)})
        return world

    def compile(self, world: World) -> Sim:
        """Return the simulation; nothing touches anything."""
        return world.compile(
            dt=self.dt, substeps=self.substeps, dtype=self.dtype, device=self.device, without=["contacts"]
        )

    def start(self) -> tuple[Tensor, Tensor]:
        """Hang within 90 degrees, moving slowly."""
        x, angle = self.uniform(-0.1, 0.1, 1), self.uniform(0.5 * pi, 1.5 * pi, 1)
        return torch.cat([x, angle], 1), self.uniform(-0.25, 0.25, 2)

    def observe(self, state: State, action: Tensor) -> Tensor:
        """Return x, its rate, sine and cosine of the angle, and its rate."""
        (x, angle), (v, rate) = state.q.unbind(1), state.qd.unbind(1)
        return torch.stack([x, v, angle.sin(), angle.cos(), rate], 1)

    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return the weighted squares of angle, position and rates, negative."""
        (x, angle), (v, rate) = after.q.unbind(1), after.qd.unbind(1)
        # the angle from upright, within half a turn
        angle = torch.atan2(angle.sin(), angle.cos())
        return -(angle.square() + 0.1 * rate.square() + 0.05 * x.square() + 0.1 * v.square())
