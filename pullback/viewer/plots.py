"""Plots that tasks share: how losses fell, by iteration and by the clock, one method beside another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

FEW = 100
"""Iterations of a search that are drawn as points too."""


class Search(Protocol):
    """What a search for a minimum left: losses (iterations, B), and seconds (iterations,) since it began."""

    @property
    def losses(self) -> Any:
        """Losses of all candidates or starts in each iteration."""
        ...

    @property
    def seconds(self) -> Any:
        """When each iteration was done [s]."""
        ...


def draw_losses(
    axes: Sequence[Any],
    found: Mapping[str, Search],
    *,
    ylabel: str = "best loss so far",
    bar: float | None = None,
    bar_label: str = "",
) -> None:
    """Draw the best loss so far of each search, by iteration on the first of the axes and by seconds on the second.

    `bar` is a loss to be reached, drawn as a line.
    """
    by_iteration, by_clock = axes
    for number, (name, search) in enumerate(found.items()):
        losses = np.asarray(_numbers(search.losses), float)
        losses = losses.reshape(len(losses), -1)
        best = np.minimum.accumulate(np.where(np.isfinite(losses), losses, np.inf).min(1))
        seconds = np.asarray(_numbers(search.seconds), float)
        marker = "." if len(best) < FEW else None
        style: dict[str, Any] = {"color": f"C{number}", "label": name, "linewidth": 1.5, "marker": marker}
        by_iteration.plot(np.arange(1, len(best) + 1), best, **style)
        by_clock.plot(seconds, best, **style)
    for axis, title, xlabel in ((by_iteration, "iteration", "iteration"), (by_clock, "wall-clock", "wall-clock [s]")):
        if bar is not None:
            axis.axhline(bar, color="gray", linestyle=":", label=bar_label)
        axis.set(title=f"by {title}", xlabel=xlabel, ylabel=ylabel, xscale="log", yscale="log")
        axis.xaxis.set_minor_formatter("")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)


def _numbers(values: Any) -> Any:
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values
