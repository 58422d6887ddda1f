"""Make the MuJoCo Half-cheetah run: the reward of the published short-horizon benchmark.

Its body is read from the file half_cheetah.xml that the package gymnasium installs.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path

import torch

from pullback.core.errors import PullbackError
from pullback.learn.env import Env
from pullback.rigid.state import State
from pullback.rigid.world.world import World
from pullback.robot.load import load

Tensor = torch.Tensor


def body_file(name: str) -> Path:
    """Return a file of the bodies that gymnasium installs."""
    found = find_spec("gymnasium")
    path = Path(found.origin).parent / "envs/mujoco/assets" / name if found and found.origin else None
    if path is None or not path.is_file():
        raise PullbackError(f"the body is read from gymnasium's {name}: pip install 'pullback[learn,mjcf]'")
    return path


class HalfCheetah(Env):
    """A trunk on two legs of three joints with springs in the plane of x and z, motors of 30 to 120 N·m."""

    substeps = 8

    def build(self) -> World:
        """Return the cheetah above the ground."""
        world = World(gravity=(0.0, 0.0, -9.81))
        with warnings.catch_warnings():
            # the file's ground and the softness of its contacts are left out, and MuJoCo will not read it for ever
            warnings.simplefilter("ignore", UserWarning)
            world.add(load(body_file("half_cheetah.xml")), name="cheetah")
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
