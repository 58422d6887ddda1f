"""Fold a cloth over a board with the Panda, by gradients through cloth and arm.

A cloth lies on a table, half of it under a thin board. The arm holds its free edge by a bar, and is told to carry it
over and lay it on the board: servo targets on straight lines between knots. First guesses, by inverse kinematics, end
centimetres away from where they should. The gradient goes from where the cloth lies at the end through its contact and
friction, and the pull of the cloth on the arm, to the knots: 35 numbers a scene. The edge is let go before a fold is
judged. The board keeps the layers apart: sheets pass through themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import pi
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pullback.control.search.search import Found
from pullback.control.search.shooting import minimize
from pullback.description.load import read
from pullback.description.tree import Pose
from pullback.rigid.state import State, Trajectory
from pullback.rigid.world.actuators import PositionServo
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.robot.model import RobotModel
from pullback.soft import ClothSim, Coupled, CoupledRollout, CoupledState, Fabric, sheet
from pullback.tasks.common.arm import carry, follow
from pullback.tasks.common.knots import knots_at
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_arrays, write_figure, write_replay
from pullback.tasks.pick_and_place import ARM, HAND, HOME, KD, KP, downward

Tensor = torch.Tensor

DT, STEPS, RELEASE, FRAME = 0.01, 140, 60, 4
"""Length of a step [s], steps of folding, of lying free before a fold is judged, and between frames."""
NEAR, FAR, WIDTH, CELLS = 0.35, 0.65, 0.125, (12, 5)
"""Where the cloth begins and ends along x, its width along y [m], and its cells."""
BOARD, BOARD_EDGE, GAP = (0.15, 0.16, 0.02), 0.5, 0.0045
"""Size of the board, where its edge is along x, and its distance from the table [m]."""
TOP = GAP + BOARD[2]
RANGE, STIFFNESS, SLIP = 0.003, 40.0, 5e-3
"""Of contact: range [m], stiffness [N/m], and speed [m/s] up to which friction creeps."""
LIES = 0.0025
"""How far above what it lies on a cloth is [m]."""
BAR, BELOW = (0.03, 0.15, 0.03), 0.03
"""Size [m] of the bar in the hand; how far below its middle it holds the edge."""
FABRIC = {"youngs": 60.0, "poisson": 0.3, "damping": 0.02, "bending_damping": 0.05}
BENDING, DENSITY = (1e-5, 4e-5), (0.15, 0.3)
"""Of the cloths, from the softest and lightest to the stiffest and heaviest: [N·m], [kg/m²]."""
MOMENTS = (0.0, 0.18, 0.36, 0.54, 0.72, 0.9, 1.0)
"""Of the knots, as fractions of the time; the last two are the same."""
LIFT = 0.12
"""How high above a straight line [m] the first guess, half an ellipse, is in its middle."""
WRONG = (0.05, 0.03)
"""How far [m] a first guess ends from where it should at most, along x and y; it ends 2 cm too high as well."""
ARM_UNIT = 0.05
"""Radians in one unit of what is sought."""
GOAL = 0.005
"""Mean distance [m] from where they should be of the vertices of a cloth that counts as folded."""
FIRST_STEP = 0.3


@dataclass
class Options:
    """What to fold, and how long to search."""

    scenes: int = 5
    """Cloths and first guesses, one for each seed, searched side by side."""
    iterations: int = 16
    """Iterations of the optimiser (L-BFGS: a cloth is stiff in its plane, and Adam creeps along that valley)."""
    seed: int = 0
    """Seed of the first scene; the others have those that follow."""
    quick: bool = False
    """One scene and a few iterations, to see that it runs."""
    out: Path = Path("out")
    """Folder for the motion, the picture and the replay."""


class Verdict(NamedTuple):
    """How far from where they should be the vertices of the free half are at the end, (B,) each [m]."""

    mean: Tensor
    largest: Tensor

    @property
    def folded(self) -> Tensor:
        """Whether the cloth was folded (B,); NaN: no."""
        return self.mean < GOAL


class Fold(NamedTuple):
    """The motion of the arm with the cloth, and what came after the cloth was let go."""

    held: CoupledRollout
    free: CoupledRollout

    @property
    def x(self) -> Tensor:
        """Vertices at all frames (S, B, n, 3)."""
        return torch.cat([self.held.soft.x[:-1], self.free.soft.x])

    @property
    def times(self) -> np.ndarray:
        """Times of the frames [s]."""
        return np.concatenate([self.held.times[:-1], self.held.times[-1] + self.free.times])

    @property
    def trajectory(self) -> Trajectory:
        """The motion of the arm."""
        held, free = self.held.trajectory, self.free.trajectory
        q, qd = torch.cat([held.q[:-1], free.q]), torch.cat([held.qd[:-1], free.qd])
        return Trajectory(q, qd, held.status, torch.arange(len(q)))


@dataclass
class Folded:
    """What was found: knots (B, 35), the motion, verdicts of first guesses and of results, and the search."""

    knots: Tensor
    motion: Fold
    before: Verdict
    after: Verdict
    found: Found
    files: list[Path] = field(default_factory=list)


def run(options: Options) -> Folded:
    """Search for the knots, print how the cloths lie, and save motion, picture and replay."""
    if options.quick:
        options = replace(options, scenes=1, iterations=3)
    check_at_least(options, scenes=1, iterations=1)
    console = Console()
    with console.status("compiling the kernels, once on a machine"):
        task = Task(range(options.seed, options.seed + options.scenes))
        first = task.first_knots()
        before = task.judge(task.watch(first))
    found = minimize(
        task.loss, first, method="lbfgs", iterations=options.iterations, learning_rate=FIRST_STEP, label="gradient",
        console=console,
    )  # fmt: skip
    motion = task.watch(found.each)
    folded = Folded(found.each, motion, before, task.judge(motion), found)
    report(folded, task, console)
    save(folded, task, options, console)
    return folded


# -- the scene -----------------------------------------------------------------------------------------------------


def gripper() -> RobotModel:
    """Return the Panda with a bar in its hand, which alone touches."""
    tree = read("panda_gripper")
    for link in tree.links:
        if link.name == "panda_hand":
            bar = replace(link.shapes[-1], type="box", size=BAR, origin=Pose(translation=np.array([0.0, 0.0, 0.1034])))
            link.shapes = [bar]
    return load(tree)


def build(hold: bool, dtype: torch.dtype = torch.float64) -> Coupled:
    """Return the arm, table, board and cloth, whose free edge the hand holds or not."""
    world = World()
    servos = {f"panda_joint{k}": PositionServo(kp, kd) for k, (kp, kd) in enumerate(zip(KP, KD), start=1)}
    servos["panda_finger_joint1"] = PositionServo(kp=2000.0, kd=60.0, limit=40.0)
    arm = {"q": torch.tensor(HOME), "actuators": servos, "collision_links": ["panda_hand"], "friction": 0.5}
    world.add(gripper(), name=ARM, **arm)
    world.add_plane("table", friction=0.6)
    middle = (BOARD_EDGE - 0.5 * BOARD[0], 0.0, GAP + 0.5 * BOARD[2])
    world.add_box("board", size=BOARD, static=True, position=middle, friction=0.4)
    pins = [CELLS[0] * (CELLS[1] + 1) + j for j in range(CELLS[1] + 1)] if hold else []
    material = Fabric(bending=BENDING[0], density=DENSITY[0], **FABRIC)
    corner, along, across = (NEAR, -0.5 * WIDTH, LIES), (FAR - NEAR, 0, 0), (0, WIDTH, 0)
    piece = sheet(corner, along, across, cells=CELLS, name="cloth", material=material, pins=pins)
    contact: dict[str, Any] = {"contact_range": RANGE, "contact_stiffness": STIFFNESS, "slip_speed": SLIP}
    cloth = ClothSim([piece], dt=DT, gravity=(0.0, 0.0, -9.81), drag=0.5, dtype=dtype, **contact)
    held = {f"{ARM}/panda_hand": range(len(pins))} if hold else None
    return Coupled(cloth, world.compile(dt=DT, damping="implicit", dtype=dtype), hold=held)


class Task:
    """Scenes, one a seed, with the motion and loss of knots (B, 35): joint targets in ARM_UNIT, by knot and joint."""

    def __init__(self, seeds: range, *, steps: int = STEPS) -> None:
        self.seeds, self.steps, self.scenes = seeds, steps, len(seeds)
        self.coupled, self.let_go = build(True), build(False)
        assert isinstance(self.coupled.soft, ClothSim)
        self.triangles = self.coupled.soft.triangles
        self.robot = self.coupled.rigid.world.robots[ARM].to(dtype=torch.float64)
        self.between = knots_at(steps, MOMENTS)
        numbers = torch.stack([self._random(seed, 2) for seed in seeds]).T[..., None]
        low, high = (torch.tensor([BENDING[k], DENSITY[k]], dtype=torch.float64)[:, None, None] for k in (0, 1))
        bending, density = low + (high - low) * numbers
        self.fabric = Fabric(bending=bending, density=density, **FABRIC)
        x = self.coupled.soft.state().x
        beyond = x[:, 0] - BOARD_EDGE
        self.free_half = beyond > 1e-6
        # up the board's side, and then along its top
        up = torch.stack([torch.full_like(beyond, BOARD_EDGE + LIES), x[:, 1], beyond], -1)
        back = torch.stack([BOARD_EDGE - (beyond - TOP), x[:, 1], torch.full_like(beyond, TOP + LIES)], -1)
        self.goal = torch.where((beyond < TOP)[:, None], up, back)

    @staticmethod
    def _random(seed: int, *size: int) -> Tensor:
        return torch.rand(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(1000 + seed))

    def first_knots(self) -> Tensor:
        """Return knots (B, 35) by inverse kinematics and the arm's weight, along ways that end in the wrong place."""
        begin = torch.tensor([FAR, 0.0, LIES + BELOW], dtype=torch.float64)
        end = self.goal[-1] * torch.tensor([1.0, 0.0, 1.0]) + torch.tensor([0.0, 0.0, BELOW])
        angle = torch.linspace(0.0, pi, len(MOMENTS) - 1, dtype=torch.float64)
        share = 0.5 * (1.0 - angle.cos())[:, None]
        ways = begin + share * (end - begin)
        ways[:, 2] += LIFT * angle.sin()
        noise = torch.stack([2.0 * self._random(100 + seed, 2) - 1.0 for seed in self.seeds])
        wrong = torch.cat([noise * torch.tensor(WRONG), torch.full((self.scenes, 1), 0.02)], 1)
        places = (ways + share * wrong[:, None]).unbind(1)
        home = torch.tensor((*HOME[:-1], 0.0), dtype=torch.float64).expand(self.scenes, -1)
        down = downward(torch.zeros(self.scenes, dtype=torch.float64))
        q = follow(self.robot, HAND, [(place, down) for place in places], home, len(KP))
        self.first_q, targets = q[:, 0], carry(self.robot, q, KP)
        self.first_target = targets[:, :1]
        return (targets[:, 1:] / ARM_UNIT).flatten(1)

    def start(self) -> CoupledState:
        """Return the scenes at rest, the bar at the edge of the cloth."""
        state = self.coupled.state(self.scenes)
        q = state.rigid.q.clone()
        q[:, :8], q[:, 8] = self.first_q, 0.0
        return CoupledState(state.soft, State(q, state.rigid.qd, state.rigid.impulses))

    def controls(self, knots: Tensor) -> Tensor:
        """Return servo targets (T, B, 8)."""
        arm = ARM_UNIT * knots.unflatten(1, (-1, 7))
        targets = torch.cat([self.first_target, arm, arm[:, -1:]], 1)
        targets = torch.cat([targets, torch.zeros_like(targets[..., :1])], -1)
        return torch.einsum("tk,bkj->tbj", self.between, targets)

    def rollout(self, knots: Tensor, frames: int | None = None) -> CoupledRollout:
        """Return the motion up to the moment at which the edge is let go; NaN where it cannot be computed."""
        options: dict[str, Any] = {"materials": {"cloth": self.fabric}, "frames": frames, "check": False}
        return self.coupled.rollout(self.start(), self.controls(knots), **options)

    def off(self, x: Tensor) -> Tensor:
        """Return the distances (B, m) [m] of the free half's vertices from where they should be."""
        return (x - self.goal)[:, self.free_half].norm(dim=-1)

    def loss(self, knots: Tensor) -> Tensor:
        """Return the mean square [cm²] of `off` at the end, and of speeds [dm/s] (B,)."""
        end = self.rollout(knots).final.soft
        speed = end.v[:, self.free_half].square().sum(-1)
        return 1e4 * self.off(end.x).square().mean(1) + 10.0 * speed.mean(1)

    @torch.no_grad()
    def watch(self, knots: Tensor) -> Fold:
        """Return the motion, and what the cloth does when it is let go."""
        held = self.rollout(knots, FRAME)
        last = self.controls(knots)[-1:].expand(RELEASE, -1, -1)
        alive = ~held.failed[:, None]
        parts = [torch.where(alive[..., None], y, z) for y, z in zip(vars(held.final.soft).values(),
                 vars(self.let_go.state(self.scenes).soft).values())]  # fmt: skip
        state = held.final.rigid
        rigid = State(torch.where(alive, state.q, self.start().rigid.q), torch.where(alive, state.qd, 0.0 * state.qd))
        begin = CoupledState(type(held.final.soft)(*parts), rigid)
        options: dict[str, Any] = {"materials": {"cloth": self.fabric}, "frames": FRAME, "check": False}
        return Fold(held, self.let_go.rollout(begin, last, **options))

    def judge(self, fold: Fold) -> Verdict:
        """Return how scenes ended, NaN for those that could not be computed."""
        off = self.off(fold.free.final.soft.x)
        off = torch.where(fold.held.failed[:, None], torch.full_like(off, torch.nan), off)
        return Verdict(off.mean(1), off.amax(1))


# -- the report ----------------------------------------------------------------------------------------------------


def report(folded: Folded, task: Task, console: Console) -> None:
    """Print for every scene how far off the first guess and the result lie."""
    good = int(folded.after.folded.sum())
    table = Table(title=f"{good} of {task.scenes} cloths folded after {len(folded.found.losses)} iterations")
    for header in ("seed", "bending", "density", "first guess", "found, mean", "largest", ""):
        table.add_column(header, justify="right")
    for k, seed in enumerate(task.seeds):
        bending, density = (float(torch.as_tensor(x)[k]) for x in (task.fabric.bending, task.fabric.density))
        off = (folded.before.mean, folded.after.mean, folded.after.largest)
        table.add_row(
            str(seed), f"{1e6 * bending:.0f} µN·m", f"{1e3 * density:.0f} g/m²", *[f"{1e3 * x[k]:.1f} mm" for x in off],
            "folded" if folded.after.folded[k] else "missed",
        )  # fmt: skip
    console.print(table)


def save(folded: Folded, task: Task, options: Options, console: Console) -> None:
    """Write the motion, picture and replay of the first scene that was folded, or of the first."""
    out, motion, k = options.out, folded.motion, int(folded.after.folded.int().argmax())
    controls = task.controls(folded.knots)
    controls = torch.cat([controls, controls[-1:].expand(RELEASE, -1, -1)])
    x, triangles = motion.x[:, k], task.triangles
    saved = write_arrays(
        out / "fold.npz", q=motion.trajectory.q[:, k], u=controls[:, k], x=x, times=motion.times, triangles=triangles,
        knots=folded.knots, losses=folded.found.losses, off=torch.stack([folded.before.mean, folded.after.mean]),
    )  # fmt: skip
    picture = draw(folded, task, k, out / "fold.png")
    replay = write_replay(
        task.coupled.rigid, motion.trajectory, out / "fold.html", console, controls=controls, title="fold a cloth",
        forces=False, particles=(motion.times, x, triangles), world=k,
    )  # fmt: skip
    folded.files = [path for path in (saved, picture, replay) if path is not None]
    print_files(console, motion=saved, picture=picture, replay=replay)


def draw(folded: Folded, task: Task, scene: int, path: Path) -> Path:
    """Draw a cloth at four moments, its first guess, distances and the search; return the file."""
    from matplotlib.figure import Figure

    motion, triangles = folded.motion, task.triangles
    x = motion.x[:, scene]
    figure = Figure(figsize=(13.0, 7.0), layout="constrained")
    for panel, k in enumerate(np.linspace(0, len(x) - 1, 4).round().astype(int)):
        axes = figure.add_subplot(2, 4, panel + 1, projection="3d")
        _draw_board(axes)
        axes.plot_trisurf(*x[k].T.numpy(), triangles=triangles, color="#7088c0", edgecolor="#30405c", linewidth=0.3)
        axes.set(title=f"{motion.times[k]:.2f} s", xlim=(0.33, 0.67), ylim=(-0.1, 0.1), zlim=(0.0, 0.16))
        axes.set_box_aspect((0.34, 0.2, 0.16))
        axes.view_init(elev=22, azim=-65)
    side = figure.add_subplot(2, 2, 3)
    rows = np.arange(CELLS[0] + 1) * (CELLS[1] + 1) + CELLS[1] // 2
    for k in range(task.scenes):
        end = motion.x[-1, k, rows]
        side.plot(1e3 * end[:, 0], 1e3 * end[:, 2], ".-", color=f"C{k}", label=f"seed {task.seeds[k]}")
    goal = task.goal[rows][task.free_half[rows]]
    side.plot(1e3 * goal[:, 0], 1e3 * goal[:, 2], "k:", label="goal")
    low, high = 1e3 * GAP, 1e3 * TOP
    left, right = 1e3 * (BOARD_EDGE - BOARD[0]), 1e3 * BOARD_EDGE
    side.fill([left, right, right, left], [low, low, high, high], color="0.85")
    side.set(title="middle of the cloths, let go", xlabel="x [mm]", ylabel="z [mm]")
    side.legend(fontsize=8)
    losses = figure.add_subplot(2, 2, 4)
    for k in range(task.scenes):
        losses.semilogy(folded.found.losses[:, k], color=f"C{k}")
    losses.set(title="loss [cm²]", xlabel="iteration")
    for panel in (side, losses):
        panel.grid(alpha=0.3)
    return write_figure(figure, path)


def _draw_board(axes: Any) -> None:
    """Draw the board's edges."""
    xs, ys, zs = (BOARD_EDGE - BOARD[0], BOARD_EDGE), (-0.5 * BOARD[1], 0.5 * BOARD[1]), (GAP, TOP)
    for z in zs:
        axes.plot([xs[0], xs[1], xs[1], xs[0], xs[0]], [ys[0], ys[0], ys[1], ys[1], ys[0]], [z] * 5, color="0.6")
