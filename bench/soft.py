"""Soft bodies as material points, forward and gradient, in one run: `make bench-soft`.

A block of elastic particles (neo-Hookean, eight to a cell) falls on a floor with friction; the loss weighs final
positions, its gradient is by the initial positions and velocities. Single precision, two threads on a CPU. Where
TAICHI_PYTHON names an interpreter that has taichi 1.7, the same scene in Taichi, after DiffTaichi's diffmpm3d
(`bench/taichi_mpm.py`), in a process of its own: states of all steps are kept there, one in √N of them here.

Memory is the peak of what is resident beyond the interpreter and its libraries. How the cost grows is judged by the
time that threads spend on processors, which others' work disturbs least.

Options: `--quick` for a fast look, `--gpu-only` for what needs a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pullback.soft as soft
from bench.cloth import CELLS, measure_cloth
from bench.memory import peak_of
from bench.robot import Rows, verdict
from bench.table import Figures, print_table
from bench.timing import synchronize

CELL, DT = 1.0 / 64.0, 1e-4
YOUNGS, POISSON, DENSITY = 2e4, 0.3, 1000.0
GRAVITY, FRICTION = 10.0, 0.5
MB = 1e6
SIDES = (12, 22, 32, 46)
"""Particles along a side of the blocks whose cost is fitted."""

Tensor = torch.Tensor


def block_of(side: int, device: str = "cpu", reach: float = 0.0) -> soft.SoftSim:
    """Return a block of side³ particles just above the floor of a domain, larger by `reach` [m] on the other sides."""
    size = side * CELL / 2.0
    low = np.array([0.5 - size / 2.0, 3.2 * CELL, 0.5 - size / 2.0])
    material = soft.Elastic(youngs=YOUNGS, poisson=POISSON, density=DENSITY)
    body = soft.block(low.tolist(), (low + size).tolist(), spacing=CELL / 2.0, name="block", material=material)
    width = max(1.0, size + 0.5)
    edge = 0.5 - width / 2.0 - reach, 0.5 + width / 2.0 + reach
    domain = soft.Domain(
        (edge[0], 2.0 * CELL, edge[0]), (edge[1], edge[1], edge[1]), CELL, sides={"y-": "separate"}, friction=FRICTION
    )
    return soft.SoftSim(domain, [body], dt=DT, gravity=(0.0, -GRAVITY, 0.0), dtype=torch.float32, device=device)


class FallenLoss:
    """Weighted final positions, and their gradient by where and how fast particles start."""

    def __init__(self, sim: soft.SoftSim, steps: int) -> None:
        self.sim, self.steps, self.state = sim, steps, sim.state()
        generator = torch.Generator().manual_seed(0)
        self.weights = torch.randn(self.state.x.shape, generator=generator).to(sim.device)

    def __call__(self) -> tuple[float, float, float, float]:
        """Return the seconds of the forward pass without and with states kept, of the backward one, on processors."""
        begin = now()
        self.sim.rollout(self.state, self.steps)
        plain = now() - begin
        x, v = (part.clone().requires_grad_() for part in (self.state.x, self.state.v))
        begin, work = now(), time.process_time()
        final = self.sim.rollout(self.state.replace(x=x, v=v), self.steps).final.x
        middle = now()
        self.found = final.detach(), *torch.autograd.grad((self.weights * final).sum(), (x, v))
        return plain, middle - begin, now() - middle, time.process_time() - work


def now() -> float:
    """Return the time [s] when everything asked for is done."""
    synchronize()
    return time.perf_counter()


def say(text: str) -> None:
    """Print what is going on."""
    print(text, flush=True)


# -- ten thousand particles ------------------------------------------------------------------------------------------


def measure_block(side: int, steps: int, repeats: int) -> tuple[Rows, Figures]:
    """Measure a block on a CPU, beside Taichi where that is."""
    say(f"{side**3:,} particles, {steps} steps ...")
    command = [sys.executable, "-m", "bench.soft", "--block", str(side), str(steps), str(repeats)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    ours: Figures = json.loads(done.stdout.splitlines()[-1])
    say("  ours: " + ", ".join(f"{name} {value:.3g}" for name, value in ours.items()))
    rate = side**3 * steps * 1e-6
    what = f"{side**3:,} particles, {steps} steps"
    both = ours["forward [s]"] + ours["backward [s]"]
    rows: Rows = [
        (f"{what}, forward", f"{rate / ours['plain [s]']:.1f} M particle-steps/s", "", ""),
        (f"{what}, forward and backward", f"{rate / both:.2f} M particle-steps/s", "",
         f"backward is {ours['backward [s]'] / ours['plain [s]']:.1f}x forward"),
        (f"{what}, extra memory", f"{ours['memory [MB]']:.0f} MB", "", ""),
    ]  # fmt: skip
    figures = {f"{what}, {name}": value for name, value in ours.items()}
    other = os.environ.get("TAICHI_PYTHON")
    if not other:
        say("  Taichi is left out: TAICHI_PYTHON=/path/to/python with taichi 1.7 brings it")
        return rows, figures
    theirs = measure_taichi(other, side, steps, repeats)
    say("  Taichi: " + ", ".join(f"{name} {value:.3g}" for name, value in theirs.items()))
    total = theirs["forward [s]"] + theirs["backward [s]"]
    compared = (
        (ours["plain [s]"], theirs["forward [s]"], 1.0),
        (both, total, 2.0),
        (ours["memory [MB]"], theirs["memory [MB]"], 10.0),
    )
    for k, (mine, yours, bar) in enumerate(compared):
        held = f"{yours / mine:.1f}x (bar {bar:g}) {verdict(yours >= bar * mine)}"
        rows[k] = (*rows[k][:2], f"Taichi: {yours:.3g} {'MB' if k == 2 else 's'}", held)
    work = ours["processors [s]"], theirs["processors [s]"]
    rows.append(
        (
            f"{what}, both ways, on processors",
            f"{work[0]:.3g} s",
            f"Taichi: {work[1]:.3g} s",
            f"{work[1] / work[0]:.1f}x",
        )
    )
    return rows, figures | {f"{what}, Taichi, {name}": value for name, value in theirs.items()}


def report_block(side: int, steps: int, repeats: int) -> Figures:
    """Return the best times [s] and the peak of memory [MB]."""
    sim = block_of(side)
    # kernels are compiled, and libraries loaded
    FallenLoss(sim, 2)()
    times: list[tuple[float, ...]] = []

    def whole() -> None:
        times.append(FallenLoss(sim, steps)())

    peak = peak_of(whole)
    for _ in range(repeats - 1):
        whole()
    names = ("plain [s]", "forward [s]", "backward [s]", "processors [s]")
    return {**dict(zip(names, np.min(times, axis=0).tolist())), "memory [MB]": peak / MB}


def measure_taichi(python: str, side: int, steps: int, repeats: int) -> Figures:
    """Measure the same in Taichi, and see that it finds the same."""
    sim = block_of(side)
    loss = FallenLoss(sim, steps)
    loss()
    mu, lam = (float(x) for x in sim.bodies[0].material.lame(torch.zeros((), dtype=torch.float64)))  # pyright: ignore
    # Taichi's grid starts in 0, and its nodes below 3 are floor
    scene: dict[str, Any] = {
        "x": loss.state.x.numpy(), "v": loss.state.v.numpy(), "mass": DENSITY * (CELL / 2.0) ** 3,
        "volume": (CELL / 2.0) ** 3, "mu": mu, "lam": lam, "dt": DT, "cell": CELL, "grid": round(1.0 / CELL),
        "steps": steps, "gravity": np.array([0.0, -GRAVITY, 0.0]), "floor": 3, "friction": FRICTION,
        "actuator": np.full(side**3, -1), "actuation": np.zeros((steps, 1), np.float32),
        "weights": loss.weights.numpy(), "repeats": repeats,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        given, back = Path(folder) / "scene.npz", Path(folder) / "found.npz"
        np.savez(given, **scene)
        script = Path(__file__).with_name("taichi_mpm.py")
        subprocess.run([python, str(script), str(given), str(back), "2"], stdout=subprocess.DEVNULL, check=True)
        found = dict(np.load(back))
    figures = {"forward [s]": float(found["forward"]), "backward [s]": float(found["backward"])}
    figures["processors [s]"] = float(found["processors"])
    figures["memory [MB]"] = float(found["memory"]) * 1024.0 / MB
    for name, ours, theirs in zip(("x", "by x", "by v"), loss.found, (found["final"], found["adj_x"], found["adj_v"])):
        figures[f"differs in {name}"] = float(np.linalg.norm(ours.numpy() - theirs) / np.linalg.norm(theirs))
    return figures


# -- size --------------------------------------------------------------------------------------------------------------


def measure_sizes(sides: tuple[int, ...], device: str) -> tuple[Rows, Figures]:
    """Measure the cost of a step, both ways, over the number of particles; on a CPU the time on processors."""
    rows: Rows = []
    found: dict[int, float] = {}
    for side in sides:
        count = side**3
        steps = max(6, min(200, 2_000_000 // count)) if device == "cpu" else 60
        loss = FallenLoss(block_of(side, device), steps)
        loss()
        plain, forward, backward, work = np.min([loss() for _ in range(3)], axis=0) / steps
        found[count] = work if device == "cpu" else forward + backward
        say(f"{count:,} particles on {device}: {1e3 * plain:.3f} ms forward, {1e3 * backward:.3f} ms backward a step")
        took, rate = (
            f"{1e3 * plain:.3f} ms, back {1e3 * backward:.3f} ms",
            f"{count / plain * 1e-6:.1f} M particle-steps/s",
        )
        rows.append((f"{count:,} particles, {device}, a step", took, rate, f"backward {backward / plain:.1f}x"))
    exponent = float(np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0])
    bar = f"bar 1.05 {verdict(exponent <= 1.05)}" if device == "cpu" else ""
    rows.append((f"cost of a step ~ particles to the power, {device}", f"{exponent:.3f}", "linear: 1", bar))
    figures = {f"{device}, {count} particles, a step [ms]": 1e3 * value for count, value in found.items()}
    return rows, {**figures, f"{device}, exponent": exponent}


def measure_empty_space() -> tuple[Rows, Figures]:
    """Measure the same block in a domain of many more cells."""
    losses = [FallenLoss(block_of(16, reach=reach), 100) for reach in (0.0, 3.0)]
    for loss in losses:
        loss()
    small, large = (float(np.min([loss()[3] for _ in range(4)])) for loss in losses)
    cells = [np.prod([(h - l) / CELL for l, h in zip(x.sim.domain.low, x.sim.domain.high)]) for x in losses]
    more = f"{cells[1] / cells[0]:.0f} times the cells, the same particles"
    rows: Rows = [(more, f"{large / small:.2f} times the cost", "", f"bar 1.1 {verdict(large <= 1.1 * small)}")]
    return rows, {"empty space, cost": large / small}


def main() -> None:
    """Measure, print one table, and keep the figures in out/bench_soft.json."""
    torch.set_num_threads(2)
    if "--block" in sys.argv:
        print(json.dumps(report_block(*map(int, sys.argv[-3:]))))
        return
    quick, gpu = "--quick" in sys.argv, "--gpu-only" in sys.argv
    if gpu and not torch.cuda.is_available():
        sys.exit("there is no GPU here")
    parts = []
    if not gpu:
        parts.append(lambda: measure_block(22, 100 if quick else 500, 3))
        parts.append(lambda: measure_sizes(SIDES[:3] if quick else SIDES, "cpu"))
        parts.append(measure_empty_space)
        parts.append(lambda: measure_cloth(CELLS[:2] if quick else CELLS))
    if torch.cuda.is_available():
        parts.append(lambda: measure_sizes((32, 64, 100), "cuda"))
    title = "Elastic material points, float32, two threads on a CPU; cloth, float64, one thread"
    print_table(title, ("what", "Pullback", "other", "bar"), parts, Path("out") / "bench_soft.json")


if __name__ == "__main__":
    main()
