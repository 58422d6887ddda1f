"""Toolpaths made for a mesh: layers of parallel tracks, or of rings."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import numpy as np

from pullback.core.errors import PullbackError, refuse_unknown_options
from pullback.thermal.mesh import Mesh
from pullback.thermal.toolpath import Toolpath

if TYPE_CHECKING:
    from typing_extensions import Unpack

# every two corners of an element: a line meets the hull of the corners between the outermost of their connections
CORNER_PAIRS = np.array(np.triu_indices(8, 1))


class TravelOptions(TypedDict, total=False):
    """The last options of `layers`: travel_speed [m/s] of the beam when off, and `build`, the set that is printed."""

    travel_speed: float | None
    build: str


def layers(
    mesh: Mesh,
    speed: float,
    hatch: float | None = None,
    layer: float | None = None,
    dwell: float = 0.0,
    angle: float = 0.0,
    turn: float = 0.0,
    bidirectional: bool = True,
    inset: float = 0.0,
    **options: Unpack[TravelOptions],
) -> Toolpath:
    """Return a path that covers the build layer by layer with parallel tracks.

    Args:
        speed: of the lit beam [m/s].
        hatch: distance of neighbouring tracks [m], the tracks centred in the layer; one track in the middle where a
            layer is narrower than 1.5 of it. None: the median horizontal edge of the elements.
        layer: height of a layer [m], counted from the bottom of the build. None: the layers of the mesh.
        dwell: pause with the beam off between two layers [s], besides the time it takes to travel.
        angle: of the tracks of the first layer [degrees], 0 along x; turn: added with every layer, say 90 or 67.
        bidirectional: turn round after each track, and go on so in the next layer; otherwise all run the same way.
        inset: by how much tracks end before the edge of the part [m].
        travel_speed: of the beam when off [m/s]; None: the same.
        build: the set of elements that are printed, "build" by default.
    """
    refuse_unknown_options("layers", options, TravelOptions.__annotations__)
    travel_speed, build = options.get("travel_speed"), options.get("build", "build")
    hatch = _checked(mesh, speed, hatch, dwell, inset, travel_speed, build)
    path = _Writer(speed, travel_speed)
    backwards = False
    for number, (top, members) in enumerate(build_layers(mesh, layer, build)):
        if number:
            path.pause(dwell)
        corners = mesh.nodes[mesh.elements[members], :2]
        turned = np.deg2rad(angle + number * turn)
        for track in _tracks(corners, turned, hatch, inset):
            for piece in track[::-1, ::-1] if backwards else track:
                path.line(piece, top)
            backwards = bidirectional and not backwards
    return path.toolpath()


def rings(
    mesh: Mesh,
    speed: float,
    hatch: float | None = None,
    layer: float | None = None,
    dwell: float = 0.0,
    axis: tuple[float, float] = (0.0, 0.0),
    inset: float = 0.0,
    chord: float = 10.0,
    travel_speed: float | None = None,
    build: str = "build",
) -> Toolpath:
    """Return a path that covers a round build layer by layer with rings, from the outside in.

    Where a layer has a hole, or several, the rings leave it out. axis: x, y of the rings' centre [m]; chord: angle of
    the straight moves a ring is made of [degrees]; the other arguments are those of `layers`.
    """
    hatch = _checked(mesh, speed, hatch, dwell, inset, travel_speed, build)
    path = _Writer(speed, travel_speed)
    angles = np.linspace(-np.pi, np.pi, max(3, round(360 / chord)) + 1)
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for number, (top, members) in enumerate(build_layers(mesh, layer, build)):
        if number:
            path.pause(dwell)
        radius = np.linalg.norm(mesh.nodes[mesh.elements[members], :2] - np.asarray(axis), axis=2)
        for low, high in _joined(radius.min(axis=1), radius.max(axis=1))[::-1]:
            # nothing but the axis itself is nearer to it than the nodes of the innermost elements
            low, high = low + inset if low > 0.5 * hatch else 0.0, high - inset
            count = max(1, round((high - low) / hatch))
            for ring in (high - low) * (np.arange(count)[::-1] + 0.5) / count + low if high > low else ():
                path.line(axis + ring * around, top)
    return path.toolpath()


def build_layers(mesh: Mesh, layer: float | None = None, build: str = "build") -> list[tuple[float, np.ndarray]]:
    """Return the layers of a build from the bottom up: the height of the top [m] and the elements of each."""
    printed = mesh.element_set(build)
    low, high = (height[printed] for height in mesh.heights)
    if layer is None:
        # tops that differ by less than a thousandth of an element are one
        order = np.argsort(high, kind="stable")
        fresh = np.append(True, np.diff(high[order]) > 1e-3 * (high - low).min())
        group = np.empty(len(printed), dtype=np.int64)
        group[order] = np.cumsum(fresh) - 1
        tops = high[order][fresh]
    else:
        if not (np.isfinite(layer) and layer > 0):
            raise PullbackError(f"layer = {layer}; expected a positive height in metres")
        group = np.floor((0.5 * (low + high) - low.min()) / layer).astype(np.int64)
        tops = low.min() + layer * (np.arange(group.max() + 1) + 1)
    order = np.argsort(group, kind="stable")
    members = np.split(printed[order], np.searchsorted(group[order], np.arange(1, len(tops))))
    return [(float(top), index) for top, index in zip(tops, members) if len(index)]


class _Writer:
    """Collects rows (t, x, y, z, on)."""

    def __init__(self, speed: float, travel_speed: float | None) -> None:
        self.speed, self.travel_speed = speed, travel_speed or speed
        self.rows: list[tuple[float, float, float, float, float]] = []

    def pause(self, duration: float) -> None:
        """Wait where the beam is."""
        if duration > 0 and self.rows:
            t, x, y, z, _ = self.rows[-1]
            self.rows.append((t + duration, x, y, z, 0.0))

    def line(self, points: np.ndarray, z: float) -> None:
        """Travel to the first of the points (k, 2) and draw the line through the others."""
        self._go(points[0], z, False)
        for point in points[1:]:
            self._go(point, z, True)

    def toolpath(self) -> Toolpath:
        """Return what was collected."""
        if not self.rows:
            raise PullbackError("the inset leaves no track; take a smaller one")
        t, x, y, z, on = np.array(self.rows).T
        return Toolpath(t, x, y, z, on)

    def _go(self, point: np.ndarray, z: float, on: bool) -> None:
        x, y = map(float, point)
        if not self.rows:
            self.rows.append((0.0, x, y, z, 0.0))
            return
        t, *last, _ = self.rows[-1]
        length = float(np.linalg.norm(np.subtract((x, y, z), last)))
        if length > 0:
            self.rows.append((t + length / (self.speed if on else self.travel_speed), x, y, z, float(on)))


def _tracks(corners: np.ndarray, angle: float, hatch: float, inset: float) -> list[np.ndarray]:
    """Return the tracks across the elements with these corners (e, 8, 2), each as its pieces (k, 2, 2) in order."""
    along = np.array([np.cos(angle), np.sin(angle)])
    across = np.array([-along[1], along[0]])
    u, v = corners @ along, corners @ across
    low, high = v.min(), v.max()
    count = max(1, round((high - low) / hatch))
    # a hair off the middle, so that no track runs exactly along edges of elements
    first = 0.5 * (low + high) - 0.5 * hatch * (count - 1)
    hair = 1e-7 * hatch
    number, start, end = _chords(u, v - first - hair, hatch, count)
    out = []
    for track in np.split(np.arange(len(number)), np.flatnonzero(np.diff(number)) + 1):
        pieces = _joined(start[track], end[track]) + np.array([inset, -inset])
        pieces = pieces[pieces[:, 1] > pieces[:, 0]]
        if len(pieces):
            out.append(pieces[:, :, None] * along + (first + number[track[0]] * hatch) * across)
    return out


def _chords(u: np.ndarray, v: np.ndarray, hatch: float, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where the lines v = 0, hatch, 2 hatch, ... run inside the elements: number of the line, start and end.

    u, v (e, 8): corners of the elements; the chords are sorted by line.
    """
    low = np.clip(np.ceil(v.min(axis=1) / hatch), 0, count).astype(np.int64)
    high = np.clip(np.floor(v.max(axis=1) / hatch), -1, count - 1).astype(np.int64)
    times = np.maximum(high - low + 1, 0)
    element = np.repeat(np.arange(len(u)), times)
    line = low[element] + np.arange(len(element)) - np.repeat(np.cumsum(times) - times, times)
    start, end = np.full(len(element), np.inf), np.full(len(element), -np.inf)
    for a, b in CORNER_PAIRS.T:
        side_a, side_b = (v[element, corner] - line * hatch for corner in (a, b))
        crosses = (side_a * side_b <= 0) & (side_a != side_b)
        share = side_a / np.where(crosses, side_a - side_b, 1.0)
        at = u[element, a] + share * (u[element, b] - u[element, a])
        start = np.where(crosses, np.minimum(start, at), start)
        end = np.where(crosses, np.maximum(end, at), end)
    order = np.argsort(line, kind="stable")
    order = order[end[order] > start[order]]
    return line[order], start[order], end[order]


def _joined(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Merge intervals (k, 2) that touch or overlap."""
    order = np.argsort(start, kind="stable")
    tolerance = 1e-3 * np.median(end - start)
    start, end = start[order], np.maximum.accumulate(end[order])
    fresh = np.append(True, start[1:] > end[:-1] + tolerance)
    last = np.append(np.flatnonzero(fresh)[1:] - 1, len(end) - 1)
    return np.stack([start[fresh], end[last]], axis=1)


def _checked(mesh, speed, hatch, dwell, inset, travel_speed, build) -> float:
    """Return the distance of tracks; raise for a number out of range."""
    hatch = _median_horizontal_edge(mesh, mesh.element_set(build)) if hatch is None else hatch
    for name, value in (("speed", speed), ("hatch", hatch), ("travel_speed", travel_speed or speed)):
        if not (np.isfinite(value) and value > 0):
            raise PullbackError(f"{name} = {value}; expected a positive number (SI units)")
    for name, value in (("dwell", dwell), ("inset", inset)):
        if not (np.isfinite(value) and value >= 0):
            raise PullbackError(f"{name} = {value}; expected a number that is not negative (SI units)")
    return hatch


def _median_horizontal_edge(mesh: Mesh, elements: np.ndarray) -> float:
    """Return the median of the sides of squares as large as the elements are, seen from above [m]."""
    low, high = (height[elements] for height in mesh.heights)
    return float(np.sqrt(np.median(mesh.volumes[elements] / (high - low))))
