"""A gradient method and a gradient-free one on the same objective: both searches, their table and their curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from rich.console import Console

from pullback.control.search.evaluate import Objective
from pullback.control.search.search import Found
from pullback.control.search.shooting import minimize
from pullback.tasks.common.curves import Curve, has_cma, print_curves
from pullback.viewer.plots import draw_losses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Tensor = torch.Tensor

SOLVED = 1e-25
"""The loss [m²] at which nothing is left to improve."""


@dataclass
class Comparison:
    """The searches by a gradient method and by CMA-ES or at random; `miss` turns a loss into an error in `unit`."""

    gradient: Found
    search: Found | None
    """The gradient-free search, unless it was left out."""
    miss: Callable[[Tensor], Tensor]
    unit: str

    @property
    def runs(self) -> dict[str, Found]:
        """The searches by name."""
        found = {f"gradient ({self.gradient.method})": self.gradient}
        if self.search is not None:
            found["CMA-ES" if self.search.method == "cma" else self.search.method] = self.search
        return found

    @property
    def curves(self) -> list[Curve]:
        """The best error so far of each search."""
        return [
            Curve(f"{name}\n{worlds_of(run)}, {self.unit}", run.seconds.numpy(), self.miss(run.curve).numpy())
            for name, run in self.runs.items()
        ]

    @property
    def arrays(self) -> dict[str, Tensor]:
        """Losses and seconds of both searches, to be written to a file."""
        named = zip(("gradient", "search"), self.runs.values())
        return {f"{name}_{x}": getattr(run, x) for name, run in named for x in ("losses", "seconds")}

    def reached(self, run: Found, error: float) -> int | None:
        """Return the number of iterations until the error was at most this, or None."""
        hits = (self.miss(run.curve) <= error).nonzero().flatten()
        return int(hits[0]) + 1 if len(hits) else None


def compare_methods(
    objective: Objective,
    start: Tensor,
    console: Console,
    *,
    gradient: dict[str, Any],
    search: dict[str, Any],
    miss: Callable[[Tensor], Tensor],
    unit: str = "m",
) -> Comparison:
    """Run both searches with their options of `minimize`.

    The gradient-free one, by default CMA-ES, is left out if its iterations are 0 or its package is missing.
    """
    found = minimize(objective, start, console=console, label="by gradients", **gradient)
    other, label = None, "at random" if search.get("method") == "random" else "by CMA-ES"
    search = {"method": "cma", **search}
    if search["iterations"] and not found.interrupted and (search["method"] != "cma" or has_cma(console)):
        other = minimize(objective, start, console=console, label=label, **search)
    return Comparison(found, other, miss, unit)


@dataclass
class Options:
    """Options of throw and golf."""

    variant: Literal["default", "released"] = "default"
    """The physically right task, or the numbers of the released experiment."""
    iterations: int = 20
    """Iterations of the gradient method: rollouts with their backward pass."""
    cma_iterations: int = 60
    """Iterations of CMA-ES, each a population of rollouts; 0 leaves it out."""
    spread: float | None = None
    """First standard deviation of CMA-ES; by default 0.2 of the bounds, released: that of the first torques."""
    seed: int = 0
    """Seed of CMA-ES, and of the torques that the released variant starts from."""
    out: Path = Path("out")
    """Folder for trajectory, picture and replay."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


class Released(NamedTuple):
    """How a released experiment searches: by Adam, from random torques of this standard deviation [N·m]."""

    noise: float
    learning_rate: float


def compare_torque_searches(
    loss: Objective, rest: Tensor, options: Options, console: Console, released: Released
) -> Comparison:
    """Search for torques: as fractions of their bounds from rest, or as in the released experiment."""
    search: dict[str, Any] = {"iterations": options.cma_iterations, "seed": options.seed}
    if options.variant == "default":
        bounds = {"lower": -1.0, "upper": 1.0, "target": SOLVED}
        gradient = {"method": "lbfgs", "iterations": options.iterations, "learning_rate": 0.1, **bounds}
        search |= {"spread": options.spread or 0.2, **bounds}
        return compare_methods(loss, rest, console, gradient=gradient, search=search, miss=torch.sqrt)
    noise = torch.randn(*rest.shape, generator=torch.Generator().manual_seed(options.seed))
    gradient = {"method": "adam", "iterations": options.iterations, "learning_rate": released.learning_rate}
    search |= {"spread": options.spread or released.noise}
    start = released.noise * noise.to(rest)
    # its loss is the root of the mean over three coordinates
    return compare_methods(loss, start, console, gradient=gradient, search=search, miss=lambda loss: 3**0.5 * loss)


def worlds_of(run: Found) -> str:
    """Return the number of worlds in an iteration as text."""
    count = run.losses.shape[1]
    return "1 world" if count == 1 else f"{count} worlds"


def report(comparison: Comparison, console: Console, title: str, bar: float) -> None:
    """Print the error by iteration and by wall-clock time, and when each search met the bar."""
    unit = comparison.unit
    print_curves(comparison.curves, console, title)
    for name, run in comparison.runs.items():
        count, last = comparison.reached(run, bar), len(run.losses) - 1
        met = f"never below {bar:g} {unit}"
        if count is not None:
            rollouts, seconds = int(run.evaluations[count - 1]), run.seconds[count - 1].item()
            met = f"below {bar:g} {unit} after {count} iterations, {rollouts} rollouts, {seconds:.2f} s"
        console.print(f"{name}: {met}; in all {last + 1} iterations of {worlds_of(run)} ({run.reason})")


def draw_curves(axes: Sequence[Axes], comparison: Comparison, bar: float) -> None:
    """Draw the best error so far by iteration and by wall-clock time."""
    curves, unit = dict(zip(comparison.runs, comparison.curves)), comparison.unit
    draw_losses(axes, curves, ylabel=f"best miss so far [{unit}]", bar=bar, bar_label=f"{bar:g} {unit}")
