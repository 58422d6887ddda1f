"""Swing a two-link club so that the ball ends in the hole: gradients compared with CMA-ES.

The club is a double pendulum that starts level and at rest; the ball lies on a tee. After one second the ball, which
comes down by then, must be at the mouth of a hole 2.9 m away. The variables are two torques in each of 1,000
steps; the loss is the squared distance at the end, the gradient method L-BFGS, of which every trial counts.

Contact is rigid, with a restitution of 0.5, and steps are split at the hit, `compile(impacts="split")`. They must be:
in a step that is not, the direction of the hit is that of the club at the beginning of the step, the gradient is the
slope between jumps from step to step, and L-BFGS stalls 0.3 m from the hole, however small the step is
(docs/control_shooting.md).

`--variant released` takes the numbers of the experiment in the code of Qiao et al. (ICML 2021): rigid contact with
restitution 0.5, the ball with a rotational inertia of 1 kg·m² and 25 mm above the tee, friction 2, gravity of 9.8 m/s²,
torques that start as noise of 1 N·m, Adam with 0.1 and the root mean square of the miss as loss. Different here:
contact is solved by our engine, and the tee touches the ball only, since it would stop the club.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from pullback.core.device import find_device
from pullback.description.assets.rows import box, sphere
from pullback.description.load import read
from pullback.description.tree import Link, Tree
from pullback.rigid.sim import Sim
from pullback.rigid.state import Trajectory
from pullback.rigid.world.integrators import Impacts
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.tasks.common import comparison as shared
from pullback.tasks.common.comparison import Comparison, Released, compare_torque_searches, draw_curves, report
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_figure, write_motion, write_replay

Tensor = torch.Tensor

DT, STEPS = 1e-3, 1000
RADIUS, MASS = 0.025, 0.5
TEE, HALF_TEE = (0.0, -0.1, -0.925), 0.025
HOLE = (0.0, -3.0, -1.0)
HOLE_RADIUS = 0.054
"""That of a golf hole [m]."""
GRAVITY = 9.81
MOST_TORQUE = 20.0
"""Torque limit of the joints [N·m]; the links weigh 3 kg and are 1 m long."""
NEAR = 0.01
"""A miss [m] that counts as a hit."""
RELEASED_SEARCH = Released(noise=1.0, learning_rate=0.1)
CLUB, GROUND, BALL = 1, 4, 2
"""Groups of shapes: the ball touches club and tee, which do not touch each other."""


@dataclass
class Options(shared.Options):
    """How to play."""

    iterations: int = 50
    """Iterations of the gradient method: rollouts with their backward pass."""
    cma_iterations: int = 60
    """Iterations of CMA-ES, each a population of rollouts; 0 leaves it out. The comparison of the paper has 1,500."""


@dataclass
class Game:
    """The result: torques (T, 2) in the units of the search, the motion, its miss [m], both searches."""

    torques: Tensor
    motion: Trajectory
    miss: float
    comparison: Comparison
    picture: Path
    replay: Path | None

    @property
    def holed(self) -> bool:
        """Whether the whole ball is within the mouth of the hole at the end, and on its way down."""
        aside = (self.motion.q[-1, 0, 2:4] - torch.tensor(HOLE[:2]).to(self.motion.q)).norm().item()
        level = abs(self.motion.q[-1, 0, 4].item() - HOLE[2])
        return aside < HOLE_RADIUS - RADIUS and level < RADIUS and falling(self.motion)


def falling(motion: Trajectory) -> bool:
    """Return whether the ball is falling at the end."""
    return bool(motion.q[-1, 0, 4] < motion.q[-2, 0, 4])


def run(options: Options) -> Game:
    """Optimise the swing by gradients and by CMA-ES, print both, and save the motion, a picture and a replay."""
    check_at_least(options, iterations=1, cma_iterations=0)
    console = Console()
    device = find_device(options.device)
    with console.status("compiling the kernels, once on a machine"):
        golfer = Golfer(options.variant, device)
        golfer.loss(golfer.rest().requires_grad_()).sum().backward()
    comparison = compare_torque_searches(golfer.loss, golfer.rest(), options, console, RELEASED_SEARCH)
    torques = comparison.gradient.best
    with torch.no_grad():
        controls = golfer.controls(torques[None])
        motion = golfer.sim.rollout(golfer.state, controls, check=True)
    miss = (motion.q[-1, 0, 2:5] - golfer.hole).norm().item()
    game = Game(torques, motion, miss, comparison, Path(), None)
    report(
        comparison,
        console,
        f"distance of the ball from the hole at the end ({options.variant}, {torques.numel():,} numbers)",
        NEAR,
    )
    console.print(f"the ball ends {1e3 * miss:.3g} mm from the hole" + (", and is in" if game.holed else ""))
    name = "golf" if options.variant == "default" else "golf_released"
    npz = write_motion(options.out / f"{name}.npz", golfer.sim, motion, controls[:, 0], **comparison.arrays)
    game.picture = draw(golfer, motion, comparison, options.out / f"{name}.png")
    game.replay = write_replay(
        golfer.sim, motion, options.out / f"{name}.html", console, controls=controls, title="a golf swing",
        paths=("ball", mouth()), fps=60.0,
    )  # fmt: skip
    print_files(console, trajectory=npz, picture=game.picture, replay=game.replay)
    return game


class Golfer:
    """The club, the ball, and the loss of a swing."""

    def __init__(self, variant: str, device: torch.device | str = "cpu") -> None:
        self.released = variant == "released"
        impacts: Impacts = "step" if self.released else "split"
        self.sim: Sim = build(self.released).compile(dt=DT, dtype=torch.float64, device=device, impacts=impacts)
        self.state = self.sim.initial_state()
        self.hole = torch.tensor(HOLE, dtype=torch.float64, device=device)

    def rest(self) -> Tensor:
        """Return zero torques (1, T, 2): the club falls."""
        return torch.zeros(1, STEPS, 2).to(self.hole)

    def controls(self, torques: Tensor) -> Tensor:
        """Return the controls (T, B, 2) [N·m] of torques (B, T, 2), fractions of the bounds or, released, in N·m."""
        return (torques if self.released else MOST_TORQUE * torques).transpose(0, 1)

    def loss(self, torques: Tensor) -> Tensor:
        """Return the squared distance from the hole at the end; released, the root of its mean over x, y and z."""
        motion = self.sim.rollout(self.state, self.controls(torques), checkpoint=50)
        squares = (motion.q[-1, :, 2:5] - self.hole).square()
        return squares.mean(-1).sqrt() if self.released else squares.sum(-1)


def build(released: bool) -> World:
    """Return the world: the club level, the ball on its tee."""
    tree = read("pendulum2")
    for link in tree.links:
        link.shapes = [box((0.05, 0.5, 0.05), (0, 0.25, 0))] if link.name == "link1" else []
    world = World(gravity=(0.0, 0.0, -9.8 if released else -GRAVITY))
    surface: dict[str, Any] = {"friction": 2.0 if released else 0.3, "restitution": 0.5}
    world.add(load(tree, dtype=torch.float64), name="club", group=CLUB, mask=BALL, **surface)
    size = (2 * HALF_TEE,) * 3
    world.add_box("tee", size=size, position=TEE, static=True, group=GROUND, mask=BALL, **surface)
    place = (0.0, TEE[1], TEE[2] + HALF_TEE + RADIUS + (0.025 if released else 0.0))
    if released:
        ball = Tree("ball", [Link("ball", MASS, inertia=np.eye(3), shapes=[sphere(RADIUS)])], [], source="ball")
        world.add(load(ball, "floating", dtype=torch.float64), name="ball", position=place, group=BALL, **surface)
    else:
        world.add_sphere("ball", radius=RADIUS, mass=MASS, position=place, group=BALL, **surface)
    return world


def mouth() -> Tensor:
    """Return the rim of the hole as a line (n, 3)."""
    angle = torch.linspace(0.0, 2 * torch.pi, 33, dtype=torch.float64)
    rim = HOLE_RADIUS * torch.stack([angle.cos(), angle.sin(), torch.zeros_like(angle)], -1)
    return torch.tensor(HOLE, dtype=torch.float64) + rim


def draw(golfer: Golfer, motion: Trajectory, comparison: Comparison, path: Path) -> Path:
    """Draw the swing and the flight from the side, the torques, and the curves of both methods; return the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.0, 8.0), layout="constrained")
    axes = figure.subplot_mosaic("AAAABB;CCCDDD")
    q = motion.q[:, 0].cpu()
    first, second = q[:, 0], q[:, 0] + q[:, 1]
    joint = 0.5 * torch.stack([first.cos(), first.sin()], -1)
    tip = joint + 0.5 * torch.stack([second.cos(), second.sin()], -1)
    axis = axes["A"]
    for moment in range(0, STEPS + 1, 100):
        points = torch.stack([torch.zeros(2).to(joint), joint[moment], tip[moment]])
        axis.plot(points[:, 0], points[:, 1], color=str(0.85 - 0.6 * moment / STEPS), linewidth=2)
    axis.plot(q[:, 3], q[:, 4], color="tab:blue", label="the ball")
    axis.plot(q[-1, 3], q[-1, 4], "o", color="tab:blue", label="after a second")
    edges = (HOLE[1] - HOLE_RADIUS, HOLE[1] + HOLE_RADIUS)
    axis.plot(edges, (HOLE[2], HOLE[2]), color="tab:red", linewidth=4, label="the hole's mouth")
    axis.set(title="from the side", xlabel="y [m]", ylabel="z [m]", aspect="equal")
    torques = golfer.controls(comparison.gradient.best[None])[:, 0].cpu()
    for number, torque in enumerate(torques.T):
        axes["B"].plot(DT * torch.arange(STEPS), torque, label=f"joint {number}")
    axes["B"].set(title="what was found", xlabel="time [s]", ylabel="torque [N m]")
    for name in ("A", "B"):
        axes[name].legend(fontsize=8)
        axes[name].grid(alpha=0.3)
    draw_curves((axes["C"], axes["D"]), comparison, NEAR)
    return write_figure(figure, path)
