"""`pullback run`: list the tasks, or run one."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.markup import escape

from pullback.core.errors import PullbackError
from pullback.core.ranks import Ranks, start_ranks
from pullback.tasks import Task, find_task, task_names


def run(arguments: list[str]) -> int:
    """Run the task named by the first argument with the options in the others; without a name, list the tasks.

    With `--json` the report goes to the error output, and a JSON object of options, results and files to the output.
    """
    as_json = "--json" in arguments
    arguments = [argument for argument in arguments if argument != "--json"]
    if not arguments or arguments[0] in ("-h", "--help"):
        _list_tasks(as_json)
        return 0
    task = find_task(arguments[0])
    options = tyro.cli(task.options, prog=f"pullback run {task.name}", args=arguments[1:])
    out = getattr(options, "out", None)
    if out is not None:
        check_folder(Path(out))
    together = start_ranks()
    if not together.is_first:
        _run_quietly(task, options)
        return 0
    if not as_json:
        task.run(options)
        _print_communication(together)
        return 0
    print(json.dumps(_run_and_report(task, options), indent=2))
    return 0


def run_task(name: str, arguments: list[str]) -> dict[str, Any]:
    """Run a task with options as on the command line, and return what `--json` prints."""
    task = find_task(name)
    return _run_and_report(task, tyro.cli(task.options, prog=f"pullback run {task.name}", args=arguments))


def _run_and_report(task: Task, options: Any) -> dict[str, Any]:
    """Run a task, its report to the error output; return options, results and files."""
    begin, clock = time.time(), time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        found = task.run(options)
    report = {"task": task.name, "options": _plain(options), "seconds": round(time.perf_counter() - clock, 2)}
    out = getattr(options, "out", None)
    files = [] if out is None else sorted(str(file) for file in Path(out).rglob("*") if _is_new(file, begin))
    return report | {"files": files, "result": _plain(found)}


def _run_quietly(task: Task, options: Any) -> None:
    """Run a task on a rank that prints nothing, and whose files are dropped."""
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        if hasattr(options, "out"):
            options = dataclasses.replace(options, out=Path(folder))
        with contextlib.redirect_stdout(nowhere):
            task.run(options)


def _print_communication(together: Ranks) -> None:
    """Print which part of the time ranks spent in communication, waiting for each other included."""
    if together.many:
        share = together.waited / (time.perf_counter() - together.begun)
        text = f"rank 0 of {together.count}: {together.waited:.1f} s in communication, {100 * share:.0f} % of the time"
        Console(highlight=False).print(text)


def _list_tasks(as_json: bool) -> None:
    tasks = [find_task(name) for name in task_names()]
    if as_json:
        print(json.dumps({task.name: task.summary for task in tasks}, indent=2))
        return
    console = Console(highlight=False)
    console.print("usage: pullback run TASK [OPTIONS] [--json]   (pullback run TASK --help: its options)\n")
    for task in tasks:
        console.print(f"  [bold]{task.name:20s}[/] {escape(task.summary)}")


def check_folder(folder: Path) -> None:
    """Raise for a folder that nothing can be written to, before the work is done."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise PullbackError(f"--out {folder}: {existing} is a file; give the name of a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PullbackError(f"--out {folder}: {existing} cannot be written to; give another folder")


def _is_new(file: Path, since: float) -> bool:
    return file.is_file() and file.stat().st_mtime >= since - 1.0


def _plain(value: Any) -> Any:
    """Return the numbers, texts and names of a task's options or result; larger things are left out."""
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, torch.Tensor) or hasattr(value, "tolist"):
        return _plain(value.tolist()) if value.size == 1 or getattr(value, "ndim", 1) == 0 else None
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return [_plain(x) for x in value] if len(value) <= 100 else None
    fields: Mapping[str, Any] = {}
    if isinstance(value, Mapping):
        fields = {str(name): x for name, x in value.items()}
    elif (as_dict := getattr(value, "_asdict", None)) is not None:
        fields = as_dict()
    elif dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    kept = {name: _plain(x) for name, x in fields.items()}
    return {name: x for name, x in kept.items() if x is not None} or None
