"""Pivot a box up against a wall with one finger, by iLQR through contact: pressed, lifted by friction, set upright.

The box lies flat, its short side to the wall and at some distance from it; the finger, a ball on two rails, starts
anywhere on the other side. Nothing can be reached below: the finger has to press the box against the wall and carry its
end up by friction alone, while one edge slides down the wall and the other away from it along the floor. First controls
bring the finger there, press, and lift a little: the box comes up by some degrees and falls back. iLQR finds the rest,
the release over the edge and the soft landing. All starts are solved as one batch.

A start succeeds if, half a second after the last control, the box stands within 5 degrees of upright, and at rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt
from typing import TYPE_CHECKING

import torch

from pullback.control import ControlCost, Problem, Residual
from pullback.rigid.sim import Sim
from pullback.rigid.solvers.compliant import Compliant
from pullback.rigid.solvers.exact import Exact
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

LENGTH, WIDTH, THICKNESS = 0.2, 0.12, 0.1
MASS = 0.5
RADIUS, FINGER_MASS = 0.015, 0.2
FINGER_FRICTION, GROUND_FRICTION, WALL_FRICTION = 0.9, 0.3, 0.2
SPRINGS = Compliant(stiffness=2e4, damping=5.0, onset=5e-4, slip_speed=0.005)
FASTEST = 0.6
"""Largest speed [m/s] along each rail."""
DT, STEPS = 0.0125, 168
UPRIGHT, STILL = 5.0, 0.02
"""Tolerances of success: angle from upright [degrees], and speeds [m/s, rad/s] at the end."""
APPROACH, PRESS, LIFT = 24, 24, 80
"""Steps of the first controls: to the box, with it to the wall, up; then it only presses."""
HEIGHT = 0.07
"""Height [m] at which the finger meets the box."""


@dataclass
class Options(shared.Options):
    """How to pivot a box up against a wall."""

    iterations: int = 30
    """The most iterations of iLQR."""
    gap: float = 0.05
    """Largest distance [m] between box and wall at the start."""
    lift: float = 75.0
    """How far [degrees] the first controls would turn the box if it followed them; it slips."""
    press: float = 0.08
    """Speed [m/s] at which the first controls press on; the drive makes 100 N·s/m of it."""


def run(options: Options) -> Solved:
    """Solve all starts, print the results, and draw them."""
    check(options)
    return solve(scene(options), options)


def scene(options: Options) -> Scene:
    """Return the task from random starts."""
    sim, soft = compile_both(build, SPRINGS, DT, options, plain=Exact())
    start = random_starts(sim, options)
    guess = first_controls(start, options)
    return Scene("pivot-box", sim, soft, start, guess, pose, judge, draw, stop)


def build(contact: PGS | Compliant) -> World:
    """Return a world with the box, the wall x = 0, and the finger on rails that are driven at a speed."""
    world = World(contact=contact)
    finger = load(pusher("finger", RADIUS, FINGER_MASS, {"x": (1, 0, 0), "z": (0, 0, 1)}, effort=30.0))
    drive = VelocityServo(kd=100.0, limit=30.0)
    world.add(finger, name="finger", actuators=drive, friction=FINGER_FRICTION, q={"x": 0.35, "z": 0.1})
    world.add_ground(friction=GROUND_FRICTION)
    world.add_plane("wall", orientation=(0, sqrt(0.5), 0, sqrt(0.5)), friction=WALL_FRICTION)
    world.add_box("box", size=(LENGTH, WIDTH, THICKNESS), mass=MASS, position=(0.5 * LENGTH, 0, 0.5 * THICKNESS))
    return world


def random_starts(sim: Sim, options: Options) -> State:
    """Return states at rest: the box near the wall, the finger beyond it."""
    generator, count = torch.Generator().manual_seed(options.seed), options.starts

    def between(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64)

    gap = between(0.0, options.gap)
    q = torch.zeros(count, sim.nq, dtype=torch.float64)
    q[:, 0] = gap + LENGTH + RADIUS + between(0.02, 0.1)
    q[:, 1] = between(0.03, 0.15)
    q[:, 2], q[:, 4], q[:, 8] = gap + 0.5 * LENGTH, 0.5 * THICKNESS, 1.0
    q = q.to(sim.device)
    return State(q, q.new_zeros(count, sim.nv))


def angle(q: Tensor) -> Tensor:
    """Return the angle [rad] by which the box is tilted up."""
    return 2.0 * torch.atan2(-q[..., 6], q[..., 8])


def first_controls(start: State, options: Options) -> Tensor:
    """Return speeds (T, B, 2) that lead the finger to the box, press it against the wall, and lift it a little."""
    finger, gap = start.q[:, :2], start.q[:, 2] - 0.5 * LENGTH
    near = torch.stack([gap + LENGTH + RADIUS + 0.005, torch.full_like(gap, HEIGHT)], -1)
    touch = near - torch.stack([gap + 0.005, torch.zeros_like(gap)], -1)
    turn = torch.linspace(0.0, 1.0, LIFT + 1).to(gap)[1:, None] * (options.lift * pi / 180.0)
    # where the finger is on a box that turns with its edges on floor and wall
    reach = LENGTH + RADIUS
    x = THICKNESS * turn.sin() + reach * turn.cos() - HEIGHT * turn.sin()
    lifted = torch.stack([x, reach * turn.sin() + HEIGHT * turn.cos()], -1).expand(-1, len(gap), -1)
    path = torch.cat([finger[None], ease(finger, near, APPROACH), ease(near, touch, PRESS), lifted])
    speeds = path.diff(dim=0) / DT
    inward = -options.press * torch.stack([turn.cos(), turn.sin()], -1)
    speeds[APPROACH + PRESS :] += inward
    return torch.cat([speeds, inward[-1:].expand(STEPS - len(speeds), len(gap), -1)])


def pose(sim: Sim, start: State, guess: Tensor) -> Problem:
    """Return the problem: the box upright and at rest in the end, by small speeds of the finger."""

    def tilt(q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        return angle(q)[..., None] - 0.5 * pi

    def ending(q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        return torch.cat([8.0 * tilt(q, qd, u), 0.5 * qd[..., 2:5], 2.0 * qd[..., 5:8]], -1)

    running = Residual(tilt, 0.02) + ControlCost(5e-3)
    return Problem(sim, start, STEPS, running, Residual(ending), lower=-FASTEST, upper=FASTEST)


def stop(end: State) -> Tensor:
    """Return speeds of zero."""
    return torch.zeros_like(end.q[:, :2])


def judge(end: State) -> tuple[Tensor, dict[str, Tensor]]:
    """Return which boxes stand upright and at rest, and how far they are off."""
    off = torch.rad2deg((angle(end.q) - 0.5 * pi).abs())
    speed = end.qd[:, 2:8].abs().amax(-1)
    return (off < UPRIGHT) & (speed < STILL), {"off (degrees)": off, "speed (m/s, rad/s)": speed}


# -- the picture ---------------------------------------------------------------------------------------------------


def outline(q: Tensor) -> Tensor:
    """Return the box's corners (5, 2) from the side."""
    signs = q.new_tensor([[1, 1], [-1, 1], [-1, -1], [1, -1], [1, 1]])
    x, z = (0.5 * signs * q.new_tensor([LENGTH, THICKNESS])).T
    turn = angle(q)
    return torch.stack([q[2] + turn.cos() * x - turn.sin() * z, q[4] + turn.sin() * x + turn.cos() * z], -1)


def draw(film: Axes, motion: Axes, found: Solved) -> None:
    """Draw the first start from the side at several moments, and the angles of all."""
    q = found.motion.q.cpu()
    shown = int(found.success.int().argmax())
    moments = torch.linspace(0, found.steps, 9).long().tolist()
    for k, moment in enumerate(moments):
        shift = q.new_tensor([0.42 * k, 0.0])
        film.plot(*(outline(q[moment, shown]) + shift).T, color="tab:blue", linewidth=1.5)
        film.plot(*(q[: moment + 1, shown, :2] + shift).T, color="tab:orange", linewidth=0.8, alpha=0.6)
        spot = (q[moment, shown, :2] + shift).tolist()
        film.plot(*spot, "o", color="tab:orange", markersize=5)
        film.plot([shift[0], shift[0], shift[0] + 0.36], [0.3, 0.0, 0.0], color="saddlebrown", linewidth=1.5)
        film.text(float(shift[0]) + 0.15, -0.05, f"{DT * moment:.2g} s", ha="center", fontsize=8)
    film.set(title=f"start {shown} from the side: box (blue), finger and its path (orange)", aspect="equal")
    film.axis("off")
    time = DT * torch.arange(len(q))
    for k, good in enumerate(found.success.tolist()):
        motion.plot(time, torch.rad2deg(angle(q[:, k])), color="tab:blue" if good else "tab:red", linewidth=1.0)
    motion.axhspan(90.0 - UPRIGHT, 90.0 + UPRIGHT, color="tab:green", alpha=0.2)
    motion.axvline(DT * found.steps, color="gray", linestyle=":")
    motion.set(title="angle of all boxes (red: missed)", xlabel="time [s]", ylabel="angle [degrees]")
    motion.grid(alpha=0.3)
