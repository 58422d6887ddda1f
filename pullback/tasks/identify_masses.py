"""Identify the masses of a robot's links from its motion.

The links start with wrong masses. Motion of the true robot is recorded with noise, and the masses are fitted by the
gradient of the prediction error. Some masses cannot be identified from motion: that of a link that never moves, or that
turns about its own centre. The report says which.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pullback.core.device import find_device
from pullback.core.errors import PullbackError
from pullback.core.module_descent import ModuleDescent
from pullback.core.search_loop import SearchLoop
from pullback.robot.data import MotionData, NMSELoss, random_torque_motion, sine_motion
from pullback.robot.export import export_urdf
from pullback.robot.load import load
from pullback.robot.model import RobotModel
from pullback.robot.parametrizations import PositiveScalar
from pullback.tasks.common.outputs import write_figure

Tensor = torch.Tensor

PATIENCE, STANDSTILL = 5, 1e-9
"""The optimiser ends when this many iterations do not lower the loss by this fraction."""
DIFFERENCE = 1e-4
"""Relative change of a mass in central differences."""
NO_EFFECT = 1e-9
"""A mass that changes the prediction by less, in standard deviations of the data, has no effect."""
WEAK = 0.1
"""A mass with a larger relative standard error is poorly determined."""


@dataclass
class Options:
    """How to identify the masses of a robot's links from its motion."""

    robot: str = "iiwa7"
    """A robot that ships with Pullback, or the path of a .urdf or .xml file."""
    motion: Literal["torque", "sine"] = "torque"
    """Apply random torques and measure accelerations, or prescribe sine motions and measure torques."""
    samples: int = 2000
    """Number of recorded states."""
    dt: float = 0.01
    """Time between two states [s]."""
    noise: float = 0.01
    """Noise of the measurement, relative to its standard deviation."""
    wrong_by: float = 2.0
    """Masses start wrong by a random factor between its inverse and this."""
    epochs: int = 100
    """The most iterations of the optimiser (L-BFGS), each over all samples."""
    seed: int = 0
    """Seed of the start, the motion and the noise."""
    out: Path = Path("out")
    """Folder for the picture and the learned robot."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Identified:
    """The result: the masses [kg] of the links, their standard errors, and the losses."""

    links: list[str]
    true: Tensor
    start: Tensor
    learned: Tensor
    standard_error: Tensor
    losses: list[float] = field(default_factory=list)
    reason: str = ""
    """Why the optimiser ended: "patience" and "converged" mean that it reached a minimum."""
    picture: Path | None = None
    urdf: Path | None = None

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.reason == "interrupted"

    @property
    def converged(self) -> bool:
        """Whether the optimiser reached a minimum."""
        return self.reason in ("patience", "converged")

    @property
    def error(self) -> Tensor:
        """Relative error of the learned masses."""
        return (self.learned / self.true - 1.0).abs()

    @property
    def uncertainty(self) -> Tensor:
        """Relative standard error of the learned masses."""
        return self.standard_error / self.learned


def run(options: Options) -> Identified:
    """Fit the masses, print the table, draw the picture, and write the identified robot."""
    console = Console()
    generator = torch.Generator().manual_seed(options.seed)
    device = find_device(options.device)
    truth = load(options.robot, dtype=torch.float64, device=device)
    links = [link.name for link in truth.model.links if link.mass > 0.0]
    if not links:
        raise PullbackError(f"no link of {options.robot!r} has a mass; there is nothing to find")
    make = sine_motion if options.motion == "sine" else random_torque_motion
    data = make(truth, samples=options.samples, dt=options.dt, noise=options.noise, generator=generator)
    true = masses(truth, links)
    factor = options.wrong_by ** (2.0 * torch.rand(len(links), dtype=torch.float64, generator=generator) - 1.0)
    start = true * factor.to(true)

    robot = load(options.robot, dtype=torch.float64, device=device)
    for name, mass in zip(links, start):
        robot.make_link_param_learnable(name, "mass", PositiveScalar(mass))
    target = data.tau if options.motion == "sine" else data.qdd
    loss_of = NMSELoss(target.var(0))

    losses, reason = learn(robot, lambda: loss_of(predict(robot, data, options.motion), target), options, console)
    learned = masses(robot, links)
    errors = standard_error(robot, links, data, options.motion)
    found = Identified(links, true, start, learned, errors, losses, reason)
    report(found, console)
    found.picture = draw(found, options.noise**2, options.out / "identify_masses.png")
    found.urdf = export_urdf(robot, options.out / "identify_masses.urdf")
    console.print(f"picture: {found.picture}\nlearned robot: {found.urdf}")
    return found


def predict(robot: RobotModel, data: MotionData, motion: str) -> Tensor:
    """Return the robot's prediction of the measured quantity, (samples, nv)."""
    if motion == "sine":
        return robot.compute_inverse_dynamics(data.q, data.qd, data.qdd)
    return robot.compute_forward_dynamics(data.q, data.qd, data.tau)


def learn(
    robot: RobotModel, loss_of: Callable[[], Tensor], options: Options, console: Console
) -> tuple[list[float], str]:
    """Fit the masses by L-BFGS; return the losses and why it ended. The best values stay in the robot."""
    search = ModuleDescent(loss_of, robot, "lbfgs", patience=PATIENCE, tolerance=STANDSTILL)
    reason = SearchLoop(options.epochs, "fitting masses", console=console).run(search)
    search.restore_best()
    return search.losses, reason


@torch.no_grad()
def masses(robot: RobotModel, links: list[str]) -> Tensor:
    """Return the present masses [kg] of some links."""
    return torch.stack([robot.get_link_param(name, "mass") for name in links])


@torch.no_grad()
def standard_error(robot: RobotModel, links: list[str], data: MotionData, motion: str) -> Tensor:
    """Return the standard error [kg] of each mass, as the residual r implies it; infinite where it has no effect.

    With J the derivative of the prediction by the logarithms of the masses, everything in standard deviations of the
    data, the covariance of a least-squares estimate is (Jᵀ J)⁻¹ rᵀ r / (rows - columns).
    """
    target = data.tau if motion == "sine" else data.qdd
    present = masses(robot, links)
    probe = deepcopy(robot)
    columns = []
    for name, mass in zip(links, present):
        sides = []
        for step in (DIFFERENCE, -DIFFERENCE):
            probe.set_link_param(name, "mass", mass * (1.0 + step))
            sides.append(predict(probe, data, motion))
        probe.set_link_param(name, "mass", mass)
        columns.append(((sides[0] - sides[1]) / (2.0 * DIFFERENCE * target.std(0))).flatten())
    J = torch.stack(columns, -1)
    r = ((predict(robot, data, motion) - target) / target.std(0)).flatten()
    eigenvalues, vectors = torch.linalg.eigh(J.mT @ J)
    # unobservable directions have eigenvalue zero: a huge error, not a division by zero
    inverse = 1.0 / eigenvalues.clamp(min=1e-14 * eigenvalues.max())
    covariance = vectors.square() @ inverse * r.square().sum() / max(1, len(r) - len(links))
    has_effect = J.square().mean(0).sqrt() > NO_EFFECT
    return torch.where(has_effect, present * covariance.sqrt(), float("inf"))


def report(found: Identified, console: Console) -> None:
    """Print one row per link, and which masses the data does not determine."""
    table = Table(title=f"masses in kg after {len(found.losses)} epochs")
    for header in ("link", "true", "start", "learned", "error", "std. error", ""):
        table.add_column(header, justify="left" if header in ("link", "") else "right")
    rows = zip(found.links, found.true, found.start, found.learned, found.error, found.uncertainty)
    for name, true, start, learned, error, uncertainty in rows:
        note = remark(uncertainty.item())
        spread = "" if note == "no effect" else f"±{uncertainty.item():.2%}"
        numbers = (f"{x.item():.4g}" for x in (true, start, learned))
        table.add_row(name, *numbers, f"{error.item():.2%}", spread, note, style="dim" if note else None)
    console.print(table)
    notes = {remark(x) for x in found.uncertainty.tolist()}
    if "no effect" in notes:
        console.print("no effect: this mass changes nothing that was measured, so no data of this kind determines it")
    if "weak" in notes:
        console.print(
            f"weak: the noise leaves it uncertain by more than {WEAK:.0%}; more samples or other motions help"
        )
    if not found.converged:
        console.print("not converged: standard errors do not include the remaining error of the optimiser")
    if found.losses:
        console.print(f"loss: {found.losses[0]:.3e} at the start, {min(found.losses):.3e} at its best")


def remark(uncertainty: float) -> str:
    """Return the remark on a mass with this relative standard error."""
    if uncertainty == float("inf"):
        return "no effect"
    return "weak" if uncertainty > WEAK else ""


def draw(found: Identified, noise: float, path: Path) -> Path:
    """Draw the loss, and each mass's error before and after; return the path."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.semilogy(range(1, len(found.losses) + 1), found.losses, color="tab:blue")
    left.set(title="normalised prediction error", xlabel="epoch", ylabel="loss [variance of the data]")
    if noise > 0.0:
        left.axhline(noise, color="gray", linestyle="--", label="noise level")
        left.legend(fontsize=8)
    left.grid(alpha=0.3)
    place = np.arange(len(found.links))
    before = 100.0 * (found.start / found.true - 1.0).abs().cpu().numpy()
    after = 100.0 * found.error.clamp(min=1e-8).cpu().numpy()
    unseen = (found.uncertainty > WEAK).cpu().numpy()
    right.bar(place - 0.2, before, 0.4, color="lightgray", label="at the start")
    right.bar(place[~unseen] + 0.2, after[~unseen], 0.4, color="tab:blue", label="learned")
    if unseen.any():
        style = {"color": "white", "edgecolor": "tab:red", "hatch": "///"}
        right.bar(place[unseen] + 0.2, after[unseen], 0.4, label="poorly determined", **style)
    right.set(title="error of each mass", ylabel="error [%]", yscale="log")
    right.set_xticks(place, found.links, rotation=45, ha="right", fontsize=8)
    right.grid(alpha=0.3, axis="y")
    right.set_ylim(top=6.0 * max(before.max(), after.max()))
    right.legend(fontsize=8, ncols=3, loc="upper center")
    return write_figure(figure, path, dpi=150)
