"""Two threads against one, on a machine as it is and beside a busy neighbour: part of `checks/reliability.py`.

Each measurement is a process of its own, as a user would start one, for a pool of threads stays once it is there:
`python -m checks.reliability_threads loop 2` prints how often in a second the work was done.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import pullback as pb
from checks.reliability_figures import SMALL, Part

ROOT = Path(__file__).parent.parent
WORK = {
    "loop": "closed loop, 64 ants and a policy, forward and backward",
    "rollout": "rollout, 64 Laikagos, forward and backward",
    "heat": "heat in a part, forward and backward",
}
IDLE_BAR = 1.6
"""Times the speed of one thread that two have on an idle machine."""
SPIN = "import time\nend = time.time() + 600\nwhile time.time() < end: pass"


def closed_loop() -> Callable[[], object]:
    """Return ten steps of 64 ants under a policy, and the gradient by its weights."""
    ant = pb.load("ant", dtype=torch.float32)
    world = pb.World()
    world.add(ant, name="ant", position=(0.0, 0.0, 0.75))
    world.add_ground()
    sim = world.compile(dt=0.02, dtype=torch.float32, substeps=4)
    layers = torch.nn.Linear(sim.nq + sim.nv, 64), torch.nn.Tanh(), torch.nn.Linear(64, sim.nu)
    policy = torch.nn.Sequential(*layers)
    start = sim.initial_state(64)

    def work() -> None:
        state = start
        for _ in range(10):
            state = sim.step(state, policy(torch.cat([state.q, state.qd], 1)))
        state.q.square().sum().backward()

    return work


def rollout() -> Callable[[], object]:
    """Return a rollout of 64 Laikagos and its gradient."""
    from bench.laikagos import stand

    standing = stand(worlds=64)
    controls = standing.controls(20)
    return lambda: standing.sim.rollout(standing.state, controls).q[-1].square().sum().backward()


def heat() -> Callable[[], object]:
    """Return twenty steps of heat in a part of 27,000 elements, and the gradient by the initial temperatures."""
    from pullback import thermal

    mesh = thermal.box((0.03, 0.03, 0.03), 1e-3)
    material = thermal.constant_material(10.0, 500.0, 8000.0)
    process = thermal.Process(mesh, material=material, dt=0.05, duration=1.0, convection=50.0, dtype=torch.float32)
    start = torch.linspace(300.0, 1000.0, len(mesh.nodes)).requires_grad_()
    return lambda: torch.autograd.grad(process.run(initial=start).final.square().mean(), start)


def measure_here(name: str, threads: int, seconds: float) -> float:
    """Return how often in a second the work is done with so many threads."""
    # torch's own threads would keep cores busy while they wait: one, as set_num_threads advises
    torch.set_num_threads(1)
    pb.set_num_threads(threads)
    work = {"loop": closed_loop, "rollout": rollout, "heat": heat}[name]()
    work()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1 / statistics.median(times)


def speed(name: str, threads: int, seconds: float) -> float:
    """Return the same, measured in a process of its own."""
    command = [sys.executable, "-m", "checks.reliability_threads", name, str(threads), str(seconds)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    if ran.returncode:
        raise RuntimeError(f"{name} with {threads} threads: {ran.stderr[-400:]}")
    return float(ran.stdout.split()[-1])


def measure_threads(*, every: int, progress: Any) -> Part:
    """Compare two threads with one, in turns; the machine's load is given with the figures."""
    part, (rounds, seconds) = Part(), (3, 4.0) if every < SMALL else (1, 0.5)
    part.notes.append(f"threads: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the measurement")
    for busy in (False, True):
        neighbour = subprocess.Popen([sys.executable, "-c", SPIN]) if busy else None
        try:
            for name, title in progress(list(WORK.items()), "threads, busy" if busy else "threads"):
                ratios = [speed(name, 2, seconds) / speed(name, 1, seconds) for _ in range(rounds)]
                ratio = statistics.median(ratios)
                bar = 1.0 if busy else IDLE_BAR
                where = "beside a busy neighbour" if busy else "nothing else started"
                part.add(f"two threads against one, {where}: {title}", f"{bar:g} ×", f"{ratio:.2f} ×", ratio >= bar)
        finally:
            if neighbour is not None:
                neighbour.kill()
                neighbour.wait()
    return part


if __name__ == "__main__":
    print(measure_here(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
