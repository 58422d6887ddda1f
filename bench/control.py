"""Gradients at work, each claim with its bar, in one run: `make bench-control`.

Parts: `arm` (iLQR beside Crocoddyl; with a GPU also a batch), `tasks` (throw, golf and racecar against search without
gradients), `swing-up` (pendulums with their energy audit, cart-pole, pick-and-place), `contact` (push, pivot, door from
20 random starts each) and `identify` (from MuJoCo's motion). Names of parts take only those; `--parts` shows where an
iteration on the arm spends its time; `--quick` is a fast look.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from bench import control_arm, control_contact, control_identify, control_swing_up, control_tasks
from bench.robot import Rows

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
    console, out = Console(width=170), Path("out")
    out.mkdir(exist_ok=True)
    table = Table(title="gradients at work, one thread, float64 (GPU: float32)")
    for heading in ("what", "reached", "beside it", "bar"):
        table.add_column(heading)
    figures: dict[str, float] = {}
    missed = 0
    for name in [name for name in PARTS if name in sys.argv] or [name for name in PARTS if name != "arm-batch"]:
        rows, found = PARTS[name](quick="--quick" in sys.argv)
        figures |= found
        for row in rows:
            table.add_row(*row)
            missed += any("MISSED" in cell for cell in row)
        (out / "bench_control.json").write_text(json.dumps(figures, indent=2))
    console.print(table)
    print(f"figures: {out / 'bench_control.json'}; bars missed: {missed}")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
