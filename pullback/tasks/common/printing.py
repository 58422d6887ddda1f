"""Helpers of tasks about printing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pullback.thermal.process import Process


def chosen_nodes(process: Process, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes of the build to watch, (count,): from the first born to the last, evenly; and when they are born."""
    printed = process.mesh.element_set("build")
    order = printed[np.argsort(process.births[printed], kind="stable")]
    place = np.round(np.linspace(0.05, 1.0, count) * (len(order) - 1)).astype(np.int64)
    # corner 6 of an element is at its top
    nodes = process.mesh.elements[order[place], 6]
    born = np.full(len(process.mesh.nodes), np.inf)
    np.minimum.at(born, process.mesh.elements, process.births[:, None])
    return nodes, born[nodes]


def lit_steps(process: Process) -> np.ndarray:
    """Return in which steps the beam is lit, (steps,)."""
    return process.on


def print_numbers(title: str, numbers: Mapping[str, Any], console: Console) -> None:
    """Print a table of names and values."""
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in numbers.items():
        table.add_row(escape(name), escape(f"{value:.5g}" if isinstance(value, float) else str(value)))
    console.print(table)
