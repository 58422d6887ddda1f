"""Heat in a growing part, forward and gradient, in one run: `make bench-thermal`.

The published hourglass (Mozaffar and Cao, arXiv 2107.10919): its mesh, births, toolpath, constants and steps, explicit,
float32, two threads. Its notebook took 17.0 to 20.1 minutes for a loss and its gradient on a CPU; we are compared with
the shorter. Their loss looks at all nodes after every step; ours after every 50th, against temperatures of a hidden
power, and the gradient is by the power in every step. Their beam has a factor of 3 in the exponent and ours of 2, so
the radius is smaller by the root of 2/3; ours heats the faces that look up and gives exactly its power.

Memory is the peak of what is resident beyond the mesh, its births and its path, in a process of its own: what a process
is made ready with, states, snapshots and their cotangents. Then boxes from 10⁴ to 10⁶ elements, a few steps each; how
their cost grows is judged by the time that threads spend on processors, which others' work disturbs least.

Options: `--quick` for a fast look, `--gpu-only` for what needs a GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import pullback.thermal as th
from bench.robot import Rows, verdict
from bench.sim import Figures, limit, peak_of
from bench.timing import synchronize

DATA = Path(__file__).parents[1] / "tests" / "thermal" / "data"
DT, END = 0.02, 333.452
PUBLISHED = 17.0 * 60.0
LASER = 250.0
EVERY = 50
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


def hidden_power(process: th.Process) -> Tensor:
    """Return a band-limited random power [W] in each step, between a fifth of the laser's and all of it."""
    rng = np.random.default_rng(0)
    t = process.times[:-1] / END
    waves = sum(rng.normal() * np.sin(2 * np.pi * (k * t + rng.random())) / sqrt(k) for k in range(1, 31))
    share = 0.2 + 0.8 * (waves - np.min(waves)) / max(np.ptp(waves), 1e-9)
    return torch.as_tensor(LASER * share).to(process.device, process.dtype)


class HistoryLoss:
    """The squared error of temperatures after every 50th step, and its gradient by a constant power's steps."""

    def __init__(self, process: th.Process) -> None:
        self.process = process
        self.shots = range(EVERY, process.steps + 1, EVERY)
        with torch.no_grad():
            self.target = process.run(hidden_power(process), snapshots=self.shots).snapshots

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return power and loss."""
        power = torch.full((self.process.steps,), 0.6 * LASER, dtype=self.process.dtype, device=self.process.device)
        power.requires_grad_()
        return power, (self.process.run(power, snapshots=self.shots).snapshots - self.target).square().mean()

    def __call__(self) -> tuple[float, float, float]:
        """Return the seconds of the loss and of its gradient, and those of all threads on processors."""
        begin, work = now(), time.process_time()
        power, loss = self.forward()
        middle = now()
        (gradient,) = torch.autograd.grad(loss, power)
        end = now()
        if not bool(torch.isfinite(gradient).all() & gradient.any()):
            raise AssertionError("the gradient is not finite, or zero")
        return middle - begin, end - middle, time.process_time() - work


def now() -> float:
    """Return the time [s] when everything asked for is done."""
    synchronize()
    return time.perf_counter()


def say(text: str) -> None:
    """Print what is going on."""
    print(text, flush=True)


# -- hourglass -----------------------------------------------------------------------------------------------------


def measure_hourglass(steps: int, device: str, bar: float, duration: float = END) -> tuple[Rows, Figures]:
    """Measure a loss and its gradient on the published part."""
    options = {"dtype": torch.float32, "device": device}
    part = published_part()
    # kernels are compiled, and a GPU wakes up
    HistoryLoss(published_hourglass(part, duration=WARM, **options))()
    begin = time.perf_counter()
    process = published_hourglass(part, dt=duration / steps, duration=duration, **options)
    ready = time.perf_counter() - begin
    say(f"hourglass on {device}, {process.steps:,} steps: ready after {ready:.1f} s")
    loss = HistoryLoss(process)
    forward, backward, work = loss()
    total = forward + backward
    say(f"  forward {forward:.1f} s, gradient {backward:.1f} s, processors {work:.1f} s")
    us = 1e6 * total / process.steps
    what = f"hourglass, {process.steps:,} steps, {device}"
    rows: Rows = [
        limit(f"{what}, loss and gradient", total, bar, "s"),
        (f"{what}, of it forward", f"{forward:.2f} s", f"gradient: {backward:.2f} s", f"{backward / forward:.2f}x"),
        (f"{what}, on processors", f"{work:.2f} s", "all threads", ""),
        (f"{what}, to make it ready, once", f"{ready:.2f} s", f"a step, both ways: {us:.0f} us", ""),
    ]
    if process.steps == round(END / DT):
        ratio = PUBLISHED / total
        rows.append((f"{what}, against the notebook", f"{total:.2f} s", "notebook: 1020 s",
                     f"{ratio:.0f} times as fast (bar 15) {verdict(ratio >= 15)}"))  # fmt: skip
    found = {"ready": ready, "forward": forward, "gradient": backward, "processors": work}
    return rows, {f"{what}, {name} [s]": value for name, value in found.items()}


def measure_memory(steps: int, duration: float = END) -> tuple[Rows, Figures]:
    """Measure the peak of extra memory in a process of its own."""
    command = [sys.executable, "-m", "bench.thermal", "--memory", str(steps), str(duration)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    say(f"memory, {steps:,} steps: " + ", ".join(f"{name} {value / MB:.0f} MB" for name, value in found.items()))
    rows = [
        limit(f"hourglass, {steps:,} steps, extra memory", found["all"] / MB, 200, "MB"),
        ("of it loss and gradient alone", f"{found['run'] / MB:.1f} MB", f"target: {found['target'] / MB:.1f} MB", ""),
        ("all states of such a run", f"{found['states'] / MB:.0f} MB", "kept by the notebook, twice", ""),
    ]
    return rows, {f"memory, {steps} steps, {name} [MB]": value / MB for name, value in found.items()}


def report_memory(steps: int, duration: float) -> dict[str, float]:
    """Return peaks of extra memory [B]: of everything beyond the part, and of a loss and its gradient."""
    part = published_part()
    # what is loaded once: compiled kernels, torch's own libraries
    HistoryLoss(published_hourglass(part, duration=WARM, dtype=torch.float32))()
    kept: list[HistoryLoss] = []

    def whole() -> None:
        process = published_hourglass(part, dt=duration / steps, duration=duration, dtype=torch.float32)
        kept.append(HistoryLoss(process))
        kept[0]()

    everything = peak_of(whole)
    alone = peak_of(lambda: kept[0]())
    nodes = len(part[0].nodes)
    return {"all": everything, "run": alone, "target": kept[0].target.nbytes, "states": 4.0 * nodes * steps}


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
    if "--memory" in sys.argv:
        torch.set_num_threads(2)
        print(json.dumps(report_memory(int(sys.argv[-2]), float(sys.argv[-1]))))
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
    if not gpu:
        parts.append(lambda: measure_memory(counts[0], end))
    table = Table(title="Heat in a growing part, explicit, float32, two threads on a CPU")
    for heading in ("what", "Pullback", "other", "bar"):
        table.add_column(heading)
    out = Path("out")
    out.mkdir(exist_ok=True)
    figures: Figures = {}
    for part in parts:
        rows, found = part()
        figures |= found
        for cells in rows:
            table.add_row(*cells)
        (out / "bench_thermal.json").write_text(json.dumps(figures, indent=2))
    Console(width=150).print(table)
    say(f"figures: {out / 'bench_thermal.json'}")


if __name__ == "__main__":
    main()
