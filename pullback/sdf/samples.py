"""Points on the surface of a shape, in clusters, for collision with a field (docs/derivations/sdf.md).

Of each cluster at most one point, the deepest, becomes a contact: at most CLUSTERS of them, spread over the shape.
Edges of the shape are searched between their points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.core.errors import PullbackError

CLUSTERS = 8
BUDGET = 256
"""Points on a mesh or on a field, at most."""
EDGES = 96
"""Edges of a mesh that are searched, at most: all of a cylinder's."""

CROWD = 8
"""Points of a lattice around a shape whose nearest point of the surface is a corner, at least: two layers each way."""

FLAT = 1e-3
"""A side this much shorter than the longest does not count as one."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Points (n, 3), cluster after cluster, outermost first; edges (n, 6) likewise.

    An edge is a start and the way to its end. Both are in units of the half extents of a sphere, capsule, box or
    cylinder.
    """

    points: np.ndarray
    cluster_first: np.ndarray
    centres: np.ndarray
    reaches: np.ndarray
    edges: np.ndarray
    edge_first: np.ndarray


def sphere_samples() -> Samples:
    """Return the centre; the sphere's radius is around it."""
    return clustered(np.zeros((1, 3)))


def ball_samples(count: int = 192) -> Samples:
    """Return points spread evenly over the sphere of radius 1."""
    _check_count(count, 2)
    k = np.arange(count) + 0.5
    z, angle = 1.0 - 2.0 * k / count, np.pi * (1.0 + 5.0**0.5) * k
    across = np.sqrt(1.0 - z * z)
    return clustered(np.column_stack([across * np.cos(angle), across * np.sin(angle), z]))


def capsule_samples(count: int = 17) -> Samples:
    """Return points along the segment, in units of its half length; the capsule's radius is around them."""
    _check_count(count, 2)
    return clustered(np.column_stack([np.zeros((count, 2)), np.linspace(-1.0, 1.0, count)]))


def box_samples(per_edge: int = 5) -> Samples:
    """Return corners, points of edges and of faces of the box of half extents 1; corners are two of `per_edge`."""
    _check_count(per_edge, 2)
    ticks = np.linspace(-1.0, 1.0, per_edge)
    points = np.stack(np.meshgrid(ticks, ticks, ticks, indexing="ij"), -1).reshape(-1, 3)
    corners = points[np.abs(points).min(1) == 1.0]
    ends = [(a, b) for a in corners for b in corners if np.abs(b - a).sum() == 2.0 and (b - a).sum() == 2.0]
    return clustered(points[np.abs(points).max(1) == 1.0], np.array(ends))


def mesh_samples(
    vertices: np.ndarray, triangles: np.ndarray, budget: int = BUDGET, seed: int = 0, edges: Any = ()
) -> Samples:
    """Return at most `budget` points of a mesh: vertices, and where there is room points of its triangles.

    The farthest from those already chosen comes next, vertices first. Of the edges (n, 2), from vertex to vertex, the
    longest are searched too.
    """
    _check_count(budget, 1)
    vertices = np.asarray(vertices, dtype=np.float64)
    chosen = spread(np.unique(vertices, axis=0), budget)
    room = budget - len(chosen)
    if room > 0 and len(triangles):
        inner = _on_triangles(vertices, triangles, 16 * room, seed)
        chosen = np.concatenate([chosen, spread(inner, room, chosen)])
    return clustered(chosen, vertices[np.asarray(edges, int).reshape(-1, 2)])


def field_samples(field: Any, budget: int = BUDGET, per_side: int = 24) -> Samples:
    """Return at most `budget` points of a field's surface: a lattice around it, brought onto it by Newton's steps.

    Points outside end on edges and corners as well, where a shape is sharp. Sizes are those of the first world.
    """
    _check_count(budget, 1)
    low, high = (corner[0].numpy() for corner in field.program.bounds())
    if not np.isfinite(low).all() or not np.isfinite(high).all():
        raise PullbackError("a shape without end has no samples; intersect it with a box that holds the part needed")
    if (low >= high).any():
        raise PullbackError("a shape that is empty has no samples; look at what its parts have in common")
    size = float((high - low).max())
    step = size / per_side
    axes = [np.arange(a - 1.5 * step, b + 2.0 * step, step) for a, b in zip(low, high)]
    lattice = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    outside = field.values(lattice) > 0.0
    x, missed = field.nearest(lattice)
    kept = ((x > low - step) & (x < high + step)).all(1) & (missed < 1e-6 * size)
    x, outside = x[kept], outside[kept]
    if not len(x):
        raise PullbackError("no point of the shape's surface was found; it may be empty, or thinner than its blends")
    corners = spread(_landings(x[outside], 1e-5 * size), budget)
    return clustered(np.concatenate([corners, spread(x, budget - len(corners), corners)]))


def _landings(points: np.ndarray, size: float) -> np.ndarray:
    """Return where at least CROWD of the points meet: sharp corners, if the points came from outside."""
    _, first, counts = np.unique(np.round(points / size), axis=0, return_index=True, return_counts=True)
    return points[np.sort(first[counts >= CROWD])]


def spread(points: np.ndarray, count: int, known: np.ndarray | None = None) -> np.ndarray:
    """Return at most `count` of the points, one after another the farthest from those before; none twice."""
    known = np.zeros((0, 3)) if known is None else known
    if not len(points):
        return points
    distance = np.full(len(points), np.inf)
    for x in known:
        distance = np.minimum(distance, np.linalg.norm(points - x, axis=1))
    if not len(known):
        distance = np.linalg.norm(points - points.mean(0), axis=1)
    size = np.linalg.norm(np.ptp(points, axis=0))
    chosen: list[int] = []
    while len(chosen) < min(count, len(points)):
        # the first of those that are equal within rounding, so that machines agree
        best = int(np.argmax(distance >= distance.max() * (1.0 - 1e-9)))
        if chosen and distance[best] <= 1e-6 * size:
            break
        chosen.append(best)
        near = np.linalg.norm(points - points[best], axis=1)
        distance = near if len(chosen) == 1 and not len(known) else np.minimum(distance, near)
    return points[chosen]


def clustered(points: np.ndarray, ends: np.ndarray | None = None) -> Samples:
    """Return points in up to eight clusters: halves along each side, or eighths along a line.

    Edges from end to end (n, 2, 3) are halved until they are no longer than half the longest side, and go to the
    clusters whose centres are nearest.
    """
    order = np.lexsort(points.T)
    points = points[order]
    sides = np.ptp(points, axis=0)
    longest_first = np.argsort(-sides, kind="stable")
    count = int((sides > FLAT * max(sides.max(), 1e-300)).sum())
    parts = {0: (1, 1, 1), 1: (CLUSTERS, 1, 1), 2: (CLUSTERS // 2, 2, 1), 3: (2, 2, 2)}[count]
    number = np.zeros(len(points), dtype=int)
    low = points.min(0)
    for axis, n in zip(longest_first, parts):
        share = (points[:, axis] - low[axis]) / sides[axis] if n > 1 else np.zeros(len(points))
        number = number * n + np.clip((share * n - 1e-9).astype(int), 0, n - 1)
    middle = 0.5 * (low + points.max(0))
    outermost = np.lexsort((-np.round(np.linalg.norm(points - middle, axis=1), 12), number))
    points, number = points[outermost], number[outermost]
    _, first, counts = np.unique(number, return_index=True, return_counts=True)
    groups = [points[a : a + n] for a, n in zip(first, counts)]
    centres = np.array([0.5 * (group.min(0) + group.max(0)) for group in groups])
    reaches = np.array([np.linalg.norm(group - c, axis=1).max() for group, c in zip(groups, centres)])
    pieces = _halved(np.zeros((0, 2, 3)) if ends is None else ends, 0.5 * sides.max())
    nearest = np.linalg.norm(pieces.mean(1)[:, None] - centres, axis=2).argmin(1)
    pieces, nearest = pieces[np.argsort(nearest, kind="stable")], np.sort(nearest)
    np.maximum.at(reaches, nearest, np.linalg.norm(pieces - centres[nearest][:, None], axis=2).max(1))
    edges = np.concatenate([pieces[:, 0], pieces[:, 1] - pieces[:, 0]], 1)
    edge_first = np.searchsorted(nearest, np.arange(len(groups) + 1)).astype(np.int32)
    return Samples(points, np.append(first, len(points)).astype(np.int32), centres, reaches, edges, edge_first)


def _halved(ends: np.ndarray, longest: float) -> np.ndarray:
    """Return the longest edges, EDGES at most, in pieces not longer than allowed."""
    lengths = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
    chosen = np.sort(np.argsort(-np.round(lengths, 12), kind="stable")[:EDGES])
    pieces = list(ends[chosen])
    for a, b in pieces:
        if np.linalg.norm(b - a) > longest * (1.0 + 1e-9):
            pieces.extend([np.array((a, 0.5 * (a + b))), np.array((0.5 * (a + b), b))])
    kept = [piece for piece in pieces if np.linalg.norm(piece[1] - piece[0]) <= longest * (1.0 + 1e-9)]
    return np.array(kept).reshape(-1, 2, 3)


def _on_triangles(vertices: np.ndarray, triangles: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return points spread evenly over triangles by their area."""
    a, b, c = (vertices[np.asarray(triangles)[:, k]] for k in range(3))
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    rng = np.random.default_rng(seed)
    which = rng.choice(len(area), size=count, p=area / area.sum())
    u = np.sqrt(rng.random((count, 1)))
    v = rng.random((count, 1))
    return (1.0 - u) * a[which] + u * (1.0 - v) * b[which] + u * v * c[which]


def _check_count(count: int, least: int) -> None:
    if count < least:
        raise PullbackError(f"{count} samples were asked for; give at least {least}")
