"""`pullback sweep`: many runs of one task, over values of its options and seeds, on this machine or by Ray."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from pullback.cli.sweep.dispatch import Dispatch, make_pool
from pullback.cli.sweep.grid import open_sweep
from pullback.cli.sweep.halving import Halving
from pullback.cli.sweep.report import write_report
from pullback.core.files import check_folder


@dataclass
class Options:
    """Run a task for every combination of values and seeds; the same command again goes on where it was cut off.

    Options of the task itself come after `--`, as in `pullback sweep learn --over horizon=16,32 -- --env ant`.
    """

    task: Annotated[str, tyro.conf.Positional]
    """The task, as `pullback run` lists them."""
    over: Annotated[list[str], tyro.conf.UseAppendAction] = field(default_factory=list)
    """An option of the task and its values: learning_rate=1e-3,3e-4. Give it once for each option."""
    seeds: int = 1
    """Seeds of every combination, from 0 on."""
    workers: int = 1
    """Runs at a time on this machine; with Ray as many as it has CPUs for."""
    ray: str | None = None
    """Address of a Ray cluster that sees the output folder, or `local` to start one here, without dashboard."""
    stop_early: int | None = None
    """Successive halving: the iteration of the first rung; runs not among the best third at a rung are stopped."""
    retries: int = 2
    """How often a run that crashed is tried again."""
    out: Path = Path("out/sweep")
    """Folder for all runs, the table and the picture."""


def sweep(arguments: list[str]) -> int:
    """Run a sweep; return 1 if some runs failed."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options = tyro.cli(Options, prog="pullback sweep", args=arguments[:at])
    check_folder(options.out, "--out")
    runs = open_sweep(options.out, options.task, options.over, options.seeds, arguments[at + 1 :])
    console = Console(highlight=False)
    halving = None if options.stop_early is None else Halving(options.stop_early)
    with make_pool(options.ray, options.workers) as pool:
        Dispatch(pool, runs, halving, options.retries, console).run()
    return write_report(runs, options.out, console)
