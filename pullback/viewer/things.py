"""What is seen beside the stage: lines, arrows, particles, sheets and ropes.

Each thing says what is to be drawn in a frame, in a few forms that `scene.py` draws in browsers and `painter.py` in
videos.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.description.visuals import Color
from pullback.viewer.motion import Forces
from pullback.viewer.stage import round_down

Tensor = torch.Tensor
Times = Sequence[float] | np.ndarray
Places = Tensor | np.ndarray

FORCE: Color = (190, 0, 20)
GRADIENT: Color = (20, 110, 60)
PATHS: tuple[Color, ...] = ((232, 130, 52), (30, 120, 220), (60, 160, 80), (160, 60, 160))
CLOUD: tuple[Color, Color] = ((200, 60, 90), (250, 190, 90))
SKIN: Color = (96, 132, 190)
WEAKEST = 0.02
"""Arrows below this share of the usual ones are not drawn."""
LONGEST = 0.6
"""Length of the longest arrow, as a share of the stage's radius."""


class Segments(NamedTuple):
    """Starts and ends (n, 2, 3) [m], their colour, and the length of their heads [m]: 0 for plain lines.

    width: that of plain lines in browsers, as a share of the frame's radius.
    """

    points: np.ndarray
    color: Color
    head: float = 0.0
    width: float = 0.006


class Dots(NamedTuple):
    """Points (n, 3) [m], their colours (n, 3), and their width [m]."""

    points: np.ndarray
    colors: np.ndarray
    size: float


class Web(NamedTuple):
    """Points (n, 3) [m], triangles (m, 3) between them, their edges (e, 2), and their colour."""

    points: np.ndarray
    faces: np.ndarray
    edges: np.ndarray
    color: Color


Drawn = Segments | Dots | Web


class Thing(Protocol):
    """Something to see: its name, a line of text about it or none, and what to draw in each frame."""

    name: str
    legend: str

    def at(self, k: int) -> Drawn:
        """Return what is drawn in frame k, the same object where nothing changed."""
        ...


class Line:
    """A line through points (n, 3) [m]; `number` chooses its colour."""

    legend = ""

    def __init__(self, name: str, points: np.ndarray, number: int) -> None:
        self.name = name
        self.segments = Segments(np.stack([points[:-1], points[1:]], 1), PATHS[number % len(PATHS)])

    def at(self, k: int) -> Segments:
        """Return the line, which is the same in all frames."""
        return self.segments


class Arrows:
    """Vectors as arrows, all of one scale: three of four are shorter than a third of the stage's radius."""

    def __init__(self, name: str, unit: str, color: Color, radius: float) -> None:
        self.name, self.unit, self.color, self.radius = name, unit, color, radius
        self.head = 0.05 * radius
        self.scale = 0.0
        self.legend = ""
        self.moments: Sequence[Forces] = ()

    def fit(self, moments: Sequence[Forces]) -> bool:
        """Take what is to be drawn, and choose the scale by it; return whether there is anything."""
        self.moments = moments
        sizes = np.concatenate([np.zeros(0), *(np.linalg.norm(m.forces, axis=1) for m in moments)])
        sizes = sizes[np.isfinite(sizes) & (sizes > 0.0)]
        if not len(sizes):
            return False
        usual = float(np.quantile(sizes, 0.75))
        # a round number to a decimetre
        number = round_down(0.3 * usual / self.radius)
        self.weakest = WEAKEST * usual
        self.scale = 0.1 / number
        self.legend = f"{self.name}: {number:g}{self.unit} are 0.1 m"
        return True

    def at(self, k: int) -> Segments:
        """Return the arrows of a frame."""
        return self.drawn(self.moments[k])

    def drawn(self, drawn: Forces) -> Segments:
        """Return the arrows of a moment; those that are too small to see are left out."""
        sizes = np.linalg.norm(drawn.forces, axis=1)
        seen = np.isfinite(sizes) & (sizes > self.weakest) if self.scale else np.zeros(len(sizes), bool)
        lengths = np.clip(self.scale * sizes[seen], self.head, LONGEST * self.radius)[:, None]
        reach = lengths * drawn.forces[seen] / sizes[seen][:, None]
        ends = np.stack([drawn.points[seen], drawn.points[seen] + reach], 1).astype(np.float32)
        return Segments(ends, self.color, self.head)


class Cloud:
    """Material points in time, coloured by their height at the start so that one sees them move."""

    name, legend = "particles", ""

    def __init__(self, frames: np.ndarray, times: Times, points: Places) -> None:
        x = points.detach().cpu().numpy() if isinstance(points, Tensor) else np.asarray(points)
        given, self.points = np.asarray(times, dtype=np.float64), x.astype(np.float32)
        if x.ndim != 3 or x.shape[-1] != 3 or x.shape[:1] != given.shape or not x.size:
            raise PullbackError(f"particles are times {given.shape} and places {x.shape}; expected (S,) and (S, n, 3)")
        self.nearest = [int(np.abs(given - time).argmin()) for time in frames]
        low, high = x[0].min(0), x[0].max(0)
        share = ((x[0, :, 2] - low[2]) / max(high[2] - low[2], 1e-9))[:, None]
        self.colors = (np.array(CLOUD[0]) * (1.0 - share) + np.array(CLOUD[1]) * share).astype(np.uint8)
        self.size = 0.5 * float(np.prod(np.maximum(high - low, 1e-9)) / x.shape[1]) ** (1.0 / 3.0)

    def at(self, k: int) -> Drawn:
        """Return the points at the time nearest to that of a frame."""
        return Dots(self.points[self.nearest[k]], self.colors, self.size)


class Skin(Cloud):
    """A mesh that deforms in time: triangles (m, 3), or segments (m, 2) of ropes, between points."""

    def __init__(self, frames: np.ndarray, times: Times, points: Places, elements: np.ndarray) -> None:
        super().__init__(frames, times, points)
        self.elements = np.asarray(elements, dtype=np.int64)
        if self.elements.ndim != 2 or self.elements.shape[1] not in (2, 3) or not len(self.elements):
            raise PullbackError(
                f"elements of a sheet are {self.elements.shape}; expected triangles (m, 3) or segments (m, 2)"
            )
        if self.elements.min() < 0 or self.elements.max() >= self.points.shape[1]:
            raise PullbackError(f"a sheet has an element with a vertex that is not among its {self.points.shape[1]}")
        self.name = "rope" if self.elements.shape[1] == 2 else "sheet"
        ends = np.concatenate([np.stack([a, b], 1) for a, b in zip(self.elements.T, np.roll(self.elements, -1, 1).T)])
        self.edges = np.unique(np.sort(ends, 1), axis=0)

    def at(self, k: int) -> Drawn:
        """Return the mesh at the time nearest to that of a frame."""
        points = self.points[self.nearest[k]]
        if self.name == "rope":
            return Segments(points[self.elements], SKIN, width=0.01)
        return Web(points, self.elements, self.edges, SKIN)


def points_of(given: str | Tensor | np.ndarray) -> np.ndarray:
    """Return the points (n, 3) of a path that is given by them."""
    points = given.detach().cpu().double().numpy() if isinstance(given, Tensor) else np.asarray(given, float)
    if points.ndim != 2 or points.shape[1] != 3 or len(points) < 2:
        raise PullbackError(f"a path has shape {points.shape}; expected points (n, 3), or the name of what moves")
    return points
