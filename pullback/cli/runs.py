"""`pullback runs`: list runs, look at one, compare several, resume one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pullback.cli.run import parse, run_into
from pullback.cli.run_folder import HOME, METRICS, RunFolder, find_runs, read_run
from pullback.core.errors import PullbackError
from pullback.core.files import check_folder
from pullback.core.metrics import read_metrics
from pullback.tasks import find_task

Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
JsonFlag = Annotated[bool, tyro.conf.arg(name="json", help="Print JSON instead of text.")]
Folders = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def runs(arguments: list[str]) -> int:
    """List the runs below out/, or show, compare or resume some."""
    if not arguments or arguments[0] not in ("list", "show", "compare", "resume", "-h", "--help"):
        arguments = ["list", *arguments]
    app = tyro.extras.SubcommandApp()
    app.command(name="list")(list_runs)
    app.command(name="show")(show)
    app.command(name="compare")(compare)
    app.command(name="resume")(resume)
    return app.cli(prog="pullback runs", description="List, show, compare and resume runs.", args=arguments) or 0


def list_runs(folder: Annotated[Path, tyro.conf.Positional] = HOME, /, json_: JsonFlag = False) -> int:
    """List the runs below a folder, oldest first.

    Args:
        folder: Where to look.
    """
    found = find_runs(folder)
    if json_:
        print(json.dumps([{"folder": str(run.path), **run.record} for run in found], indent=2))
        return 0
    if not found:
        print(f"no runs below {folder}; pullback run TASK makes one")
        return 0
    width = max(len(str(run.path)) for run in found)
    for run in found:
        record = run.record
        result = ", ".join(f"{name} {_short(x)}" for name, x in list(_numbers(record.get("result")).items())[:3])
        started = str(record.get("started", ""))[:16].replace("T", " ")
        times = f"{started}  {record.get('seconds', 0):7.1f} s"
        print(f"{run.path!s:{width}}  {record['status']:11}  {times}  {result}".rstrip())
    return 0


def show(run: Folder, /, json_: JsonFlag = False) -> int:
    """Show a run: options, results, files, and its metrics from first to last."""
    found = read_run(run)
    lines = _metrics(found)
    if json_:
        print(json.dumps({"folder": str(run), **found.record, "files": found.files, "metrics": lines}, indent=2))
        return 0
    record = found.record
    print(f"{run}: {record['task']}, {record['status']}, {record.get('seconds', 0)} s, pullback {record['pullback']}")
    if record.get("error"):
        print(f"error: {record['error']}")
    print(f"again: pullback run {record['task']} {' '.join(record['arguments'])}".rstrip())
    for title, values in (("options", record["options"]), ("result", record.get("result"))):
        for name, value in _numbers(values, keep_text=True).items():
            print(f"  {title[:-1] if title == 'options' else title} {name}: {_short(value)}")
    for name, (first, last) in _ends(lines).items():
        print(f"  {name}: {_short(first)} -> {_short(last)}")
    print("files: " + ", ".join(found.files))
    return 0


def compare(runs: Folders, /, plot: Path | None = None, json_: JsonFlag = False) -> int:
    """Compare runs: the options in which they differ, their results, and where their metrics end.

    Args:
        plot: Draw the metrics of all runs into this picture (.png).
    """
    if len(runs) < 2:
        raise PullbackError(f"{len(runs)} run(s) to compare; give at least two folders: pullback runs compare A B")
    if plot is not None:
        check_folder(plot.parent, "--plot")
    found = [read_run(path) for path in runs]
    rows = _differences(found)
    if plot is not None:
        _draw(found, plot)
    if json_:
        print(json.dumps({"runs": [str(run.path) for run in found], "rows": rows}, indent=2))
        return 0
    table = Table("", *(escape(str(run.path)) for run in found))
    for name, values in rows.items():
        table.add_row(escape(name), *(escape(_short(value)) for value in values))
    Console(highlight=False).print(table)
    if plot is not None:
        print(f"picture: {plot}")
    return 0


def resume(run: Folder, /, json_: JsonFlag = False) -> int:
    """Go on with a run that was interrupted or failed, in its folder, from its checkpoint."""
    found = read_run(run)
    record = found.record
    task = find_task(record["task"])
    options = parse(task, record["arguments"])
    if found.is_finished:
        # Ctrl-C ends a search early, and its task then writes what there is
        further = f", and with --out {run} --resume goes on with this one" if hasattr(options, "resume") else ""
        raise PullbackError(f"{run} is finished; pullback run {record['task']} starts a new one{further}")
    if hasattr(options, "resume"):
        options.resume = True
    elif hasattr(options, "fresh"):
        options.fresh = False
    else:
        raise PullbackError(
            f"the task {task.name} keeps no checkpoint to resume from; start it anew: "
            f"pullback run {task.name} {' '.join(record['arguments'])}".rstrip()
        )
    options.out = run
    return run_into(found, task, options, as_json=json_)


@dataclass(frozen=True)
class _Curve:
    label: str
    name: str
    iterations: list[float]
    values: list[float]


def _metrics(run: RunFolder) -> list[dict[str, Any]]:
    path = run.path / METRICS
    return read_metrics(path) if path.is_file() else []


def _ends(lines: Sequence[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    """Return the first and the last value of every metric, by search and name."""
    ends: dict[str, tuple[Any, Any]] = {}
    for line in lines:
        for name, value in line.items():
            if name not in ("search", "iteration"):
                key = f"{line['search']} {name}"
                ends[key] = (ends.get(key, (value,))[0], value)
    return ends


def _differences(found: Sequence[RunFolder]) -> dict[str, list[Any]]:
    """Return the rows of a comparison: task, status, options that differ, results, the last metrics."""
    rows: dict[str, list[Any]] = {
        name: [run.record.get(name) for run in found] for name in ("task", "status", "seconds")
    }
    options = [_numbers(run.record["options"], keep_text=True) for run in found]
    for name in dict.fromkeys(name for values in options for name in values):
        row = [values.get(name) for values in options]
        if name != "out" and any(value != row[0] for value in row):
            rows[f"option {name}"] = row
    for title, tables in (
        ("result", [_numbers(run.record.get("result")) for run in found]),
        ("last", [{name: last for name, (_, last) in _ends(_metrics(run)).items()} for run in found]),
    ):
        for name in dict.fromkeys(name for values in tables for name in values):
            rows[f"{title} {name}"] = [values.get(name) for values in tables]
    return rows


def _draw(found: Sequence[RunFolder], path: Path) -> None:
    """Draw each metric that runs share, one axis a metric."""
    from matplotlib.figure import Figure

    curves = [curve for run in found for curve in _curves(run)]
    names = list(dict.fromkeys(curve.name for curve in curves))
    if not names:
        raise PullbackError("none of these runs has metrics to draw; --plot needs tasks that search")
    figure = Figure(figsize=(5.0 * min(3, len(names)), 3.2 * -(-len(names) // 3)), layout="constrained")
    axes = figure.subplots(-(-len(names) // 3), min(3, len(names)), squeeze=False).flatten()
    for axis, name in zip(axes, names):
        drawn = [curve for curve in curves if curve.name == name]
        for curve in drawn:
            axis.plot(curve.iterations, curve.values, label=curve.label)
        axis.set(xlabel="iteration", ylabel=name.replace("_", " "))
        if all(value > 0.0 for curve in drawn for value in curve.values):
            axis.set_yscale("log")
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    for axis in axes[len(names) :]:
        axis.remove()
    figure.savefig(path, dpi=120)


def _curves(run: RunFolder) -> list[_Curve]:
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for line in _metrics(run):
        for name, value in line.items():
            if name not in ("search", "iteration", "seconds") and value is not None:
                points.setdefault((line["search"], name), []).append((line["iteration"], value))
    return [
        _Curve(f"{run.path.name}: {search}", name, [x for x, _ in found], [y for _, y in found])
        for (search, name), found in points.items()
    ]


def _numbers(values: Any, prefix: str = "", keep_text: bool = False) -> dict[str, Any]:
    """Return the numbers of a nested JSON object by dotted names, with texts too if asked; lists are left out."""
    if isinstance(values, dict):
        found: dict[str, Any] = {}
        for name, value in values.items():
            found |= _numbers(value, f"{prefix}.{name}" if prefix else name, keep_text)
        return found
    if isinstance(values, (bool, int, float)) or (keep_text and isinstance(values, str)):
        return {prefix: values}
    return {}


def _short(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
