"""Keep workers busy with the runs of a sweep: start, repeat those that crashed, stop those that are out."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from pullback.cli.sweep.execute import execute
from pullback.cli.sweep.grid import Run
from pullback.cli.sweep.halving import Halving
from pullback.core.errors import PullbackError
from pullback.core.extras import need_extra

LOOK = 0.3
"""Seconds between two looks at scores."""

Submit = Callable[[Path, Sequence[str]], "Future[int]"]


class Pool(NamedTuple):
    """Where runs go: a function that starts one and returns its exit status later, and how many at a time."""

    submit: Submit
    workers: int


@contextmanager
def make_pool(ray: str | None, workers: int) -> Iterator[Pool]:
    """Yield processes on this machine, or those of a Ray cluster at an address."""
    if workers < 1:
        raise PullbackError(f"workers is {workers}; give 1 or more")
    if ray is None:
        with ThreadPoolExecutor(workers) as threads:
            yield Pool(lambda folder, command: threads.submit(execute, folder, command), workers)
        return
    if ray == "local":
        # read when Ray is imported: its processes then listen on the loopback address only, as on desktops
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    package = need_extra("ray", "ray", "sweeps are spread over machines")
    # the dashboard stays off
    here = {"include_dashboard": False, "num_cpus": workers}
    package.init(**(here if ray == "local" else {"address": ray}), log_to_driver=False, logging_level="warning")
    try:
        remote = package.remote(max_retries=0, num_cpus=1)(execute)
        cpus = int(package.cluster_resources().get("CPU", 1))
        yield Pool(lambda folder, command: remote.remote(folder.absolute(), command).future(), max(1, cpus))
    finally:
        package.shutdown()


class Dispatch:
    """The runs of a sweep on their way."""

    def __init__(self, pool: Pool, runs: list[Run], halving: Halving | None, retries: int, console: Console) -> None:
        self.pool, self.halving, self.retries, self.console = pool, halving, retries, console
        self.runs = runs
        self.left = deque(run for run in runs if run.result is None)
        self.tries: dict[str, int] = {}
        self.failed: list[str] = []

    def run(self) -> None:
        """Run all that have no result yet."""
        done = len(self.runs) - len(self.left)
        if done:
            self.console.print(f"{done} of {len(self.runs)} runs are there already")
        if self.halving is not None:
            for run in self.runs:
                # what earlier runs scored counts for the rungs
                if run.result is not None:
                    self.halving.is_out(run.name, run.scores)
        going: dict[Future[int], Run] = {}
        while self.left or going:
            while self.left and len(going) < self.pool.workers:
                run = self.left.popleft()
                going[self.pool.submit(run.folder, run.command)] = run
            for future in wait(going, LOOK, FIRST_COMPLETED).done:
                self._take(going.pop(future), future)
            self._halve(going.values())

    def _take(self, run: Run, future: Future[int]) -> None:
        """Take in a run that has ended: if it left no result, try again."""
        error = future.exception()
        result = run.result
        if result is not None:
            score = result.get("score")
            text = "" if score is None else f", score {score:.6g}"
            self.console.print(f"{run.name}: {result['status']}{text}")
            return
        tries = self.tries[run.name] = self.tries.get(run.name, 0) + 1
        how = f"by {type(error).__name__}" if error else f"with exit status {future.result()}"
        if tries <= self.retries:
            self.console.print(f"{run.name}: ended {how}, starting it again")
            self.left.append(run)
        else:
            self.failed.append(run.name)
            self.console.print(f"[red]{run.name}: ended {how}, {tries} times[/]; see {run.folder / 'output.txt'}")

    def _halve(self, going: Sequence[Run] | object) -> None:
        if self.halving is None:
            return
        for run in list(going):  # type: ignore[call-overload]
            if self.halving.is_out(run.name, run.scores) and not (run.folder / "stop").exists():
                run.stop()
