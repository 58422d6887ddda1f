"""Pour a cup into another with the Panda, by gradients through the fluid.

The hand holds a cup of syrup beside a second cup, which stands on a table, and is told to tilt it: servo targets of all
joints on straight lines between knots. A first guess, by inverse kinematics, tilts the cup at a random place, by a
random angle, and spills most of it. The gradient goes from where the particles end through the fall, the fluid, both
cups and the arm to the knots: 42 numbers a scene. Syrup that falls beside the second cup spreads away from it, the
further the nearer to its wall it falls, so that where it ends says the wrong thing. So the hand learns to aim first, by
where the stream passes the height of the rim: how far to move, and how far to tilt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import pi
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pullback.control.search.search import Found
from pullback.core.device import find_device
from pullback.description.load import read
from pullback.description.tree import Joint, Link, Pose, Shape
from pullback.rigid.state import State
from pullback.rigid.world.actuators import PositionServo
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.robot.model import RobotModel
from pullback.soft import Coupled, CoupledRollout, CoupledState, Domain, Fluid, SoftSim, block
from pullback.tasks.common.arm import carry, follow
from pullback.tasks.common.descent import descend
from pullback.tasks.common.knots import knots_at
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_arrays, write_figure, write_replay
from pullback.tasks.pick_and_place import ARM, HAND

Tensor = torch.Tensor

DT, SOFT_DT, CELL = 2e-3, 1e-3, 0.01
STEPS = 750
DENSITY, BULK, VISCOSITY = 1000.0, 1e4, 1.0
"""Of the syrup; its bulk modulus [Pa] is low, so that steps may be long: at the bottom of a cup it is 4 % denser."""
FILL, ABOVE = (0.05, 0.05, 0.05), 0.004
"""Size [m] of the block of syrup at the start, and how far above the bottom of the cup it is."""
WALL = 0.022
"""Thickness [m] of the walls of cups: fluid seeps through walls of one cell."""
INSIDE, SECOND = (0.062, 0.062, 0.075), (0.07, 0.07, 0.085)
"""Width, depth and height [m] inside of both cups."""
HOME = (0.0, -0.4, 0.0, -2.2, 0.0, 3.37, pi / 4, 0.04)
"""Of the joints: the hand points forward, its x axis up."""
UPRIGHT = (0.5**0.5, 0.0, 0.5**0.5, 0.0)
"""Orientation xyzw of the hand there: its z along x, its x along z."""
KP = (600.0, 600.0, 600.0, 600.0, 250.0, 150.0, 100.0)
KD = (50.0, 50.0, 50.0, 50.0, 30.0, 25.0, 10.0)
BASE = -0.5
"""Height [m] of the arm's base: below the table, so that its hand can be level."""
PLACE = (0.6, 0.0, 0.21)
"""Where the hand holds the cup at the start [m], but for NEARBY."""
BEYOND = 0.02
"""The middle of the cup, beyond the middle between the fingertips [m]."""
TARGET = (PLACE[0] + BEYOND, 0.1)
"""Where the second cup stands [m]."""
NEARBY = (0.02, 0.04)
"""How far [m] from its place a hand starts at most, along x and y."""
TILT = (1.4, 2.2)
"""Angles [rad] by which a first guess tilts the cup."""
MOMENTS = (0.0, 0.1, 0.2, 0.3, 0.45, 0.65, 1.0)
"""Of the knots, as fractions of the time; the first is where the hand starts and stays."""
TURNED = (0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0)
"""Share of the tilt at the knots."""
MOVED = (0.0, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0)
"""Share of the way at the knots, of a hand that moves to aim."""
AIM_UNIT = (0.1, 0.1, 0.7)
"""Metres along x and y, and radians of tilt, in one unit of what is sought to aim."""
WATCHED = 5
"""Steps between two looks at the stream."""
UNIT = (0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.2)
"""Radians of each joint in one unit of what is sought; the last one tilts the cup."""
GOAL = 0.95
"""Share of the syrup in the second cup that counts as a success."""
AIM_RATE, LEARNING_RATE = 0.12, 0.04
"""Of the search for the aim, and of that for the whole motion."""


@dataclass
class Options:
    """What to pour, and how long to search."""

    scenes: int = 5
    """Hands at random places with random first guesses, each with a search of its own, side by side."""
    aims: int = 8
    """Iterations of the optimiser (Adam) in which the hand learns to aim: how far to move, and how far to tilt."""
    epochs: int = 8
    """Iterations in which it learns to pour."""
    seed: int = 0
    """Seed of the first scene; the others are those of the seeds that follow."""
    quick: bool = False
    """Few iterations for one scene, to see that everything works."""
    out: Path = Path("out")
    """Folder for the motion, the picture and the replay."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


class Verdict(NamedTuple):
    """Where the syrup ended: shares (B,) in the second cup, in the first, and spilt."""

    poured: Tensor
    left: Tensor
    spilt: Tensor

    @property
    def good(self) -> Tensor:
        """Whether enough was poured (B,)."""
        return self.poured >= GOAL


@dataclass
class Poured:
    """What was found: knots (B, 42), the motion, verdicts of first guesses and of results, and both searches."""

    knots: Tensor
    motion: CoupledRollout
    before: Verdict
    after: Verdict
    aimed: Found
    found: Found
    files: list[Path] = field(default_factory=list)


def run(options: Options) -> Poured:
    """Search for the knots, print where the syrup went, and save motion, picture and replay."""
    check_at_least(options, scenes=1, aims=1, epochs=1)
    if options.quick:
        options = replace(options, scenes=1, aims=2, epochs=1)
    console = Console()
    with console.status("compiling the kernels, once on a machine"):
        task = Task(range(options.seed, options.seed + options.scenes), device=find_device(options.device))
        first = task.first_knots()
        before = task.judge(task.watch(first))
    knots = task.moved(first)
    none = torch.zeros_like(first[:, : len(AIM_UNIT)])
    aimed = descend(lambda z: task.aim(knots(z)), none, options.aims, AIM_RATE, console)
    found = descend(task.loss, knots(aimed.each), options.epochs, LEARNING_RATE, console)
    motion = task.watch(found.each)
    poured = Poured(found.each, motion, before, task.judge(motion), aimed, found)
    report(poured, task, console)
    save(poured, task, options, console)
    return poured


# -- the scene -----------------------------------------------------------------------------------------------------


def cup(inside: tuple[float, float, float]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return sizes and middles of the five boxes of a cup that opens along z, about the middle of its inside [m]."""
    x, y, z = inside
    wide, deep, high = x + 2.0 * WALL, y + 2.0 * WALL, z + WALL
    # boxes overlap at the corners: between faces that only meet fluid would find a way out
    boxes = [((wide, deep, WALL), (0.0, 0.0, -0.5 * high))]
    for side in (-1.0, 1.0):
        boxes.append(((WALL, deep, high), (0.5 * side * (x + WALL), 0.0, -0.5 * WALL)))
        boxes.append(((wide, WALL, high), (0.0, 0.5 * side * (y + WALL), -0.5 * WALL)))
    return [(np.array(size), np.array(middle)) for size, middle in boxes]


def arm_with_cup() -> RobotModel:
    """Return the Panda with a cup in its hand that opens along the hand's x axis."""
    tree = read("panda_gripper")
    tip = next(joint for joint in tree.joints if joint.child == HAND).origin.translation
    # z of the cup along x of the hand, x of the cup along z
    turn = np.array([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0], [1.0, 0.0, 0.0]])
    middle = tip + np.array([0.0, 0.0, BEYOND])
    # a link of its own, so that replays draw it beside the hand
    boxes = [Shape("box", tuple(size.tolist()), Pose(at)) for size, at in cup(INSIDE)]
    tree.links.append(Link("cup", shapes=boxes))
    tree.joints.append(Joint("cup_joint", "fixed", "panda_hand", "cup", Pose(middle, turn)))
    return load(tree)


def build(dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Coupled:
    """Return the arm with its cup, the syrup in it, and the second cup."""
    world = World()
    servos = {f"panda_joint{k}": PositionServo(kp, kd) for k, (kp, kd) in enumerate(zip(KP, KD), start=1)}
    servos["panda_finger_joint1"] = PositionServo(kp=2000.0, kd=60.0, limit=40.0)
    world.add(
        arm_with_cup(), name=ARM, position=(0.0, 0.0, BASE), q=torch.tensor(HOME), actuators=servos,
        collision_links=["cup"], friction=0.0,
    )  # fmt: skip
    height = WALL + 0.5 * SECOND[2]
    for k, (size, at) in enumerate(cup(SECOND)):
        place = at + np.array([*TARGET, height])
        world.add_box(f"second cup {k}", size=size.tolist(), position=place.tolist(), static=True, friction=0.0)
    low = np.array(PLACE) + np.array([BEYOND - 0.5 * FILL[0], -0.5 * FILL[1], ABOVE - 0.5 * INSIDE[2]])
    syrup = Fluid(bulk=BULK, density=DENSITY, viscosity=VISCOSITY)
    body = block(low, low + FILL, spacing=CELL / 2.0, name="syrup", material=syrup)
    x, y = TARGET
    domain = Domain((x - 0.2, y - 0.3, 0.0), (x + 0.2, y + 0.2, 0.4), CELL, sides={"z-": "stick"})
    settings = {"dtype": dtype, "device": device}
    soft = SoftSim(domain, [body], dt=SOFT_DT, gravity=(0.0, 0.0, -9.81), **settings)
    return Coupled(soft, world.compile(dt=DT, damping="implicit", **settings))


class Task:
    """Scenes, with the motion and loss of knots (B, 42) of the arm in units of UNIT, by knot and joint."""

    def __init__(self, seeds: range, *, steps: int = STEPS, **settings: Any) -> None:
        self.coupled, self.scenes, self.steps = build(**settings), len(seeds), steps
        sim = self.coupled.rigid
        self.robot = sim.world.robots[ARM].to(dtype=torch.float64)
        draws = torch.stack(
            [torch.rand(3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        )
        self.offset = torch.tensor(NEARBY, dtype=torch.float64) * (2.0 * draws[:, :2] - 1.0)
        self.tilt = TILT[0] + (TILT[1] - TILT[0]) * draws[:, 2]
        self.between = knots_at(steps, MOMENTS).to(sim.device, sim.dtype)
        self.unit = torch.tensor(UNIT).to(self.between)
        self.start, self.held, self.first = self._prepare()
        middle = [*TARGET, WALL + 0.5 * SECOND[2]]
        self.middle, self.half = torch.tensor(middle).to(self.between), 0.5 * torch.tensor(SECOND).to(self.between)

    def _prepare(self) -> tuple[CoupledState, Tensor, Tensor]:
        """Return the scenes at rest, the first targets (B, 7), and those of the other knots of a first guess."""
        state = self.coupled.state(self.scenes)
        shift = torch.nn.functional.pad(self.offset, (0, 1))
        q, targets = self._carried(0.0, 0.0, 0.0)
        start = state.rigid.q.clone()
        start[:, :8], start[:, 8] = q[:, 0].to(start), HOME[-1]
        soft = state.soft.replace(x=state.soft.x + shift[:, None].to(start))
        rigid = State(start, state.rigid.qd, state.rigid.impulses)
        return CoupledState(soft, rigid), targets[:, 0].to(start), targets[:, 1:].to(start)

    def _carried(self, x: float, y: float, tilt: float) -> tuple[Tensor, Tensor]:
        """Return coordinates and targets at the knots, of hands that move by x and y [m] and tilt by more [rad]."""
        place = torch.tensor([PLACE[0], PLACE[1], PLACE[2] - BASE], dtype=torch.float64)
        start = place + torch.nn.functional.pad(self.offset, (0, 1))
        home = torch.tensor(HOME, dtype=torch.float64).expand(self.scenes, -1)
        upright = torch.tensor(UPRIGHT, dtype=torch.float64).expand(self.scenes, -1)
        aside = torch.tensor([x, y, 0.0], dtype=torch.float64)
        way = [(start + share * aside, upright) for share in MOVED]
        q = follow(self.robot, HAND, way, home, len(KP))
        # the last joint turns about the axis along which the hand points
        q[..., 6] -= torch.tensor(TURNED) * (self.tilt[:, None] + tilt)
        return q, carry(self.robot, q, KP)

    def first_knots(self) -> Tensor:
        """Return knots (B, 42) of arms that tilt their cups where they are."""
        return (self.first / self.unit).flatten(1)

    def moved(self, first: Tensor) -> Callable[[Tensor], Tensor]:
        """Return knots as a function of how far hands move along x and y and tilt further, (B, 3) in AIM_UNIT."""
        # lines through the knots of a middling way
        half = 0.5
        ways = []
        for k, unit in enumerate(AIM_UNIT):
            targets = self._carried(*(half * unit if j == k else 0.0 for j in range(3)))[1][:, 1:].to(first)
            ways.append((targets / self.unit).flatten(1) - first)
        return lambda z: first + torch.einsum("bk,bkn->bn", z, torch.stack(ways, 1) / half)

    def controls(self, knots: Tensor) -> Tensor:
        """Return servo targets (T, B, 8)."""
        arm = torch.cat([self.held[:, None], self.unit * knots.unflatten(1, (-1, 7))], 1)
        arm = torch.einsum("tk,bkj->tbj", self.between, arm)
        return torch.cat([arm, torch.full_like(arm[..., :1], HOME[-1])], -1)

    def rollout(self, knots: Tensor, frames: list[int]) -> CoupledRollout:
        """Return the motion; a world in which a particle fails is NaN."""
        return self.coupled.rollout(self.start, self.controls(knots.to(self.between)), frames=frames, check=False)

    def outside(self, x: Tensor, margin: float = 0.5 * CELL) -> Tensor:
        """Return how far [m] points (..., 3) are beyond or above the second cup, but for a margin to its walls.

        What is in its bottom, into which particles sink by a cell, is in the cup.
        """
        beyond = (x - self.middle)[..., :2].abs() - self.half[:2] + margin
        above = x[..., 2:] - self.middle[2] - self.half[2] + margin
        return torch.cat([beyond, above], -1).clamp(min=0.0)

    def inside(self, x: Tensor) -> Tensor:
        """Return the share of particles (..., n, 3) in the second cup, no further out than the middle of its walls."""
        return (self.outside(x, -0.5 * WALL) == 0.0).all(-1).to(x.dtype).mean(-1)

    def aim(self, knots: Tensor) -> Tensor:
        """Return how far [dm²] from the second cup particles pass the height of its rim, or are above it (B,)."""
        x = self.rollout(knots, list(range(0, self.steps + 1, WATCHED))).soft.x
        rim = self.middle[2] + self.half[2] - 0.5 * CELL
        below = x[..., 2] < rim
        passed = below.any(0)
        at = torch.where(passed, below.int().argmax(0), len(x) - 1).clamp(min=1)
        before, after = (x.gather(0, k[None, ..., None].expand(1, *k.shape, 3))[0] for k in (at - 1, at))
        share = torch.where(passed, (before[..., 2] - rim) / (before - after)[..., 2].clamp(min=1e-6), 1.0).clamp(
            0.0, 1.0
        )
        passes = before + share[..., None] * (after - before)
        return 100.0 * self.outside(passes).square().sum(-1).mean(-1)

    def loss(self, knots: Tensor) -> Tensor:
        """Return the mean square distance [dm²] of the particles from the second cup, at the end (B,)."""
        return 100.0 * self.outside(self.rollout(knots, [self.steps]).soft.x[-1]).square().sum(-1).mean(-1)

    @torch.no_grad()
    def watch(self, knots: Tensor) -> CoupledRollout:
        """Return the motion with more frames."""
        return self.rollout(knots, list(range(0, self.steps + 1, 10)))

    def judge(self, run: CoupledRollout) -> Verdict:
        """Return where the syrup is at the end."""
        x = run.soft.x[-1]
        inside = self.inside(x)
        high = (x[..., 2] > self.middle[2] + self.half[2] + 0.5 * WALL).to(x.dtype).mean(-1)
        return Verdict(inside, high, 1.0 - inside - high)


# -- the report ----------------------------------------------------------------------------------------------------


def report(poured: Poured, task: Task, console: Console) -> None:
    """Print for every scene where the syrup of the first guess and of the result is."""
    good = int(poured.after.good.sum())
    epochs = len(poured.aimed.losses) + len(poured.found.losses)
    table = Table(title=f"{good} of {task.scenes} cups poured ({GOAL:.0%}) after {epochs} epochs")
    for header in ("scene", "cup starts off by", "first guess", "poured", "not yet", "spilt", ""):
        table.add_column(header, justify="right")
    for k in range(task.scenes):
        dx, dy = (1e3 * task.offset[k]).tolist()
        inside, left, spilt = (x[k].item() for x in poured.after)
        table.add_row(
            str(k), f"{dx:+.0f}, {dy:+.0f} mm", f"{poured.before.poured[k].item():.1%}", f"{inside:.1%}",
            f"{left:.1%}", f"{spilt:.1%}", "ok" if poured.after.good[k] else "missed",
        )  # fmt: skip
    console.print(table)


def save(poured: Poured, task: Task, options: Options, console: Console) -> None:
    """Write the motion, picture and replay of the first scene in which enough was poured, or of the first."""
    out, run, k = options.out, poured.motion, int(poured.after.good.int().argmax())
    controls = task.controls(poured.knots)
    saved = write_arrays(
        out / "pour.npz", q=run.q[:, k], qd=run.qd[:, k], u=controls[:, k], x=run.soft.x[:, k], times=run.times,
        wrenches=run.wrenches[:, k], knots=poured.knots, losses=poured.found.losses, aim=poured.aimed.losses,
    )  # fmt: skip
    picture = draw(poured, task, k, out / "pour.png")
    replay = write_replay(
        task.coupled.rigid, run.trajectory, out / "pour.html", console, controls=controls, title="pour a cup",
        forces=False, particles=(run.times, run.soft.x[:, k]), world=k,
    )  # fmt: skip
    poured.files = [path for path in (saved, picture, replay) if path is not None]
    print_files(console, trajectory=saved, picture=picture, replay=replay)


def draw(poured: Poured, task: Task, k: int, path: Path) -> Path:
    """Draw one scene at five moments from the front, the tilt, the shares poured and the search; return the file."""
    from matplotlib.figure import Figure

    run = poured.motion
    figure = Figure(figsize=(13.0, 7.5), layout="constrained")
    grid = figure.add_gridspec(2, 15)
    given = task.coupled.motion.parameters()
    corners = 0.5 * torch.tensor([[-1, -1], [-1, 1], [1, 1], [1, -1], [-1, -1]]).to(run.q)
    walls = [*cup(INSIDE), *cup(SECOND)]
    for number, shot in enumerate(np.linspace(0, len(run.frames) - 1, 5).round().astype(int)):
        panel = figure.add_subplot(grid[0, 3 * number : 3 * number + 3])
        x = run.soft.x[shot, k].cpu()
        panel.scatter(x[:, 1], x[:, 2], s=2, color="#b5651d", linewidths=0)
        q = run.q[int(run.frames[shot]), k : k + 1]
        origin, R, *_ = task.coupled.motion.motion(given, q, torch.zeros_like(run.qd[0, :1]))
        for shape, (size, _) in enumerate(walls):
            # those in front and behind would hide the syrup
            if size[0] == WALL:
                continue
            flat = torch.nn.functional.pad(corners * torch.tensor(size[1:]).to(corners), (1, 0))
            line = (flat @ R[0, shape].T + origin[0, shape]).cpu()
            panel.plot(line[:, 1], line[:, 2], color="0.4", linewidth=1)
        panel.axhline(0.0, color="black", linewidth=1)
        panel.set(title=f"{run.times[shot]:.2f} s", xlim=(-0.1, 0.3), ylim=(-0.01, 0.33), aspect="equal")
        panel.set(xlabel="y [m]", ylabel="" if number else "z [m]")
    panels = [figure.add_subplot(grid[1, 5 * i : 5 * i + 5]) for i in range(3)]
    time = DT * np.arange(len(run.q))
    for scene in range(task.scenes):
        panels[0].plot(time, (run.q[0, scene, 6] - run.q[:, scene, 6]).cpu(), color=f"C{scene}", label=f"{scene}")
        panels[1].plot(run.times, task.inside(run.soft.x[:, scene]).cpu(), color=f"C{scene}")
        panels[2].semilogy(torch.cat([poured.aimed.losses, poured.found.losses])[:, scene].cpu(), color=f"C{scene}")
    panels[0].set(title="turn of the last joint [rad]", xlabel="time [s]")
    panels[0].legend(fontsize=8, title="scene")
    panels[1].axhline(GOAL, color="black", linestyle=":", linewidth=1)
    panels[1].set(title="share in the second cup", xlabel="time [s]")
    panels[2].axvline(len(poured.aimed.losses) - 0.5, color="black", linestyle=":", linewidth=1)
    panels[2].set(title="loss: aim, then pour", xlabel="epoch")
    for panel in panels:
        panel.grid(alpha=0.3)
    return write_figure(figure, path)
