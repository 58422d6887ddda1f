"""Where the beam is at any time, and whether it is lit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pullback.core.errors import PullbackError, shortened
from pullback.core.files import naming, read_lines


@dataclass(frozen=True, eq=False)
class Toolpath:
    """A broken line through (x, y, z) at times t; the move from row k−1 to row k is lit where on[k].

    Args:
        t: (rows,) times [s], strictly increasing.
        x, y, z: (rows,) positions of the beam [m]; z is the height of the top of the layer it makes.
        on: (rows,) whether the beam is lit on the way to this row; the first entry means nothing.
    """

    t: np.ndarray
    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    on: np.ndarray

    def __post_init__(self) -> None:
        for name in ("t", "x", "y", "z", "on"):
            column = np.array(getattr(self, name))
            if column.ndim != 1 or len(column) != len(np.atleast_1d(self.t)):
                raise PullbackError(f"column {name} of the toolpath has shape {column.shape}; expected one entry a row")
            values = column.astype(np.float64)
            bad = np.flatnonzero(~np.isfinite(values))
            if len(bad):
                raise PullbackError(f"row {bad[0]} of the toolpath has {name} = {values[bad[0]]}: not a finite number")
            column = values > 0 if name == "on" else values
            column.flags.writeable = False
            object.__setattr__(self, name, column)
        if len(self.t) < 2:
            raise PullbackError(f"the toolpath has {len(self.t)} rows; it takes two to make a move")
        bad = np.flatnonzero(np.diff(self.t) <= 0)
        if len(bad):
            row = bad[0] + 1
            raise PullbackError(
                f"row {row} of the toolpath has t = {self.t[row]:g} s after {self.t[row - 1]:g} s; times must increase"
            )

    @cached_property
    def points(self) -> np.ndarray:
        """Return the positions of the rows, (rows, 3) [m]."""
        return np.stack([self.x, self.y, self.z], axis=1)

    @property
    def duration(self) -> float:
        """Return the time of the last row [s]."""
        return float(self.t[-1])

    @property
    def lit_time(self) -> float:
        """Return how long the beam is lit in all [s]."""
        return float(np.diff(self.t)[self.on[1:]].sum())

    @property
    def lit_rows(self) -> np.ndarray:
        """Return the rows whose move is lit."""
        return np.flatnonzero(self.on[1:]) + 1

    @cached_property
    def directions(self) -> np.ndarray:
        """Return the unit vector of each move, (rows − 1, 3); a pause keeps the one before (at first: after) it."""
        moves = np.diff(self.points, axis=0)
        lengths = np.linalg.norm(moves, axis=1)
        moving = np.flatnonzero(lengths > 0)
        if not len(moving):
            return np.tile([1.0, 0.0, 0.0], (len(moves), 1))
        latest = np.maximum.accumulate(np.where(lengths > 0, np.arange(len(moves)), moving[0]))
        return moves[latest] / lengths[latest, None]

    def at(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return position (N, 3) [m], whether lit (N,), and unit direction of travel (N, 3) at times (N,) [s].

        At the very time of a row the move that ends there counts. Before the first row and after the last the beam
        rests there, not lit.
        """
        times = np.atleast_1d(np.asarray(times, dtype=np.float64))
        position = np.stack([np.interp(times, self.t, column) for column in (self.x, self.y, self.z)], axis=1)
        row = np.clip(np.searchsorted(self.t, times, side="left"), 1, len(self.t) - 1)
        on = self.on[row] & (times > self.t[0]) & (times <= self.t[-1])
        return position, on, self.directions[row - 1]

    def shifted(self, offset: tuple[float, float, float] = (0.0, 0.0, 0.0), delay: float = 0.0) -> Toolpath:
        """Return the same path moved by an offset [m] and started later by a delay [s]."""
        x, y, z = (self.points + np.asarray(offset, dtype=np.float64)).T
        return Toolpath(self.t + delay, x, y, z, self.on)

    def summary(self) -> str:
        """Return one line of text: rows, times, extent."""
        low, high = self.points.min(axis=0) * 1e3, self.points.max(axis=0) * 1e3
        size = " × ".join(f"{a:.4g}..{b:.4g}" for a, b in zip(low, high))
        return f"{len(self.t):,} rows, ends at {self.duration:.6g} s, lit for {self.lit_time:.6g} s, {size} mm"


def read_toolpath(path: str | Path, unit: float = 1.0) -> Toolpath:
    """Return the toolpath of a table with the columns t [s], x, y, z, on, separated by commas, semicolons or blanks.

    Lines that are empty or start with # are skipped, and so is one line of column names at the top. unit: metres in
    one unit of length of the file (1e-3: millimetres). A row that does not fit is an error with its line number.
    """
    rows: list[list[float]] = []
    lines: list[int] = []
    for number, line in enumerate(read_lines(path), start=1):
        words = line.split("#")[0].replace(",", " ").replace(";", " ").split()
        if not words:
            continue
        try:
            row = [float(word) for word in words]
        except ValueError:
            if not rows and not any(is_number(word) for word in words):
                continue
            raise PullbackError(
                f"{path}, line {number}: {shortened(line.strip())!r} is no row of numbers; expected t, x, y, z, on"
            ) from None
        if len(row) != 5:
            raise PullbackError(f"{path}, line {number}: {len(row)} columns; expected t, x, y, z, on")
        if rows and row[0] <= rows[-1][0]:
            raise PullbackError(f"{path}, line {number}: t = {row[0]:g} s after {rows[-1][0]:g} s; times must increase")
        rows.append(row)
        lines.append(number)
    if len(rows) < 2:
        raise PullbackError(f"{path} has {len(rows)} rows of numbers; a toolpath takes at least two")
    table = np.array(rows)
    bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(bad):
        raise PullbackError(f"{path}, line {lines[bad[0]]}: a number that is not finite")
    t, x, y, z, on = table.T
    with naming(path):
        return Toolpath(t, x * unit, y * unit, z * unit, on)


def is_number(word: str) -> bool:
    """Return whether a word is a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True
