"""Round parts whose elements follow their surface: the hourglass on a disc."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pullback.core.errors import PullbackError
from pullback.thermal.mesh import Mesh, compacted
from pullback.thermal.solids import even_lines, graded_lines, with_standard_sets

# the square in the middle of a disc: its half side as a share of the first circle's radius, and how round it is
CORE_SHARE = 0.62
CORE_ROUNDNESS = 0.35


def hourglass(
    cell: float = 1e-3,
    layer: float = 1e-3,
    scale: float = 1.0,
    plate: tuple[float, float] = (0.1, 0.01),
    plate_cell: float | None = None,
    growth: float = 1.3,
) -> Mesh:
    """Return the hourglass: a tube with a waist between two round flanges, on a disc.

    As in the case of Mozaffar et al.: flanges of radius 10 mm and height 2 mm; between them, from 2 to 26 mm, a tube
    with a wall of 2 mm and an outer radius of 8 mm, which narrows from z = 8 mm on to 4 mm at the waist at 14 mm and is
    8 mm again from 20 mm on. About 3,060 mm³ on a plate of 100 mm × 10 mm.

    Args:
        cell: edge of the elements in the flanges [m]; layer: their height [m], adjusted to divide 2 mm × scale.
        scale: of the part (not of cell, layer and plate).
        plate: diameter and thickness [m], its top at z = 0.
        plate_cell: longest edge in the plate [m], none: five times the cell; growth: ratio of neighbouring edges.
    """
    for name, value in (
        ("cell", cell),
        ("layer", layer),
        ("scale", scale),
        ("diameter", plate[0]),
        ("depth", plate[1]),
    ):
        if not (np.isfinite(value) and value > 0):
            raise PullbackError(f"{name} = {value}; expected a positive number (lengths in metres)")
    inner, outer, rim, height, flange, straight = scale * np.array([6e-3, 8e-3, 10e-3, 28e-3, 2e-3, 6e-3])
    if plate[0] / 2 <= rim:
        raise PullbackError(f"a plate of radius {plate[0] / 2:g} m under a part of radius {rim:g} m; take a larger one")
    longest = 5 * cell if plate_cell is None else plate_cell

    # circles: the hole of the tube, its wall, the overhanging rim, the free plate
    wall = inner + even_lines(outer - inner, cell)
    rim_circles = outer + even_lines(rim - outer, cell)[1:]
    free = rim + graded_lines(plate[0] / 2 - rim, cell, longest, growth)[1:]
    across = max(1, round(2 * np.pi * outer / cell / 4))
    first = max(0.5 * inner, inner - cell * max(1, round(0.2 * inner / cell)))
    inside = first + even_lines(inner - first, cell)[:-1]
    circles = np.concatenate([inside, wall, rim_circles, free])
    points, quads, ring = disc(circles, across)

    below = -graded_lines(plate[1], layer, longest, growth)[::-1]
    per_flange = max(1, round(flange / layer))
    above = np.concatenate(
        [even_lines(flange, flange / per_flange), flange + even_lines(height - 2 * flange, layer)[1:]]
    )
    above = np.concatenate([above, height - flange + even_lines(flange, flange / per_flange)[1:]])
    levels = np.concatenate([below, above[1:]])

    # which quads exist in which layer, by the circle they lie outside of
    ring_radius = np.concatenate([[0.0, 0.0], circles])[ring]
    middle = 0.5 * (levels[1:] + levels[:-1])
    in_plate = (middle < 0)[:, None] & np.ones(len(quads), dtype=bool)
    in_flange = ((middle > 0) & ((middle < flange) | (middle > height - flange)))[:, None] & (
        ring_radius < rim * (1 - 1e-9)
    )
    in_tube = ((middle > flange) & (middle < height - flange))[:, None] & (
        (ring_radius > inner * (1 - 1e-9)) & (ring_radius < outer * (1 - 1e-9))
    )
    narrower = _waist(levels, height, flange + straight, scale * 4e-3)
    return extruded(points, quads, levels, in_plate | in_flange | in_tube, narrower)


def _waist(levels: np.ndarray, height: float, start: float, depth: float) -> np.ndarray:
    """Return by how much the tube's radius is smaller at each level: `depth` at half height, zero outside the waist."""
    return depth * np.clip(1 - np.abs(levels - height / 2) / (height / 2 - start), 0.0, 1.0)


def disc(circles: np.ndarray, across: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return points (n, 2), quads (m, 4) counter-clockwise and the ring (m,) of each quad of a disc.

    A slightly rounded square of across × across quads in the middle (ring 0), and one ring of quads inside each of the
    circles, of increasing radius [m].
    """
    half = CORE_SHARE * circles[0] * np.linspace(-1, 1, across + 1)
    x, y = np.meshgrid(half, half, indexing="ij")
    core = np.stack([x, y], axis=-1).reshape(-1, 2)
    far, length = np.abs(core).max(axis=1), np.linalg.norm(core, axis=1)
    core *= (1 - CORE_ROUNDNESS + CORE_ROUNDNESS * far / np.where(length > 0, length, 1.0))[:, None]
    number = np.arange((across + 1) ** 2).reshape(across + 1, across + 1)
    quads = np.stack([number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]], axis=-1).reshape(-1, 4)

    # the square's border, counter-clockwise from its lower left corner
    border = np.concatenate([number[:-1, 0], number[-1, :-1], number[:0:-1, -1], number[0, :0:-1]])
    angles = 2 * np.pi * np.arange(len(border)) / len(border) - 0.75 * np.pi
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = np.concatenate([core, *(radius * around for radius in circles)])
    starts = len(core) + len(border) * np.arange(len(circles))
    loops = [border, *(start + np.arange(len(border)) for start in starts)]
    rings = [
        np.stack([inner, outer, np.roll(outer, -1), np.roll(inner, -1)], axis=1) for inner, outer in pairwise(loops)
    ]
    ring = np.repeat(np.arange(len(circles) + 1), [len(quads)] + [len(border)] * len(circles))
    return points, np.concatenate([quads, *rings]), ring


def extruded(points: np.ndarray, quads: np.ndarray, levels: np.ndarray, keep: np.ndarray, narrower: np.ndarray) -> Mesh:
    """Return the mesh of quads (m, 4) drawn up through levels, where keep (layers, m).

    narrower (levels,): by how much the distance of the points from the axis is smaller at each level [m]. What is
    above z = 0 is the build.
    """
    radius = np.linalg.norm(points, axis=1)
    shrink = np.maximum(1 - narrower[:, None] / np.where(radius > 0, radius, 1.0), 0.0)
    flat = points[None] * shrink[:, :, None]
    nodes = np.concatenate([flat, np.broadcast_to(levels[:, None, None], (*flat.shape[:2], 1))], axis=2).reshape(-1, 3)
    layer, quad = np.nonzero(keep)
    base = quads[quad] + (layer * len(points))[:, None]
    nodes, elements, _ = compacted(nodes, np.concatenate([base, base + len(points)], axis=1))
    printed = levels[layer] >= -1e-12
    return with_standard_sets(nodes, elements, printed)
