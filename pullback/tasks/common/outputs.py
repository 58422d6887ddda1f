"""Output files of tasks: arrays (.npz), picture (.png) and replay (.html)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape

from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim
from pullback.rigid.state import Trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tensor = torch.Tensor


def write_arrays(path: Path, **arrays: Any) -> Path:
    """Write arrays by their names; return the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain: dict[str, Any] = {
        name: x.detach().cpu().numpy() if isinstance(x, Tensor) else x for name, x in arrays.items()
    }
    np.savez_compressed(path, **plain)
    return path


def write_motion(path: Path, sim: Sim, motion: Trajectory, controls: Tensor, **arrays: Any) -> Path:
    """Write q, qd and dt of the first world, its controls (T, nu) as u, and further arrays; return the file."""
    return write_arrays(path, q=motion.q[:, 0], qd=motion.qd[:, 0], u=controls, dt=sim.dt, **arrays)


def write_figure(figure: Figure, path: Path, dpi: int = 120) -> Path:
    """Write a picture; return the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    return path


def write_replay(sim: Sim, motion: Trajectory, path: Path, console: Console, **options: Any) -> Path | None:
    """Write the replay with options of `pullback.viewer.save_replay`; print why if there is none."""
    from pullback.viewer import save_replay

    try:
        return save_replay(sim, motion, path, **options)
    except PullbackError as error:
        console.print(f"no replay: {escape(str(error))}")
        return None


def print_files(console: Console, **files: Path | None) -> None:
    """Print one line for each file that was written."""
    for name, path in files.items():
        if path is not None:
            console.print(f"{name}: {path}")


def cross(point: Sequence[float], half: float = 0.04) -> Tensor:
    """Return a line (n, 3) that draws a cross at a point, for a replay."""
    centre = torch.tensor(point, dtype=torch.float64)
    arms = [centre + sign * half * axis for axis in torch.eye(3, dtype=torch.float64) for sign in (-1, 1, 0)]
    return torch.stack(arms)
