"""Meshes of simple solids on a plate. The plate's top is at z = 0; sets: "build", "plate", nodes "bottom"."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pullback.core.errors import PullbackError
from pullback.thermal.mesh import Mesh, compacted

Triple = tuple[float, float, float]


def box(size: Triple, cell: float | Triple, origin: Triple = (0.0, 0.0, 0.0)) -> Mesh:
    """Return a box of equal cells, all of it "plate": nothing is printed on it.

    size, cell [m] along x, y, z, the cell adjusted to divide the size; origin: its lowest corner [m].
    """
    steps = zip(origin, positive_lengths(size, "size"), positive_lengths(cell, "cell"))
    x, y, z = (start + even_lines(length, step) for start, length, step in steps)
    keep = np.ones((len(x) - 1, len(y) - 1, len(z) - 1), dtype=bool)
    return grid_mesh(x, y, z, keep, build=np.zeros_like(keep))


def box_on_plate(
    size: Triple,
    cell: float | Triple,
    plate: Triple,
    plate_cell: float | Triple | None = None,
    growth: float = 1.5,
) -> Mesh:
    """Return a box to print, standing in the middle of a plate.

    Args:
        size: of the box [m], standing on z = 0 and centred on x = y = 0.
        cell: edges of its elements [m], adjusted to divide the size.
        plate: size of the plate [m], centred, its top at z = 0.
        plate_cell: longest edges in the plate away from the box [m]; none: four times the cell.
        growth: ratio of neighbouring edges in the plate, from the box outwards.
    """
    return solid(lambda points: np.ones(len(points), dtype=bool), size, cell, plate, plate_cell, growth)


def solid(
    inside: Callable[[np.ndarray], np.ndarray],
    size: Triple,
    cell: float | Triple,
    plate: Triple | tuple[float, float] | None = None,
    plate_cell: float | Triple | None = None,
    growth: float = 1.5,
) -> Mesh:
    """Return any solid as the cells of a grid whose middle is inside it, on a plate if there is one.

    Args:
        inside: takes points (n, 3) [m], returns (n,) booleans.
        size: of the box [m] that holds the solid, standing on z = 0 and centred on x = y = 0.
        cell: edges of the cells [m], adjusted to divide the size.
        plate: (x, y, thickness) of a rectangular plate, or (diameter, thickness) of a disc [m], its top at z = 0.
        plate_cell: longest edges in the plate away from the solid [m]; none: four times the cell.
        growth: ratio of neighbouring edges in the plate, from the solid outwards.
    """
    sides = zip(positive_lengths(size, "size"), positive_lengths(cell, "cell"))
    x, y, z = (even_lines(length, step) for length, step in sides)
    return on_plate(x - size[0] / 2, y - size[1] / 2, z, inside, plate, plate_cell, growth)


def on_plate(
    x: np.ndarray,
    y: np.ndarray,
    z: np.ndarray,
    inside: Callable[[np.ndarray], np.ndarray] | np.ndarray,
    plate: Triple | tuple[float, float] | None = None,
    plate_cell: float | Triple | None = None,
    growth: float = 1.5,
) -> Mesh:
    """Return the chosen cells between the lines x, y, z (z from 0 up), and a graded plate below that fits them.

    inside: a function of points, as in `solid`, or booleans (len(x)−1, len(y)−1, len(z)−1).
    """
    middles = np.stack(np.meshgrid(*(0.5 * (l[1:] + l[:-1]) for l in (x, y, z)), indexing="ij"), axis=-1)
    keep = _asked(inside, middles) if callable(inside) else np.asarray(inside, dtype=bool)
    if not keep.any():
        raise PullbackError("no middle of a cell is inside the solid; take smaller cells, or check the units (metres)")
    if plate is None:
        return grid_mesh(x, y, z, keep, build=np.ones_like(keep))
    round_plate = len(plate) == 2
    wide = positive_lengths((plate[0], plate[0], plate[1]) if len(plate) == 2 else plate, "plate")
    cell = np.array([np.diff(line).max() for line in (x, y, z)])
    longest = np.maximum(4 * cell if plate_cell is None else positive_lengths(plate_cell, "plate_cell"), cell)
    for axis, line in enumerate((x, y)):
        if line[0] < -wide[axis] / 2 - 1e-9 * wide[axis] or line[-1] > wide[axis] / 2 + 1e-9 * wide[axis]:
            span = f"{line[0]:g} to {line[-1]:g} m along {'xy'[axis]}"
            raise PullbackError(f"the part spans {span}, more than the plate of {wide[axis]:g} m")
    wide_x, before_x = _widened(x, wide[0] / 2, longest[0], growth)
    wide_y, before_y = _widened(y, wide[1] / 2, longest[1], growth)
    below = -graded_lines(wide[2], z[1] - z[0], longest[2], growth)[::-1]
    lines = (wide_x, wide_y, np.concatenate([below, z[1:]]))
    layers = len(below) - 1
    all_keep = np.zeros([len(line) - 1 for line in lines], dtype=bool)
    all_keep[:, :, :layers] = True
    if round_plate:
        mx, my = (0.5 * (line[1:] + line[:-1]) for line in lines[:2])
        disc = np.hypot(mx[:, None], my[None, :]) <= plate[0] / 2
        all_keep[:, :, :layers] = disc[:, :, None]
    nx, ny, _ = keep.shape
    all_keep[before_x : before_x + nx, before_y : before_y + ny, layers:] = keep
    build = np.zeros_like(all_keep)
    build[:, :, layers:] = True
    return grid_mesh(*lines, all_keep, build)


def grid_mesh(x: np.ndarray, y: np.ndarray, z: np.ndarray, keep: np.ndarray, build: np.ndarray) -> Mesh:
    """Return the mesh of the kept cells between lines x, y, z; build (same shape as keep): what is printed."""
    shape = (len(x), len(y), len(z))
    nodes = np.stack(np.meshgrid(x, y, z, indexing="ij"), axis=-1).reshape(-1, 3)
    # layers of the grid from the bottom up, so that the numbering follows the build
    k, j, i = np.nonzero(keep.transpose(2, 1, 0))
    steps = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]])
    corners = [np.ravel_multi_index((i + di, j + dj, k + dk), shape) for di, dj, dk in steps]
    nodes, elements, _ = compacted(nodes, np.stack(corners, axis=1))
    printed = build[i, j, k]
    return with_standard_sets(nodes, elements, printed)


def with_standard_sets(nodes: np.ndarray, elements: np.ndarray, printed: np.ndarray) -> Mesh:
    """Return a mesh with the sets "build", "plate" and "bottom", given (m,) booleans of what is printed."""
    bottom = nodes[:, 2] <= nodes[:, 2].min() + 1e-9 * np.ptp(nodes[:, 2])
    sets = {"build": np.flatnonzero(printed), "plate": np.flatnonzero(~printed)}
    return Mesh(nodes, elements, {k: v for k, v in sets.items() if len(v)}, {"bottom": np.flatnonzero(bottom)})


def _asked(inside: Callable[[np.ndarray], np.ndarray], points: np.ndarray) -> np.ndarray:
    """Return the values of the user's function on a grid of points."""
    answer = np.asarray(inside(points.reshape(-1, 3)))
    count = points.size // 3
    if answer.shape != (count,) or answer.dtype != bool:
        raise PullbackError(
            f"the function of the solid returned {answer.dtype} of shape {answer.shape} for {count} points; "
            f"expected ({count},) booleans"
        )
    return answer.reshape(points.shape[:-1])


def positive_lengths(value: float | Triple | np.ndarray, name: str) -> np.ndarray:
    """Return three positive lengths."""
    lengths = np.asarray(value, dtype=np.float64)
    if lengths.shape not in ((), (3,)) or not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise PullbackError(f"{name} = {value}; expected one or three positive lengths in metres")
    return np.broadcast_to(lengths, (3,))


def even_lines(length: float, step: float) -> np.ndarray:
    """Return lines 0 to length, evenly spaced by about step."""
    return np.linspace(0.0, length, max(1, round(length / step)) + 1)


def graded_lines(length: float, first: float, longest: float, growth: float) -> np.ndarray:
    """Return lines 0 to length whose spacing grows from about `first` up to about `longest`."""
    if growth < 1:
        raise PullbackError(f"growth = {growth}; the plate's cells grow outwards by a factor of at least 1")
    spacing = [first]
    while sum(spacing) < length:
        spacing.append(min(spacing[-1] * growth, max(longest, first)))
    # one cell fewer where that fits better, and all of them scaled to end on the length
    if len(spacing) > 1 and length - sum(spacing[:-1]) < sum(spacing) - length:
        spacing.pop()
    lines = np.concatenate([[0.0], np.cumsum(spacing)]) * (length / sum(spacing))
    lines[-1] = length
    return lines


def _widened(lines: np.ndarray, half: float, longest: float, growth: float) -> tuple[np.ndarray, int]:
    """Return lines continued on both sides to −half and +half, and how many cells were put before them."""
    parts, before = [lines], 0
    left, right = lines[0] + half, half - lines[-1]
    if left > 1e-6 * half:
        out = lines[0] - graded_lines(left, lines[1] - lines[0], longest, growth)[:0:-1]
        parts.insert(0, out)
        before = len(out)
    if right > 1e-6 * half:
        parts.append(lines[-1] + graded_lines(right, lines[-1] - lines[-2], longest, growth)[1:])
    return np.concatenate(parts), before
