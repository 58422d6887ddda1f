"""The picture of a swing-up: the motion, the controls, the energy and the search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from pullback.tasks.common.swing_systems import ROBOT, System, times
from pullback.viewer.plots import draw_losses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pullback.tasks.swing_up import Swing, SwingUp

MOMENTS = 24
COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:purple")


def draw(found: SwingUp, path: Path) -> Path:
    """Draw the first swing and its controls, and of all of them the energy and the search; return the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.0, 8.0), layout="constrained")
    axes = figure.subplot_mosaic([["motion", "controls", "energy"], ["motion", "iterations", "seconds"]])
    draw_motion(axes["motion"], found.system, found.swings[0])
    draw_controls(axes["controls"], found)
    draw_energy(axes["energy"], found)
    draw_losses([axes["iterations"], axes["seconds"]], {x.name: x for x in found.curves}, ylabel="lowest cost")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def stick_points(system: System, q: torch.Tensor) -> np.ndarray:
    """Return the joints and the tip in the plane of the motion, (T, points, 2) [m]."""
    robot = system.world.robots[ROBOT].to(dtype=q.dtype, device=q.device)
    with torch.no_grad():
        places = robot.compute_forward_kinematics_all_links(q)
    names = [name for name in places if name not in ("world", "rail")]
    return torch.stack([places[name][0] for name in names], 1)[..., 1:].cpu().numpy()


def draw_motion(axis: Axes, system: System, swing: Swing) -> None:
    """Draw sticks at many moments, darker as time goes on, and the way of the tip."""
    from matplotlib import colormaps

    points = stick_points(system, swing.states.q[:, 0])
    axis.plot(points[:, -1, 0], points[:, -1, 1], color="tab:orange", linewidth=1.0, label="way of the tip")
    for k in np.linspace(0, len(points) - 1, MOMENTS).round().astype(int):
        shade = colormaps["Blues"](0.25 + 0.75 * k / (len(points) - 1))
        axis.plot(points[k, :, 0], points[k, :, 1], "-", color=shade, linewidth=1.5)
    axis.plot(points[-1, :, 0], points[-1, :, 1], "-o", color="black", linewidth=2.0, markersize=3, label="the end")
    axis.plot(*system.target[1:], "*", color="tab:red", markersize=12, label="target")
    axis.set(title=f"{system.title}, {times(swing.substeps)} a step", aspect="equal", xlabel="y [m]", ylabel="z [m]")
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)


def draw_controls(axis: Axes, found: SwingUp) -> None:
    """Draw the controls of the first swing within their bounds."""
    swing, system = found.swings[0], found.system
    moments = system.dt * np.arange(system.steps)
    for k, row in enumerate(swing.controls[:, 0].cpu().T):
        axis.step(moments, row, where="post", linewidth=1.0, label=f"motor {k}")
    for bound in (-system.limit, system.limit):
        axis.axhline(bound, color="gray", linestyle="--", linewidth=0.8)
    axis.set(title="controls", xlabel="time [s]", ylabel="force [N]" if "cart" in system.title else "torque [N·m]")
    axis.legend(fontsize=8, ncols=2)
    axis.grid(alpha=0.3)


def draw_energy(axis: Axes, found: SwingUp) -> None:
    """Draw the energy that was gained, what motors did, and the rest."""
    moments = found.system.dt * np.arange(found.system.steps + 1)
    for swing, color in zip(found.swings, COLORS):
        gained, work = (x[:, 0].cpu() for x in swing.energy)
        label = times(swing.substeps)
        axis.plot(moments, gained, color=color, label=f"{label}: gained")
        axis.plot(moments, work, color=color, linestyle="--", label=f"{label}: motors' work")
        axis.fill_between(moments, gained, work, color=color, alpha=0.15, label=f"{label}: numerical")
    axis.set(title="where the energy came from", xlabel="time [s]", ylabel="energy [J]")
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)
