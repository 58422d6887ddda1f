"""Open a hinged door with the Panda's fingers behind its handle, by iLQR through contact.

A cupboard door with a bar for a handle turns about an upright hinge, with dry friction and damping. The arm, driven by
position servos, starts near a pose of its own, the door a little ajar. First controls come from inverse kinematics: the
hand goes above the bar, down over it, and pulls by three centimetres. iLQR finds how to open the door as far as asked
and leave it there at rest: the hand has to follow the arc and turn with the bar, which nothing holds but contact. All
starts are solved as one batch.

A start succeeds if, half a second after the last control, the door is within 3 degrees of the angle, and at rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import radians
from typing import TYPE_CHECKING

import torch

from pullback.control import ControlCost, LinkFrame, Problem, Residual, StateCost
from pullback.core.errors import PullbackError
from pullback.description.assets import panda_gripper
from pullback.description.assets.rows import box, capsule, joint, link
from pullback.description.assets.rows import pose as frame
from pullback.description.tree import Limits, Tree
from pullback.rigid.sim import Sim
from pullback.rigid.solvers.compliant import Compliant
from pullback.rigid.solvers.pgs import PGS
from pullback.rigid.state import State
from pullback.rigid.world.actuators import PositionServo
from pullback.rigid.world.world import World
from pullback.robot.ik import inverse_kinematics
from pullback.robot.load import load
from pullback.robot.model import RobotModel
from pullback.spatial.rotations_torch import conjugate, quaternion_product
from pullback.tasks.common import contact_rich as shared
from pullback.tasks.common.contact_rich import Scene, Solved, check, compile_both, ease, solve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Tensor = torch.Tensor

HINGE = (0.62, 0.3)
WIDTH, HEIGHT, THICKNESS, DOOR_MASS = 0.45, 0.4, 0.02, 4.0
HINGE_FRICTION, HINGE_DAMPING = 0.5, 0.5
REACH, STANDOFF, BAR_HEIGHT, BAR_RADIUS, BAR_LENGTH = 0.38, 0.05, 0.42, 0.012, 0.10
"""The bar: its middle is REACH from the hinge and STANDOFF in front of the panel, just above its upper edge."""
FRICTION = 0.5
OPENING = 0.02
"""How far [m] each finger is from the middle of the hand."""
STIFFNESS = (600.0, 600.0, 600.0, 600.0, 250.0, 150.0, 50.0)
DAMPING = (50.0, 50.0, 50.0, 30.0, 20.0, 15.0, 8.0)
READY = (0.0, -0.4, 0.0, -2.2, 0.0, 1.8, -0.785)
"""The arm [rad] around which it starts: the hand points down, one finger nearer to the robot than the other."""
FINGERS = ("panda_leftfinger", "panda_rightfinger")
HAND = "panda_hand_tcp"
SPRINGS = Compliant(stiffness=2e4, damping=5.0, onset=1e-3, slip_speed=0.01)
DT, STEPS = 0.02, 130
OFF, STILL = 3.0, 0.02
"""Tolerances of success: error of the angle [degrees], and speed of the door [rad/s] at the end."""
ABOVE, DOWN = 28, 14
"""Steps of the first controls: to a place above the bar, and down over it; then they pull."""
WAIT = 20
"""Number of last steps in which the door should be open already."""


@dataclass
class Options(shared.Options):
    """How to open a door."""

    iterations: int = 30
    """The most iterations of iLQR."""
    angle: float = 45.0
    """How far to open the door [degrees]."""
    ajar: float = 8.0
    """Largest opening of the door at the start [degrees]."""
    scatter: float = 0.2
    """Largest deviation of each joint from its usual angle at the start [rad]."""
    pull: float = 0.03
    """How far [m] the first controls pull."""


def run(options: Options) -> Solved:
    """Solve all starts, print the results, and draw them."""
    check(options)
    if not options.ajar < options.angle <= 60.0:
        raise PullbackError(f"angle is {options.angle:g} degrees; give more than ajar, {options.ajar:g}, up to 60")
    return solve(scene(options), options)


def scene(options: Options) -> Scene:
    """Return the task from random starts."""
    sim, soft = compile_both(build, SPRINGS, DT, options)
    start = random_starts(sim, options)
    guess = first_controls(sim, start, options)
    asked = radians(options.angle)
    return Scene(
        "open-door",
        sim,
        soft,
        start,
        guess,
        lambda sim, start, guess: pose(sim, start, guess, asked),
        lambda end: judge(end, asked),
        lambda film, motion, found: draw(film, motion, found, options),
        lambda end: stop(sim, end),
    )


def panda() -> Tree:
    """Return the Panda with its fingers held at their opening."""
    tree = panda_gripper.tree()
    for finger, side in zip(tree.joints[-2:], (1, -1)):
        finger.type, finger.mimic = "fixed", None
        finger.origin = frame((0, side * OPENING, finger.origin.translation[2]))
    return tree


def door() -> Tree:
    """Return the door: at angle 0 it stands along -y from its hinge, and it opens towards -x."""
    middle = (0, -0.5 * WIDTH, BAR_HEIGHT - 0.02 - 0.5 * HEIGHT)
    inertia = (WIDTH**2 + HEIGHT**2, HEIGHT**2 + THICKNESS**2, WIDTH**2 + THICKNESS**2)
    ends = [(-STANDOFF, -REACH + side * 0.5 * BAR_LENGTH, BAR_HEIGHT) for side in (-1, 1)]
    shapes = box((THICKNESS, WIDTH, HEIGHT), middle), capsule(BAR_RADIUS, *ends)
    panel = link("panel", DOOR_MASS, middle, tuple(DOOR_MASS / 12.0 * x for x in inertia), *shapes)
    limits = Limits(0.0, 2.0, velocity=10.0, effort=0.0)
    hinge = joint("hinge", "revolute", "frame", "panel", axis=(0, 0, -1), limits=limits)
    hinge.damping, hinge.friction = HINGE_DAMPING, HINGE_FRICTION
    return Tree("door", [link("frame"), panel], [hinge], source="door")


def build(contact: PGS | Compliant) -> World:
    """Return a world with arm and door; of the arm the fingers take part in collisions."""
    world = World(contact=contact)
    servos = {f"panda_joint{k}": PositionServo(kp, kd) for k, kp, kd in zip(range(1, 8), STIFFNESS, DAMPING)}
    place = dict(zip(servos, READY))
    world.add(load(panda()), name="panda", actuators=servos, q=place, collision_links=FINGERS, friction=FRICTION)
    world.add(load(door()), name="door", position=(*HINGE, 0.0), actuators={}, friction=FRICTION)
    return world


def handle(angle: Tensor) -> Tensor:
    """Return where the middle of the bar is (..., 3) when the door is open by an angle [rad]."""
    x = HINGE[0] - angle.cos() * STANDOFF - angle.sin() * REACH
    y = HINGE[1] + angle.sin() * STANDOFF - angle.cos() * REACH
    return torch.stack([x, y, torch.full_like(x, BAR_HEIGHT)], -1)


def random_starts(sim: Sim, options: Options) -> State:
    """Return states at rest: the arm around its usual pose, the door a little open."""
    generator = torch.Generator().manual_seed(options.seed)
    numbers = torch.rand(options.starts, 8, generator=generator, dtype=torch.float64)
    arm = torch.tensor(READY, dtype=torch.float64) + options.scatter * (2.0 * numbers[:, :7] - 1.0)
    q = torch.cat([arm, radians(options.ajar) * numbers[:, 7:]], -1).to(sim.device)
    return State(q, torch.zeros_like(q))


def arm_of(sim: Sim) -> RobotModel:
    """Return the arm as a robot of its own."""
    return sim.world.robots["panda"].to(device=sim.device, dtype=sim.dtype)


def hand_down(sim: Sim) -> Tensor:
    """Return the orientation (4,) of the hand in its usual pose, for a closed door."""
    return arm_of(sim).compute_forward_kinematics(torch.tensor([READY]).to(sim.device, sim.dtype), HAND)[1][0].detach()


def turn_with_door(angle: Tensor) -> Tensor:
    """Return the rotation (..., 4) of a door that is open by an angle [rad]."""
    zero = torch.zeros_like(angle)
    return torch.stack([zero, zero, -(0.5 * angle).sin(), (0.5 * angle).cos()], -1)


def first_controls(sim: Sim, start: State, options: Options) -> Tensor:
    """Return targets (T, B, 7) [rad] that lead the hand above the bar, down over it, and pull a little."""
    arm, ready = arm_of(sim), start.q.new_tensor(READY)
    angle = start.q[:, 7]
    quat = quaternion_product(turn_with_door(angle), hand_down(sim).expand(len(angle), -1)).expand(3, -1, -1)
    # towards the robot, at right angles to the door; up
    back = torch.stack([-angle.cos(), angle.sin(), 0.0 * angle], -1)
    up = back.new_tensor([0.0, 0.0, 1.0])
    slack = OPENING - BAR_RADIUS
    ways = (0.5 * slack * back + 0.07 * up, 0.5 * slack * back, (slack + options.pull) * back)
    places = torch.stack([handle(angle) + way for way in ways])
    found = inverse_kinematics(arm, HAND, places, quat, q0=ready, restarts=1)
    if not bool(found.reached.all()):
        raise PullbackError(f"the arm does not reach the door's handle: {found}")
    above, over, pulled = found.q
    path = torch.cat([ease(start.q[:, :7], above, ABOVE), ease(above, over, DOWN)])
    path = torch.cat([path, ease(over, pulled, STEPS - len(path))])
    speed = torch.cat([start.q[None, :, :7], path]).diff(dim=0) / DT
    still = torch.zeros_like(path)
    weight = arm.compute_inverse_dynamics(path, still, still)
    return (path + (weight + speed * path.new_tensor(DAMPING)) / path.new_tensor(STIFFNESS)).detach()


def pose(sim: Sim, start: State, guess: Tensor, asked: float) -> Problem:
    """Return the problem: the door open and at rest towards the end, the hand at the bar's height, by slow motion."""

    def opened(q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        return torch.cat([q[..., 7:] - asked, qd[..., 7:]], -1)

    hand = LinkFrame(sim, f"panda/{HAND}")
    down = hand_down(sim)

    def at_bar(q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        """Return how far the hand is from the bar, and how it is turned against it."""
        position, quat = hand.pose(q)
        across = quaternion_product(turn_with_door(q[..., 7]), down.expand_as(quat))
        turned = quaternion_product(conjugate(across), quat)
        return torch.cat([position - handle(q[..., 7]), 2.0 * turned[..., :3] * turned[..., 3:].sign()], -1)

    # weights of angle and speed, from when on it should be open, and of the hand, from when on it is over the bar
    towards_end, over_bar = guess.new_zeros(STEPS, 1, 2), guess.new_zeros(STEPS, 1, 6)
    towards_end[-WAIT:] = guess.new_tensor([20.0, 2.0])
    over_bar[ABOVE + DOWN :] = guess.new_tensor([50.0, 50.0, 50.0, 2.0, 2.0, 2.0])
    slow = StateCost(weights=guess.new_tensor([0.0] * sim.nv + [3e-2] * sim.nv))
    running = Residual(opened, towards_end) + Residual(at_bar, over_bar) + slow + ControlCost(5e-2, guess)
    lower, upper = (guess.new_tensor([getattr(x, side) for x in panda_limits()]) for side in ("lower", "upper"))
    ending = Residual(opened, (400.0, 20.0)) + 30.0 * slow
    return Problem(sim, start, STEPS, running, ending, lower=lower, upper=upper)


def panda_limits() -> list[Limits]:
    """Return the limits of the arm's joints."""
    return [x.limits for x in panda_gripper.tree().joints if x.type == "revolute"]


def stop(sim: Sim, end: State) -> Tensor:
    """Return targets that hold the arm where it is, against its weight."""
    arm = end.q[:, :7]
    weight = arm_of(sim).compute_inverse_dynamics(arm, torch.zeros_like(arm), torch.zeros_like(arm))
    return (arm + weight / arm.new_tensor(STIFFNESS)).detach()


def judge(end: State, asked: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Return which doors are open as far as asked and at rest, and how far they are off."""
    off = torch.rad2deg((end.q[:, 7] - asked).abs())
    speed = end.qd[:, 7].abs()
    return (off < OFF) & (speed < STILL), {"off (degrees)": off, "speed (rad/s)": speed}


# -- the picture ---------------------------------------------------------------------------------------------------


def draw(film: Axes, motion: Axes, found: Solved, options: Options) -> None:
    """Draw the first starts from above, and the angles of all doors."""
    q = found.motion.q.cpu()
    robot = load(panda(), dtype=torch.float64)
    asked = q.new_tensor([radians(options.angle)])
    for k in range(min(5, q.shape[1])):
        shift = q.new_tensor([0.0, -0.9 * k])
        with torch.no_grad():
            hand = robot.compute_forward_kinematics(q[:, k, :7], HAND)[0][:, :2] + shift
        for moment in torch.linspace(ABOVE + DOWN, found.steps, 5).long().tolist():
            _draw_door(film, q[moment, k, 7:], shift, "tab:blue", 0.25 + 0.75 * moment / found.steps)
        _draw_door(film, asked, shift, "tab:red", 1.0, "--")
        film.plot(-hand[:, 1], hand[:, 0], color="tab:orange", linewidth=1.2)
        film.plot(-shift[1], 0.0, "s", color="black", markersize=6)
    film.set(title="from above: door (blue, later is darker), hand (orange), goal (red)", aspect="equal")
    film.axis("off")
    time = DT * torch.arange(len(q))
    for k, good in enumerate(found.success.tolist()):
        motion.plot(time, torch.rad2deg(q[:, k, 7]), color="tab:blue" if good else "tab:red", linewidth=1.0)
    motion.axhspan(options.angle - OFF, options.angle + OFF, color="tab:green", alpha=0.2)
    motion.axvline(DT * found.steps, color="gray", linestyle=":")
    motion.set(title="angle of all doors (red: missed)", xlabel="time [s]", ylabel="degrees")
    motion.grid(alpha=0.3)


def _draw_door(film: Axes, angle: Tensor, shift: Tensor, color: str, alpha: float, style: str = "-") -> None:
    """Draw the panel and its bar from above, x upwards."""
    along = -torch.cat([angle.sin(), angle.cos()])
    hinge, bar = angle.new_tensor(HINGE), handle(angle)[0, :2]
    for start, end in ((hinge, hinge + WIDTH * along), (bar - BAR_LENGTH / 2 * along, bar + BAR_LENGTH / 2 * along)):
        ends = torch.stack([start, end]) + shift
        film.plot(-ends[:, 1], ends[:, 0], style, color=color, alpha=alpha, linewidth=1.5)
