"""Manipulation through contact by iLQR, from 20 random starts each: `python -m bench.control_contact`.

A start counts if half a second after the last control the task is done, in the plain world, in numbers: push-to-pose
within 1 cm and 3 degrees, pivot-box within 5 degrees of upright, open-door within 3 degrees of 45, all at rest. The
starts of one seed are solved as one batch. `--seed N` takes other starts, names of tasks take only those.
"""

from __future__ import annotations

import argparse
from types import ModuleType

from rich.console import Console
from rich.table import Table

from bench.robot import Rows, verdict
from pullback.tasks import open_door, pivot_box, push_to_pose
from pullback.tasks._contact_rich import optimize

STARTS, BAR = 20, 18
TASKS: dict[str, ModuleType] = {"push-to-pose": push_to_pose, "pivot-box": pivot_box, "open-door": open_door}


def measure(name: str, seed: int = 0) -> tuple[Rows, dict[str, float]]:
    """Solve a task from its random starts; return the line of the table and the figures."""
    task = TASKS[name]
    options = task.Options(starts=STARTS, seed=seed)
    found = optimize(task.scene(options), options)
    iterations, seconds = found.search.iterations, found.search.seconds[-1].item()
    row = (
        f"{name}: successes of {STARTS}",
        str(found.successes),
        f"bar {BAR} {verdict(found.successes >= BAR)}",
        f"{iterations} iterations, {seconds:.0f} s; first guesses: {int(found.guess_success.sum())}",
    )
    return [row], {f"{name}, successes": found.successes, f"{name} [s]": seconds}


def measure_push(seed: int = 0) -> tuple[Rows, dict[str, float]]:
    """Push a box to a pose."""
    return measure("push-to-pose", seed)


def measure_pivot(seed: int = 0) -> tuple[Rows, dict[str, float]]:
    """Pivot a box up against a wall."""
    return measure("pivot-box", seed)


def measure_door(seed: int = 0) -> tuple[Rows, dict[str, float]]:
    """Open a door."""
    return measure("open-door", seed)


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("tasks", nargs="*", choices=[*TASKS, []], help="only these")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    table = Table("", "", "", "", title="manipulation through contact")
    for name in given.tasks or TASKS:
        for row in measure(name, given.seed)[0]:
            table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
