"""Pick up a block with the Panda and place it at a target pose, by gradients through the grasp.

The arm follows servo targets: straight lines between knots, which inverse kinematics and the arm's weight give. That
would do for a slow arm. In the short time it has, it lags behind, closes beside the block and carries nothing;
back-propagation through the whole motion, friction grip included, moves the knots until the block stands where it
should. Several scenes are optimised in parallel, and evaluated after half a second of holding still.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import pi
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from pullback.control.search.methods import cosine_schedule
from pullback.control.search.search import Found
from pullback.control.search.shooting import minimize
from pullback.core.device import find_device
from pullback.core.errors import PullbackError
from pullback.description.load import read
from pullback.rigid.sim import Sim
from pullback.rigid.solvers.exact import Exact
from pullback.rigid.state import State, Trajectory
from pullback.rigid.world.actuators import PositionServo
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.robot.model import RobotModel
from pullback.tasks.common.arm import carry, follow
from pullback.tasks.common.curves import Curve, evolution_curve, has_cma, print_curves
from pullback.tasks.common.knots import knots_at
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_motion, write_replay

Tensor = torch.Tensor

DT = 2e-3
ARM, HAND, BLOCK = "arm", "panda_hand_tcp", "block"
FINGERS = ("panda_leftfinger", "panda_rightfinger")
HOME = (0.0, -0.4, 0.0, -2.2, 0.0, 1.8, pi / 4, 0.04)
"""Of the arm's joints [rad] and the left finger [m], which the right one follows."""
KP = (600.0, 600.0, 600.0, 600.0, 250.0, 150.0, 50.0)
KD = (50.0, 50.0, 50.0, 50.0, 30.0, 25.0, 15.0)
SIZE, MASS = 0.04, 0.1
"""Of the block: edge [m] and mass [kg]."""
ABOVE = 0.12
"""How far [m] above the block the hand comes and goes."""
OPEN = 0.04
"""Opening [m] of each finger from the middle."""
MOMENTS = (0.0, 0.143, 0.257, 0.343, 0.457, 0.629, 0.743, 0.829, 0.943, 1.0)
"""Of the knots: home, above the block, at it, gripped, above, above the goal, at it, released, above, and there."""
WIDTHS = (OPEN, OPEN, OPEN, 0.0, 0.0, 0.0, 0.0, OPEN, OPEN, OPEN)
GRIPPING, OPENING = (0.257, 0.3), 0.786
"""When the hand should be at the block and at the goal, as fractions of the duration: while the fingers move."""
BOUND = 0.25
"""The most that a term of the block's counts."""
HOLD = 0.5
"""Time [s] of holding still at the end."""
NEAR, TURNED, SLOW = 0.01, 5.0, 0.005
"""Tolerances of a placed block: distance [m], angle [degrees] and speed [m/s]."""
LEARNING_RATE, LONGEST_GRADIENT = 0.01, 1.0


@dataclass
class Options:
    """What to place, and how long to search."""

    scenes: int = 4
    """Random poses of block and goal, optimised in parallel."""
    duration: float = 1.75
    """From home, with the block, to above the goal [s]; at 3.5 s the first guess is nearly right."""
    epochs: int = 40
    """Iterations of the optimiser (Adam)."""
    generations: int = 25
    """Generations of CMA-ES on the first scene, to compare with; 0: none."""
    seed: int = 0
    """Seed of the scenes."""
    out: Path = Path("out")
    """Folder for the motion, the picture and the replay."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


class Scenes(NamedTuple):
    """Where blocks stand and where they should: positions [m] (B, 3) and turns about z [rad] (B,)."""

    start: Tensor
    start_turn: Tensor
    goal: Tensor
    goal_turn: Tensor

    def of(self, rows: slice, count: int = 1) -> Scenes:
        """Return some of the scenes, each `count` times."""
        return Scenes(*[x[rows].repeat_interleave(count, 0) for x in self])


class Verdict(NamedTuple):
    """How scenes ended, (B,) each."""

    distance: Tensor
    """From the goal [m]."""
    angle: Tensor
    """From the goal's orientation [degrees]."""
    speed: Tensor
    """Of the block at the end [m/s]."""
    lifted: Tensor
    """How high the block was lifted [m]."""
    width: Tensor
    """The smaller opening of a finger at the end [m]."""

    @property
    def placed(self) -> Tensor:
        """Whether the block was carried, stands at rest at its goal, and the hand has let go of it (B,)."""
        carried, let_go = self.lifted > 0.5 * ABOVE, self.width > 0.75 * OPEN
        return (self.distance < NEAR) & (self.angle < TURNED) & (self.speed < SLOW) & carried & let_go


@dataclass
class Placed:
    """What was learned."""

    knots: Tensor
    """(B, knots, 7) [rad]"""
    motion: Trajectory
    controls: Tensor
    """(T, B, 8)"""
    before: Verdict
    """Of the first guess."""
    after: Verdict
    found: Found
    evolution: Found | None = None
    files: list[Path] = field(default_factory=list)

    @property
    def curves(self) -> list[Curve]:
        """The lowest loss by iteration and wall-clock: of each scene by gradient, of the first by CMA-ES."""
        seconds, losses = self.found.seconds.numpy(), self.found.losses.numpy()
        shown = min(losses.shape[1], 4)
        found = [Curve.of(f"gradient, scene {k}", seconds, losses[:, k]) for k in range(shown)]
        if self.evolution is not None:
            found.insert(1, evolution_curve(self.evolution, "CMA-ES, scene 0"))
        return found


def run(options: Options) -> Placed:
    """Optimise the targets, evaluate where the blocks end, print and draw."""
    check_at_least(options, scenes=1, epochs=1, generations=0, duration=0.5)
    console, device = Console(), find_device(options.device)
    scenes = draw_scenes(options.scenes, options.seed, device)
    sim = build().compile(dt=DT, dtype=torch.float64, device=device, damping="implicit")
    with console.status("compiling the kernels, once on a machine"):
        task = Task(sim, scenes, options.duration)
        first = task.first_knots()
        before = task.judge(*task.watch(first))
    found = minimize(
        task.loss, first, iterations=options.epochs, learning_rate=LEARNING_RATE, longest_gradient=LONGEST_GRADIENT,
        schedule=cosine_schedule(options.epochs), label="gradient", console=console,
    )  # fmt: skip
    motion, controls = task.watch(found.each)
    placed = Placed(found.each, motion, controls, before, task.judge(motion, controls), found)
    if options.generations and has_cma(console):
        placed.evolution = evolve(sim, scenes, first, options, console)
    report(placed, scenes, console)
    save(placed, sim, scenes, options, console)
    return placed


# -- the world -----------------------------------------------------------------------------------------------------


def gripper() -> RobotModel:
    """Return the Panda with its hand, of which only the fingers' rubber tips touch; the right follows the left."""
    tree = read("panda_gripper")
    for link in tree.links:
        if link.name in FINGERS:
            link.shapes = link.shapes[-1:]
    return load(tree)


def build() -> World:
    """Return a world with the arm on a table and a block."""
    # a little softness makes the forces of the many contacts of a grip unique
    world = World(contact=Exact(cfm=1e-3))
    servos = {f"panda_joint{k}": PositionServo(kp, kd) for k, (kp, kd) in enumerate(zip(KP, KD), start=1)}
    # one drive closes both fingers, with half of its force each
    servos["panda_finger_joint1"] = PositionServo(kp=2000.0, kd=60.0, limit=40.0)
    world.add(
        gripper(), name=ARM, q=torch.tensor(HOME), actuators=servos, collision_links=list(FINGERS), friction=0.4
    )  # fmt: skip
    world.add_ground(friction=0.6)
    world.add_box(BLOCK, size=(SIZE, SIZE, SIZE), mass=MASS, position=(0.5, 0.0, SIZE / 2), friction=0.4)
    return world


def draw_scenes(count: int, seed: int, device: torch.device | str) -> Scenes:
    """Return random scenes: the block on the arm's right, the goal on its left."""
    generator = torch.Generator().manual_seed(seed)

    def between(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, dtype=torch.float64, generator=generator)

    height = torch.full((count,), SIZE / 2, dtype=torch.float64)
    start, start_turn = torch.stack([between(0.4, 0.55), between(-0.25, -0.1), height], -1), between(-0.5, 0.5)
    goal, goal_turn = torch.stack([between(0.4, 0.55), between(0.1, 0.25), height], -1), between(-0.5, 0.5)
    return Scenes(*[x.to(device) for x in (start, start_turn, goal, goal_turn)])


def upright(turn: Tensor) -> Tensor:
    """Return the orientation xyzw (..., 4) of something turned about z."""
    zero = torch.zeros_like(turn)
    return torch.stack([zero, zero, (0.5 * turn).sin(), (0.5 * turn).cos()], -1)


def downward(turn: Tensor) -> Tensor:
    """Return the orientation xyzw (..., 4) of a hand that points down, turned about z."""
    zero = torch.zeros_like(turn)
    return torch.stack([(0.5 * turn).cos(), (0.5 * turn).sin(), zero, zero], -1)


def apart(a: Tensor, b: Tensor) -> Tensor:
    """Return the squared distance of positions (..., 3) in decimetres."""
    return 100.0 * (a - b).square().sum(-1)


def off_by(a: Tensor, b: Tensor) -> Tensor:
    """Return the square of the angle between orientations (..., 4), of small ones."""
    return 4.0 * (1.0 - (a * b).sum(-1).square())


def saturate(loss: Tensor) -> Tensor:
    """Return a loss that ends at a bound however large it becomes."""
    return BOUND * loss / (BOUND + loss)


# -- optimisation --------------------------------------------------------------------------------------------------


class Task:
    """Scenes of a simulation, with the motion and loss of knots of servo targets."""

    def __init__(self, sim: Sim, scenes: Scenes, duration: float) -> None:
        self.sim, self.scenes = sim, scenes
        self.robot = sim.world.robots[ARM].to(dtype=sim.dtype, device=sim.device)
        self.steps = round(duration / DT)
        self.batch = len(scenes.start)
        self.between = knots_at(self.steps, MOMENTS).to(sim.device)
        self.widths = (self.between @ torch.tensor(WIDTHS).to(self.between))[:, None, None]
        state = sim.initial_state(self.batch)
        q = state.q.clone()
        q[:, 9:12], q[:, 12:16] = scenes.start, upright(scenes.start_turn)
        self.state = State(q, state.qd, state.impulses)

    def first_knots(self) -> Tensor:
        """Return knots (B, knots, 7) by inverse kinematics, with gravity compensation through the servos."""
        start, start_turn, goal, goal_turn = self.scenes
        raised = torch.tensor([0.0, 0.0, ABOVE]).to(goal)
        way = [(start + raised, start_turn), (start, start_turn), (start, start_turn), (start + raised, start_turn)]
        way += [(goal + raised, goal_turn), (goal, goal_turn), (goal, goal_turn), (goal + raised, goal_turn)]
        home = torch.tensor(HOME).to(goal).expand(self.batch, -1)
        poses = [(position, downward(turn)) for position, turn in way]
        q = follow(self.robot, HAND, poses, home, len(KP))
        return carry(self.robot, torch.cat([home[:, None], q, q[:, -1:]], 1), KP).contiguous()

    def controls(self, knots: Tensor) -> Tensor:
        """Return servo targets (T, B, 8) from knots (B, knots, 7)."""
        arm = torch.einsum("tk,bkj->tbj", self.between, knots)
        return torch.cat([arm, self.widths.expand(-1, self.batch, 1)], -1)

    def loss(self, knots: Tensor) -> Tensor:
        """Return how far blocks end from their goals, and the hand from block and goal when it grips and lets go."""
        if len(knots) != self.batch:
            raise PullbackError(f"{len(knots)} sets of knots for {self.batch} scenes; a motion was not finite")
        motion, scenes = self.sim.rollout(self.state, self.controls(knots)), self.scenes
        end, speed = motion.q[-1, :, 9:], motion.qd[-1, :, 9:]
        # far from its goal the block was not carried, and its gradient is that of being pushed about: the hand's leads
        total = saturate(apart(end[:, :3], scenes.goal)) + saturate(off_by(end[:, 3:], upright(scenes.goal_turn)))
        total = total + saturate(0.01 * speed.square().sum(-1))
        grip = [(share, scenes.start, scenes.start_turn) for share in GRIPPING]
        for share, position, turn in (*grip, (OPENING, scenes.goal, scenes.goal_turn)):
            moment = motion.q[round(share * self.steps), :, :8]
            hand, pointing = self.robot.compute_forward_kinematics(moment, HAND)
            total = total + apart(hand, position) + off_by(pointing, downward(turn))
        return total

    @torch.no_grad()
    def watch(self, knots: Tensor) -> tuple[Trajectory, Tensor]:
        """Return the motion and its controls, with a while of holding still at the end."""
        controls = self.controls(knots)
        controls = torch.cat([controls, controls[-1:].expand(round(HOLD / DT), -1, -1)])
        return self.sim.rollout(self.state, controls, check=True), controls

    def judge(self, motion: Trajectory, controls: Tensor) -> Verdict:
        """Return the errors of the blocks at the end."""
        end, qd = motion.q[-1], motion.qd[-1]
        half = (0.25 * off_by(end[:, 12:16], upright(self.scenes.goal_turn))).clamp(0.0, 1.0).sqrt()
        return Verdict(
            (end[:, 9:12] - self.scenes.goal).norm(dim=-1),
            torch.rad2deg(2.0 * half.asin()),
            qd[:, 12:15].norm(dim=-1),
            motion.q[:, :, 11].amax(0) - SIZE / 2,
            end[:, 7:9].amin(-1),
        )


def evolve(sim: Sim, scenes: Scenes, first: Tensor, options: Options, console: Console) -> Found:
    """Optimise the knots of the first scene by CMA-ES, from the same first guess and with the same loss."""
    tasks: dict[int, Task] = {}

    def objective(knots: Tensor) -> Tensor:
        count = len(knots)
        if count not in tasks:
            tasks[count] = Task(sim, scenes.of(slice(0, 1), count), options.duration)
        return tasks[count].loss(knots)

    return minimize(
        objective, first[:1], method="cma", iterations=options.generations, spread=0.03, seed=options.seed,
        label="CMA-ES", console=console,
    )  # fmt: skip


# -- the report ----------------------------------------------------------------------------------------------------


def report(placed: Placed, scenes: Scenes, console: Console) -> None:
    """Print for every scene where the first guess and the learned motion leave the block."""
    good = int(placed.after.placed.sum())
    table = Table(title=f"{good} of {len(scenes.goal)} blocks placed after {len(placed.found.losses)} epochs")
    for header in ("scene", "first guess", "off by", "turned", "speed", "lifted", ""):
        table.add_column(header, justify="right")
    for k in range(len(scenes.goal)):
        distance, angle, speed, lifted, _ = (x[k].item() for x in placed.after)
        table.add_row(
            str(k), f"{1e3 * placed.before.distance[k].item():.0f} mm off", f"{1e3 * distance:.1f} mm", f"{angle:.1f}°",
            f"{1e3 * speed:.1f} mm/s", f"{100 * lifted:.1f} cm", "ok" if placed.after.placed[k] else "missed",
        )  # fmt: skip
    console.print(table)
    print_curves(placed.curves, console, "lowest loss (an iteration of CMA-ES is a population)")


def save(placed: Placed, sim: Sim, scenes: Scenes, options: Options, console: Console) -> None:
    """Write the motion, picture and replay of the first scene."""
    from pullback.tasks.common.pick_and_place_picture import draw

    out, motion = options.out, placed.motion
    saved = write_motion(out / "pick_and_place.npz", sim, motion, placed.controls[:, 0])
    picture = draw(placed, sim, scenes, out / "pick_and_place.png")
    replay = write_replay(
        sim, motion, out / "pick_and_place.html", console, controls=placed.controls, title="pick and place",
        paths=[BLOCK],
    )  # fmt: skip
    placed.files = [path for path in (saved, picture, replay) if path is not None]
    print_files(console, trajectory=saved, picture=picture, replay=replay)
