"""Learn to swing up pendulums of n links, with and without the simulator's Jacobian: Table 4 of Qiao et al. (2021).

Policy enhancement ("ours"), MBPO, SAC and SHAC learn the same task from the same number of actions, all seeds of a
method side by side; iLQR, which plans, stands beside them. "released" is the task as published, one substep of 1/60 s;
"audited" has eight, and for both the energy that the time integration adds is reported. Ctrl-C stops; the same with
--resume goes on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pullback.core.errors import PullbackError, unknown_name
from pullback.learn import MBPO, SAC, EnsembleConfig, Env, MBPOConfig, SACConfig, make, train_seeds
from pullback.learn.envs.swing_up import SUBSTEPS
from pullback.learn.evaluate import Act
from pullback.rigid.state import State
from pullback.tasks.common.learners import Budget, StudyOptions, computing, share_actions, train_shac
from pullback.tasks.common.learning_curves import Curves, draw_curves, spread, write_curves, write_table
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_figure
from pullback.tasks.common.swing_systems import audit, pendulum
from pullback.tasks.swing_up import solve

Tensor = torch.Tensor

METHODS = ("ours", "ours-weighted", "mbpo", "sac", "shac", "ilqr")
VARIANTS = ("released", "audited")
PUBLISHED = {
    "ours": "0.49 ± 0.01, 1.93 ± 0.08, 4.28 ± 0.25, 7.81 ± 0.19, 12.31 ± 0.16, 17.78 ± 0.24, 24.34 ± 0.11",
    "mbpo": "0.49 ± 0.01, 1.90 ± 0.02, 4.28 ± 0.22, 7.50 ± 0.57, 11.13 ± 0.99, 15.02 ± 1.45, 19.97 ± 2.33",
}
"""Largest return, mean and standard deviation of ten seeds, by links."""
ACTORS = {"ours": "simulation", "ours-weighted": "weighted", "sac": "critic"}
TORQUE = 10.0
SHAC_WORLDS, SHAC_HORIZON = 4, 25


@dataclass
class Options(StudyOptions):
    """What to learn, by which methods, and for how long; the defaults are the published ones."""

    links: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)
    """Numbers of links."""
    methods: tuple[str, ...] = METHODS
    """ours (policy enhancement), ours-weighted (with the weight of Eq. 16), mbpo, sac, shac, ilqr."""
    variants: tuple[str, ...] = VARIANTS
    """released (one substep, as published), audited (eight)."""
    seeds: int = 10
    """Seeds, trained side by side."""
    steps: int = 10_000
    """Actions for each link, of each seed."""
    updates: int = 5
    """Updates after each action."""
    temperature: float = 1.0
    """What the entropy weighs at the start; 1 is the released one (not of SHAC)."""
    rollouts: int = 10_000
    """Rollouts of MBPO's models each time they are fitted."""


QUICK: dict[str, Any] = {
    "links": (1,), "variants": ("released",), "seeds": 2, "steps": 200, "updates": 1, "width": 16, "batch": 16,
    "model_width": 8, "rollouts": 50,
}  # fmt: skip
"""What --quick sets."""
EPOCH = 100
"""Actions of an epoch: an episode."""


@dataclass
class Found:
    """All that a run found."""

    curves: list[Curves] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


def run(options: Options) -> Found:
    """Learn, audit, print, draw."""
    if options.quick:
        options = replace(options, **QUICK)
    check_at_least(options, links=1, seeds=1, worlds=1, steps=EPOCH, updates=1, width=1, batch=1, rollouts=1)
    for given, known, what in ((options.methods, METHODS, "method"), (options.variants, VARIANTS, "variant")):
        for name in given:
            if name not in known:
                raise unknown_name(what, name, list(known))
    if options.steps % EPOCH:
        raise PullbackError(f"steps is {options.steps}; give a multiple of {EPOCH}, the length of an episode")
    console, found = Console(), Found()
    options.out.mkdir(parents=True, exist_ok=True)
    with computing(options):
        for links in options.links:
            for variant in options.variants:
                for method in options.methods:
                    curve = learn(method, links, variant, options, console)
                    found.curves.append(curve)
                    console.print(f"{curve.case}, {method}: {spread(curve.best, 3)}, {curve.seconds:.0f} s")
                    # what there is so far, should the rest be interrupted
                    found.files = write_curves(options.out, "table_4", found.curves, asdict(options))
    found.files += report(found, options, console)
    print_files(console, **{path.name: path for path in found.files})
    return found


# -- learning ----------------------------------------------------------------------------------------------------------


def learn(method: str, links: int, variant: str, options: Options, console: Console) -> Curves:
    """Return the curves of a method, with the audit of what it learned in the end."""
    case = f"{links} link{'s' if links > 1 else ''}, {variant}"
    if method == "ilqr":
        return plan(links, variant, options, case)
    file = options.out / f"table_4_{method}_{links}_{variant}.pt"
    given = {"links": links, "variant": variant, "device": options.env_device or options.device}
    if method == "shac":
        budget = Budget(options.seeds, options.seed, links * options.steps, SHAC_WORLDS, SHAC_HORIZON)
        curve, policies = train_shac("swing-up", given, case, budget, file, options.resume)
        audits = [audit_policy(make("swing-up", 1, **given), policy, links) for policy in policies]
        curve.notes |= {name: [one[name][0] for one in audits] for name in audits[0]}
        return curve
    env, trial = (make("swing-up", options.seeds * count, seed=options.seed, **given) for count in (options.worlds, 1))
    made = search(env, trial, method, options, links)
    train_seeds(made, checkpoint=file, resume=options.resume, label=f"{method}, {case}", console=console)
    curve = Curves.of(made, method, case)
    curve.notes |= audit_policy(trial, made.act, links)
    return curve


def search(env: Env, trial: Env, method: str, options: Options, links: int) -> SAC:
    """Return SAC, with or without policy enhancement, or MBPO."""
    settings: dict[str, Any] = {
        "seeds": options.seeds, "seed": options.seed, "epochs": links * options.steps // EPOCH, "epoch_steps": EPOCH,
        "random_steps": min(500, options.steps // 3), "first_update": min(1000, options.steps // 3),
        "updates": options.updates, "batch": options.batch, "temperature": options.temperature,
        "hidden": (options.width, options.width), "discount": 1.0, "target_entropy": -0.01,
        "compiled": options.compiled, "first_weights": options.first_weights,
    }  # fmt: skip
    if method != "mbpo":
        settings = share_actions(settings, options.worlds)
        actor: Any = ACTORS[method]
        return SAC(env, trial, SACConfig(actor=actor, **settings), options.device)
    ensemble = EnsembleConfig(hidden=(options.model_width,) * 4, most_passes=3 if options.quick else 100)
    rollouts = -(-options.rollouts // ensemble.elites) * ensemble.elites
    settings = share_actions({**settings, "fit_every": 250, "fit_growth": options.fit_growth}, options.worlds)
    config = MBPOConfig(ensemble=ensemble, rollouts=rollouts, lengths=(20, 100, 1, 5), **settings)
    return MBPO(env, trial, config, options.device)


def plan(links: int, variant: str, options: Options, case: str) -> Curves:
    """Return what iLQR reaches, from 16 random first controls."""
    system = pendulum(links)
    starts, iterations = (2, 5) if options.quick else (16, 150)
    sim = system.compile(SUBSTEPS[variant], options.device)
    swing = solve(system, sim, starts, iterations, options.seed)
    energy = {
        "gained": [swing.ends(swing.energy.gained)], "work": [swing.ends(swing.energy.work)],
        "numerical": [swing.ends(swing.energy.numerical)],
    }  # fmt: skip
    steps = swing.iterations * system.steps * starts
    return Curves("ilqr", case, [steps], [[swing.total]], swing.seconds, energy)


@torch.no_grad()
def audit_policy(trial: Env, act: Act, links: int) -> dict[str, list[float | None]]:
    """Return the final return of each world, the energy [J] gained, the motors' work, and what integration added.

    None for worlds that became not finite, as those of seven links may in large steps.
    """
    observation = trial.reset()
    start, actions = trial.state, []
    for _ in range(trial.episode):
        actions.append(act(observation).clamp(-1.0, 1.0))
        observation = trial.step(actions[-1]).observation
    controls = torch.stack(actions)
    states = trial.sim.rollout(State(start.q, start.qd, start.impulses), controls)
    finite = (states.q.isfinite() & states.qd.isfinite()).all(2).all(0)
    # what is audited of the others is not reported
    q, qd = (torch.where(finite[:, None], x, first) for x, first in ((states.q, start.q), (states.qd, start.qd)))
    states = replace(states, q=q, qd=qd)
    energy = audit(trial.sim, states, TORQUE * controls)
    returns = pendulum(links).returns(states.q.double())
    parts = {"final_return": returns, "gained": energy.gained[-1], "work": energy.work[-1]}
    parts["numerical"] = energy.numerical[-1]
    return {name: [x if good else None for x, good in zip(values.tolist(), finite)] for name, values in parts.items()}


# -- the report --------------------------------------------------------------------------------------------------------


def report(found: Found, options: Options, console: Console) -> list[Path]:
    """Print the table, write it, and draw the curves."""
    header = [
        "links",
        "variant",
        "method",
        "largest return",
        "last return",
        "numerical energy [J]",
        "published",
        "most",
    ]
    rows = []
    for curve in found.curves:
        links, variant = curve.case.split(" ")[0], curve.case.split(", ")[1]
        known = PUBLISHED.get(curve.method, "").split(", ")
        shown = known[int(links) - 1] if int(links) <= len(known) > 1 and variant == "released" else "-"
        energies = np.asarray(curve.notes["numerical"], dtype=float)
        finite = energies[np.isfinite(energies)]
        numerical = spread(finite, 1) if len(finite) else "not finite"
        row = [links, variant, curve.method, spread(curve.best, 3), spread(curve.last, 3), numerical, shown]
        rows.append([*row, f"{0.5 * int(links) ** 2:g}"])
    seeds = f"{options.seeds} seed{'s' if options.seeds > 1 else ''}"
    table = Table(title=f"Table 4, {seeds}, median (quartiles)", title_justify="left")
    for name in header:
        table.add_column(name)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    return [write_table(options.out / "table_4.md", header, rows), draw(found, options.out / "table_4.png")]


def draw(found: Found, path: Path) -> Path:
    """Draw the curves, a panel for each number of links and variant; dashed: the median of the largest so far."""
    from matplotlib.figure import Figure

    cases = list(dict.fromkeys(curve.case for curve in found.curves))
    columns = min(4, len(cases))
    rows = -(-len(cases) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for axes, case in zip(panels, cases):
        own = [curve for curve in found.curves if curve.case == case]
        learned = [curve for curve in own if curve.method != "ilqr"]
        draw_curves(axes, learned)
        for curve, line in zip(learned, axes.get_lines()):
            largest = np.maximum.accumulate(np.asarray(curve.returns, dtype=float), 0)
            axes.plot(curve.steps, np.median(largest, 1), color=line.get_color(), linestyle="--", linewidth=1)
        for curve in own:
            if curve.method == "ilqr":
                axes.axhline(curve.last[0], color="black", linestyle=":", linewidth=1, label="ilqr")
        axes.set(title=case)
        axes.legend(fontsize=8)
    for axes in panels[len(cases) :]:
        axes.axis("off")
    return write_figure(figure, path)
