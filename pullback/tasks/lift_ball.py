"""Lift a soft ball with the Panda without crushing it, by gradients through grasp and ball.

The hand stands about a ball of soft rubber, whose place and stiffness differ from scene to scene, and is told to close,
to rise and to hold still: servo targets on straight lines between knots. As a first guess inverse kinematics gives the
arm's, for a ball that stands in its place, and fingers close until they just touch, so that the ball stays where it is.
The gradient goes from the ball's way and its strain through material points, contact with friction, and the arm, to the
knots of the arm and to the width at which the fingers hold: 43 numbers a scene. How a ball falls that slips says little
about how to hold it; so the hand learns to grasp first, about the ball's middle and firmly enough, tries to lift with a
few grips about that one, and improves the best.
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
from pullback.rigid.state import State
from pullback.rigid.world.actuators import PositionServo
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.robot.model import RobotModel
from pullback.soft import Coupled, CoupledRollout, CoupledState, Domain, Elastic, SoftSim, SoftState, ball
from pullback.tasks.common.arm import carry, follow
from pullback.tasks.common.descent import descend
from pullback.tasks.common.knots import knots_at
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_arrays, write_figure, write_replay
from pullback.tasks.pick_and_place import ARM, FINGERS, HAND, HOME, KD, KP, downward

Tensor = torch.Tensor

DT, SOFT_DT, CELL = 1e-3, 5e-4, 0.01
STEPS, FRAME = 600, 50
SEEN, HOLD = 100, 300
"""Steps of holding still that the search sees, and those before a ball is judged."""
RADIUS, DENSITY, POISSON, VISCOSITY = 0.03, 1000.0, 0.3, 2.0
STIFFNESS = (1.5e4, 4e4)
"""Young's modulus [Pa] of balls, from the softest to the stiffest."""
PLACE = (0.5, 0.0)
NEARBY = 0.01
"""How far [m] from its place a ball stands at most, along x and y."""
PAD = (0.04, 0.016, 0.04)
"""Size [m] of the pads on the fingers; their own tips are less than two cells wide."""
ROTOR = 0.1
"""Inertia [kg] of the drive that each finger feels; the finger alone is lighter than what it pushes."""
FRICTION, FLOOR = 0.8, 0.5
"""Of the fingers, and of the table."""
MOMENTS = (0.0, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1.0)
"""Of the knots, as fractions of the time; at the second one the fingers are closed, at the last one the hand is up."""
CLOSING = 1 / 6
"""When they begin to close: a hand that still moves aside would drag the ball along."""
HEIGHTS = (0.0, 0.0, 0.012, 0.04, 0.068, 0.08)
RISE = 0.08
"""How high [m] the ball should be lifted."""
OPEN, TOUCHING = 0.04, (0.027, 0.0285)
"""Finger's distance [m] from the middle at the start, and where they close to in a first guess."""
ARM_UNIT, FINGER_UNIT = 0.05, 0.2
"""Radians of the arm and metres of the grip in one unit of what is sought: the search takes steps of a hundredth."""
GRASP, PRESSED = 150, 40
"""Steps after closing in which the hand learns to grasp, and the last of them, in which its force counts."""
FIRM = 1.9
"""Force of a finger, over that with which friction just carries the ball; a soft one is pressed out by much more."""
NEEDED = 9.81 * DENSITY * 4.0 / 3.0 * pi * RADIUS**3 / (2.0 * FRICTION)
"""The latter [N]."""
TRIED = (-0.002, -0.001, 0.0, 0.001, 0.002)
"""How much wider [m] than that grasp the hand tries to lift with."""
SPARED = 0.15
"""Green's strain that costs nothing."""
CRUSHED = 0.25
"""Compression of the particles of a ball that counts as whole; fingers told to close all the way pass 0.3."""
HELD = 0.8
"""Share of the rise that counts as lifted."""
STEADY = 0.05
"""Speed [m/s] at the end of a ball that is held."""
GRASP_RATE, LEARNING_RATE = 0.01, 0.003
"""Of the search for a grasp, and of that for the whole motion."""


@dataclass
class Options:
    """What to lift, and how long to search."""

    scenes: int = 5
    """Balls of random place and stiffness, each with a search of its own, side by side."""
    grasps: int = 10
    """Iterations of the optimiser (Adam) in which the hand learns to grasp: how far aside, and how firmly."""
    epochs: int = 4
    """Iterations in which it learns to lift."""
    seed: int = 0
    """Seed of the scenes and of first guesses."""
    quick: bool = False
    """Two iterations for one ball, to see that everything works."""
    out: Path = Path("out")
    """Folder for the motion, the picture and the replay."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


class Verdict(NamedTuple):
    """How scenes ended, (B,) each."""

    rise: Tensor
    """Of the ball's centre [m]."""
    speed: Tensor
    """Of it at the end [m/s]."""
    compression: Tensor
    """What a twentieth of the particles exceed at some time: 1 - their smallest stretch."""
    force: Tensor
    """The largest force on a finger [N], a mean over FRAME steps."""

    @property
    def shown(self) -> int:
        """The first scene whose ball was lifted, or the first."""
        return int(self.lifted.int().argmax())

    @property
    def lifted(self) -> Tensor:
        """Whether the ball was lifted, is held, and was not crushed (B,)."""
        return (self.rise > HELD * RISE) & (self.speed < STEADY) & (self.compression < CRUSHED)


@dataclass
class Lifted:
    """What was found: knots (B, 43), the motion, verdicts of first guesses and of results, and both searches."""

    knots: Tensor
    motion: CoupledRollout
    before: Verdict
    after: Verdict
    grasped: Found
    found: Found
    files: list[Path] = field(default_factory=list)


def run(options: Options) -> Lifted:
    """Search for the knots, print how the balls fared, and save motion, picture and replay."""
    check_at_least(options, scenes=1, grasps=1, epochs=1)
    if options.quick:
        options = replace(options, scenes=1, grasps=2, epochs=1)
    console = Console()
    with console.status("compiling the kernels, once on a machine"):
        task = Task(options.scenes, options.seed, device=find_device(options.device))
        first = task.first_knots()
        before = task.judge(task.watch(first))
    knots = task.grasps(first)
    grasped = descend(
        lambda z: task.grasp(knots(z)), torch.zeros_like(first[:, :2]), options.grasps, GRASP_RATE, console
    )
    found = descend(task.loss, task.with_best_grip(knots(grasped.each)), options.epochs, LEARNING_RATE, console)
    motion = task.watch(found.each)
    lifted = Lifted(found.each, motion, before, task.judge(motion), grasped, found)
    report(lifted, task, console)
    save(lifted, task, options, console)
    return lifted


# -- the scene -----------------------------------------------------------------------------------------------------


def gripper() -> RobotModel:
    """Return the Panda with pads on its fingers, which alone touch."""
    tree = read("panda_gripper")
    for link in tree.links:
        if link.name in FINGERS:
            side = 1.0 if link.name == FINGERS[0] else -1.0
            middle = np.array([0.0, 0.5 * side * PAD[1], 0.045])
            link.shapes = [
                replace(link.shapes[-1], size=PAD, origin=replace(link.shapes[-1].origin, translation=middle))
            ]
    for joint in tree.joints:
        if joint.child in FINGERS:
            joint.armature = ROTOR
    return load(tree)


def build(dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Coupled:
    """Return the arm and a ball on a table."""
    world = World()
    servos = {f"panda_joint{k}": PositionServo(kp, kd) for k, (kp, kd) in enumerate(zip(KP, KD), start=1)}
    servos["panda_finger_joint1"] = PositionServo(kp=2000.0, kd=60.0, limit=40.0)
    world.add(
        gripper(), name=ARM, q=torch.tensor(HOME), actuators=servos, collision_links=list(FINGERS), friction=FRICTION
    )  # fmt: skip
    rubber = Elastic(youngs=STIFFNESS[1], poisson=POISSON, density=DENSITY, viscosity=VISCOSITY)
    body = ball((*PLACE, RADIUS), RADIUS, spacing=CELL / 2.0, name="ball", material=rubber)
    x, y = PLACE
    domain = Domain(
        (x - 0.08, y - 0.08, 0.0), (x + 0.08, y + 0.08, 0.22), CELL, sides={"z-": "separate"}, friction=FLOOR
    )  # fmt: skip
    settings = {"dtype": dtype, "device": device}
    soft = SoftSim(domain, [body], dt=SOFT_DT, gravity=(0.0, 0.0, -9.81), **settings)
    return Coupled(soft, world.compile(dt=DT, damping="implicit", **settings))


class Task:
    """Scenes, with the motion and loss of knots (B, 43): the arm's in ARM_UNIT, by knot and joint, then the grip."""

    def __init__(self, scenes: int, seed: int, *, steps: int = STEPS, **settings: Any) -> None:
        self.coupled, self.scenes, self.steps = build(**settings), scenes, steps
        sim = self.coupled.rigid
        self.robot = sim.world.robots[ARM].to(dtype=torch.float64)
        generator = torch.Generator().manual_seed(seed)

        def between(low: float, high: float, *size: int) -> Tensor:
            return low + (high - low) * torch.rand(scenes, *size, dtype=torch.float64, generator=generator)

        self.offset = between(-NEARBY, NEARBY, 2)
        self.youngs = between(*STIFFNESS, 1).to(sim.device, sim.dtype)
        self.touching = between(*TOUCHING)
        self.between = knots_at(steps, MOMENTS).to(sim.device, sim.dtype)
        self.closed = knots_at(steps, (0.0, CLOSING, MOMENTS[1], 1.0))[:, 2:].sum(1).to(self.between)
        self.frames = [*range(0, steps + SEEN, FRAME), steps + SEEN]
        rows = [min(step, steps - 1) for step in self.frames]
        way = (self.between[rows] @ torch.tensor(HEIGHTS).to(self.between))[:, None]
        self.way = torch.stack([torch.zeros_like(way), torch.zeros_like(way), way], -1)

    def first_knots(self) -> Tensor:
        """Return knots (B, 43): the arm's by inverse kinematics and its weight, fingers that just touch."""
        self.first_q, arm = self._carried(0.0)
        return torch.cat([arm, self.touching[:, None].to(arm) / FINGER_UNIT], 1)

    def _carried(self, aside: float) -> tuple[Tensor, Tensor]:
        """Return coordinates (B, 8) at the start and the arm's knots (B, 42), moved aside along x [m]."""
        place = torch.tensor([PLACE[0] + aside, PLACE[1], RADIUS], dtype=torch.float64).expand(self.scenes, 3)
        home = torch.tensor(HOME, dtype=torch.float64).expand(self.scenes, -1)
        down = downward(torch.zeros(self.scenes, dtype=torch.float64))
        way = [(place + torch.tensor([0.0, 0.0, height]), down) for height in HEIGHTS]
        q = follow(self.robot, HAND, way, home, len(KP))
        return q[:, 0], (carry(self.robot, q, KP) / ARM_UNIT).flatten(1).to(self.between)

    def grasps(self, first: Tensor) -> Callable[[Tensor], Tensor]:
        """Return knots as a function of how far the hand is moved aside and how much opened, (B, 2) in FINGER_UNIT."""
        sideways = (self._carried(NEARBY)[1] - first[:, :-1]) * (FINGER_UNIT / NEARBY)
        return lambda z: first + torch.cat([z[:, :1] * sideways, z[:, 1:]], 1)

    def start(self) -> CoupledState:
        """Return the scenes at rest, the hand open about the ball."""
        state = self.coupled.state(self.scenes)
        q = state.rigid.q.clone()
        q[:, :8], q[:, 8] = self.first_q.to(q), OPEN
        offset = torch.nn.functional.pad(self.offset, (0, 1)).to(q)
        rigid = State(q, state.rigid.qd, state.rigid.impulses)
        return CoupledState(state.soft.replace(x=state.soft.x + offset[:, None]), rigid)

    def controls(self, knots: Tensor) -> Tensor:
        """Return servo targets (T, B, 8)."""
        arm = ARM_UNIT * knots[:, :-1].unflatten(1, (-1, 7))
        width = OPEN + self.closed[:, None] * (FINGER_UNIT * knots[:, -1] - OPEN)
        return torch.cat([torch.einsum("tk,bkj->tbj", self.between, arm), width[..., None]], -1)

    def rollout(self, knots: Tensor, frames: list[int], steps: int, hold: int = 0) -> CoupledRollout:
        """Return the first steps of the motion and some of holding still.

        A world in which a particle is crushed beyond what can be computed is NaN.
        """
        rubber = Elastic(youngs=self.youngs, poisson=POISSON, density=DENSITY, viscosity=VISCOSITY)
        controls = self.controls(knots.to(self.between))
        controls = torch.cat([controls[:steps], controls[steps - 1].expand(hold, -1, -1)])
        return self.coupled.rollout(self.start(), controls, materials={"ball": rubber}, frames=frames, check=False)

    def grasp(self, knots: Tensor) -> Tensor:
        """Return how far [cm²] pads are from where they should hold the ball, and how far off their force is (B,)."""
        closed = round(MOMENTS[1] * self.steps)
        run = self.rollout(knots, [closed + GRASP], closed, GRASP)
        pads = self.coupled.motion.motion(self.coupled.motion.parameters(), run.q[-1], run.qd[-1])[0]
        # fingers that close push the ball to the middle between them, along y, by themselves
        apart = (pads.mean(1) - run.soft.x[-1].mean(1))[:, 0]
        force = run.wrenches[-PRESSED:, ..., 4].abs().mean(0)
        return 1e4 * apart.square() + (force / (FIRM * NEEDED) - 1.0).square().mean(-1)

    def loss(self, knots: Tensor) -> Tensor:
        """Return how far balls are from where they should be, their final speed, and strain that is not spared (B,)."""
        run = self.rollout(knots, self.frames, self.steps, SEEN)
        x, v = run.soft.x.mean(2), run.soft.v.mean(2)
        apart = (x - x[0].detach() - self.way).square().sum(-1)
        assert isinstance(run.soft, SoftState)
        F = run.soft.F
        strain = 0.5 * (F.mT @ F - torch.eye(3).to(F))
        excess = (strain.square().sum((-1, -2)) + 1e-12).sqrt() - SPARED
        return (
            100.0 * (apart.mean(0) + apart[-1])
            + v[-1].square().sum(-1)
            + 20.0 * excess.clamp(min=0.0).square().mean((0, 2))
        )

    @torch.no_grad()
    def with_best_grip(self, knots: Tensor) -> Tensor:
        """Return knots with the best of a few grips about theirs: near slipping the gradient says little."""
        tries = knots.expand(len(TRIED), -1, -1).clone()
        tries[..., -1] += torch.tensor(TRIED).to(knots)[:, None] / FINGER_UNIT
        losses = torch.stack([self.loss(each) for each in tries]).nan_to_num(torch.inf)
        return tries[losses.argmin(0), torch.arange(len(knots))]

    @torch.no_grad()
    def watch(self, knots: Tensor) -> CoupledRollout:
        """Return the motion with more frames, and a while of holding still at the end."""
        return self.rollout(knots, list(range(0, self.steps + HOLD + 1, 20)), self.steps, HOLD)

    def judge(self, run: CoupledRollout) -> Verdict:
        """Return how scenes ended."""
        x, v = run.soft.x.mean(2), run.soft.v.mean(2)
        squeezed = torch.quantile(squeeze(run), 0.95, dim=2).amax(0)
        force = (
            run.wrenches[: len(run.wrenches) // FRAME * FRAME, ..., 3:].unflatten(0, (-1, FRAME)).mean(1).norm(dim=-1)
        )
        return Verdict(x[-1, :, 2] - x[0, :, 2], v[-1].norm(dim=-1), squeezed, force.amax((0, 2)))


def squeeze(run: CoupledRollout) -> Tensor:
    """Return the compression of particles (S, B, n)."""
    assert isinstance(run.soft, SoftState)
    return 1.0 - torch.linalg.svdvals(run.soft.F).amin(-1)


# -- the report ----------------------------------------------------------------------------------------------------


def report(lifted: Lifted, task: Task, console: Console) -> None:
    """Print for every scene how the first guess and the result fared."""
    good = int(lifted.after.lifted.sum())
    epochs = len(lifted.grasped.losses) + len(lifted.found.losses)
    table = Table(title=f"{good} of {task.scenes} balls lifted after {epochs} epochs")
    for header in ("scene", "stiffness", "first guess", "lifted", "speed", "compression", "force", ""):
        table.add_column(header, justify="right")
    for k in range(task.scenes):
        rise, speed, compression, force = (x[k].item() for x in lifted.after)
        table.add_row(
            str(k), f"{1e-3 * task.youngs[k].item():.0f} kPa", f"{1e3 * lifted.before.rise[k].item():.0f} mm",
            f"{1e3 * rise:.0f} mm", f"{1e3 * speed:.0f} mm/s", f"{compression:.2f}", f"{force:.1f} N",
            "ok" if lifted.after.lifted[k] else "missed",
        )  # fmt: skip
    console.print(table)


def save(lifted: Lifted, task: Task, options: Options, console: Console) -> None:
    """Write the motion, picture and replay of a scene, of one whose ball was lifted if there is one."""
    out, run, k = options.out, lifted.motion, lifted.after.shown
    controls = task.controls(lifted.knots)
    saved = write_arrays(
        out / "lift_ball.npz", q=run.q[:, k], qd=run.qd[:, k], u=controls[:, k], x=run.soft.x[:, k], times=run.times,
        wrenches=run.wrenches[:, k], knots=lifted.knots, losses=lifted.found.losses,
        grasp=lifted.grasped.losses,
    )  # fmt: skip
    picture = draw(lifted, task, out / "lift_ball.png")
    sim = task.coupled.rigid
    replay = write_replay(
        sim, run.trajectory, out / "lift_ball.html", console, controls=controls, title="lift a soft ball", forces=False,
        particles=(run.times, run.soft.x[:, k]), world=k,
    )  # fmt: skip
    lifted.files = [path for path in (saved, picture, replay) if path is not None]
    print_files(console, trajectory=saved, picture=picture, replay=replay)


def draw(lifted: Lifted, task: Task, path: Path) -> Path:
    """Draw a ball between the fingers at four moments, heights, grip forces and the search; return the file."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    run = lifted.motion
    figure = Figure(figsize=(12.0, 8.0), layout="constrained")
    shots = np.linspace(0, len(run.frames) - 1, 4).round().astype(int)
    names = [f"shot {k}" for k in range(4)]
    mosaic: list[Any] = [names, ["height", "height", "force", "loss"]]
    panels = figure.subplot_mosaic(mosaic, height_ratios=[1.0, 1.2])
    shown = lifted.after.shown
    given, x = task.coupled.motion.parameters(), run.soft.x[:, shown].cpu()
    colors = squeeze(run)[:, shown].cpu()
    for name, k in zip(names, shots):
        panel, q = panels[name], run.q[int(run.frames[k]), shown : shown + 1]
        dots = panel.scatter(x[k, :, 1], x[k, :, 2], c=colors[k], s=6, vmin=0.0, vmax=CRUSHED, cmap="viridis")
        for origin in task.coupled.motion.motion(given, q, torch.zeros_like(run.qd[0, :1]))[0][0].tolist():
            corner = origin[1] - PAD[1] / 2, origin[2] - PAD[2] / 2
            panel.add_patch(Rectangle(corner, PAD[1], PAD[2], color="0.6"))
        panel.axhline(0.0, color="black", linewidth=1)
        panel.set(title=f"{run.times[k]:.2f} s", xlim=(-0.07, 0.07), ylim=(-0.01, 0.18), aspect="equal", xlabel="y [m]")
    figure.colorbar(dots, ax=panels[names[-1]], label="compression")
    height = (run.soft.x.mean(2)[..., 2] - RADIUS).cpu()
    for k in range(task.scenes):
        label = f"{1e-3 * task.youngs[k].item():.0f} kPa"
        panels["height"].plot(run.times, 1e3 * height[:, k], color=f"C{k}", label=label)
        force = run.wrenches[:, k, :, 3:].norm(dim=-1).mean(-1).cpu()
        smooth = force[: len(force) // 10 * 10].unflatten(0, (-1, 10)).mean(1)
        panels["force"].plot(10.0 * DT * np.arange(len(smooth)), smooth, color=f"C{k}")
        panels["loss"].semilogy(torch.cat([lifted.grasped.losses, lifted.found.losses])[:, k].cpu(), color=f"C{k}")
    panels["height"].axhline(1e3 * RISE, color="black", linestyle=":", linewidth=1)
    panels["height"].set(title="rise of the ball", xlabel="time [s]", ylabel="[mm]")
    panels["height"].legend(fontsize=8)
    panels["force"].set(title="force on a finger", xlabel="time [s]", ylabel="[N]")
    panels["loss"].axvline(len(lifted.grasped.losses) - 0.5, color="black", linestyle=":", linewidth=1)
    panels["loss"].set(title="loss: grasp, then lift", xlabel="epoch")
    for name in ("height", "force", "loss"):
        panels[name].grid(alpha=0.3)
    return write_figure(figure, path)
