"""Find Young's modulus and Poisson's ratio of a soft cube from the way it bounces.

A cube of rubber, of material points, falls on a floor without friction: it is squashed, bulges, and wobbles on its way
up. Seen are all particles at a few moments, with noise of a millimetre in each coordinate. Sought are E and nu, each
between bounds, from first guesses between them, by Levenberg–Marquardt: first on the early moments, then on
all. The wobble's frequency gives E, how far the sides bulge gives nu. All seeds are searched side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pullback.rigid.world.world import World
from pullback.soft import Domain, Elastic, SoftRollout, SoftSim, block
from pullback.tasks.common.least_squares import GuessOptions, solve_in_stages
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_arrays, write_figure, write_replay

Tensor = torch.Tensor

EDGE, CELL, START, SPEED = 0.1, 0.02, 0.02, 1.5
"""Of the cube and of the grid [m]; its height above the floor [m] and speed downwards [m/s] at the start."""
DT, STEPS, SEEN, EARLY = 4e-4, 400, (50, 100, 150, 200, 250, 300, 350, 400), 2
"""Length of a step [s], steps, those after which the cube is seen, and how many of these are early ones."""
TRUTH = {"youngs": 2e4, "poisson": 0.35}
BOUNDS = {"youngs": (5e3, 6e4), "poisson": (0.05, 0.47)}
"""Between which E [Pa] and nu are sought."""
DENSITY, VISCOSITY, NOISE = 1000.0, 2.0, 1e-3
FAR = 2.5
"""First guesses are up to this far from the middle of the bounds, whose ends are at infinity."""
GOAL = 0.01
"""E and nu within this share of the truth count as a success."""


@dataclass
class Options(GuessOptions):
    """How to identify."""

    iterations: int = 10
    """The most iterations on the early moments, and again on all: five falls of the cube each, for each guess."""


@dataclass
class Identified:
    """The result: E and nu of each guess over the iterations (N, S, 2), misses [m] (N, S), successes (S,).

    The first `early` of the N points are those of the search on the early moments; a miss is one of what was fitted.
    standard_errors (S, 2): those of the last numbers, as residuals and Jacobian imply them.
    """

    numbers: Tensor
    losses: Tensor
    standard_errors: Tensor
    success: Tensor
    early: int
    picture: Path


def run(options: Options) -> Identified:
    """Identify from all guesses, print a table, and save numbers, picture and replay."""
    check_at_least(options, iterations=1, guesses=1)
    console = Console()
    sim, true = build(), torch.tensor([list(TRUTH.values())], dtype=torch.float64)
    with torch.no_grad(), console.status("letting the cube fall, and compiling kernels, once on a machine"):
        truth = rollout(sim, true, frames=10)
    seeds = range(options.seed, options.seed + options.guesses)
    at = [int(np.flatnonzero(truth.frames == step)[0]) for step in SEEN]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    guess = torch.stack([FAR * (2.0 * torch.rand(2, generator=g, dtype=torch.float64) - 1.0) for g in generators])
    x = truth.x[at, 0].double()
    noise = [torch.randn(x.shape, generator=g, dtype=x.dtype) for g in generators]
    seen = torch.stack([x + NOISE * each for each in noise], 1)

    def predict(z: Tensor, count: int) -> Tensor:
        return rollout(sim, inside(z), SEEN[:count], SEEN[count - 1]).x.double()

    fits = solve_in_stages(predict, seen, guess, (EARLY, len(SEEN)), options, console)
    numbers = torch.cat([inside(torch.stack(fit.path)) for fit in fits])
    losses = torch.cat([torch.stack(fit.losses) for fit in fits]).mul(3.0).sqrt()
    errors = fits[-1].standard_errors() * slope(fits[-1].z)
    success = ((numbers[-1] / true - 1.0).abs() < GOAL).all(1)
    found = Identified(numbers, losses, errors, success, len(fits[0].path), options.out / "identify_soft.png")
    report(found, seeds, console)
    arrays = {"x": truth.x[:, 0], "times": truth.times, "standard_errors": errors}
    saved = write_arrays(options.out / "identify_soft.npz", numbers=numbers, losses=losses, **arrays)
    draw(found, truth)
    page = replay(truth, options.out / "identify_soft.html", console)
    print_files(console, numbers=saved, picture=found.picture, replay=page)
    return found


def build() -> SoftSim:
    """Return the cube above the floor, on its way down."""
    half = 0.5 * EDGE
    rubber = Elastic(youngs=TRUTH["youngs"], poisson=TRUTH["poisson"], density=DENSITY, viscosity=VISCOSITY)
    cube = block(
        (-half, -half, START), (half, half, START + EDGE), spacing=0.5 * CELL, name="cube",
        material=rubber, velocity=(0.0, 0.0, -SPEED),
    )  # fmt: skip
    room = Domain((-EDGE, -EDGE, 0.0), (EDGE, EDGE, 3.0 * EDGE), CELL, sides={"z-": "separate"})
    return SoftSim(room, [cube], dt=DT, gravity=(0.0, 0.0, -9.81), dtype=torch.float64)


def rollout(sim: SoftSim, numbers: Tensor, frames: int | tuple[int, ...], steps: int = STEPS) -> SoftRollout:
    """Return the fall for each row of E and nu (R, 2); NaN where a particle fails."""
    youngs, poisson = numbers.T[..., None]
    rubber = Elastic(youngs=youngs, poisson=poisson, density=DENSITY, viscosity=VISCOSITY)
    return sim.rollout(sim.state(len(numbers)), steps, materials={"cube": rubber}, frames=frames, check=False)


def inside(z: Tensor) -> Tensor:
    """Return E and nu (..., 2) of unknowns z without bounds: E evenly in its logarithm, nu evenly."""
    share = torch.sigmoid(z)
    (low, high), (least, most) = BOUNDS.values()
    return torch.stack([low * (high / low) ** share[..., 0], least + (most - least) * share[..., 1]], -1)


def slope(z: Tensor) -> Tensor:
    """Return the derivative of E and nu (..., 2) by their own unknowns."""
    share = torch.sigmoid(z)
    (low, high), (least, most) = BOUNDS.values()
    wide = torch.stack([log(high / low) * inside(z)[..., 0], torch.full_like(z[..., 1], most - least)], -1)
    return wide * share * (1.0 - share)


def report(found: Identified, seeds: range, console: Console) -> None:
    """Print what each guess came to."""
    table = Table(title=f"{int(found.success.sum())} of {len(seeds)} within {GOAL:.0%} of E and nu; truth {TRUTH}")
    for header in ("seed", "guess", "E", "error", "nu", "error", "miss", ""):
        table.add_column(header, justify="right")
    true = list(TRUTH.values())
    for k, seed in enumerate(seeds):
        (E0, nu0), (E, nu), (dE, dnu) = (
            x.tolist() for x in (found.numbers[0, k], found.numbers[-1, k], found.standard_errors[k])
        )
        table.add_row(
            str(seed), f"{1e-3 * E0:.1f} kPa, {nu0:.2f}", f"{1e-3 * E:.2f} ± {1e-3 * dE:.2f} kPa",
            f"{E / true[0] - 1.0:+.2%}", f"{nu:.4f} ± {dnu:.4f}", f"{nu / true[1] - 1.0:+.2%}",
            f"{1e3 * found.losses[-1, k]:.2f} mm", "ok" if found.success[k] else "missed",
        )  # fmt: skip
    console.print(table)
    console.print(f"the miss of noise alone is {1e3 * NOISE * 3**0.5:.2f} mm")


def draw(found: Identified, truth: SoftRollout) -> Path:
    """Draw the cube from the side at five moments, both numbers and the misses over the iterations; return the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 7.5), layout="constrained")
    grid = figure.add_gridspec(2, 15)
    x = truth.x[:, 0]
    for k, shot in enumerate(np.linspace(0, len(x) - 1, 5).round().astype(int)):
        panel = figure.add_subplot(grid[0, 3 * k : 3 * k + 3])
        panel.scatter(x[shot, :, 0], x[shot, :, 2], s=3, color="#7088c0")
        panel.axhline(0.0, color="black", linewidth=1)
        panel.set(title=f"{truth.times[shot]:.2f} s", xlim=(-0.8 * EDGE, 0.8 * EDGE), ylim=(-0.1 * EDGE, 2.2 * EDGE))
        panel.set(aspect="equal", xlabel="x [m]", ylabel="" if k else "z [m]")
    panels = [figure.add_subplot(grid[1, 5 * k : 5 * k + 5]) for k in range(3)]
    for i, (name, true) in enumerate(TRUTH.items()):
        panels[i].plot(found.numbers[:, :, i], linewidth=1)
        panels[i].axhline(true, color="black", linewidth=0.8, label="truth")
        panels[i].set(title={"youngs": "E [Pa]", "poisson": "nu"}[name], xlabel="iteration")
    panels[0].set(yscale="log")
    panels[2].plot(1e3 * found.losses, linewidth=1)
    panels[2].axhline(1e3 * NOISE * 3**0.5, color="black", linewidth=0.8, label="noise")
    panels[2].set(title="miss [mm]", xlabel="iteration", yscale="log")
    for panel in panels:
        panel.axvline(found.early - 0.5, color="gray", linestyle=":", linewidth=1, label="all moments from here")
        panel.legend(fontsize=8)
        panel.grid(alpha=0.3)
    return write_figure(figure, found.picture)


def replay(truth: SoftRollout, path: Path, console: Console) -> Path | None:
    """Write a replay of the fall, beside a ball that shows its size."""
    world = World()
    world.add_plane("ground")
    world.add_sphere("ball", radius=0.02, mass=0.03, position=(0.15, 0.0, 0.02))
    rigid = world.compile(dt=10 * DT)
    motion = rigid.rollout(rigid.initial_state(1), torch.zeros(STEPS // 10, 1, rigid.nu))
    drawn = {"particles": (truth.times, truth.x[:, 0]), "forces": False, "title": "a soft cube bounces"}
    return write_replay(rigid, motion, path, console, **drawn)
