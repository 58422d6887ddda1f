"""Estimate friction from where a sliding car was seen, by the gradient through its contacts.

The car of pybullet_data, on spheres as wheels, stands on the floor and moves at 1 m/s; after one second it was seen at
x = 0.75 m. How much friction explains that? Its wheels are locked, so it slides: x = v t - mu g t² / 2, mu 0.051, which
the engine does not know. `--wheels free` lets them turn and steer: then friction has less to brake.

`--variant released` takes the numbers of Qiao et al. (ICML 2021) and their code: the car falls from 0.5 m, wheels free,
upside down (as their code had it when the paper was written), gravity 9.8 m/s², friction starts at 0.002, plain
gradient descent with a rate of 0.05 on (x - 0.8)², until 1e-4; they find 0.21 in 10 iterations. Different here: contact
is solved by our engine, which finds another friction, and the floor is a plane at height 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console

from pullback.core.device import find_device
from pullback.core.errors import PullbackError
from pullback.description.assets.rows import sphere
from pullback.description.load import read
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.tasks.common.comparison import Comparison, compare_methods, draw_curves, report
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import cross, print_files, write_figure, write_motion, write_replay

Tensor = torch.Tensor

DT, STEPS = 1e-3, 1000
SPEED = 1.0
START = 0.002
"""Initial friction."""
SEEN = {"default": 0.75, "released": 0.8}
"""Where the car was after a second [m]."""
WHEEL = 0.05
NEAR = 1.0
"""Largest error of a good estimate, in percent of the distance."""


@dataclass
class Options:
    """How to estimate."""

    variant: Literal["default", "released"] = "default"
    """The car on the floor, or the numbers of the released experiment."""
    wheels: Literal["locked", "free"] | None = None
    """Whether wheels turn; by default locked, released free."""
    seen: float | None = None
    """Where the car was after a second [m]; by default 0.75, released 0.8."""
    iterations: int = 10
    """Iterations of the gradient method: rollouts with their backward pass."""
    random_iterations: int = 10
    """Iterations of random search, each 8 rollouts; 0 leaves it out. (CMA-ES needs two numbers or more.)"""
    seed: int = 0
    """Seed of the random search."""
    out: Path = Path("out")
    """Folder for trajectory, picture and replay."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Estimate:
    """The result: the friction, the motion with it, its error [% of the distance], and both searches."""

    friction: float
    motion: Trajectory
    miss: float
    comparison: Comparison
    picture: Path
    replay: Path | None


def run(options: Options) -> Estimate:
    """Estimate by gradients and by random search, print both, and save the motion, a picture and a replay."""
    seen = SEEN[options.variant] if options.seen is None else options.seen
    if not 0.0 < seen < SPEED * DT * STEPS:
        raise PullbackError(f"seen is {seen:g}; a car of {SPEED:g} m/s that friction slows ends between 0 and 1 m")
    check_at_least(options, iterations=1, random_iterations=0)
    console = Console()
    device = find_device(options.device)
    released = options.variant == "released"
    wheels = options.wheels or ("free" if released else "locked")
    with console.status("compiling the kernels, once on a machine"):
        car = Car(released, wheels == "locked", seen, device)
        car.loss(car.start().requires_grad_()).sum().backward()
    comparison = car.compare(options, console)
    with torch.no_grad():
        motion = car.rollout(comparison.gradient.best[None])
    friction, end = comparison.gradient.best.item(), motion.q[-1, 0, 0].item()
    miss = 100 * abs(end - seen) / seen
    report(
        comparison, console, f"distance of the car from where it was seen ({options.variant}, wheels {wheels})", NEAR
    )
    console.print(f"friction {friction:.4f}: the car ends at {end:.4f} m, {miss:.2g} % from {seen:g} m")
    if miss > NEAR:
        console.print("[yellow]not explained by friction alone: with free wheels a car may not be slowed enough[/]")
    name = "racecar" if not released else "racecar_released"
    still = motion.q.new_zeros(STEPS, 0)
    npz = write_motion(options.out / f"{name}.npz", car.sim, motion, still, **comparison.arrays)
    picture = draw(car, motion, comparison, options.out / f"{name}.png")
    lines = ("car/chassis", cross((seen, 0.0, 0.0)))
    page = options.out / f"{name}.html"
    shown = write_replay(car.sim, motion, page, console, title="a car that slides", paths=lines, fps=60.0)
    print_files(console, trajectory=npz, picture=picture, replay=shown)
    return Estimate(friction, motion, miss, comparison, picture, shown)


class Car:
    """The car on the floor, and the loss of a friction."""

    def __init__(self, released: bool, locked: bool, seen: float, device: torch.device | str = "cpu") -> None:
        self.released, self.seen = released, seen
        self.world = build(released, locked)
        self.sim: Sim = self.world.compile(dt=DT, dtype=torch.float64, device=device)
        begin = self.sim.initial_state()
        qd = begin.qd.clone()
        qd[:, 3] = SPEED
        self._begin = State(begin.q, qd)

    def start(self) -> Tensor:
        """Return the initial friction, (1,)."""
        return torch.full((1,), START, dtype=torch.float64, device=self.sim.device)

    def rollout(self, friction: Tensor) -> Trajectory:
        """Return the motion with frictions (B,), one world each."""
        self.world.set_shape("floor", friction=friction)
        worlds = len(friction)
        state = State(self._begin.q.repeat(worlds, 1), self._begin.qd.repeat(worlds, 1))
        return self.sim.rollout(state, STEPS)

    def loss(self, friction: Tensor) -> Tensor:
        """Return the squared distance [m²] from where the car was seen."""
        return (self.rollout(friction).q[-1, :, 0] - self.seen).square()

    def compare(self, options: Options, console: Console) -> Comparison:
        """Search by gradients and at random, from the same start."""
        gradient = {"method": "lbfgs", "iterations": options.iterations, "learning_rate": 0.01, "lower": 0.0}
        gradient["target"] = 1e-18
        if self.released:
            gradient |= {"method": "sgd", "learning_rate": 0.05, "target": 1e-4}
        search = {"method": "random", "iterations": options.random_iterations, "population": 8, "spread": 0.2}
        search |= {"lower": 0.0, "seed": options.seed}

        def percent(loss: Tensor) -> Tensor:
            return 100 * loss.sqrt() / self.seen

        return compare_methods(
            self.loss, self.start(), console, gradient=gradient, search=search, miss=percent, unit="%"
        )


def build(released: bool, locked: bool) -> World:
    """Return the car above or on the floor."""
    tree = read("racecar")
    for link in tree.links:
        if link.name.endswith("wheel"):
            link.shapes = [sphere(WHEEL, tuple(link.com.tolist()))]
    if locked:
        for joint in tree.joints:
            joint.type = "fixed"
    world = World(gravity=(0.0, 0.0, -9.8 if released else -9.81))
    world.add_ground(name="floor", friction=START)
    robot = load(tree, "floating", dtype=torch.float64)
    height, turned = (0.5, (1.0, 0.0, 0.0, 0.0)) if released else (0.0, None)
    world.add(robot, name="car", position=(0.0, 0.0, height), orientation=turned, actuators={})
    return world


def draw(car: Car, motion: Trajectory, comparison: Comparison, path: Path) -> Path:
    """Draw where the car goes, at the start and as found, the friction tried, and the curves; return the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.0, 4.5), layout="constrained")
    axes = figure.subplots(1, 3)
    with torch.no_grad():
        before = car.rollout(car.start())
    time = DT * torch.arange(STEPS + 1)
    axes[0].plot(time, before.q[:, 0, 0].cpu(), color="lightgray", label=f"friction {START:g}, initial")
    found = comparison.gradient.best.item()
    axes[0].plot(time, motion.q[:, 0, 0].cpu(), color="tab:blue", label=f"friction {found:.4f}, as found")
    axes[0].plot(time[-1], car.seen, "x", color="tab:red", markersize=12, label="seen")
    axes[0].set(title="where the car is", xlabel="time [s]", ylabel="x [m]")
    axes[0].legend(fontsize=8)
    axes[0].grid(alpha=0.3)
    draw_curves(axes[1:], comparison, NEAR)
    return write_figure(figure, path)
