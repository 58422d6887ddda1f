"""A part being printed, drawn by its temperatures: its surface as it grows, and a colour bar beside it."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

import numpy as np

from pullback.core.errors import PullbackError
from pullback.thermal.process import History, Process
from pullback.viewer.stage import Frame, Stage

SIDES = np.array([[0, 3, 2, 1], [4, 5, 6, 7], [0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7]])
"""The four corners of each side of a hexahedron, seen from outside."""
STEPS = 32
"""Pieces of the colour bar."""
TICKS = 5
"""Numbers beside the colour bar."""
PLAYED = 6.0
"""Seconds that a print takes when it is played, whatever it took."""


class PartDrawing(TypedDict, total=False):
    """What is drawn of a part: the options of `save_replay`, `save_video` and `view` for a process."""

    title: str
    limits: tuple[float, float] | None
    colors: str
    seconds: float


class Surface(NamedTuple):
    """Triangles of one moment: vertices (n, 3) [m], faces (m, 3), colours of the vertices (n, 3) of bytes."""

    vertices: np.ndarray
    faces: np.ndarray
    colors: np.ndarray


class PartShot:
    """The snapshots of a print ready to be drawn: times [s] (F,), and the part's surface in each."""

    def __init__(
        self,
        process: Process,
        history: History,
        *,
        title: str = "",
        limits: tuple[float, float] | None = None,
        colors: str = "inferno",
        seconds: float = PLAYED,
    ) -> None:
        if not isinstance(history, History):
            raise PullbackError(f"a process is drawn with its history, got {type(history).__name__}: process.run(...)")
        if not len(history.snapshot_steps):
            raise PullbackError(
                "the history has no snapshots; ask for them: process.run(..., snapshots=range(0, N, 50))"
            )
        self.process, self.title = process, title
        self.moments = history.times[history.snapshot_steps]
        self.values = history.snapshots.detach().cpu().double().numpy()
        growth = process.growth
        self.alive = [np.sort(growth.elements[: growth.elements_alive[step]]) for step in history.snapshot_steps]
        keep = [k for k, elements in enumerate(self.alive) if len(elements)]
        if not keep:
            raise PullbackError("no element exists at any of the snapshots; take some later ones")
        self.moments, self.values = self.moments[keep], self.values[keep]
        self.alive = [self.alive[k] for k in keep]
        # a print takes from milliseconds to hours: it is played in as long as one likes to look
        span = float(self.moments[-1] - self.moments[0])
        self.times = (self.moments - self.moments[0]) * (seconds / span if span > 0.0 else 0.0)
        self.limits = limits or self._limits()
        if not self.limits[0] < self.limits[1]:
            raise PullbackError(f"limits are {self.limits}; give the lowest and the highest temperature [K]")
        self.map = _color_map(colors)
        low, high = process.mesh.nodes.min(0), process.mesh.nodes.max(0)
        self.frame = Frame(0.5 * (low + high), 0.5 * float(np.linalg.norm(high - low)) + 1e-6)
        self.stage = Stage([], [0])

    def _limits(self) -> tuple[float, float]:
        """Return the lowest and the highest temperature of nodes that exist, rounded outwards to 10 K."""
        found = [values[np.unique(self.process.mesh.elements[e])] for values, e in zip(self.values, self.alive)]
        low, high = min(float(x.min()) for x in found), max(float(x.max()) for x in found)
        return 10.0 * np.floor(low / 10.0), max(10.0 * np.ceil(high / 10.0), 10.0 * np.floor(low / 10.0) + 10.0)

    def surface(self, k: int) -> Surface:
        """Return the outer sides of the elements that exist in frame k, coloured by temperature."""
        mesh = self.process.mesh
        sides = mesh.elements[self.alive[k]][:, SIDES].reshape(-1, 4)
        # a side that two elements share is inside
        _, first, count = np.unique(np.sort(sides, 1), axis=0, return_index=True, return_counts=True)
        outer = sides[first[count == 1]]
        nodes, place = np.unique(outer, return_inverse=True)
        corners = place.reshape(-1, 4)
        faces = np.concatenate([corners[:, [0, 1, 2]], corners[:, [0, 2, 3]]])
        return Surface(mesh.nodes[nodes], faces, self.color(self.values[k][nodes]))

    def color(self, values: np.ndarray) -> np.ndarray:
        """Return the colours (n, 3) of bytes of temperatures (n,)."""
        low, high = self.limits
        return (255.0 * self.map(np.clip((values - low) / (high - low), 0.0, 1.0))[:, :3]).round().astype(np.uint8)

    def bar(self) -> tuple[Surface, list[tuple[np.ndarray, str]]]:
        """Return the colour bar, standing to the right of the part, and its numbers with their places."""
        centre, radius = self.frame
        across = np.array([0.88, 0.48, 0.0])
        foot = centre + 1.25 * radius * across - np.array([0.0, 0.0, 0.7 * radius])
        heights = np.linspace(0.0, 1.4 * radius, STEPS + 1)
        left = foot + heights[:, None] * np.array([0.0, 0.0, 1.0])
        vertices = np.concatenate([left, left + 0.12 * radius * across])
        k = np.arange(STEPS)
        faces = np.concatenate(
            [np.stack([k, k + STEPS + 1, k + 1], 1), np.stack([k + 1, k + STEPS + 1, k + STEPS + 2], 1)]
        )
        temperatures = np.linspace(*self.limits, STEPS + 1)
        colors = np.tile(self.color(temperatures), (2, 1))
        ticks = []
        for share in np.linspace(0.0, 1.0, TICKS):
            place = foot + 0.2 * radius * across + share * 1.4 * radius * np.array([0.0, 0.0, 1.0])
            ticks.append((place, f"{self.limits[0] + share * (self.limits[1] - self.limits[0]):.0f} K"))
        return Surface(vertices, faces, colors), ticks

    def caption(self, k: int) -> list[str]:
        """Return the lines of text of a frame: title, time, and the hottest point."""
        hottest = self.values[k][np.unique(self.process.mesh.elements[self.alive[k]])].max()
        time = f"{self.moments[k]:.3g} s, hottest {hottest:.0f} K"
        return [line for line in (self.title, time) if line]


def _color_map(name: str) -> Any:
    import matplotlib

    try:
        return matplotlib.colormaps[name]
    except KeyError:
        raise PullbackError(f"no colours named {name!r}; give one of matplotlib's, such as 'inferno'") from None
