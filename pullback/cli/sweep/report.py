"""The table and the picture of a sweep."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

from pullback.cli.sweep.grid import Run


def write_report(runs: list[Run], out: Path, console: Console) -> int:
    """Print scores by setting, write `runs.csv` and `scores.png`; return 1 if a run has no result."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.setting, []).append(run)
    results = {run.name: run.result for run in runs}
    table = Table(Column("setting", overflow="fold", min_width=18), box=SIMPLE, title="lower scores are better")
    for heading in ("runs", "stopped", "failed", "score", "best", "seconds"):
        table.add_column(heading)
    for setting, group in groups.items():
        found = [result for run in group if (result := results[run.name]) is not None]
        scores = [r["score"] for r in found if r.get("score") is not None]
        spread = f" ± {stdev(scores):.2g}" if len(scores) > 1 else ""
        table.add_row(
            setting or "as given",
            str(len(group)),
            str(sum(r["status"] == "stopped" for r in found)),
            str(len(group) - len(found)),
            f"{mean(scores):.4g}{spread}" if scores else "none",
            f"{min(scores):.5g}" if scores else "none",
            f"{sum(r['seconds'] for r in found):.1f}",
        )
    console.print(table)
    _write_table(runs, results, out / "runs.csv")
    if any(run.scores for run in runs):
        _draw(groups, out / "scores.png")
        console.print(f"table: {out / 'runs.csv'}, picture: {out / 'scores.png'}")
    return int(any(result is None for result in results.values()))


def _write_table(runs: list[Run], results: dict[str, Any], path: Path) -> None:
    names = list(runs[0].values)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "seed", "status", "score", "iterations", "seconds", "folder"])
        for run in runs:
            result = results[run.name] or {"status": "failed"}
            numbers = [result.get("score"), len(run.scores), result.get("seconds")]
            writer.writerow([*run.values.values(), run.seed, result["status"], *numbers, run.folder.name])


def _draw(groups: dict[str, list[Run]], path: Path) -> None:
    """Draw the best score so far of every run, and the mean of each setting."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    colors = colormaps["tab10"].colors  # type: ignore[attr-defined]
    for k, (setting, group) in enumerate(groups.items()):
        color, curves = colors[k % len(colors)], [_best_so_far(run.scores) for run in group if run.scores]
        for curve in curves:
            axes.plot(*zip(*curve), color=color, alpha=0.3, linewidth=1)
        steps = sorted({done for curve in curves for done, _ in curve})
        # the mean of those that are still running there
        means = [mean(dict(c)[done] for c in curves if done in dict(c)) for done in steps]
        axes.plot(steps, means, color=color, label=setting or "all")
    axes.set(xlabel="iteration", ylabel="best score so far (lower is better)")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=130)


def _best_so_far(scores: list[tuple[int, float]]) -> list[tuple[int, float]]:
    best, found = float("inf"), []
    for done, score in scores:
        best = min(best, score) if score == score else best
        if best < float("inf"):
            found.append((done, best))
    return found or [(0, float("nan"))]
