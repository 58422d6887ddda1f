"""What steps that are split at touches cost: `python -m bench.impacts` compares `impacts="split"` with `"step"`.

A Laikago that stands, one that trots on the spot at 1 ms, and a step in which one toe lands beside the step before it.
Float64, one thread. Every turn is a process of its own, in which all take turns: where code and arrays come to lie in
memory makes the same kernel up to 4 % faster or slower. Ratios are of the best calls of all turns, and of their
medians.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import get_args

import torch
from rich.console import Console
from rich.table import Table

import pullback as pb
from bench.laikagos import JOINTS, Call, Standing, forward_and_backward, stand
from bench.mujoco_models import TIME_STEP
from pullback.rigid.world.integrators import Impacts

ROOT = Path(__file__).parent.parent
TURNS = 10
ROUNDS = 8
STEPS = 300
WORLDS = 128
RATE = 2.5
"""Strides a second of the trot."""
LIFT = torch.tensor((0.0, 0.35, -0.7), dtype=torch.float64)
"""How far abduction, hip and knee of a leg are bent in the middle of its swing [rad]."""
PHASES = torch.tensor((1.0, -1.0, -1.0, 1.0), dtype=torch.float64)
"""Of the legs: diagonal pairs swing together."""
WAYS = ("forward", "backward")
BARS = {"standing": 1.03, "trot": 1.05, "touch-down": 2.2}

Tensor = torch.Tensor
Times = dict[str, list[float]]


def trot(steps: int) -> Tensor:
    """Return servo targets (steps, 1, 12) of a trot on the spot."""
    phase = torch.arange(steps, dtype=torch.float64)[:, None] * (2.0 * torch.pi * RATE * TIME_STEP)
    swing = torch.clamp(torch.sin(phase) * PHASES, min=0.0)
    return (torch.from_numpy(JOINTS).reshape(4, 3) + swing[:, :, None] * LIFT).reshape(steps, 1, 12)


def landing(standing: Standing, controls: Tensor) -> int:
    """Return a step of a rollout in which one toe comes down fast, and nothing does in the step before it."""
    sim = standing.sim
    states = sim.rollout(standing.state, controls)
    for t in range(len(controls) // 2, len(controls)):
        gaps = [{c.shapes: float(c.gap) for c in sim.contacts(states[k])[0]} for k in (t - 1, t, t + 1)]
        down = [pair for pair, gap in gaps[2].items() if gap < 1e-5 < gaps[1].get(pair, 1.0)]
        early = [pair for pair, gap in gaps[1].items() if gap < 1e-5 < gaps[0].get(pair, 1.0)]
        if len(down) == 1 and not early and gaps[0].get(down[0], 1.0) > gaps[1].get(down[0], 0.0) + 1e-4:
            return t
    raise RuntimeError("no toe lands in this trot; raise LIFT or the number of steps")


def one_step(standing: Standing, state: pb.State, control: Tensor) -> tuple[Call, Call]:
    """Return one step of many copies of a state, recording, and its backward pass."""
    many = pb.State(state.q.repeat(WORLDS, 1), state.qd.repeat(WORLDS, 1))
    at_rest = Standing(standing.sim, many, control)
    return forward_and_backward(at_rest, 1)


def calls(turn: int) -> dict[str, Call]:
    """Return what is timed, by name; what comes first differs from turn to turn."""
    found: dict[str, Call] = {}
    modes: tuple[Impacts, ...] = get_args(Impacts)
    for impacts in modes[:: -1 if turn % 2 else 1]:
        standing = stand(impacts=impacts)
        targets = trot(2 * STEPS)
        pairs = {
            "standing": forward_and_backward(standing, STEPS),
            "trot": forward_and_backward(standing, 2 * STEPS, controls=targets),
        }
        if impacts == "split":
            t = landing(standing, targets)
            states = standing.sim.rollout(standing.state, targets)
            pairs["touch-down"] = one_step(standing, states[t], targets[t])
            pairs["before it"] = one_step(standing, states[t - 1], targets[t - 1])
        for name, both in pairs.items():
            found |= {f"{name}, {impacts}, {way}": call for way, call in zip(WAYS, both)}
    return found


def measure(turn: int) -> Times:
    """Return the times [s] of all calls in this process."""
    torch.set_num_threads(1)
    functions = calls(turn)
    times: Times = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            function()
            for _ in range(3):
                before = time.perf_counter()
                function()
                times[name].append(time.perf_counter() - before)
    return times


def main() -> int:
    """Measure in turns, show ratios, and return 1 if one exceeds its bar."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    turns: list[Times] = []
    for turn in range(TURNS):
        command = [sys.executable, "-m", "bench.impacts", "--turn", str(turn)]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        turns.append(json.loads(done.stdout.splitlines()[-1]))
    table = Table("split / step", "best calls", "medians of turns", "bar")
    missed = False
    for name, bar in BARS.items():
        base = "before it, split" if name == "touch-down" else f"{name}, step"
        for way in WAYS:
            above, below = ([t[f"{x}, {way}"] for t in turns] for x in (f"{name}, split", base))
            best = min(map(min, above)) / min(map(min, below))
            middle = median(min(x) / min(y) for x, y in zip(above, below))
            missed |= min(best, middle) > bar
            table.add_row(f"{name}, {way}", f"{best:.3f}", f"{middle:.3f}", f"{bar}")
    Console().print(table)
    return int(missed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--turn"]:
        print(json.dumps(measure(int(sys.argv[2]))))
    else:
        sys.exit(main())
