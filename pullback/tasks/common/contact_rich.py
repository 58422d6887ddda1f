"""Tasks solved through contact by iLQR: many starts as one batch, evaluated, compared with CMA-ES and drawn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table

from pullback.control import Found, Problem, minimize
from pullback.control.ilqr.ilqr import ilqr
from pullback.core.device import find_device
from pullback.description.assets.rows import joint, link, sphere
from pullback.description.tree import Limits, Tree, Vector
from pullback.rigid.sim import Sim
from pullback.rigid.solvers.compliant import Compliant
from pullback.rigid.solvers.pgs import PGS
from pullback.rigid.state import State, Trajectory
from pullback.rigid.world.world import World
from pullback.tasks.common.knots import even_knots
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_arrays, write_figure, write_replay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Tensor = torch.Tensor

PLAIN = PGS()
HOLD = 0.5
"""Time [s] simulated after the last control, before the result is evaluated."""
TOLERANCE = 1e-4
"""Tolerance of iLQR: the expected decrease relative to 1 + cost."""
STEPS_PER_KNOT = 10
"""CMA-ES optimises corrections of the first guess at knots this many steps apart."""


@dataclass
class Options:
    """How to solve a task from many starts."""

    starts: int = 20
    """Random starts, solved as one batch."""
    iterations: int = 40
    """The most iterations of iLQR."""
    soft_iterations: int = 0
    """Iterations before that with compliant contact, whose gradients have no kinks."""
    retries: int = 2
    """Restarts of those that fail, from their controls plus noise."""
    generations: int = 60
    """Generations of CMA-ES on the first start, for comparison; 0: none."""
    seed: int = 0
    """Seed of the random starts."""
    out: Path = Path("out")
    """Folder for the motion, the picture and the replay."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Scene:
    """The description of such a task."""

    name: str
    sim: Sim
    soft: Sim | None
    """The same world with springs for contact, if the search is to start there."""
    start: State
    guess: Tensor
    """First controls (T, B, nu)."""
    pose: Callable[[Sim, State, Tensor], Problem]
    """The problem of a simulation, starts and their first controls."""
    judge: Callable[[State], tuple[Tensor, dict[str, Tensor]]]
    """Which worlds succeed (B,), and their errors (B,) by name."""
    draw: Callable[[Axes, Axes, Solved], None]
    """Draws a film and how all starts went."""
    stop: Callable[[State], Tensor]
    """Controls (B, nu) that stop the actuated joints after the horizon."""
    regularization: float = 1e-3
    spread: float = 0.05
    """Standard deviation of CMA-ES at first, in the unit of the controls."""
    noise: float = 0.02
    """Standard deviation of the noise of another try, in the same unit."""


@dataclass
class Search:
    """The history of iLQR: costs (iterations + 1, B) from the guess on, and seconds (iterations + 1,) for the batch.

    The first `soft` iterations are with compliant contact; the cost after them is that of rigid contact again.
    """

    controls: Tensor
    costs: Tensor
    seconds: Tensor
    accepted: Tensor
    """Iterations (B,) whose step was taken."""
    soft: int
    iterations: int
    """Number of iterations; `costs` has one more row for each stage, the initial cost."""


@dataclass
class Solved:
    """The result: motions with half a second after them, their success, and the history of the search."""

    motion: Trajectory
    controls: Tensor
    steps: int
    """Steps of the plan; the motion is longer."""
    success: Tensor
    errors: dict[str, Tensor]
    guess_success: Tensor
    search: Search
    alone: Search | None = None
    """iLQR on the first start alone."""
    baseline: Found | None = None
    """The result of CMA-ES for the first start."""
    picture: Path | None = None

    @property
    def successes(self) -> int:
        """How many starts end well."""
        return int(self.success.sum())


def pusher(name: str, radius: float, mass: float, axes: dict[str, Vector], effort: float) -> Tree:
    """Return a ball on two rails that are at right angles; half its mass is on each."""
    inertia = (1e-4, 1e-4, 1e-4)
    (first, second), limits = axes, Limits(-2.0, 2.0, velocity=10.0, effort=effort)
    links = [
        link("rail"),
        link("slider", 0.5 * mass, (0, 0, 0), inertia),
        link("tip", 0.5 * mass, (0, 0, 0), inertia, sphere(radius)),
    ]
    joints = [
        joint(first, "prismatic", "rail", "slider", axis=axes[first], limits=limits),
        joint(second, "prismatic", "slider", "tip", axis=axes[second], limits=limits),
    ]
    return Tree(name, links, joints, source=name)


def ease(start: Tensor, end: Tensor, steps: int) -> Tensor:
    """Return a smooth path from start to end in `steps` points (steps, ...), without the start."""
    s = torch.linspace(0.0, 1.0, steps + 1, dtype=end.dtype, device=end.device)[1:]
    s = (s * s * (3.0 - 2.0 * s)).reshape(-1, *[1] * end.ndim)
    return start + (end - start) * s


def compile_both(
    build: Callable[[PGS | Compliant], World], springs: Compliant, dt: float, options: Options, *, plain: PGS = PLAIN
) -> tuple[Sim, Sim | None]:
    """Return the simulation of a world with rigid contact, and with compliant contact if options want it."""
    settings = {"dt": dt, "dtype": torch.float64, "device": find_device(options.device), "damping": "implicit"}
    sim = build(plain).compile(**settings)
    if not options.soft_iterations:
        return sim, None
    with warnings.catch_warnings():
        # a step too long for bounces is good enough for the first search
        warnings.simplefilter("ignore")
        return sim, build(springs).compile(**settings)


def check(options: Options) -> None:
    """Raise for invalid options."""
    check_at_least(options, starts=1, soft_iterations=0, iterations=1, retries=0, generations=0)


def solve(scene: Scene, options: Options) -> Solved:
    """Solve all starts as one batch, evaluate them, compare with CMA-ES, and save motion, picture and replay."""
    console = Console()
    console.print(f"{scene.name}: {scene.sim}", highlight=False)
    found = optimize(scene, options, verbose=True)
    if options.generations:
        compare(scene, found, options, console)
    report(scene, found, console)
    save(scene, found, options, console)
    return found


def optimize(scene: Scene, options: Options, *, verbose: bool = False) -> Solved:
    """Run iLQR on all starts, again on those that fail, and evaluate the result."""
    guessed, _ = scene.judge(watch(scene, scene.start, scene.guess)[0][-1])
    search = run_ilqr(scene, scene.start, scene.guess, options, verbose=verbose)
    generator = torch.Generator().manual_seed(options.seed)
    for _ in range(options.retries):
        success, _ = scene.judge(watch(scene, scene.start, search.controls)[0][-1])
        stuck = (~success).nonzero()[:, 0]
        if not len(stuck):
            break
        try_again(scene, search, stuck, options, generator, verbose)
    motion, controls = watch(scene, scene.start, search.controls)
    success, errors = scene.judge(motion[-1])
    return Solved(motion, controls, len(scene.guess), success, errors, guessed, search)


def try_again(
    scene: Scene, search: Search, stuck: Tensor, options: Options, generator: torch.Generator, verbose: bool
) -> None:
    """Restart some starts with noise on their controls, with rigid contact; keep improvements."""
    start, guess = State(scene.start.q[stuck], scene.start.qd[stuck]), scene.guess[:, stuck]
    between = lines_between_knots(guess)
    knots = torch.randn(between.shape[1], len(stuck), scene.sim.nu, generator=generator, dtype=guess.dtype).to(guess)
    noise = scene.noise * torch.einsum("tk,kbj->tbj", between, knots)
    plain = replace(options, soft_iterations=0)
    again = run_ilqr(scene, start, guess, plain, controls=search.controls[:, stuck] + noise, verbose=verbose)
    well, _ = scene.judge(watch(scene, start, again.controls)[0][-1])
    take = well.cpu() | (again.costs[-1] < search.costs[-1, stuck.cpu()])
    search.controls[:, stuck[take]] = again.controls[:, take]
    rows = search.costs[-1:].repeat(len(again.costs), 1)
    rows[:, stuck[take].cpu()] = again.costs[:, take]
    search.costs = torch.cat([search.costs, rows])
    search.seconds = torch.cat([search.seconds, search.seconds[-1] + again.seconds])
    search.accepted[stuck.cpu()] += again.accepted
    search.iterations += again.iterations


def lines_between_knots(controls: Tensor) -> Tensor:
    """Return the matrix (T, knots) that takes values at knots to straight lines between them."""
    return even_knots(len(controls), 1 + len(controls) // STEPS_PER_KNOT).to(controls)


def run_ilqr(
    scene: Scene,
    start: State,
    guess: Tensor,
    options: Options,
    *,
    controls: Tensor | None = None,
    verbose: bool = False,
) -> Search:
    """Return the result of iLQR with compliant contact first, and then with rigid contact.

    It starts from the guess, or from other controls, which do not change the problem.
    """
    costs, seconds, accepted, soft = [], [], 0, 0
    controls, spent, count = guess if controls is None else controls, 0.0, 0
    for sim, iterations in ((scene.soft, options.soft_iterations), (scene.sim, options.iterations)):
        if sim is None or not iterations:
            continue
        began = perf_counter()
        problem = scene.pose(sim, start, guess)
        controls = controls.clamp(problem.lower, problem.upper)
        with torch.no_grad():
            costs.append(problem.cost(sim.rollout(start, controls), controls)[None].cpu())
        seconds.append(torch.tensor([spent]))
        if verbose:
            print(f"{'springs' if sim is scene.soft else 'plain world'}, at most {iterations} iterations")
        result = ilqr(
            problem, controls, iterations=iterations, tolerance=TOLERANCE, regularization=scene.regularization,
            search="best", gains=False, verbose=verbose,
        )  # fmt: skip
        controls, count = result.controls, count + len(result.table)
        costs.append(torch.stack([torch.as_tensor(row.cost) for row in result.table.rows]))
        seconds.append(spent + torch.tensor(result.table.seconds))
        accepted = accepted + torch.stack([torch.as_tensor(row.step > 0.0) for row in result.table.rows]).sum(0)
        soft = len(result.table) if sim is scene.soft else soft
        spent += perf_counter() - began
    assert isinstance(accepted, Tensor)
    return Search(controls, torch.cat(costs), torch.cat(seconds), accepted, soft, count)


@torch.no_grad()
def watch(scene: Scene, start: State, controls: Tensor) -> tuple[Trajectory, Tensor]:
    """Simulate controls (T, B, nu) in the plain world, and half a second of stopping after them; return all of it."""
    sim = scene.sim
    plan = sim.rollout(start, controls, check=True)
    stopped = scene.stop(plan[-1]).expand(round(HOLD / sim.dt), -1, -1)
    rest = sim.rollout(State(plan.q[-1], plan.qd[-1]), stopped, check=True)
    q, qd = torch.cat([plan.q, rest.q[1:]]), torch.cat([plan.qd, rest.qd[1:]])
    return Trajectory(q, qd, rest.status, torch.arange(len(q))), torch.cat([controls, stopped])


# -- CMA-ES --------------------------------------------------------------------------------------------------------


def compare(scene: Scene, found: Solved, options: Options, console: Console) -> None:
    """Solve the first start alone by iLQR and by CMA-ES, from the same guess and with the same cost."""
    start = State(scene.start.q[:1], scene.start.qd[:1])
    guess = scene.guess[:, :1]
    found.alone = run_ilqr(scene, start, guess, options)
    problem, between = scene.pose(scene.sim, start, guess), lines_between_knots(guess)

    @torch.no_grad()
    def objective(candidates: Tensor) -> Tensor:
        controls = guess + torch.einsum("tk,pkj->tpj", between, candidates)
        controls = controls.clamp(problem.lower, problem.upper)
        motion = scene.sim.rollout(start, controls)
        # each candidate is a try of the one problem
        tries = [x.transpose(0, 1)[:, :, None] for x in (motion.q, motion.qd, controls)]
        return problem.cost(Trajectory(tries[0], tries[1], motion.status, motion.steps), tries[2])[:, 0]

    found.baseline = minimize(
        objective,
        guess.new_zeros(1, between.shape[1], scene.sim.nu),
        method="cma",
        iterations=options.generations,
        spread=scene.spread,
        seed=options.seed,
        console=console,
        label="CMA-ES, first start",
    )


# -- report --------------------------------------------------------------------------------------------------------


def report(scene: Scene, found: Solved, console: Console) -> None:
    """Print the result of each start, and both methods by iteration and by wall-clock time."""
    search = found.search
    table = Table(title=f"{scene.name}: {found.successes} of {len(found.success)} starts end well")
    for header in ("start", "steps taken", "cost at first", "cost", *found.errors, "ends well"):
        table.add_column(header, justify="right")
    for k, good in enumerate(found.success.tolist()):
        errors = [f"{values[k].item():.2f}" for values in found.errors.values()]
        costs = [f"{search.costs[0, k].item():.3g}", f"{search.costs[-1, k].item():.3g}"]
        table.add_row(str(k), str(int(search.accepted[k])), *costs, *errors, "yes" if good else "[red]no[/]")
    console.print(table)
    springs = f", {search.soft} of them with springs," if search.soft else ""
    console.print(
        f"{search.iterations} iterations{springs} in {search.seconds[-1].item():.1f} s for all starts; of the first "
        f"guesses {int(found.guess_success.sum())} end well"
    )
    if found.alone is None or found.baseline is None:
        return
    table = Table(title="the first start alone, from the same guess")
    for header in ("", "iterations", "seconds", "cost"):
        table.add_column(header, justify="left" if not header else "right")
    alone, other = found.alone, found.baseline
    numbers = str(alone.iterations), f"{alone.seconds[-1].item():.1f}", f"{alone.costs[-1, 0].item():.4g}"
    table.add_row("iLQR", *numbers)
    table.add_row("CMA-ES", str(len(other.curve)), f"{float(other.seconds[-1]):.1f}", f"{other.loss:.4g}")
    console.print(table)


def save(scene: Scene, found: Solved, options: Options, console: Console) -> None:
    """Write the motions, the picture and a replay of the first start that ends well."""
    stem = scene.name.replace("-", "_")
    motions = write_arrays(
        options.out / f"{stem}.npz", q=found.motion.q, qd=found.motion.qd, u=found.controls, success=found.success,
        costs=found.search.costs, dt=scene.sim.dt,
    )  # fmt: skip
    found.picture = draw(scene, found, options.out / f"{stem}.png")
    shown = int(found.success.int().argmax())
    replay = write_replay(
        scene.sim, found.motion, options.out / f"{stem}.html", console, controls=found.controls, world=shown,
        title=f"{scene.name}, start {shown}",
    )  # fmt: skip
    print_files(console, motions=motions, picture=found.picture, replay=replay)


def draw(scene: Scene, found: Solved, path: Path) -> Path:
    """Draw the task's film and how all starts went, and the costs by iteration and wall-clock; return the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14.0, 7.5), layout="constrained")
    axes = figure.subplot_mosaic([["film"] * 3, ["motion", "iteration", "clock"]], height_ratios=(1.0, 1.3))
    scene.draw(axes["film"], axes["motion"], found)
    # as high as the film is in its full width, so that nothing is empty
    film, high = axes["film"].dataLim, 4.6
    tall = min(max(13.0 * film.height / film.width, 1.0), 4.0) + 0.5
    grid = axes["film"].get_gridspec()
    assert grid is not None
    grid.set_height_ratios((tall, high))
    figure.set_figheight(tall + high)
    search, median = found.search, found.search.costs.median(1).values
    axes["iteration"].semilogy(search.costs, color="lightgray", linewidth=0.8)
    axes["iteration"].semilogy(median, color="tab:blue", label="iLQR, median of all starts")
    if search.soft:
        axes["iteration"].axvline(search.soft + 0.5, color="gray", linestyle=":", label="springs until here")
    axes["clock"].semilogy(search.seconds, median, color="tab:blue", label="iLQR, all starts: median")
    if found.alone is not None and found.baseline is not None:
        alone, other = found.alone, found.baseline
        axes["iteration"].semilogy(alone.costs, color="#009e73", label="iLQR, first start")
        axes["iteration"].semilogy(other.curve, "--", color="#d55e00", label="CMA-ES, first start")
        axes["clock"].semilogy(alone.seconds, alone.costs, color="#009e73", label="iLQR, first start alone")
        axes["clock"].semilogy(other.seconds, other.curve, "--", color="#d55e00", label="CMA-ES, first start")
    axes["iteration"].set(title="cost by iteration", xlabel="iteration, generation", ylabel="cost")
    axes["clock"].set(title="cost by wall-clock", xlabel="seconds", ylabel="cost")
    for name in ("iteration", "clock"):
        axes[name].legend(fontsize=8)
        axes[name].grid(alpha=0.3)
    return write_figure(figure, path, dpi=110)
