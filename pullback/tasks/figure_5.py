"""Learn to walk with extra samples from the simulator's Jacobian: Figure 5 of Qiao et al. (2021).

MBPO against MBPO with nine extra samples of each transition ("ours"), the same with the one-row Jacobian of the
released code, SAC with and without them, PPO and SHAC, all from the same number of actions. First it is measured how
far an action can go before a first-order sample is wrong; --radius 0 takes the radius that this suggests. Ctrl-C stops;
the same with --resume goes on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pullback.core.errors import unknown_name
from pullback.learn import (
    MBPO,
    SAC,
    EnsembleConfig,
    Env,
    Extra,
    FirstOrderErrors,
    MBPOConfig,
    SACConfig,
    first_order_errors,
    make,
    train_seeds,
)  # fmt: skip
from pullback.tasks.common.learners import Budget, StudyOptions, computing, share_actions, train_ppo_seeds, train_shac
from pullback.tasks.common.learning_curves import Curves, draw_curves, spread, write_curves, write_table
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_figure

Tensor = torch.Tensor

METHODS = ("mbpo", "ours", "one-row", "sac", "sac-extra", "ppo", "shac")
WALKED = 20
"""Steps of random actions before first-order samples are looked at."""
LOOKED_AT = 64
"""Worlds in which they are."""


@dataclass
class Options(StudyOptions):
    """What to learn, by which methods, and for how long; the defaults are the published ones."""

    env: str = "ant-walk"
    """The environment; hopper is another with contact, for sac and sac-extra."""
    methods: tuple[str, ...] = METHODS
    """mbpo, ours (with extra samples), one-row (as released), sac, sac-extra, ppo, shac."""
    seeds: int = 4
    """Seeds, trained side by side."""
    epochs: int = 100
    """Epochs of learning."""
    epoch_steps: int = 1000
    """Actions of an epoch, of each seed."""
    trial_every: int = 1
    """Epochs between two trials, which take as long as a thousand steps."""
    random_steps: int = 5000
    """First actions at random."""
    updates: int = 20
    """Updates after each action."""
    model_passes: int = 1000
    """The most passes over the transitions when models are fitted."""
    rollouts: int = 100_000
    """Rollouts of MBPO's models each time they are fitted."""
    extra: int = 9
    """Extra samples of a transition."""
    radius: float = 0.01
    """Of their actions; 0: the largest at which three in four first-order samples, of both observation and reward, are
    within a tenth."""
    trials: int = 4
    """Episodes of a trial, of each seed."""


QUICK: dict[str, Any] = {
    "seeds": 2, "epochs": 2, "epoch_steps": 8, "random_steps": 6, "updates": 1, "width": 8, "batch": 8,
    "model_width": 8, "model_passes": 2, "rollouts": 10, "extra": 2, "trials": 1,
}  # fmt: skip
"""What --quick sets."""


@dataclass
class Found:
    """All that a run found."""

    errors: FirstOrderErrors
    radius: float
    """Of the actions of extra samples."""
    curves: list[Curves] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


def run(options: Options) -> Found:
    """Measure first-order samples, learn, print, draw."""
    if options.quick:
        options = replace(options, **QUICK)
    check_at_least(
        options, seeds=1, worlds=1, epochs=1, epoch_steps=1, updates=1, extra=1, radius=0.0, trials=1, rollouts=1
    )
    for name in options.methods:
        if name not in METHODS:
            raise unknown_name("method", name, list(METHODS))
    console = Console()
    options.out.mkdir(parents=True, exist_ok=True)
    name = f"figure_5_{options.env.replace('-', '_')}"
    with computing(options):
        errors = measure(options)
        found = Found(errors, options.radius or errors.radius())
        console.print(
            f"first-order samples: the radius within a tenth is {errors.radius():g}, used is {found.radius:g}"
        )
        for method in options.methods:
            curve = learn(method, found.radius, options, console)
            found.curves.append(curve)
            console.print(f"{method}: {spread(curve.last, 1)}, {curve.seconds:.0f} s")
            # what there is so far, should the rest be interrupted
            found.files = write_curves(options.out, name, found.curves, asdict(options))
    found.files += report(found, options, name, console)
    print_files(console, **{path.name: path for path in found.files})
    return found


def measure(options: Options) -> FirstOrderErrors:
    """Return the errors of first-order samples after some random actions."""
    where = options.env_device or options.device
    env = make(options.env, 4 if options.quick else LOOKED_AT, seed=options.seed, device=where)
    random = torch.Generator(env.device).manual_seed(options.seed)
    with torch.no_grad():
        for _ in range(3 if options.quick else WALKED):
            env.step(_random_actions(env, random))
    return first_order_errors(env, _random_actions(env, random), random)


def _random_actions(env: Any, random: torch.Generator) -> Tensor:
    drawn = torch.rand(env.worlds, env.action_size, dtype=env.dtype, device=env.device, generator=random)
    return 2.0 * drawn - 1.0


def make_env(name: str, worlds: int, options: Any, **given: Any) -> Env:
    """Return an environment; with --quick, of short episodes."""
    env = make(name, worlds, seed=options.seed, **given)
    if options.quick:
        env.episode = 10
    return env


def checkpoint_file(out: Path, env: str, method: str) -> Path:
    """Return the checkpoint of a method in an environment."""
    return out / f"figure_5_{env.replace('-', '_')}_{method}.pt"


# -- learning ----------------------------------------------------------------------------------------------------------


def learn(method: str, radius: float, options: Options, console: Console) -> Curves:
    """Return the curves of a method."""
    file = checkpoint_file(options.out, options.env, method)
    steps, given = options.epochs * options.epoch_steps, {"device": options.env_device or options.device}
    if method in ("shac", "ppo"):
        worlds, horizon = (2, 4) if options.quick else (16, 8 if method == "shac" else 64)
        budget = Budget(options.seeds, options.seed, steps, worlds, horizon, 10 if options.quick else None)
        if method == "ppo":
            return train_ppo_seeds(options.env, given, options.env, budget, file, options.resume)
        return train_shac(options.env, given, options.env, budget, file, options.resume)[0]
    made = search(method, radius, options)
    train_seeds(made, checkpoint=file, resume=options.resume, label=f"{method}, {options.env}", console=console)
    return Curves.of(made, method, options.env)


def search(method: str, radius: float, options: Options) -> SAC:
    """Return SAC or MBPO, with or without extra samples."""
    env, trial = (
        make_env(options.env, options.seeds * count, options, device=options.env_device or options.device)
        for count in (options.worlds, options.trials)
    )
    kinds: dict[str, Literal["all", "one"]] = {"ours": "all", "sac-extra": "all", "one-row": "one"}
    rows = kinds.get(method)
    settings: dict[str, Any] = {
        "seeds": options.seeds, "seed": options.seed, "epochs": options.epochs, "epoch_steps": options.epoch_steps,
        "trial_every": options.trial_every, "random_steps": options.random_steps,
        "first_update": min(1000, options.random_steps), "updates": options.updates,
        "hidden": (options.width, options.width), "batch": options.batch,
        "target_entropy": -0.5 * env.action_size, "extra": rows and Extra(options.extra, radius, rows),
        "compiled": options.compiled, "first_weights": options.first_weights,
    }  # fmt: skip
    if method.startswith("sac"):
        return SAC(env, trial, SACConfig(**share_actions(settings, options.worlds)), options.device)
    ensemble = EnsembleConfig(hidden=(options.model_width,) * 4, most_passes=options.model_passes)
    rollouts = -(-options.rollouts // ensemble.elites) * ensemble.elites
    settings |= {"fit_every": min(250, options.epoch_steps), "fit_growth": options.fit_growth}
    settings = share_actions(settings, options.worlds)
    return MBPO(env, trial, MBPOConfig(ensemble=ensemble, rollouts=rollouts, **settings), options.device)


# -- the report --------------------------------------------------------------------------------------------------------


def report(found: Found, options: Options, name: str, console: Console) -> list[Path]:
    """Print the table, write it, and draw curves and errors."""
    plain = {"ours": "mbpo", "one-row": "mbpo", "sac-extra": "sac"}
    by_name = {curve.method: curve for curve in found.curves}
    header = ["method", "last return", "largest return", "mean", "pairs won", "actions to half of its baseline's last"]
    rows = []
    for curve in found.curves:
        base = by_name.get(plain.get(curve.method, curve.method))
        won, half = "-", "-"
        if base is not None:
            half = f"{curve.steps_to(0.5 * float(np.median(base.last))):g}"
            if base is not curve:
                won = f"{int((curve.last > base.last).sum())} of {len(curve.last)}"
        rows.append([curve.method, spread(curve.last, 1), spread(curve.best, 1), f"{curve.last.mean():.1f}", won, half])
    title = (
        f"{options.env}, {options.epochs * options.epoch_steps:,} actions, {options.seeds} seeds, median (quartiles)"
    )
    table = Table(title=title, title_justify="left")
    for text in header:
        table.add_column(text)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    return [write_table(options.out / f"{name}.md", header, rows), draw(found, options.out / f"{name}.png")]


def draw(found: Found, path: Path) -> Path:
    """Draw the learning curves, and the errors of first-order samples by radius."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_curves(left, found.curves)
    left.set(title="learning")
    left.legend(fontsize=8)
    for label, errors in (("next observation", found.errors.observation), ("reward", found.errors.reward)):
        quartiles = np.percentile(errors.cpu().double().numpy(), [25, 50, 75], axis=1)
        low, middle, high = np.maximum(quartiles, 1e-8)
        (line,) = right.loglog(found.errors.radii, middle, marker="o", label=label)
        right.fill_between(found.errors.radii, low, high, color=line.get_color(), alpha=0.2)
    right.axhline(0.1, color="black", linestyle="--", linewidth=1)
    right.axvline(found.radius, color="tab:red", linestyle=":", label="radius used")
    right.set(xlabel="radius of Δa", ylabel="error / change", title="first-order samples against real steps")
    right.legend(fontsize=8)
    return write_figure(figure, path)
