"""Tasks: what is simulated, what is optimised, what is reported; one file each, run by `pullback run NAME`.

A file here is a task by being here: `lift_box.py` is the task `lift-box`. It defines a dataclass `Options`, whose
fields, one doc line each, become the flags of the command line, and a function `run(options)`, which does the work
and prints its report. The first line of its docstring is what `pullback run` lists. Files whose names start with an
underscore are shared by tasks and are none themselves.
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
    """A task: its name on the command line, one sentence, the class of its options, and what runs it."""

    name: str
    summary: str
    options: type[Any]
    run: Callable[[Any], Any]


def task_names() -> list[str]:
    """Return the names of all tasks, without importing them."""
    files = (module.name for module in iter_modules(__path__))
    return sorted(name.replace("_", "-") for name in files if not name.startswith("_"))


def find_task(name: str) -> Task:
    """Import a task by its name; an unknown one is an error that lists the choices."""
    if name not in task_names():
        raise unknown_name("task", name, task_names())
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    summary = (module.__doc__ or "").strip().splitlines()[0]
    return Task(name, summary, module.Options, module.run)
