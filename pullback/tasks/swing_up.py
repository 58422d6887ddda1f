"""Swing up a pendulum of n links or a pole on a cart by iLQR, and audit where the energy came from.

The pendulum is that of Qiao et al. (ICML 2021): level at the start, motors too weak to lift it, 100 steps of 1/60 s to
bring its tip to the top. Steps of this size add numerical energy; the audit says how much, and the same problem with
eight substeps per step shows what is reached without it. Random first controls are optimised in parallel.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pullback.control.costs.costs import ControlCost, StateCost
from pullback.control.ilqr.ilqr import ilqr
from pullback.control.ilqr.mpc import Drive, mpc
from pullback.control.ilqr.options import LEAST
from pullback.control.ilqr.problem import Problem
from pullback.control.search.search import Found
from pullback.control.search.shooting import minimize
from pullback.core.device import find_device
from pullback.core.errors import PullbackError
from pullback.core.interrupt import gentle_interrupt
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.tasks.common.curves import Curve, evolution_curve, has_cma, print_curves
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_motion, write_replay
from pullback.tasks.common.swing_systems import POLE, Audit, System, audit, cart_pole, pendulum, times
from pullback.tasks.common.swing_up_picture import draw

Tensor = torch.Tensor

KNOTS = 10
"""Number of intervals over which random first controls are constant."""
STRENGTH = 0.3
"""Standard deviation of the strongest of them, as a fraction of the motors' limit."""
ROUND = 10
"""Iterations between two checks whether the best is good enough."""
TOLERANCE = 1e-7
"""Tolerance of iLQR: the expected decrease relative to 1 + cost."""
PLANT_MASS = 1.1
"""How much heavier the pole of the plant is than that of the model."""
PLAN, DRIVE = 60, 240
"""Steps that are planned ahead, and steps that the plant is driven for."""


@dataclass
class Options:
    """What to swing up, and how long to search."""

    system: Literal["pendulum", "cart-pole"] = "pendulum"
    """A pendulum with a motor in each joint, or a pole on a cart."""
    links: int = 3
    """Links of the pendulum."""
    substeps: tuple[int, ...] = (1, 8)
    """Numbers of substeps to solve it with: 1 is the problem as published, 8 adds far less energy."""
    starts: int = 16
    """Random first controls, optimised in parallel."""
    iterations: int = 150
    """The most iterations of iLQR."""
    generations: int = 200
    """Generations of CMA-ES on the same problem, to compare with; 0: none."""
    mpc: bool = True
    """Also let a model-predictive controller swing up and balance a cart-pole heavier than its model."""
    seed: int = 0
    """Seed of the random first controls."""
    out: Path = Path("out")
    """Folder for the motion, the picture and the replay."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Swing:
    """The best motion found with some number of substeps."""

    substeps: int
    states: Trajectory
    """Of one world, (T+1, 1, ...)."""
    controls: Tensor
    """(T, 1, nu)"""
    energy: Audit
    total: float
    """The sum of rewards."""
    share: float
    """Of the largest there can be."""
    cost: float
    """The minimised cost."""
    iterations: int
    seconds: float
    curve: list[tuple[float, float]]
    """Seconds and the lowest cost, after each iteration."""
    first: Tensor
    """The controls that its search began with, (T, 1, nu)."""

    def ends(self, values: Tensor) -> float:
        """Return the last of an audit's values."""
        return values[-1, 0].item()


@dataclass
class SwingUp:
    """All that a run found."""

    system: System
    swings: list[Swing]
    evolution: Found | None = None
    """What CMA-ES found for the first number of substeps."""
    drive: Drive | None = None
    files: list[Path] = field(default_factory=list)

    @property
    def curves(self) -> list[Curve]:
        """The lowest cost of each search, by iteration and wall-clock."""
        found = [Curve.of(f"iLQR, {times(swing.substeps)}", *zip(*swing.curve)) for swing in self.swings]
        if self.evolution is not None:
            found.append(evolution_curve(self.evolution, f"CMA-ES, {times(self.swings[0].substeps)}"))
        return found


def run(options: Options) -> SwingUp:
    """Solve, audit, compare, print, draw."""
    check(options)
    console, device = Console(), find_device(options.device)
    system = pendulum(options.links) if options.system == "pendulum" else cart_pole()
    found = SwingUp(system, [])
    for substeps in options.substeps:
        with console.status(f"{system.title}, {times(substeps)} a step"):
            sim = system.compile(substeps, device)
            found.swings.append(solve(system, sim, options.starts, options.iterations, options.seed))
    report(found, console)
    if options.generations and has_cma(console):
        sim = system.compile(options.substeps[0], device)
        found.evolution = evolve(system, sim, found.swings[0].first, options.generations, options.seed, console)
    print_curves(found.curves, console, "lowest cost")
    if options.system == "cart-pole" and options.mpc:
        found.drive = drive(device)
        report_drive(found.drive, console)
    save(found, options, console)
    return found


def check(options: Options) -> None:
    """Raise for invalid options."""
    check_at_least(options, links=1, starts=1, iterations=1, generations=0, substeps=1)
    if not options.substeps:
        raise PullbackError("no substeps are given; say for instance --substeps 1 8")


# -- by iLQR -------------------------------------------------------------------------------------------------------


def solve(system: System, sim: Sim, starts: int, iterations: int, seed: int) -> Swing:
    """Optimise random first controls in parallel, until several come close to the largest return; return the best.

    Of those that come close it is the one with the least numerical energy.
    """
    first = controls = first_controls(system, sim, starts, seed)
    problem = pose(system, sim, starts)
    # kernels are loaded, or compiled, before the clock runs
    ilqr(problem, controls, iterations=1)
    curve: list[tuple[float, float]] = []
    damping, done = LEAST, 0
    begun = time.perf_counter()
    with gentle_interrupt() as stop:
        while True:
            before, budget = time.perf_counter() - begun, min(ROUND, iterations - done)
            result = ilqr(
                problem, controls, iterations=budget, regularization=damping, tolerance=TOLERANCE, gains=False
            )  # fmt: skip
            controls, done = result.controls, done + result.iterations
            damping = float(np.clip(np.median(result.table[-1].regularization), LEAST, 1.0))
            lowest = [float(np.nanmin(row.cost)) for row in result.table.rows]
            curve += [(before + seconds, cost) for seconds, cost in zip(result.table.seconds, lowest)]
            enough = int((result.cost <= system.close).sum()) >= max(1, starts // 4)
            if enough or done >= iterations or bool(result.converged.all()) or stop:
                break
    seconds = time.perf_counter() - begun
    # of those that are close, the one with the least numerical energy
    close = (result.cost <= max(system.close, result.cost.min().item())).nonzero()[:, 0]
    added = [largest(audit(sim, _world(result.states, k), controls[:, k : k + 1])) for k in close.tolist()]
    best = int(close[int(np.argmin(added))])
    chosen = controls[:, best : best + 1]
    motion = sim.rollout(sim.initial_state(), chosen, check=True)
    total = system.returns(motion.q)[0].item()
    energy = audit(sim, motion, chosen)
    return Swing(
        sim.substeps, motion, chosen, energy, total, total / system.maximum, result.cost[best].item(), done, seconds,
        curve, first[:, best : best + 1],
    )  # fmt: skip


def largest(energy: Audit) -> float:
    """Return the most [J] that steps have added or taken by any moment of a motion."""
    return energy.numerical.abs().max().item()


def pose(system: System, sim: Sim, batch: int) -> Problem:
    """Return the problem, once for each start."""
    state, (lower, upper) = sim.initial_state(batch), (-system.limit, system.limit)
    return Problem(sim, state, system.steps, system.running, system.terminal, lower=lower, upper=upper)


def _world(states: Trajectory, k: int) -> Trajectory:
    """Return the motion of one of the worlds."""
    return Trajectory(states.q[:, k : k + 1], states.qd[:, k : k + 1], states.status, states.steps)


def first_controls(system: System, sim: Sim, starts: int, seed: int) -> Tensor:
    """Return random controls (T, starts, nu), weaker and stronger, all of whose motions stay finite."""
    generator = torch.Generator().manual_seed(seed)
    knots = torch.randn(KNOTS, starts, sim.nu, dtype=torch.float64, generator=generator)
    knots *= STRENGTH * system.limit * torch.rand(starts, 1, dtype=torch.float64, generator=generator)
    every = -(-system.steps // KNOTS)
    controls = knots.repeat_interleave(every, 0)[: system.steps].to(sim.device)
    state = sim.initial_state(starts)
    # with steps of this size strong motions diverge
    for _ in range(30):
        end = sim.rollout(state, controls)[-1]
        wild = ~((end.q.abs() < 1e3).all(-1) & (end.qd.abs() < 1e3).all(-1))
        if not bool(wild.any()):
            break
        controls[:, wild] *= 0.5
    return controls


# -- without gradients ---------------------------------------------------------------------------------------------


def evolve(system: System, sim: Sim, first: Tensor, generations: int, seed: int, console: Console) -> Found:
    """Optimise controls (T, nu) by CMA-ES, from the start of iLQR's best."""
    problem = pose(system, sim, 1)

    def objective(candidates: Tensor) -> Tensor:
        motion = sim.rollout(sim.initial_state(len(candidates)), candidates.transpose(0, 1).contiguous())
        # candidates are tries of one problem
        q, qd = (x.transpose(0, 1)[:, :, None] for x in (motion.q, motion.qd))
        return problem.cost(Trajectory(q, qd, motion.status, motion.steps), candidates[:, :, None])[:, 0]

    return minimize(
        objective, first.transpose(0, 1), method="cma", iterations=generations, lower=-system.limit, upper=system.limit,
        spread=0.3, seed=seed, label="CMA-ES", console=console,
    )  # fmt: skip


# -- model-predictive control ---------------------------------------------------------------------------------------


@torch.no_grad()
def drive(device: torch.device | str, steps: int = DRIVE) -> Drive:
    """Swing up and balance a pole that is heavier than the model's, on a plant with shorter steps, planning anew."""
    system, plant = cart_pole(), cart_pole(PLANT_MASS * POLE)
    model = system.compile(1, device)
    real = plant.world.compile(dt=system.dt / 4, dtype=torch.float64, device=device, without=["contacts"])
    upright = State(torch.zeros(2), torch.zeros(2))
    running = StateCost(upright, weights=(1.0, 2.0, 0.02, 0.02)) + ControlCost(1e-3)
    lower, upper = -system.limit, system.limit
    problem = Problem(model, model.initial_state(), PLAN, running, system.terminal, lower=lower, upper=upper)
    return mpc(problem, real, steps, replan_every=2)


# -- the report ----------------------------------------------------------------------------------------------------


def report(found: SwingUp, console: Console) -> None:
    """Print returns and the energy audit; in brackets the largest numerical energy at any time."""
    table = Table(title=f"{found.system.title}: largest return {found.system.maximum:g}", title_justify="left")
    headers = ("substeps", "return", "share", "iters", "time", "gained J", "work J", "numerical J")
    for header in headers:
        table.add_column(header, justify="right")
    for swing in found.swings:
        gained, work, added = (f"{swing.ends(x):.1f}" for x in (*swing.energy, swing.energy.numerical))
        table.add_row(
            str(swing.substeps), f"{swing.total:.4f}", f"{100 * swing.share:.2f}%", str(swing.iterations),
            f"{swing.seconds:.1f} s", gained, work, f"{added} ({largest(swing.energy):.1f})",
        )  # fmt: skip
    console.print(table)
    if isinstance(found.system.terminal, StateCost):
        for swing in found.swings:
            (x, angle), (v, spin) = swing.states.q[-1, 0].tolist(), swing.states.qd[-1, 0].tolist()
            console.print(
                f"{times(swing.substeps)}: it ends {100 * x:.2f} cm from the middle, {np.degrees(angle):.2f} degrees "
                f"from upright, at {v:.3f} m/s and {spin:.3f} rad/s"
            )


def report_drive(drive: Drive, console: Console) -> None:
    """Print the result of model-predictive control."""
    x, angle = drive.q[-1, 0].tolist()
    console.print(
        f"model-predictive control of a pole {100 * (PLANT_MASS - 1):.0f} % heavier than the model's: {drive}; it ends "
        f"{100 * x:.2f} cm from the middle, {np.degrees(angle):.2f} degrees from upright"
    )


def save(found: SwingUp, options: Options, console: Console) -> None:
    """Write the motion, the picture and the replay of the first swing."""
    name = "swing_up" if options.system == "pendulum" else "swing_up_cart_pole"
    swing, out = found.swings[0], options.out
    sim = found.system.compile(swing.substeps, swing.controls.device)
    saved = write_motion(out / f"{name}.npz", sim, swing.states, swing.controls[:, 0])
    picture = draw(found, out / f"{name}.png")
    replay = write_replay(
        sim, swing.states, out / f"{name}.html", console, forces=False,
        title=f"{found.system.title}, {100 * swing.share:.2f} % of the largest return",
        paths=[found.system.tip_position(swing.states.q[:, 0]).cpu()],
    )  # fmt: skip
    found.files = [path for path in (saved, picture, replay) if path is not None]
    print_files(console, trajectory=saved, picture=picture, replay=replay)
