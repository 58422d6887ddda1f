"""Motions through an impact whose outcome is known in closed form, for `make impacts`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import atan2, cos, hypot, sin, sqrt
from typing import NamedTuple

import numpy as np
import torch

import pullback as pb
from checks.impact_arm import arm_outcome, arm_tree
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Link, Pose, Shape, Tree

Tensor = torch.Tensor
F64 = torch.float64
GRAVITY = 9.81
RADIUS = 0.1


class ImpactCase(NamedTuple):
    """A motion from a start given by numbers x (B, n), for a time [s], and what it must lead to.

    `where(shift, dt)` gives x for shares (B,) of a step by which the start is put off, `start(x)` the q and qd of
    worlds; `read(q, qd)` what is asked for at the end, (B, k), and `outcome(x)` the same in closed form, which torch
    can differentiate. Errors of derivatives are measured by the largest of the true ones, or by `scale`.
    """

    name: str
    world: Callable[[], pb.World]
    time: float
    where: Callable[[Tensor, float], Tensor]
    start: Callable[[Tensor], tuple[Tensor, Tensor]]
    read: Callable[[Tensor, Tensor], Tensor]
    outcome: Callable[[Tensor], Tensor]
    scale: float | None = None


def all_cases() -> list[ImpactCase]:
    """Return the cases of the table."""
    return [
        rod("box"),
        rod("capsule"),
        billiards(),
        drop("ball with friction on level ground, sliding", friction=0.2),
        drop("the same, sticking", friction=2.0, scale=18.0),
        drop("ball on a slope, sticking", friction=2.0, slope=0.3),
        arm(0.5),
        arm(0.0),
        grazing(1e-2),
        grazing(1e-3),
        plastic(20.0),
        plastic(1.5),
    ]


def still(batch: int, **places: Tensor | float) -> Tensor:
    """Return the coordinates of free bodies, (B, 7), at rest at x, y, z."""
    columns = [torch.as_tensor(places.get(name, 0.0), dtype=F64).expand(batch) for name in "xyz"]
    return torch.cat([torch.stack(columns, 1), torch.tensor([[0.0, 0.0, 0.0, 1.0]], dtype=F64).expand(batch, 4)], 1)


def rates(batch: int, count: int, **values: Tensor | float) -> Tensor:
    """Return velocities (B, count) of which some are given, as v0, v1, ..."""
    columns = [torch.as_tensor(values.get(f"v{k}", 0.0), dtype=F64).expand(batch) for k in range(count)]
    return torch.stack(columns, 1)


# -- balls on the ground -----------------------------------------------------------------------------------------------


def ground_world(restitution: float, friction: float, slope: float = 0.0, gravity: float = GRAVITY) -> pb.World:
    """Return a ball above a plane through the origin that falls to x > 0 at an angle."""
    world = pb.World(gravity=(0.0, 0.0, -gravity))
    tilt = (0.0, sin(slope / 2), 0.0, cos(slope / 2))
    world.add_plane("floor", orientation=tilt, friction=friction, restitution=restitution)
    world.add_sphere("ball", radius=RADIUS, mass=1.0, friction=friction, restitution=restitution)
    return world


def drop(name: str, *, friction: float, slope: float = 0.0, scale: float | None = None) -> ImpactCase:
    """Return a ball that falls by h = x, thrown along x, e = 0.5: its spin, and its speed along the plane."""
    height, time, e = 0.3, 0.32, 0.5
    speed = 5.0 if friction < 1.0 else 1.0
    fall = sqrt(2.0 * height * GRAVITY)

    def start(x: Tensor) -> tuple[Tensor, Tensor]:
        # at first the ball is upright of where it touches
        q = still(len(x), x=RADIUS * sin(slope), z=RADIUS * cos(slope) + x[:, 0])
        return q, rates(len(x), 6, v3=speed)

    def where(shift: Tensor, dt: float) -> Tensor:
        return (height + shift * dt * fall)[:, None]

    def read(q: Tensor, qd: Tensor) -> Tensor:
        return torch.stack([qd[:, 1], world_velocity(q, qd) @ qd.new_tensor([cos(slope), 0.0, -sin(slope)])], 1)

    def outcome(x: Tensor) -> Tensor:
        # the plane is met after t, when the ball has fallen by h and by what the plane falls away below it
        steepness = sin(slope) / cos(slope)
        t = (speed * steepness + (speed**2 * steepness**2 + 2.0 * GRAVITY * x[:, 0]).sqrt()) / GRAVITY
        down = GRAVITY * t
        along = speed * cos(slope) + down * sin(slope)
        onto = down * cos(slope) - speed * sin(slope)
        if friction < 1.0:
            along = along - friction * (1.0 + e) * onto
            spin = 2.5 * friction * (1.0 + e) * onto / RADIUS
        else:
            along = 5.0 / 7.0 * along
            spin = along / RADIUS
        return torch.stack([spin, along + GRAVITY * sin(slope) * (time - t)], 1)

    return ImpactCase(name, partial(ground_world, e, friction, slope), time, where, start, read, outcome, scale)


def world_velocity(q: Tensor, qd: Tensor) -> Tensor:
    """Return the linear velocity of the first free body in world axes."""
    u, s, v = q[:, 3:6], q[:, 6:7], qd[:, 3:6]
    return v + 2.0 * s * torch.linalg.cross(u, v) + 2.0 * torch.linalg.cross(u, torch.linalg.cross(u, v))


def plastic(speed: float) -> ImpactCase:
    """Return a ball without weight that meets the ground at a speed and stays there: its height by the first one."""

    def where(shift: Tensor, dt: float) -> Tensor:
        return (RADIUS + 0.1 * speed + shift * dt * speed)[:, None]

    def start(x: Tensor) -> tuple[Tensor, Tensor]:
        return still(len(x), z=x[:, 0]), rates(len(x), 6, v5=-speed)

    def read(q: Tensor, qd: Tensor) -> Tensor:
        return q[:, 2:3]

    def outcome(x: Tensor) -> Tensor:
        return RADIUS + 0.0 * x

    name = f"ball at {speed:g} m/s onto the ground, e = 0"
    return ImpactCase(name, partial(ground_world, 0.0, 0.0, gravity=0.0), 0.12, where, start, read, outcome, 1.0)


# -- balls that meet ---------------------------------------------------------------------------------------------------


def balls_world(mass: float) -> pb.World:
    """Return two balls without weight or friction, e = 1; the second has a mass of its own."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    for name, m in (("a", 1.0), ("b", mass)):
        world.add_sphere(name, radius=RADIUS, mass=m, friction=0.0, restitution=1.0)
    return world


def meeting(name: str, mass: float, aside: float, read: Callable[[Tensor, Tensor], Tensor], outcome) -> ImpactCase:
    """Return a ball that comes along x at 1 m/s and meets another at rest at the origin, aside by z."""

    def where(shift: Tensor, dt: float) -> Tensor:
        return torch.stack([-0.25 - shift * dt, torch.full_like(shift, aside)], 1)

    def start(x: Tensor) -> tuple[Tensor, Tensor]:
        q = torch.cat([still(len(x), x=x[:, 0], z=x[:, 1]), still(len(x))], 1)
        return q, rates(len(x), 12, v3=1.0)

    return ImpactCase(name, partial(balls_world, mass), 0.3, where, start, read, outcome)


def billiards() -> ImpactCase:
    """Return a ball that hits another obliquely: the other's velocity by the first one's place."""

    def outcome(x: Tensor) -> Tensor:
        s = -x[:, 1] / (2.0 * RADIUS)
        c = (1.0 - s * s).sqrt()
        return torch.stack([c * c, c * s], 1)

    return meeting("billiards, oblique, e = 1", 1.0, -0.08, lambda q, qd: qd[:, 9:12:2], outcome)


def grazing(depth: float) -> ImpactCase:
    """Return a ball that grazes one of a million tonnes, overlapping by a depth as seen along its way: dv_z/dz."""

    def outcome(x: Tensor) -> Tensor:
        s = x[:, 1:] / (2.0 * RADIUS)
        return 2.0 * s * (1.0 - s * s).sqrt()

    name = f"grazing another ball, {1e3 * depth:g} mm deep"
    return meeting(name, 1e9, 2.0 * RADIUS - depth, lambda q, qd: qd[:, 5:6], outcome)


# -- rods --------------------------------------------------------------------------------------------------------------

PLACE = (0.6, 0.5)
HALF = 0.02
"""Where the ball is, and half of a rod's thickness [m]."""


def rod_world(shape: str) -> pb.World:
    """Return a rod of 1 kg on a hinge about z, 1 m long along x, and a ball of 0.5 kg; no weight, e = 0.5."""
    along_x = Pose(np.array([0.5, 0.0, 0.0]), np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]))
    size = (2.0 * HALF, 2.0 * HALF, 1.0) if shape == "box" else (HALF, 1.0)
    inertia = np.diag([1e-3, 1.0 / 12.0, 1.0 / 12.0])
    link = Link("rod", 1.0, along_x.translation, inertia, [Shape(shape, size, along_x)])  # pyright: ignore[reportArgumentType]
    robot = pb.RobotModel(
        compile_tree(Tree("rod", [Link("root"), link], [Joint("hinge", "continuous", "root", "rod")]))
    )
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    world.add(robot.to(F64), name="rod", friction=0.0, restitution=0.5)
    world.add_sphere("ball", radius=RADIUS, mass=0.5, friction=0.0, restitution=0.5)
    return world


def rod(shape: str) -> ImpactCase:
    """Return a rod that turns at 1 rad/s into a ball at rest: the ball's velocity by angle and rate of the start."""
    # the rod touches where the ball is RADIUS + HALF from its axis
    lever = sqrt(hypot(*PLACE) ** 2 - (RADIUS + HALF) ** 2)
    angle = atan2(PLACE[1], PLACE[0]) - atan2(RADIUS + HALF, lever)
    speed = 1.5 * lever / (lever**2 / (1.0 / 12.0 + 0.25) + 1.0 / 0.5) / 0.5

    def where(shift: Tensor, dt: float) -> Tensor:
        return torch.stack([angle - 0.1 - shift * dt, torch.ones_like(shift)], 1)

    def start(x: Tensor) -> tuple[Tensor, Tensor]:
        ball = still(len(x), x=PLACE[0], y=PLACE[1])
        return torch.cat([x[:, :1], ball], 1), rates(len(x), 7, v0=x[:, 1])

    def outcome(x: Tensor) -> Tensor:
        return speed * x[:, 1:] * x.new_tensor([-sin(angle), cos(angle)])

    name = f"hinged rod, a {shape}, hits a ball"
    return ImpactCase(name, partial(rod_world, shape), 0.132, where, start, lambda q, qd: qd[:, 4:6], outcome)


# -- an arm ------------------------------------------------------------------------------------------------------------


def arm_world(restitution: float) -> pb.World:
    """Return the arm of impact_arm.py above the ground, without friction."""
    world = pb.World(gravity=(0.0, 0.0, -GRAVITY))
    world.add_ground(friction=0.0, restitution=restitution)
    robot = pb.RobotModel(compile_tree(arm_tree()), dtype=F64)
    world.add(robot, name="arm", friction=0.0, restitution=restitution)
    return world


def arm(restitution: float) -> ImpactCase:
    """Return a two-link arm whose tip falls on the ground: its rates at the end by its angles at the start."""
    time = 0.2

    def where(shift: Tensor, dt: float) -> Tensor:
        # the tip comes at 1.7 m/s
        return torch.stack([0.5 - 1.7 * dt * shift, torch.full_like(shift, -0.3)], 1)

    def start(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, torch.zeros_like(x)

    name = f"two-link arm's tip on the ground, e = {restitution:g}"
    outcome = partial(arm_outcome, restitution=restitution, time=time)
    return ImpactCase(name, partial(arm_world, restitution), time, where, start, lambda q, qd: qd, outcome)
