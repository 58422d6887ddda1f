"""The picture of a quadruped's motion: stick figures, footfalls, base, and losses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pullback.robot.load import load
from pullback.tasks.common.outputs import write_figure
from pullback.tasks.leap import DT, TOES
from pullback.viewer.plots import draw_losses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pullback.tasks.quadruped import Learned, Options

PICTURES = 9
SHIFT = 1.0
"""From picture to picture of the film [m]."""
COLORS = {"FR": "tab:blue", "RL": "tab:blue", "FL": "tab:orange", "RR": "tab:orange"}
"""One for each diagonal pair."""


def draw(found: Learned, options: Options, path: Path) -> Path:
    """Draw everything and return the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.0, 8.0), layout="constrained")
    rows: list[Any] = [["film"] * 4, ["feet", "base", "iterations", "clock"]]
    axes = figure.subplot_mosaic(rows, height_ratios=(1.0, 1.7))
    draw_film(axes["film"], found, options)
    draw_footfalls(axes["feet"], found)
    draw_base(axes["base"], found, options)
    draw_losses([axes["iterations"], axes["clock"]], found.comparison.runs)
    return write_figure(figure, path)


def draw_film(axis: Axes, found: Learned, options: Options) -> None:
    """Draw the robot as sticks from the right, at moments that follow one another to the right."""
    robot = load("laikago", base="floating", dtype=torch.float64)
    moments = torch.linspace(0, len(found.q) - 1, PICTURES).round().long()
    q = found.q.cpu()[moments]
    with torch.no_grad():
        links = {name: pose[0] for name, pose in robot.compute_forward_kinematics_all_links(q).items()}
    for picture, moment in enumerate(moments.tolist()):
        shift = SHIFT * picture - q[picture, 0].item()

        def sticks(names: list[str], width: float, color: str, picture: int = picture, shift: float = shift) -> None:
            points = torch.stack([links[name][picture] for name in names])
            axis.plot(points[:, 0] + shift, points[:, 2], color=color, linewidth=width, solid_capstyle="round")

        for leg in ("FL", "RL", "FR", "RR"):
            sticks([f"{leg}_upper_leg", f"{leg}_lower_leg", f"toe{leg}"], 2.0, COLORS[leg])
        sticks(["FR_upper_leg", "RR_upper_leg"], 5.0, "black")
        axis.text(SHIFT * picture, -0.14, f"{DT * moment:.2f} s", ha="center", fontsize=8)
    axis.axhline(0.0, color="saddlebrown")
    axis.set(title=f"{options.motion}, seen from the right; one colour for each diagonal pair", aspect="equal")
    axis.set_ylim(-0.2, None)
    axis.axis("off")


def draw_footfalls(axis: Axes, found: Learned) -> None:
    """Draw when each toe is on the ground, and how high it is above it."""
    time = DT * torch.arange(len(found.toes))
    for row, toe in enumerate(TOES):
        leg = toe.removeprefix("toe")
        down = found.forces[:, row] > 1.0
        axis.fill_between(time[:-1], row - 0.06, row, where=down.tolist(), color=COLORS[leg], step="post", linewidth=0)
        axis.plot(time, row + 8.0 * found.toes[:, row].clamp(min=0.0), color=COLORS[leg], linewidth=1.0)
    axis.axvspan(DT * found.steps, time[-1].item(), color="tab:green", alpha=0.1)
    axis.set(title="toes: bars on the ground, height above it", xlabel="time [s]", yticks=range(4))
    axis.set_yticklabels([toe.removeprefix("toe") for toe in TOES])


def draw_base(axis: Axes, found: Learned, options: Options) -> None:
    """Draw the base's height and, of a trot, its way forward."""
    time = DT * torch.arange(len(found.q))
    axis.plot(time, found.q[:, 2].cpu(), color="tab:purple", label="height [m]")
    axis.plot(time, found.q[:, 0].cpu(), color="tab:red", label="way forward [m]")
    if options.motion == "trot":
        axis.plot(time, options.speed * (time - 0.1).clamp(min=0.0), ":", color="tab:red", label="of the asked speed")
        axis.set_ylim(-0.05, 1.2 * float(found.q[:, 0].max()))
    axis.axvspan(DT * found.steps, time[-1].item(), color="tab:green", alpha=0.1, label="afterwards")
    axis.set(title="the base", xlabel="time [s]")
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)
