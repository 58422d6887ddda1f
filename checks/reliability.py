"""Measure whether default settings hold, against the bars of docs/reliability.md: `python -m checks.reliability`.

`--only robots piles` runs these parts alone and leaves the others' figures as they were; `--every 10` takes a tenth of
the cases, `--every 50` tries everything and writes nothing. Figures are kept in checks/reliability_after.json, with the
commit that they were measured at. Those of the tree before defaults were changed are in checks/reliability_before.json:
`--record before`, run there, wrote them.
"""

from __future__ import annotations

import json
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

import pullback as pb
from checks.reliability_figures import SMALL, Figure, Part
from checks.reliability_robots import measure_robots
from checks.reliability_threads import measure_threads
from checks.reliability_worlds import measure_passive, measure_piles, measure_schedules, measure_tumbling

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "reliability.md"

PARTS: dict[str, tuple[str, Callable[..., Part]]] = {
    "robots": ("Robots of other packages", measure_robots),
    "passive": ("Energy of passive worlds", measure_passive),
    "tumbling": ("Free tumbling", measure_tumbling),
    "piles": ("Piles at rest", measure_piles),
    "schedules": ("Gradients and checkpoint schedules", measure_schedules),
    "threads": ("Threads", measure_threads),
}
Name = Literal["robots", "passive", "tumbling", "piles", "schedules", "threads"]


@dataclass
class Options:
    """Measure the bars of reliability."""

    only: tuple[Name, ...] = ()
    """Parts to run; all by default."""
    every: int = 1
    """Take one robot, one seed of so many; from 50 on everything is short, and nothing is written."""
    record: Literal["before", "after"] = "after"
    """Which column the figures are for."""
    commit: str = ""
    """What to write as the commit; by default git's HEAD."""
    page: Path = PAGE
    """Where the page goes."""


def run(options: Options, console: Console) -> dict[str, Part]:
    """Run the parts and return their figures."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = {}

    def progress(items: Iterable[Any], title: str) -> Iterable[Any]:
        return track(list(items), title, console=console)

    with np.errstate(all="ignore"):
        for name in options.only or PARTS:
            start = time.perf_counter()
            found[name] = PARTS[name][1](every=options.every, progress=progress)
            found[name].notes.append(f"took {time.perf_counter() - start:.0f} s")
            if options.every < SMALL:
                # a long run that is ended early keeps what it has
                record(options, {name: found[name]})
    return found


# -- figures on disk -------------------------------------------------------------------------------------------------


def data_file(column: str) -> Path:
    """Return where the figures of a column are kept."""
    return HERE / f"reliability_{column}.json"


def read(column: str) -> dict[str, Part]:
    """Return the figures of a column by part, as far as there are any."""
    file = data_file(column)
    if not file.is_file():
        return {}
    parts = json.loads(file.read_text(encoding="utf-8"))
    return {name: Part([Figure(**row) for row in part["figures"]], part["notes"]) for name, part in parts.items()}


def record(options: Options, found: dict[str, Part]) -> None:
    """Write the figures of the parts that were run beside those of the others."""
    commit = (options.commit or head()) + (f" (one case of {options.every})" if options.every > 1 else "")
    parts = read(options.record)
    for name, part in found.items():
        for figure in part.figures:
            figure.commit = commit
        parts[name] = part
    text = json.dumps({name: asdict(part) for name, part in parts.items()}, indent=1, ensure_ascii=False)
    data_file(options.record).write_text(text + "\n", encoding="utf-8")


def head() -> str:
    """Return the commit that is checked out."""
    ran = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True)
    return ran.stdout.strip() or "unknown"


# -- the page --------------------------------------------------------------------------------------------------------

INTRODUCTION = """\
What a user meets who changes nothing: robots from other packages, passive worlds, piles, gradients under each schedule
of checkpoints, threads. "Before" are figures of the tree in which damping was explicit, sweeps were not finished and
room for contacts was a guess; "after" are those of the tree as it is. `python -m checks.reliability --only robots`
measures a part again. Bars that are measured elsewhere: hostile files by `tests/description/test_hostile_files.py` and
[fuzz.md](fuzz.md) (24 of 133 ended in raw tracebacks before, none since); Ctrl-C by `tests/rigid/test_interrupt.py`
(heard after up to 32 s before, within 1 s since); the price of a standing Laikago by `python -m bench.against REV`.

- Robots: a robot whose root link has mass floats, all others are fixed, with `repair=True`; a ground lies where their
  lowest point is. Limp is no control, servos are `PositionServo(60, 2)` at the initial joint positions. The gradient is
  that of a fixed linear loss of the last state by initial velocity and controls; errors are relative to its largest
  entry.
- Passive worlds: those of `checks/random_worlds.py` with `pb.PGS()` in float64, 100 steps, which start without overlap.
  Gains are relative to the energy in play: initial kinetic energy, what potential energy varies by, and a centimetre of
  the weight; the end is the mean of the last tenth.
- Schedules: random worlds of all kinds with the solvers drawn for them, 24 steps.
- What limits the robots: b1 and go1 have steps with two solutions of Coulomb's friction, both to rounding, and sweeps
  end at one, `pb.Exact` at the other ([exact_solver.md](derivations/exact_solver.md), "Several solutions").
- What limits the energy of passive worlds: bodies that fly on a floating joint inside of a tree, links that slide away
  on joints without limits, and plain trees that turn by 0.1 rad a step or more ([decision
  0019](decisions/0019-velocity-products-half-a-step-on.md)). Absolute coordinates for inner floating joints: untried.
- Threads: medians of three ratios, each of two processes; on a machine that others use, "nothing else started" is not
  idle, and the notes give its load.
"""


def verdict(figure: Figure | None) -> str:
    """Return what a figure says of its bar."""
    return "" if figure is None or figure.held is None else "held" if figure.held else "**MISSED**"


def page(before: dict[str, Part], after: dict[str, Part]) -> str:
    """Write both columns as a page of the docs."""
    lines = [
        "# Reliability at default settings",
        "",
        f"Written by `make reliability`, version {pb.__version__}; do not edit.",
        "",
        INTRODUCTION,
    ]
    for name, (title, _) in PARTS.items():
        old, new = ({x.name: x for x in column.get(name, Part()).figures} for column in (before, after))
        if not old and not new:
            continue
        commits = [", ".join(sorted({x.commit for x in column.values()})) or "not measured" for column in (old, new)]
        lines += [f"## {title}", "", f"Before: {commits[0]}; after: {commits[1]}.", ""]
        lines += ["| what | bar | before | after | |", "|---|---|---|---|---|"]
        for what in {**old, **new}:
            figure = new.get(what) or old[what]
            was, now = (column[what].found if what in column else "" for column in (old, new))
            lines.append(f"| {what} | {figure.bar} | {was} | {now} | {verdict(new.get(what))} |")
        lines += ["", *[f"- {note}" for note in after.get(name, Part()).notes], ""]
    return "\n".join(lines).rstrip() + "\n"


def show(found: dict[str, Part], console: Console) -> int:
    """Print the figures; return how many bars were missed."""
    table = Table("what", "bar", "found", "")
    for part in found.values():
        for figure in part.figures:
            table.add_row(figure.name, figure.bar, figure.found, verdict(figure).strip("*"))
    console.print(table)
    return sum(figure.held is False for part in found.values() for figure in part.figures)


def main(options: Options) -> int:
    """Measure, show and write."""
    console = Console()
    found = run(options, console)
    missed = show(found, console)
    console.print(f"{missed} bars missed")
    if options.every < SMALL:
        options.page.write_text(page(read("before"), read("after")), encoding="utf-8")
        console.print(f"written: {options.page}")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Options)))
