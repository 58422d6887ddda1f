"""Tables 1 to 3 of Qiao et al. (2021) with today's tools: one Laikago, 50 to 5,000 steps, memory and times.

The physics is the same in all: bench/peers/laikago_step.py for the tools, `sim.rollout` for us. Each cell runs a
competitor and, right after it, us on the same job; ratios are of the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch

from bench.benchmark import (
    NOT_MEASURED,
    Bar,
    Benchmark,
    Cell,
    NoResultError,
    Options,
    Row,
    figure,
    markdown,
    spread,
    time_with_spread,
)
from bench.environments import cache, run_in
from bench.laikago_arrays import laikago_arrays
from bench.laikagos import stand

LENGTHS = (50, 100, 500, 1000, 5000)
SAME = 1e-6
MB = 1e6
OURS = "Pullback"


class Competitor(NamedTuple):
    """A program of bench/peers, the environment it needs, and its settings."""

    module: str
    environment: str = ""
    settings: Mapping[str, Any] = MappingProxyType({})


COMPETITORS = {
    OURS: Competitor("pullback_tape"),
    "Pullback, 50 sweeps one by one": Competitor("pullback_tape", "", {"contact": {"tolerance": 0.0}}),
    "Pullback, √T states": Competitor("pullback_tape", "", {"checkpoint": "sqrt"}),
    "CasADi": Competitor("casadi_tape", "casadi"),
    "CasADi, compiled C": Competitor("casadi_tape", "casadi", {"c": str(cache() / "casadi_c")}),
    "JAX": Competitor("jax_tape", "jax"),
    "JAX, checkpoint": Competitor("jax_tape", "jax", {"checkpoint": True}),
    "torch.compile": Competitor("torch_tape", "", {"compile": True}),
    "PyTorch": Competitor("torch_tape"),
    "PyTorch, checkpoint": Competitor("torch_tape", "", {"checkpoint": True}),
    "PyTorch, tests/reference": Competitor("reference_tape"),
}


def job_of(steps: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the robot, its settled state, and controls that move it a little."""
    standing = stand()
    rng = np.random.default_rng(0)
    controls = standing.targets.numpy() + 0.02 * rng.standard_normal((steps, 12))
    state = {"q": standing.state.q[0].numpy(), "qd": standing.state.qd[0].numpy()}
    settings = {name: round(steps**0.5) if value == "sqrt" else value for name, value in settings.items()}
    return {**laikago_arrays(), **state, "controls": controls, "settings": json.dumps(settings)}


def measure(name: str, steps: int, options: Options) -> Row:
    """Measure one competitor and us; results are compared before times are looked at."""
    torch.set_num_threads(1)
    found = {}
    for each in (name, OURS):
        module, environment, settings = COMPETITORS[each]
        job = job_of(steps, {**settings, "seconds": options.seconds})
        found[each] = run_in(environment, module, job, cap=options.cap)
    ours, theirs = found[OURS], found[name]
    errors = {
        key: float(np.abs(theirs[key] - x).max() / np.abs(x).max()) for key, x in ours.items() if key != "figures"
    }
    worst = max(errors.values())
    if not worst <= SAME:
        raise NoResultError(f"results differ by {worst:.1e} of the largest: {errors}")
    return {"steps": steps, "difference": worst, **figures(theirs, steps), "ours": figures(ours, steps)}


def figures(result: dict[str, np.ndarray], steps: int) -> Row:
    """Return memory [MB], times a step [s] and compile time [s] of a result."""
    found = json.loads(str(result["figures"]))
    both, forward = (spread([x / steps for x in found[name]]) for name in ("both", "forward"))
    return {
        "memory": found["memory"] / MB, "forward": forward, "both": both, "versions": found["versions"],
        "backward": both["median"] - forward["median"], "compiling": found["compiling"],
    }  # fmt: skip


def cells(options: Options) -> dict[str, Cell]:
    """Return a cell for each competitor and number of steps."""
    return {f"{name}/{steps}": partial(measure, name, steps, options) for name in COMPETITORS for steps in LENGTHS}


def tables(rows: dict[str, Row]) -> list[str]:
    """Return memory, forward and backward over the number of steps, and what it all is at 1,000 steps."""
    lines: list[str] = []
    parts = {
        "Peak memory [MB] of a rollout and its gradient": lambda row: figure(row["memory"]),
        "Forward, a step [µs]": lambda row: time_with_spread(row["forward"], 1e6),
        "Backward, a step [µs]: forward and backward less forward": lambda row: figure(1e6 * row["backward"]),
    }
    for title, cell in parts.items():
        body = []
        for name in COMPETITORS:
            found = [rows.get(f"{name}/{steps}", NOT_MEASURED) for steps in LENGTHS]
            body.append([name, *(row.get("failed") or cell(row) for row in found)])
        lines += [f"**{title}**", "", *markdown(["steps", *(f"{n:,}" for n in LENGTHS)], body), ""]
    body = []
    for name in COMPETITORS:
        row = _longest(rows, name)
        if row is not None:
            ours = row["ours"]
            body.append([
                f"{name}, {row['steps']:,} steps", f"{row['compiling']:.1f} s", f"{row['difference']:.0e}",
                figure(row["both"]["median"] / ours["both"]["median"]), figure(row["memory"] / ours["memory"]),
                ", ".join(f"{k} {v}" for k, v in row["versions"].items()),
            ])  # fmt: skip
    headings = ["", "compiling", "differs by", "times our forward and backward", "times our memory", "versions"]
    return lines + markdown(headings, body)


def plot(rows: dict[str, Row], path: str) -> None:
    """Draw memory, and forward and backward time, over the number of steps."""
    from bench.report import axes_of, name_ticks

    figure_, (left, right) = axes_of(2)
    for name in COMPETITORS:
        found = [row for n in LENGTHS if "both" in (row := rows.get(f"{name}/{n}", {}))]
        if not found or "sweeps" in name:
            continue
        steps, style = [row["steps"] for row in found], {"marker": "o", "lw": 2.4 if name == OURS else 1.2}
        left.plot(steps, [row["memory"] for row in found], label=name, **style)
        right.plot(steps, [1e6 * row["both"]["median"] for row in found], label=name, **style)
    left.set_ylabel("peak memory [MB]")
    right.set_ylabel("forward and backward, a step [µs]")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="steps")
        name_ticks(axes, LENGTHS)
        axes.grid(alpha=0.3)
    right.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure_.suptitle("One Laikago on four contacts, gradient of a rollout, one core")
    figure_.savefig(path, dpi=130)


def _longest(rows: dict[str, Row], name: str) -> Row | None:
    """Return the row of a competitor with the most steps up to 1,000, if it has one."""
    return next((rows[f"{name}/{n}"] for n in (1000, 500, 100, 50) if "both" in rows.get(f"{name}/{n}", {})), None)


def bars(rows: dict[str, Row]) -> list[Bar]:
    """Return the bars on memory and time at 1,000 steps, or at the most that a competitor took."""
    measured = {name: _longest(rows, name) for name in COMPETITORS}
    found = {name: row for name, row in measured.items() if row is not None and row["steps"] == 1000}
    bars: list[Bar] = []
    for name in ("PyTorch", "PyTorch, checkpoint", "PyTorch, tests/reference"):
        row = measured[name]
        about = name if row is None or row["steps"] == 1000 else f"{name}, {row['steps']} steps"
        promises = (
            (f"memory against {about}", "at most 1 %"),
            (f"forward and backward against {about}", "100 times faster"),
        )
        if row is not None:
            memory = row["ours"]["memory"] / row["memory"]
            bars.append(Bar(*promises[0], f"{100 * memory:.2g} %", memory <= 0.01))
            times = row["both"]["median"] / row["ours"]["both"]["median"]
            bars.append(Bar(*promises[1], f"{times:.0f} times", times >= 100))
        elif f"{name}/1000" in rows:
            bars += [Bar(*each, rows[f"{name}/1000"]["failed"], None) for each in promises]
    others = {name: row for name, row in found.items() if not name.startswith(("Pullback", "PyTorch"))}
    if others:
        name, row = min(others.items(), key=lambda item: item[1]["both"]["median"])
        times = row["both"]["median"] / row["ours"]["both"]["median"]
        bars.append(
            Bar(f"against the fastest other tool, {name}", "10 times faster", f"{times:.1f} times", times >= 10)
        )
        name, row = min(others.items(), key=lambda item: item[1]["memory"])
        share = row["ours"]["memory"] / row["memory"]
        bars.append(Bar(f"memory against the leanest other tool, {name}", "a tenth", f"{share:.2g}", share <= 0.1))
    return bars


BENCHMARK = Benchmark(
    "tapes",
    "Gradients by autodiff tools (Tables 1 to 3)",
    "What do memory and time of a rollout and its gradient cost, for us and for tools that differentiate by "
    "themselves, when all compute the same physics?",
    "One Laikago on four toes, 18 velocities, dt 1 ms, servos, 50 sweeps of projected Gauss–Seidel, float64; loss: the "
    "square of the last state; gradient in initial state and all controls. Each in a process of its own, on one core. "
    "Memory: growth of the process's peak during the first gradient after compiling. Of ours "
    "at 1,000 steps 0.30 MB are the states that are returned, as much their cotangents, which torch fills with zeros, "
    "and 0.10 MB the gradient by controls; the rest is there with 50 steps too. Ours stops its sweeps where they have "
    "converged (`tolerance`) and differentiates the solution; a row does and differentiates all 50. "
    "Our kernels are kept from before (15 to 27 s the first time).",
    "Last state and gradients agree with ours within 1e-6 of their largest entry, or the cell has no figures.",
    cells,
    tables,
    plot,
    grows=True,
)
