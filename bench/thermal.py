"""Heat in a growing part, forward and gradient, in one run: `make bench-thermal`.

The published hourglass (Mozaffar and Cao, arXiv 2107.10919): its mesh, births, toolpath, constants and steps, explicit,
float32, two threads. Its notebook took 17.0 to 20.1 minutes for a loss and its gradient on a CPU; we are compared with
the shorter. Their loss looks at all nodes after every step, ours at 333 times; our gradient is by the power in each
step, theirs goes on to the weights of a network. Their beam has a factor of 3 in the exponent and ours of 2, so the
radius is smaller by the root of 2/3; ours heats the faces that look up and gives exactly its power.

Memory is the peak of what is resident beyond the mesh, its births and its path, in a process of its own: what a process
is made ready with, states, snapshots and their cotangents. Then boxes from 10⁴ to 10⁶ elements, a few steps each; how
their cost grows is judged by the time that threads spend on processors, which others' work disturbs least.

Options: `--quick` for a fast look, `--gpu-only` for what needs a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import mse_loss

import pullback.thermal as th
from bench.memory import peak_of
from bench.robot import Rows, verdict
from bench.sim import limit
from bench.table import Figures, print_table
from bench.timing import synchronize

DATA = Path(__file__).parents[1] / "tests" / "thermal" / "data"
DT, END = 0.02, 333.452
PUBLISHED = 17.0 * 60.0
LASER, TARGET = 250.0, 400.0
NODES = 18_438
LOOKS = 333
WARM = 3.0
SIZES = (22, 32, 46, 68, 100)
MB = 1e6

Tensor = torch.Tensor


def published_part() -> tuple[th.Mesh, th.Toolpath, np.ndarray]:
    """Return the published mesh, path and births."""
    mesh = th.read_mesh(DATA / "hourglass.k.xz", unit=1e-3)
    path = th.read_toolpath(DATA / "hourglass_toolpath.crs.xz", unit=1e-3)
    return mesh, path, th.read_births(DATA / "hourglass.k.xz")


def published_hourglass(part: Any = None, *, dt: float = DT, duration: float = END, **options: Any) -> th.Process:
    """Return the process of the published notebook, in SI units; options go to the process."""
    mesh, path, births = part or published_part()
    return th.Process(
        mesh, path, material=th.constant_material(10.0, 500.0, 30_000.0, name="notebook"), births=births, dt=dt,
        duration=duration, source=th.Gaussian(radius=1e-3 * sqrt(2 / 3)), convection=50.0, emissivity=0.2,
        ambient=300.0, initial=300.0, birth_temperature=300.0, **options,
    )  # fmt: skip


class HistoryLoss:
    """The squared error of temperatures at 333 times, and its gradient by the power in each step."""

    def __init__(self, process: th.Process) -> None:
        self.process = process
        self.shots = np.unique(np.linspace(0, process.steps, LOOKS + 1).round().astype(int)[1:]).tolist()
        shape = (len(self.shots), len(process.mesh.nodes))
        self.target = torch.full(shape, TARGET, dtype=process.dtype, device=process.device)

    def __call__(self) -> tuple[float, float, float]:
        """Return the seconds of the loss and of its gradient, and those of all threads on processors."""
        process = self.process
        power = torch.full((process.steps,), 0.6 * LASER, dtype=process.dtype, device=process.device)
        power.requires_grad_()
        begin, work = now(), time.process_time()
        history = process.run(power, snapshots=self.shots)
        # this function keeps no copy of the difference
        loss = mse_loss(history.snapshots, self.target)
        middle = now()
        (gradient,) = torch.autograd.grad(loss, power)
        end = now()
        if not bool(torch.isfinite(gradient).all() & gradient.any()):
            raise AssertionError("the gradient is not finite, or zero")
        self.ledger = history.ledger
        return middle - begin, end - middle, time.process_time() - work


def now() -> float:
    """Return the time [s] when everything asked for is done."""
    synchronize()
    return time.perf_counter()


def say(text: str) -> None:
    """Print what is going on."""
    print(text, flush=True)


# -- hourglass -----------------------------------------------------------------------------------------------------


def measure_hourglass(steps: int, device: str, bar: float, duration: float) -> tuple[Rows, Figures]:
    """Measure a loss and its gradient on the published part, in a process of its own for the sake of its memory."""
    say(f"hourglass on {device}, {steps:,} steps ...")
    command = [sys.executable, "-m", "bench.thermal", "--hourglass", str(steps), device, str(duration)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    say("  " + ", ".join(f"{name} {value:.3g}" for name, value in found.items()))
    forward, backward = found["forward [s]"], found["gradient [s]"]
    total = forward + backward
    what = f"hourglass, {steps:,} steps, {device}"
    rows: Rows = [
        limit(f"{what}, loss and gradient", total, bar, "s"),
        (f"{what}, of it forward", f"{forward:.2f} s", f"gradient: {backward:.2f} s", f"{backward / forward:.2f}x"),
        (f"{what}, on processors", f"{found['processors [s]']:.2f} s", f"{1e6 * total / steps:.0f} us a step", ""),
        (f"{what}, to make it ready, once", f"{found['ready [s]']:.2f} s", "", ""),
        limit(f"{what}, extra memory", found["memory [MB]"], 200, "MB"),
        (f"{what}, missing in the ledger", f"{abs(found['ledger']):.1e}", "of the heat to and fro", ""),
        (f"{what}, all its states", f"{4e-6 * NODES * steps:.0f} MB", "kept by the notebook, and their cotangents", ""),
    ]
    if steps == round(END / DT):
        ratio = PUBLISHED / total
        rows.append((f"{what}, against the notebook", f"{total:.2f} s", f"notebook: {PUBLISHED:.0f} s",
                     f"{ratio:.0f} times as fast (bar 15) {verdict(ratio >= 15)}"))  # fmt: skip
    return rows, {f"{what}, {name}": value for name, value in found.items()}


def report_hourglass(steps: int, device: str, duration: float) -> Figures:
    """Return times [s], and the peak of memory [MB] beyond the part: resident, on a GPU what is allocated there."""
    options = {"dtype": torch.float32, "device": device}
    part = published_part()
    # kernels are compiled, libraries loaded, and a GPU wakes up
    HistoryLoss(published_hourglass(part, duration=WARM, **options))()
    figures: Figures = {}

    def whole() -> None:
        begin = now()
        process = published_hourglass(part, dt=duration / steps, duration=duration, **options)
        figures["ready [s]"] = now() - begin
        loss = HistoryLoss(process)
        figures["forward [s]"], figures["gradient [s]"], figures["processors [s]"] = loss()
        figures["ledger"] = loss.ledger.error

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    peak = peak_of(whole)
    figures["memory [MB]"] = (torch.cuda.max_memory_allocated() if device == "cuda" else peak) / MB
    return figures


# -- size ----------------------------------------------------------------------------------------------------------


def measure_sizes(sizes: Sequence[int], device: str) -> tuple[Rows, Figures]:
    """Measure the cost of a step, both ways, over the number of elements; on a CPU the time on processors."""
    whose = {"cpu": "both threads", "cuda": "GPU"}
    rows: Rows = []
    found: dict[int, float] = {}
    for n in sizes:
        begin = time.perf_counter()
        side = 1e-3 * n
        mesh = th.box((side, side, side), 1e-3)
        steps = max(5, min(400, 4_000_000 // n**3))
        process = th.Process(
            mesh, material=th.constant_material(10.0, 500.0, 8000.0), dt=0.05, duration=0.05 * steps, convection=50.0,
            emissivity=0.2, dtype=torch.float32, device=device,
        )  # fmt: skip
        ready = time.perf_counter() - begin
        start = torch.linspace(300.0, 1000.0, len(mesh.nodes), device=device).requires_grad_()
        times, works = [], []
        for _ in range(4):
            begin, work = now(), time.process_time()
            torch.autograd.grad(process.run(initial=start).final.square().mean(), start)
            times.append((now() - begin) / steps)
            works.append((time.process_time() - work) / steps)
        wall = float(np.median(times[1:]))
        found[n**3] = wall if device == "cuda" else float(np.median(works[1:]))
        say(f"{n**3:,} elements on {device}: ready after {ready:.1f} s, {1e3 * wall:.3f} ms a step, "
            f"processors {1e3 * np.median(works[1:]):.3f} ms")  # fmt: skip
        rows.append((f"box of {n**3:,} elements, {device}, a step both ways", f"{1e3 * wall:.3f} ms",
                     f"{whose[device]}: {1e9 * found[n**3] / n**3:.1f} ns an element",
                     f"ready after {ready:.1f} s"))  # fmt: skip
        del mesh, process
    exponent = float(np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0])
    rows.append((f"cost of a step ~ elements to the power, {device}", f"{exponent:.3f}", "linear: 1", ""))
    if device == "cpu":
        rows[-1] = (*rows[-1][:3], f"bar 1.1 {verdict(exponent <= 1.1)}")
    figures = {f"{device}, {count} elements, a step [ms]": 1e3 * value for count, value in found.items()}
    return rows, {**figures, f"{device}, exponent": exponent}


def main() -> None:
    """Measure, print one table, and keep the figures in out/bench_thermal.json."""
    if "--hourglass" in sys.argv:
        torch.set_num_threads(2)
        steps, device, duration = sys.argv[-3:]
        print(json.dumps(report_hourglass(int(steps), device, float(duration))))
        return
    quick, gpu = "--quick" in sys.argv, "--gpu-only" in sys.argv
    if gpu and not torch.cuda.is_available():
        sys.exit("there is no GPU here")
    torch.set_num_threads(2)
    end = 40.0 if quick else END
    counts = (2_000,) if quick else (round(END / DT), 26_000)
    sizes = SIZES[:3] if quick else SIZES
    parts = []
    for device in ["cuda"] * torch.cuda.is_available() + ["cpu"] * (not gpu):
        for steps in counts:
            bar = (10.0 if device == "cuda" else 60.0) * end / END * steps / counts[0]
            parts.append(lambda steps=steps, device=device, bar=bar: measure_hourglass(steps, device, bar, end))
        parts.append(lambda device=device: measure_sizes(sizes, device))
    title = "Heat in a growing part, explicit, float32, two threads on a CPU"
    print_table(title, ("what", "Pullback", "other", "bar"), parts, Path("out") / "bench_thermal.json")


if __name__ == "__main__":
    main()
