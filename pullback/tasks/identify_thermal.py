"""Identify heat capacity, conductivity, heat loss and absorptivity from temperatures of a part's top layer.

A wall is printed, and the temperatures of its top layer are recorded with noise, as a camera would. A model that starts
with wrong parameters is fitted by Levenberg–Marquardt in their logarithms, with the gradient of the whole print by its
adjoint.

Such data does not determine everything: if all four parameters were larger by one factor, temperatures would hardly
change. Only latent heat and radiation, which are known here, fix the scale. The report has the standard error of each
parameter, and which of them trade off against each other; a parameter known from elsewhere can be given as known.
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
from pullback.core.device import find_device
from pullback.core.errors import PullbackError, unknown_name
from pullback.core.search_loop import Checkpoint, SearchLoop
from pullback.tasks.common.options import settings_of
from pullback.tasks.common.thin_wall import moments, thin_wall
from pullback.thermal.report import plot_histories, plot_loss, write_report

Tensor = torch.Tensor

NAMES = ("heat_capacity", "conductivity", "convection", "absorptivity")
LABELS = {"heat_capacity": "cp", "conductivity": "k", "convection": "h", "absorptivity": "η"}
CELL = (1e-3, 0.75e-3, 0.75e-3)
PLATE = 2e-3
POWER = 300.0
"""Of the laser during the measurement [W]."""
ROOM = 1.3
"""Bounds of the factors, relative to the largest error at the start."""
DIFFERENCE = 1e-4
"""Step of central differences in the logarithms."""
FARTHEST = log(1.5)
"""The largest change of a logarithm in one step."""
AT_REST = 0.01
"""The search ends when a step changes no parameter by more than this fraction of its standard error or of 1e-3."""
ALIKE = 0.9
"""Two parameters whose errors have a larger correlation are hardly distinguishable."""


@dataclass
class Options:
    """How to identify thermal properties from temperatures."""

    noise: float = 5.0
    """Standard deviation of the measured temperatures [K]."""
    wrong_by: float = 1.4
    """Parameters start wrong by a random factor between its inverse and this."""
    known: tuple[str, ...] = ()
    """Known parameters: heat_capacity, conductivity, convection, absorptivity."""
    layers: int = 3
    """Tracks on top of each other, 0.75 mm high each."""
    length: float = 10.0
    """Of the wall [mm]."""
    cooling: float = 12.0
    """Cooling time after the print [s]."""
    iterations: int = 12
    """The most iterations of the optimiser."""
    seed: int = 0
    """Seed of the start and of the noise."""
    fresh: bool = False
    """Start over; otherwise an interrupted run in the same folder is resumed."""
    out: Path = Path("out/identify-thermal")
    """Folder for the report, its pictures and the VTK series."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Identified:
    """The result: the factor of each parameter on its true value, and what the data determines."""

    names: list[str]
    start: Tensor
    """Factors at the start."""
    found: Tensor
    """Identified factors; 1 is right."""
    standard_error: Tensor
    """Relative standard errors, as noise and derivative imply them."""
    correlation: Tensor
    """Of the errors, (names, names)."""
    spread: Tensor
    """Relative standard error along each principal direction, the smallest first."""
    directions: Tensor
    """Those directions, as columns (names, names)."""
    noise: float
    losses: list[float] = field(default_factory=list)
    """Mean square error [K²] before each iteration, and at the end."""
    interrupted: bool = False
    report: Path | None = None

    @property
    def alike(self) -> list[tuple[str, str, float]]:
        """Pairs of parameters that trade off against each other, with the correlation of their errors."""
        pairs = [(i, j) for i in range(len(self.names)) for j in range(i)]
        hard = [(self.names[j], self.names[i], float(self.correlation[i, j])) for i, j in pairs]
        return sorted((p for p in hard if abs(p[2]) > ALIKE), key=lambda p: -abs(p[2]))


def run(options: Options) -> Identified:
    """Fit the parameters, print what the data determines, and write the report."""
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
    factors, losses, interrupted = fit(model, start, data, limit, options, console)
    identified = judge(model, factors, start, data, options.noise)
    identified.losses, identified.interrupted = losses, interrupted
    report(identified, model, data, options, console)
    return identified


def check(options: Options) -> list[str]:
    """Return the names of the unknown parameters; raise for invalid options."""
    for name in options.known:
        if name not in NAMES:
            raise unknown_name("parameter", name, NAMES)
    names = [name for name in NAMES if name not in options.known]
    if not names:
        raise PullbackError("all parameters are known; there is nothing to find")
    if not options.wrong_by > 1.0:
        raise PullbackError(f"wrong_by is {options.wrong_by:g}; expected more than 1")
    if options.iterations < 1:
        raise PullbackError(f"iterations is {options.iterations}; give 1 or more")
    if not options.noise >= 0.0:
        raise PullbackError(f"noise is {options.noise:g} K; expected 0 or more")
    return names


class Model:
    """The temperatures of the top layer as a function of factors on the parameters."""

    def __init__(self, process: th.Process, names: list[str]) -> None:
        self.process, self.names = process, names
        material = process.materials[0]
        z = process.mesh.nodes[:, 2]
        self.top = np.flatnonzero(z > z.max() - 1e-9)
        self.probes = process.probes(nodes=self.top)
        # nodes are observed from when they are printed
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
        """Run the process with its parameters times factors."""
        changed: dict[str, Any] = {
            name: self.values[name] * factors[k].to(self.process.device) for k, name in enumerate(self.names)
        }
        return self.process.run(POWER, probes=self.probes, snapshots=snapshots, **changed)

    def see(self, factors: Tensor) -> Tensor:
        """Return the temperatures (states, points) [K] from when the top layer is complete."""
        return self.run(factors).probes[self.first :]

    @torch.no_grad()
    def derivative(self, factors: Tensor) -> Tensor:
        """Return the derivative (seen, names) [K] of the observations by the logarithms of factors, by differences."""
        columns = []
        for k in range(len(factors)):
            step = torch.zeros_like(factors)
            step[k] = DIFFERENCE
            ends = [self.see(factors * torch.exp(sign * step)) for sign in (1.0, -1.0)]
            columns.append((ends[0] - ends[1]).flatten().cpu() / (2.0 * DIFFERENCE))
        return torch.stack(columns, 1)


class LeastSquares:
    """Levenberg–Marquardt on the logarithms x of the factors: gradient by the adjoint, JᵀJ by differences."""

    def __init__(self, model: Model, start: Tensor, data: Tensor, limit: float) -> None:
        self.model, self.data = model, data
        # heat capacity and conductivity decide which time step is stable: they are bounded
        tight = ("heat_capacity", "conductivity")
        self.bound = torch.tensor([log(limit) if name in tight else 10.0 for name in model.names])
        self.x, self.damping, self.at_rest = torch.log(start), 1e-2, False
        self.losses: list[float] = []
        """Mean square error [K²] at the beginning of each iteration."""
        self.last_loss = float("inf")
        """The error at x."""

    @property
    def done(self) -> int:
        """Number of finished iterations."""
        return len(self.losses)

    @property
    def ended(self) -> str:
        """Why the search is over, or an empty string."""
        return "converged" if self.at_rest else ""

    def summary(self) -> str:
        """Return the error as text."""
        return f"rms error {self.losses[-1] ** 0.5:.4g} K" if self.losses else ""

    def iterate(self) -> None:
        """Take one damped step that lowers the error, or detect convergence."""
        x = self.x.detach().requires_grad_()
        loss = th.history_error(self.model.see(torch.exp(x)), self.data)
        (gradient,) = torch.autograd.grad(loss, x)
        x, now, count = x.detach(), loss.item(), self.data.numel()
        J = self.model.derivative(torch.exp(x))
        H = 2.0 * J.mT @ J / count
        error = (torch.linalg.pinv(H).diagonal() * 2.0 * now / count).sqrt()
        # increase the damping until a step lowers the error
        while True:
            step = -torch.linalg.solve(H + self.damping * torch.diag(H.diagonal()), gradient)
            step = (x + step * (FARTHEST / step.abs().max()).clamp(max=1.0)).clamp(-self.bound, self.bound) - x
            self.at_rest = bool((step.abs() < AT_REST * error.clamp(min=1e-3)).all())
            with torch.no_grad():
                there = th.history_error(self.model.see(torch.exp(x + step)), self.data).item()
            if there < now or self.at_rest:
                break
            self.damping *= 10.0
        if there < now:
            self.x, self.damping = x + step, 0.1 * self.damping
        self.losses.append(now)
        self.last_loss = min(there, now)

    def state(self) -> dict[str, Any]:
        """Return the point, the damping and the history."""
        return {name: getattr(self, name) for name in ("x", "damping", "at_rest", "losses", "last_loss")}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        for name in self.state():
            setattr(self, name, state[name])


def fit(
    model: Model, start: Tensor, data: Tensor, limit: float, options: Options, console: Console
) -> tuple[Tensor, list[float], bool]:
    """Return the factors that fit the data best, the losses, and whether the search was interrupted."""
    search = LeastSquares(model, start, data, limit)
    checkpoint = Checkpoint(
        search, options.out / "checkpoint.pt", settings_of(asdict(options)), "give another --out, or --fresh"
    )
    checkpoint.begin(resume=checkpoint.exists() and not options.fresh)
    reason = SearchLoop(options.iterations, "fitting", console=console).run(search, checkpoint)
    return torch.exp(search.x), [*search.losses, search.last_loss], reason == "interrupted"


def judge(model: Model, factors: Tensor, start: Tensor, data: Tensor, noise: float) -> Identified:
    """Return the identifiability of the factors: covariance (Jᵀ J)⁻¹ σ², σ² from the residual."""
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
    table = Table(title=f"factors on the true parameters after {len(found.losses) - 1} iterations")
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
    pictures = {
        "Temperatures of the top layer": plot_histories(
            out / "temperatures.png", process.times[seen], best.probes[seen][:, few], names,
            target=data[:, few], start=first.probes[seen][:, few], title="top layer: found, measured (target), start",
        ),
        "Loss": plot_loss(
            out / "loss.png", found.losses, bar=options.noise**2 or None, bar_name="noise level",
            title="mean square error [K²]",
        ),
        "What the data determines": draw_correlation(found, out / "correlation.png"),
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
        "iterations": len(found.losses) - 1,
        "rms error at the start and at the end [K]": f"{found.losses[0] ** 0.5:.4g}, {found.losses[-1] ** 0.5:.4g}",
    }
    series = th.write_vtk(out / "temperature.pvd", process, best)
    found.report = write_report(
        out, "Thermal properties from temperatures of the top layer", numbers, pictures,
        text="\n\n".join(verdict(found)), files={"temperatures over time": series},
    )  # fmt: skip
    console.print(f"report: {found.report}")


def verdict(found: Identified) -> list[str]:
    """Return in words what the data determines, and what not."""
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
        lines.append("With one of them known from elsewhere (--known absorptivity) the others are determined better.")
    return lines


def draw_correlation(found: Identified, path: Path) -> Path:
    """Draw factors with their standard errors, and the correlation of the errors; return the path."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    place = np.arange(len(found.names))
    start, factor, error, correlation = (
        x.numpy() for x in (found.start, found.found, found.standard_error, found.correlation)
    )
    left.axhline(1.0, color="gray", linewidth=1.0)
    left.plot(place, start, "o", color="lightgray", label="at the start")
    style = {"fmt": "o", "color": "tab:blue", "capsize": 4, "label": "found, with 2 standard errors"}
    left.errorbar(place, factor, 2.0 * error * factor, **style)
    left.set(title="factor on the true parameter", xlim=(-0.5, len(place) - 0.5))
    left.set_xticks(place, [name.replace("_", "\n") for name in found.names])
    left.legend(fontsize=8)
    left.grid(alpha=0.3, axis="y")
    image = right.imshow(correlation, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    for i in place:
        for j in place:
            value = correlation[i, j]
            right.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if abs(value) > 0.6 else "black")
    labels = [LABELS[name] for name in found.names]
    right.set_xticks(place, labels)
    right.set_yticks(place, labels)
    right.set(title="correlation of the errors")
    figure.colorbar(image, ax=right, shrink=0.8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path
