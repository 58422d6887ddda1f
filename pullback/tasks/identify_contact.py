"""Identify masses, frictions and sizes from motion computed by another engine, MuJoCo.

`push`: a finger pushes a sled over the ground with a known force; its mass and its friction are unknown. `roll`: a ball
is thrown along the ground; its friction and its radius are unknown. `arm`: a seven-joint arm waves; the masses of six
links and the damping of all joints are unknown. Each is sampled at 100 Hz, noise is added, and the parameters are
identified by Levenberg–Marquardt, Adam and CMA-ES.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pullback.control.identify.ambiguity import AmbiguityWarning
from pullback.control.identify.identify import Identification, identify
from pullback.control.identify.windows import Recording
from pullback.core.errors import PullbackError
from pullback.tasks.common.mujoco_scenes import Scene, make_scene, with_noise
from pullback.tasks.common.outputs import write_arrays, write_figure

Tensor = torch.Tensor
Chosen = Literal["lm", "adam", "cma"]

TITLES = {"lm": "Levenberg–Marquardt", "adam": "Adam", "cma": "CMA-ES"}


@dataclass
class Options:
    """How to identify parameters of a world from MuJoCo's motion."""

    scene: Literal["push", "roll", "arm"] = "push"
    """What moves: a pushed sled, a ball that slides and rolls, or an arm."""
    noise: float = 0.0
    """Noise of the measurements, relative to the standard deviation of each."""
    window: int = 0
    """Samples predicted from one measured state; 0: the default of the scene."""
    methods: tuple[Chosen, ...] = ("lm", "adam", "cma")
    """Methods to run, one after the other."""
    iterations: int = 0
    """The most iterations of each; 0: the default of the method."""
    seconds: float = 0.0
    """Duration of each motion [s]; 0: the default of the scene."""
    seed: int = 0
    """Seed of the motion, of the noise and of CMA-ES."""
    out: Path = Path("out")
    """Folder for the picture and the figures."""


@dataclass
class Found:
    """The true parameters, and the result of each search."""

    scene: Scene
    true: Tensor
    searches: dict[str, Identification] = field(default_factory=dict)
    picture: Path | None = None

    def error(self, method: str) -> Tensor:
        """Return the relative error of each parameter after a search."""
        return (self.searches[method].numbers / self.true - 1.0).abs()

    def errors_on_the_way(self, method: str) -> Tensor:
        """Return the largest relative error after each iteration."""
        return (torch.stack(self.searches[method].path) / self.true - 1.0).abs().amax(-1)


def run(options: Options) -> Found:
    """Record the motion, identify the parameters, print them beside the truth, and draw the searches."""
    check(options)
    console = Console()
    with console.status("simulating with MuJoCo; compiling kernels, once on a machine"):
        scene = make_scene(options.scene, seed=options.seed, seconds=options.seconds or None)
    recordings = scene.recordings
    if options.noise > 0.0:
        recordings = with_noise(recordings, options.noise, torch.Generator().manual_seed(options.seed))
    windows = scene.noisy_windows if options.noise > 0.0 else scene.windows
    windows = (options.window,) if options.window else windows
    found = Found(scene, torch.tensor(list(scene.true.values()), dtype=torch.float64))
    for method in options.methods:
        with warnings.catch_warnings():
            # printed with the table
            warnings.simplefilter("ignore", AmbiguityWarning)
            found.searches[method] = search(scene, recordings, method, windows, options)
        if found.searches[method].interrupted:
            break
    report(found, options, console)
    name = f"identify_contact_{options.scene}"
    found.picture = draw(found, options, options.out / f"{name}.png")
    save(found, options.out / f"{name}.npz")
    console.print(f"picture: {found.picture}")
    return found


def search(
    scene: Scene, recordings: list[Recording], method: Chosen, windows: tuple[int, ...], options: Options
) -> Identification:
    """Identify with windows of one length after the other, each warm-started from the last result."""
    unknowns, found = scene.unknowns, None
    for window in windows:
        before = found
        found = identify(
            *(scene.sim, recordings, unknowns),
            method=method, window=window, iterations=options.iterations or None, seed=options.seed, progress=True,
        )  # fmt: skip
        if before is not None:
            found.losses = before.losses + found.losses
            found.seconds = before.seconds + [before.seconds[-1] + x for x in found.seconds]
            found.path = before.path + found.path
        if found.interrupted:
            break
        unknowns = [replace(each, start=None) for each in unknowns]
    assert found is not None
    return found


def check(options: Options) -> None:
    """Raise for invalid options."""
    for name in ("noise", "window", "iterations", "seconds"):
        if not getattr(options, name) >= 0:
            raise PullbackError(f"{name} is {getattr(options, name)}; it cannot be negative")
    if not options.methods:
        raise PullbackError(f"methods is empty; choose from: {', '.join(TITLES)}")


def report(found: Found, options: Options, console: Console) -> None:
    """Print the result and the cost of each search, and what the data does not determine."""
    table = Table(title=f"{options.scene}: from MuJoCo's motion with {options.noise:.0%} noise")
    table.add_column("")
    table.add_column("true", justify="right")
    for method in found.searches:
        table.add_column(TITLES[method], justify="right")
    for row, entry in enumerate(found.scene.true):
        cells = []
        for method, each in found.searches.items():
            spread = "" if method == "cma" else f" ± {float(each.standard_error[row]):.1g}"
            cells.append(f"{float(each.numbers[row]):.4g}{spread} ({float(found.error(method)[row]):.2%})")
        table.add_row(entry, f"{float(found.true[row]):.4g}", *cells)
    table.add_section()
    searches = found.searches.values()
    table.add_row("largest error", "", *(f"{float(found.error(method).max()):.2%}" for method in found.searches))
    table.add_row("iterations", "", *(f"{len(each.losses) - 1}" for each in searches))
    table.add_row("seconds", "", *(f"{each.seconds[-1]:.1f}" for each in searches))
    table.add_row("loss", "", *(f"{each.losses[-1]:.3g}" for each in searches))
    console.print(table)
    for method, each in found.searches.items():
        console.print(f"{TITLES[method]}: {each.reason}")
    for each in next(iter(searches)).ambiguities:
        console.print(f"[yellow]{each.text}[/]")


def save(found: Found, path: Path) -> None:
    """Write parameters, losses and seconds of each search by iteration, and the motion."""
    arrays = {"true": found.true.numpy(), "entries": np.array(list(found.scene.true))}
    for method, each in found.searches.items():
        arrays[f"{method}_numbers"] = torch.stack(each.path).numpy()
        arrays[f"{method}_losses"], arrays[f"{method}_seconds"] = np.array(each.losses), np.array(each.seconds)
    for number, each in enumerate(found.scene.recordings):
        assert each.qd is not None
        assert each.controls is not None
        arrays |= {f"q{number}": each.q.numpy(), f"qd{number}": each.qd.numpy(), f"u{number}": each.controls.numpy()}
    arrays["dt"] = np.array(found.scene.recordings[0].dt)
    write_arrays(path, **arrays)


def draw(found: Found, options: Options, path: Path) -> Path:
    """Draw the loss and the largest error by iteration and by time; return the path."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 6.5), layout="constrained")
    figure.suptitle(f"{options.scene}: parameters from MuJoCo's motion, {options.noise:.0%} noise")
    axes = figure.subplots(2, 2, sharex="col", sharey="row")
    for number, (method, each) in enumerate(found.searches.items()):
        style = {"color": f"C{number}", "label": TITLES[method], "marker": ".", "markersize": 4}
        errors = 100.0 * found.errors_on_the_way(method)
        for row, values in zip(axes, (each.losses, errors)):
            row[0].loglog(np.arange(1, len(each.losses) + 1), values, **style)
            row[1].loglog(np.maximum(each.seconds, 1e-2), values, **style)
    bar = 5.0 if options.noise > 0.0 else 2.0
    for axis in axes[1]:
        axis.axhline(bar, color="gray", linestyle="--", label=f"{bar:g} %")
    axes[0, 0].set_ylabel("loss [noise²]")
    axes[1, 0].set(ylabel="largest error [%]", xlabel="iteration + 1")
    axes[1, 1].set_xlabel("time [s]")
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    axes[1, 0].legend(fontsize=8)
    return write_figure(figure, path)
