"""Gradients through contact against CMA-ES on throw, golf and racecar: `python -m bench.control tasks`.

An iteration is one batch of rollouts: for gradients one world, forward and backward, every trial of the line search
counted; for CMA-ES its whole population. Both search the same numbers within the same bounds from the same start. With
so many numbers CMA-ES adapts the diagonal of its covariance only. One thread, float64.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from bench.robot import Rows, verdict
from pullback.control.search.search import Found
from pullback.tasks import golf, racecar, throw
from pullback.tasks.common.comparison import Comparison

Figures = dict[str, float]

PAPER = {"throw": 500, "golf": 1500}
"""Iterations that CMA-ES is given."""
BARS = {"throw": 20, "golf": 50, "racecar": 10}
"""Iterations that gradients have."""


class Race(NamedTuple):
    """One task run by both methods: what a miss is compared with, and in which unit it is shown."""

    name: str
    comparison: Comparison
    near: float
    scale: float
    unit: str


def throw_race(cma_iterations: int, out: Path, variant: Any = "default") -> Race:
    """Throw by both methods."""
    found = throw.run(throw.Options(variant=variant, cma_iterations=cma_iterations, out=out))
    return Race("throw", found.comparison, throw.NEAR, 1e3, "mm")


def golf_race(cma_iterations: int, out: Path, variant: Any = "default") -> Race:
    """Play golf by both methods."""
    found = golf.run(golf.Options(variant=variant, cma_iterations=cma_iterations, out=out))
    return Race("golf", found.comparison, golf.NEAR, 1e3, "mm")


def racecar_race(out: Path, variant: Any = "default") -> Race:
    """Estimate friction by gradients and at random."""
    found = racecar.run(racecar.Options(variant=variant, out=out))
    return Race("racecar", found.comparison, racecar.NEAR, 1.0, "%")


def rows_of(race: Race, label: str, *, barred: bool) -> tuple[Rows, Figures]:
    """Return the lines of a task, with its bars or without, and the figures."""
    comparison, bar = race.comparison, BARS[race.name]
    ours, reached = comparison.gradient, comparison.reached(comparison.gradient, race.near)
    within = f"{race.scale * race.near:g} {race.unit}"
    miss = race.scale * comparison.miss(ours.curve[-1:]).item()
    figures = {f"{label}: gradient miss [{race.unit}]": miss, f"{label}: gradient [s]": ours.seconds[-1].item()}
    when = "not reached" if reached is None else f"{reached} iterations, {ours.seconds[reached - 1].item():.2f} s"
    holds = f"bar {bar} {verdict(reached is not None and reached <= bar)}" if barred else ""
    rows: Rows = [(f"{label}: gradients within {within}", when, ours.method, holds)]
    if reached is not None:
        figures[f"{label}: gradient iterations"] = reached
    rival = comparison.search
    if rival is None:
        return rows, figures
    theirs = race.scale * comparison.miss(rival.curve[-1:]).item()
    figures |= {f"{label}: {rival.method} miss [{race.unit}]": theirs}
    figures |= {f"{label}: {rival.method} [s]": rival.seconds[-1].item()}
    mine, other = (f"{x:.2g} {race.unit} after {len(run.losses):,}" for x, run in ((miss, ours), (theirs, rival)))
    # a claim about CMA-ES is a claim only after all its iterations
    full = len(rival.losses) >= PAPER.get(race.name, 0)
    not_better = f"bar: not better {verdict(theirs >= miss)}" if barred and race.name in PAPER and full else ""
    rows.append((f"{label}: best miss", mine, f"{_name(rival)}: {other} of {rival.losses.shape[1]}", not_better))
    late = comparison.reached(rival, race.near)
    told = "never" if late is None else f"{late} iterations, {int(rival.evaluations[late - 1]):,} rollouts, "
    told += "" if late is None else f"{rival.seconds[late - 1].item():.1f} s"
    rows.append((f"{label}: {_name(rival)} within {within}", told, f"{rival.losses.shape[1]} worlds each", ""))
    return rows, figures


def _name(run: Found) -> str:
    return {"cma": "CMA-ES", "random": "random search"}[run.method]


def measure(*, quick: bool = False, released: bool = False, out: Path = Path("out")) -> tuple[Rows, Figures]:
    """Run the three tasks, and their released variants if asked; if quick, CMA-ES has 20 iterations."""
    rows: Rows = []
    figures: Figures = {}
    for variant in ("default", "released") if released else ("default",):
        given = {name: 20 if quick or variant == "released" else count for name, count in PAPER.items()}
        races = [
            throw_race(given["throw"], out, variant),
            golf_race(given["golf"], out, variant),
            racecar_race(out, variant),
        ]
        for race in races:
            label = race.name if variant == "default" else f"{race.name}, released"
            more, numbers = rows_of(race, label, barred=variant == "default")
            rows += more
            figures |= numbers
    return rows, figures
