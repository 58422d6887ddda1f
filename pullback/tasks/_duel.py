"""What tasks share that set gradients against gradient-free search: both runs, table, curves, and what is saved."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pullback.control.search import Found
from pullback.control.shooting import Objective, minimize
from pullback.rigid.sim import Sim
from pullback.rigid.state import Trajectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Tensor = torch.Tensor

MILESTONES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1500)
"""Iterations after which the table tells the loss."""
SHARES = (0.1, 0.25, 0.5, 1.0)
"""Moments of the longer run at which it tells the loss by wall-clock."""


@dataclass
class Duel:
    """A gradient method and CMA-ES on the same objective; `miss` says what a loss means, in `unit`."""

    gradient: Found
    search: Found | None
    miss: Callable[[Tensor], Tensor]
    unit: str

    @property
    def runs(self) -> dict[str, Found]:
        """The runs by the name they are shown under."""
        found = {f"gradient ({self.gradient.method})": self.gradient}
        if self.search is not None:
            found["CMA-ES" if self.search.method == "cma" else self.search.method] = self.search
        return found

    def reached(self, run: Found, least: float) -> int | None:
        """Return after how many iterations the miss was at most `least`; None: never."""
        hits = (self.miss(run.curve) <= least).nonzero().flatten()
        return int(hits[0]) + 1 if len(hits) else None


def fight(
    objective: Objective,
    start: Tensor,
    console: Console,
    *,
    gradient: dict[str, Any],
    search: dict[str, Any],
    miss: Callable[[Tensor], Tensor],
    unit: str = "m",
) -> Duel:
    """Run both methods with their options; CMA-ES is left out if its iterations are 0 or the package is missing."""
    found = minimize(objective, start, console=console, label="by gradients", **gradient)
    rival, label = None, "at random" if search.get("method") == "random" else "by CMA-ES"
    search = {"method": "cma", **search}
    if search["iterations"] and not found.interrupted:
        if search["method"] == "cma" and importlib.util.find_spec("cma") is None:
            console.print("CMA-ES is left out: pip install 'pullback\\[search]' brings it")
        else:
            rival = minimize(objective, start, console=console, label=label, **search)
    return Duel(found, rival, miss, unit)


def report(duel: Duel, console: Console, title: str, bar: float) -> None:
    """Print the miss by iteration, by wall-clock, and when each method met the bar."""
    table = Table(title=title)
    table.add_column("after")
    runs = duel.runs
    for name, run in runs.items():
        table.add_column(f"{name}\n{run.losses[0].numel()} worlds, {duel.unit}", justify="right")
    curves = [duel.miss(run.curve) for run in runs.values()]
    longest = max(len(curve) for curve in curves)
    for k in sorted({*(k for k in MILESTONES if k <= longest), *(len(curve) for curve in curves)}):
        cells = (f"{curve[k - 1].item():.2e}" if k <= len(curve) else "" for curve in curves)
        table.add_row(f"{k} iterations", *cells)
    table.add_section()
    times = [run.seconds for run in runs.values()]
    ends = sorted({share * max(t[-1].item() for t in times) for share in SHARES} | {t[-1].item() for t in times})
    for end in ends:
        cells = []
        for curve, seconds in zip(curves, times):
            done = int((seconds <= end + 1e-9).sum())
            cells.append(f"{curve[done - 1].item():.2e}" if done else "-")
        table.add_row(f"{end:.2f} s", *cells)
    console.print(table)
    for name, run in runs.items():
        count, last = duel.reached(run, bar), len(run.losses) - 1
        met = f"never below {bar:g} {duel.unit}"
        if count is not None:
            rollouts, seconds = int(run.evaluations[count - 1]), run.seconds[count - 1].item()
            met = f"below {bar:g} {duel.unit} after {count} iterations, {rollouts} rollouts, {seconds:.2f} s"
        console.print(f"{name}: {met}; in all {last + 1} iterations of {run.losses.shape[1]} worlds ({run.reason})")


def draw_curves(axes: Sequence[Axes], duel: Duel, bar: float) -> None:
    """Draw the best miss so far by iteration and by wall-clock."""
    for axis, by_time in zip(axes, (False, True)):
        for (name, run), color in zip(duel.runs.items(), ("tab:blue", "tab:orange")):
            curve = duel.miss(run.curve)
            x = run.seconds if by_time else torch.arange(1, len(curve) + 1)
            axis.loglog(x, curve, color=color, label=name, marker="." if len(curve) < 100 else None)
        axis.axhline(bar, color="gray", linestyle=":", label=f"{bar:g} {duel.unit}")
        axis.set(xlabel="wall-clock [s]" if by_time else "iteration", ylabel=f"best miss so far [{duel.unit}]")
        axis.set_title("by wall-clock" if by_time else "by iteration")
        axis.xaxis.set_minor_formatter("")
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)


def save(path: Path, sim: Sim, motion: Trajectory, controls: Tensor, duel: Duel | None = None) -> Path:
    """Save the motion of the first world, its controls (T, nu) and the curves; return the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Tensor] = {"q": motion.q[:, 0], "qd": motion.qd[:, 0], "u": controls, "dt": torch.tensor(sim.dt)}
    if duel is not None:
        for name, run in zip(("gradient", "search"), duel.runs.values()):
            arrays |= {f"{name}_losses": run.losses, f"{name}_seconds": run.seconds}
    plain: dict[str, Any] = {name: x.detach().cpu().numpy() for name, x in arrays.items()}
    np.savez_compressed(path, **plain)
    return path


def replay(
    sim: Sim,
    motion: Trajectory,
    controls: Tensor | None,
    path: Path,
    console: Console,
    title: str,
    paths: Sequence[str | Tensor] = (),
) -> Path | None:
    """Write the replay of the first world, with lines; without the viewer's package say so and go on."""
    if importlib.util.find_spec("viser") is None:
        console.print("no replay: pip install 'pullback\\[viz]' brings what draws it")
        return None
    from pullback.viewer import save_replay

    return save_replay(sim, motion, path, controls=controls, title=title, paths=paths, fps=60.0)


def cross(point: Sequence[float], half: float = 0.04) -> Tensor:
    """Return a line (n, 3) that draws a cross at a point, for a replay."""
    centre = torch.tensor(point, dtype=torch.float64)
    arms = [centre + sign * half * axis for axis in torch.eye(3, dtype=torch.float64) for sign in (-1, 1, 0)]
    return torch.stack(arms)


def write_figure(figure: Any, path: Path) -> Path:
    """Save a figure and return its file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
