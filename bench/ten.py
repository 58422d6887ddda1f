"""Figures 3 and 8 of Qiao et al. (2021): ten Laikagos in one world over the checkpoint interval."""

from __future__ import annotations

from functools import partial
from itertools import product

import torch

from bench.benchmark import NOT_MEASURED, Benchmark, Cell, Options, Row, figure, markdown, spread, time_with_spread
from bench.laikagos import forward_and_backward, stand
from bench.sim import INTERVALS, MB, ROBOTS, in_child_memory
from bench.timing import times_in_turns

STEPS = (1000, 5000)


def measure(interval: int, steps: int, options: Options) -> Row:
    """Measure forward and backward with one state kept every so many steps, and with every state, in turns."""
    torch.set_num_threads(1)
    standing = stand(ROBOTS)
    functions = {}
    for k in {1, interval}:
        functions["forward", k], functions["backward", k] = forward_and_backward(standing, steps, k)
    times = times_in_turns(functions, rounds=1, seconds=options.seconds)
    found = {key: spread([x / steps for x in values]) for key, values in times.items()}
    memory = in_child_memory(ROBOTS, steps, (interval,))[0]
    return {
        "steps": steps, "interval": interval, "forward": found["forward", interval],
        "backward": found["backward", interval], "every_forward": found["forward", 1],
        "every_backward": found["backward", 1], "memory": memory["later"] / MB,
    }  # fmt: skip


def cells(options: Options) -> dict[str, Cell]:
    """Return a cell for each number of steps and interval."""
    return {f"{n}/{k}": partial(measure, k, n, options) for n in STEPS for k in INTERVALS}


def formula(row: Row) -> float:
    """Return the paper's backward time a step [s]: each step simulated again from the state kept before it."""
    forward, backward = row["every_forward"]["median"], row["every_backward"]["median"]
    # our backward pass repeats its step from the state before it, which theirs counts apart
    return (row["interval"] + 1) / 2 * forward + backward - forward


def found_of(rows: dict[str, Row], steps: int) -> list[Row]:
    """Return the rows of so many steps that have figures, by their interval."""
    return [row for k in INTERVALS if "interval" in (row := rows.get(f"{steps}/{k}", {}))]


def tables(rows: dict[str, Row]) -> list[str]:
    """Return a line for each cell."""
    body = []
    for steps, k in product(STEPS, INTERVALS):
        row = rows.get(f"{steps}/{k}", NOT_MEASURED)
        if "failed" in row:
            body.append([f"{steps:,}", f"{k}", row["failed"], "", "", ""])
            continue
        kilobytes = 1e3 * row["memory"] / row["steps"]
        body.append([
            f"{row['steps']:,}", f"{row['interval']}", time_with_spread(row["forward"], 1e6),
            time_with_spread(row["backward"], 1e6), figure(1e6 * formula(row)),
            f"{row['memory']:.2f} MB, {figure(kilobytes)} kB a step",
        ])  # fmt: skip
    headings = ["steps", "k", "forward [µs]", "backward [µs]", "the paper's formula [µs]", "peak memory"]
    return markdown(headings, body)


def plot(rows: dict[str, Row], path: str) -> None:
    """Draw backward time beside the formula, and memory, over the interval."""
    from bench.report import axes_of, name_ticks

    picture, (left, right) = axes_of(2)
    every = {steps: found_of(rows, steps) for steps in STEPS}
    for steps, found in every.items():
        if found:
            intervals = [row["interval"] for row in found]
            times = [1e6 * row["backward"]["median"] for row in found]
            left.plot(intervals, times, "o-", label=f"ours, {steps:,} steps")
            right.plot(intervals, [row["memory"] for row in found], "o-", label=f"{steps:,} steps")
    most = max(every.values(), key=len)
    times = [1e6 * formula(row) for row in most]
    left.plot([row["interval"] for row in most], times, "k--", label="the paper's formula")
    left.set(xscale="log", yscale="log", ylabel="backward, a step [µs]")
    right.set(xscale="log", ylabel="peak memory [MB]", ylim=(0, None))
    for axes in (left, right):
        axes.set_xlabel("one state kept every k steps")
        name_ticks(axes, INTERVALS)
        axes.grid(alpha=0.3)
        axes.legend()
    picture.suptitle("Ten Laikagos in one world")
    picture.savefig(path, dpi=130)


BENCHMARK = Benchmark(
    "ten",
    "Ten robots, and how many states to keep (Figures 3 and 8)",
    "What do ten robots in one world cost, and what does keeping fewer states cost in time and save in memory?",
    "Ten Laikagos, 40 contacts, dt 1 ms, float64, one thread. k: one state is kept every k steps, the others are "
    "computed again, a segment at a time. Formula: every step simulated anew from the state kept before it, (k+1)/2 "
    "forward steps and a backward step; ours computes a segment once. Peak memory beyond the controls, in a "
    "process of its own.",
    "Gradients are the same to the bit for every k (tests/rigid/test_schedules.py).",
    cells,
    tables,
    plot,
)
