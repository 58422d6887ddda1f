"""The laser of a process: from power, positions and sizes of its beam to the heat of every node in every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.thermal.part import Beam
from pullback.thermal.source import CUTOFF, BeamWeights, Gaussian, Goldak, cells_of, find_spot
from pullback.thermal.toolpath import Toolpath

if TYPE_CHECKING:
    from pullback.thermal.process import Process

Tensor = torch.Tensor

SIZES = {Gaussian: ("radius",), Goldak: ("front", "back", "width", "depth")}

SLACK = 0.5
"""How far the beam may move, relative to its largest size, before the cells it heats are searched again."""

ROUNDING = 1e-3
"""A move below this, relative to its largest size, is rounding."""


class Laser:
    """A source moving along its path; in each step it is where the path has it at half time.

    positions (N, 3) [m], on (N,), directions (N, 3): of each step.
    """

    def __init__(self, process: Process, path: Toolpath, source: Gaussian | Goldak) -> None:
        self.process, self.path, self.source = process, path, source
        self.parameters = ("absorptivity", "positions", *SIZES[type(source)])
        self.positions, self.on, self.directions = path.at(process.times[:-1] + 0.5 * process.dt)
        self.cells = cells_of(source, process.mesh, process.births, process.faces, process.dt, process.steps)
        self._look_up(self.positions, max(source.sizes), slack=0.0)

    def heat(self, power: Any, parameters: Mapping[str, Any]) -> tuple[Tensor, Beam]:
        """Return the absorbed power [W] of every entry, and the entries."""
        process, source = self.process, self.source
        watts = self._power(0.0 if power is None else power)
        sizes = [process.scalar(parameters.get(n, getattr(source, n)), n) for n in SIZES[type(source)]]
        size = torch.cat(sizes) if len(sizes) == 4 else sizes[0].expand(4)
        if not bool((size > 0).all()):
            raise PullbackError(f"the beam's size is {size.tolist()} m; expected positive numbers")
        positions = process.tensor(parameters.get("positions", self.positions), "positions")
        if positions.shape != (process.steps, 3):
            raise PullbackError(
                f"positions have shape {tuple(positions.shape)}; expected ({process.steps}, 3), one a step"
            )
        self._follow(positions.detach().cpu().double().numpy(), float(size.detach().max()))
        share = self.weights(positions[self.lit], size)
        absorptivity = process.scalar(parameters.get("absorptivity", source.absorptivity), "absorptivity")
        return absorptivity * watts[self.entry_step] * share, self.beam

    def positions_at(self, speed: Tensor) -> Tensor:
        """Return where the beam is in each step (N, 3) [m] if it goes `speed` times as fast, (N,) or one number."""
        process = self.process
        travelled = process.dt * speed.expand(process.steps)
        time = torch.cumsum(travelled, 0) - 0.5 * travelled
        t, points = (process.put(x, process.dtype) for x in (self.path.t.copy(), self.path.points.copy()))
        row = torch.searchsorted(t, time.detach().contiguous()).clamp(1, len(t) - 1)
        share = ((time - t[row - 1]) / (t[row] - t[row - 1])).clamp(0.0, 1.0)
        return points[row - 1] + share[:, None] * (points[row] - points[row - 1])

    def _follow(self, positions: np.ndarray, largest: float) -> None:
        """Search the cells again if the beam has moved or grown too much."""
        moved = np.linalg.norm(positions - self.known_positions, axis=1)[self.on].max(initial=0.0)
        growth = (largest - self.known_size) * np.sqrt(CUTOFF / self.source.factor)
        if moved + max(growth, 0.0) > self.slack:
            self._look_up(positions, max(largest, max(self.source.sizes)), slack=SLACK * largest)

    def _look_up(self, positions: np.ndarray, largest: float, slack: float) -> None:
        """Find which cells and nodes the beam heats at each step, and would if it moved by the slack [m]."""
        process, source = self.process, self.source
        reach = slack + largest * np.sqrt(CUTOFF / source.factor)
        self.slack = slack + ROUNDING * largest
        spot = find_spot(self.cells, reach, positions, self.on, process.mesh, self._where)
        self.known_positions, self.known_size = positions.copy(), largest
        self.weights = BeamWeights(source, self.cells, spot, self.directions, process.dtype, process.device)
        counts = np.diff(spot.entry_starts)
        starts = np.zeros(process.steps + 1, dtype=np.int64)
        starts[spot.lit + 1] = counts
        self.entry_step = process.put(np.repeat(spot.lit, counts), torch.int64)
        self.lit = process.put(spot.lit, torch.int64)
        self.beam = Beam(np.cumsum(starts), process.put(process.growth.rank[spot.nodes], torch.int32))

    def _where(self, step: int) -> str:
        time = self.process.times[step] + 0.5 * self.process.dt
        row = int(np.clip(np.searchsorted(self.path.t, time), 1, len(self.path.t) - 1))
        return f"step {step} ({time:.6g} s, on the way to row {row} of the toolpath)"

    def _power(self, power: Any) -> Tensor:
        """Return the power [W] of each step (N,), checked."""
        steps = self.process.steps
        x = self.process.as_tensor(power)
        if x.ndim == 0:
            x = x.expand(steps)
        if x.shape != (steps,):
            raise PullbackError(f"power has shape {tuple(x.shape)}; expected ({steps},), one number [W] a step")
        values = x.detach().cpu().numpy()
        bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
        if len(bad):
            raise PullbackError(
                f"power is {values[bad[0]]:g} W in step {bad[0]}, {len(bad)} such steps in all; expected finite "
                f"numbers, 0 or more"
            )
        return x
