"""What tasks share that set gradients against gradient-free search: both runs, table, curves, and what is saved."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from rich.console import Console

from pullback.control.search.search import Found
from pullback.control.search.shooting import Objective, minimize
from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim
from pullback.rigid.state import Trajectory
from pullback.tasks._curves import Curve, has_cma, print_curves
from pullback.viewer.plots import draw_losses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Tensor = torch.Tensor

NOTHING_LEFT = 1e-25
"""The loss [m²] at which nothing is left to find."""


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


@dataclass
class Options:
    """What throw and golf are both told."""

    variant: Literal["default", "released"] = "default"
    """The physically right task, or the numbers of the released experiment."""
    iterations: int = 20
    """Iterations of the gradient method: rollouts with their backward pass."""
    cma_iterations: int = 60
    """Iterations of CMA-ES, each a population of rollouts; 0 leaves it out."""
    spread: float | None = None
    """First standard deviation of CMA-ES; by default 0.2 of the bounds, released: as the torques start."""
    seed: int = 0
    """Seed of CMA-ES, and of the torques that the released variant starts from."""
    out: Path = Path("out")
    """Folder for trajectory, picture and replay."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


class Released(NamedTuple):
    """How a released experiment searches: by Adam, from torques that are noise [N·m]."""

    noise: float
    learning_rate: float


def check(options: Options) -> None:
    """Refuse what cannot be run."""
    if options.cma_iterations < 0:
        raise PullbackError(f"cma_iterations is {options.cma_iterations}; give 1 or more, or 0 to leave CMA-ES out")


def fight_for(loss: Objective, rest: Tensor, options: Options, console: Console, released: Released) -> Duel:
    """Search for torques by gradients and by CMA-ES: shares of their bounds from rest, or as was released."""
    search: dict[str, Any] = {"iterations": options.cma_iterations, "seed": options.seed}
    if options.variant == "default":
        bounds = {"lower": -1.0, "upper": 1.0, "target": NOTHING_LEFT}
        gradient = {"method": "lbfgs", "iterations": options.iterations, "learning_rate": 0.1, **bounds}
        search |= {"spread": options.spread or 0.2, **bounds}
        return fight(loss, rest, console, gradient=gradient, search=search, miss=torch.sqrt)
    noise = torch.randn(*rest.shape, generator=torch.Generator().manual_seed(options.seed))
    gradient = {"method": "adam", "iterations": options.iterations, "learning_rate": released.learning_rate}
    search |= {"spread": options.spread or released.noise}
    start = released.noise * noise.to(rest)
    # its loss is the root of the mean over three coordinates
    return fight(loss, start, console, gradient=gradient, search=search, miss=lambda loss: 3**0.5 * loss)


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
