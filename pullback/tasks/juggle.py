"""Juggle a ball with a paddle through three points: gradients through impacts compared with CMA-ES.

The paddle is lifted and tilted by two servos, whose targets are straight lines between values at knots; at first it
goes up and down, level. The ball falls on it, and after each of three hits it must be at a point when it is highest:
right, left, and high in the middle. The loss is the sum of the squared distances there, the gradient method L-BFGS, of
which every trial counts.

Contact is rigid, with a restitution of 0.8, and steps are split at the hits, `compile(impacts="split")`. `--contact
step` does not split them, `--contact compliant` has springs; what they find is played on split steps too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console

from pullback.core.device import find_device
from pullback.description.assets.rows import box, joint, link
from pullback.description.tree import Tree
from pullback.rigid.sim import Sim
from pullback.rigid.solvers.compliant import Compliant
from pullback.rigid.state import State, Trajectory
from pullback.rigid.world.actuators import PositionServo
from pullback.rigid.world.integrators import Impacts
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.tasks.common.comparison import SOLVED, Comparison, compare_methods, draw_curves, report
from pullback.tasks.common.knots import even_knots
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import cross, print_files, write_figure, write_motion, write_replay

Tensor = torch.Tensor
Contact = Literal["split", "step", "compliant"]

DT, STEPS, KNOTS = 2e-3, 840, 22
RADIUS, MASS, HEIGHT = 0.02, 0.05, 0.385
"""Of the ball [m], [kg]; how far it falls at first [m]."""
THICKNESS = 0.02
KEPT = 28
"""States that a search sees: one in so many, those at the points among them."""
MOST = (0.15, 0.3)
"""Bounds of the servos' targets [m], [rad]."""
SWING = 0.18
"""Of the paddle at first, in units of its bound."""
POINTS = ((0.56, 0.05, 0.4), (1.12, -0.05, 0.4), (1.68, 0.0, 0.45))
"""Moments [s], and where the ball must be then: x and z [m]; the paddle is level at z = 0 at first."""
NEAR = 0.01
"""A root of the mean square of the three misses [m] that counts as juggled."""


@dataclass
class Options:
    """How to juggle."""

    contact: Contact = "split"
    """Rigid contact with steps split at the hits, rigid without, or springs."""
    iterations: int = 200
    """Iterations of the gradient method: rollouts with their backward pass."""
    cma_iterations: int = 60
    """Iterations of CMA-ES, each a population of rollouts; 0 leaves it out."""
    seed: int = 0
    """Seed of CMA-ES."""
    out: Path = Path("out")
    """Folder for trajectory, picture and replay."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Juggled:
    """The result: values at the knots (KNOTS, 2), the motion on rigid contact, its miss [m], both searches."""

    values: Tensor
    motion: Trajectory
    miss: float
    comparison: Comparison
    picture: Path
    replay: Path | None


def run(options: Options) -> Juggled:
    """Search by gradients and by CMA-ES, print both, and save the motion, a picture and a replay."""
    check_at_least(options, iterations=1, cma_iterations=0)
    console = Console()
    device = find_device(options.device)
    with console.status("compiling the kernels, once on a machine"):
        juggler = Juggler(options.contact, device)
        juggler.loss(juggler.first().requires_grad_()).sum().backward()
    bounds = {"lower": -1.0, "upper": 1.0, "target": SOLVED}
    comparison = compare_methods(
        juggler.loss,
        juggler.first(),
        console,
        gradient={"method": "lbfgs", "iterations": options.iterations, "learning_rate": 0.1, **bounds},
        search={"iterations": options.cma_iterations, "seed": options.seed, "spread": 0.2, **bounds},
        miss=lambda loss: (loss / len(POINTS)).sqrt(),
    )
    values = comparison.gradient.best
    # springs give way: what counts is the same plan on rigid contact
    played = juggler if options.contact == "split" else Juggler("split", device)
    with torch.no_grad():
        controls = played.controls(values[None])
        motion = played.sim.rollout(played.state, controls, check=True)
        miss = float((played.misses(motion).square().sum() / len(POINTS)).sqrt())
    report(comparison, console, f"misses of the three points ({options.contact}, {values.numel()} numbers)", NEAR)
    console.print(f"on rigid contact, split at the hits, the plan misses by {1e3 * miss:.3g} mm")
    name = "juggle" if options.contact == "split" else f"juggle_{options.contact}"
    npz = write_motion(options.out / f"{name}.npz", played.sim, motion, controls[:, 0], **comparison.arrays)
    picture = draw(motion, controls, comparison, options.out / f"{name}.png")
    marks = [cross((x, 0.0, z), 0.02) for _, x, z in POINTS]
    replay = write_replay(
        played.sim, motion, options.out / f"{name}.html", console, controls=controls, title="a ball is juggled",
        paths=("ball", *marks), fps=60.0,
    )  # fmt: skip
    print_files(console, trajectory=npz, picture=picture, replay=replay)
    return Juggled(values, motion, miss, comparison, picture, replay)


class Juggler:
    """The paddle, the ball, and the loss of a plan."""

    def __init__(self, contact: Contact, device: torch.device | str = "cpu") -> None:
        world = build(contact)
        impacts: Impacts = "split" if contact == "split" else "step"
        self.sim: Sim = world.compile(dt=DT, dtype=torch.float64, device=device, impacts=impacts)
        self.state: State = self.sim.initial_state()
        self.knots = even_knots(STEPS, KNOTS).to(device)
        self.most = torch.tensor(MOST, dtype=torch.float64, device=device)
        self.steps = [round(moment / DT) for moment, _, _ in POINTS]
        self.points = torch.tensor([point[1:] for point in POINTS], dtype=torch.float64, device=device)

    def first(self) -> Tensor:
        """Return values (1, KNOTS, 2) to start from: the paddle stays level and goes up and down, once for each hit."""
        values = torch.zeros(1, KNOTS, 2, dtype=torch.float64, device=self.most.device)
        share = torch.linspace(0.0, len(POINTS), KNOTS, dtype=torch.float64, device=self.most.device)
        values[0, :, 0] = SWING * torch.sin(2.0 * torch.pi * (share - 0.45))
        return values

    def controls(self, values: Tensor) -> Tensor:
        """Return the servos' targets (T, B, 2) for values at the knots (B, KNOTS, 2), fractions of the bounds."""
        return torch.einsum("tk,bkn->tbn", self.knots, self.most * values)

    def misses(self, motion: Trajectory) -> Tensor:
        """Return the vectors (3, B, 2) from the points to the ball."""
        every = STEPS // (len(motion.q) - 1)
        return motion.q[[step // every for step in self.steps]][:, :, 2:5:2] - self.points[:, None]

    def loss(self, values: Tensor) -> Tensor:
        """Return the sum of the squared distances from the points."""
        motion = self.sim.rollout(self.state, self.controls(values), checkpoint=KEPT)
        return self.misses(motion).square().sum((0, 2))


def build(contact: Contact) -> World:
    """Return the world: the paddle level at the origin, the ball above it."""
    size = (0.4, 0.4, THICKNESS)
    tree = Tree(
        "paddle",
        [
            link("base"),
            link("slide", 0.2, (0.0, 0.0, 0.0), (1e-3, 1e-3, 1e-3)),
            link("paddle", 0.5, (0.0, 0.0, 0.0), (7e-3, 7e-3, 1.3e-2), box(size, (0.0, 0.0, -THICKNESS / 2))),
        ],
        [
            joint("lift", "prismatic", "base", "slide", axis=(0.0, 0.0, 1.0)),
            joint("tilt", "continuous", "slide", "paddle", axis=(0.0, 1.0, 0.0)),
        ],
        source="paddle",
    )
    world = World(gravity=(0.0, 0.0, -9.81))
    if contact == "compliant":
        world = World(gravity=(0.0, 0.0, -9.81), contact=Compliant(stiffness=2e4, damping=0.13))
    servos = {"lift": PositionServo(kp=2000.0, kd=60.0), "tilt": PositionServo(kp=60.0, kd=1.5)}
    surface: dict[str, Any] = {"friction": 0.2, "restitution": 0.0 if contact == "compliant" else 0.8}
    world.add(load(tree, dtype=torch.float64), name="paddle", actuators=servos, **surface)
    world.add_sphere("ball", radius=RADIUS, mass=MASS, position=(0.0, 0.0, RADIUS + HEIGHT), **surface)
    return world


def draw(motion: Trajectory, controls: Tensor, comparison: Comparison, path: Path) -> Path:
    """Draw the ball's path and height, the servos' targets, and the curves of both methods; return the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.0, 8.0), layout="constrained")
    axes = figure.subplot_mosaic("ABB;CDE")
    q, time = motion.q[:, 0].cpu(), DT * torch.arange(len(motion.q))
    axes["A"].plot(q[:, 2], q[:, 4], color="tab:blue", label="the ball")
    axes["B"].plot(time, q[:, 4] - RADIUS, color="tab:blue", label="the ball's lowest point")
    axes["B"].plot(time, q[:, 0], color="0.4", label="the paddle")
    for moment, x, z in POINTS:
        axes["A"].plot(x, z, "x", color="tab:red")
        axes["B"].plot(moment, z - RADIUS, "x", color="tab:red")
    axes["A"].set(title="from the side", xlabel="x [m]", ylabel="z [m]", aspect="equal")
    axes["B"].set(title="heights", xlabel="time [s]", ylabel="z [m]")
    for number, label in enumerate(("lift [m]", "tilt [rad]")):
        axes["C"].plot(time[:-1], controls[:, 0, number].cpu(), label=label)
    axes["C"].set(title="what was found", xlabel="time [s]", ylabel="target")
    for name in "ABC":
        axes[name].legend(fontsize=8)
        axes[name].grid(alpha=0.3)
    draw_curves((axes["D"], axes["E"]), comparison, NEAR)
    return write_figure(figure, path)
