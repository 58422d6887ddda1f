"""Push a box to a pose with a ball that touches it at one point, by iLQR through contact that sticks and slides.

The box lies on the ground, at a random place and turned; the ball, on two rails, starts anywhere around it. First
controls lead the ball around the box to the face from which the way to the goal is straightest, and then push along a
straight line: the box turns away and ends far off. iLQR finds how to steer: where on the face to push, when to slide
along it, and when to stop. All starts are solved as one batch.

A start succeeds if, half a second after the last control, the box is within 1 cm and 3 degrees of the goal, and at
rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import TYPE_CHECKING

import torch

from pullback.control import ControlCost, Problem, Residual
from pullback.rigid.sim import Sim
from pullback.rigid.solvers.compliant import Compliant
from pullback.rigid.solvers.pgs import PGS
from pullback.rigid.state import State
from pullback.rigid.world.actuators import VelocityServo
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.tasks.common import contact_rich as shared
from pullback.tasks.common.contact_rich import Scene, Solved, check, compile_both, ease, pusher, solve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Tensor = torch.Tensor

BOX = (0.16, 0.16, 0.08)
MASS = 1.0
RADIUS = 0.02
GROUND_FRICTION, BALL_FRICTION = 0.4, 0.3
SPRINGS = Compliant(stiffness=2e4, damping=5.0, onset=1e-3, slip_speed=0.01)
FASTEST = 1.0
"""Largest speed [m/s] along each rail."""
DT, STEPS = 0.02, 150
CLOSE, ALIGNED, STILL = 0.01, 3.0, 0.01
"""Tolerances of success: distance [m], angle [degrees] and speed [m/s] at the end."""
AROUND = 0.16
"""Distance [m] from the middle of the box at which the ball goes around it."""
ARC, DOCK, REST = 50, 12, 8
"""Steps of the first controls: around the box, to its face, and at rest in the end; between, it pushes."""


@dataclass
class Options(shared.Options):
    """How to push a box to a pose."""

    iterations: int = 60
    """The most iterations of iLQR."""
    distance: tuple[float, float] = (0.25, 0.4)
    """How far [m] the box starts from its goal: between these."""
    bearing: float = 35.0
    """Largest angle [degrees] between the direction to the goal and the normal of a face."""
    turn: float = 30.0
    """Largest angle [degrees] of the box at the start."""


def run(options: Options) -> Solved:
    """Solve all starts, print the results, and draw them."""
    check(options)
    return solve(scene(options), options)


def scene(options: Options) -> Scene:
    """Return the task from random starts."""
    sim, soft = compile_both(build, SPRINGS, DT, options)
    start = random_starts(sim, options)
    return Scene("push-to-pose", sim, soft, start, first_controls(start), pose, judge, draw, stop)


def build(contact: PGS | Compliant) -> World:
    """Return a world with the box, and the ball on rails that are driven at a speed."""
    world = World(contact=contact)
    ball = load(pusher("pusher", RADIUS, 1.0, {"x": (1, 0, 0), "y": (0, 1, 0)}, effort=30.0))
    drive = VelocityServo(kd=100.0, limit=30.0)
    world.add(ball, name="pusher", position=(0, 0, BOX[2] / 2), actuators=drive, friction=BALL_FRICTION)
    world.add_ground(friction=GROUND_FRICTION)
    world.add_box("box", size=BOX, mass=MASS, position=(0.3, 0, BOX[2] / 2))
    return world


def random_starts(sim: Sim, options: Options) -> State:
    """Return states at rest: the box around the goal, which is the origin, and the ball around the box."""
    generator, count = torch.Generator().manual_seed(options.seed), options.starts

    def between(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64)

    turn = torch.deg2rad(between(-options.turn, options.turn))
    face = torch.randint(0, 4, (count,), generator=generator)
    to_goal = turn + 0.5 * pi * face + torch.deg2rad(between(-options.bearing, options.bearing))
    box = -between(*options.distance)[:, None] * direction(to_goal)
    ball = box + between(0.16, 0.22)[:, None] * direction(between(-pi, pi))
    zero = torch.zeros_like(turn)
    rest = torch.stack([zero + BOX[2] / 2, zero, zero, (0.5 * turn).sin(), (0.5 * turn).cos()], -1)
    q = torch.cat([ball, box, rest], -1).to(sim.device)
    return State(q, q.new_zeros(count, sim.nv))


def direction(angle: Tensor) -> Tensor:
    """Return unit vectors (..., 2)."""
    return torch.stack([angle.cos(), angle.sin()], -1)


def turned(angle: Tensor, points: Tensor) -> Tensor:
    """Return points (..., 2) turned by angles (...)."""
    x, y = points.unbind(-1)
    return torch.stack([angle.cos() * x - angle.sin() * y, angle.sin() * x + angle.cos() * y], -1)


def yaw(q: Tensor) -> Tensor:
    """Return by how much the box is turned [rad]."""
    return 2.0 * torch.atan2(q[..., 7], q[..., 8])


def first_controls(start: State) -> Tensor:
    """Return speeds (T, B, 2) that lead the ball around the box to its face, and then straight by the way to go."""
    ball, box, angle = start.q[:, :2], start.q[:, 2:4], yaw(start.q)
    way = turned(-angle, -box)
    # axes in which the face is at the back and the push goes along x
    axes = angle + 0.5 * pi * torch.round(torch.atan2(way[:, 1], way[:, 0]) / (0.5 * pi))
    here, way = turned(-axes, ball - box), turned(-axes, -box)
    touch = here.new_tensor([-0.5 * BOX[0] - RADIUS, 0.0])
    polar = torch.stack([here.norm(dim=-1), torch.atan2(here[:, 1], here[:, 0])], -1)
    behind = torch.stack([torch.full_like(polar[:, 0], AROUND), pi * torch.where(polar[:, 1] < 0, -1.0, 1.0)], -1)
    radius = ease(polar[:, 0], behind[:, 0], ARC // 2)
    radius = torch.cat([radius, radius[-1:].expand(ARC - ARC // 2, -1)])
    arc = radius[..., None] * direction(ease(polar[:, 1], behind[:, 1], ARC))
    dock = ease(arc[-1], touch.expand_as(here), DOCK)
    share = torch.linspace(0.0, 1.0, STEPS - ARC - DOCK - REST + 1).to(here)[1:, None, None]
    push = touch + share * way
    path = torch.cat([here[None], arc, dock, push, push[-1:].expand(REST, -1, -1)])
    return turned(axes, path.diff(dim=0)) / DT


def pose(sim: Sim, start: State, guess: Tensor) -> Problem:
    """Return the problem: the box at the origin, not turned and at rest in the end, by small speeds of the ball."""

    def ending(q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        return torch.cat([50.0 * q[..., 2:4], 10.0 * yaw(q)[..., None], 0.5 * qd[..., 4:5], 3.0 * qd[..., 5:7]], -1)

    running, terminal = ControlCost(5e-3), Residual(ending)
    return Problem(sim, start, STEPS, running, terminal, lower=-FASTEST, upper=FASTEST)


def stop(end: State) -> Tensor:
    """Return speeds of zero."""
    return torch.zeros_like(end.q[:, :2])


def judge(end: State) -> tuple[Tensor, dict[str, Tensor]]:
    """Return which boxes are where they should be and at rest, and how far they are off."""
    distance = end.q[:, 2:4].norm(dim=-1)
    angle = torch.rad2deg(yaw(end.q).abs())
    good = (distance < CLOSE) & (angle < ALIGNED) & (end.qd[:, 5:8].norm(dim=-1) < STILL)
    return good, {"off (mm)": 1e3 * distance, "off (degrees)": angle}


# -- the picture ---------------------------------------------------------------------------------------------------


def outline(q: Tensor) -> Tensor:
    """Return the box's corners (5, 2) from above."""
    signs = q.new_tensor([[1, 1], [-1, 1], [-1, -1], [1, -1], [1, 1]])
    return q[2:4] + turned(yaw(q).expand(5), 0.5 * signs * q.new_tensor(BOX[:2]))


def draw(film: Axes, motion: Axes, found: Solved) -> None:
    """Draw some starts from above, and the paths of all boxes."""
    q = found.motion.q.cpu()
    shown = min(5, q.shape[1])
    for k in range(shown):
        shift = q.new_tensor([0.95 * k, 0.0])
        for moment in torch.linspace(0, len(q) - 1, 6).long().tolist():
            fade = 0.25 + 0.75 * moment / (len(q) - 1)
            film.plot(*(outline(q[moment, k]) + shift).T, color="tab:blue", alpha=fade, linewidth=1.2)
        film.plot(*(q[:, k, :2] + shift).T, color="tab:orange", linewidth=1.0)
        film.plot(*(q[0, k, :2] + shift), "o", color="tab:orange", markersize=4)
        film.plot(*(outline(q.new_tensor([0, 0, 0, 0, 0, 0, 0, 0, 1])) + shift).T, "--", color="tab:red", linewidth=1.2)
    film.set(title="from above: box (blue, later is darker), ball (orange), goal (red)", aspect="equal")
    film.axis("off")
    for k, good in enumerate(found.success.tolist()):
        motion.plot(q[:, k, 2], q[:, k, 3], color="tab:blue" if good else "tab:red", linewidth=1.0)
    motion.plot(0, 0, "+", color="black", markersize=12)
    motion.set(title="paths of all boxes (red: missed)", xlabel="x [m]", ylabel="y [m]", aspect="equal")
    motion.grid(alpha=0.3)
