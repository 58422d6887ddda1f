"""Meshes of closed surfaces: the cells of a grid whose middle is inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pullback.core.errors import PullbackError
from pullback.sdf.mesh_file import read_surface
from pullback.thermal.mesh import Mesh
from pullback.thermal.solids import Triple, on_plate, positive_lengths


def voxelize(
    surface: str | Path | Any,
    cell: float | Triple,
    plate: Triple | tuple[float, float] | None = None,
    plate_cell: float | Triple | None = None,
    unit: float = 1.0,
    growth: float = 1.5,
) -> Mesh:
    """Return the solid inside a closed surface as equal cells, standing on a plate if there is one.

    The solid is moved so that its lowest point is at z = 0 and its middle at x = y = 0.

    Args:
        surface: a file that trimesh reads (.stl, .ply, .obj, ...), or a trimesh.Trimesh.
        cell: edges of the cells [m], adjusted to divide the size of the solid.
        plate: (x, y, thickness) of a rectangular plate, or (diameter, thickness) of a disc [m].
        plate_cell, growth: the grading of the plate, as in `solid`.
        unit: metres in one unit of length of the file (1e-3: millimetres).
    """
    name, triangles = _triangles(surface)
    triangles = triangles * unit
    low, high = triangles.min(axis=(0, 1)), triangles.max(axis=(0, 1))
    triangles = triangles - [*(0.5 * (low + high)[:2]), low[2]]
    size = high - low
    edges = positive_lengths(cell, "cell")
    counts = np.maximum(1, np.round(size / edges)).astype(int)
    if counts.prod() > 500_000_000:
        span = " × ".join(f"{s:g}" for s in size)
        raise PullbackError(f"{name} spans {span} m: {counts.prod():,} cells of {edges} m. Is unit= right?")
    x, y, z = (np.linspace(-s / 2, s / 2, n + 1) for s, n in zip(size, counts))
    z = z + size[2] / 2
    inside = _inside(triangles, *(0.5 * (line[1:] + line[:-1]) for line in (x, y, z)))
    return on_plate(x, y, z, inside, plate, plate_cell, growth)


def _triangles(surface: str | Path | Any) -> tuple[str, np.ndarray]:
    """Return a name and the corners (f, 3, 3) of a closed surface's triangles, turned outwards."""
    import trimesh

    name = "the surface"
    if isinstance(surface, str | Path):
        name = str(surface)
        surface = read_surface(surface)
    if not isinstance(surface, trimesh.Trimesh) or not len(surface.faces):
        raise PullbackError(f"{name} has no triangles ({type(surface).__name__})")
    if not surface.is_watertight:
        edges, counts = np.unique(surface.edges_sorted, axis=0, return_counts=True)
        bad = edges[counts != 2]
        where = "" if not len(bad) else f": {len(bad)} open edges, one at {surface.vertices[bad[0]].mean(axis=0)}"
        raise PullbackError(f"{name} is not closed, so nothing is inside it{where}; repair it first")
    if surface.volume < 0:
        return name, np.asarray(surface.triangles)[:, ::-1]
    return name, np.asarray(surface.triangles)


def _inside(triangles: np.ndarray, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return which points of a grid are inside: where upright lines have entered more often than left.

    Each triangle is crossed by the lines through the columns of cells under it, downwards where the line enters.
    """
    step = np.array([_spacing(x), _spacing(y)])
    # a little off the middle, so that lines do not hit edges of triangles
    start = np.array([x[0], y[0]]) + step * [1.3e-6, 2.1e-6]
    shape = (len(x), len(y))
    flat = triangles[:, :, :2]
    first = np.clip(np.ceil((flat.min(axis=1) - start) / step), 0, shape).astype(np.int64)
    last = np.clip(np.floor((flat.max(axis=1) - start) / step), -1, np.subtract(shape, 1)).astype(np.int64)
    spans = np.maximum(last - first + 1, 0)
    count = spans.prod(axis=1)
    crossings = np.zeros((*shape, len(z) + 1), dtype=np.int32)
    bounds = np.searchsorted(np.cumsum(count), np.arange(0, count.sum() + 1, 2_000_000)[1:]) + 1
    for part in np.split(np.arange(len(triangles)), np.unique(np.minimum(bounds, len(triangles)))):
        which = np.repeat(part, count[part])
        within = np.arange(len(which)) - np.repeat(np.cumsum(count[part]) - count[part], count[part])
        i = first[which, 0] + within // np.maximum(spans[which, 1], 1)
        j = first[which, 1] + within % np.maximum(spans[which, 1], 1)
        point = start + step * np.stack([i, j], axis=1)
        a, b, c = (triangles[which, corner] for corner in range(3))
        # barycentric coordinates, seen from above
        area = _cross(b - a, c - a)
        safe = np.where(area == 0, 1.0, area)
        u, v = _cross(c - b, point - b[:, :2]) / safe, _cross(a - c, point - c[:, :2]) / safe
        hit = (area != 0) & (u >= 0) & (v >= 0) & (u + v <= 1)
        height = u * a[:, 2] + v * b[:, 2] + (1 - u - v) * c[:, 2]
        level = np.searchsorted(z, height[hit])
        # a face that looks down is entered from below
        np.add.at(crossings, (i[hit], j[hit], level), np.where(area[hit] < 0, 1, -1))
    return np.cumsum(crossings, axis=2)[:, :, :-1] > 0


def _spacing(line: np.ndarray) -> float:
    return float(line[1] - line[0]) if len(line) > 1 else 1.0


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
