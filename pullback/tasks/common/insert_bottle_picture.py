"""The picture of `pullback run insert-bottle`: how it was learned, how close it came, and what a motion looks like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pullback.learn.envs.insert_bottle import CLEARANCE, DEPTH, LENGTH, RADIUS, WALL, arm
from pullback.robot.load import load
from pullback.tasks.common.outputs import write_figure

if TYPE_CHECKING:
    from pullback.tasks.insert_bottle import Inserted, Trial

MOTIONS = 12
"""Motions that are drawn."""
COLORS = {"static": "tab:blue", "moving": "tab:orange"}


def draw(found: Inserted, path: Path) -> Path:
    """Draw loss by step, errors of all targets, and the way of the bottle's foot into the socket."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 9), layout="constrained")
    axes = figure.subplot_mosaic("ABC;DDE")
    _draw_loss(axes["A"], found)
    _draw_success(axes["B"], found)
    _draw_errors(axes["C"], found)
    _draw_ways(axes["D"], found)
    if found.shorter:
        _draw_horizons(axes["E"], found)
    else:
        _draw_joints(axes["E"], found.trials["static"])
    return write_figure(figure, path)


def _draw_loss(axis: Any, found: Inserted) -> None:
    axis.semilogy([r.steps for r in found.history], [r.loss for r in found.history], linewidth=0.8)
    axis.set(title="learning by the simulation's gradient", xlabel="steps of 10 ms", ylabel="loss of an episode")
    axis.grid(alpha=0.3)


def _draw_success(axis: Any, found: Inserted) -> None:
    """Draw which part of the watched targets was reached during training, by steps."""
    for label, history, style in (("gradient", found.history, "o-"), ("PPO", found.ppo, "s--")):
        looks = [(r.steps, r.score) for r in history if r.score == r.score]
        if looks:
            axis.plot(*zip(*looks), style, markersize=3, linewidth=0.8, label=label)
    axis.set(title="success in training, with contact", xlabel="steps of 10 ms", ylabel="part of 64 targets")
    axis.set(ylim=(0.0, 1.02))
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)


def _draw_errors(axis: Any, found: Inserted) -> None:
    """Draw which part of the targets is within a distance."""
    for name, trial in found.trials.items():
        kind = name.split(",")[0]
        style = "--" if "PPO" in name else (":" if "noise" in name else "-")
        distance = np.sort(1e3 * trial.distance.cpu().numpy())
        axis.semilogx(distance, np.linspace(0, 1, len(distance)), style, color=COLORS[kind], label=name)
    axis.axvline(1.0, color="tab:red", linewidth=0.8)
    axis.set(title="how close the bottle comes", xlabel="distance at the end [mm]", ylabel="part of the targets")
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)


def _draw_horizons(axis: Any, found: Inserted) -> None:
    """Draw success and joint speed by the length of the motion."""
    trials = {30: {name: found.trials[name] for name in COLORS}, **found.shorter}
    lengths = sorted(trials)
    for name, color in COLORS.items():
        axis.plot([10 * n for n in lengths], [trials[n][name].rate for n in lengths], "o-", color=color, label=name)
    fastest = [max(trials[n][name].haste.quantile(0.95).item() for name in COLORS) for n in lengths]
    axis.plot([10 * n for n in lengths], fastest, "s--", color="0.5", label="joint speed over its limit (95 %)")
    axis.axhline(1.0, color="tab:red", linewidth=0.8)
    axis.set(title="shorter motions", xlabel="time for the motion [ms]", ylabel="part of the targets", ylim=(0, 1.6))
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)


def foot_way(trial: Trial) -> torch.Tensor:
    """Return the way (T, N, 3) of the bottle's foot, as seen from the target."""
    robot = load(arm(), dtype=trial.motion.q.dtype)
    q = trial.motion.q.cpu()
    with torch.no_grad():
        position, _ = robot.compute_forward_kinematics(q[..., :6].flatten(0, 1), "bottle")
    return position.view(*q.shape[:2], 3) - q[..., 6:9]


def _draw_ways(axis: Any, found: Inserted) -> None:
    """Draw the bottle's foot from the side, as seen from the socket, with its walls and the bottle at the end."""
    inner = 1e3 * (RADIUS + CLEARANCE)
    for side in (-1, 1):
        edges = sorted((side * inner, side * (inner + 1e3 * WALL)))
        axis.fill_between(edges, -2.0, 1e3 * DEPTH, color="0.85")
    for name, color in COLORS.items():
        way = 1e3 * foot_way(found.trials[name])[:, :MOTIONS].numpy()
        axis.plot(way[:, :, 1], way[:, :, 2], color=color, linewidth=0.8)
        axis.plot([], [], color=color, label=f"{name}: way of the foot's middle")
    height = min(1e3 * LENGTH, 120.0)
    axis.plot(
        [-1e3 * RADIUS] * 2 + [1e3 * RADIUS] * 2, [height, 0, 0, height], color="0.3", label="the bottle at the end"
    )
    axis.set(title="from the side, as seen from the socket", xlabel="y [mm]", ylabel="z [mm]", aspect="equal")
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)


def _draw_joints(axis: Any, trial: Trial) -> None:
    """Draw the joint velocities of the first motion."""
    rates = trial.motion.qd[:, 0, :6].cpu()
    time = 0.3 * np.linspace(0, 1, len(rates))
    for number, rate in enumerate(rates.T):
        axis.plot(time, rate, label=f"joint {number + 1}")
    axis.set(title="joint velocities of one motion", xlabel="time [s]", ylabel="[rad/s]")
    axis.legend(fontsize=7)
    axis.grid(alpha=0.3)
