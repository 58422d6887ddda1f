"""Curves of searches: the best so far by iteration and by wall-clock time."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from pullback.control.search.search import Found

MILESTONES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1500)
"""Iterations at which the table has the best."""
SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Fractions of the longest search at which the table has the best by wall-clock time."""


class Curve(NamedTuple):
    """The curve of a search: seconds since its start and the best so far, after each iteration (n,)."""

    name: str
    seconds: np.ndarray
    best: np.ndarray

    @property
    def losses(self) -> np.ndarray:
        """What `pullback.viewer.draw_losses` draws."""
        return self.best

    @classmethod
    def of(cls, name: str, seconds: Sequence[float] | np.ndarray, values: Sequence[float] | np.ndarray) -> Curve:
        """Return the curve of values that may rise in between, or not be finite."""
        numbers = np.nan_to_num(np.asarray(values, dtype=float), nan=np.inf)
        return cls(name, np.asarray(seconds, dtype=float), np.minimum.accumulate(numbers))


def evolution_curve(found: Found, name: str) -> Curve:
    """Return the curve of a search by `minimize`: the best of all its candidates."""
    return Curve(name, found.seconds.numpy(), found.curve.numpy())


def has_cma(console: Console) -> bool:
    """Return whether CMA-ES is installed; print how to install it if not."""
    there = importlib.util.find_spec("cma") is not None
    if not there:
        console.print("CMA-ES is left out: pip install 'pullback\\[search]' installs it")
    return there


def print_curves(curves: Sequence[Curve], console: Console, title: str) -> None:
    """Print the best so far after numbers of iterations and after seconds."""
    table = Table(title=title, title_justify="left")
    table.add_column("after")
    for curve in curves:
        table.add_column(curve.name, justify="right")
    ends = {len(curve.best) for curve in curves}
    for k in sorted(ends.union(k for k in MILESTONES if k < max(ends))):
        table.add_row(f"{k} iterations", *(f"{c.best[k - 1]:.3g}" if k <= len(c.best) else "" for c in curves))
    table.add_section()
    times = {float(curve.seconds[-1]) for curve in curves}
    for time in sorted(times.union(share * max(times) for share in SHARES)):
        done = [int((curve.seconds <= time + 1e-9).sum()) for curve in curves]
        table.add_row(f"{time:.2f} s", *(f"{c.best[k - 1]:.3g}" if k else "-" for c, k in zip(curves, done)))
    console.print(table)
