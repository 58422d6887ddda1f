"""What the larger benches end in: a printed table, and a file of figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

Rows = list[tuple[str, str, str, str]]
Figures = dict[str, float]
Part = Callable[[], tuple[Rows, Figures]]


def print_table(title: str, headings: Sequence[str], parts: Iterable[Part], path: Path) -> Rows:
    """Run the parts, print their rows and return them; the figures of those that are done are always in `path`."""
    path.parent.mkdir(exist_ok=True)
    table, every, figures = Table(*headings, title=title), [], {}
    for part in parts:
        rows, found = part()
        every += rows
        figures |= found
        path.write_text(json.dumps(figures, indent=2))
    for cells in every:
        table.add_row(*cells)
    Console(width=170).print(table)
    print(f"figures: {path}", flush=True)
    return every
