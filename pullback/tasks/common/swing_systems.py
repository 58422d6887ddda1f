"""Systems to swing up, a pendulum of n links or a cart-pole, and the energy audit of a motion."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import NamedTuple

import torch

from pullback.control import ControlCost, Cost, FramePose, StateCost
from pullback.core.errors import PullbackError
from pullback.description.assets.cart_pole import POLE, POLE_LENGTH
from pullback.description.assets.cart_pole import tree as cart_pole_tree
from pullback.description.assets.pendulum import LENGTH
from pullback.learn.envs.swing_up import left_out
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.rigid.world.actuators import Torque
from pullback.rigid.world.world import World
from pullback.robot.load import load

Tensor = torch.Tensor

GRAVITY = (0.0, 0.0, -9.8)
ROBOT = "swing"
EFFORT = 1e-6
"""Weight of the pendulum's squared torques: it only chooses among ways that end at the top."""


@dataclass(frozen=True)
class System:
    """A system to swing up: the world, its bounds, its costs, and the target of its tip."""

    title: str
    world: World
    limit: float
    """Of each motor [N·m, N]."""
    dt: float
    steps: int
    running: Cost
    terminal: Cost
    tip: str
    target: tuple[float, float, float]
    maximum: float
    """The largest return there can be."""
    close: float
    """The cost at which a motion is as good as any."""

    def compile(self, substeps: int, device: torch.device | str) -> Sim:
        """Return the simulation; nothing touches anything."""
        without = left_out(substeps)
        return self.world.compile(dt=self.dt, dtype=torch.float64, device=device, substeps=substeps, without=without)

    def tip_position(self, q: Tensor) -> Tensor:
        """Return where the tip is (..., 3) [m]."""
        robot = self.world.robots[ROBOT].to(dtype=q.dtype, device=q.device)
        return robot.compute_forward_kinematics(q, self.tip)[0]

    def distance2(self, q: Tensor) -> Tensor:
        """Return the squared distance of the tip from its target (...) [m²]."""
        return (self.tip_position(q) - torch.tensor(self.target).to(q)).square().sum(-1)

    def returns(self, q: Tensor) -> Tensor:
        """Return the sum of rewards (B,) of motions q (T+1, B, nq).

        A step's reward is by how much the squared distance fell, the last one's also minus what is left of it.
        """
        return self.distance2(q[0]) - 2.0 * self.distance2(q[-1])


def pendulum(links: int) -> System:
    """Return the pendulum of n links: it starts level, and its tip should end n half metres above the pivot."""
    if links < 1:
        raise PullbackError(f"links is {links}; give at least 1")
    top = (0.0, 0.0, LENGTH * links)
    world = World(gravity=GRAVITY)
    world.add(load(f"pendulum{links}"), name=ROBOT, actuators=Torque(limit=10.0))
    end = FramePose(f"{ROBOT}/link-1", top, weights=4.0)
    # the distance at the start is that from the end of a level pendulum to the top
    most = 2.0 * top[2] ** 2
    return System(
        f"{links}-link pendulum", world, 10.0, 1 / 60, 100, ControlCost(EFFORT), end, "link-1", top, most, 1e-3 * most
    )  # fmt: skip


def cart_pole(pole_mass: float = POLE) -> System:
    """Return a pole on a cart: it hangs, and should stand at rest where the cart began."""
    world = World(gravity=GRAVITY)
    world.add(load(cart_pole_tree(pole_mass)), name=ROBOT, q={"pole": pi}, actuators={"cart": Torque(limit=20.0)})
    upright = State(torch.zeros(2), torch.zeros(2))
    end = StateCost(upright, weights=(200.0, 200.0, 20.0, 20.0))
    running = ControlCost(2e-4)
    top = (0.0, 0.0, POLE_LENGTH)
    most = 4.0 * POLE_LENGTH**2
    return System("pole on a cart", world, 20.0, 1 / 60, 100, running, end, "tip", top, most, 0.0)


def times(substeps: int) -> str:
    """Return a number of substeps in words."""
    return "1 substep" if substeps == 1 else f"{substeps} substeps"


class Audit(NamedTuple):
    """Where the energy [J] of a motion came from, each (T+1, B), zero at the start."""

    gained: Tensor
    """By how much kinetic and potential energy have grown."""
    work: Tensor
    """Work of the motors: force times displacement."""

    @property
    def numerical(self) -> Tensor:
        """Energy added by the time integration."""
        return self.gained - self.work


@torch.no_grad()
def audit(sim: Sim, states: Trajectory, controls: Tensor) -> Audit:
    """Compare the energy that a motion gained with the work of its motors, after each step.

    Forces are constant over a step, substeps or not, so that force times way is their work exactly. For robots whose
    joints have one degree of freedom each, driven by `Torque`.
    """
    flat = State(states.q.flatten(0, 1), states.qd.flatten(0, 1))
    energy = sum(sim.energies(flat)).view(states.q.shape[:2])  # pyright: ignore[reportAttributeAccessIssue]
    driven = torch.as_tensor(sim.arrays.drives.dof[: sim.nu], device=sim.device).long()
    way = states.q.diff(dim=0)[..., driven]
    work = (controls * way).sum(-1).cumsum(0)
    return Audit(energy - energy[0], torch.cat([torch.zeros_like(work[:1]), work]))
