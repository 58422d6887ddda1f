"""Trade heat-treatment time of a printed wall against the energy the laser spends: a Pareto front.

Points inside the wall are to be as long as possible between two temperatures, at which the alloy ages, and the laser is
to spend as little as possible. The lavish end of the front comes first: the longest time, whatever it takes. Then times
are wished for that are shorter and shorter, and each is had for as little energy as possible, from where the one before
ended. What constant power gives is drawn beside the front.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import pullback.thermal as th
from pullback.core.device import find_device
from pullback.core.errors import PullbackError
from pullback.tasks.common.options import settings_of
from pullback.tasks.common.outputs import write_figure
from pullback.tasks.common.thin_wall import LAYER, moments, rough_power, thin_wall
from pullback.thermal.report import plot_histories, plot_lines, write_report

Tensor = torch.Tensor

CELL = (1e-3, 0.75e-3, 0.75e-3)
PLATE = 5e-3
WIDTH = 20.0
"""Width [K] of the smoothed bounds of the temperature window."""
FRUGAL = 0.01
"""Weight of a kilojoule, in seconds, for the point of longest time."""
AMBIENT = 300.0
"""Temperature [K] of a point before its element is printed."""
CONSTANTS = 13
"""Constant powers to compare with."""


@dataclass
class Options:
    """How to trade heat-treatment time against energy."""

    cold: float = 823.0
    """Lower temperature of the heat treatment [K]."""
    hot: float = 993.0
    """Upper temperature [K]."""
    low: float = 300.0
    """Least power [W]; with less than this the first layer does not melt."""
    high: float = 600.0
    """Most power [W]."""
    points: int = 6
    """Points of the front."""
    worth: float = 20.0
    """Penalty [kJ] for missing a requested time by a second; it is quadratic."""
    length: float = 12.0
    """Of the wall [mm]."""
    layers: int = 6
    """Tracks on top of each other, 0.75 mm high each."""
    dwell: float = 0.3
    """Pause between two layers [s]."""
    cooling: float = 5.0
    """Time after the last layer [s]."""
    knots: float = 2.0
    """Knots of the power in a second."""
    iterations: int = 40
    """Steps of the optimiser (Adam) for each point."""
    learning_rate: float = 0.15
    """Its learning rate."""
    seed: int = 0
    """Seed of the small random part of the power at the start."""
    fresh: bool = False
    """Start over; otherwise an interrupted run in the same folder is resumed."""
    out: Path = Path("out/pareto-heat")
    """Folder for the report, its pictures and the VTK series."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Front:
    """The result: the points of the front, from most to least energy, and those of constant power."""

    process: th.Process
    found: list[th.ParetoPoint]
    """Their designs are KnotPower; objectives: energy [kJ], minus the time [s], squared errors of requested times."""
    wishes: list[float]
    """Requested times [s]; the first is infinite."""
    watts: np.ndarray
    """Constant powers [W], (c,)."""
    constant: np.ndarray
    """Energy [kJ] and time [s] of them, (c, 2)."""
    interrupted: bool = False
    report: Path | None = None

    @property
    def values(self) -> np.ndarray:
        """Energy [kJ] and time [s] of the front's points, (n, 2)."""
        return np.array([(p.objectives["energy"], -p.objectives["minus time"]) for p in self.found])


def run(options: Options) -> Front:
    """Find the front, print it, and write the report."""
    check(options)
    console = Console()
    device = find_device(options.device)
    process = thin_wall(
        length=options.length * 1e-3, layers=options.layers, cell=CELL, plate=PLATE, dwell=options.dwell,
        cooling=options.cooling, fixed={"bottom": 300.0}, device=device,
    )  # fmt: skip
    probes, on = process.probes(places(options)), process.on
    there = torch.as_tensor(process.times[:, None] >= process.births_at(places(options))).to(process.device)

    def objectives_of(power: Tensor) -> dict[str, Tensor]:
        # before its element is printed a point would read the one below it
        seen = torch.where(there, process.run(power, probes=probes).probes, AMBIENT)
        time = th.heat_treatment_time(seen, process.times, options.cold, options.hot, WIDTH).mean()
        return {"energy": th.spent_energy(power, process.dt, on) / 1e3, "minus time": -time}

    bounds = (options.low, options.high)
    watts = np.linspace(*bounds, CONSTANTS)
    with console.status("constant powers; the first time on a machine, kernels are compiled"), torch.no_grad():
        levels = [torch.full((process.steps,), x, dtype=process.dtype, device=device) for x in watts]
        constant = np.array([[float(y) for y in objectives_of(level).values()] for level in levels]) * [1.0, -1.0]
    refuse_out_of_reach(constant, options)

    knots = max(2, 1 + round(process.duration * options.knots))
    count = 0
    stopped = False

    def with_wishes(module: th.KnotPower) -> dict[str, Tensor]:
        both = objectives_of(module())
        missed = {f"missed {k}": (wish + both["minus time"]).clamp(min=0.0).square() for k, wish in enumerate(wishes)}
        return {**both, **missed}

    def minimise(loss, start: th.KnotPower) -> th.KnotPower | None:
        nonlocal count, stopped
        if stopped:
            return None
        module = deepcopy(start)
        count += 1
        settings = settings_of(asdict(options))
        found = th.design(
            lambda: loss(module), module, iterations=options.iterations, learning_rate=options.learning_rate,
            folder=options.out / f"point-{count}", resume=not options.fresh, settings=settings,
            title=f"point {count} of {options.points}", console=console,
        )  # fmt: skip
        stopped = found.interrupted
        return module

    # the longest time, from the best constant power; then requested times down to that of the least power
    wishes: list[float] = []
    best = rough_power(watts[constant[:, 1].argmax()], knots, bounds, options.seed)
    start = th.KnotPower(process.steps, bounds, knots, start=best).to(device)
    longest = th.pareto_sweep(with_wishes, [{"energy": FRUGAL, "minus time": 1.0}], minimise, start)
    wishes += np.linspace(-longest[0].objectives["minus time"], constant[0, 1], options.points + 1)[1:-1].tolist()
    weights = [{"energy": 1.0, f"missed {k}": options.worth} for k in range(len(wishes))]
    rest = th.pareto_sweep(with_wishes, weights, minimise, longest[0].design)
    front = Front(process, mark([*longest, *rest]), [np.inf, *wishes], watts, constant, stopped)
    report(front, probes, options, console)
    return front


def check(options: Options) -> None:
    """Raise for invalid options."""
    if not options.cold < options.hot:
        raise PullbackError(f"cold is {options.cold:g} K and hot {options.hot:g} K; cold must be below hot")
    if not 0.0 <= options.low < options.high:
        raise PullbackError(f"power is bounded to {options.low:g} and {options.high:g} W; expected 0 ≤ low < high")
    if not options.worth > 0.0:
        raise PullbackError(f"worth is {options.worth:g} kJ; expected a positive number")
    if options.points < 2:
        raise PullbackError(f"points is {options.points}; a front needs two")


def mark(points: list[th.ParetoPoint]) -> list[th.ParetoPoint]:
    """Return the points, each knowing whether another has more time for less energy."""
    beaten = th.dominated([{name: p.objectives[name] for name in ("energy", "minus time")} for p in points])
    return [replace(point, dominated=bool(yes)) for point, yes in zip(points, beaten)]


def refuse_out_of_reach(constant: np.ndarray, options: Options) -> None:
    """Raise if no constant power within the bounds reaches the temperature window."""
    if constant[:, 1].max() < 0.01:
        raise PullbackError(
            f"no power from {options.low:g} to {options.high:g} W holds the wall between {options.cold:g} and "
            f"{options.hot:g} K for 0.01 s; change the bounds of the power, or the temperatures"
        )


def places(options: Options) -> np.ndarray:
    """Return the points (9, 3) [m] whose time counts: three along the wall, in the middle of three layers."""
    x = np.array([-0.25, 0.0, 0.25]) * options.length * 1e-3
    z = (np.round(np.array([0.15, 0.5, 0.85]) * options.layers - 0.5) + 0.5) * LAYER
    return np.array([(a, 0.0, c) for c in z for a in x])


def report(front: Front, probes, options: Options, console: Console) -> None:
    """Print the front, and write pictures, VTK series and page."""
    process, out, on = front.process, options.out, front.process.on
    table = Table(title="heat-treatment time against energy spent")
    for header in ("requested, s", "energy, kJ", "time, s", "constant power of this energy, s", ""):
        table.add_column(header, justify="right")
    numbers = {}
    for point, wish, (energy, time) in zip(front.found, front.wishes, front.values):
        alone = np.interp(energy, front.constant[:, 0], front.constant[:, 1])
        note = "dominated" if point.dominated else ""
        table.add_row(named(wish), f"{energy:.3f}", f"{time:.3f}", f"{alone:.3f}", note)
        numbers[f"{named(wish)} requested: energy [kJ], time [s], with constant power [s]"] = (
            f"{energy:.3f}, {time:.3f}, {alone:.3f}"
        )
    console.print(table)
    if front.interrupted:
        console.print(f"[yellow]stopped: {len(front.found)} of {options.points} points[/]")
    with torch.no_grad():
        powers = [point.design() for point in front.found]
        history = process.run(powers[0], probes=probes, snapshots=moments(process))
        frugal = process.run(powers[-1], probes=probes).probes
    lit = np.where(on, 1.0, np.nan)
    middle = [1, 4, 7]
    names = [f"z = {z * 1e3:.2f} mm" for z in places(options)[middle, 2]]
    band = (options.cold, options.hot)
    pictures = {
        "The front": draw(front, out / "front.png"),
        "Laser power of its points": plot_lines(
            out / "powers.png",
            {
                f"requested: {named(wish)}": (process.times[:-1], lit * power.cpu().numpy())
                for wish, power in zip(front.wishes, powers)
            },
            "time [s]", "power [W]", title="laser power of the front's points",
        ),
        "Temperatures at the frugal end": plot_histories(
            out / "frugal.png", process.times, frugal[:, middle], names, title="frugal end: middle of the wall",
            band=band,
        ),
        "Temperatures at the lavish end": plot_histories(
            out / "lavish.png", process.times, history.probes[:, middle], names, title="lavish end: middle of the wall",
            band=band,
        ),
    }  # fmt: skip
    numbers |= {
        "between [K]": f"{options.cold:g} and {options.hot:g}",
        "elements": len(process.mesh.elements),
        "steps": process.steps,
        "energy ledger, relative error": f"{history.ledger.error:.1e}",
    }
    series = th.write_vtk(out / "temperature.pvd", process, history)
    front.report = write_report(
        out, "Heat-treatment time against energy", numbers, pictures, files={"temperatures at the lavish end": series}
    )
    console.print(f"report: {front.report}")


def named(wish: float) -> str:
    """Return a requested time as text."""
    return "most" if np.isinf(wish) else f"{wish:.2f} s"


def draw(front: Front, path: Path) -> Path:
    """Draw the front and constant power; return the path."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.subplots()
    axes.plot(*front.constant.T, color="gray", marker=".", label="constant power")
    for watts, (energy, time) in list(zip(front.watts, front.constant))[:: len(front.watts) // 4]:
        axes.annotate(
            f"{watts:.0f} W", (energy, time), xytext=(4, -10), textcoords="offset points", fontsize=8, color="gray"
        )
    values = front.values
    beaten = np.array([point.dominated for point in front.found])
    axes.plot(*values[~beaten].T, color="tab:blue", marker="o", label="front, by the gradient")
    if beaten.any():
        axes.plot(*values[beaten].T, "o", color="tab:blue", markerfacecolor="white", label="beaten by another point")
    for wish, (energy, time) in zip(front.wishes, values):
        axes.annotate(named(wish), (energy, time), xytext=(-4, 7), textcoords="offset points",
                      fontsize=8, color="tab:blue", ha="right")  # fmt: skip
    axes.set(title="heat-treatment time against energy", xlabel="energy spent [kJ]",
             ylabel="mean heat-treatment time [s]")  # fmt: skip
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    return write_figure(figure, path, dpi=130)
