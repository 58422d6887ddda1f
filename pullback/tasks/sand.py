"""Teach a leg to pull a robot through sand: gradients through foot and sand.

A body slides along a rail above a bed of dry sand, with friction, and has one leg: a hip that swings and a knee that
lengthens it, each with a servo of limited force. A sum of four sine waves of one frequency and different phases is the
target of each: 10 numbers are sought, so that the body is as far as possible after 1.2 s, two strokes. At the start the
leg moves a little at random above the sand or in it; of a few such movements the one that comes furthest is improved,
as the gradient of a leg in the air says nothing of the sand. What is to be found: to reach into the sand and push, not
so deep that the servos stall, and to come back above it. In a slice of sand as wide as the foot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import pi
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pullback.control.search.search import Found
from pullback.core.device import find_device
from pullback.description.assets.rows import X, Y, box, joint, link
from pullback.description.tree import Tree
from pullback.rigid.world.actuators import PositionServo
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.soft import Coupled, CoupledRollout, Domain, Sand, SoftSim, block
from pullback.tasks.common.descent import descend
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_arrays, write_figure, write_replay

Tensor = torch.Tensor

CELL, DT, STEPS = 0.025, 1.5e-3, 800
BED = (0.9, 0.05, 0.1)
"""Length, width and depth [m] of the sand."""
YOUNGS, POISSON, DENSITY, ANGLE = 1e5, 0.2, 1600.0, 0.6
"""Of the sand: E [Pa] is low, so that steps may be long; friction angle [rad]."""
START, HIP = 0.2, 0.285
"""Where the body starts, and how high the rail is [m]."""
LEG, FOOT = 0.14, (0.05, 0.1, 0.08)
"""Length of the leg to the middle of the foot; the foot, wider than the bed [m]."""
RUBS, DRAG, GRIP = 1.0, 2.0, 0.8
"""Dry friction [N] and damping [N s/m] of the rail, and friction of the foot."""
SWING, REACH = 0.6, 0.06
"""Largest targets of the hip [rad] and of the knee [m], either way."""
BEAT, WAVES, SOFTLY = 1.0 / 0.6, 4, 0.1
"""Frequency of the waves [Hz], how many there are, and the time [s] in which they set in."""
NOISE, TRIES = 0.3, 4
"""Of the numbers at the start, and how many random movements a seed tries."""
FAR, GOAL = 1.0, 0.3
"""The loss is how much the way [m] is short of the first; the second counts as a success."""
LEARNING_RATE = 0.35


@dataclass
class Options:
    """How to learn."""

    seeds: int = 5
    """Seeds, from `seed` on, each with a search of its own, side by side."""
    iterations: int = 6
    """Iterations of the optimiser (Adam)."""
    seed: int = 0
    """The first seed."""
    quick: bool = False
    """Two iterations for one seed, to see that everything works."""
    out: Path = Path("out")
    """Folder for the motion, the picture and the replay."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Strokes:
    """The result: numbers of the waves (B, 10), motions, ways [m] (B,) at first and at last, and the search."""

    waves: Tensor
    motion: CoupledRollout
    before: Tensor
    after: Tensor
    found: Found
    files: list[Path] = field(default_factory=list)


def run(options: Options) -> Strokes:
    """Learn from all seeds, print a table, and save the motion, a picture and a replay."""
    check_at_least(options, seeds=1, iterations=1)
    seeds, iterations = (1, min(2, options.iterations)) if options.quick else (options.seeds, options.iterations)
    console = Console()
    with console.status("compiling the kernels, once on a machine"):
        task = Leg(find_device(options.device))
        first, before = task.first(range(options.seed, options.seed + seeds))
    found = descend(task.loss, first, iterations, LEARNING_RATE, console)
    motion = task.watch(found.each)
    strokes = Strokes(found.each, motion, before, task.way(motion), found)
    report(strokes, task, options.seed, console)
    save(strokes, task, options, console)
    return strokes


# -- the scene -----------------------------------------------------------------------------------------------------


def robot() -> Tree:
    """Return a body on a rail with a leg of two joints."""
    thin = (1e-3, 1e-3, 1e-3)
    links = [
        link("rail"),
        link("body", 1.0, (0.0, 0.0, 0.0), thin, box((0.2, 0.1, 0.06))),
        link("thigh", 0.2, (0.0, 0.0, -0.05), thin),
        link("foot", 0.3, (0.0, 0.0, -LEG), thin, box(FOOT, (0.0, 0.0, -LEG))),
    ]
    joints = [
        joint("along", "prismatic", "rail", "body", axis=X, friction=RUBS, damping=DRAG),
        joint("hip", "revolute", "body", "thigh", axis=Y),
        # the rotor keeps the foot from being lighter than the sand that it pushes
        joint("knee", "prismatic", "thigh", "foot", axis=(0.0, 0.0, -1.0), armature=0.2),
    ]
    return Tree("leg", links, joints, source="leg")


def build(dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Coupled:
    """Return the robot above its bed of sand."""
    world = World()
    servos = {"hip": PositionServo(60.0, 3.0, limit=10.0), "knee": PositionServo(2000.0, 60.0, limit=40.0)}
    world.add(
        load(robot()), name="leg", position=(START, 0.0, HIP), actuators=servos, friction=GRIP, collision_links=["foot"]
    )
    length, width, depth = BED
    dry = Sand(youngs=YOUNGS, poisson=POISSON, density=DENSITY, friction_angle=ANGLE)
    low, high = (0.0, -0.5 * width, 0.0), (length, 0.5 * width, depth)
    bed = block(low, high, spacing=CELL / 2.0, name="sand", material=dry)
    domain = Domain(low, (*high[:2], 0.45), CELL, sides={"z-": "stick"})
    settings = {"dtype": dtype, "device": device}
    soft = SoftSim(domain, [bed], dt=DT, gravity=(0.0, 0.0, -9.81), **settings)
    return Coupled(soft, world.compile(dt=DT, damping="implicit", **settings))


class Leg:
    """The robot, with the motion and loss of its waves (B, 10): amplitudes by joint and phase, then means."""

    def __init__(
        self, device: torch.device | str = "cpu", *, steps: int = STEPS, dtype: torch.dtype = torch.float32
    ) -> None:
        self.coupled, self.steps = build(dtype, device), steps
        time = DT * torch.arange(steps, dtype=torch.float64)
        phases = 2.0 * pi * torch.arange(WAVES) / WAVES
        self.sines = torch.sin(2.0 * pi * BEAT * time[:, None] + phases).to(device, dtype)
        self.onset = (time / SOFTLY).clamp(max=1.0)[:, None, None].to(device, dtype)
        self.most = torch.tensor([SWING, REACH]).to(self.sines)

    def first(self, seeds: range) -> tuple[Tensor, Tensor]:
        """Return waves to begin with (S, 10), the best of TRIES random ones for each seed, and their ways [m] (S,)."""
        draws = [torch.randn(TRIES, 2 * (WAVES + 1), generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        tries = NOISE * torch.stack(draws).to(self.sines)
        with torch.no_grad():
            ways = self.way(self.rollout(tries.flatten(0, 1), [])).view(-1, TRIES).nan_to_num(-torch.inf)
        far, best = ways.max(1)
        return tries[torch.arange(len(tries)), best], far

    def controls(self, waves: Tensor) -> Tensor:
        """Return the targets of hip [rad] and knee [m], (T, B, 2)."""
        amplitudes = waves[:, : 2 * WAVES].unflatten(1, (2, WAVES))
        sums = torch.einsum("tw,bjw->tbj", self.sines, amplitudes) + waves[:, 2 * WAVES :]
        return self.onset * self.most * torch.tanh(sums)

    def rollout(self, waves: Tensor, frames: int | list[int]) -> CoupledRollout:
        """Return the motion; a world in which a particle fails is NaN."""
        state = self.coupled.state(len(waves))
        return self.coupled.rollout(state, self.controls(waves.to(self.sines)), frames=frames, check=False)

    def loss(self, waves: Tensor) -> Tensor:
        """Return by how much [m] the way of the body is short of FAR, (B,)."""
        return FAR - self.way(self.rollout(waves, []))

    def way(self, run: CoupledRollout) -> Tensor:
        """Return how far [m] bodies are at the end (B,)."""
        return run.q[-1, :, 0]

    @torch.no_grad()
    def watch(self, waves: Tensor) -> CoupledRollout:
        """Return the motion with frames of the sand."""
        return self.rollout(waves, 20)

    def feet(self, run: CoupledRollout) -> tuple[Tensor, Tensor]:
        """Return x and z [m] (T+1, B) of the middle of the foot."""
        along, hip, knee = run.q[..., :3].unbind(-1)
        length = LEG + knee
        return START + along - length * hip.sin(), HIP - length * hip.cos()


# -- the report ----------------------------------------------------------------------------------------------------


def report(strokes: Strokes, task: Leg, seed: int, console: Console) -> None:
    """Print how far each seed came."""
    good = int((strokes.after >= GOAL).sum())
    count = len(strokes.after)
    table = Table(title=f"{good} of {count} seeds reach {GOAL:g} m after {len(strokes.found.losses)} iterations")
    for header in ("seed", "first movements", "at the end", f"{GOAL:g} m after", "foot in the sand", ""):
        table.add_column(header, justify="right")
    depth = BED[2] - (task.feet(strokes.motion)[1] - 0.5 * FOOT[2]).amin(0)
    for k in range(count):
        reached = (FAR - strokes.found.losses[:, k] >= GOAL).nonzero()
        table.add_row(
            str(seed + k), f"{strokes.before[k].item():.3f} m", f"{strokes.after[k].item():.3f} m",
            f"{int(reached[0])} iterations" if len(reached) else "", f"{1e3 * depth[k].item():.0f} mm deep",
            "ok" if strokes.after[k] >= GOAL else "missed",
        )  # fmt: skip
    console.print(table)


def save(strokes: Strokes, task: Leg, options: Options, console: Console) -> None:
    """Write motion, picture and replay of the seed that came furthest."""
    out, run, k = options.out, strokes.motion, int(strokes.after.argmax())
    controls = task.controls(strokes.waves)
    saved = write_arrays(
        out / "sand.npz", q=run.q[:, k], qd=run.qd[:, k], u=controls[:, k], x=run.soft.x[:, k], times=run.times,
        wrenches=run.wrenches[:, k], waves=strokes.waves, losses=strokes.found.losses,
    )  # fmt: skip
    picture = draw(strokes, task, k, out / "sand.png")
    replay = write_replay(
        task.coupled.rigid, run.trajectory, out / "sand.html", console, controls=controls, title="a foot in sand",
        forces=False, particles=(run.times, run.soft.x[:, k]), world=k,
    )  # fmt: skip
    strokes.files = [path for path in (saved, picture, replay) if path is not None]
    print_files(console, trajectory=saved, picture=picture, replay=replay)


def draw(strokes: Strokes, task: Leg, k: int, path: Path) -> Path:
    """Draw one robot on its way, the path of its foot, the push of the sand and the search; return the file."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon

    run = strokes.motion
    figure = Figure(figsize=(13.0, 8.5), layout="constrained")
    panels = figure.subplot_mosaic([["way", "foot"], ["way", "force"], ["way", "loss"]], width_ratios=[1.3, 1.0])
    top, x = panels["way"], run.soft.x[:, k].cpu()
    shade = (x[0, :, 2] / BED[2]).numpy()
    at, high = (part[:, k].cpu() for part in task.feet(run))
    corners = 0.5 * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * [FOOT[0], FOOT[2]]
    for row, shot in enumerate(np.linspace(0, len(x) - 1, 5).round().astype(int)):
        ground, step = -0.42 * row, int(run.frames[shot])
        along, hip = run.q[step, k, :2].tolist()
        turn = np.array([[np.cos(hip), np.sin(hip)], [-np.sin(hip), np.cos(hip)]])
        middle = np.array([float(at[step]), ground + float(high[step])])
        top.scatter(x[shot, :, 0], ground + x[shot, :, 2], c=shade, cmap="copper", s=3, linewidths=0)
        top.plot([START + along, middle[0]], [ground + HIP, middle[1]], color="0.3", linewidth=2)
        top.add_patch(Polygon(corners @ turn.T + middle, color="#4060a0"))
        body = np.array([[-0.1, -0.03], [0.1, -0.03], [0.1, 0.03], [-0.1, 0.03]])
        top.add_patch(Polygon(body + np.array([START + along, ground + HIP]), color="#a04040"))
        top.text(0.98, ground + 0.28, f"{run.times[shot]:.2f} s", transform=top.get_yaxis_transform(), ha="right")
    top.set(title="on its way", xlabel="x [m]", yticks=[], aspect="equal", xlim=(0.0, BED[0]))
    panels["foot"].plot(at - START - run.q[:, k, 0].cpu(), high - 0.5 * FOOT[2], color="#4060a0")
    panels["foot"].axhline(BED[2], color="#b08040", label="surface of the sand")
    panels["foot"].set(title="path of the sole, seen from the body", xlabel="x [m]", ylabel="z [m]")
    panels["foot"].legend(fontsize=8)
    force = run.wrenches[: len(run.wrenches) // 20 * 20, k, 0, 3:].unflatten(0, (-1, 20)).mean(1).cpu()
    time = 20 * DT * (0.5 + np.arange(len(force)))
    panels["force"].plot(time, force[:, 0], label="forward")
    panels["force"].plot(time, force[:, 2], label="up")
    panels["force"].set(title="force of the sand on the foot [N]", xlabel="time [s]")
    panels["force"].legend(fontsize=8)
    panels["loss"].plot(FAR - strokes.found.losses.cpu())
    panels["loss"].axhline(GOAL, color="black", linestyle=":", linewidth=1)
    panels["loss"].set(title="way of each seed [m]", xlabel="iteration")
    for name in ("foot", "force", "loss"):
        panels[name].grid(alpha=0.3)
    return write_figure(figure, path)
