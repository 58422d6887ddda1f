"""`pullback run`: list the tasks, or run one."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.markup import escape

from pullback.core.files import check_folder
from pullback.tasks import find_task, task_names


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
        check_folder(Path(out), "--out")
    if not as_json:
        task.run(options)
        return 0
    begin, clock = time.time(), time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        found = task.run(options)
    report = {"task": task.name, "options": _plain(options), "seconds": round(time.perf_counter() - clock, 2)}
    files = [] if out is None else sorted(str(file) for file in Path(out).rglob("*") if _is_new(file, begin))
    print(json.dumps(report | {"files": files, "result": _plain(found)}, indent=2))
    return 0


def _list_tasks(as_json: bool) -> None:
    tasks = [find_task(name) for name in task_names()]
    if as_json:
        print(json.dumps({task.name: task.summary for task in tasks}, indent=2))
        return
    console = Console(highlight=False)
    console.print("usage: pullback run TASK [OPTIONS] [--json]   (pullback run TASK --help: its options)\n")
    for task in tasks:
        console.print(f"  [bold]{task.name:20s}[/] {escape(task.summary)}")


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
