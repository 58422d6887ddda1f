"""The picture of pick-and-place: ways of hand and block, the grip, and the search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from pullback.rigid.sim import Sim
from pullback.rigid.state import State
from pullback.viewer.plots import draw_losses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pullback.tasks.pick_and_place import Placed, Scenes

EVERY = 5
"""Contact forces are looked at every so many steps."""


def draw(placed: Placed, sim: Sim, scenes: Scenes, path: Path) -> Path:
    """Draw the first scene from the front, all from above, what presses on the block, and the losses."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.0, 8.0), layout="constrained")
    axes = figure.subplot_mosaic([["top", "top", "side"], ["grip", "iterations", "seconds"]])
    draw_side(axes["side"], placed, sim)
    draw_top(axes["top"], placed, scenes)
    draw_grip(axes["grip"], placed, sim)
    for name in ("side", "top", "grip"):
        axes[name].legend(fontsize=8)
        axes[name].grid(alpha=0.3)
    draw_losses([axes["iterations"], axes["seconds"]], {x.name: x for x in placed.curves}, ylabel="lowest loss")
    figure.savefig(path, dpi=110)
    return path


def draw_side(axis: Axes, placed: Placed, sim: Sim) -> None:
    """Draw the ways of hand and block of the first scene, looking along x."""
    q = placed.motion.q[:, 0]
    robot = sim.world.robots["arm"].to(dtype=q.dtype, device=q.device)
    with torch.no_grad():
        hand = robot.compute_forward_kinematics(q[:, :8].contiguous(), "panda_hand_tcp")[0].cpu()
    block = q[:, 9:12].cpu()
    axis.plot(hand[:, 1], hand[:, 2], color="tab:blue", linewidth=1.0, label="hand")
    axis.plot(block[:, 1], block[:, 2], color="tab:orange", label="block")
    axis.set(title="scene 0 from the front", aspect="equal", xlabel="y [m]", ylabel="z [m]")


def draw_top(axis: Axes, placed: Placed, scenes: Scenes) -> None:
    """Draw the ways of all blocks from above, with their starts, goals and ends."""
    for k in range(placed.motion.q.shape[1]):
        way = placed.motion.q[:, k, 9:11].cpu()
        axis.plot(way[:, 1], way[:, 0], color="tab:orange", linewidth=0.8, label="way of a block" if k == 0 else None)
        _square(axis, scenes.start[k], scenes.start_turn[k], "gray", "start" if k == 0 else None)
        _square(axis, scenes.goal[k], scenes.goal_turn[k], "tab:red", "goal" if k == 0 else None)
        x, y, z, w = placed.motion.q[-1, k, 12:16].tolist()
        turn = torch.tensor(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))
        _square(axis, placed.motion.q[-1, k, 9:12], turn, "black", "end" if k == 0 else None)
    axis.set(title="from above", aspect="equal", xlabel="y [m]", ylabel="x [m]")


def _square(axis: Axes, centre: torch.Tensor, turn: torch.Tensor, color: str, label: str | None) -> None:
    """Draw a block's outline."""
    angles = turn.item() + np.pi / 4 + np.pi / 2 * np.arange(5)
    x, y = centre[:2].tolist()
    reach = 0.02 * np.sqrt(2.0)
    axis.plot(y + reach * np.sin(angles), x + reach * np.cos(angles), color=color, linewidth=1.2, label=label)


def draw_grip(axis: Axes, placed: Placed, sim: Sim) -> None:
    """Draw what the fingers and the table push the block of the first scene with."""
    q, qd, u = placed.motion.q[:-1:EVERY, 0], placed.motion.qd[:-1:EVERY, 0], placed.controls[::EVERY, 0]
    names = {"arm/panda_leftfinger/0": "left finger", "arm/panda_rightfinger/0": "right finger", "ground": "table"}
    forces = {name: np.zeros(len(q)) for name in names.values()}
    for moment, contacts in enumerate(sim.contacts(State(q.contiguous(), qd.contiguous()), u.contiguous())):
        for contact in contacts:
            if "block" in contact.shapes:
                other = contact.shapes[contact.shapes[0] == "block"]
                forces[names[other]][moment] += abs(float(np.dot(contact.force, contact.normal)))
    times = sim.dt * EVERY * np.arange(len(q))
    for (name, values), style in zip(forces.items(), ("-", "--", "-")):
        axis.plot(times, values, style, linewidth=1.0, label=name)
    axis.set(title="what presses on the block of scene 0", xlabel="time [s]", ylabel="normal force [N]")
