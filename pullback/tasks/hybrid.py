"""Learn what a description leaves out by a network inside the physics, against physics alone and a network alone.

Three cases: a pendulum with friction and drag, an arm in MuJoCo with Stribeck friction and a cable on its hand, and a
quadruped whose commands arrive late. Each is recorded, models are fitted to some of the motions through rollouts, and
all predict others over 100 steps from the measured start.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Table

from pullback.core.errors import unknown_name
from pullback.learn.hybrid import Hybrid, Nothing, save_hybrid
from pullback.learn.hybrid_fit import Motions, fit, prediction_error
from pullback.tasks.common.hybrid_cases import CASES, Case, make_case
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_arrays, write_figure
from pullback.tasks.common.threads import simulation_threads

Tensor = torch.Tensor

STEPS = 100
"""Steps of 10 ms that models predict, and that recordings have."""
TEST_SEED = 1_000_003
"""Added to the seed for the motions that models are tried on."""


@dataclass
class Options:
    """What to learn."""

    case: Literal["pendulum", "arm", "quadruped"] = "pendulum"
    """The machine."""
    amounts: tuple[int, ...] = (4, 12, 40)
    """Recorded motions of a second to learn from."""
    tests: int = 20
    """Other motions to predict."""
    iterations: int | None = None
    """Iterations for the hybrid model; by default as many as suit the case."""
    network_iterations: int | None = None
    """Iterations for the network alone; 0 leaves it out."""
    seed: int = 0
    """Seed of recordings, weights and windows."""
    out: Path = Path("out")
    """Folder for the model, errors and picture."""


@dataclass
class Predicted:
    """What was found: root-mean-square errors of coordinates [rad, m]."""

    case: str
    physics: Tensor
    """By step (101,), of physics alone."""
    hybrid: dict[int, Tensor] = field(default_factory=dict)
    """By the number of motions it learned from."""
    network: dict[int, Tensor] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """CPU time of each fit."""
    files: dict[str, Path | None] = field(default_factory=dict)


def overall(error: Tensor) -> float:
    """Return the error over all steps."""
    return error.square().mean().sqrt().item()


def run(options: Options) -> Predicted:
    """Record, fit, predict, print, save."""
    if options.case not in CASES:
        raise unknown_name("case", options.case, list(CASES))
    check_at_least(options, amounts=1, tests=1, iterations=1, network_iterations=0)
    console = Console()
    with simulation_threads():
        with console.status("compiling the kernels, once on a machine, and recording"):
            case = make_case(options.case)
            length, most = STEPS + case.warm, max(options.amounts)
            data = case.record(length, most, options.seed)
            tests = case.record(length, options.tests, options.seed + TEST_SEED)
        console.print(case.title)
        physics = prediction_error(Hybrid(case.sim, Nothing()), tests, case.warm)
        found = Predicted(options.case, physics)
        model: Hybrid | None = None
        for amount in sorted(options.amounts):
            model = fit_amount(case, data[:amount], tests, options, found, console)
        assert model is not None
    report(found, console)
    name = f"hybrid_{options.case}"
    found.files["model"] = save_hybrid(model, options.out / name)
    arrays: dict[str, Any] = {"physics": found.physics}
    for kind, errors in (("hybrid", found.hybrid), ("network", found.network)):
        arrays |= {f"{kind}_{amount}": error for amount, error in errors.items()}
    found.files["errors"] = write_arrays(options.out / f"{name}.npz", **arrays)
    found.files["picture"] = draw(found, case.title, options.out / f"{name}.png")
    print_files(console, **found.files)
    return found


def fit_amount(
    case: Case, data: Motions, tests: Motions, options: Options, found: Predicted, console: Console
) -> Hybrid:
    """Fit the hybrid model and the network alone to some motions, note their errors, and return the former."""
    amount = len(data)
    model, config = Hybrid(case.sim, case.residual()), replace(case.hybrid_fit, seed=options.seed)
    if options.iterations is not None:
        config = replace(config, iterations=options.iterations)
    began = time.process_time()
    fit(model, data, config, console=console)
    found.seconds[f"hybrid, {amount}"] = time.process_time() - began
    found.hybrid[amount] = prediction_error(model, tests, case.warm)
    network, config = case.network(), replace(case.network_fit, seed=options.seed)
    if options.network_iterations is not None:
        config = replace(config, iterations=options.network_iterations)
    if config.iterations:
        began = time.process_time()
        fit(network, data, config, console=console)
        found.seconds[f"network, {amount}"] = time.process_time() - began
        found.network[amount] = prediction_error(network, tests, case.warm)
    return model


def report(found: Predicted, console: Console) -> None:
    """Print errors by amount of data, and how they compare."""
    table = Table(title=f"{found.case}: error over {STEPS} steps [rad, m]", title_justify="left")
    for header in ("motions", "physics alone", "network alone", "hybrid", "physics / hybrid"):
        table.add_column(header, justify="right")
    physics = overall(found.physics)
    for amount, error in found.hybrid.items():
        alone = f"{overall(found.network[amount]):.4g}" if amount in found.network else "-"
        mixed = overall(error)
        table.add_row(f"{amount}", f"{physics:.4g}", alone, f"{mixed:.4g}", f"{physics / mixed:.1f}")
    console.print(table)
    fewest, most = min(found.hybrid), max(found.network, default=0)
    if most > fewest:
        few, many = overall(found.hybrid[fewest]), overall(found.network[most])
        console.print(
            f"hybrid with {fewest} motions {few:.4g}, network alone with {most} {many:.4g}: "
            + (f"{many / few:.1f} times less" if few < many else f"{few / many:.1f} times more")
        )


def draw(found: Predicted, title: str, path: Path) -> Path:
    """Draw errors by step and by amount of data; return the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    figure.suptitle(title)
    left.semilogy(found.physics[1:].cpu(), color="0.4", label="physics alone")
    kinds = (("network alone", found.network, "tab:orange"), ("hybrid", found.hybrid, "tab:blue"))
    for name, errors, color in kinds:
        for number, (amount, error) in enumerate(sorted(errors.items())):
            strength = 0.35 + 0.65 * (number + 1) / len(errors)
            left.semilogy(error[1:].cpu(), color=color, alpha=strength, label=f"{name}, {amount} motions")
        amounts = sorted(errors)
        if amounts:
            right.loglog(amounts, [overall(errors[k]) for k in amounts], "o-", color=color, label=name)
    right.axhline(overall(found.physics), color="0.4", label="physics alone")
    right.set_xticks(sorted(found.hybrid), labels=[f"{amount}" for amount in sorted(found.hybrid)], minor=False)
    right.minorticks_off()
    left.set(xlabel="step", ylabel="error [rad, m]", title="by step")
    right.set(xlabel="motions of a second to learn from", ylabel=f"error over {STEPS} steps", title="by amount of data")
    for axis in (left, right):
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3, which="both")
    return write_figure(figure, path)
