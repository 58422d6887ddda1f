"""Several ranks against one, states on a disk, and ways to share a part: figures of docs/scale.md.

    torchrun --nproc-per-node 2 -m bench.scale rollouts      # or python -m bench.scale rollouts: one rank
    torchrun --nproc-per-node 2 -m bench.scale part
    python -m bench.scale disk --elements 1000000 --steps 60
    torchrun --nproc-per-node 2 -m bench.scale particles     # also wait: what waiting costs
    python -m bench.scale partition

Each prints one line of JSON from rank 0. One thread a rank.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from importlib import import_module
from typing import Any

import numpy as np
import torch

import pullback as pb
import pullback.soft as soft
import pullback.thermal as th
from pullback.core.bisect import bisect
from pullback.core.ranks import ranks
from pullback.learn import SHAC, make
from pullback.tasks import recover_power
from pullback.thermal.growth import birth_steps
from pullback.thermal.mesh import FACES

REPEATS = 3


def timed(work: Any) -> tuple[float, float]:
    """Return the shortest of some times [s], and how much of it was communication."""
    best = (float("inf"), 0.0)
    for _ in range(REPEATS):
        ranks().sum(torch.zeros(1))
        before, begun = ranks().waited, time.perf_counter()
        work()
        best = min(best, (time.perf_counter() - begun, ranks().waited - before))
    return best


def rollouts(options: argparse.Namespace) -> dict[str, Any]:
    """Iterations of SHAC: rollouts of a hopper, their gradient, and the critic."""
    env = make(options.env, options.worlds, seed=0)
    run = SHAC(env, SHAC.Config.of(env, iterations=100))
    run.iterate()
    seconds, waited = timed(run.iterate)
    steps = options.worlds * run.config.horizon
    return {"worlds": options.worlds, "steps_per_second": steps / seconds, "communication": waited / seconds}


def part(options: argparse.Namespace) -> dict[str, Any]:
    """Loss and gradient of the finished hourglass of recover-power as it cools, over some steps."""
    size = options.size
    mesh = th.hourglass(cell=recover_power.CELL[size], layer=recover_power.CELL[size], plate=recover_power.PLATE[size])
    dt = recover_power.DT[size]
    short = th.Process(
        mesh, material=recover_power.MATERIAL, dt=dt, duration=options.steps * dt, convection=50.0, emissivity=0.2,
        dtype=torch.float32,
    )  # fmt: skip
    initial = torch.linspace(300.0, 1500.0, len(mesh.nodes)).requires_grad_()

    def gradient() -> None:
        short.run(initial=initial).final.square().mean().backward()

    gradient()
    seconds, waited = timed(gradient)
    region = short._model.region
    found = {"nodes": len(mesh.nodes), "here": short._model.nodes, "ghosts": getattr(region, "halo", 0)}
    return {**found, "ms_per_step": 1e3 * seconds / short.steps, "communication": waited / seconds}


def disk(options: argparse.Namespace) -> dict[str, Any]:
    """Gradient of a box: all states in memory, and all on a disk."""
    edge = round(options.elements ** (1 / 3))
    mesh = th.box(size=(edge * 1e-3,) * 3, cell=1e-3)
    path = th.Toolpath(*np.array([(0, 0, 0, edge * 1e-3, 0), (9, 0.005, 0, edge * 1e-3, 1)], dtype=float).T)
    process = th.Process(
        mesh, path, material=recover_power.MATERIAL, dt=0.02, duration=0.02 * options.steps,
        source=th.Gaussian(radius=2e-3), convection=10.0, dtype=getattr(torch, options.precision),
    )  # fmt: skip
    power = torch.full((process.steps,), 200.0, requires_grad=True)
    ready = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    checkpoint = {"memory": 1, "disk": pb.OnDisk(), "sqrt": None}[options.keep]
    begun, cpu = time.perf_counter(), time.process_time()
    process.run(power, checkpoint=checkpoint).final.square().mean().backward()
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    width = torch.finfo(process.dtype).bits // 8
    size = {"elements": len(mesh.elements), "steps": process.steps, "state_MB": 1e-6 * width * len(mesh.nodes)}
    times = {"seconds": seconds, "cpu_seconds": cpu}
    return {**size, "keep": options.keep, **times, "ready_GB": ready, "peak_GB": peak}


def particles(options: argparse.Namespace) -> dict[str, Any]:
    """Loss and gradient of a block of jelly that falls and is thrown, its particles shared."""
    spacing = 0.01
    block = soft.block(
        (0.2, 0.2, 0.1), (1.0, 0.6, 0.3), spacing=spacing, name="jelly", material=soft.Elastic(youngs=2e4)
    )
    domain = soft.Domain((0.0, 0.0, 0.0), (1.2, 0.8, 0.8), 2.0 * spacing)
    sim = soft.SoftSim(domain, [block], dt=5e-4, gravity=(0.0, 0.0, -9.81), shared=True)
    state = sim.state()
    v = (state.v + torch.tensor([1.0, 0.0, 0.0])).requires_grad_()

    def gradient() -> None:
        sim.rollout(state.replace(v=v), options.steps).final.x.square().mean().backward()

    gradient()
    seconds, waited = timed(gradient)
    found = {"particles": sim.particles, "ms_per_step": 1e3 * seconds / options.steps}
    return {**found, "communication": waited / seconds}


def wait(options: argparse.Namespace) -> dict[str, Any]:
    """How much a rank computes while it waits for another that sleeps for some time, and how late it notices."""
    together, found = ranks(), {}
    box = torch.zeros(1, dtype=torch.float64)
    for milliseconds in (0.0, 0.1, 1.0, 10.0, 100.0):
        late, cpu, wall = 0.0, 0.0, 0.0
        for _ in range(20):
            together.sum(torch.zeros(1))
            begun, used = time.perf_counter(), time.process_time()
            if together.rank == 1:
                time.sleep(1e-3 * milliseconds)
                box[0] = time.perf_counter()
                together.swap([(0, box)], [])
            else:
                together.swap([], [(1, box)])
                # the clock counts from the start of the machine: the same on both ranks
                late += (time.perf_counter() - float(box)) / 20
            cpu, wall = cpu + time.process_time() - used, wall + time.perf_counter() - begun
        found[f"{milliseconds:g} ms"] = {"late_us": round(1e6 * late, 1), "busy": round(cpu / wall, 2)}
    return found


def partition(options: argparse.Namespace) -> dict[str, Any]:
    """Imbalance over time and ghosts of four ways to share the hourglass."""
    cell, dt = recover_power.CELL[options.size], recover_power.DT[options.size]
    mesh = th.hourglass(cell=cell, layer=cell, plate=recover_power.PLATE[options.size])
    path = th.rings(mesh, speed=recover_power.SPEED, hatch=cell)
    steps = round((path.duration + recover_power.COOLING) / dt)
    born = birth_steps(th.births(mesh, path, unsupported="wait"), dt, steps)
    work = (steps + 1.0) - born
    found = {}
    for parts in (2, 4, 8, 16):
        for name, owner in owners(mesh, work, parts).items():
            alive = np.zeros((parts, steps + 2))
            np.add.at(alive, (owner, born), 1.0)
            alive = alive.cumsum(axis=1)[:, : steps + 1]
            waiting = alive.max(axis=0).sum() / alive.mean(axis=0).sum()
            found[f"{parts} {name}"] = {"imbalance": round(float(waiting), 3), "ghosts": ghosts(mesh, owner, parts)}
    return found


def owners(mesh: th.Mesh, work: np.ndarray, parts: int) -> dict[str, np.ndarray]:
    """Return the part of each element by every method."""
    found = {"columns": bisect(mesh.centers[:, :2], work, parts)}
    for name, dimensions in (("curve in the plane", 2), ("curve in space", 3)):
        order = np.argsort(_hilbert(mesh.centers[:, :dimensions]), kind="stable")
        share = np.cumsum(work[order]) / work.sum()
        owner = np.zeros(len(work), dtype=np.int32)
        owner[order] = np.minimum((share * parts).astype(np.int32), parts - 1)
        found[name] = owner
    pymetis: Any = import_module("pymetis")

    sides: dict[tuple[int, ...], list[int]] = {}
    for face in FACES:
        for element, nodes in enumerate(np.sort(mesh.elements[:, face], axis=1).tolist()):
            sides.setdefault(tuple(nodes), []).append(element)
    neighbours: list[list[int]] = [[] for _ in range(len(mesh.elements))]
    for pair in sides.values():
        if len(pair) == 2:
            neighbours[pair[0]].append(pair[1])
            neighbours[pair[1]].append(pair[0])
    _, owner = pymetis.part_graph(parts, adjacency=neighbours, vweights=work.astype(int).tolist())
    found["METIS"] = np.asarray(owner)
    return found


def ghosts(mesh: th.Mesh, owner: np.ndarray, parts: int) -> int:
    """Return how many copies of nodes there are: of each part the nodes beyond those that are its own."""
    total = sum(len(np.unique(mesh.elements[owner == k])) for k in range(parts))
    return total - len(np.unique(mesh.elements))


def _hilbert(points: np.ndarray, bits: int = 10) -> np.ndarray:
    """Return the place of points (n, d) along Hilbert's curve (Skilling, 2004)."""
    low = points.min(axis=0)
    x = ((points - low) / max(np.ptp(points, axis=0).max(), 1e-30) * (2**bits - 1)).round().astype(np.int64).T.copy()
    d = len(x)
    q = 1 << (bits - 1)
    while q > 1:
        p = q - 1
        for i in range(d):
            flip = (x[i] & q) != 0
            t = np.where(flip, 0, (x[0] ^ x[i]) & p)
            x[0] = np.where(flip, x[0] ^ p, x[0] ^ t)
            x[i] ^= t
        q >>= 1
    for i in range(1, d):
        x[i] ^= x[i - 1]
    t = np.zeros_like(x[0])
    q = 1 << (bits - 1)
    while q > 1:
        t = np.where((x[d - 1] & q) != 0, t ^ (q - 1), t)
        q >>= 1
    x ^= t
    key = np.zeros_like(x[0])
    for b in range(bits - 1, -1, -1):
        for i in range(d):
            key = (key << 1) | ((x[i] >> b) & 1)
    return key


WHAT = {
    "rollouts": rollouts, "part": part, "particles": particles, "disk": disk, "partition": partition, "wait": wait,
}  # fmt: skip


def main() -> None:
    """Run one measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=tuple(WHAT))
    parser.add_argument("--env", default="hopper")
    parser.add_argument("--worlds", type=int, default=256)
    parser.add_argument("--size", default="full")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--elements", type=int, default=100_000)
    parser.add_argument("--keep", choices=("memory", "disk", "sqrt"), default="memory")
    parser.add_argument("--precision", default="float64")
    options = parser.parse_args()
    torch.set_num_threads(1)
    together = pb.start_ranks()
    found = WHAT[options.what](options)
    if together.is_first:
        print(json.dumps({"what": options.what, "ranks": together.count, **found}), flush=True)


if __name__ == "__main__":
    main()
