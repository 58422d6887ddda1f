"""Tasks: complete experiments, one file each, run by `pullback run NAME`.

A file in this folder is a task: `lift_box.py` is the task `lift-box`. It has

- a docstring, whose first line `pullback run` lists;
- a dataclass `Options`, whose fields, with one doc line each, become the flags of the command line;
- a function `run(options)`, which searches by `pullback.control` or `pullback.thermal.design`, prints a report, writes
  its files to `options.out`, and returns what it found.

What tasks share is in `common/`: checks of options (`options.py`), a gradient method against a gradient-free one
(`comparison.py`), curves of searches (`curves.py`), output files (`outputs.py`), and scenes that several tasks use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pullback.core.errors import unknown_name


@dataclass(frozen=True)
class Task:
    """A task: its name on the command line, one sentence, the class of its options, and the function that runs it."""

    name: str
    summary: str
    options: type[Any]
    run: Callable[[Any], Any]


def task_names() -> list[str]:
    """Return the names of all tasks, without importing them."""
    return sorted(module.name.replace("_", "-") for module in iter_modules(__path__) if not module.ispkg)


def find_task(name: str) -> Task:
    """Import a task by its name; an unknown one is an error that lists the choices."""
    if name not in task_names():
        raise unknown_name("task", name, task_names())
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    summary = (module.__doc__ or "").strip().splitlines()[0]
    return Task(name, summary, module.Options, module.run)
