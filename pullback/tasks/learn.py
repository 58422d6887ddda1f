"""Train a policy through the simulation's gradient by SHAC, AHAC or SAPO, save it, and show it.

The environments are those of `pullback.learn`: cart-pole, pendulum, hopper, half-cheetah, ant and others. Settings are
the published ones where an environment has them. Ctrl-C ends training after the current iteration; the same with
--resume goes on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from pullback.core.errors import PullbackError
from pullback.core.search_loop import SearchLoop
from pullback.learn import Env, ShortHorizon, evaluate, export_onnx, find_algorithm, make, play, save_policy, train
from pullback.learn.short_horizon import RECENT
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_arrays, write_figure, write_replay
from pullback.tasks.common.threads import simulation_threads

Tensor = torch.Tensor

TEST_SEED = 1_000_003
"""Added to the seed for the starts that the trained policy is tried on."""


@dataclass
class Options:
    """What to learn, and for how long."""

    env: str = "cart-pole"
    """The environment, as `pullback.learn.env_names()` lists them."""
    algorithm: str = "shac"
    """shac, ahac (its horizon adapts itself) or sapo (with entropy)."""
    worlds: int = 64
    """Worlds that are simulated side by side."""
    iterations: int | None = None
    """Iterations; by default as many as published for the environment."""
    horizon: int | None = None
    """Steps that gradients pass through in an iteration, the first one of AHAC; by default what suits both."""
    critic: bool = True
    """--no-critic: back-propagation through time alone, over the horizon."""
    links: int | None = None
    """Links of the pendulum."""
    ppo: float = 0.0
    """Steps for PPO of rsl_rl in the same environment, as a multiple of ours; 0 leaves it out."""
    resume: bool = False
    """Go on from the checkpoint in the output folder."""
    log: Path | None = None
    """Folder for TensorBoard's files; by default none are written."""
    onnx: bool = False
    """Also write the policy as an ONNX file."""
    replay: bool = True
    """Also write a replay of one episode."""
    seed: int = 0
    """Seed of starts, networks and noise."""
    out: Path = Path("out")
    """Folder for checkpoint, policy, curves and replay."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Baseline:
    """What PPO found in the same environment."""

    history: list[Any]
    """Its reports (`learn/rsl_ppo.py`)."""
    after: float
    """Mean return of its policy, on the starts that ours is tried on."""


@dataclass
class Learned:
    """What a run found."""

    run: ShortHorizon
    before: float
    """Mean return of the policy it began with, on starts that it is not trained on."""
    after: float
    """That of the policy it ended with."""
    ppo: Baseline | None = None
    files: list[Path] = field(default_factory=list)


def run(options: Options) -> Learned:
    """Train, try on other starts, print, save."""
    check_at_least(options, worlds=1, iterations=1, horizon=1, links=1, ppo=0.0)
    if options.ppo:
        require_rsl_rl()
    console = Console()
    name = options.env.replace("-", "_")
    extra: dict[str, Any] = {"links": options.links} if options.links is not None else {}
    with simulation_threads():
        env, unseen = (
            make(options.env, options.worlds, seed=seed, device=options.device, **extra)
            for seed in (options.seed, options.seed + TEST_SEED)
        )
        given = {"iterations": options.iterations, "horizon": options.horizon}
        changes = {key: value for key, value in given.items() if value is not None}
        algorithm = find_algorithm(options.algorithm)
        config = algorithm.Config.of(env, critic=options.critic, seed=options.seed, **changes)
        options.out.mkdir(parents=True, exist_ok=True)
        other = options.seed + TEST_SEED
        before = evaluate(unseen, algorithm(unseen, config).policy, other).mean().item()
        checkpoint = options.out / f"learn_{name}.pt"
        trained = train(
            env, config, checkpoint=checkpoint, resume=options.resume, log=options.log, console=console
        )  # fmt: skip
        found = Learned(trained, before, evaluate(unseen, trained.policy, other).mean().item())
        if options.ppo:
            env.reset(options.seed)
            found.ppo = compare_ppo(env, unseen, options, trained.history[-1].steps, console)
        report(found, console)
        files: dict[str, Path | None] = {"checkpoint": checkpoint}
        files["policy"] = save_policy(trained.policy, options.out / f"policy_{name}.pt")
        files["curves"] = write_arrays(options.out / f"learn_{name}.npz", **_columns(found))
        files["picture"] = draw(found, options.out / f"learn_{name}.png")
        if options.onnx:
            files["onnx"] = options.out / f"policy_{name}.onnx"
            export_onnx(trained.policy, files["onnx"])
        if options.replay:
            motion = play(unseen, trained.policy, other)
            title = f"{env.name}, return {found.after:.0f}"
            path = options.out / f"learn_{name}.html"
            files["replay"] = write_replay(env.sim, motion, path, console, title=title, forces=False, follow=env.follow)
    print_files(console, **files)
    found.files = [path for path in files.values() if path is not None]
    return found


# -- the baseline ----------------------------------------------------------------------------------------------------


def require_rsl_rl() -> None:
    """Raise where rsl_rl is not installed, before any work."""
    if find_spec("rsl_rl") is None or find_spec("tensordict") is None:
        raise PullbackError("PPO is that of rsl_rl: pip install 'pullback[rl]', or leave --ppo out")


def compare_ppo(env: Env, unseen: Env, options: Options, steps: int, console: Console) -> Baseline:
    """Train by PPO of rsl_rl, with its own usual networks, for a multiple of the steps; try it on the same starts."""
    from pullback.learn.rsl_ppo import RslPPO

    search = RslPPO(env, seed=options.seed)
    iterations = max(1, round(options.ppo * steps / search.batch))
    SearchLoop(iterations, "PPO", console=console).run(search)
    return Baseline(search.history, evaluate(unseen, search.act, options.seed + TEST_SEED).mean().item())


# -- the report ------------------------------------------------------------------------------------------------------


def report(found: Learned, console: Console) -> None:
    """Print how good the policy is, and whether gradients gave trouble on the way."""
    run, last = found.run, found.run.history[-1]
    table = Table(title=f"{run.env.name}, {run.env.worlds} worlds", title_justify="left", show_header=False)
    rows = {
        "return before": f"{found.before:.1f}",
        "return after": f"{found.after:.1f}",
        "iterations": f"{run.done}",
        "steps": f"{last.steps:,}",
        "time": f"{last.seconds:.1f} s, {last.steps / max(last.seconds, 1e-9):,.0f} steps/s",
        "worlds no longer finite": f"{last.broken}",
        "worlds without gradient": f"{100 * _mean([r.lost for r in run.history]):.2f} %",
        "steep worlds": f"{100 * _mean([r.steep for r in run.history]):.1f} %",
        "variance, first order over zeroth": f"{last.first_variance / max(last.zeroth_variance, 1e-30):.2g}",
        **{name: f"{value:.3g}" for name, value in last.extra.items()},
    }
    if found.ppo is not None:
        ppo = found.ppo.history[-1]
        rows["PPO, return after"] = f"{found.ppo.after:.1f}"
        rows["PPO, steps"] = f"{ppo.steps:,}"
        rows["PPO, time"] = f"{ppo.seconds:.1f} s, {ppo.steps / max(ppo.seconds, 1e-9):,.0f} steps/s"
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def _columns(found: Learned) -> dict[str, Tensor]:
    """Return the reports as arrays, one number an iteration; those of PPO as ppo_..."""
    run = found.run
    rows = [{**asdict(report), **report.extra} for report in run.history]
    longest = max(len(row["gradient_by_step"]) for row in rows)
    for row in rows:
        del row["extra"]
        # a horizon that changes: NaN where a step was not taken
        row["gradient_by_step"] += [float("nan")] * (longest - len(row["gradient_by_step"]))
    columns = {name: torch.tensor([row[name] for row in rows], dtype=torch.float64) for name in rows[0]}
    theirs = [] if found.ppo is None else [asdict(report) for report in found.ppo.history]
    for name in theirs[0] if theirs else ():
        columns[f"ppo_{name}"] = torch.tensor([row[name] for row in theirs], dtype=torch.float64)
    return columns


def draw(found: Learned, path: Path) -> Path:
    """Draw the return by iteration, and the gradient by step of the horizon, early and late."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    history = found.run.history
    curves = {type(found.run).__name__: history, "PPO of rsl_rl": found.ppo.history if found.ppo else []}
    for name, reports in curves.items():
        if reports:
            left.plot([r.steps for r in reports], [r.episode_return for r in reports], label=name)
    left.legend()
    left.set(xlabel="steps", ylabel=f"return, mean of the last {RECENT} episodes", title=found.run.env.name)
    for number in sorted({0, len(history) // 2, len(history) - 1}):
        right.semilogy(history[number].gradient_by_step, label=f"iteration {number + 1}")
    right.set(xlabel="step of the horizon", ylabel="mean |gradient by action|", title="gradients through the horizon")
    right.legend()
    return write_figure(figure, path)
