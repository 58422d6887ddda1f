"""Gradients at work, each claim with its bar, in one run: `make bench-control`.

Parts: `arm` (iLQR beside Crocoddyl; with a GPU also a batch), `tasks` (throw, golf and racecar against search without
gradients), `swing-up` (pendulums with their energy audit, cart-pole, pick-and-place), `contact` (push, pivot, door from
20 random starts each) and `identify` (from MuJoCo's motion). Names of parts take only those; `--parts` shows where an
iteration on the arm spends its time; `--quick` is a fast look.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from bench import control_arm, control_contact, control_identify, control_swing_up, control_tasks
from bench.robot import Rows
from bench.table import print_table

PARTS: dict[str, Callable[..., tuple[Rows, dict[str, float]]]] = {
    "arm": control_arm.measure,
    "arm-batch": control_arm.measure_batch,
    "tasks": control_tasks.measure,
    "swing-up": control_swing_up.measure,
    "contact": control_contact.measure,
    "identify": control_identify.measure,
}


def main() -> int:
    """Measure, print one table, and keep the figures in out/bench_control.json."""
    torch.set_num_threads(1)
    if "--parts" in sys.argv:
        for name, value in control_arm.parts(15).items():
            print(f"{name:40s} {value:.0f}")
        return 0
    names = [name for name in PARTS if name in sys.argv] or [name for name in PARTS if name != "arm-batch"]
    parts = [partial(PARTS[name], quick="--quick" in sys.argv) for name in names]
    title, headings = "gradients at work, one thread, float64 (GPU: float32)", ("what", "reached", "beside it", "bar")
    rows = print_table(title, headings, parts, Path("out") / "bench_control.json")
    missed = sum(any("MISSED" in cell for cell in row) for row in rows)
    print(f"bars missed: {missed}")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
