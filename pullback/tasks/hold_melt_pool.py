"""Find the laser power that holds the depth of the melt pool while a thin wall is printed.

With constant power the pool grows: each track starts cold and ends hot, and the higher the wall, the less heat it
sheds. Probes follow the beam at several depths; where their temperature crosses that of melting is the depth of the
pool. The power over time, straight lines between knots, is optimised by the gradient of the depth's deviation from the
target. The remaining ripple is the discretisation: the beam passes from element to element.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import pullback.thermal as th
from pullback.core.device import find_device
from pullback.core.errors import PullbackError
from pullback.tasks.common.options import settings_of
from pullback.tasks.common.thin_wall import moments, rough_power, thin_wall
from pullback.thermal.report import plot_lines, plot_loss, plot_power, write_report

Tensor = torch.Tensor

CELL = (0.75e-3, 0.75e-3, 0.375e-3)
PLATE = 5e-3
DEPTHS = 12
"""Probes under the beam, from the surface to twice the target."""


@dataclass
class Options:
    """How to hold the depth of the melt pool."""

    target: float = 0.5
    """Depth to hold [mm]."""
    low: float = 50.0
    """Least power [W]."""
    high: float = 700.0
    """Most power [W]."""
    length: float = 12.0
    """Of the wall [mm]."""
    layers: int = 4
    """Tracks on top of each other, 0.75 mm high each."""
    dwell: float = 0.5
    """Pause between two layers [s]."""
    settle: float = 0.25
    """Time at the beginning of each track in which the depth does not count [s]."""
    knots: float = 10.0
    """Knots of the power in a second."""
    iterations: int = 60
    """Iterations of the optimiser (Adam)."""
    learning_rate: float = 0.1
    """Its learning rate."""
    seed: int = 0
    """Seed of the small random part of the power at the start."""
    fresh: bool = False
    """Start over; otherwise an interrupted run in the same folder is resumed."""
    out: Path = Path("out/hold-melt-pool")
    """Folder for the report, its pictures and the VTK series."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Held:
    """The result: powers [W] (N,) and melt-pool depths [m] (N,) at the start and at the end."""

    process: th.Process
    asked: np.ndarray
    """The steps (N,) in which the depth counts."""
    power: Tensor
    depth: Tensor
    start_power: Tensor
    start_depth: Tensor
    out_of_reach: np.ndarray
    """Steps in which the power's upper bound leaves the pool shallower than the target, or the lower one deeper."""
    design: th.Design
    report: Path | None = None

    def deviation(self, depth: Tensor, target: float) -> float:
        """Return the root-mean-square error [m] of a depth against the target [m] where it counts."""
        return float((depth[self.asked] - target).square().mean().sqrt())


def run(options: Options) -> Held:
    """Find the power, print what it does, and write the report."""
    check(options)
    console = Console()
    device = find_device(options.device)
    target = options.target * 1e-3
    process = thin_wall(
        length=options.length * 1e-3, layers=options.layers, cell=CELL, plate=PLATE, dwell=options.dwell, cooling=0.5,
        fixed={"bottom": 300.0}, device=device,
    )  # fmt: skip
    depths = np.linspace(0.0, 2.0 * target, DEPTHS)
    probes = process.under_beam(depths)
    melting = float(process.materials[0].solidus or 0.0)
    asked = settled(process, options.settle)

    def depth_of(power: Tensor) -> Tensor:
        return th.melt_pool_depth(process.run(power, probes=probes).probes[1:], depths, melting)

    bounds = (options.low, options.high)
    with console.status("compiling the kernels, once on a machine"), torch.no_grad():
        out_of_reach = reach(depth_of, process, asked, target, bounds)
    say_reach(out_of_reach, asked, bounds, console)
    knots = max(2, 1 + round(process.duration * options.knots))
    start = rough_power(0.5 * sum(bounds), knots, bounds, options.seed)
    power = th.KnotPower(process.steps, bounds, knots, start=start).to(device)
    start_power = power().detach()
    where = torch.as_tensor(np.flatnonzero(asked), device=device)

    def loss() -> Tensor:
        return ((depth_of(power())[where] - target) / target).square().mean()

    with torch.no_grad():
        start_depth = depth_of(start_power)
    found = th.design(
        loss, power, iterations=options.iterations, learning_rate=options.learning_rate, folder=options.out,
        resume=not options.fresh, settings=settings_of(asdict(options)), title="holding the melt pool", console=console,
    )  # fmt: skip
    with torch.no_grad():
        best = power()
        history = process.run(best, probes=probes, snapshots=moments(process))
        depth = th.melt_pool_depth(history.probes[1:], depths, melting)
    held = Held(process, asked, best, depth, start_power, start_depth, out_of_reach, found)
    report(held, history, options, console)
    return held


def check(options: Options) -> None:
    """Raise for invalid options."""
    if not 0.0 < options.target <= 0.45 * PLATE * 1e3:
        raise PullbackError(f"target is {options.target:g} mm; expected more than 0 and at most {0.45 * PLATE * 1e3:g}")
    if not 0.0 <= options.low < options.high:
        raise PullbackError(f"power is bounded to {options.low:g} and {options.high:g} W; expected 0 ≤ low < high")


def settled(process: th.Process, wait: float) -> np.ndarray:
    """Return the steps (N,) in which the beam has been on for at least this time [s]."""
    on = process.on
    begin = on & ~np.append(False, on[:-1])
    lit_at = np.maximum.accumulate(np.where(begin, np.arange(len(on)), 0))
    asked = on & ((np.arange(len(on)) - lit_at) * process.dt >= wait)
    if not asked.any():
        raise PullbackError(f"settle is {wait:g} s, longer than every track; give less")
    return asked


def reach(depth_of, process: th.Process, asked: np.ndarray, target: float, bounds: tuple[float, float]) -> np.ndarray:
    """Return the steps (N,) in which constant power at the bounds does not bracket the target; raise if all are."""
    shallow, deep = (
        depth_of(torch.full((process.steps,), watts, dtype=process.dtype, device=process.device)).cpu().numpy()
        for watts in bounds
    )
    too_deep, too_shallow = asked & (deep < target), asked & (shallow > target)
    if too_deep.sum() == asked.sum():
        raise PullbackError(
            f"a melt pool of {target * 1e3:g} mm is out of reach: {bounds[1]:g} W all the time give at most "
            f"{deep[asked].max() * 1e3:.3g} mm; raise the most power, or lower the target"
        )
    if too_shallow.sum() == asked.sum():
        raise PullbackError(
            f"a melt pool of {target * 1e3:g} mm is out of reach: {bounds[0]:g} W all the time give at least "
            f"{shallow[asked].min() * 1e3:.3g} mm; lower the least power, or raise the target"
        )
    return too_deep | too_shallow


def say_reach(out_of_reach: np.ndarray, asked: np.ndarray, bounds: tuple[float, float], console: Console) -> None:
    """Print the number of steps in which the target cannot be reached within the bounds."""
    if out_of_reach.any():
        console.print(
            f"[yellow]in {out_of_reach.sum()} of {asked.sum()} steps the target is out of reach between {bounds[0]:g} "
            f"and {bounds[1]:g} W[/]"
        )


def report(held: Held, history: th.History, options: Options, console: Console) -> None:
    """Print the table, and write pictures, VTK series and page."""
    target, process, out = options.target * 1e-3, held.process, options.out
    on = process.on
    rows = {}
    for name, depth, power in (
        ("at the start", held.start_depth, held.start_power),
        ("found", held.depth, held.power),
    ):
        seen = depth[held.asked] * 1e3
        rows[name] = (
            f"{float(power[on].min()):.0f} to {float(power[on].max()):.0f}",
            f"{float(seen.min()):.3f} to {float(seen.max()):.3f}",
            f"{held.deviation(depth, target) * 1e3:.4f}",
        )
    table = Table(title=f"melt pool of {options.target:g} mm, after {len(held.design.losses)} iterations")
    for header in ("", "power, W", "depth, mm", "rms deviation, mm"):
        table.add_column(header, justify="right" if header else "left")
    for name, row in rows.items():
        table.add_row(name, *row)
    console.print(table)
    times, lit = process.times[:-1], np.where(on, 1.0, np.nan)
    pictures = {
        "Depth of the melt pool": plot_lines(
            out / "depth.png",
            {
                "at the start": (times, lit * held.start_depth.cpu().numpy() * 1e3),
                "found": (times, lit * held.depth.cpu().numpy() * 1e3),
                "target": (times[[0, -1]], np.full(2, options.target)),
            },
            "time [s]",
            "depth [mm]",
            title="depth of the melt pool under the beam",
        ),
        "Laser power": plot_power(
            out / "power.png", times, held.power, start=held.start_power, on=on,
            bounds=(options.low, options.high),
        ),
        "Loss": plot_loss(out / "loss.png", held.design.losses, title="mean square of (depth − target) / target"),
    }  # fmt: skip
    numbers = {
        "target [mm]": options.target,
        **{f"{name}: {what}": row[k] for name, row in rows.items()
           for k, what in enumerate(("power [W]", "depth [mm]", "rms deviation [mm]"))},
        "steps out of reach within the bounds": f"{held.out_of_reach.sum()} of {held.asked.sum()}",
        "elements": len(process.mesh.elements),
        "steps": process.steps,
        "step [s]": process.dt,
        "iterations": len(held.design.losses),
        "time [s]": held.design.seconds,
        "energy ledger, relative error": f"{history.ledger.error:.1e}",
    }  # fmt: skip
    series = th.write_vtk(out / "temperature.pvd", process, history)
    held.report = write_report(
        out, "Holding the depth of the melt pool", numbers, pictures, files={"temperatures over time": series}
    )
    console.print(f"report: {held.report}")
