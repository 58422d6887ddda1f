"""How the cost of a rollout and its gradient grows with worlds and steps, on one core; fitted exponents."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import torch

from bench.benchmark import Benchmark, Cell, Options, Row, figure, markdown, spread, time_with_spread
from bench.laikagos import forward_and_backward, stand

WORLDS, STEPS = (1, 10, 100, 1000, 10_000), (10, 100, 1000, 10_000, 100_000)
ROBOTS = (1, 2, 5, 10, 20)
OTHER_STEPS = 10


def measure(kind: str, size: int, options: Options) -> Row:
    """Measure forward and backward of one size."""
    torch.set_num_threads(1)
    standing = stand(size if kind == "robots" else 1, worlds=size if kind == "worlds" else 1)
    functions = forward_and_backward(standing, size if kind == "steps" else OTHER_STEPS)
    row: Row = {"kind": kind, "size": size}
    for name, function in zip(("forward", "backward"), functions):
        times: list[float] = []
        function()
        while len(times) < 3 or (sum(times) < options.seconds / 6 and len(times) < 30):
            before = time.perf_counter()
            function()
            times.append(time.perf_counter() - before)
        row[name] = spread(times)
    return row


def cells(options: Options) -> dict[str, Cell]:
    """Return a cell for each size of each kind."""
    sizes = {"worlds": WORLDS, "steps": STEPS, "robots": ROBOTS}
    return {f"{kind}/{n}": partial(measure, kind, n, options) for kind, each in sizes.items() for n in each}


def exponent(rows: list[Row], way: str) -> float:
    """Return p of time ~ size^p over the larger half of the sizes, where calls do not count."""
    rows = sorted(rows, key=lambda row: row["size"])[-3:]
    sizes, times = [row["size"] for row in rows], [row[way]["median"] for row in rows]
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def tables(rows: dict[str, Row]) -> list[str]:
    """Return times over size, and the exponent of the three largest sizes of a kind."""
    body = []
    for kind in ("worlds", "steps", "robots"):
        found = [row for row in rows.values() if row.get("kind") == kind]
        for row in found:
            times = [time_with_spread(row[way], 1e6 / row["size"]) for way in ("forward", "backward")]
            body.append([kind, f"{row['size']:,}", *times])
        if len(found) > 2:
            body.append(
                [kind, "**exponent**", *(f"**{figure(exponent(found, way))}**" for way in ("forward", "backward"))]
            )
    return markdown(["of what", "how many", "forward, each [µs]", "backward, each [µs]"], body)


BENCHMARK = Benchmark(
    "scaling",
    "Scaling",
    "How does the cost of a rollout and its gradient grow with the number of worlds, steps, and robots in a world?",
    f"Laikagos on four toes each, float64, one thread; worlds and robots: {OTHER_STEPS} steps a call. Ten robots in "
    "one world are 180 velocities and 40 contacts. Times are divided by the number of worlds, steps or robots; "
    "exponents p of time ~ number^p are fitted to the three largest.",
    "The same rollout as in the other tables, whose results are compared there.",
    cells,
    tables,
)
