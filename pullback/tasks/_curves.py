"""Searches side by side: the best so far by iteration and by wall-clock, printed and drawn."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from pullback.control.search import Found

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MILESTONES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Moments of the longest search at which the table tells the best by wall-clock."""
COLORS = ("tab:blue", "tab:orange", "gray", "tab:green", "tab:purple")


class Curve(NamedTuple):
    """How a search went: seconds since it began and the best so far, after each iteration (n,)."""

    name: str
    seconds: np.ndarray
    best: np.ndarray

    @classmethod
    def of(cls, name: str, seconds: Sequence[float] | np.ndarray, values: Sequence[float] | np.ndarray) -> Curve:
        """Return the curve of values that may rise in between, or not be finite."""
        numbers = np.nan_to_num(np.asarray(values, dtype=float), nan=np.inf)
        return cls(name, np.asarray(seconds, dtype=float), np.minimum.accumulate(numbers))


def evolution_curve(found: Found, name: str) -> Curve:
    """Return the curve of a search by `minimize`: the best of all its candidates."""
    return Curve(name, found.seconds.numpy(), found.curve.numpy())


def has_cma(console: Console) -> bool:
    """Tell whether CMA-ES can be compared with, and say so if it cannot."""
    there = importlib.util.find_spec("cma") is not None
    if not there:
        console.print("CMA-ES is left out: pip install 'pullback\\[search]' brings it")
    return there


def print_curves(curves: Sequence[Curve], console: Console, title: str) -> None:
    """Print the best so far after numbers of iterations and after seconds."""
    table = Table(title=title, title_justify="left")
    table.add_column("after")
    for curve in curves:
        table.add_column(curve.name, justify="right")
    longest = max(len(curve.best) for curve in curves)
    for k in (*[k for k in MILESTONES if k < longest], longest):
        table.add_row(f"{k} iterations", *(f"{c.best[k - 1]:.3g}" if k <= len(c.best) else "" for c in curves))
    table.add_section()
    last = max(curve.seconds[-1] for curve in curves)
    for share in SHARES:
        done = [int((curve.seconds <= share * last + 1e-9).sum()) for curve in curves]
        table.add_row(f"{share * last:.2f} s", *(f"{c.best[k - 1]:.3g}" if k else "-" for c, k in zip(curves, done)))
    console.print(table)


def draw_curves(by_iteration: Axes, by_seconds: Axes, curves: Sequence[Curve], what: str) -> None:
    """Draw the best so far by iteration and by wall-clock."""
    for curve, color in zip(curves, COLORS):
        by_iteration.loglog(np.arange(1, len(curve.best) + 1), curve.best, color=color, label=curve.name)
        by_seconds.loglog(curve.seconds, curve.best, color=color, label=curve.name)
    for axis, label in ((by_iteration, "iteration"), (by_seconds, "wall-clock [s]")):
        axis.set(title=f"the search, by {label.split(' [')[0]}", xlabel=label, ylabel=what)
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3, which="both")
