"""Find heat capacity, conductivity, heat loss and absorptivity from temperatures of a part's top layer.

A wall is printed, and the temperatures of its top layer are recorded with noise, as a camera would. A model that starts
with wrong numbers is moved down the gradient of its error. Factors of the four numbers are found as logarithms, turned
and stretched such that a unit in each direction changes what is seen by as much as the noise does.

Not everything can be told from such data: if all four numbers were larger by the same factor, temperatures would hardly
change. Only latent heat and radiation, which are known here, hold the scale. The report says how well each number is
told, and which of them trade off against each other; a number known from elsewhere can be given as known.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import pullback.thermal as th
from pullback.core.errors import PullbackError, unknown_name
from pullback.tasks._device import find_device
from pullback.tasks._printing import settings_of
from pullback.tasks._thin_wall import moments, thin_wall
from pullback.thermal.report import plot_histories, plot_loss, write_report

Tensor = torch.Tensor

NAMES = ("heat_capacity", "conductivity", "convection", "absorptivity")
LABELS = {"heat_capacity": "cp", "conductivity": "k", "convection": "h", "absorptivity": "η"}
CELL = (1e-3, 0.75e-3, 0.75e-3)
PLATE = 2e-3
POWER = 300.0
"""Of the laser while the data are taken [W]."""
ROOM = 1.3
"""Factors may be wrong by this much more than they start."""
DIFFERENCE = 1e-4
"""Of logarithms, for the derivative of what is seen."""
ALIKE = 0.9
"""Two numbers whose errors have a correlation beyond this are told apart badly."""


@dataclass
class Options:
    """How to find thermal properties from temperatures."""

    noise: float = 5.0
    """Standard deviation of the measured temperatures [K]."""
    wrong_by: float = 1.4
    """Numbers start wrong by a random factor between its inverse and this."""
    known: tuple[str, ...] = ()
    """Numbers that need not be found: heat_capacity, conductivity, convection, absorptivity."""
    layers: int = 3
    """Tracks on top of each other, 0.75 mm high each."""
    length: float = 10.0
    """Of the wall [mm]."""
    cooling: float = 12.0
    """How long to watch the wall cool [s]."""
    iterations: int = 20
    """Most steps of the optimiser (L-BFGS)."""
    seed: int = 0
    """Seed of the start and of the noise."""
    fresh: bool = False
    """Start over; otherwise a run that was interrupted in the same folder goes on."""
    out: Path = Path("out/identify-thermal")
    """Folder for the report, its pictures and the VTK series."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Identified:
    """What was found: number by number its factor on the true one, and what the data tell about it."""

    names: list[str]
    start: Tensor
    """Factors at the start."""
    found: Tensor
    """Factors that were found; 1 is right."""
    standard_error: Tensor
    """Relative standard errors, as noise and derivative imply them."""
    correlation: Tensor
    """Of the errors, (names, names)."""
    spread: Tensor
    """Relative standard error along each principal direction, the best told first."""
    directions: Tensor
    """Those directions, as columns (names, names)."""
    noise: float
    design: th.Design = field(default_factory=th.Design)
    report: Path | None = None

    @property
    def alike(self) -> list[tuple[str, str, float]]:
        """Pairs of numbers that trade off against each other, with the correlation of their errors."""
        pairs = [(i, j) for i in range(len(self.names)) for j in range(i)]
        hard = [(self.names[j], self.names[i], float(self.correlation[i, j])) for i, j in pairs]
        return sorted((p for p in hard if abs(p[2]) > ALIKE), key=lambda p: -abs(p[2]))


class Factors(torch.nn.Module):
    """Factors of numbers, within bounds by construction, from variables y that are 0 at the start."""

    def __init__(self, start: Tensor, limit: float, turn: Tensor) -> None:
        super().__init__()
        self.limit, self.turn = log(limit), turn
        self.free = torch.atanh(torch.log(start) / self.limit)
        self.y = torch.nn.Parameter(torch.zeros_like(start))

    def forward(self) -> Tensor:
        """Return the factors."""
        return torch.exp(self.limit * torch.tanh(self.free + self.turn @ self.y))


def run(options: Options) -> Identified:
    """Find the numbers, print what the data tell, and write the report."""
    names = check(options)
    console = Console()
    generator = torch.Generator().manual_seed(options.seed)
    limit = ROOM * options.wrong_by
    process = thin_wall(
        length=options.length * 1e-3, layers=options.layers, cell=CELL, plate=PLATE, dwell=0.3, cooling=options.cooling,
        faster=limit**2, device=find_device(options.device),
    )  # fmt: skip
    model = Model(process, names)
    with console.status("compiling the kernels, once on a machine"), torch.no_grad():
        truth = model.see(torch.ones(len(names), dtype=torch.float64))
    data = truth + options.noise * torch.randn(truth.shape, generator=generator, dtype=torch.float64).to(truth)
    start = options.wrong_by ** (2.0 * torch.rand(len(names), generator=generator, dtype=torch.float64) - 1.0)
    unit = max(options.noise, 1.0)

    # y such that a unit of it changes what is seen by its noise: J turn has orthonormal columns
    factors = Factors(start, limit, torch.eye(len(names), dtype=torch.float64))
    J = model.derivative(start) / unit
    to_free = (1.0 - (torch.log(start) / factors.limit).square()) * factors.limit
    factors.turn = torch.linalg.inv(torch.linalg.qr(J * to_free)[1])

    found = th.design(
        lambda: th.history_error(model.see(factors()), data) / unit**2,
        factors, optimizer="lbfgs", iterations=options.iterations, folder=options.out, resume=not options.fresh,
        settings=settings_of(asdict(options)), title="finding the numbers", console=console,
    )  # fmt: skip
    identified = judge(model, factors().detach(), start, data, options.noise)
    identified.design = found
    report(identified, model, data, options, console)
    return identified


def check(options: Options) -> list[str]:
    """Return the names of the numbers to find, or refuse."""
    for name in options.known:
        if name not in NAMES:
            raise unknown_name("number", name, NAMES)
    names = [name for name in NAMES if name not in options.known]
    if not names:
        raise PullbackError("all numbers are known; there is nothing to find")
    if not options.wrong_by > 1.0:
        raise PullbackError(f"wrong_by is {options.wrong_by:g}; expected more than 1")
    if not options.noise >= 0.0:
        raise PullbackError(f"noise is {options.noise:g} K; expected 0 or more")
    return names


class Model:
    """The printing of the wall as a function of factors of its numbers, seen at the nodes of the top layer."""

    def __init__(self, process: th.Process, names: list[str]) -> None:
        self.process, self.names = process, names
        material = process.materials[0]
        z = process.mesh.nodes[:, 2]
        self.top = np.flatnonzero(z > z.max() - 1e-9)
        self.probes = process.probes(nodes=self.top)
        # what is not there yet is not seen
        built = process.mesh.elements[process.mesh.element_set("build")]
        above = np.isin(built, self.top).any(1)
        first = process.births[process.mesh.element_set("build")][above].max()
        self.first = int(np.ceil(first / process.dt))
        self.values = {
            "heat_capacity": process.as_tensor(material.heat_capacity),
            "conductivity": process.as_tensor(material.conductivity),
            "convection": process.as_tensor(process.values["convection"]),
            "absorptivity": process.as_tensor(process.laser.source.absorptivity if process.laser else 1.0),
        }

    def run(self, factors: Tensor, snapshots=()) -> th.History:
        """Run the process with its numbers times factors."""
        changed: dict[str, Any] = {
            name: self.values[name] * factors[k].to(self.process.device) for k, name in enumerate(self.names)
        }
        return self.process.run(POWER, probes=self.probes, snapshots=snapshots, **changed)

    def see(self, factors: Tensor) -> Tensor:
        """Return the temperatures (states, points) [K] from when the top layer is complete."""
        return self.run(factors).probes[self.first :]

    @torch.no_grad()
    def derivative(self, factors: Tensor) -> Tensor:
        """Return the derivative (seen, names) [K] of what is seen by the logarithms of factors, by differences."""
        columns = []
        for k in range(len(factors)):
            step = torch.zeros_like(factors)
            step[k] = DIFFERENCE
            ends = [self.see(factors * torch.exp(sign * step)) for sign in (1.0, -1.0)]
            columns.append((ends[0] - ends[1]).flatten().cpu() / (2.0 * DIFFERENCE))
        return torch.stack(columns, 1)


def judge(model: Model, factors: Tensor, start: Tensor, data: Tensor, noise: float) -> Identified:
    """Return what the data tell about the factors: covariance (Jᵀ J)⁻¹ σ², σ² from what is left of the error."""
    J = model.derivative(factors)
    with torch.no_grad():
        left = (model.see(factors) - data).square().sum().cpu()
    sigma = (left / max(1, data.numel() - len(factors))).sqrt()
    _, stretch, directions = torch.linalg.svd(J, full_matrices=False)
    spread = sigma / stretch.clamp(min=1e-12 * stretch.max())
    covariance = directions.mT @ torch.diag(spread.square()) @ directions
    errors = covariance.diagonal().sqrt()
    correlation = covariance / (errors[:, None] * errors)
    return Identified(model.names, start, factors.cpu(), errors, correlation, spread, directions.mT, noise)


def report(found: Identified, model: Model, data: Tensor, options: Options, console: Console) -> None:
    """Print the tables, and write pictures, VTK series and page."""
    table = Table(title=f"factors on the true numbers after {len(found.design.losses)} iterations")
    for header in ("number", "start", "found", "error", "std. error"):
        table.add_column(header, justify="left" if header == "number" else "right")
    for k, name in enumerate(found.names):
        f = float(found.found[k])
        table.add_row(
            name, f"{float(found.start[k]):.3f}", f"{f:.4f}", f"{f - 1:+.2%}", f"±{float(found.standard_error[k]):.2%}"
        )
    console.print(table)
    for line in verdict(found):
        console.print(line)
    process, out = model.process, options.out
    with torch.no_grad():
        best = model.run(found.found, snapshots=moments(process))
        first = model.run(found.start)
    few = np.linspace(0, len(model.top) - 1, 3).round().astype(int)
    x, y = process.mesh.nodes[model.top[few], :2].T * 1e3
    names = [f"x = {a:.1f} mm, y = {b:.1f} mm" for a, b in zip(x, y)]
    seen = slice(model.first, None)
    bar = (options.noise / max(options.noise, 1.0)) ** 2
    pictures = {
        "Temperatures of the top layer": plot_histories(
            out / "temperatures.png", process.times[seen], best.probes[seen][:, few], names,
            target=data[:, few], start=first.probes[seen][:, few], title="top layer: found, measured (target), start",
        ),
        "Loss": plot_loss(out / "loss.png", found.design.losses, bar=bar or None, bar_name="what the noise alone gives",
                          title="mean square error"),
        "What the data tell": draw_correlation(found, out / "correlation.png"),
    }  # fmt: skip
    numbers = {
        **{
            f"{name}: factor found, error, standard error": f"{float(f):.4f}, {float(f) - 1:+.2%}, ±{float(e):.2%}"
            for name, f, e in zip(found.names, found.found, found.standard_error)
        },
        "condition number of the derivative": float(found.spread[-1] / found.spread[0]),
        "noise [K]": options.noise,
        "temperatures seen": data.numel(),
        "steps": process.steps,
        "iterations, gradients": f"{len(found.design.losses)}, {found.design.evaluations}",
        "time [s]": found.design.seconds,
    }
    series = th.write_vtk(out / "temperature.pvd", process, best)
    found.report = write_report(
        out, "Thermal properties from temperatures of the top layer", numbers, pictures,
        text="\n\n".join(verdict(found)), files={"temperatures over time": series},
    )  # fmt: skip
    console.print(f"report: {found.report}")


def verdict(found: Identified) -> list[str]:
    """Say in words what the data tell, and what not."""
    worst = found.directions[:, -1]
    worst = worst * worst[worst.abs().argmax()].sign()
    parts = " ".join(f"{float(w):+.2f} log {LABELS[name]}" for w, name in zip(worst, found.names))
    lines = [
        f"Worst told: {parts}, to ±{float(found.spread[-1]):.2%}; best told direction: to "
        f"±{float(found.spread[0]):.3%}; condition number {float(found.spread[-1] / found.spread[0]):.0f}."
    ]
    lines += [
        f"{a} and {b} trade off against each other: the correlation of their errors is {c:+.3f}."
        for a, b, c in found.alike
    ]
    if found.alike and len(found.names) > 1:
        lines.append("Know one of them from elsewhere, say with --known absorptivity, and the others are told better.")
    return lines


def draw_correlation(found: Identified, path: Path) -> Path:
    """Draw factors with their standard errors, and the correlation of the errors; return the path."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    place = np.arange(len(found.names))
    left.axhline(1.0, color="gray", linewidth=1.0)
    left.plot(place, found.start, "o", color="lightgray", label="at the start")
    left.errorbar(place, found.found, 2.0 * found.standard_error * found.found, fmt="o", color="tab:blue", capsize=4,
                  label="found, with 2 standard errors")  # fmt: skip
    left.set(title="factor on the true number", xlim=(-0.5, len(place) - 0.5))
    left.set_xticks(place, [name.replace("_", "\n") for name in found.names])
    left.legend(fontsize=8)
    left.grid(alpha=0.3, axis="y")
    image = right.imshow(found.correlation, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    for i in place:
        for j in place:
            value = float(found.correlation[i, j])
            right.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if abs(value) > 0.6 else "black")
    labels = [LABELS[name] for name in found.names]
    right.set_xticks(place, labels)
    right.set_yticks(place, labels)
    right.set(title="correlation of the errors")
    figure.colorbar(image, ax=right, shrink=0.8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path
