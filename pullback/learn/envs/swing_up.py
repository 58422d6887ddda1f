"""Bring the tip of an n-link pendulum to its highest point: the task of Qiao et al. (ICML 2021), Table 4.

The links lie level at the start; every joint has a motor of 10 N·m, too weak to lift them. A step's reward is by how
much the tip's squared distance from the target fell, the last one's also minus what is left of it: at most 0.5 n².
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch

from pullback.core.errors import unknown_name
from pullback.description.assets.pendulum import LENGTH
from pullback.learn.envs.pendulum import Pendulum
from pullback.rigid.sim import Sim
from pullback.rigid.state import State
from pullback.rigid.world.actuators import Torque
from pullback.rigid.world.integrators import Part
from pullback.rigid.world.world import World
from pullback.robot.load import load

Tensor = torch.Tensor

SUBSTEPS = {"released": 1, "audited": 8}
"""In 1/60 s. With one, most of the energy of a long pendulum comes from the time integration (docs/swing_up.md)."""


def left_out(substeps: int) -> list[Part]:
    """Return what a pendulum is simulated without: one substep is the task as published, in plain Euler steps."""
    return ["contacts", "tree_energy"] if substeps == 1 else ["contacts"]


LATE = 0.995
"""Time, in episodes, from which an observation is the last."""


class SwingUp(Pendulum):
    """A level pendulum of `links` links.

    `variant` is "released", one plain Euler step as published, or "audited", eight that keep the energy of trees.
    """

    episode = 100
    shac: ClassVar = {"actor_hidden": (64, 64), "actor_rate": 5e-3, "critic_rate": 1e-3, "discount": 1.0, "horizon": 32}

    def __init__(
        self, worlds: int = 64, *, links: int = 2, variant: Literal["released", "audited"] = "released", **options: Any
    ) -> None:
        if variant not in SUBSTEPS:
            raise unknown_name("variant", variant, list(SUBSTEPS))
        self.variant, self.height = variant, LENGTH * links
        super().__init__(worlds, links=links, **{"substeps": SUBSTEPS[variant], **options})

    @property
    def options(self) -> dict[str, Any]:
        """What a checkpoint must agree in."""
        return {**super().options, "variant": self.variant}

    @property
    def largest(self) -> float:
        """The largest return there can be: the squared distance at the start."""
        return 2.0 * self.height**2

    def build(self) -> World:
        """Return the pendulum."""
        world = World(gravity=(0.0, 0.0, -9.8))
        world.add(load(f"pendulum{self.links}"), name="arm", actuators=Torque(gain=10.0))
        return world

    def compile(self, world: World) -> Sim:
        """Return the simulation; nothing touches anything."""
        without = left_out(self.substeps)
        return world.compile(
            dt=self.dt, substeps=self.substeps, dtype=self.dtype, device=self.device, without=without
        )  # fmt: skip

    def start(self) -> tuple[Tensor, Tensor]:
        """Lie level, at rest."""
        nothing = self.uniform(0.0, 0.0, self.links)
        return nothing, nothing.clone()

    def observe(self, state: State, action: Tensor) -> Tensor:
        """Return joint rates, the links' origins and the tip (x, y, z each), and the time in episodes: 4 n + 4."""
        direction = state.q.cumsum(1)
        first = torch.zeros_like(direction[:, :1])
        y = torch.cat([first, LENGTH * direction.cos().cumsum(1)], 1)
        z = torch.cat([first, LENGTH * direction.sin().cumsum(1)], 1)
        points = torch.stack([torch.zeros_like(y), y, z], 2).flatten(1)
        return torch.cat([state.qd, points, (self.steps / self.episode).to(self.dtype)[:, None]], 1)

    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return by how much the squared distance [m²] fell; in the last step also minus what is left."""
        left = self.distance2(after)
        last = self.steps + 1 >= self.episode
        return self.distance2(before) - left - torch.where(last, left, torch.zeros_like(left))

    def distance2(self, state: State) -> Tensor:
        """Return the squared distance (B,) [m²] of the tip from its target."""
        y, z = self.tip(state).unbind(1)
        return y.square() + (z - self.height).square()

    def terminated(self, state: State) -> Tensor:
        """End after the last step: the time is observed, so that nothing comes after it."""
        return self.steps + 1 >= self.episode

    def ends_at(self, observation: Tensor) -> Tensor:
        """Return whether observations (..., n) are those of an end (...)."""
        return observation[..., -1] >= LATE
