"""Transplant a walking policy from this simulation into MuJoCo, and train it on there: Table 5 of Qiao et al. (2021).

A policy learns in `ant-walk`, acts in MuJoCo's ant as it is, and is trained on there; beside it one of the same seed
learns in MuJoCo from nothing, with as many actions. Ctrl-C stops; the same with --resume goes on, also from what
figure-5 trained in the same folder with the same options.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pullback.learn import SAC, SACConfig, evaluate, train_seeds
from pullback.learn.sac import TRIAL_SEED
from pullback.tasks.common.learners import StudyOptions, computing, share_actions
from pullback.tasks.common.learning_curves import Curves, draw_curves, spread, write_curves, write_table
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_figure
from pullback.tasks.figure_5 import Options as LearnOptions
from pullback.tasks.figure_5 import checkpoint_file, make_env, search

PUBLISHED = {"from nothing": "868 ± 77", "transplanted": "1735 ± 1066"}


@dataclass
class Options(StudyOptions):
    """What to learn, and for how long."""

    method: str = "ours"
    """How the policy learns in this simulation: ours (MBPO with extra samples), mbpo, sac, sac-extra."""
    seeds: int = 4
    """Seeds, trained side by side."""
    epochs: int = 100
    """Epochs in this simulation."""
    mujoco_epochs: int = 100
    """Epochs in MuJoCo."""
    epoch_steps: int = 1000
    """Actions of an epoch, of each seed."""
    trial_every: int = 1
    """Epochs between two trials."""
    random_steps: int = 5000
    """First actions at random, except of a transplanted policy."""
    updates: int = 20
    """Updates after each action, in this simulation."""
    mujoco_updates: int = 1
    """Updates after each action, in MuJoCo, where SAC learns."""
    model_passes: int = 1000
    """The most passes over the transitions when models are fitted."""
    rollouts: int = 100_000
    """Rollouts of MBPO's models each time they are fitted."""
    radius: float = LearnOptions.radius
    """Of the actions of extra samples; as in the figure-5 that is gone on from."""
    trials: int = 4
    """Episodes of a trial, of each seed."""


QUICK: dict[str, Any] = {
    "method": "sac", "seeds": 2, "epochs": 1, "mujoco_epochs": 1, "epoch_steps": 8, "random_steps": 4, "updates": 1,
    "width": 8, "batch": 8, "trials": 1,
}  # fmt: skip
"""What --quick sets."""


@dataclass
class Found:
    """All that a run found."""

    curves: list[Curves] = field(default_factory=list)
    """In this simulation, and in MuJoCo: transplanted, from nothing."""
    files: list[Path] = field(default_factory=list)


def run(options: Options) -> Found:
    """Learn here, transplant, learn there, print, draw."""
    if options.quick:
        options = replace(options, **QUICK)
    check_at_least(
        options, seeds=1, worlds=1, epochs=1, mujoco_epochs=1, epoch_steps=1, updates=1, mujoco_updates=1, trials=1
    )
    console, found = Console(), Found()
    options.out.mkdir(parents=True, exist_ok=True)
    shared = {name: value for name, value in asdict(options).items() if name in LearnOptions.__dataclass_fields__}
    with computing(options):
        here = search(options.method, options.radius, LearnOptions(**shared))
        file = checkpoint_file(options.out, "ant-walk", options.method)
        train_seeds(here, checkpoint=file, resume=options.resume, label="ant-walk", console=console)
        found.curves.append(Curves.of(here, options.method, "ant-walk"))
        for name, teacher in (("transplanted", here), ("from nothing", None)):
            learner = start_in_mujoco(options, teacher)
            first = evaluate(learner.trial, learner.act, options.seed + TRIAL_SEED)
            before = first.view(options.seeds, -1).mean(1).tolist()
            file = options.out / f"table_5_{name.replace(' ', '_')}.pt"
            train_seeds(learner, checkpoint=file, resume=options.resume, label=f"MuJoCo, {name}", console=console)
            curve = Curves.of(learner, name, "mujoco-ant")
            # before anything was learned in MuJoCo
            curve.steps, curve.returns = [0, *curve.steps], [before, *curve.returns]
            found.curves.append(curve)
            found.files = write_curves(options.out, "table_5", found.curves, asdict(options))
    found.files += report(found, options, console)
    print_files(console, **{path.name: path for path in found.files})
    return found


def start_in_mujoco(options: Options, teacher: SAC | None) -> SAC:
    """Return SAC in MuJoCo, with the networks and temperatures of a run in this simulation, or from nothing."""
    env, trial = (make_env("mujoco-ant", options.seeds * count, options) for count in (options.worlds, options.trials))
    settings: dict[str, Any] = {
        "seeds": options.seeds, "seed": options.seed, "epochs": options.mujoco_epochs,
        "epoch_steps": options.epoch_steps, "trial_every": options.trial_every,
        "random_steps": options.random_steps if teacher is None else 0,
        "first_update": min(1000, options.random_steps), "updates": options.mujoco_updates,
        "hidden": (options.width, options.width), "batch": options.batch, "target_entropy": -0.5 * env.action_size,
        "compiled": options.compiled, "first_weights": options.first_weights,
    }  # fmt: skip
    config = SACConfig(**share_actions(settings, options.worlds))
    run = SAC(env, trial, config, options.device)
    if teacher is not None:
        for name in ("policy", "critics", "targets"):
            getattr(run, name).load_state_dict(getattr(teacher, name).state_dict())
        run.log_temperature.data.copy_(teacher.log_temperature.data)
    return run


def report(found: Found, options: Options, console: Console) -> list[Path]:
    """Print the table, write it, and draw the curves."""
    _, moved, plain = found.curves
    header = ["in MuJoCo", "as it is", "trained on", "mean", "pairs won", "published"]
    rows = []
    for curve in (moved, plain):
        won = f"{int((curve.last > plain.last).sum())} of {len(curve.last)}" if curve is moved else "-"
        first = np.asarray(curve.returns[0])
        row = [curve.method, spread(first, 1), spread(curve.last, 1), f"{curve.last.mean():.1f}", won]
        rows.append([*row, PUBLISHED[curve.method]])
    actions = options.mujoco_epochs * options.epoch_steps
    title = f"Table 5, {options.seeds} seeds, {actions:,} actions in MuJoCo, median (quartiles)"
    table = Table(title=title, title_justify="left")
    for text in header:
        table.add_column(text)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    return [write_table(options.out / "table_5.md", header, rows), draw(found, options.out / "table_5.png")]


def draw(found: Found, path: Path) -> Path:
    """Draw the curves in this simulation and in MuJoCo."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_curves(left, found.curves[:1])
    draw_curves(right, found.curves[1:])
    left.set(title="in this simulation")
    right.set(title="in MuJoCo")
    for axes in (left, right):
        axes.legend(fontsize=8)
    return write_figure(figure, path)
