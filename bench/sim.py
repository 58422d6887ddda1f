"""Simulation with contact against MuJoCo and MuJoCo Warp, in one run: `make bench-sim`.

Laikago stands on its four toe spheres under position servos, settled before the clock starts; steps of 1 ms, at most 50
sweeps of projected Gauss–Seidel on both sides. One thread and float64 unless a row says otherwise; medians, and all
competitors take turns, for 5,000 steps each time in as many calls as it takes. Forward times are of `sim.rollout` from
Python, all states kept, recording for a backward pass; backward is the gradient of a loss on the last state in initial
state and controls. MuJoCo steps in a loop in C (`mujoco.rollout`, one thread) that returns all states too, with its
servos in C. It starts its solver from the last step's solution and we start from zero, as each does by default.

Options: `--quick` for a fast look, `--full` for checkpoints over 5,000 steps, `--gpu-only` for what needs a GPU.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

import pullback as pb
from bench.closed_loop import measure_loop
from bench.laikagos import JOINTS, TOES, Call, Standing, forward_and_backward, peer_xml, stand
from bench.memory import KEEPING, peak_of
from bench.mujoco_models import MujocoRollout, has_mujoco_warp, mujoco_warp_steps
from bench.robot import Rows, verdict
from bench.table import Figures, Part, print_table
from bench.timing import time_in_turns, times_in_turns

LENGTHS = (50, 100, 500, 1000, 5000)
INTERVALS = (1, 2, 5, 10, 20, 50, 100)
ROBOTS = 10
MB = 1e6

Tensor = torch.Tensor


def line(
    what: str, ours: float, whom: str, theirs: float, unit: str = "us", *, at_most: float | None = None
) -> tuple[str, str, str, str]:
    """Return a line of the table: our figure, the other, their ratio, and the bar where there is one."""
    ratio = ours / theirs
    bar = "" if at_most is None else f" (bar {at_most:g}x) {verdict(ratio <= at_most)}"
    return what, f"{ours:.2f} {unit}", f"{whom}: {theirs:.2f}", f"{ratio:.2f}x{bar}"


def limit(what: str, ours: float, bar: float, unit: str) -> tuple[str, str, str, str]:
    """Return a line of the table for a figure with a bar of its own."""
    return what, f"{ours:.2f} {unit}", "bar", f"{bar:g} {unit} {verdict(ours <= bar)}"


# -- one robot ---------------------------------------------------------------------------------------------------


def measure_one(rounds: int) -> tuple[Rows, Figures]:
    """Compare one Laikago with MuJoCo, over the number of steps."""
    standing = stand()
    peers = {
        "MuJoCo PGS": MujocoRollout(peer_xml(), JOINTS),
        "MuJoCo PGS, pyramids": MujocoRollout(peer_xml(cone="pyramidal"), JOINTS),
        "MuJoCo Newton": MujocoRollout(peer_xml(solver="Newton"), JOINTS),
    }
    calls: dict[tuple[str, int], Call] = {}
    for steps in LENGTHS:
        calls["forward", steps], calls["backward", steps] = forward_and_backward(standing, steps)
        for name, peer in peers.items():
            if steps == 1000 or name == "MuJoCo PGS":
                calls[name, steps] = peer.run(steps)
    # as many steps for each, so that a busy moment of the machine weighs as much in short calls as in long ones
    functions = {(name, t): repeated(call, LENGTHS[-1] // t) for (name, t), call in calls.items()}
    times = times_in_turns(functions, rounds=rounds)
    us = {key: 1e6 * median(values) / LENGTHS[-1] for key, values in times.items()}
    rows: Rows = []
    for t in LENGTHS:
        what = f"forward, {t:,} steps, a step"
        rows.append(line(what, us["forward", t], "MuJoCo PGS", us["MuJoCo PGS", t], at_most=1.5))
    for name in ("MuJoCo PGS, pyramids", "MuJoCo Newton"):
        rows.append(line("forward, 1,000 steps, a step", us["forward", 1000], name, us[name, 1000]))
    for t in LENGTHS:
        rows.append(line(f"backward, {t:,} steps, a step", us["backward", t], "forward", us["forward", t], at_most=3))
    for name in ("forward", "backward"):
        long = [us[name, t] for t in LENGTHS if t >= 500]
        rows.append(line(f"{name}, 500 to 5,000 steps: slowest", max(long), "fastest", min(long), at_most=1.1))
        best = [1e6 * min(times[name, t]) / LENGTHS[-1] for t in LENGTHS if t >= 500]
        rows.append(line(f"{name}, the same at best", max(best), "fastest", min(best), at_most=1.1))
    touching = len(standing.sim.contacts(standing.state, standing.targets)[0])
    found = ", ".join(f"{name} {peer.contacts} in {peer.sweeps:.1f} sweeps" for name, peer in peers.items())
    rows.append(("contacts while standing", f"{touching}", found, ""))
    return rows, {f"{name}, {t} steps [us]": value for (name, t), value in us.items()}


def repeated(call: Call, times: int) -> Call:
    """Return a function that does a call so many times."""

    def run() -> None:
        for _ in range(times):
            call()

    return run


# -- memory ------------------------------------------------------------------------------------------------------


def measure_memory(steps: int) -> tuple[Rows, Figures]:
    """Measure the extra memory of one robot's rollout and its gradient with every state kept, in seven processes."""
    runs = [in_child_memory(1, steps, (1,))[0] for _ in range(7)]
    found = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    rows = [
        limit(f"peak extra memory, {steps:,} steps, first call", found["first"] / MB, 3, "MB"),
        limit("the same, later calls", found["later"] / MB, 3, "MB"),
        limit("of it tensors: states, cotangents, gradient", found["tensors"] / MB, 3, "MB"),
        ("the controls, there before", f"{found['controls'] / MB:.2f} MB", "", ""),
    ]
    return rows, {f"memory, {name} [MB]": value / MB for name, value in found.items()}


def in_child_memory(robots: int, steps: int, intervals: Sequence[int]) -> list[dict[str, float]]:
    """Measure memory in a process of its own, whose heap keeps what is freed."""
    wanted = ["--memory", str(robots), str(steps), ",".join(map(str, intervals))]
    environment = {**os.environ, **KEEPING}
    command = [sys.executable, "-m", "bench.sim", *wanted]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def report_memory(robots: int, steps: int, intervals: Sequence[int]) -> list[dict[str, float]]:
    """Return for each interval the peak of extra memory [B] of a rollout and its gradient, and its tensors' sizes."""
    standing = stand(robots)
    controls = standing.controls(steps)
    sizes: dict[int, int] = {}

    def note(x: Tensor) -> None:
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()

    def run(controls: Tensor, checkpoint: int) -> None:
        states = standing.sim.rollout(standing.state, controls, checkpoint=checkpoint)
        sizes.clear()
        # while a cotangent of the states passes by, all these exist
        states.q.register_hook(note)
        states.q[-1].sum().backward()
        assert controls.grad is not None
        for x in (states.q, states.qd, controls.grad):
            note(x)

    run(standing.controls(5), 1)
    found = []
    for k in intervals:
        peaks = []
        for _ in range(6):
            controls.grad = None
            peaks.append(peak_of(lambda k=k: run(controls, k)))
        found.append({"first": peaks[0], "later": max(peaks[1:]), "tensors": sum(sizes.values())})
        found[-1]["controls"] = controls.untyped_storage().nbytes()
    return found


# -- ten robots, checkpoints -------------------------------------------------------------------------------------


def measure_ten(rounds: int, steps: int) -> tuple[Rows, Figures]:
    """Measure ten Laikagos in one world over the checkpoint interval, and plot it."""
    standing = stand(ROBOTS)
    functions: dict[tuple[str, int], Call] = {}
    for k in INTERVALS:
        functions["forward", k], functions["backward", k] = forward_and_backward(standing, steps, k)
    functions["MuJoCo PGS", 0] = MujocoRollout(peer_xml(ROBOTS), JOINTS).run(steps)
    taken = time_in_turns(functions, rounds=rounds)
    us = {key: 1e6 * value / steps for key, value in taken.items()}
    memory = in_child_memory(ROBOTS, steps, INTERVALS)
    what = f"{ROBOTS} robots, {steps:,} steps"
    rows = [
        line(f"{what}, forward, a step", us["forward", 1], "MuJoCo PGS", us["MuJoCo PGS", 0]),
        line(f"{what}, backward, a step", us["backward", 1], "forward", us["forward", 1]),
    ]
    for k, found in zip(INTERVALS, memory):
        forward, backward = us["forward", k], us["backward", k]
        sizes = f"{found['later'] / MB:.2f} MB, tensors {found['tensors'] / MB:.2f} MB"
        slower = f"{(forward + backward) / (us['forward', 1] + us['backward', 1]):.2f}x the time of k = 1"
        rows.append(
            (f"{ROBOTS} robots, k = {k}, extra memory", sizes, f"{forward:.0f} + {backward:.0f} us a step", slower)
        )
    plot_checkpoints(us, memory, steps)
    figures = {f"{ROBOTS} robots, {name}, k = {k} [us]": value for (name, k), value in us.items()}
    for k, found in zip(INTERVALS, memory):
        figures |= {f"{ROBOTS} robots, memory, {name}, k = {k} [MB]": value / MB for name, value in found.items()}
    return rows, figures


def plot_checkpoints(us: dict[tuple[str, int], float], memory: list[dict[str, float]], steps: int) -> None:
    """Draw time and memory over the checkpoint interval."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name, marker in (("forward", "o"), ("backward", "s")):
        left.plot(INTERVALS, [us[name, k] for k in INTERVALS], marker=marker, label=name)
    left.set_ylabel("time a step [µs]")
    right.plot(INTERVALS, [found["later"] / MB for found in memory], marker="o", label="peak of the process")
    right.plot(INTERVALS, [found["tensors"] / MB for found in memory], marker="s", label="of it tensors")
    right.set_ylabel("extra memory [MB]")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(INTERVALS, [str(k) for k in INTERVALS], minor=False)
        axes.set_xlabel("one state kept every k steps")
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.margins(y=0.15)
        axes.set_ylim(bottom=0)
        axes.legend(loc="center right")
    figure.suptitle(f"{ROBOTS} Laikagos in one world, {steps:,} steps")
    figure.savefig(Path("out") / "bench_sim_checkpoints.png", dpi=150)


# -- first gradient, threads -------------------------------------------------------------------------------------

FIRST_GRADIENT = f"""
import time
start = time.perf_counter()
import torch
loaded = time.perf_counter()
import pullback as pb
world = pb.World()
dog = pb.load("laikago", base="floating", dtype=torch.float64)
servo = pb.PositionServo(kp=150, kd=3, limit=100)
world.add(dog, position=(0, 0, 0.52), actuators=servo, collision_links={TOES!r})
world.add_ground(friction=0.8)
sim = world.compile(dt=1e-3, dtype=torch.float64)
controls = torch.zeros(10, 1, sim.nu, dtype=torch.float64, requires_grad=True)
sim.rollout(sim.initial_state(), controls).q[-1].sum().backward()
print(time.perf_counter() - start, loaded - start, time.process_time())
"""


def measure_first_gradient(rounds: int) -> tuple[Rows, Figures]:
    """Measure how long a fresh process needs from its first import to a gradient, with no kernels kept and with all."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "WARP_CACHE_PATH": folder}
        command = [sys.executable, "-c", FIRST_GRADIENT]
        runs = []
        for _ in range(1 + rounds):
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            runs.append([float(x) for x in done.stdout.split()[-3:]])
    cold, warm, torch_alone = runs[0][0], median(x for x, _, _ in runs[1:]), median(x for _, x, _ in runs[1:])
    cold_cpu, warm_cpu = runs[0][2], median(x for _, _, x in runs[1:])
    rows = [
        limit("first gradient, cold cache of kernels", cold, 30, "s"),
        limit("first gradient, warm cache", warm, 3, "s"),
        ("of it `import torch`", f"{torch_alone:.2f} s", f"CPU time: {cold_cpu:.1f} s cold, {warm_cpu:.1f} s warm", ""),
    ]
    return rows, {"first gradient, cold [s]": cold, "first gradient, warm [s]": warm, "import torch [s]": torch_alone}


def measure_threads(rounds: int) -> tuple[Rows, Figures]:
    """Compare two threads with one for many worlds."""
    worlds, steps = 1024, 10
    forward, backward = forward_and_backward(stand(worlds=worlds), steps)
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for threads in (1, 2):
            torch.set_num_threads(threads)
            # torch's own threads spin for a while after they were set
            time.sleep(0.3)
            for name, value in time_in_turns({"forward": forward, "backward": backward}, rounds=1).items():
                times.setdefault((name, threads), []).append(1e6 * value / worlds / steps)
    torch.set_num_threads(1)
    us = {key: median(values) for key, values in times.items()}
    rows: Rows = []
    for name in ("forward", "backward"):
        what = f"{name}, {worlds:,} worlds, two threads"
        speedup = f"{us[name, 1] / us[name, 2]:.2f} times as fast"
        rows.append((what, f"{us[name, 2]:.2f} us", f"one thread: {us[name, 1]:.2f}", speedup))
    return rows, {f"{name}, {worlds} worlds, {n} threads [us]": value for (name, n), value in us.items()}


# -- GPU ---------------------------------------------------------------------------------------------------------


def measure_gpu(rounds: int, sizes: Sequence[int], steps: int = 100, device: str = "cuda") -> tuple[Rows, Figures]:
    """Compare worlds a second on a GPU in float32 with MuJoCo Warp, whose gradients do not exist."""
    rows: Rows = []
    figures: Figures = {}
    peers = {"MuJoCo Warp, pyramids": "pyramidal", "MuJoCo Warp": "elliptic"} if has_mujoco_warp() else {}
    if not peers:
        rows.append(("MuJoCo Warp", "cannot be imported here", "install mujoco and mujoco-warp", ""))
    for worlds in sizes:
        standing = stand(worlds=worlds, dtype=torch.float32, device=device)
        controls, state = standing.controls(steps), standing.state

        def forward(s: Standing = standing, u: Tensor = controls, start: pb.State = state) -> pb.Trajectory:
            return s.sim.rollout(start, u)

        def both(forward: Callable[[], pb.Trajectory] = forward, u: Tensor = controls) -> Any:
            states = forward()
            return torch.autograd.grad(states.q[-1].square().sum() + states.qd[-1].square().sum(), u)

        forward().status.check()
        functions: dict[str, Call] = {"forward": forward, "forward and backward": both}
        for name, cone in peers.items():
            try:
                xml = peer_xml(solver="Newton", cone=cone)
                functions[name] = mujoco_warp_steps(xml, JOINTS, worlds=worlds, steps=steps)
            except Exception as error:  # our own figures are worth having without theirs
                rows.append((f"{name}, {worlds:,} worlds", "failed", f"{type(error).__name__}: {error}"[:60], ""))
        taken = time_in_turns(functions, rounds=rounds)
        rates = {name: worlds * steps / value / MB for name, value in taken.items()}
        figures |= {f"{device} {name}, {worlds} worlds [M steps/s]": rate for name, rate in rates.items()}
        theirs = {name: rate for name, rate in rates.items() if name in peers}
        for name, share in (("forward", 1.0), ("forward and backward", 1 / 3)):
            what = f"{device}, {worlds:,} worlds, {name}"
            if not theirs:
                rows.append((what, f"{rates[name]:.2f} M steps/s", "", ""))
                continue
            best = max(theirs, key=lambda peer: theirs[peer])
            ratio = rates[name] / theirs[best]
            bar = f" (bar {share:.2f}x) {verdict(ratio >= share)}" if worlds == max(sizes) else ""
            both_peers = ", ".join(f"{peer}: {rate:.2f}" for peer, rate in theirs.items())
            rows.append((what, f"{rates[name]:.2f} M steps/s", both_peers, f"{ratio:.2f}x the better{bar}"))
    return rows, figures


def main() -> None:
    """Measure, print one table, and keep the figures in out/bench_sim.json."""
    torch.set_num_threads(1)
    if "--memory" in sys.argv:
        robots, steps, intervals = sys.argv[-3:]
        print(json.dumps(report_memory(int(robots), int(steps), [int(k) for k in intervals.split(",")])))
        return
    quick, full = "--quick" in sys.argv, "--full" in sys.argv
    out = Path("out")
    out.mkdir(exist_ok=True)
    parts: list[Part] = []
    if "--gpu-only" not in sys.argv:
        parts = [
            lambda: measure_one(2 if quick else 20),
            lambda: measure_memory(5000),
            lambda: measure_ten(1, 5000 if full else 100 if quick else 1000),
            lambda: measure_loop(2 if quick else 20),
            lambda: measure_first_gradient(1 if quick else 5),
            lambda: measure_threads(1 if quick else 5),
        ]
    if torch.cuda.is_available():
        parts.append(lambda: measure_gpu(1 if quick else 5, (4096, 8192, 32768)))
    elif "--gpu-only" in sys.argv:
        sys.exit("there is no GPU here")
    title = "Laikago on its toes, dt 1 ms, medians, one thread, float64 (GPU: float32)"
    print_table(title, ("what", "Pullback", "peer", "ratio"), parts, out / "bench_sim.json")
    print(f"picture: {out / 'bench_sim_checkpoints.png'}")


if __name__ == "__main__":
    main()
