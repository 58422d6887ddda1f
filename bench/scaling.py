"""How the cost of a rollout and its gradient grows with worlds, steps, robots, links and contacts; exponents."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import torch

import pullback as pb
from bench.benchmark import (
    NOT_MEASURED,
    Benchmark,
    Cell,
    NotHereError,
    Options,
    Row,
    figure,
    markdown,
    spread,
    time_with_spread,
)
from bench.laikagos import Standing, forward_and_backward, stand
from bench.mujoco_models import GRAVITY, TIME_STEP

GPU = "worlds on a GPU"
SIZES = {
    "worlds": (1, 10, 100, 1000, 10_000, 100_000),
    "steps": (10, 100, 1000, 10_000, 100_000),
    "robots": (1, 2, 5, 10, 20),
    "links": (1, 5, 20, 50, 100, 200),
    "contacts": (0, 5, 20, 50, 100, 200),
    GPU: (1, 100, 10_000, 100_000, 1_000_000),
}
OTHER_STEPS = 10
LONGEST = 10.0
"""Seconds after which a function is not timed again."""


def scene(kind: str, size: int) -> Standing:
    """Return Laikagos, a pendulum of so many links, or so many balls that lie on the ground."""
    if kind == "links":
        world = pb.World(gravity=GRAVITY)
        world.add(pb.load(f"pendulum{size}", dtype=torch.float64), actuators=pb.Torque(), collision_links=[])
    elif kind == "contacts":
        world = pb.World(gravity=GRAVITY, contact=pb.PGS(iterations=50))
        world.add_ground()
        for k in range(max(size, 1)):
            # one ball in the air is a world without contacts; balls may touch the ground only
            place = (0.3 * (k % 15), 0.3 * (k // 15), 0.05 if size else 1.0)
            world.add_sphere(f"ball{k}", radius=0.05, mass=1.0, position=place, group=2, mask=1)
    elif kind == GPU:
        return stand(1, worlds=size, dtype=torch.float32, device="cuda")
    else:
        return stand(size if kind == "robots" else 1, worlds=size if kind == "worlds" else 1)
    sim = world.compile(dt=TIME_STEP, dtype=torch.float64)
    return Standing(sim, sim.initial_state(), torch.zeros(1, sim.nu, dtype=torch.float64))


def measure(kind: str, size: int, options: Options) -> Row:
    """Measure forward and backward of one size."""
    torch.set_num_threads(1)
    wait = torch.cuda.synchronize if kind == GPU else lambda: None
    if kind == GPU and not torch.cuda.is_available():
        raise NotHereError("no GPU")
    functions = forward_and_backward(scene(kind, size), size if kind == "steps" else OTHER_STEPS)
    row: Row = {"kind": kind, "size": size}
    for name, function in zip(("forward", "backward"), functions):
        times: list[float] = []
        function()
        wait()
        while sum(times) < LONGEST and (len(times) < 3 or (sum(times) < options.seconds / 6 and len(times) < 30)):
            before = time.perf_counter()
            function()
            wait()
            times.append(time.perf_counter() - before)
        row[name] = spread(times)
    return row


def cells(options: Options) -> dict[str, Cell]:
    """Return a cell for each size of each kind."""
    return {f"{kind}/{n}": partial(measure, kind, n, options) for kind, each in SIZES.items() for n in each}


def exponent(rows: list[Row], way: str) -> float:
    """Return p of time ~ size^p over the larger half of the sizes, where calls do not count."""
    rows = sorted(rows, key=lambda row: row["size"])[-3:]
    sizes, times = [row["size"] for row in rows], [row[way]["median"] for row in rows]
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def tables(rows: dict[str, Row]) -> list[str]:
    """Return times over size, and the exponent of the three largest sizes of a kind."""
    body = []
    for kind in SIZES:
        found = []
        for size in SIZES[kind]:
            row = rows.get(f"{kind}/{size}", NOT_MEASURED)
            if "failed" in row:
                body.append([kind, f"{size:,}", row["failed"], ""])
                continue
            times = [time_with_spread(row[way], 1e6 / max(size, 1)) for way in ("forward", "backward")]
            body.append([kind, f"{size:,}", *times])
            # none of something has no logarithm
            found += [row] if size else []
        if len(found) > 2:
            body.append(
                [kind, "**exponent**", *(f"**{figure(exponent(found, way))}**" for way in ("forward", "backward"))]
            )
    return markdown(["of what", "how many", "forward, each [µs]", "backward, each [µs]"], body)


WORSE = (
    "What is worse than linear: links, since the mass matrix of one chain is dense and is factored, of n³; robots and "
    "contacts backward, since the adjoint writes one matrix of all rows, zeros included, although islands of it are "
    "solved apart. A GPU is not full below some 100,000 worlds."
)

BENCHMARK = Benchmark(
    "scaling",
    "Scaling",
    "How does the cost of a rollout and its gradient grow with worlds, steps, robots, links and contacts?",
    f"float64, one thread, on a GPU float32; but for steps, {OTHER_STEPS} steps a call. Worlds, steps, robots: "
    "Laikagos on four toes each; ten robots in one world are 180 velocities and 40 contacts. Links: a chain of hinges "
    "without contact. "
    "Contacts: balls on the ground, one contact each, six velocities each (0: one ball in the air). Times are divided "
    "by the number; exponents p of time ~ number^p are fitted to the three largest. " + WORSE,
    "The same rollout as in the other tables, whose results are compared there.",
    cells,
    tables,
)
