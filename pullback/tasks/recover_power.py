"""Recover a hidden pattern of laser power from the temperatures it left in an hourglass.

A part is printed with a power that varies at random. All that is known of it are the temperatures of the part, seen
once a second. A network of time starts with another power, and descends along the gradient of the squared error through
the whole print. The case is the one of Mozaffar et al., with its constants; the hidden pattern is ours, from a seed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import pi, sqrt
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console

import pullback.thermal as th
from pullback.core.device import find_device
from pullback.core.errors import PullbackError
from pullback.tasks.common.options import settings_of
from pullback.tasks.common.printing import chosen_nodes, print_numbers
from pullback.thermal import report

Tensor = torch.Tensor

FULL_POWER = 250.0
"""[W], all of it absorbed."""
PATTERN = (0.2, 1.0)
"""Bounds of the hidden power, as fractions of the full one."""
SPEED = 5e-3
"""Speed of the beam [m/s]."""
COOLING = 10.0
"""Simulated time [s] after the last track."""
MATERIAL = th.constant_material(conductivity=10.0, heat_capacity=500.0, density=30_000.0, name="published constants")
BEAM = sqrt(2 / 3)
"""A Gaussian of exp(−3 r²) is one of exp(−2 r²) of this radius."""
CELL = {"small": 2e-3, "full": 1e-3}
"""Edges of elements, height of layers and distance of tracks [m]; the beam's radius goes with them."""
PLATE = {"small": (0.05, 0.005), "full": (0.1, 0.01)}
DT = {"small": 0.2, "full": 0.02}
MOMENTS = 60
"""About how many moments are written as VTK."""
REDUCTION = 90.0
"""Target reduction of the loss: the published run has 94 after 200 iterations."""


@dataclass
class Options:
    """How to recover a hidden pattern of laser power."""

    size: Literal["small", "full"] = "small"
    """The published hourglass of 28 layers of 1 mm, or the same shape in 14 layers of 2 mm on a smaller plate."""
    mesh: Path | None = None
    """A keyword file (.k, .k.xz) with the part and its births in mm, in the place of our own hourglass."""
    toolpath: Path | None = None
    """The toolpath for it: a table of t, x, y, z, on, in mm."""
    iterations: int = 200
    """Iterations of the optimiser (Adam)."""
    learning_rate: float = 0.01
    """Learning rate of the optimiser."""
    observe: int | None = None
    """Steps between two observations of the temperatures; none: one second, 50 steps in the full case."""
    waves: int = 5
    """Waves of the hidden pattern over the print; it holds nothing faster."""
    precision: Literal["float32", "float64"] = "float32"
    """Of the simulation."""
    seed: int = 0
    """Seed of the hidden pattern and of the network."""
    fresh: bool = False
    """Start over; otherwise an interrupted run in the same folder is resumed."""
    out: Path = Path("out/recover-power")
    """Folder for the report, the pictures, the temperatures (VTK) and the checkpoint."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Recovered:
    """The result: powers [W] (steps,), hidden, initial and recovered, and the search."""

    process: th.Process
    hidden: Tensor
    start: Tensor
    power: Tensor
    result: th.Design
    report: Path | None = None
    series: Path | None = None

    @property
    def power_error(self) -> float:
        """Root mean square error of the power [W] where the beam is lit."""
        lit = torch.as_tensor(self.process.on)
        return (self.power - self.hidden)[lit].square().mean().sqrt().item()


def run(options: Options) -> Recovered:
    """Hide a pattern, recover it, and report."""
    console = Console(highlight=False)
    process = build(options)
    step = observation_step(options, process)
    shots = range(step, process.steps + 1, step)
    console.print(f"{process.mesh.summary()}\n{process.steps:,} steps of {process.dt:g} s")
    hidden = pattern(process.steps, options.waves, options.seed).to(process.device, process.dtype)
    with (
        torch.no_grad(),
        console.status("printing with the hidden power; on a new machine, kernels are compiled first"),
    ):
        target = process.run(hidden, snapshots=shots).snapshots
    power = th.NetworkPower(process.steps, (0.0, FULL_POWER), seed=options.seed + 1, dtype=process.dtype)
    power.to(process.device)
    start = power().detach()

    def loss() -> Tensor:
        return (process.run(power(), snapshots=shots).snapshots - target).square().mean()

    result = th.design(
        loss,
        power,
        iterations=options.iterations,
        learning_rate=options.learning_rate,
        folder=options.out,
        resume=not options.fresh,
        settings=settings_of(asdict(options)),
        title="recovering the power",
        console=console,
    )
    found = Recovered(process, hidden.cpu(), start.cpu(), power().detach().cpu(), result)
    write(found, options, step, console)
    return found


def build(options: Options) -> th.Process:
    """Return the print: the hourglass and its path, with the published constants."""
    if (options.mesh is None) != (options.toolpath is None):
        raise PullbackError("give both --mesh and --toolpath, or neither")
    if options.observe is not None and options.observe < 1:
        raise PullbackError(f"observe is {options.observe}; give at least 1")
    cell, dt = CELL[options.size], DT[options.size]
    if options.mesh is not None and options.toolpath is not None:
        mesh, path = th.read_mesh(options.mesh, unit=1e-3), th.read_toolpath(options.toolpath, unit=1e-3)
        births, cell, dt = th.read_births(options.mesh), CELL["full"], DT["full"]
    else:
        mesh = th.hourglass(cell=cell, layer=cell, plate=PLATE[options.size])
        path = th.rings(mesh, speed=SPEED, hatch=cell)
        # where the hourglass widens, the outermost cells of a layer are reached before those that hold them
        births = th.births(mesh, path, unsupported="wait")
    return th.Process(
        mesh,
        path,
        material=MATERIAL,
        births=births,
        dt=dt,
        duration=path.duration + COOLING,
        source=th.Gaussian(radius=BEAM * cell, absorptivity=1.0),
        convection=50.0,
        emissivity=0.2,
        ambient=300.0,
        initial=300.0,
        birth_temperature=300.0,
        dtype=getattr(torch, options.precision),
        device=find_device(options.device),
    )


def observation_step(options: Options, process: th.Process) -> int:
    """Return the number of steps between two observations."""
    return options.observe or max(1, round(1.0 / process.dt))


def pattern(steps: int, waves: int, seed: int) -> Tensor:
    """Return a random power [W] (steps,) between its bounds, of waves up to this number over the print."""
    if waves < 1:
        raise PullbackError(f"waves is {waves}; give at least 1")
    generator = torch.Generator().manual_seed(seed)
    amplitude, phase = torch.rand(2, waves, dtype=torch.float64, generator=generator)
    t = torch.arange(steps, dtype=torch.float64) / steps
    angle = 2.0 * pi * (torch.arange(1, waves + 1)[:, None] * t + phase[:, None])
    wave = ((0.5 + amplitude[:, None]) * torch.sin(angle)).sum(0)
    share = (wave - wave.min()) / (wave.max() - wave.min())
    low, high = PATTERN
    return FULL_POWER * (low + (high - low) * share)


@torch.no_grad()
def write(found: Recovered, options: Options, step: int, console: Console) -> None:
    """Print once more with the power found, and write the numbers, the pictures and the temperatures."""
    process, result, out = found.process, found.result, options.out
    nodes, born = chosen_nodes(process, 4)
    names = [f"z = {z * 1e3:.0f} mm" for z in process.mesh.nodes[nodes, 2]]
    shots = range(0, process.steps + 1, step * max(1, round(process.steps / step / MOMENTS)))
    probes = process.probes(nodes=nodes)
    wanted, begun, got = (
        process.run(power, probes=probes, snapshots=shots) for power in (found.hidden, found.start, found.power)
    )
    numbers = {
        "nodes, elements, steps": f"{len(process.mesh.nodes):,}, {len(process.mesh.elements):,}, {process.steps:,}",
        "iterations": len(result.losses),
        "initial loss [K²]": result.losses[0],
        "final loss [K²]": result.best_loss,
        "times smaller": result.reduction,
        "final error of the temperatures [K]": sqrt(result.best_loss),
        "final error of the power [W]": found.power_error,
        "seconds per iteration": result.seconds / len(result.losses),
    }
    print_numbers("the hidden power", numbers, console)
    times, on = process.times, process.on
    pictures = {
        "power": report.plot_power(
            out / "power.png",
            times,
            found.power,
            target=found.hidden,
            start=found.start,
            on=on,
            bounds=(0.0, FULL_POWER),
        ),
        "temperature at chosen points": report.plot_histories(
            out / "histories.png", times, got.probes, names, target=wanted.probes, start=begun.probes, born=born
        ),
        "loss": report.plot_loss(
            out / "loss.png", result.losses, bar=result.losses[0] / REDUCTION, bar_name=f"{REDUCTION:g} times smaller"
        ),
    }
    error = got.snapshots - wanted.snapshots
    found.series = th.write_vtk(out / "temperatures.pvd", process, got, error=error)
    files = {"temperatures and their error over time": found.series}
    found.report = report.write_report(
        out, "A hidden power, recovered", numbers, pictures, text=__doc__ or "", files=files
    )
    console.print(f"report: {found.report}")
