"""Find how stiff a cloth is from the way it drapes.

A square of cloth is held at a patch in its middle, above the ground, and let go: its corners swing down into folds.
Seen are all vertices at a few moments, with noise of a millimetre. Sought are three numbers, stiffness in the plane,
plate stiffness and damping, from first guesses that are wrong by up to a factor of five, by Levenberg–Marquardt in
their logarithms: first on the early moments, then on all, which have local minima far from the truth. Guesses of all
seeds are searched side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from pullback.rigid.world.world import World
from pullback.soft import ClothRollout, ClothSim, Fabric, sheet
from pullback.tasks.common.least_squares import GuessOptions, solve_in_stages
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_arrays, write_figure
from pullback.viewer.replay import save_replay

Tensor = torch.Tensor

SIDE, HEIGHT, CELLS = 0.4, 0.5, 8
DT, STEPS, SEEN, EARLY = 0.015, 40, (5, 10, 20, 30, 40), 2
"""Length of a step [s], steps, those after which the cloth is seen, and how many of these are early ones."""
TRUTH = {"youngs": 60.0, "bending": 8e-4, "damping": 0.02}
UNITS = {"youngs": "N/m", "bending": "N·m", "damping": "s"}
DENSITY, NOISE, WRONG = 0.25, 1e-3, 5.0
"""Mass [kg/m²], noise of what is seen [m], and the largest factor by which a guess is wrong."""
GOAL = 0.05
"""Found within this share counts as a success, for both stiffnesses."""


@dataclass
class Options(GuessOptions):
    """How to identify."""

    iterations: int = 12
    """The most iterations on the first moments, and again on all: six falls of the cloth each, for each guess."""
    replay: bool = True
    """Write a replay."""


@dataclass
class Drape:
    """The result: numbers of each guess over the iterations (N, S, 3), misses [m] (N, S), successes (S,).

    The first `early` of the N points are those of the search on the first moments; a miss is one of what was fitted.
    standard_errors (S, 3): relative ones of the last numbers, as residuals and Jacobian imply them.
    """

    numbers: Tensor
    losses: Tensor
    standard_errors: Tensor
    success: Tensor
    early: int
    picture: Path


def run(options: Options) -> Drape:
    """Identify from all guesses, print a table, and save numbers, picture and replay."""
    check_at_least(options, iterations=1, guesses=1)
    console = Console()
    sim = build()
    with torch.no_grad(), console.status("letting the cloth fall, and compiling kernels, once on a machine"):
        truth = rollout(sim, torch.tensor([[log(x) for x in TRUTH.values()]], dtype=torch.float64), frames=1)
    seeds = range(options.seed, options.seed + options.guesses)
    seen, guess = observations(truth, seeds), first_guesses(seeds)
    numbers, losses, early, errors = search(sim, seen, guess, options, console)
    found = numbers[-1] / torch.tensor(list(TRUTH.values()), dtype=torch.float64)
    success = ((found[:, :2] - 1.0).abs() < GOAL).all(1)
    result = Drape(numbers, losses, errors, success, early, options.out / "drape.png")
    report(console, list(seeds), result)
    arrays = {"x": truth.x[:, 0], "triangles": torch.as_tensor(sim.triangles), "standard_errors": errors}
    files = {"numbers": write_arrays(options.out / "drape.npz", numbers=numbers, losses=losses, **arrays)}
    files["picture"] = draw(sim, truth, result)
    if options.replay:
        files["replay"] = replay(sim, truth, options.out / "drape.html")
    print_files(console, **files)
    return result


def build() -> ClothSim:
    """Return the cloth, held at the nine vertices in its middle."""
    n, middle = CELLS + 1, CELLS // 2
    pins = [i * n + j for i in (middle - 1, middle, middle + 1) for j in (middle - 1, middle, middle + 1)]
    corner = (-0.5 * SIDE, -0.5 * SIDE, HEIGHT)
    cloth = Fabric(density=DENSITY, **TRUTH)
    piece = sheet(corner, (SIDE, 0, 0), (0, SIDE, 0), cells=(CELLS, CELLS), name="cloth", material=cloth, pins=pins)
    return ClothSim([piece], dt=DT, gravity=(0.0, 0.0, -9.81), drag=1.0, dtype=torch.float64)


def rollout(sim: ClothSim, logs: Tensor, frames: int | tuple[int, ...] = SEEN, steps: int = STEPS) -> ClothRollout:
    """Return the fall of a cloth for each row of logarithms (S, 3) of the numbers; NaN where it cannot be solved."""
    numbers = dict(zip(TRUTH, logs.exp().T[..., None]))
    cloth = Fabric(density=DENSITY, **numbers)
    return sim.rollout(sim.state(len(logs)), steps, materials={"cloth": cloth}, frames=frames, check=False)


def observations(truth: ClothRollout, seeds: range) -> Tensor:
    """Return what is seen (M, S, n, 3): vertices at the moments of SEEN, with noise of each seed's own."""
    at = [int(np.flatnonzero(truth.frames == step)[0]) for step in SEEN]
    x = truth.x[at, 0]
    noise = [torch.randn(x.shape, generator=torch.Generator().manual_seed(s), dtype=x.dtype) for s in seeds]
    return torch.stack([x + NOISE * each for each in noise], 1)


def first_guesses(seeds: range) -> Tensor:
    """Return logarithms (S, 3) of numbers that are wrong by up to a factor of WRONG either way."""
    rows = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(1000 + seed)
        off = 2.0 * torch.rand(len(TRUTH), generator=generator, dtype=torch.float64) - 1.0
        rows.append(torch.tensor([log(x) for x in TRUTH.values()], dtype=torch.float64) + log(WRONG) * off)
    return torch.stack(rows)


def search(
    sim: ClothSim, seen: Tensor, guess: Tensor, options: Options, console: Console
) -> tuple[Tensor, Tensor, int, Tensor]:
    """Return numbers (N, S, 3), misses [m] (N, S), how many points are of the first search, and standard errors."""

    def predict(logs: Tensor, count: int) -> Tensor:
        return rollout(sim, logs, SEEN[:count], SEEN[count - 1]).x

    fits = solve_in_stages(predict, seen, guess, (EARLY, len(SEEN)), options, console)
    numbers = torch.cat([torch.stack(fit.path) for fit in fits]).exp()
    # a miss is a distance in space: three residuals a vertex
    losses = torch.cat([torch.stack(fit.losses) for fit in fits]).mul(3.0).sqrt()
    return numbers, losses, len(fits[0].path), fits[-1].standard_errors()


def report(console: Console, seeds: list[int], drape: Drape) -> None:
    """Print what each guess came to."""
    numbers = drape.numbers
    for k, seed in enumerate(seeds):
        ways = [
            f"{name} {numbers[0, k, i]:.3g} -> {numbers[-1, k, i]:.3g} {UNITS[name]} "
            f"({numbers[-1, k, i] / true - 1.0:+.1%} ± {drape.standard_errors[k, i]:.1%})"
            for i, (name, true) in enumerate(TRUTH.items())
        ]
        miss = f"misses by {1e3 * drape.losses[-1, k]:.2f} mm (noise {1e3 * NOISE * 3**0.5:.2f})"
        console.print(f"seed {seed}: {', '.join(ways)}; {miss}{'' if drape.success[k] else ', no success'}")
    count = f"{int(drape.success.sum())} of {len(seeds)}"
    console.print(f"{count} within {GOAL:.0%} of both stiffnesses; the truth is {TRUTH}")


def draw(sim: ClothSim, truth: ClothRollout, found: Drape) -> Path:
    """Draw the drape, the numbers and the misses over the iterations; return the file."""
    from matplotlib.figure import Figure

    numbers, losses = found.numbers, found.losses
    figure = Figure(figsize=(13.0, 4.2), layout="constrained")
    drape = figure.add_subplot(1, 3, 1, projection="3d")
    x = truth.final.x[0]
    drape.plot_trisurf(*x.T.numpy(), triangles=sim.triangles, color="#7088c0", edgecolor="#30405c", linewidth=0.3)
    drape.set(title=f"the drape after {DT * STEPS:g} s", xlabel="x [m]", ylabel="y [m]", zlabel="z [m]")
    drape.set_aspect("equal")
    panels = figure.add_subplot(1, 3, 2), figure.add_subplot(1, 3, 3)
    for i, (name, true) in enumerate(TRUTH.items()):
        lines = panels[0].plot(numbers[:, :, i] / true, color=f"C{i}", linewidth=1)
        lines[0].set_label(name)
    panels[0].axhline(1.0, color="black", linewidth=0.8)
    panels[0].set(title="numbers, of the true ones", xlabel="iteration", yscale="log")
    panels[0].legend(fontsize=8)
    panels[1].plot(1e3 * losses, linewidth=1)
    panels[1].axhline(1e3 * NOISE * 3**0.5, color="black", linewidth=0.8, label="noise")
    panels[1].set(title="miss [mm]", xlabel="iteration", yscale="log")
    panels[1].legend(fontsize=8)
    for panel in panels:
        panel.axvline(found.early - 0.5, color="gray", linestyle=":", linewidth=1)
        panel.text(found.early - 0.4, 0.02, "all moments", color="gray", transform=panel.get_xaxis_transform())
        panel.grid(alpha=0.3)
    return write_figure(figure, found.picture)


def replay(sim: ClothSim, truth: ClothRollout, path: Path) -> Path:
    """Write a replay of the fall, above a ball on the ground that shows its size."""
    world = World()
    world.add_plane("ground")
    world.add_sphere("ball", radius=0.04, mass=0.1, position=(0.0, 0.0, 0.04))
    rigid = world.compile(dt=DT)
    motion = rigid.rollout(rigid.initial_state(1), torch.zeros(STEPS, 1, rigid.nu))
    return save_replay(
        rigid, motion, path, title="a cloth drapes", particles=(truth.times, truth.x[:, 0], sim.triangles), forces=False
    )
