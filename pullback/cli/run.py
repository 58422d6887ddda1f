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

from pullback.cli.run_folder import (
    HOME,
    METRICS,
    TENSORBOARD,
    RunFolder,
    new_run,
    next_folder,
    refuse_earlier_run,
    run_of_this_launch,
)
from pullback.core.files import check_folder
from pullback.core.metrics import MetricsLog, logging_metrics
from pullback.core.ranks import Ranks, leave_ranks, start_ranks
from pullback.tasks import Task, find_task, task_names

USAGE = "usage: pullback run TASK [OPTIONS] [--json] [--tensorboard]   (pullback run TASK --help: its options)\n"


def run(arguments: list[str]) -> int:
    """Run the task named by the first argument with the options in the others; without a name, list the tasks.

    Files go to a new folder, out/TASK-1 and so on, unless --out names one. With `--json` the report goes to the error
    output, and a JSON object of options, results and files to the output; `--tensorboard` writes metrics for it.
    """
    as_json, tensorboard = "--json" in arguments, "--tensorboard" in arguments
    arguments = [argument for argument in arguments if argument not in ("--json", "--tensorboard")]
    if not arguments or arguments[0] in ("-h", "--help"):
        _list_tasks(as_json)
        return 0
    task = find_task(arguments[0])
    options = parse(task, arguments[1:])
    names_folder = any(argument.split("=")[0] == "--out" for argument in arguments)
    folder = run_of_this_launch(Path(options.out) if names_folder else HOME)
    if folder is not None:
        options.out = folder.path
        return run_into(folder, task, options, as_json=as_json, tensorboard=tensorboard)
    if not names_folder:
        options.out = next_folder(task.name)
    elif start_ranks().is_first:
        refuse_earlier_run(Path(options.out), task.name, resume=getattr(options, "resume", False))
    folder = new_run(Path(options.out), task.name, arguments[1:], plain(options))
    return run_into(folder, task, options, as_json=as_json, tensorboard=tensorboard)


def parse(task: Task, arguments: list[str]) -> Any:
    """Return the options of a task from its flags."""
    return tyro.cli(task.options, prog=f"pullback run {task.name}", args=arguments)


def run_into(folder: RunFolder, task: Task, options: Any, *, as_json: bool, tensorboard: bool = False) -> int:
    """Run a task with its files in a folder, where metrics and how it ended are recorded.

    Of several ranks (`torchrun`) the first one prints and writes.
    """
    together = start_ranks()
    if not together.is_first:
        _run_quietly(task, options)
        leave_ranks()
        return 0
    check_folder(folder.path, "--out")
    folder.begin()
    clock = time.perf_counter()
    log = MetricsLog(folder.path / METRICS, folder.path / TENSORBOARD if tensorboard else None)
    output = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    try:
        with output, logging_metrics(log):
            found = task.run(options)
    except BaseException as error:
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        folder.end(status, time.perf_counter() - clock, error=str(error).split("\n")[0])
        raise
    folder.end("finished", time.perf_counter() - clock, result=plain(found), error=None)
    if as_json:
        files = [str(folder.path / name) for name in folder.files]
        print(json.dumps({**folder.record, "folder": str(folder.path), "files": files}, indent=2))
    else:
        print(f"run: {folder.path}")
        _print_communication(together)
    leave_ranks()
    return 0


def _run_quietly(task: Task, options: Any) -> None:
    """Run a task on a rank that prints nothing, and whose files are dropped."""
    silent = contextlib.redirect_stdout
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere, silent(nowhere):
        task.run(dataclasses.replace(options, out=Path(folder)))


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
    console.print(escape(USAGE))
    for task in tasks:
        console.print(f"  [bold]{task.name:20s}[/] {escape(task.summary)}")


def plain(value: Any) -> Any:
    """Return the numbers, texts and names of a task's options or result; larger things are left out."""
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, torch.Tensor) or hasattr(value, "tolist"):
        return plain(value.tolist()) if value.size == 1 or getattr(value, "ndim", 1) == 0 else None
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return [plain(x) for x in value] if len(value) <= 100 else None
    fields: Mapping[str, Any] = {}
    if isinstance(value, Mapping):
        fields = {str(name): x for name, x in value.items()}
    elif (as_dict := getattr(value, "_asdict", None)) is not None:
        fields = as_dict()
    elif dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    kept = {name: plain(x) for name, x in fields.items()}
    return {name: x for name, x in kept.items() if x is not None} or None
