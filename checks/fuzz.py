"""A fuzz of the simulator: random steps over random worlds, and what must hold in each: `python -m checks.fuzz`.

Then settings and arguments (`checks/fuzz_settings.py`) and files (`checks/fuzz_files.py`), which also run alone.

Options: `--steps` in all, `--settings`, `--calls`, `--files` how many, `--seed` of the first world, `--page` where the
report goes. `--only 93 332` looks at these worlds alone and writes no page. Ctrl-C ends the run early and shows what it
has found; the page is written only at the end.
"""

from __future__ import annotations

import itertools
import time
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn, track

import pullback as pb
from checks import fuzz_files, fuzz_settings
from checks.fuzz_checks import (
    FAR,
    FAST,
    Findings,
    are_same,
    check_again,
    check_distances,
    check_flags,
    check_flight,
    check_gradients,
    check_neighbours,
    check_room,
    contacts_of,
    side_by_side,
)
from checks.fuzz_laws import check_laws
from checks.random_extras import EXTRAS
from checks.random_worlds import RandomWorld, draw
from pullback.rigid.state import CONTACT_OVERFLOW, NAN, NOT_CONVERGED

PAGE = Path(__file__).parent.parent / "docs" / "fuzz.md"
WORLDS = 16
STEPS = 128
TURNED_FAR = 1.0
"""Steps in which a coordinate moves by more [rad, m] are not checked by laws."""


@dataclass
class Options:
    """A fuzz of the simulator."""

    steps: int = 1_000_000
    """Steps in all, counted by world."""
    seed: int = 0
    """Of the first world; the others follow."""
    page: Path | None = PAGE
    """Where the report goes."""
    gradients: int = 4
    """Differentiate one world in so many."""
    only: tuple[int, ...] = ()
    """Seeds to look at instead, all of them differentiated."""
    plain: bool = False
    """Leave out loops, compliant contact and shapes that are not primitive."""
    settings: int = 1500
    """Simulations with settings of all kinds."""
    calls: int = 1500
    """Calls with odd arguments."""
    files: int = 3000
    """Damaged files."""


def examine(
    seed: int,
    findings: Findings,
    *,
    kind: str | None = None,
    steps: int = STEPS,
    gradients: bool = True,
    plain: bool = False,
) -> int:
    """Run the world of a seed and check everything; return how many steps it made."""
    drawn = draw(seed, kind=kind, worlds=WORLDS, steps=steps, plain=plain)
    states = drawn.sim.rollout(drawn.state, drawn.controls, check=False)
    findings.count(f"worlds, {drawn.kind}", drawn.worlds)
    for feature in drawn.extras:
        findings.count(f"worlds with {EXTRAS[feature]}", drawn.worlds)
    findings.count(f"worlds with {type(drawn.world.contact).__name__}", drawn.worlds)
    findings.count(f"worlds in {str(drawn.sim.dtype).removeprefix('torch.')}", drawn.worlds)
    check_flags(drawn, states, findings)
    check_again(drawn, states, findings)
    check_neighbours(drawn, states, findings)
    if drawn.kind == "flight":
        check_flight(drawn, states, findings)
    check_steps(drawn, states, findings)
    if gradients:
        check_gradients(drawn, findings)
    return WORLDS * steps


def check_steps(drawn: RandomWorld, states: pb.Trajectory, findings: Findings) -> None:
    """Take all steps of a rollout once more, side by side, and check each by itself."""
    sim, where = drawn.sim, drawn.describe()
    steps = side_by_side(drawn, states)
    drawn.spread(steps.index)
    again = sim.step(steps.state, steps.u, check=False)
    assert again.status is not None
    findings.check_true("other bits in another batch", are_same(again, steps.after), where)
    code = again.status.code.numpy()
    together = np.zeros(drawn.worlds, dtype=int)
    np.bitwise_or.at(together, steps.index.numpy(), code)
    findings.check("flags of steps and of the rollout differ", together != states.status.code.numpy(), 0.0, where)
    findings.count("steps that did not converge", ((code & NOT_CONVERGED) > 0).sum())
    check_room(drawn, steps, code, findings)
    before, after = (torch.cat([s.q / FAR, s.qd / FAST], 1).abs().amax(1) for s in (steps.state, again))
    # a joint that turns by more than a radian a step: which limit a servo meets is decided before others act on it
    far = (sim.dt * torch.maximum(steps.state.qd.abs(), again.qd.abs()).amax(1) > TURNED_FAR).numpy()
    kept = ((before < 1) & (after < 1)).numpy() & ~far & ((code & (NAN | CONTACT_OVERFLOW)) == 0)
    findings.count("steps too fast to check by laws", (~kept).sum())
    steps, code = steps.chosen(kept), code[kept]
    if not len(steps):
        return
    drawn.spread(steps.index)
    contacts = contacts_of(sim, sim.contacts(steps.state, steps.u))
    findings.count("contacts", len(contacts))
    if sim.substeps == 1:
        findings.count("steps checked by laws", len(steps))
        laws = check_laws(drawn, steps, code, contacts, findings)
        check_distances(drawn, laws.poses, contacts, len(steps), findings)
    drawn.spread(torch.arange(drawn.worlds))


def run(options: Options, console: Console) -> tuple[Findings, int, bool]:
    """Examine worlds until there are enough steps; return what was found, the steps, and whether all were made."""
    findings, done = Findings(), 0
    seeds = iter(options.only or itertools.count(options.seed))
    total = len(options.only) * WORLDS * STEPS or options.steps
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    warnings.simplefilter("ignore")
    with Progress(*columns, console=console) as progress, np.errstate(all="ignore"):
        task = progress.add_task("steps", total=total)
        try:
            while done < total:
                seed = next(seeds)
                try:
                    differentiated = bool(options.only) or seed % options.gradients == 0
                    done += examine(seed, findings, gradients=differentiated, plain=options.plain)
                    findings.check_true("crash", True, "")
                except Exception as error:  # a crash is a finding like any other
                    findings.check_true("crash", False, f"seed {seed}: {type(error).__name__}: {error}")
                    console.print(traceback.format_exc(limit=-4), highlight=False)
                    done += WORLDS * STEPS
                progress.update(task, completed=min(done, total))
        except KeyboardInterrupt:
            console.print("ended early")
            return findings, done, False
    return findings, done, True


# -- the page --------------------------------------------------------------------------------------------------------

INTRODUCTION = """\
{steps:,} steps of {worlds:,} worlds of {seeds:,} kinds, {side} side by side for {long} steps each: random trees of
up to eight links on joints of all types, bodies, walls and planes, thin and overlapping ones and some with centres
and faces that coincide; friction 0 to 1.5, restitution 0 to 0.9, actuators of all kinds, limits, damping, dry
friction, armature, cone and pyramid, warm starts, substeps, float32 and float64, values that differ between worlds
(`checks/random_worlds.py`); one in seventeen each with cylinders, meshes, signed-distance fields and hills, with closed
loops, and with compliant contact (`checks/random_extras.py`). A seed is all that it takes to see one of them again:
`python -m checks.fuzz --only 93`.
"""

CHECKS = """\
Worst figures, relative to the size of what is compared unless a unit stands there; the equations, and why the
bounds are what they are, stand in `checks/fuzz_laws.py`. All steps are taken a second time, each as a world of
another batch, and every world is made and run again from its seed. Laws are checked in the steps of worlds with one
substep that stay below {fast:g} m/s and rad/s; what is faster is about to end, and must say so. A solved step is
one whose solver has converged. M, h and Jacobians come from the robots' own functions in float64, distances from
other formulas than the kernels'; for boxes on boxes only that overlaps are found is checked, for cylinders and meshes
that they are where some point is 1 mm deep, and that none is made up where a direction parts them, for fields nothing.
A bound of 0 allows no case at all.
"""

NOTES = """\
- With any softness, contact, limits and dry friction add no energy beyond restitution and the recovery of
  penetrations: in solved steps, and in the others as well, since a warm start is undone where it added some, and where
  sweeps did, fewer are made: the first only takes energy out.
- Gradients are finite or an error. The sweeps of a step that did not converge may double a gradient each, until it is
  too large for float32: `pb.GradientError` names such worlds, and a tiny part of the same loss has a finite gradient.
- Of the worlds that became not finite, those looked at had links that start wedged in each other or bolted into a
  wall, where correcting the penetration gives speeds beyond what Euler's step can turn ([physics.md](physics.md),
  "What to know"), or were driven by gains that no step can follow. All have their flag, and no neighbour notices.
- Undriven joints gain energy by an error of first order in dt; its bound, K (dt w) (dt w + |change of v| / |v|) and
  what gravity adds, is of the right order and not a theorem, hence the factor in its row.
- Servos at their limits are those whose force at the velocity after the step exceeds them. Without contact there is one
  such set; where friction jams, or the solver does not converge, there may be none, and after 64 solutions those that
  are held stay so. It happens where gains throw a robot against walls.
- Rows with "cfm 0" are of worlds without any softness, whose redundant contacts have no unique forces: of those that
  make up for each other some carry the load.
"""


SETTINGS = """\
`python -m checks.fuzz_settings`: scenes of the kinds that tasks use, a few bodies, arms, a pendulum, a dog, an ant, a
door, under settings drawn from all there are: `PGS`, `Exact` and `Compliant`, cone and pyramid, implicit and unrolled
gradients, warm starts, float32 and float64, dt from 0.5 to 10 ms, substeps, damping, integrators, room for contacts and
batches. Energy is relative to what is in play; schedules are `Every(1)`, `Every(10)` and `Binomial(4)`. Calls with odd
arguments (`checks/fuzz_arguments.py`: NaN, negative and huge numbers, wrong shapes and types, missing devices) must do
what is asked or raise a `PullbackError`, each in a process of its own.
"""

FILES = """\
`python -m checks.fuzz_files`: robots of the installed packages, meshes, G-code, toolpaths, hexahedra and checkpoints,
damaged one to three times: bytes changed, cut off, taken out or repeated, odd numbers and counts, deep nesting, words
swapped, packed; some are pipes, folders, devices or bombs. Each is read in a process of its own.
"""

TABLE = ["| what | checked | worst | bound | |", "|---|---|---|---|---|"]


def section(title: str, text: str, findings: Findings) -> list[str]:
    """Return a section of the page: what there was, what was checked, and what broke a bound."""
    counts = [f"| {name} | {number:,} |" for name, number in sorted(findings.counts.items())]
    lines = [f"## {title}", "", text, "| what there was | |", "|---|---|", *counts, "", *TABLE, *findings.rows()]
    return ["", *lines, "", "What broke a bound:", "", *findings.told()]


def page(findings: Findings, steps: int, options: Options, others: Mapping[str, Findings] | None = None) -> str:
    """Write what was found as a page of the docs; `others` are the findings over settings and files."""
    worlds = steps // STEPS
    command = f"python -m checks.fuzz --steps {options.steps} --seed {options.seed}{' --plain' * options.plain}"
    lines = [
        "# Random worlds",
        "",
        f"Written by `{command}`, version {pb.__version__}; do not edit.",
        "",
        INTRODUCTION.format(steps=steps, worlds=worlds, seeds=worlds // WORLDS, side=WORLDS, long=STEPS),
        "| what there was | |",
        "|---|---|",
        *[f"| {name} | {number:,} |" for name, number in sorted(findings.counts.items())],
        "",
        "## What was checked",
        "",
        CHECKS.format(fast=FAST),
        *TABLE,
        *findings.rows(),
    ]
    lines += ["", "## What to know", "", NOTES, "## What broke a bound", "", *findings.told()]
    for title, text in (("Settings", SETTINGS), ("Files", FILES)):
        if others and title in others:
            lines += section(title, text, others[title])
    return "\n".join(lines) + "\n"


def main(options: Options) -> int:
    """Run, show and write what was found."""
    console = Console()
    torch.set_num_threads(1)
    start = time.perf_counter()
    findings, steps, complete = run(options, console)
    for name, seen in findings.broken.items():
        console.print(f"[red]{name}[/red]: {len(seen)} worlds", *seen[:5], sep="\n  ", highlight=False)
    console.print(f"{steps:,} steps in {time.perf_counter() - start:.0f} s, {len(findings.broken)} laws broken")
    if not complete or options.only:
        return int(bool(findings.broken))
    others = {"Settings": Findings(), "Files": Findings()}
    first, counts = options.seed, {"settings": options.settings, "calls": options.calls, "files": options.files}
    seeds = {name: range(first, first + count) for name, count in counts.items()}
    fuzz_settings.fuzz(track(seeds["settings"], "settings", console=console), others["Settings"])
    fuzz_settings.fuzz_calls(track(seeds["calls"], "calls", console=console), others["Settings"])
    fuzz_files.fuzz(track(seeds["files"], "files", console=console), others["Files"])
    for other in others.values():
        other.show(console)
    if options.page is not None:
        options.page.write_text(page(findings, steps, options, others), encoding="utf-8")
        console.print(f"written: {options.page}")
    return int(any(x.broken for x in (findings, *others.values())))


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Options)))
