"""Step Jacobians against MuJoCo's `mjd_transitionFD`, in one run: `python -m bench.linearize`.

Laikago stands on its four toe spheres under position servos, as in `bench.sim`; float64, one thread, medians, and all
take turns. Ours is `sim.linearize` from Python over a trajectory, all (T, 36, 36) and (T, 36, 12) matrices returned,
the contact problem of every step solved from zero. MuJoCo's function is called from Python once a step, in its settled
state, its solver warm; centred differences cost it twice the steps of differences to one side, and are what has an
error of second order. For scale: our step itself, and the same matrices row by row through `torch.autograd`.

Option: `--quick` for a fast look.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import pullback as pb
from bench.laikagos import JOINTS, Call, Standing, peer_xml, stand
from bench.mujoco_models import MujocoRollout
from bench.robot import verdict
from bench.timing import time_in_turns

STEPS = 100
CALLS = 10
CHANGE = 1e-6
BAR = 20.0
SOLVERS: dict[str, dict[str, Any]] = {
    "PGS, elliptic": {"solver": "PGS"},
    "PGS, pyramidal": {"solver": "PGS", "cone": "pyramidal"},
    "Newton, elliptic": {"solver": "Newton"},
    "Newton, pyramidal (its defaults)": {"solver": "Newton", "cone": "pyramidal"},
}


def ours(standing: Standing) -> tuple[Call, Call]:
    """Return a linearisation of STEPS steps, and the rollout that it follows."""
    controls = standing.controls(STEPS).detach()
    with torch.no_grad():
        states = standing.sim.rollout(standing.state, controls)

    def roll() -> pb.Trajectory:
        with torch.no_grad():
            return standing.sim.rollout(standing.state, controls)

    return lambda: standing.sim.linearize(states, controls), roll


def row_by_row(standing: Standing) -> Call:
    """Return the Jacobian of one step by coordinates, velocities and controls, a vjp of `sim.step` for each row."""
    q, qd = standing.state.q, standing.state.qd

    def step(q: torch.Tensor, qd: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        end = standing.sim.step(pb.State(q, qd), u)
        return torch.cat((end.q, end.qd), -1)[0]

    return lambda: torch.autograd.functional.jacobian(step, (q, qd, standing.targets))


def peers() -> tuple[dict[tuple[str, bool], Call], dict[str, int]]:
    """Return CALLS calls of MuJoCo's differences for each solver, centred or not, and its numbers of contacts."""
    mujoco: Any = import_module("mujoco")
    functions: dict[tuple[str, bool], Call] = {}
    contacts: dict[str, int] = {}
    for name, options in SOLVERS.items():
        settled = MujocoRollout(peer_xml(**options), JOINTS)
        model, data = settled.model, settled.data
        contacts[name] = settled.contacts
        A, B = np.zeros((2 * model.nv, 2 * model.nv)), np.zeros((2 * model.nv, model.nu))
        for centred in (False, True):

            def call(model: Any = model, data: Any = data, A: Any = A, B: Any = B, centred: bool = centred) -> None:
                for _ in range(CALLS):
                    mujoco.mjd_transitionFD(model, data, CHANGE, centred, A, B, None, None)

            functions[name, centred] = call
    return functions, contacts


def main() -> None:
    """Print the table; write its figures to out/bench_linearize.json."""
    torch.set_num_threads(1)
    rounds = 3 if "--quick" in sys.argv else 20
    standing = stand()
    linearize, roll = ours(standing)
    differences, contacts = peers()
    functions: dict[Any, Call] = {"ours": linearize, "step": roll, "rows": row_by_row(standing), **differences}
    taken = time_in_turns(functions, rounds=rounds)
    mine = 1e6 * taken["ours"] / STEPS
    touching = len(standing.sim.contacts(standing.state, standing.targets)[0])
    table = Table(title="Jacobians of a step, Laikago on its toes, dt 1 ms, medians, one thread, float64")
    for heading in ("what", "us a step", "against sim.linearize"):
        table.add_column(heading)
    table.add_row(f"sim.linearize, {STEPS} steps, {touching} contacts", f"{mine:.1f}", "")
    table.add_row("of it a step of sim.rollout", f"{1e6 * taken['step'] / STEPS:.1f}", "")
    table.add_row(
        "torch.autograd, 37 vjps of sim.step", f"{1e6 * taken['rows']:.0f}", f"{1e6 * taken['rows'] / mine:.0f}x"
    )
    figures = {"sim.linearize [us]": mine, "step [us]": 1e6 * taken["step"] / STEPS, "rows [us]": 1e6 * taken["rows"]}
    for (name, centred), _ in differences.items():
        theirs = 1e6 * taken[name, centred] / CALLS
        how = "centred" if centred else "one-sided"
        what = f"mjd_transitionFD, {how}, {name}, {contacts[name]} contacts"
        table.add_row(what, f"{theirs:.1f}", f"{theirs / mine:.1f}x (bar {BAR:g}x) {verdict(theirs >= BAR * mine)}")
        figures[f"MuJoCo {name}, {how} [us]"] = theirs
    out = Path("out")
    out.mkdir(exist_ok=True)
    (out / "bench_linearize.json").write_text(json.dumps(figures, indent=2))
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
