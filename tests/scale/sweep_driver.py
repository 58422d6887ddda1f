"""A sweep of made-up runs: `python -m tests.scale.sweep_driver FOLDER COUNT SECONDS [RAY]`."""

import sys
from pathlib import Path

from rich.console import Console

from pullback.cli.sweep.dispatch import Dispatch, make_pool
from pullback.cli.sweep.grid import Run
from pullback.cli.sweep.halving import Halving
from pullback.cli.sweep.report import write_report

FAKE = Path(__file__).with_name("fake_task.py")


def make_runs(out: Path, count: int, seconds: float) -> list[Run]:
    """Return runs whose score is their number."""
    runs = []
    for number in range(count):
        folder = (out / f"{number:03d}").absolute()
        folder.mkdir(parents=True, exist_ok=True)
        command = (sys.executable, "-S", str(FAKE), str(folder), str(seconds), str(number))
        runs.append(Run(folder, {"rate": str(number // 2)}, number % 2, command))
    return runs


def main(out: Path, count: int, seconds: float, ray: str | None = None, first_rung: int | None = None) -> int:
    """Run the sweep."""
    console = Console(highlight=False, width=100)
    runs = make_runs(out, count, seconds)
    halving = None if first_rung is None else Halving(first_rung)
    with make_pool(ray, 2) as pool:
        Dispatch(pool, runs, halving, 2, console).run()
    return write_report(runs, out, console)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:]))
