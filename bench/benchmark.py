"""What a benchmark of `make bench-all` is: a question, settings, a check, and cells that are measured one by one.

A cell is one competitor under one setting, named by a path such as `tapes/JAX/1000`. It returns a row: figures with
their spread, or why there are none. Rows are kept by name in one JSON file, so that cells can be measured apart.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median, quantiles
from typing import Any, NamedTuple

Row = dict[str, Any]
Cell = Callable[[], Row]


class Options(NamedTuple):
    """What the command was asked for: seconds a cell may take in all, and seconds of timing a function."""

    cap: float = 180.0
    seconds: float = 6.0


class Benchmark(NamedTuple):
    """A benchmark; `tables` turns its rows into lines of Markdown, `plot` into a picture at a path.

    Where it `grows`, a setting of a competitor takes more time and memory than the one before: after one that takes too
    much, the next ones are not tried.
    """

    name: str
    title: str
    question: str
    settings: str
    check: str
    cells: Callable[[Options], dict[str, Cell]]
    tables: Callable[[dict[str, Row]], list[str]]
    plot: Callable[[dict[str, Row], str], None] | None = None
    grows: bool = False


class Bar(NamedTuple):
    """A promise: what, the bar, the figure, and whether it is kept; None where nothing was measured."""

    what: str
    bar: str
    figure: str
    holds: bool | None


class NoResultError(Exception):
    """Why a cell has no figures."""


class TooMuchError(NoResultError):
    """A cell took more time or memory than it may."""


class NotHereError(NoResultError):
    """A cell needs what this machine does not have; figures of another machine stay."""


NOT_MEASURED: Row = {"failed": "–"}
"""What stands in a table where there is no row."""


def spread(times: list[float]) -> dict[str, float]:
    """Return median, quartiles and number of times."""
    quarters = quantiles(times, n=4) if len(times) > 2 else (min(times), median(times), max(times))
    return {"median": median(times), "low": quarters[0], "high": quarters[2], "calls": len(times)}


def markdown(headings: list[str], rows: list[list[str]]) -> list[str]:
    """Return a table as lines; a bar in a reason would end its cell."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *rows)]


def figure(value: float) -> str:
    """Return a number with three digits."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def time_with_spread(found: dict[str, float], scale: float) -> str:
    """Return a median and its quartiles, where several calls were timed."""
    text = figure(scale * found["median"])
    if found["calls"] > 2:
        text += f" ({figure(scale * found['low'])} to {figure(scale * found['high'])})"
    return text
