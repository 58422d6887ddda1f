"""Today's engines on the same robot and contacts: forward, gradient, memory, and how right the gradient is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bench.benchmark import NOT_MEASURED, Bar, Benchmark, Cell, Options, Row, figure, markdown, spread, time_with_spread
from bench.environments import run_in
from bench.laikagos import JOINTS, peer_urdf, peer_xml
from bench.mujoco_models import MujocoRollout
from bench.peers.engine import WORLDS
from bench.tapes import MB, OURS

STEPS = 100
STANDING = 0.2
"""The square of the last state, mostly height and joint angles, differs by less from ours where the robot stands."""


class Peer(NamedTuple):
    """A program of bench/peers, the environment it needs, its settings, and options of its model."""

    module: str
    environment: str = ""
    settings: Mapping[str, Any] = MappingProxyType({})
    model: Mapping[str, Any] = MappingProxyType({})


NEWTON = {"solver": "Newton", "cone": "pyramidal"}
PEERS = {
    OURS: Peer("pullback_engine"),
    "MuJoCo, PGS": Peer("mujoco_engine"),
    "MuJoCo, PGS, no warm start": Peer("mujoco_engine", "", {"warm_start": False}),
    "MuJoCo, Newton, no warm start": Peer("mujoco_engine", "", {"warm_start": False}, {"solver": "Newton"}),
    "MJX, reverse mode": Peer("mjx_engine", "jax", {}, NEWTON),
    "MJX, one iteration, reverse mode": Peer("mjx_engine", "jax", {"iterations": 1, "ls_iterations": 4}, NEWTON),
    "MJX, forward mode of each step": Peer("mjx_engine", "jax", {"forward_mode": True}, NEWTON),
    "Brax, generalized": Peer("brax_engine", "jax", {"pipeline": "generalized"}, NEWTON),
    "Brax, positional": Peer("brax_engine", "jax", {"pipeline": "positional"}, NEWTON),
    "Brax, spring": Peer("brax_engine", "jax", {"pipeline": "spring"}, NEWTON),
    "Newton, Featherstone": Peer("newton_engine", "newton", {"solver": "SolverFeatherstone"}, NEWTON),
    "Newton, semi-implicit": Peer("newton_engine", "newton", {"solver": "SolverSemiImplicit"}, NEWTON),
    "Nimble": Peer("nimble_engine", "nimble"),
    "Genesis": Peer("genesis_engine", "genesis", {}, NEWTON),
    "MuJoCo Warp, CPU": Peer("mujoco_warp_engine", "newton", {}, NEWTON),
}


def measure(name: str, options: Options) -> Row:
    """Measure one engine, and us beside it, whose gradient is checked in a row of its own."""
    rng = np.random.default_rng(0)
    controls = JOINTS + 0.02 * rng.standard_normal((STEPS, 12))
    found = {}
    for each in dict.fromkeys((name, OURS)):
        module, environment, settings, model = PEERS[each]
        xml = peer_xml(**model)
        settled = MujocoRollout(xml, JOINTS).data
        job = {"xml": xml, "urdf": peer_urdf(), "qpos": settled.qpos, "qvel": settled.qvel, "controls": controls}
        job["settings"] = json.dumps({**settings, "seconds": options.seconds, "checked": each == name})
        found[each] = figures(run_in(environment, module, job, cap=options.cap))
    stands = bool(abs(found[name]["loss"] / found[OURS]["loss"] - 1) < STANDING)
    return {**found[name], "stands": stands, "ours": found[OURS]}


def figures(result: dict[str, np.ndarray]) -> Row:
    """Return times a step [s], memory [MB], error and reason of a result."""
    found = json.loads(str(result["figures"]))
    for name in ("forward", "both", "batch"):
        if name in found:
            found[name] = spread([x / STEPS for x in found[name]])
    if "memory" in found:
        found["memory"] /= MB
    return found


def cells(options: Options) -> dict[str, Cell]:
    """Return a cell for each engine."""
    return {name: partial(measure, name, options) for name in PEERS}


def tables(rows: dict[str, Row]) -> list[str]:
    """Return one line for each engine."""
    body = []
    for name in PEERS:
        row = rows.get(name, NOT_MEASURED)
        if "failed" in row:
            body.append([name, row["failed"], *[""] * 8])
            continue
        gradient = [row["reason"] or "–", "", "", "", ""]
        if "both" in row:
            ratio = row["both"]["median"] / row["ours"]["both"]["median"]
            errors = [f"{row['error']:.0e} ± {row['scatter']:.0e}", "{:.0e} ± {:.0e}".format(*error_of(row))]
            gradient = [time_with_spread(row["both"], 1e6), figure(ratio), *errors, figure(row["memory"])]
        if not row["stands"]:
            name = f"{name}: **the robot does not stand** (loss {row['loss']:.3g}, ours {row['ours']['loss']:.3g})"
        packages = ", ".join(f"{k} {v}" for k, v in row["versions"].items())
        times = [time_with_spread(row[each], 1e6) if each in row else "–" for each in ("forward", "batch")]
        body.append([name, *times, *gradient, f"{row['compiling']:.0f} s", packages])
    headings = [
        "engine",
        "forward [µs]",
        f"a world of {WORLDS} [µs]",
        "forward and gradient [µs]",
        "times ours",
        "gradient's error",
        "by the converged loss",
        "memory [MB]",
    ]
    return markdown([*headings, "compiling", "versions"], body)


def error_of(row: Row) -> tuple[float, float]:
    """Return the error of a gradient by differences of the converged loss where there is one, and those' own error."""
    error, scatter = row.get("converged", (row["error"], row["scatter"]))
    return error, scatter


def bars(rows: dict[str, Row]) -> list[Bar]:
    """Return the bars against engines."""
    found = {name: row for name, row in rows.items() if "both" in row and row["stands"] and name != OURS}
    bars = []
    right = {name: row for name, row in found.items() if row["error"] < 1e-3}
    if right:
        name, row = min(right.items(), key=lambda item: item[1]["both"]["median"] / item[1]["ours"]["both"]["median"])
        ratio = row["both"]["median"] / row["ours"]["both"]["median"]
        what = f"gradient against the fastest engine whose gradient is right to 1e-3, {name}"
        bars.append(Bar(what, "faster", f"{ratio:.0f} times faster", ratio > 1))
    if found and "error" in rows.get(OURS, {}):
        ours, own = error_of(rows[OURS])
        name, row = min(found.items(), key=lambda item: error_of(item[1])[0])
        error, scatter = error_of(row)
        theirs = f"{error:.1e} ± {scatter:.0e}, {name}"
        smallest = ours <= error + own + scatter
        what, bar = "gradient's error", "the smallest, as far as differences can tell"
        known = rows[OURS].get("autodiff")
        apart = "" if known is None else f"; ours against PyTorch's autograd {known:.1e}"
        bars.append(Bar(what, bar, f"{ours:.1e} ± {own:.0e}; {theirs}{apart}", smallest))
    forward = [row for name, row in rows.items() if name.startswith("MuJoCo, ") and "forward" in row]
    if forward:
        row = min(forward, key=lambda row: row["forward"]["median"])
        ratio = row["ours"]["both"]["median"] / row["forward"]["median"]
        what = "forward and backward against MuJoCo's forward alone"
        bars.append(Bar(what, "at most 4 times", f"{ratio:.2f} times", ratio <= 4))
    batches = [row for row in forward if "batch" in row and "batch" in row["ours"]]
    if batches:
        row = min(batches, key=lambda row: row["batch"]["median"])
        ratio = row["ours"]["batch"]["median"] / row["batch"]["median"]
        what = f"a step against MuJoCo's, a world of {WORLDS} on one core"
        bars.append(Bar(what, "at most 0.6 times", f"{ratio:.2f} times", ratio <= 0.6))
    return bars


BENCHMARK = Benchmark(
    "engines",
    "Today's engines",
    "What do engines take for a step and for the gradient of a rollout, and is that gradient right?",
    f"The same Laikago, toes and servos as MJCF, {STEPS} steps of 1 ms from a settled state, float64 where the engine "
    "has it, one core; times a step, the loss and its gradient by all controls. MuJoCo: `mjd_transitionFD` (centred) "
    f"of every step, chained. A batch is {WORLDS} such robots, each with other controls, one after another in MuJoCo "
    "(`mujoco.rollout` on one thread). Memory: growth of the process's peak during the first gradient. Nimble and Brax "
    "settle by themselves first.",
    "Engines differ in contact, so states are not compared; each gradient is compared with central differences of the "
    "engine's own loss along 5 random directions, at up to 1,024 step sizes h in each of ten ranges (as many as 20 s "
    "allow): slope + a h² + b h⁴ + c h⁶ is fitted, the fit of the smallest error taken (the standard error, and what "
    "a term in h⁸ would change), and the worst direction counts, relative to the root mean square of the slopes, ± "
    "that error in the worst direction; an error of its size is the differences'. By the "
    "converged loss, which the bar goes by: the same gradient against differences of the same loss with the solver of "
    "contacts run to rounding, where an engine has settings for that (tolerance 1e-15; ours and MuJoCo up to 1,000 "
    "iterations). Ours is also compared with PyTorch's autograd of the same physics (`bench/peers/laikago_step.py`), "
    "along the same directions. "
    "Where the robot does not stand, the row does not count.",
    cells,
    tables,
)
