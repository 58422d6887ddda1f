"""Which elements a piece has, and their numbers at rest and of its material: docs/derivations/cloth.md, section 2."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.soft.cloth.materials import Cord, Fabric
from pullback.soft.cloth.pieces import PLATE, Rope, Sheet
from pullback.soft.cloth.strain_kernels import BEND, HINGE, SEGMENT, TRIANGLE
from pullback.soft.materials import tensor_like


class Part(NamedTuple):
    """Elements of one kind in one piece: vertices (m, v), rest numbers (m, r), and strains at rest (m,)."""

    ends: np.ndarray
    rest: np.ndarray
    strain: np.ndarray


def elements_of(piece: Sheet | Rope) -> tuple[dict[str, Part], np.ndarray]:
    """Return the elements of a piece by kind, first those that have its mass, and their areas or lengths (m,)."""
    if isinstance(piece, Sheet):
        triangles, areas = triangles_of(piece)
        return {TRIANGLE: triangles, HINGE: hinges_of(piece, areas)}, areas
    segments, lengths = segments_of(piece)
    return {SEGMENT: segments, BEND: bends_of(piece, lengths)}, lengths


def numbers_of(material: Fabric | Cord, like: torch.Tensor) -> dict[str, list[torch.Tensor]]:
    """Return the numbers of elements by kind, without the strain at rest."""
    stretched, bent = (TRIANGLE, HINGE) if isinstance(material, Fabric) else (SEGMENT, BEND)
    bending = [tensor_like(material.bending, like), tensor_like(material.bending_damping, like)]
    return {stretched: material.stretching(like), bent: bending}


def triangles_of(sheet: Sheet) -> tuple[Part, np.ndarray]:
    """Return triangles with slopes of their weights and areas, and the areas (m,)."""
    rest = np.asarray(sheet.rest)
    corners = np.pad(rest, ((0, 0), (0, 3 - rest.shape[1])))[sheet.triangles]
    e, f = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    normal = np.cross(e, f)
    double = np.linalg.norm(normal, axis=1, keepdims=True)
    normal = normal / double
    warp = np.broadcast_to(np.asarray(sheet.warp, dtype=np.float64), e.shape)
    u = warp - (warp * normal).sum(1, keepdims=True) * normal
    length = np.linalg.norm(u, axis=1, keepdims=True)
    if not (length > 1e-6 * np.linalg.norm(warp, axis=1, keepdims=True)).all():
        bad = int(length.argmin())
        raise PullbackError(
            f"sheet {sheet.name!r}: triangle {bad} stands across the warp "
            f"{tuple(map(float, sheet.warp))}; give another direction"
        )
    u = u / length
    v = np.cross(normal, u)
    matrix = np.stack([np.stack([(x * a).sum(1) for x in (e, f)], 1) for a in (u, v)], 1)
    # weights of vertices 1 and 2 are the rows of the inverse, eq. (4)
    slopes = np.linalg.inv(matrix)
    slopes = np.concatenate([-slopes.sum(1, keepdims=True), slopes], 1)
    areas = 0.5 * double[:, 0]
    numbers = np.concatenate([slopes.reshape(-1, 6), areas[:, None]], 1)
    return Part(sheet.triangles, numbers, np.zeros(len(areas))), areas


def hinges_of(sheet: Sheet, areas: np.ndarray) -> Part:
    """Return the hinges of a sheet: edge, then the tips of its two triangles; weights and angles at rest."""
    t = sheet.triangles
    starts, ends = t.ravel(), np.roll(t, -1, axis=1).ravel()
    tips, owners = np.roll(t, -2, axis=1).ravel(), np.repeat(np.arange(len(t)), 3)
    low, high = np.minimum(starts, ends), np.maximum(starts, ends)
    order = np.lexsort((high, low))
    _, first, count = np.unique(np.stack([low, high], 1)[order], axis=0, return_index=True, return_counts=True)
    for edge in np.flatnonzero(count > 2)[:1]:
        rows = order[first[edge] : first[edge] + count[edge]]
        raise PullbackError(
            f"sheet {sheet.name!r}: triangles {owners[rows].tolist()} share the edge {low[rows[0]]}-{high[rows[0]]}; "
            f"at most two can (it is not a manifold); make them sheets of their own"
        )
    inner = first[count == 2]
    a, b = order[inner], order[inner + 1]
    for k in np.flatnonzero(starts[a] == starts[b])[:1]:
        raise PullbackError(
            f"sheet {sheet.name!r}: triangles {owners[a[k]]} and {owners[b[k]]} go round in opposite ways (their "
            f"common edge is {starts[a[k]]}-{ends[a[k]]}); swap two vertices of one"
        )
    quads = np.stack([starts[a], ends[a], tips[a], tips[b]], 1)
    rest = np.asarray(sheet.rest)
    x = np.pad(rest, ((0, 0), (0, 3 - rest.shape[1])))[quads]
    e = x[:, 1] - x[:, 0]
    weights = sheet.hinge_weights
    if weights is None:
        # eq. (27)
        weights = PLATE * (e**2).sum(1) / (areas[owners[a]] + areas[owners[b]])
    n, m = np.cross(e, x[:, 2] - x[:, 0]), np.cross(x[:, 3] - x[:, 0], e)
    sine = (np.cross(n, m) * e).sum(1) / np.linalg.norm(e, axis=1)
    return Part(quads, weights[:, None], np.arctan2(sine, (n * m).sum(1)))


def segments_of(rope: Rope) -> tuple[Part, np.ndarray]:
    """Return the segments of a rope, and their lengths (m,)."""
    numbers = np.arange(len(rope.points))
    lengths = np.linalg.norm(np.diff(np.asarray(rope.rest), axis=0), axis=1)
    return Part(np.stack([numbers[:-1], numbers[1:]], 1), lengths[:, None], np.zeros(len(lengths))), lengths


def bends_of(rope: Rope, lengths: np.ndarray) -> Part:
    """Return the inner vertices of a rope with their neighbours."""
    numbers = np.arange(len(rope.points))
    ends = np.stack([numbers[:-2], numbers[1:-1], numbers[2:]], 1)
    rest = np.stack([lengths[:-1] * lengths[1:], 0.5 * (lengths[:-1] + lengths[1:])], 1)
    return Part(ends, rest, np.zeros(len(ends)))
