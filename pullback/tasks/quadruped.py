"""Optimise how the Laikago stands up or trots for a second, by gradients through contact.

The robot is driven by position servos. Their targets over time are straight lines between knots, and start close to
doing nothing: lying, or standing still. The objectives:

- `stand-up`: from lying on its belly, rise and unfold the legs evenly, and stand upright and at rest;
- `trot`: keep the speed, the height and the heading, lift the toes of one diagonal pair after the other, and halt.

Everything between, which leg pushes when and how hard, comes from back-propagation through all steps. Several starts
are optimised in parallel by Adam and the best is kept; CMA-ES searches the same knots for comparison. Some seeds end in
a trot with a toe that drags in one of its swings; the table counts swings and says how long one pair alone bears load.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from pullback.control.search.methods import cosine_schedule
from pullback.core.device import find_device
from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.rigid.world.actuators import PositionServo
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.tasks.common.comparison import Comparison, compare_methods, report
from pullback.tasks.common.knots import even_knots
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_motion, write_replay
from pullback.tasks.common.quadruped_picture import draw
from pullback.tasks.leap import DT, LEG, STANDING_HEIGHT, TOE_RADIUS, TOES, warm_up

Tensor = torch.Tensor

LYING_LEG = (0.1, 1.2, -2.4)
"""Angles [rad] of a leg that is folded under the belly: abduction, hip, knee."""
LYING_HEIGHT = 0.12
"""Height [m] of the base from which the robot settles onto its belly."""
SETTLING = 0.4
"""Time [s] to settle."""
KNOTS_PER_SECOND = 20
POPULATION = 16
"""Of CMA-ES."""
LONGEST_GRADIENT = 1.0
"""Norm to which gradients are clipped: landings can be steep."""
LOOKS = 100
"""Samples per second in the loss."""
SWING = 0.2
"""Time [s] for which a diagonal pair swings; then the other one does."""
CLEARANCE = 0.06
"""Height [m] of a toe above the ground in the middle of its swing."""
RAMP = 0.2
"""Time [s] in which the trot reaches its speed."""
AFTERWARDS = 0.5
"""For how long [s] the robot then stands, or comes to a halt."""
FELT = 1.0
"""Upward force [N] above which a toe is in contact."""


class Setting(NamedTuple):
    """Start and search options of a motion."""

    leg: tuple[float, float, float]
    """Angles [rad] of all legs at the start, around which targets are searched."""
    duration: float
    numbers: int
    """Variables at each knot: 12 targets, or 6 increments shared by left and right legs."""
    learning_rate: float
    """Of Adam [rad]."""
    jitter: float
    """Standard deviation [rad] of the random starts."""
    spread: float
    """First standard deviation of CMA-ES [rad]."""


SETTINGS = {
    "stand-up": Setting(LYING_LEG, 1.2, 6, 0.01, 0.005, 0.05),
    "trot": Setting(LEG, 1.0, 12, 0.03, 0.02, 0.1),
}


@dataclass
class Options:
    """Which motion to optimise."""

    motion: Literal["stand-up", "trot"] = "trot"
    """What to learn."""
    speed: float = 0.5
    """Forward speed of the trot [m/s]."""
    duration: float | None = None
    """Time for the motion [s]; by default 1.2 to stand up and 1 to trot; then it stands for half a second."""
    starts: int = 4
    """Random starts, optimised in parallel."""
    iterations: int = 150
    """Iterations of the optimiser (Adam)."""
    cma_iterations: int = 50
    """Iterations of CMA-ES, each a population of 16 rollouts; 0 leaves it out."""
    seed: int = 0
    """Seed of the random starts and of CMA-ES."""
    out: Path = Path("out")
    """Folder for trajectory, picture and replay."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Learned:
    """The result: targets [rad] (T, 12) of the best start, their motion, and both searches."""

    targets: Tensor
    motion: Trajectory
    forces: Tensor
    """Upward force [N] on each toe, (T, 4)."""
    toes: Tensor
    """Height [m] of each toe above the ground, (T + 1, 4)."""
    belly: Tensor
    """Upward force [N] on the belly, (T,)."""
    comparison: Comparison
    steps: int
    """Steps of the motion itself, without the half second afterwards."""
    picture: Path | None = None
    replay: Path | None = None

    @property
    def q(self) -> Tensor:
        """Coordinates (T + 1, 19)."""
        return self.motion.q[:, 0]

    @property
    def upright(self) -> Tensor:
        """The cosine of the angle between the robot's and the world's vertical, (T + 1,)."""
        return 1.0 - 2.0 * self.q[:, 3:5].square().sum(-1)

    @property
    def speed(self) -> float:
        """The mean forward speed [m/s] of the motion itself."""
        return (self.q[self.steps, 0] - self.q[0, 0]).item() / (DT * self.steps)

    @property
    def on_ground(self) -> Tensor:
        """Whether each toe bears load, (steps, 4)."""
        return self.forces[: self.steps] > FELT

    @property
    def diagonal(self) -> float:
        """The fraction of time with one diagonal pair in the air and the other, or a toe of it, on the ground."""
        front_right, front_left, rear_right, rear_left = self.on_ground.unbind(-1)
        first = ~front_right & ~rear_left & (front_left | rear_right)
        second = ~front_left & ~rear_right & (front_right | rear_left)
        return (first | second).double().mean().item()

    @property
    def swings(self) -> list[int]:
        """How many times each toe left the ground for longer than 40 ms."""
        return [len(_flights(toe)) for toe in self.on_ground.unbind(-1)]


def _flights(on_ground: Tensor) -> list[int]:
    """Return the lengths in steps of the flights of a toe, those that last at least 40 ms."""
    marks = "".join("x" if down else "." for down in on_ground.tolist())
    return [len(flight) for flight in marks.split("x") if len(flight) * DT >= 0.04]


def run(options: Options) -> Learned:
    """Optimise the targets, print the resulting motion, draw it and save it."""
    check(options)
    duration = options.duration or SETTINGS[options.motion].duration
    console = Console()
    device = find_device(options.device)
    sim = build().compile(dt=DT, dtype=torch.float64, device=device)
    with console.status("compiling the kernels, once on a machine"):
        warm_up(sim)
    state = starting_state(sim, options)
    total = duration + AFTERWARDS
    between = even_knots(round(total / DT), 1 + round(total * KNOTS_PER_SECOND)).to(device)
    comparison = learn(sim, state, between, duration, options, console)
    best = targets_of(comparison.gradient.best[None], between, options)[:, 0]
    found = watch(sim, state, best, comparison, round(duration / DT))
    tell(found, options, console)
    name = f"quadruped_{options.motion.replace('-', '_')}"
    controls = found.targets.to(sim.device)
    saved = write_motion(options.out / f"{name}.npz", sim, found.motion, controls, **comparison.arrays)
    found.picture = draw(found, options, options.out / f"{name}.png")
    found.replay = write_replay(
        sim, found.motion, options.out / f"{name}.html", console, controls=controls[:, None],
        title=f"Laikago: {options.motion}", fps=60.0,
    )  # fmt: skip
    print_files(console, trajectory=saved, picture=found.picture, replay=found.replay)
    return found


def check(options: Options) -> None:
    """Raise for invalid options."""
    check_at_least(options, starts=1, iterations=1, cma_iterations=0, duration=0.4, speed=0.0)
    if options.motion not in ("stand-up", "trot"):
        raise PullbackError(f"motion is {options.motion!r}; choose 'stand-up' or 'trot'")


def build() -> World:
    """Return a world with the Laikago standing on its toes; they and its belly can touch the ground."""
    world, robot = World(), load("laikago", base="floating", dtype=torch.float64)
    world.add(
        robot,
        name="dog",
        position=(0.0, 0.0, STANDING_HEIGHT),
        q=dict(zip(robot.joint_names[1:], 4 * LEG)),
        actuators=PositionServo(kp=150.0, kd=3.0, limit=100.0),
        collision_links=("chassis", *TOES),
    )
    world.add_ground(friction=0.8)
    return world


@torch.no_grad()
def starting_state(sim: Sim, options: Options) -> State:
    """Return the robot standing, or lying at rest."""
    state = sim.initial_state()
    if options.motion == "trot":
        return state
    legs = torch.tensor(4 * LYING_LEG).to(state.q)
    q = state.q.clone()
    q[:, 2], q[:, 7:] = LYING_HEIGHT, legs
    lying = sim.rollout(State(q, state.qd), legs.expand(round(SETTLING / DT), 1, -1), check=True)[-1]
    return State(lying.q, torch.zeros_like(lying.qd))


def knots_of(numbers: Tensor) -> Tensor:
    """Return the knots (starts, knots, 12) that the numbers searched for stand for, as offsets from the start's angles.

    Twelve are the offsets themselves. Six are what front and hind legs add from knot to knot, left and right alike:
    of a motion that goes somewhere and stays there, each number then moves all that follows.
    """
    if numbers.shape[-1] == 12:
        return numbers
    front, hind = numbers.cumsum(1).split(3, -1)
    return torch.cat([front, front, hind, hind], -1)


def targets_of(numbers: Tensor, between: Tensor, options: Options) -> Tensor:
    """Return servo targets [rad] (T, starts, 12)."""
    leg = torch.tensor(4 * SETTINGS[options.motion].leg).to(numbers)
    return torch.einsum("tk,skj->tsj", between, knots_of(numbers)) + leg


def loss_of(sim: Sim, motion: Trajectory, numbers: Tensor, duration: float, options: Options) -> Tensor:
    """Return the loss of each start (starts,)."""
    every = round(1 / (LOOKS * DT))
    q, qd = motion.q[::every], motion.qd[::every]
    time = torch.arange(len(q)).to(q) / LOOKS
    knots = knots_of(numbers)
    bends = knots[:, 2:] - 2.0 * knots[:, 1:-1] + knots[:, :-2]
    tilt = q[:, :, 3:6].square().sum(-1).mean(0)
    common = 10.0 * tilt + 0.02 * bends.square().sum(-1).mean(1)
    if options.motion == "trot":
        return common + trot_loss(sim, q, qd, time, duration, options.speed)
    return common + stand_up_loss(q, qd, time, duration)


def stand_up_loss(q: Tensor, qd: Tensor, time: Tensor, duration: float) -> Tensor:
    """Return how far base and legs are from rising and unfolding evenly, and from rest afterwards."""
    share = (time / duration).clamp(max=1.0)[:, None]
    share = share.square() * (3.0 - 2.0 * share)
    height = torch.lerp(q[:1, :, 2].detach(), torch.tensor(STANDING_HEIGHT).to(q), share)
    legs = torch.lerp(q[:1, :, 7:].detach(), torch.tensor(4 * LEG).to(q), share[..., None])
    off_height = (q[:, :, 2] - height).square().mean(0)
    off_place = q[:, :, :2].square().sum(-1).mean(0)
    folded = (q[:, :, 7:] - legs).square().sum(-1).mean(0)
    rest = qd[time > duration].square().sum(-1).mean(0)
    return 100.0 * off_height + 10.0 * off_place + folded + 0.05 * rest


def trot_loss(sim: Sim, q: Tensor, qd: Tensor, time: Tensor, duration: float, speed: float) -> Tensor:
    """Return how far the motion is from speed, height and line, the toes from their swings, the end from rest."""
    # the speed comes in the first fifth of a second, and goes in the one after the trot
    share = torch.minimum(time / RAMP, 1.0 + (duration - time) / RAMP).clamp(0.0, 1.0)
    way = torch.cumsum(speed * share / LOOKS, 0)
    off_speed = ((q[1:, :, 0] - q[:-1, :, 0] - (way[1:] - way[:-1])[:, None]) * LOOKS).square().mean(0)
    off_way = (q[:, :, 0] - way[:, None]).square().mean(0)
    aside = q[:, :, 1].square().mean(0)
    height = (q[:, :, 2] - STANDING_HEIGHT).square().mean(0)
    swings = (toe_heights(sim, q) - wanted_heights(time, duration)[:, None]).square().sum(-1).mean(0)
    end = (q[-1, :, 7:] - torch.tensor(4 * LEG).to(q)).square().sum(-1) + 0.1 * qd[-1].square().sum(-1)
    return 10.0 * off_way + off_speed + 10.0 * aside + 20.0 * height + 300.0 * swings + 0.1 * end


def toe_heights(sim: Sim, q: Tensor) -> Tensor:
    """Return the heights [m] (*batch, 4) of the toes above the ground."""
    links = sim.world.robots["dog"].to(q).compute_forward_kinematics_all_links(q)
    return torch.stack([links[toe][0][..., 2] for toe in TOES], -1) - TOE_RADIUS


def wanted_heights(time: Tensor, duration: float) -> Tensor:
    """Return the heights [m] (T, 4) that a trot has its toes at: those of one diagonal pair, then of the other."""
    swing = (time / SWING + 1e-9).floor()
    arc = CLEARANCE * torch.sin(pi * (time / SWING - swing)).square()
    arc = torch.where(time < duration, arc, 0.0)
    first = torch.where(swing % 2 == 0, arc, 0.0)
    # front right and rear left; front left and rear right
    return torch.stack([first, arc - first, arc - first, first], -1)


def learn(sim: Sim, state: State, between: Tensor, duration: float, options: Options, console: Console) -> Comparison:
    """Optimise by Adam from the random starts, then by CMA-ES."""
    setting = SETTINGS[options.motion]
    generator = torch.Generator().manual_seed(options.seed)
    shape = (options.starts, between.shape[1], setting.numbers)
    start = setting.jitter * torch.randn(shape, dtype=torch.float64, generator=generator)

    def objective(numbers: Tensor) -> Tensor:
        many = State(state.q.expand(len(numbers), -1), state.qd.expand(len(numbers), -1))
        motion = sim.rollout(many, targets_of(numbers, between, options))
        return loss_of(sim, motion, numbers, duration, options)

    gradient = {
        "method": "adam",
        "iterations": options.iterations,
        "learning_rate": setting.learning_rate,
        "schedule": cosine_schedule(options.iterations),
        "longest_gradient": LONGEST_GRADIENT,
    }
    search = {"iterations": options.cma_iterations, "population": POPULATION, "spread": setting.spread}
    search["seed"] = options.seed
    start = start.to(sim.device)
    return compare_methods(
        objective, start, console, gradient=gradient, search=search, miss=lambda loss: loss, unit="loss"
    )


@torch.no_grad()
def watch(sim: Sim, state: State, targets: Tensor, comparison: Comparison, steps: int) -> Learned:
    """Simulate the best targets, with contact forces of toes and belly."""
    motion = sim.rollout(state, targets[:, None], check=True)
    q, qd = motion.q[:, 0], motion.qd[:, 0]
    forces, belly = torch.zeros(len(targets), len(TOES)), torch.zeros(len(targets))
    # one world per time step: the contact forces of the whole motion in one call
    for moment, contacts in enumerate(sim.contacts(State(q[:-1], qd[:-1]), targets)):
        for contact in contacts:
            link = contact.shapes[0].split("/")[1]
            if link in TOES:
                forces[moment, TOES.index(link)] += contact.force[2]
            else:
                belly[moment] += contact.force[2]
    return Learned(targets.cpu(), motion, forces, toe_heights(sim, q).cpu(), belly, comparison, steps)


def tell(found: Learned, options: Options, console: Console) -> None:
    """Print the searches, and target and result of the motion."""
    bar = float(f"{2.0 * found.comparison.gradient.loss:.1g}")
    report(found.comparison, console, f"best loss of the {options.motion} so far", bar)
    table = Table(title=f"the best of {options.starts} starts after {len(found.comparison.gradient.losses)} iterations")
    for header in ("", "target", "reached"):
        table.add_column(header, justify="left" if not header else "right")
    end, time = found.q[found.steps], DT * found.steps
    heights = found.q[: found.steps + 1, 2]
    if options.motion == "trot":
        mean = options.speed * (1.0 - 0.5 * RAMP / time)
        table.add_row(f"mean speed over {time:g} s, in m/s", f"{mean:.2f}", f"{found.speed:.3f}")
        table.add_row("drift to the side, in m", "0", f"{end[1].item():.3f}")
        table.add_row(
            "height of the base, in m", f"{STANDING_HEIGHT:.2f}", f"{heights.min():.3f} to {heights.max():.3f}"
        )
        table.add_row("swings of each toe", f"{round(time / SWING) // 2} or more", " ".join(map(str, found.swings)))
        table.add_row("one diagonal pair in the air, fraction of time", "", f"{100 * found.diagonal:.0f} %")
    else:
        table.add_row("height of the base, in m", f"{STANDING_HEIGHT:.2f}", f"{heights[0]:.3f} to {end[2]:.3f}")
        leaves = DT * int((found.belly > FELT).nonzero().max() + 1) if bool((found.belly > FELT).any()) else 0.0
        table.add_row("the belly leaves the ground after, in s", "", f"{leaves:.2f}")
        speed = found.motion.qd[found.steps, 0].abs().max().item()
        table.add_row("fastest joint at the end, in rad/s", "0", f"{speed:.3f}")
    table.add_row("largest tilt, in degrees", "0", f"{torch.rad2deg(found.upright.clamp(max=1.0).acos()).max():.1f}")
    table.add_row("largest force on one toe, in N", "", f"{found.forces.max():.0f}")
    standing, still = found.q[-1, 2], found.motion.qd[-1, 0, 3:6].norm()
    table.add_row(f"height {AFTERWARDS:g} s afterwards, in m", f"{STANDING_HEIGHT:.2f}", f"{standing:.3f}")
    table.add_row(f"speed of the base {AFTERWARDS:g} s afterwards, in m/s", "0", f"{still:.3f}")
    console.print(table)
    if found.upright.min() < 0.9 or standing < 0.8 * STANDING_HEIGHT:
        console.print("[yellow]it does not stand: try another --seed, more --iterations, or an easier motion[/]")
