"""Learning curves of several seeds: raw numbers as CSV and JSON, medians and quartiles as text and as bands."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pullback.learn import SAC


@dataclass
class Curves:
    """The returns of a method's seeds while they learned."""

    method: str
    case: str
    """What was learned: "3 links, released"."""
    steps: list[int]
    """Actions of each seed before each trial."""
    returns: list[list[float]]
    """Of each trial, of each seed."""
    seconds: float
    """Wall-clock of all seeds together."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Other numbers of the run."""

    @classmethod
    def of(cls, run: SAC, method: str, case: str) -> Curves:
        """Return the curves of a run, of epochs with a trial."""
        history = [report for report in run.history if not np.isnan(report.returns).all()]
        lost = {"transitions_without_jacobian": history[-1].lost} if history else {}
        return cls(method, case, [r.steps for r in history], [r.returns for r in history], run.seconds, lost)

    @property
    def best(self) -> np.ndarray:
        """The largest return of each seed, over all trials (S,)."""
        return np.asarray(self.returns, dtype=float).max(0)

    @property
    def last(self) -> np.ndarray:
        """The return of each seed in the last trial (S,)."""
        return np.asarray(self.returns[-1], dtype=float)

    def steps_to(self, goal: float) -> float:
        """Return after how many actions the median return first was a goal or more; infinity if never."""
        median = np.median(np.asarray(self.returns, dtype=float), 1)
        reached = np.flatnonzero(median >= goal)
        return float(self.steps[reached[0]]) if len(reached) else float("inf")


def spread(values: np.ndarray, digits: int = 2) -> str:
    """Return the median and quartiles of numbers as text; one number as it is."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def write_curves(folder: Path, name: str, curves: Sequence[Curves], about: Mapping[str, Any]) -> list[Path]:
    """Write all curves as `name`.json, with what they were made with, and as `name`.csv, a line a trial and seed."""
    folder.mkdir(parents=True, exist_ok=True)
    data, table = folder / f"{name}.json", folder / f"{name}.csv"
    plain = {key: value if isinstance(value, (int, float, bool, list)) else str(value) for key, value in about.items()}
    data.write_text(json.dumps({"options": plain, "curves": [asdict(c) for c in curves]}, indent=1), encoding="utf-8")
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "case", "seed", "steps", "return"])
        for curve in curves:
            for steps, returns in zip(curve.steps, curve.returns):
                writer.writerows([curve.method, curve.case, k, steps, value] for k, value in enumerate(returns))
    return [data, table]


def draw_curves(axes: Any, curves: Sequence[Curves]) -> None:
    """Draw medians by actions, with the quartiles as bands."""
    for curve in curves:
        low, middle, high = np.percentile(np.asarray(curve.returns, dtype=float), [25, 50, 75], axis=1)
        (line,) = axes.plot(curve.steps, middle, label=curve.method)
        axes.fill_between(curve.steps, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xlabel="actions of a seed", ylabel="return")


def write_table(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Path:
    """Write a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    path.write_text("".join(f"| {' | '.join(line)} |\n" for line in lines), encoding="utf-8")
    return path
