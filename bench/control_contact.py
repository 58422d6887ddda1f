"""Manipulation through contact by iLQR, from 20 random starts each: `python -m bench.control contact`.

A start counts if half a second after the last control the task is done, in the plain world, in numbers: push-to-pose
within 1 cm and 3 degrees, pivot-box within 5 degrees of upright, open-door within 3 degrees of 45, all at rest. The
starts of one seed are solved as one batch.
"""

from __future__ import annotations

from types import ModuleType

from bench.robot import Rows, verdict
from pullback.tasks import open_door, pivot_box, push_to_pose
from pullback.tasks.common.contact_rich import optimize

STARTS, BAR = 20, 18
TASKS: dict[str, ModuleType] = {"push-to-pose": push_to_pose, "pivot-box": pivot_box, "open-door": open_door}


def measure(*, quick: bool = False, seed: int = 0) -> tuple[Rows, dict[str, float]]:
    """Solve every task, or the first if quick; return the lines of the table and the figures."""
    rows: Rows = []
    figures: dict[str, float] = {}
    for name in list(TASKS)[:1] if quick else TASKS:
        found = measure_task(name, seed)
        rows += found[0]
        figures |= found[1]
    return rows, figures


def measure_task(name: str, seed: int = 0) -> tuple[Rows, dict[str, float]]:
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
