"""All ways of solving contact on the same four problems: `make solvers` writes docs/solvers.md and its picture.

For each problem and solver: the motion, the force of contact, how the outcome depends on its cause, the gradient of
that against central differences, and what a step costs.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pullback as pb
from bench.timing import time_in_turns
from checks.solver_problems import DT, F64, PROBLEMS, Problem, Solver

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, PICTURE = DOCS / "solvers.md", DOCS / "images" / "solvers.png"
SOFT = pb.Compliant(stiffness=2e4, damping=0.5, onset=2e-3)
ONSETS = (1e-4, 5e-4, 2e-3)
SOLVERS: dict[str, Solver] = {
    "implicit": pb.PGS(),
    "unrolled": pb.PGS(gradient="unrolled"),
    "pyramid": pb.PGS(friction="pyramid"),
    "exact": pb.Exact(),
    "compliant": SOFT,
}
CALLS = {
    "implicit": "`pb.PGS()`",
    "unrolled": '`pb.PGS(gradient="unrolled")`',
    "pyramid": '`pb.PGS(friction="pyramid")`',
    "exact": "`pb.Exact()`",
    "compliant": "`pb.Compliant(stiffness=2e4, damping=0.5, onset=2e-3)`",
}
WIDTHS = (1e-4, 1e-5, 1e-6, 1e-7)
"""Steps of central differences, as shares of the range of causes; the best of them counts."""


@dataclass
class Found:
    """What one solver makes of one problem."""

    times: np.ndarray
    motion: np.ndarray
    forces: np.ndarray
    causes: np.ndarray
    outcomes: np.ndarray
    slopes: np.ndarray
    slope: float
    difference: float
    unconverged: int
    forward: float = 0.0
    backward: float = 0.0

    @property
    def error(self) -> float:
        """Of the gradient at the chosen cause, relative to the difference quotient."""
        return abs(self.slope - self.difference) / max(abs(self.difference), 1e-3)


def outcomes(problem: Problem, sim: pb.Sim, causes: torch.Tensor) -> torch.Tensor:
    """Return the outcome (B,) of causes (B,)."""
    return problem.followed(problem.run(sim, causes).q[-1])


def examine(problem: Problem, contact: Solver, points: int) -> Found:
    """Run a problem with one solver."""
    sim = problem.world(contact).compile(dt=DT, dtype=F64)
    low, high = problem.causes
    causes = torch.linspace(low, high, points, dtype=F64, requires_grad=True)
    values = outcomes(problem, sim, causes)
    (slopes,) = torch.autograd.grad(values.sum(), causes)
    chosen = torch.tensor([problem.chosen], dtype=F64, requires_grad=True)
    states = problem.run(sim, chosen)
    (slope,) = torch.autograd.grad(problem.followed(states.q[-1]).sum(), chosen)
    widths = (high - low) * torch.tensor(WIDTHS, dtype=F64)
    ends = outcomes(problem, sim, torch.cat([problem.chosen + widths, problem.chosen - widths])).detach()
    quotients = (ends[: len(WIDTHS)] - ends[len(WIDTHS) :]) / (2 * widths)
    best = quotients[(quotients - slope).abs().argmin()]
    return Found(
        times=DT * np.arange(problem.steps + 1),
        motion=problem.followed(states.q[:, 0]).detach().numpy(),
        forces=problem.forces(sim, problem.chosen),
        causes=causes.detach().numpy(),
        outcomes=values.detach().numpy(),
        slopes=slopes.numpy(),
        slope=float(slope),
        difference=float(best),
        unconverged=int(states.status.unconverged),
    )


def add_costs(problem: Problem, found: dict[str, Found], rounds: int) -> None:
    """Measure what a step costs with each solver [s], forward and backward, all of them in turns."""
    functions: dict[tuple[str, str], Any] = {}
    for name in found:
        sim = problem.world(SOLVERS[name]).compile(dt=DT, dtype=F64)
        cause = torch.tensor([problem.chosen], dtype=F64)
        wanted = cause.clone().requires_grad_()
        functions[name, "forward"] = lambda sim=sim, cause=cause: problem.run(sim, cause)
        functions[name, "both"] = lambda sim=sim, wanted=wanted: outcomes(problem, sim, wanted).sum().backward()
    seconds = time_in_turns(functions, rounds=rounds)
    for name, result in found.items():
        result.forward = seconds[name, "forward"] / problem.steps
        result.backward = (seconds[name, "both"] - seconds[name, "forward"]) / problem.steps


def roughness(slopes: np.ndarray) -> float:
    """Return how much a gradient jumps between neighbouring causes, as a share of its size."""
    return float(np.abs(np.diff(slopes, 2)).mean() / np.abs(slopes).mean())


def measure_onsets(points: int = 61) -> dict[float, Found]:
    """Return what compliant contact makes of the drop with sharp and with gradual onsets [m]."""
    return {onset: examine(PROBLEMS[0], replace(SOFT, onset=onset), points) for onset in ONSETS}


def measure(problem: Problem, *, points: int = 61, rounds: int = 8) -> dict[str, Found]:
    """Return what all solvers make of a problem."""
    found = {name: examine(problem, contact, points) for name, contact in SOLVERS.items()}
    add_costs(problem, found, rounds)
    return found


# -- the picture -----------------------------------------------------------------------------------------------------

STYLES: dict[str, dict[str, Any]] = {
    "implicit": {"color": "#4477aa", "linewidth": 5.0, "alpha": 0.35},
    "unrolled": {"color": "#228833", "linewidth": 3.0, "alpha": 0.6},
    "pyramid": {"color": "#ccbb44", "linewidth": 1.6},
    "exact": {"color": "#222222", "linewidth": 1.2, "linestyle": (0, (4, 3))},
    "compliant": {"color": "#ee6677", "linewidth": 1.6},
}


def draw(results: dict[str, dict[str, Found]]) -> Any:
    """Return a figure with a row for each problem: motion, force, outcome and gradient by cause."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 2.75 * len(results) + 0.5), dpi=110, layout="constrained")
    axes = figure.subplots(len(results), 4, squeeze=False)
    problems = {problem.name: problem for problem in PROBLEMS}
    for row, (title, found) in zip(axes, results.items()):
        problem = problems[title]
        for name, result in found.items():
            style = STYLES[name]
            row[0].plot(result.times, result.motion, label=name, **style)
            row[1].plot(result.times[:-1], result.forces, **style)
            row[2].plot(result.causes, result.outcomes, **style)
            row[3].plot(result.causes, result.slopes, **style)
            quotients = np.gradient(result.outcomes, result.causes)[2:-2:4]
            row[3].plot(result.causes[2:-2:4], quotients, ".", color=style["color"], markersize=6, alpha=0.9)
        low, high = np.percentile(np.concatenate([result.slopes for result in found.values()]), (1.5, 98))
        row[3].set_ylim(low - 0.15 * (high - low), high + 0.15 * (high - low))
        for ax in row[2:]:
            ax.axvline(problem.chosen, color="#bbbbbb", linewidth=0.8, zorder=0)
            ax.set_xlabel(problem.cause)
        for ax, label in zip(row, (problem.trace, problem.force, problem.outcome, "gradient, and differences (dots)")):
            ax.set_ylabel(label)
            ax.grid(color="#eeeeee")
            ax.spines[["top", "right"]].set_visible(False)
        for ax in row[:2]:
            ax.set_xlabel("time [s]")
        row[0].set_title(title, loc="left", fontweight="bold")
        if title == "drop":
            row[1].set_yscale("symlog", linthresh=10.0)
            row[1].set_ylim(bottom=-1.0)
            row[0].axhline(0.0, color="#bbbbbb", linewidth=0.8, zorder=0)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


# -- the page --------------------------------------------------------------------------------------------------------

INTRODUCTION = """# Contact solvers, side by side

Written by `make solvers` (`checks/solvers.py`), version {version}; do not edit.

Five ways to solve contact on the same four problems, in float64 with steps of {dt:g} s. In each problem one number,
the cause, sets off a motion and another comes of it, the outcome.

{solvers}

![Motion, force, outcome and gradient of four problems by five solvers](images/solvers.png)

A row is a problem. From left to right: the motion and the force of contact for one cause (the grey line further
right), the outcome over the cause, and its gradient, without its outliers. Dots are differences of the curve beside it,
one grid point to either side. Lines of solvers that agree lie on each other, the widest below.
"""

ONSET_TEXT = """## How smooth is smooth

The law of compliant contact is smooth, and a step of time is not. A ball at 2 m/s moves 2 mm a step: where springs
set in within a tenth of a millimetre, the rebound depends on where in its step the ball met them, and the gradient,
right as it is, jumps from cause to cause. An onset of about the way of a step evens that out. Roughness is the mean
second difference of the gradient over the causes of the figure, as a share of its mean size.

Rigid contact has jumps of its own. Where the ball comes to the ground at the very end of a step, within g dt² of it, it
is stopped there and turned round in the next step, and how fast depends on the gap over dt: one height in about two
hundred, and there the gradient is as large as {largest:.0f}. With `compile(impacts="split")` there are none
([impacts.md](impacts.md)).
"""

CHOOSING = """## Which to choose

- **Start with `pb.PGS()`.** It has the cone of Coulomb's friction, sticks without creeping, is quickest where contacts
  are few, and solves to the end where sweeps are used up. `finish=False` leaves it at the sweeps: quicker in stacks,
  where forces are then approximate, and its gradient is still that of the motion computed.
- **`gradient="unrolled"`** asks nothing of convergence. Where the others converge it costs more on the way back (slide,
  push); where sweeps stop short it saves vain attempts (stack). It is of use as a check, and where sweeps are few on
  purpose.
- **`friction="pyramid"`** bounds each tangent by itself: off its axes friction is too strong, by up to a factor of 1.4.
  It is there for comparison with engines that do so.
- **`pb.Exact()`** is the same with 20 sweeps instead of 50: where contacts are so redundant that more are of no use.
- **`pb.Compliant()`** where the gradient matters more than the last millimetre. Touching and letting go, sticking and
  slipping pass into each other over `onset` and `slip_speed`, and redundant contacts have one solution. The price:
  bodies sink in by load / stiffness and creep at a share of `slip_speed`; a stack on soft springs sways, and its
  gradient with it; bounces are what stiffness, damping and, if it is long, the step make of them.
  `Compliant.time_step(mass)` says which step follows a bounce.

No solver has a gradient for what is out of reach: the push up to 5 cm ([gradient_care.md](gradient_care.md)).

Derivations: [contact_solver.md](derivations/contact_solver.md), [exact_solver.md](derivations/exact_solver.md),
[compliant_contact.md](derivations/compliant_contact.md). Settings: [simulation.md](simulation.md).
"""


def page(results: dict[str, dict[str, Found]], onsets: dict[float, Found]) -> str:
    """Write the results as a page of the docs."""
    solvers = "\n".join(["| name | solver |", "|---|---|", *(f"| {name} | {call} |" for name, call in CALLS.items())])
    lines = [INTRODUCTION.format(version=pb.__version__, dt=DT, solvers=solvers)]
    problems = {problem.name: problem for problem in PROBLEMS}
    rigid = results["drop"]["implicit"]
    for title, found in results.items():
        problem = problems[title]
        lines += [
            f"## {title.capitalize()}",
            "",
            f"{problem.about[0].upper()}{problem.about[1:]}. Cause: {problem.cause}, here {problem.chosen:g}; outcome: "
            f"{problem.outcome} after {problem.steps * DT:g} s.",
            "",
            "| solver | outcome | largest force [N] | last force [N] | gradient | central differences | error "
            "| steps not converged | forward [µs a step] | backward [µs a step] |",
            "|---" * 10 + "|",
        ]
        for name, x in found.items():
            lines.append(
                f"| {name} | {x.motion[-1]:.4f} | {x.forces.max():.4g} | {x.forces[-1]:.4g} | {x.slope:.5f} "
                f"| {x.difference:.5f} | {x.error:.0e} | {x.unconverged} of {len(x.times) - 1} "
                f"| {1e6 * x.forward:.1f} | {1e6 * x.backward:.1f} |"
            )
        lines.append("")
    lines += [
        "Forces are those that the figure shows. Errors are relative to central differences, the best of four widths.",
        "Costs are of one world on one thread, medians of runs in which all solvers took turns; backward is what a",
        "gradient adds, recomputing each step included.",
        "",
        ONSET_TEXT.format(largest=np.abs(rigid.slopes).max()),
        "| onset [mm] | outcome of the drop [m] | deepest [mm] | roughness |",
        "|---|---|---|---|",
        *[
            f"| {1e3 * h:g} | {x.motion[-1]:.4f} | {-1e3 * x.motion.min():.1f} | {roughness(x.slopes):.2f} |"
            for h, x in onsets.items()
        ],
        f"| rigid | {rigid.motion[-1]:.4f} | {-1e3 * rigid.motion.min():.1f} | {roughness(rigid.slopes):.2f} |",
        "",
        CHOOSING,
    ]
    return "\n".join(lines)


def main() -> int:
    """Measure, and write page and picture."""
    torch.set_num_threads(1)
    results = {problem.name: measure(problem) for problem in PROBLEMS}
    PICTURE.parent.mkdir(exist_ok=True)
    draw(results).savefig(PICTURE)
    PAGE.write_text(page(results, measure_onsets()), encoding="utf-8")
    print(f"written: {PAGE.name}, {PICTURE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
