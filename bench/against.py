"""This code against an earlier commit, one Laikago, in turns: `python -m bench.against [REV]`.

REV is the commit before the last that changed `pullback/`, or the last one where files there differ from it. It is
checked out into a worktree of its own, for as long as this takes. Every turn is a process that does 1,000 steps forward
and backward, float64, one thread. Exits with 1 where a median and the best time both grew by more than 5 %.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
STEPS = 1000
TURNS = 5
CALLS = 12
BAR = 1.05
WAYS = ("forward", "backward")
SUMMARIES = ((median, median), (min, min))

Times = dict[str, list[float]]


def git(*words: str) -> str:
    """Return what a command of git says in this checkout."""
    done = subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def default_revision() -> str:
    """Return the last commit with another `pullback/` than this checkout's."""
    newest = git("log", "-1", "--format=%H", "--", "pullback")
    return newest if git("status", "--porcelain", "--", "pullback") else f"{newest}~1"


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Hand out a folder with the files of a commit, and remove it afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git("worktree", "add", "--detach", "--force", str(tree), revision)
        try:
            yield tree
        finally:
            git("worktree", "remove", "--force", str(tree))


def measure() -> Times:
    """Return the times [s] of calls in this process, of the code that `pullback` stands for here."""
    import torch

    torch.set_num_threads(1)
    # of the other checkout's own files, where this is run for it
    from bench.laikagos import forward_and_backward, stand

    times: Times = {}
    for way, function in zip(WAYS, forward_and_backward(stand(), STEPS)):
        function()
        times[way] = []
        for _ in range(CALLS):
            before = time.perf_counter()
            function()
            times[way].append(time.perf_counter() - before)
    return times


def measure_in(tree: Path) -> Times:
    """Return the times [s] of calls in a process of its own, with the files of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    # this file may not exist there
    command = [sys.executable, str(Path(__file__).resolve()), "--child"]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(old: list[Times], new: list[Times]) -> tuple[Table, bool]:
    """Return the table of medians of turns and best calls, and whether one way has become slower by both."""
    table = Table("", "before", "now", "ratio")
    is_slower = False
    for way in WAYS:
        medians, bests = ([of(of_call(x[way]) for x in turns) for turns in (old, new)] for of, of_call in SUMMARIES)
        for name, (before, now) in (("median", medians), ("best", bests)):
            figures = [f"{1e6 / STEPS * x:.2f} us" for x in (before, now)]
            table.add_row(f"{way}, a step, {name}", *figures, f"{now / before:.3f}")
        is_slower |= min(medians[1] / medians[0], bests[1] / bests[0]) > BAR
    return table, is_slower


def main(arguments: list[str]) -> int:
    """Compare, show, and tell by 1 that something has become slower."""
    console = Console()
    revision = arguments[0] if arguments else default_revision()
    with checked_out(revision) as tree:
        console.print(f"before: {git('log', '-1', '--format=%h %s', revision)}", highlight=False)
        old: list[Times] = []
        new: list[Times] = []
        # the first turn compiles the kernels, and does not count
        for turn in range(TURNS + 1):
            found = [measure_in(tree), measure_in(ROOT)]
            if turn > 0:
                old.append(found[0])
                new.append(found[1])
    table, is_slower = compare(old, new)
    console.print(table)
    return int(is_slower)


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        print(json.dumps(measure()))
    else:
        sys.exit(main(sys.argv[1:]))
