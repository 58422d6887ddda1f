"""Give every layer of a printed wall the same time at the temperatures that age it.

Layers of a thin wall of Inconel 718 are reheated by the layers above them. How long a point stays between two
temperatures at which precipitates form sets how hard it becomes, and with a constant power some layers stay for twenty
seconds and others for two. Power over time, as knots within bounds, is optimised until all are near the target
time, while every layer still melts when it is printed. The time is smoothed by sigmoids at both temperatures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from rich.console import Console

import pullback.thermal as th
from pullback.core.device import find_device
from pullback.core.errors import PullbackError
from pullback.tasks.common.options import settings_of
from pullback.tasks.common.printing import print_numbers
from pullback.thermal import report
from pullback.thermal.objectives import heat_treatment_time

Tensor = torch.Tensor

LAYER, THICKNESS = 0.75e-3, 3e-3
"""Height of a layer and thickness of the wall [m]."""
CELL = (1e-3, 1e-3, LAYER)
SPEED = 7e-3
"""Speed of the beam [m/s]."""
PAUSE = 0.5
"""Pause [s] between two layers; with the way up 0.607 s."""
COOLING = 15.0
"""Simulated time [s] after the last track."""
DT = 0.025
AMBIENT = 300.0
MATERIAL = th.material("in718")
LIQUIDUS = float(MATERIAL.liquidus or 0.0)
BOUNDS = (250.0, 750.0)
"""Bounds of the power [W]."""
START = 500.0
WINDOW = (823.0, 993.0)
"""Temperatures [K] at which transformations of aged Inconel 718 begin on heating (Agazhanov et al. 2019)."""
SIZES = {"short": (0.015, 12), "full": (0.045, 40)}
"""Length of the wall [m] and its layers."""
MELT_MARGIN, MELT_SCALE = 25.0, 25.0
"""Required temperature [K] above the liquidus, and the shortfall [K] that counts as much as a second."""


@dataclass
class Options:
    """How to give every layer of a wall the same time between two temperatures."""

    wall: Literal["short", "full"] = "short"
    """The full wall of 45 mm and 40 layers, or one of 15 mm and 12 layers."""
    target: float = 5.0
    """Time [s] each layer should stay between the two temperatures."""
    low: float = WINDOW[0]
    """The lower temperature [K]."""
    high: float = WINDOW[1]
    """The upper temperature [K]."""
    width: float = 10.0
    """Width [K] of the sigmoids at both."""
    skip: int = 2
    """Layers at the bottom that do not count: the cold plate cools them."""
    knots: int = 24
    """Knots of the power over time."""
    iterations: int = 30
    """Iterations of the optimiser."""
    optimizer: Literal["adam", "lbfgs"] = "lbfgs"
    """The optimiser."""
    learning_rate: float | None = None
    """Learning rate; none: 0.05 for adam, 1 for lbfgs."""
    seed: int = 0
    """Seed of the small differences between the knots at the start."""
    fresh: bool = False
    """Start over; otherwise an interrupted run in the same folder is resumed."""
    out: Path = Path("out/heat-treatment")
    """Folder for the report, the pictures, the temperatures (VTK) and the checkpoint."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Treated:
    """The result: powers [W] (steps,), temperatures [K] (steps + 1, layers) in the middle of layers, the search."""

    process: th.Process
    start: Tensor
    power: Tensor
    start_temperatures: Tensor
    temperatures: Tensor
    result: th.Design
    report: Path | None = None
    series: Path | None = None


def run(options: Options) -> Treated:
    """Design the power, print with it, and report."""
    check(options)
    console = Console(highlight=False)
    process = build(options)
    probes = process.probes(points(options))
    # before a layer is printed, a probe inside it reads the corners of the layer below: masked
    there = torch.as_tensor(process.times[:, None] >= process.births_at(points(options))).to(process.device)
    console.print(f"{process.mesh.summary()}\n{process.steps:,} steps of {process.dt:g} s")
    generator = torch.Generator().manual_seed(options.seed)
    jitter = 2.0 * torch.rand(options.knots, dtype=torch.float64, generator=generator) - 1.0
    power = th.KnotPower(process.steps, BOUNDS, options.knots, start=START + jitter, dtype=process.dtype)
    power.to(process.device)
    start = power().detach()

    def print_with(watts: Tensor, snapshots: Sequence[int] = ()) -> tuple[Tensor, th.History]:
        history = process.run(watts, probes=probes, snapshots=snapshots)
        return torch.where(there, history.probes, AMBIENT), history

    def loss() -> Tensor:
        return loss_of(print_with(power())[0], process.times, options)

    rate = options.learning_rate
    result = th.design(
        loss,
        power,
        optimizer=options.optimizer,
        iterations=options.iterations,
        learning_rate=0.05 if rate is None and options.optimizer == "adam" else rate,
        folder=options.out,
        resume=not options.fresh,
        settings=settings_of(asdict(options)),
        title="designing the power",
        console=console,
    )
    with torch.no_grad():
        before, _ = print_with(start)
        after, history = print_with(power(), range(0, process.steps + 1, round(1.0 / DT)))
    found = Treated(process, start.cpu(), power().detach().cpu(), before.cpu(), after.cpu(), result)
    write(found, history, options, console)
    return found


def check(options: Options) -> None:
    """Raise for invalid options."""
    layers = SIZES[options.wall][1]
    if not 0 <= options.skip < layers:
        raise PullbackError(f"skip is {options.skip}; the wall has {layers} layers, and some must count")
    if not options.target > 0.0:
        raise PullbackError(f"target is {options.target:g} s; give a positive time")


def build(options: Options) -> th.Process:
    """Return the print of the wall: one track per layer, in alternating directions."""
    length, layers = SIZES[options.wall]
    mesh = th.box_on_plate((length, THICKNESS, layers * LAYER), CELL, plate=(length + 0.015, 0.02, 0.006))
    path = th.layers(mesh, speed=SPEED, hatch=THICKNESS, dwell=PAUSE)
    return th.Process(
        mesh,
        path,
        material=MATERIAL,
        births=th.births(mesh, path),
        dt=DT,
        duration=path.duration + COOLING,
        source=th.Gaussian(radius=1.12e-3, absorptivity=0.4),
        convection=50.0,
        emissivity=0.2,
        ambient=AMBIENT,
        initial=AMBIENT,
        birth_temperature=AMBIENT,
        fixed={"bottom": AMBIENT},
        dtype=torch.float32,
        device=find_device(options.device),
    )


def points(options: Options) -> np.ndarray:
    """Return the middle of each layer (layers, 3) [m]."""
    z = (np.arange(SIZES[options.wall][1]) + 0.5) * LAYER
    return np.stack([np.zeros_like(z), np.zeros_like(z), z], 1)


def times_of(temperatures: Tensor, times: np.ndarray, options: Options) -> Tensor:
    """Return how long [s] each layer stays between the two temperatures, (layers,)."""
    return heat_treatment_time(temperatures, times, options.low, options.high, options.width)


def loss_of(temperatures: Tensor, times: np.ndarray, options: Options) -> Tensor:
    """Return the squared error of the layers' times [s²], plus a penalty for layers that do not melt."""
    unmelted = (LIQUIDUS + MELT_MARGIN - temperatures.amax(0)).clamp(min=0.0) / MELT_SCALE
    missed = times_of(temperatures, times, options)[options.skip :] - options.target
    return missed.square().mean() + unmelted.square().mean()


def write(found: Treated, history: th.History, options: Options, console: Console) -> None:
    """Write the numbers, the pictures and the temperatures."""
    process, result, out = found.process, found.result, options.out
    before, after = (times_of(T, process.times, options) for T in (found.start_temperatures, found.temperatures))
    melted = int((found.temperatures.amax(0) > LIQUIDUS).sum())
    numbers = {
        "nodes, elements, steps": f"{len(process.mesh.nodes):,}, {len(process.mesh.elements):,}, {process.steps:,}",
        "target": f"{options.target:g} s from {options.low:g} to {options.high:g} K, layers {options.skip + 1} on",
        "iterations": len(result.losses),
        "initial loss [s²]": result.losses[0],
        "final loss [s²]": result.best_loss,
        "rms error of the time at the start [s]": off(before, options),
        "final rms error of the time [s]": off(after, options),
        "shortest and longest time at the start [s]": _range(before[options.skip :]),
        "final shortest and longest time [s]": _range(after[options.skip :]),
        "layers that melt": f"{melted} of {len(after)}",
        "seconds per iteration": result.seconds / len(result.losses),
    }
    print_numbers("time at temperature", numbers, console)
    count = len(after)
    shown = np.unique(np.linspace(options.skip, count - 1, 4).round().astype(int))
    layer = np.arange(1, count + 1)
    target = (np.array([options.skip + 1, count]), np.full(2, options.target))
    pictures = {
        "power": report.plot_power(
            out / "power.png", process.times, found.power, start=found.start, on=process.on, bounds=BOUNDS
        ),
        "time between the temperatures": report.plot_lines(
            out / "times.png",
            {"constant power": (layer, before), "found": (layer, after), "target": target},
            "layer",
            "time [s]",
            title=f"time between {options.low:g} and {options.high:g} K",
            marker="o",
        ),
        "temperature in the middle of layers": report.plot_histories(
            out / "histories.png",
            process.times,
            found.temperatures[:, shown],
            [f"layer {k + 1}" for k in shown],
            start=found.start_temperatures[:, shown],
            born=process.births_at(points(options))[shown],
            band=(options.low, options.high),
            levels={"liquidus": LIQUIDUS},
        ),
        "loss": report.plot_loss(out / "loss.png", result.losses),
    }
    found.series = th.write_vtk(out / "temperatures.pvd", process, history)
    files = {"temperatures over time": found.series}
    found.report = report.write_report(
        out, "Time at temperature in a wall", numbers, pictures, text=__doc__ or "", files=files
    )
    console.print(f"report: {found.report}")


def off(times: Tensor, options: Options) -> float:
    """Return the root-mean-square error of the layers' times [s]."""
    return (times - options.target)[options.skip :].square().mean().sqrt().item()


def _range(times: Tensor) -> str:
    return f"{times.min().item():.2f}, {times.max().item():.2f}"
