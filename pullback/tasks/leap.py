"""Optimise a leap of the Laikago by gradients through contact.

The robot stands on the ground, driven by position servos. Their targets over time are straight lines between knots,
and start close to standing still. The loss has two terms: half way through, the base should be at a given height; at
the end, the robot should stand at rest at a given distance. Everything between, crouch, push, flight and landing, comes
from back-propagation through all steps. Several starts are optimised in parallel, and the best is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table

from pullback.control.search.methods import cosine_schedule
from pullback.control.search.search import Found
from pullback.control.search.shooting import minimize
from pullback.core.device import find_device
from pullback.rigid.sim import Sim
from pullback.rigid.state import State
from pullback.rigid.world.actuators import PositionServo
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.tasks.common.knots import even_knots
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Tensor = torch.Tensor

TOES = ("toeFR", "toeFL", "toeRR", "toeRL")
TOE_RADIUS = 0.03
LEG = (0.2, 0.0, -0.5)
"""Angles [rad] of a standing leg: abduction, hip, knee."""
STANDING_HEIGHT = 0.4835
"""Height [m] of the base above the ground when the legs have these angles."""
DT = 2e-3
KNOTS_PER_SECOND = 20
LEARNING_RATE = 0.02
JITTER = 0.02
"""Standard deviation [rad] of the random starts."""
LONGEST_GRADIENT = 1.0
"""Norm to which gradients are clipped: landings can be steep."""
AFTERWARDS = 0.5
"""Time [s] of standing that is simulated afterwards."""


@dataclass
class Options:
    """How to leap."""

    distance: float = 0.4
    """How far to leap forward [m]; the robot is about 0.6 m long."""
    height: float = 0.7
    """Height of the base half way through [m]; it stands at 0.48."""
    duration: float = 1.0
    """Time from standing to standing [s]."""
    starts: int = 4
    """Random starts, optimised in parallel."""
    epochs: int = 100
    """Iterations of the optimiser (Adam)."""
    seed: int = 0
    """Seed of the random starts."""
    out: Path = Path("out")
    """Folder for the picture."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Leap:
    """The result: targets [rad] (T, 12) of the best start, its motion, and the losses (epochs, starts)."""

    targets: Tensor
    q: Tensor
    """Coordinates (T + 1, 19): the leap, then standing."""
    forces: Tensor
    """Upward force [N] on each toe, (T, 4)."""
    clearance: Tensor
    """Height [m] of the lowest toe above the ground, (T + 1,)."""
    losses: Tensor
    apex: tuple[float, float]
    """Where the base was half way through: x and z [m]."""
    end: tuple[float, float]
    """Where the base was at the end: x and z [m]."""
    interrupted: bool = False
    picture: Path | None = None

    @property
    def flight(self) -> float:
        """For how long [s] all four toes were off the ground."""
        return DT * int((self.forces.amax(-1) == 0.0).sum())

    @property
    def upright(self) -> float:
        """The cosine of the angle between the robot's and the world's vertical after it has stood for a while."""
        return 1.0 - 2.0 * self.q[-1, 3:5].square().sum().item()


def run(options: Options) -> Leap:
    """Optimise the targets, print the resulting motion, and draw it."""
    check_at_least(options, starts=1, epochs=1, duration=0.2, height=0.1)
    console = Console()
    device = find_device(options.device)
    sim = build().compile(dt=DT, dtype=torch.float64, device=device)
    steps = round(options.duration / DT)
    between = even_knots(steps, 1 + round(options.duration * KNOTS_PER_SECOND)).to(device)
    with console.status("compiling the kernels, once on a machine"):
        warm_up(sim)
    search = learn(sim, between, options, console)
    found = watch(sim, targets_of(search.best[None], between)[:, 0], search.losses, steps)
    found.interrupted = search.interrupted
    report(found, options, console)
    found.picture = draw(found, options, options.out / "leap.png")
    console.print(f"picture: {found.picture}")
    return found


def build() -> World:
    """Return a world with the Laikago standing on its toes."""
    world, robot = World(), load("laikago", base="floating")
    world.add(
        robot,
        name="dog",
        position=(0.0, 0.0, STANDING_HEIGHT),
        q=dict(zip(robot.joint_names[1:], 4 * LEG)),
        actuators=PositionServo(kp=150.0, kd=3.0, limit=100.0),
        collision_links=TOES,
    )
    world.add_ground(friction=0.8)
    return world


def warm_up(sim: Sim) -> None:
    """Compile the kernels by one step and its gradient, before anything is timed."""
    state = sim.initial_state()
    controls = torch.zeros(1, 1, sim.nu, dtype=sim.dtype, device=sim.device, requires_grad=True)
    sim.rollout(state, controls).q.sum().backward()


def targets_of(knots: Tensor, between: Tensor) -> Tensor:
    """Return servo targets [rad] (T, starts, 12) from knots (starts, knots, 6): left and right legs do the same."""
    legs = torch.einsum("tk,skj->tsj", between, knots) + torch.tensor(2 * LEG).to(knots)
    front, hind = legs.split(3, -1)
    return torch.cat([front, front, hind, hind], -1)


def loss_of(q: Tensor, qd: Tensor, options: Options) -> Tensor:
    """Return the loss of each start (starts,) from q (T + 1, starts, 19) and qd (T + 1, starts, 18)."""
    middle = q[q.shape[0] // 2]
    half_way = (middle[:, 0] - options.distance / 2).square() + (middle[:, 2] - options.height).square()
    standing = torch.tensor([options.distance, 0.0, STANDING_HEIGHT]).to(q)
    landing = (q[-1, :, :3] - standing).square().sum(-1)
    pose = (q[-1, :, 7:] - torch.tensor(4 * LEG).to(q)).square().sum(-1)
    rest = qd[-1].square().sum(-1)
    tilt = q[:, :, 3:6].square().sum(-1).mean(0)
    return 30.0 * half_way + 10.0 * landing + pose + 0.01 * rest + 5.0 * tilt


def learn(sim: Sim, between: Tensor, options: Options, console: Console) -> Found:
    """Optimise the knots (knots, 6) by Adam from random starts."""
    generator = torch.Generator().manual_seed(options.seed)
    start = torch.randn(options.starts, between.shape[1], 6, dtype=torch.float64, generator=generator)

    def objective(knots: Tensor) -> Tensor:
        motion = sim.rollout(sim.initial_state(batch=len(knots)), targets_of(knots, between))
        return loss_of(motion.q, motion.qd, options)

    return minimize(
        objective, (JITTER * start).to(sim.device), iterations=options.epochs, learning_rate=LEARNING_RATE,
        schedule=cosine_schedule(options.epochs), longest_gradient=LONGEST_GRADIENT, label="learning to leap",
        console=console,
    )  # fmt: skip


@torch.no_grad()
def watch(sim: Sim, targets: Tensor, losses: Tensor, steps: int) -> Leap:
    """Simulate the best targets and some standing after them, with contact forces of the toes."""
    stand = torch.tensor(4 * LEG).to(targets).expand(round(AFTERWARDS / DT), -1)
    targets = torch.cat([targets, stand])
    motion = sim.rollout(sim.initial_state(), targets[:, None], check=True)
    q, qd = motion.q[:, 0], motion.qd[:, 0]
    # one world per time step: the contact forces of the whole motion in one call
    forces = torch.zeros(len(targets), len(TOES))
    for moment, contacts in enumerate(sim.contacts(State(q[:-1], qd[:-1]), targets)):
        for contact in contacts:
            forces[moment, TOES.index(contact.shapes[0].split("/")[1])] += contact.force[2]
    links = sim.world.robots["dog"].to(q).compute_forward_kinematics_all_links(q)
    toes = torch.stack([links[toe][0][:, 2] for toe in TOES], -1)
    apex, end = q[steps // 2], q[steps]
    return Leap(
        targets.cpu(),
        q.cpu(),
        forces,
        (toes.amin(-1) - TOE_RADIUS).cpu(),
        losses,
        (apex[0].item(), apex[2].item()),
        (end[0].item(), end[2].item()),
    )


def report(found: Leap, options: Options, console: Console) -> None:
    """Print target and result, and the contact forces."""
    table = Table(title=f"the best of {options.starts} starts after {len(found.losses)} epochs")
    for header in ("", "target", "reached"):
        table.add_column(header, justify="left" if not header else "right")
    (x, z), end = found.apex, found.end
    table.add_row(
        "base half way: x, height in m", f"{options.distance / 2:.2f}, {options.height:.2f}", f"{x:.3f}, {z:.3f}"
    )
    table.add_row(
        "base at the end: x, height in m",
        f"{options.distance:.2f}, {STANDING_HEIGHT:.2f}",
        f"{end[0]:.3f}, {end[1]:.3f}",
    )
    table.add_row("all toes off the ground, in s", "", f"{found.flight:.2f}")
    table.add_row("lowest toe at its highest, in m", "", f"{found.clearance.max().item():.2f}")
    table.add_row("largest force on one toe, in N", "", f"{found.forces.max().item():.0f}")
    console.print(table)
    first, best = found.losses[0].min().item(), found.losses.min().item()
    console.print(f"loss: {first:.3f} at the start, {best:.3f} at its best")
    if found.upright < 0.9:
        console.print("[yellow]it fell over: try another --seed, more --epochs, or a smaller leap[/]")


def draw(found: Leap, options: Options, path: Path) -> Path:
    """Draw the robot at several moments, the path of its base, the forces on it, and the losses; return the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14.0, 6.5), layout="constrained")
    axes = figure.subplot_mosaic([["film"] * 3, ["path", "forces", "loss"]], height_ratios=(1.0, 1.8))
    draw_film(axes["film"], found, options)

    axes["path"].plot(found.q[:, 0], found.q[:, 2], color="tab:blue")
    half_way, end = (options.distance / 2, options.height), (options.distance, STANDING_HEIGHT)
    axes["path"].plot(*half_way, "o", color="tab:red", fillstyle="none", label="target half way")
    axes["path"].plot(*end, "s", color="tab:red", fillstyle="none", label="target at the end")
    axes["path"].plot(*found.apex, ".", color="tab:blue", label="reached half way")
    axes["path"].plot(*found.end, "x", color="tab:blue", label="reached at the end")
    axes["path"].set(title="path of the base", xlabel="x [m]", ylabel="height [m]")

    time = DT * torch.arange(len(found.forces))
    for legs, forces in zip(("front legs", "hind legs"), found.forces.unflatten(-1, (2, 2)).sum(-1).T):
        axes["forces"].plot(time, forces, label=legs, linewidth=1.0)
    axes["forces"].axvspan(options.duration, time[-1].item(), color="tab:green", alpha=0.1, label="standing afterwards")
    axes["forces"].set(title="contact force", xlabel="time [s]", ylabel="upward force [N]")

    losses, best = found.losses.numpy(), int(found.losses.amin(0).argmin())
    axes["loss"].semilogy(losses, color="lightgray")
    axes["loss"].semilogy(losses[:, best], color="tab:blue", label="the start that is kept")
    axes["loss"].set(title="loss of each start", xlabel="epoch", ylabel="loss")
    for name in ("path", "forces", "loss"):
        axes[name].legend(fontsize=8)
        axes[name].grid(alpha=0.3)
    return write_figure(figure, path)


def draw_film(axis: Axes, found: Leap, options: Options) -> None:
    """Draw the robot's right side as sticks, at moments that follow one another to the right."""
    robot = load("laikago", base="floating", dtype=torch.float64)
    with torch.no_grad():
        links = {name: pose[0] for name, pose in robot.compute_forward_kinematics_all_links(found.q).items()}
    moments = torch.linspace(0, round(options.duration / DT), 11).round().long().tolist()
    for picture, moment in enumerate(moments):
        shift = 0.9 * picture

        def sticks(names: list[str], width: float, moment: int = moment, shift: float = shift) -> None:
            points = torch.stack([links[name][moment] for name in names])
            axis.plot(points[:, 0] + shift, points[:, 2], color="black", linewidth=width, solid_capstyle="round")

        sticks(["FR_upper_leg", "RR_upper_leg"], 4.0)
        for leg in ("FR", "RR"):
            sticks([f"{leg}_upper_leg", f"{leg}_lower_leg", f"toe{leg}"], 1.5)
        axis.text(shift, -0.12, f"{DT * moment:.2g} s", ha="center", fontsize=8)
    axis.axhline(0.0, color="saddlebrown")
    axis.set(title=f"a leap of {options.distance:g} m, seen from the side", aspect="equal", ylim=(-0.2, None))
    axis.axis("off")
