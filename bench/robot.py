"""Robot dynamics against Pinocchio and differentiable-robot-model (DRM), in one run: `make bench-robot`.

One thread and float64 unless a row says otherwise; medians, and all competitors take turns. Forward times are with
recording for a backward pass, as in learning. Pinocchio's forward dynamics are timed in a loop in C++ (`abaInParallel`
on one thread) and in one in Python. Its derivatives have no loop in C++: they are called from Python, and the same call
for a one-joint robot, which is nearly all overhead, is timed too and taken off.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from statistics import median as median_of
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import pullback as pb
from bench.table import Rows
from bench.timing import time_in_turns

BATCH = 1024
ROUNDS = 30

Tensor = torch.Tensor


def states(robot: pb.RobotModel, batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return random q, qd, tau that require gradients."""
    generator = torch.Generator().manual_seed(0)
    like = {"dtype": robot.dtype, "generator": generator}
    q = robot.random_q(batch, generator=generator)
    qd, tau = (torch.randn(batch, robot.nv, **like).to(robot.device) for _ in range(2))
    return q.requires_grad_(), qd.requires_grad_(), tau.requires_grad_()


def forward_and_backward(robot: pb.RobotModel, batch: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return forward dynamics, recording for a backward pass, and its vjp alone in q, qd and tau."""
    q, qd, tau = states(robot, batch)
    qdd = robot.compute_forward_dynamics(q, qd, tau)
    cotangent = torch.randn_like(qdd)

    def forward() -> Tensor:
        return robot.compute_forward_dynamics(q, qd, tau)

    def backward() -> tuple[Tensor, ...]:
        return torch.autograd.grad(qdd, (q, qd, tau), cotangent, retain_graph=True)

    return forward, backward


def pinocchio_functions(urdf: str, batch: int) -> dict[str, Callable[[], Any]]:
    """Return Pinocchio's forward dynamics twice, its derivatives, and the derivatives of a one-joint robot."""
    import numpy as np
    import pinocchio as pin  # pyright: ignore[reportMissingImports]

    model = pin.buildModelFromUrdf(urdf)
    single = pin.Model()
    joint = single.addJoint(0, pin.JointModelRZ(), pin.SE3.Identity(), "joint")
    single.appendBodyToJoint(joint, pin.Inertia.Random(), pin.SE3.Identity())
    pool = pin.ModelPool(model, 1)
    rng = np.random.default_rng(0)
    columns = [np.asfortranarray(rng.standard_normal((n, batch))) for n in (model.nq, model.nv, model.nv)]

    def loop(algorithm: Callable[..., Any], robot: Any) -> Callable[[], None]:
        data = robot.createData()
        rows = [[np.ascontiguousarray(x[: robot.nv, k]) for x in columns] for k in range(batch)]

        def run() -> None:
            for q, v, tau in rows:
                algorithm(robot, data, q, v, tau)

        return run

    return {
        "pin forward": lambda: pin.abaInParallel(1, pool, *columns),
        "pin forward, Python": loop(pin.aba, model),
        "pin derivatives": loop(pin.computeABADerivatives, model),
        "pin call": loop(pin.computeABADerivatives, single),
    }


def drm_functions(urdf: str, batch: int) -> dict[str, Callable[[], Any]]:
    """Return the forward dynamics of differentiable-robot-model, recording for a backward pass, and that pass alone."""
    from differentiable_robot_model.robot_model import DifferentiableRobotModel

    stdout, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115
    try:
        robot = DifferentiableRobotModel(urdf)
    finally:
        sys.stdout.close()
        sys.stdout = stdout
    leaves = [torch.randn(batch, 7).requires_grad_() for _ in range(3)]

    def forward() -> Tensor:
        return robot.compute_forward_dynamics(*leaves, include_gravity=True)

    qdd = forward()
    cotangent = torch.randn_like(qdd)
    return {
        "drm forward": forward,
        "drm backward": lambda: torch.autograd.grad(qdd, leaves, cotangent, retain_graph=True),
    }


def measure_iiwa(rounds: int) -> tuple[Rows, dict[str, float]]:
    """Compare the iiwa's forward dynamics and its vjp at one batch size, on one thread."""
    urdf = str(files("diff_robot_data") / "kuka_iiwa" / "urdf" / "iiwa7.urdf")
    robot = pb.load("iiwa7", dtype=torch.float64)
    forward, backward = forward_and_backward(robot, BATCH)
    forward32, backward32 = forward_and_backward(pb.load("iiwa7", dtype=torch.float32), BATCH)
    q, qd, tau = (x[0].detach() for x in states(robot, 2))
    ours = {"forward": forward, "backward": backward, "forward32": forward32, "backward32": backward32}
    t = time_in_turns({**ours, **pinocchio_functions(urdf, BATCH)}, rounds=rounds)
    t |= time_in_turns({"forward32_": forward32, "backward32_": backward32, **drm_functions(urdf, BATCH)}, rounds=7)
    t |= time_in_turns({"single": lambda: robot.compute_forward_dynamics(q, qd, tau)}, rounds=500)
    us = {name: value / BATCH * 1e6 for name, value in t.items()}
    derivatives = us["pin derivatives"] - us["pin call"]
    rows = [
        row("ABA, us a robot", us["forward"], "Pinocchio, C++ loop", us["pin forward"], at_most=0.6),
        row("ABA, us a robot", us["forward"], "Pinocchio, Python loop", us["pin forward, Python"], at_most=0.6),
        row("vjp of ABA", us["backward"], "computeABADerivatives less its call", derivatives, at_most=0.8),
        row("vjp of ABA", us["backward"], "computeABADerivatives, Python loop", us["pin derivatives"], at_most=0.8),
        row("ABA, float32", us["forward32_"], "DRM", us["drm forward"], at_most=1 / 30),
        row("vjp of ABA, float32", us["backward32_"], "DRM", us["drm backward"], at_most=1 / 20),
        ("one call, no batch", f"{t['single'] * 1e6:.0f} us", "bar", f"150 us {verdict(t['single'] <= 150e-6)}"),
    ]
    return rows, us


def row(what: str, ours: float, whom: str, theirs: float, *, at_most: float) -> tuple[str, str, str, str]:
    """Return a line of the table: our time, the peer's, their ratio and the bar."""
    ratio = ours / theirs
    faster = f"{ratio:.2f}x" if at_most > 0.1 else f"1/{1 / ratio:.0f}"
    bar = f"{at_most:g}x" if at_most > 0.1 else f"1/{1 / at_most:.0f}"
    return what, f"{ours:.3f}", f"{whom}: {theirs:.3f}", f"{faster} (bar {bar}) {verdict(ratio <= at_most)}"


def verdict(holds: bool) -> str:
    """Say whether a bar is met."""
    return "ok" if holds else "MISSED"


def measure_threads(rounds: int) -> Rows:
    """Compare two threads with one at a batch that is worth it: the median ratio of turns next to each other."""
    forward, backward = forward_and_backward(pb.load("iiwa7", dtype=torch.float64), 16 * BATCH)
    speedups: dict[str, list[float]] = {"ABA": [], "vjp": []}
    for _ in range(25):
        taken = []
        for threads in (1, 2):
            # torch stays on one thread: its own spin for a while after their number was set
            pb.set_num_threads(threads)
            taken.append(time_in_turns({"ABA": forward, "vjp": backward}, rounds=rounds))
        for name, ratios in speedups.items():
            ratios.append(taken[0][name] / taken[1][name])
    pb.set_num_threads(1)
    rows: Rows = []
    for name, ratios in speedups.items():
        speedup = median_of(ratios)
        rows.append((f"{name}, two threads", f"{speedup:.2f}x", "one thread", f"bar 1.6x {verdict(speedup >= 1.6)}"))
    return rows


def measure_gpu(rounds: int) -> tuple[Rows, dict[str, float]]:
    """Measure Laikago on a GPU in float32."""
    robot = pb.load("laikago", "floating", dtype=torch.float32, device="cuda")
    rows: Rows = []
    figures = {}
    for batch in (4096, 65536, 262144):
        forward, backward = forward_and_backward(robot, batch)
        t = time_in_turns({"forward": forward, "backward": backward}, rounds=rounds)
        for name, aim in (("forward", 50), ("backward", 25)):
            rate = batch / t[name] / 1e6
            figures[f"gpu {name} {batch}"] = rate
            rows.append((f"Laikago ABA {name}, {batch:,} robots", f"{rate:.1f} M/s", "aim at 65,536", f"{aim} M/s"))
    return rows, figures


def main() -> None:
    """Measure, print one table, and keep the figures in out/bench_robot.json."""
    rounds = 5 if "--quick" in sys.argv else ROUNDS
    torch.set_num_threads(1)
    table = Table(title=f"iiwa7, batch {BATCH:,}, medians, one thread")
    for heading in ("what", "Pullback", "peer", "ratio"):
        table.add_column(heading)
    figures: dict[str, float] = {}
    rows: Rows = []
    if "--gpu-only" not in sys.argv:
        rows, figures = measure_iiwa(rounds)
        rows += measure_threads(max(1, rounds // 30))
    if torch.cuda.is_available():
        gpu_rows, gpu_figures = measure_gpu(20)
        rows, figures = rows + gpu_rows, figures | gpu_figures
    for line in rows:
        table.add_row(*line)
    Console(width=140).print(table)
    out = Path("out")
    out.mkdir(exist_ok=True)
    (out / "bench_robot.json").write_text(json.dumps(figures, indent=2))
    print(f"figures: {out / 'bench_robot.json'}")


if __name__ == "__main__":
    main()
