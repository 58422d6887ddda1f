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

from pullback.control.search import Found
from pullback.control.shooting import Objective, minimize
from pullback.rigid.sim import Sim
from pullback.rigid.state import Trajectory
from pullback.tasks._curves import Curve, has_cma, print_curves
from pullback.viewer.plots import draw_losses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Tensor = torch.Tensor


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
    if search["iterations"] and not found.interrupted and (search["method"] != "cma" or has_cma(console)):
        rival = minimize(objective, start, console=console, label=label, **search)
    return Duel(found, rival, miss, unit)


def worlds_of(run: Found) -> str:
    """Say how many worlds an iteration simulates."""
    count = run.losses.shape[1]
    return "1 world" if count == 1 else f"{count} worlds"


def curves_of(duel: Duel) -> list[Curve]:
    """Return the best miss so far of each run."""
    return [
        Curve(f"{name}\n{worlds_of(run)}, {duel.unit}", run.seconds.numpy(), duel.miss(run.curve).numpy())
        for name, run in duel.runs.items()
    ]


def report(duel: Duel, console: Console, title: str, bar: float) -> None:
    """Print the miss by iteration, by wall-clock, and when each method met the bar."""
    runs = duel.runs
    print_curves(curves_of(duel), console, title)
    for name, run in runs.items():
        count, last = duel.reached(run, bar), len(run.losses) - 1
        met = f"never below {bar:g} {duel.unit}"
        if count is not None:
            rollouts, seconds = int(run.evaluations[count - 1]), run.seconds[count - 1].item()
            met = f"below {bar:g} {duel.unit} after {count} iterations, {rollouts} rollouts, {seconds:.2f} s"
        console.print(f"{name}: {met}; in all {last + 1} iterations of {worlds_of(run)} ({run.reason})")


def draw_curves(axes: Sequence[Axes], duel: Duel, bar: float) -> None:
    """Draw the best miss so far by iteration and by wall-clock."""
    curves = dict(zip(duel.runs, curves_of(duel)))
    draw_losses(axes, curves, ylabel=f"best miss so far [{duel.unit}]", bar=bar, bar_label=f"{bar:g} {duel.unit}")


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
