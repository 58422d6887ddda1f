"""Gradients of rollouts against central differences, joint type by contact mode: `make conformance` writes the page.

For a loss l and a direction d the derivative d·grad l is compared with (l(x + h d) - l(x - h d)) / 2h for several h;
the best of them counts, since a large h bends and a small one drowns in rounding. All perturbed copies of a case are
worlds of one rollout. Where the two one-sided differences disagree however small h is, the loss has a kink there, and
no derivative to compare with: such directions are counted, not judged.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Literal, get_args

import torch
from rich.console import Console
from rich.progress import track

import pullback as pb
from checks.conformance_bounce import measure_bounces
from checks.conformance_cases import Case, Values, all_cases
from checks.conformance_compliant import compliant_cases

Tensor = torch.Tensor
Table = dict[str, dict[str, float]]

STEPS = (1e-4, 1e-5, 1e-6, 1e-7)
"""Sizes of a perturbation, as fractions of the quantity."""
DIRECTIONS = 3
FLOOR = 1e-3
"""Smaller derivatives, changes of the loss for a change of the quantity by its own size, are not asked for digits."""
Friction = Literal["cone", "pyramid"]
Gradient = Literal["implicit", "unrolled"]
MODES: list[tuple[Friction, Gradient]] = [(f, g) for f in get_args(Friction) for g in get_args(Gradient)]
SWEEPS = 1000
AGREE = 1e-6
"""Between implicit and unrolled gradients,"""
SOFTNESS = 1e-2
"""and what it is more for split steps, times cfm: unrolled ones keep the softness of impacts (decision 0025)."""
SCHEDULES: dict[str, int | pb.Binomial] = {
    "1": 1,
    "2": 2,
    "7": 7,
    "T": 100,
    "Binomial(3)": pb.Binomial(3),
    "Binomial(8)": pb.Binomial(8),
}
SAME = 1e-11
"""Between checkpoint schedules: a step that is computed again, in another kernel, may round differently."""
SINGLE = 1e-2
"""Between float32 and float64, where there is no impact."""
SINGLE_MIDPOINT = 3e-2
"""The same for the midpoint rule, whose velocities are found from differences of momenta: a digit is lost."""
PAGE = Path(__file__).parent.parent / "docs" / "conformance.md"


def solver(case: Case, friction: Friction, gradient: Gradient, dtype: torch.dtype = torch.float64) -> pb.PGS:
    """Return a solver that converges."""
    tolerance = 1e-13 if dtype == torch.float64 else 1e-7
    return pb.PGS(iterations=SWEEPS, tolerance=tolerance, friction=friction, gradient=gradient, cfm=case.cfm)


@dataclass
class Result:
    """What was found for a quantity: the worst relative error, and how many directions were tried and sat on kinks."""

    error: float = 0.0
    directions: int = 0
    kinks: int = 0


@dataclass
class Row:
    """What was found for a case: by quantity, and the largest differences between solver modes and types."""

    case: Case
    results: dict[str, Result] = field(default_factory=dict)
    modes: float = 0.0
    single: float = 0.0
    unconverged: int = 0

    @property
    def error(self) -> float:
        """The worst of all quantities."""
        return max(result.error for result in self.results.values())


# -- running a case --------------------------------------------------------------------------------------------------


def trajectory(case: Case, x: Values, contact: pb.PGS, checkpoint: int | pb.Binomial = 1) -> pb.Trajectory:
    """Run the case with values (b, ...)."""
    dtype = x["q"].dtype
    sim = case.make(x, contact, dtype).compile(dt=case.dt, dtype=dtype, **case.options)
    controls = x["u"].transpose(0, 1) if "u" in x else case.steps
    return sim.rollout(pb.State(x["q"], x["qd"]), controls, checkpoint=checkpoint, check=True)


def loss(states: pb.Trajectory) -> Tensor:
    """Return a sum of the last state's entries (b,) with weights that no symmetry cancels."""
    end = torch.cat([states.q[-1], states.qd[-1]], -1)
    weights = torch.linspace(0.5, 20.0, end.shape[-1], dtype=torch.float64).sin()
    return (end * weights.to(end)).sum(-1)


def gradients(
    case: Case, contact: pb.PGS, dtype: torch.dtype = torch.float64, checkpoint: int | pb.Binomial = 1
) -> Values:
    """Return the gradient of the loss by each quantity."""
    x = {name: value[None].to(dtype).requires_grad_() for name, value in case.values.items()}
    total = loss(trajectory(case, x, contact, checkpoint)).sum()
    found = torch.autograd.grad(total, list(x.values()), allow_unused=True)
    return {n: torch.zeros_like(v[0]) if g is None else g[0] for (n, v), g in zip(x.items(), found)}


def directions(case: Case) -> list[tuple[str, Tensor]]:
    """Return random directions by quantity, of the size of the quantity."""
    generator = torch.Generator().manual_seed(0)
    chosen = []
    for name, value in case.values.items():
        size = float(value.square().mean().sqrt()) or 0.1
        for _ in range(DIRECTIONS if value.numel() > 1 else 1):
            d = torch.randn(value.shape, generator=generator, dtype=torch.float64)
            # inertias stay symmetric, and a number goes up
            d = 0.5 * (d + d.mT) if name == "inertia" else torch.ones_like(d) if value.numel() == 1 else d
            chosen.append((name, size * d))
    return chosen


def perturbed_losses(case: Case, contact: pb.PGS, chosen: list[tuple[str, Tensor]]) -> tuple[Tensor, Tensor, int]:
    """Return the loss (), those of the perturbed copies (direction, step, sign), and substeps without convergence."""
    worlds = 1 + len(chosen) * len(STEPS) * 2
    x = {name: value.expand(worlds, *value.shape).clone() for name, value in case.values.items()}
    moves = [(name, sign * h * d) for name, d in chosen for h in STEPS for sign in (1.0, -1.0)]
    for world, (name, move) in enumerate(moves, start=1):
        x[name][world] += move
    with torch.no_grad():
        states = trajectory(case, x, contact)
        losses = loss(states)
    return losses[0], losses[1:].view(len(chosen), len(STEPS), 2), int(states.status.unconverged[0])


def differentiate(case: Case, contact: pb.PGS, found: Values) -> tuple[dict[str, Result], int]:
    """Compare gradients with central differences."""
    chosen = directions(case)
    base, losses, unconverged = perturbed_losses(case, contact, chosen)
    h = torch.tensor(STEPS, dtype=torch.float64)
    central = (losses[..., 0] - losses[..., 1]) / (2.0 * h)
    forward, backward = (losses[..., 0] - base) / h, (base - losses[..., 1]) / h
    results: dict[str, Result] = {}
    for k, (name, d) in enumerate(chosen):
        ours = float((found[name] * d).sum())
        size = max(abs(ours), FLOOR)
        error = float((central[k] - ours).abs().min()) / size
        # at the two smallest steps that rounding leaves alone
        apart = float((forward[k] - backward[k])[1:3].abs().min()) / size
        result = results.setdefault(name, Result())
        result.directions += 1
        if error > case.bar and apart > case.bar:
            result.kinks += 1
        else:
            result.error = max(result.error, error)
    return results, unconverged


def difference(a: Values, b: Values, case: Case) -> float:
    """Return the largest difference of two gradients, quantity by quantity, relative to the size of the second."""
    worst = 0.0
    for name, value in case.values.items():
        size = float(value.square().mean().sqrt()) or 0.1
        scale = max(float(b[name].norm()), FLOOR / size)
        worst = max(worst, float((a[name].double() - b[name]).norm()) / scale)
    return worst


def check_mode(case: Case) -> None:
    """Make sure that the case is what it is called: at its beginning, middle and end."""
    if not case.holds:
        return
    x = {name: value[None] for name, value in case.values.items()}
    contact = solver(case, "cone", "implicit")
    states = trajectory(case, x, contact)
    sim = case.make(x, contact, torch.float64).compile(dt=case.dt, dtype=torch.float64)
    for t in (0, case.steps // 2, case.steps - 1):
        (contacts,) = sim.contacts(states[t], x["u"][:, t] if "u" in x else None)
        pressed = [c for c in contacts if sum(f * n for f, n in zip(c.force, c.normal)) > 1e-6]
        assert pressed, f"{case.name}: nothing touches at step {t}"
        slips = []
        for c in pressed:
            normal = sum(f * n for f, n in zip(c.force, c.normal))
            tangential = sqrt(max(sum(f * f for f in c.force) - normal**2, 0.0))
            slips.append(tangential > (1.0 - 1e-6) * float(case.values["friction"]) * normal)
        wanted = {"sliding": all(slips), "sticking": not any(slips), "touching": True}[case.holds]
        assert wanted, f"{case.name}: not {case.holds} at step {t}, slipping {slips}"


def modes_of(case: Case) -> list[tuple[Friction, Gradient]]:
    """Return the ways of solving that a case has; compliant contact has one."""
    return MODES[:1] if case.mode.startswith("compliant") else MODES


def measure(case: Case, modes: list[tuple[Friction, Gradient]] = MODES, single: bool = True) -> Row:
    """Compare a case in all solver modes, and in float32 in the first."""
    check_mode(case)
    row = Row(case)
    found: dict[tuple[Friction, Gradient], Values] = {}
    for friction, gradient in modes:
        contact = solver(case, friction, gradient)
        found[friction, gradient] = gradients(case, contact)
        results, unconverged = differentiate(case, contact, found[friction, gradient])
        row.unconverged += unconverged
        for name, result in results.items():
            total = row.results.setdefault(name, Result())
            total.error = max(total.error, result.error)
            total.directions += result.directions
            total.kinks += result.kinks
    for friction in get_args(Friction):
        both = [found[friction, gradient] for gradient in get_args(Gradient) if (friction, gradient) in found]
        row.modes = max(row.modes, difference(both[0], both[-1], case) if both else 0.0)
    if single:
        first = modes[0]
        row.single = difference(gradients(case, solver(case, *first, torch.float32), torch.float32), found[first], case)
    return row


# -- what is not a row of the matrix ---------------------------------------------------------------------------------


def schedule_differences(case: Case) -> dict[str, float]:
    """Return how much each checkpoint schedule's gradient differs from that of keeping every state."""
    contact = pb.PGS()
    expected = gradients(case, contact)
    return {name: difference(gradients(case, contact, checkpoint=s), expected, case) for name, s in SCHEDULES.items()}


DEFAULTS = (
    "chain, sliding",
    "free, sliding: capsule on plane",
    "free, sticking: box on plane",
    "free, sliding: box on plane",
    "free, sliding: box on box",
)
SETTINGS = {
    "implicit": pb.PGS(),
    "sweeps": pb.PGS(finish=False),
    "unrolled": pb.PGS(gradient="unrolled"),
    "pyramid": pb.PGS(friction="pyramid"),
    "tolerance 1e-13": pb.PGS(tolerance=1e-13),
    "cfm 0.2": pb.PGS(cfm=0.2),
}
"""The default, and what one may change of it."""
DEFAULT = 1e-4
KINKED = {("free, sliding: box on box", setting) for setting in ("implicit", "pyramid", "tolerance 1e-13")}
"""Redundant contacts, almost rigid and solved: a kink every 1e-8 m, closer than any difference (decisions/0004)."""


def judged_by(name: str, setting: str) -> float:
    """Return the bar of a case under a setting; none where differences meet kinks."""
    return float("inf") if (name, setting) in KINKED else DEFAULT


def default_errors(case: Case) -> dict[str, float]:
    """Return the worst error by setting, and how many substeps of it had not converged."""
    errors = {}
    for name, contact in SETTINGS.items():
        results, unconverged = differentiate(case, contact, gradients(case, contact))
        # noise looks like a kink where nothing converges, so kinks count
        kinks = sum(result.kinks for result in results.values())
        errors[name] = max(result.error for result in results.values())
        errors |= {f"{name}, unconverged": unconverged, f"{name}, kinks": kinks}
    return errors


# -- the page --------------------------------------------------------------------------------------------------------


def page(rows: list[Row], schedules: Table, defaults: Table, bounces: list[tuple[str, float, float, float]]) -> str:
    """Write the results as a page of the docs."""
    total = sum(r.directions for row in rows for r in row.results.values())
    kinks = sum(r.kinks for row in rows for r in row.results.values())
    lines = [
        "# Conformance of gradients",
        "",
        f"Written by `make conformance` (`checks/conformance.py`), version {pb.__version__}; do not edit.",
        "",
        "Each row is a world that is stepped 30 to 100 times; the loss is a weighted sum of its last state. Its",
        "gradient by each quantity, times random directions, is compared in float64 with central differences of",
        f"several step sizes ({', '.join(f'{h:.0e}' for h in STEPS)} of the quantity), the best of which counts.",
        "Entries are the worst relative error over directions and over the four solver modes: cone and pyramid,",
        f"implicit and unrolled, each with up to {SWEEPS:,} sweeps, until they converge. **Boxes on faces do so only",
        "with a softness `cfm` of 0.2, which they have here; what they do at the usual 1e-6 stands further down.**",
        f"Derivatives below {FLOOR:g}, the change of the loss for a change of the quantity by its own size, count as",
        f"{FLOOR:g}. A blank is a quantity that the world does not have. `limit` is that of servos, the first of which",
        "always wants more than it may; `size below` and `placement below` are those of a static body underneath.",
        "Compliant contact (`pb.Compliant`) has one mode, and a stiffness and damping of its own.",
        "",
        f"**{total:,} derivatives, {kinks} of them on a kink**: there the one-sided differences disagree however small",
        "the step, so there is no derivative to compare with, and they are left out of the errors.",
        "",
        "Bars: 1e-6 without contact, 1e-4 with; implicit against unrolled 1e-6, in split steps a hundredth of `cfm`",
        "more, as unrolled gradients keep the softness of impacts. `explicit`, `rk4` and `midpoint` are integrators.",
        "",
    ]
    first = ["q", "qd", "u", "gravity", "mass", "com", "inertia", "origin", "damping", "armature", "dry friction"]
    second = ["friction", "restitution", "kp", "kd", "limit", "size", "placement", "size below", "placement below"]
    second += ["stiffness", "contact damping"]
    for title, names in (("State, controls and links", first), ("Contact, servos and shapes", second)):
        lines += [
            f"## {title}",
            "",
            "| joints | contact | " + " | ".join(names) + " |",
            "|---" * (2 + len(names)) + "|",
        ]
        for row in rows:
            cells = [_cell(row.results.get(name)) for name in names]
            lines.append(f"| {row.case.joint} | {row.case.mode} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += [
        "## By case",
        "",
        "`float32`: gradient in float32 against that in float64, for information where bodies collide.",
        "",
    ]
    lines += [
        "| joints | contact | steps | worst | bar | on a kink | implicit − unrolled | float32 | |",
        "|---" * 9 + "|",
    ]
    for row in rows:
        on_kink = sum(r.kinks for r in row.results.values())
        of = sum(r.directions for r in row.results.values())
        verdict = "ok" if not failures(row) else "**missed**"
        lines.append(
            f"| {row.case.joint} | {row.case.mode} | {row.case.steps} | {row.error:.0e} | {row.case.bar:.0e} "
            f"| {on_kink} of {of} | {row.modes:.0e} | {row.single:.0e} | {verdict} |"
        )
    lines += ["", "## Checkpoint schedules", "", f"Largest difference from `checkpoint=1`, relative; bar {SAME:g}.", ""]
    lines += ["| world | " + " | ".join(SCHEDULES) + " |", "|---" * (1 + len(SCHEDULES)) + "|"]
    lines += [
        f"| {name} | " + " | ".join(f"{x:.0e}" for x in found.values()) + " |" for name, found in schedules.items()
    ]
    lines += [
        "",
        "## The solver's default settings",
        "",
        "Worst error at the usual softness, with the default settings and with one of them changed; in brackets how",
        "many substeps did not converge, and derivatives on what looks like a kink. Steps that did not converge are",
        "differentiated as the sweeps that were done, others at their solution. Bar: 1e-4.",
        "",
        "| world | " + " | ".join(SETTINGS) + " |",
        "|---" * (1 + len(SETTINGS)) + "|",
        *[
            f"| {name} | " + " | ".join(_default_cell(x, setting) for setting in SETTINGS) + " |"
            for name, x in defaults.items()
        ],
    ]
    lines += ["", "## A bouncing ball", "", "The derivative of the last height by the first.", ""]
    lines += ["| motion | gradient | analytic | difference | |", "|---|---|---|---|---|"]
    for what, found, expected, bar in bounces:
        verdict = "" if bar == float("inf") else "ok" if abs(found - expected) <= bar else "**missed**"
        lines.append(f"| {what} | {found:.5f} | {expected:.5f} | {abs(found - expected):.0e} | {verdict} |")
    return "\n".join(lines) + "\n"


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    error = f"{result.error:.0e}" if result.kinks < result.directions else ""
    return f"{error} ({result.kinks} kinks)".strip() if result.kinks else error


def _default_cell(found: dict[str, float], setting: str) -> str:
    unconverged, kinks = int(found[f"{setting}, unconverged"]), int(found[f"{setting}, kinks"])
    notes = [f"{unconverged} not converged"] * (unconverged > 0) + [f"{kinks} on a kink"] * (kinks > 0)
    return f"{found[setting]:.0e}" + (f" ({', '.join(notes)})" if notes else "")


def failures(row: Row) -> list[str]:
    """Return what a case misses."""
    missed = []
    if row.error > row.case.bar:
        missed.append(f"{row.case.name}: {row.error:.1e} against central differences, bar {row.case.bar:g}")
    agree = AGREE + (SOFTNESS * row.case.cfm if row.case.options.get("impacts") == "split" else 0.0)
    if row.modes > agree:
        missed.append(f"{row.case.name}: implicit and unrolled differ by {row.modes:.1e}, bar {agree:g}")
    single = SINGLE_MIDPOINT if "midpoint" in row.case.mode else SINGLE
    if "impact" not in row.case.mode and row.single > single:
        missed.append(f"{row.case.name}: float32 differs by {row.single:.1e}, bar {single:g}")
    return missed


def main() -> int:
    """Measure, write the page, and say which bars were missed."""
    console = Console()
    cases = [case for case in [*all_cases(), *compliant_cases()] if len(sys.argv) < 2 or sys.argv[1] in case.name]
    rows = [measure(case, modes_of(case)) for case in track(cases, "cases", console=console)]
    by_name = {case.name: case for case in cases}
    names = ("chain, none", "chain, none, rk4", "chain, none, midpoint", "chain, sliding", "revolute, sticking")
    chosen = [name for name in names if name in by_name]
    schedules = {name: schedule_differences(by_name[name]) for name in track(chosen, "schedules", console=console)}
    chosen = [name for name in DEFAULTS if name in by_name]
    defaults = {name: default_errors(by_name[name]) for name in track(chosen, "defaults", console=console)}
    bounces = measure_bounces()
    text = page(rows, schedules, defaults, bounces)
    if len(sys.argv) < 2:
        PAGE.write_text(text)
        console.print(f"written: {PAGE}")
    else:
        print(text)
    missed = [line for row in rows for line in failures(row)]
    missed += [f"{n}: schedule {s} differs by {x:.1e}" for n, f in schedules.items() for s, x in f.items() if x > SAME]
    settings = ((name, s, found[s]) for name, found in defaults.items() for s in SETTINGS)
    missed += [f"{name}, {s}: {x:.1e} with default settings" for name, s, x in settings if x > judged_by(name, s)]
    missed += [f"bounce, {w}: {found:.4f} instead of {x:.4f}" for w, found, x, bar in bounces if abs(found - x) > bar]
    for line in missed:
        console.print(f"missed: {line}")
    console.print(f"{len(rows)} cases, {len(missed)} bars missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
