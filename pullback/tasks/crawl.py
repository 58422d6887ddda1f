"""Teach a soft crawler to move on its four muscles: gradients compared with CMA-ES.

A body of soft rubber stands on four legs, each a muscle that shortens and lengthens along its height; the ground has
friction. In the plane, after the robot of ChainQueen (Hu et al., ICRA 2019). The active stress of each leg is a sum of
four sine waves of one frequency and different phases, pressed into its bounds by a tanh: 20 numbers are sought, so that
the body is as far to the right as possible after 1.5 s. At the start muscles twitch at random. Gravity is 3.8 m/s², as
there: under ours such soft legs buckle.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from pullback.core.device import find_device
from pullback.soft import Domain, Elastic, SoftRollout, SoftSim, block
from pullback.tasks.common.comparison import Comparison, compare_methods, draw_curves, report
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_arrays, write_figure

Tensor = torch.Tensor

CELL = 1.0 / 48.0
DT, STEPS = 1.5e-3, 1000
GRAVITY, FRICTION = 3.8, 0.8
YOUNGS, POISSON, DENSITY = 1e4, 0.3, 1000.0
PULL = 4e3
"""Largest active stress of a muscle, either way [Pa]."""
BEAT, WAVES = 2.0, 4
"""Frequency of the waves [Hz], and how many there are."""
START, BODY, LEG = (0.2, 0.01), (0.3, 0.1), (0.05, 0.1)
LEGS = (0.0, 0.05, 0.2, 0.25)
FAR = 1.0
"""The loss is how much the way [m] is short of this."""
GOAL = 0.3
"""A way [m] that counts as a success."""
NOISE = 0.3
"""Of the numbers at the start."""
SHOTS = 5
"""Times at which the crawler is drawn."""


@dataclass
class Options:
    """How to learn."""

    iterations: int = 40
    """Iterations of the gradient method: rollouts with their backward pass."""
    cma_iterations: int = 20
    """Iterations of CMA-ES, each a population of rollouts; 0 leaves it out."""
    starts: int = 4
    """Movements that the gradient method starts from, simulated side by side."""
    learning_rate: float = 0.1
    """Step of Adam."""
    seed: int = 0
    """Seed of the first movements and of CMA-ES."""
    out: Path = Path("out")
    """Folder for trajectory and picture."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Gait:
    """The result: the numbers of the waves (20,), the motion, the way of the body [m], both searches."""

    waves: Tensor
    motion: SoftRollout
    way: float
    comparison: Comparison
    picture: Path


def run(options: Options) -> Gait:
    """Learn by gradients and by CMA-ES, print both, and save the motion and a picture."""
    check_at_least(options, iterations=1, cma_iterations=0, starts=1)
    console = Console()
    with console.status("compiling the kernels, once on a machine"):
        crawler = Crawler(find_device(options.device))
        start = crawler.first(options.seed, options.starts)
        crawler.loss(start.clone().requires_grad_()).sum().backward()
    gradient = {"method": "adam", "iterations": options.iterations, "learning_rate": options.learning_rate}
    search = {"iterations": options.cma_iterations, "seed": options.seed, "spread": NOISE}
    comparison = compare_methods(crawler.loss, start, console, gradient=gradient, search=search, miss=lambda loss: loss)
    waves = comparison.gradient.best
    with torch.no_grad():
        motion = crawler.rollout(waves.reshape(1, -1), frames=10)
    way = FAR - float(comparison.gradient.loss)
    report(comparison, console, f"how much the crawler's way in {DT * STEPS:g} s is short of {FAR:g} m", FAR - GOAL)
    console.print(f"the body goes {way:.3f} m" + ("" if way >= GOAL else f", less than the {GOAL:g} m of a success"))
    npz = write_arrays(
        options.out / "crawl.npz", x=motion.x[:, 0], times=motion.times, waves=waves,
        actuation=crawler.actuation(waves.reshape(1, -1))[:, 0], **comparison.arrays,
    )  # fmt: skip
    picture = draw(crawler, waves, motion, comparison, options.out / "crawl.png")
    print_files(console, trajectory=npz, picture=picture)
    return Gait(waves, motion, way, comparison, picture)


class Crawler:
    """The robot on the ground, and the loss of a gait."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.sim = build(device)
        time = DT * torch.arange(STEPS, dtype=torch.float64)
        phases = 2.0 * pi * torch.arange(WAVES) / WAVES
        self.sines = torch.sin(2.0 * pi * BEAT * time[:, None] + phases).to(device, self.sim.dtype)
        self.begin = self.sim.state().x[self.sim.of("body"), 0].mean()

    def first(self, seed: int, count: int = 1) -> Tensor:
        """Return random waves to begin with (count, 20)."""
        generator = torch.Generator().manual_seed(seed)
        return (NOISE * torch.randn(count, len(LEGS) * (WAVES + 1), generator=generator)).to(self.sines)

    def actuation(self, waves: Tensor) -> Tensor:
        """Return the active stresses (N, B, 4) [Pa] of waves (B, 20): amplitudes by leg and phase, then means."""
        legs = len(LEGS)
        amplitudes = waves[:, : legs * WAVES].reshape(-1, legs, WAVES)
        return PULL * torch.tanh(torch.einsum("tw,blw->tbl", self.sines, amplitudes) + waves[:, legs * WAVES :])

    def rollout(self, waves: Tensor, frames: int | None = None) -> SoftRollout:
        """Return the motion of each row of waves (B, 20); NaN if the crawler is torn."""
        state = self.sim.state(len(waves))
        return self.sim.rollout(state, STEPS, actuation=self.actuation(waves), frames=frames, check=False)

    def loss(self, waves: Tensor) -> Tensor:
        """Return by how much [m] the way of the body is short of FAR, (B,)."""
        final = self.rollout(waves.to(self.sines)).final
        return FAR - (final.x[:, self.sim.of("body"), 0].mean(1) - self.begin)


def build(device: torch.device | str = "cpu") -> SoftSim:
    """Return the crawler on the ground."""
    rubber = Elastic(youngs=YOUNGS, poisson=POISSON, density=DENSITY, model="fixed_corotated")
    left, ground = START
    top = ground + LEG[1]
    settings = {"spacing": CELL / 2.0, "material": rubber}
    bodies = [block((left, top), (left + BODY[0], top + BODY[1]), name="body", **settings)]
    for k, x in enumerate(LEGS):
        corners = (left + x, ground), (left + x + LEG[0], top)
        bodies.append(block(*corners, name=f"leg {k}", actuator=k, fibre=(0.0, 1.0), **settings))
    domain = Domain((0.0, 0.0), (2.0, 0.6), CELL, sides={"y-": "separate"}, friction=FRICTION)
    return SoftSim(domain, bodies, dt=DT, gravity=(0.0, -GRAVITY), device=device)


def draw(crawler: Crawler, waves: Tensor, motion: SoftRollout, comparison: Comparison, path: Path) -> Path:
    """Draw the crawler on its way, its muscles' commands, and the curves; return the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 8.5), layout="constrained")
    panels = figure.subplot_mosaic([["way", "pull"], ["way", "iterations"], ["way", "seconds"]])
    top, *below = panels.values()
    sim, x = crawler.sim, motion.x[:, 0].cpu()
    group = np.repeat(np.arange(len(sim.bodies)), [len(body) for body in sim.bodies])
    for row, k in enumerate(np.linspace(0, len(x) - 1, SHOTS).round().astype(int)):
        ground = -0.3 * row
        top.axhline(ground, color="black", linewidth=1)
        top.scatter(x[k, :, 0], ground + x[k, :, 1], c=group, cmap="tab10", vmax=9, s=3, linewidths=0)
        top.text(0.98, ground + 0.24, f"{motion.times[k]:.2f} s", transform=top.get_yaxis_transform(), ha="right")
    top.set(title="on its way", xlabel="x [m]", yticks=[], aspect="equal")
    time = DT * np.arange(STEPS)
    pulls = crawler.actuation(waves.reshape(1, -1))[:, 0].cpu()
    for k in range(len(LEGS)):
        below[0].plot(time, 1e-3 * pulls[:, k], color=f"C{k + 1}", label=f"leg {k}")
    below[0].set(title="active stress", xlabel="time [s]", ylabel="[kPa]", xlim=(0.0, 1.0))
    below[0].legend(fontsize=8, loc="upper right")
    below[0].grid(alpha=0.3)
    draw_curves(below[1:], comparison, FAR - GOAL)
    return write_figure(figure, path)
