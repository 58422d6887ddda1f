"""Whether two convex shapes of any kind surely overlap, or are surely apart, in numpy: by points and by directions."""

from __future__ import annotations

import numpy as np

from checks.fuzz_geometry import Solid, point_to_box

Array = np.ndarray
CONVEX = ("sphere", "capsule", "box", "cylinder", "mesh")
CORNERS = np.stack(np.meshgrid(*[(-1.0, 1.0)] * 3), -1).reshape(8, 3)
RIM = np.stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)], 1)


def points_of(a: Solid) -> Array:
    """Return some points of a shape (n, k, 3) in the world: its centre first, then vertices, ends or a rim."""
    n = len(a.p)
    if a.hull is not None:
        local = np.broadcast_to(np.vstack([a.hull.vertices.mean(0), a.hull.vertices]), (n, len(a.hull.vertices) + 1, 3))
    elif a.kind == "cylinder":
        rim = np.concatenate([np.hstack([RIM, np.full((8, 1), side)]) for side in (-1.0, 1.0)])
        size = np.stack([a.radius, a.radius, a.half[:, 2]], 1)
        local = np.concatenate([np.zeros((n, 1, 3)), rim * size[:, None]], 1)
    else:
        local = np.concatenate([np.zeros((n, 1, 3)), CORNERS * a.half[:, None]], 1)
    return a.p[:, None] + np.einsum("nij,nkj->nki", a.R, local)


def outside(b: Solid, points: Array) -> Array:
    """Return how far points (n, k, 3) are outside of a shape (n, k), less than nothing inside; at most the distance."""
    x = np.einsum("nji,nkj->nki", b.R, points - b.p[:, None])
    if b.hull is not None:
        first = b.hull.vertices[[loop[0] for loop in b.hull.loops]]
        return (x @ b.hull.normals.T - (first * b.hull.normals).sum(1)).max(-1)
    if b.kind == "cylinder":
        across = np.linalg.norm(x[..., :2], axis=-1) - b.radius[:, None]
        return np.maximum(across, np.abs(x[..., 2]) - b.half[:, None, 2])
    if b.kind == "box":
        return point_to_box(x.reshape(-1, 3), np.repeat(b.half, x.shape[1], 0)).reshape(x.shape[:2])
    x = x - np.clip(x, -b.half[:, None], b.half[:, None])
    return np.linalg.norm(x, axis=-1) - b.radius[:, None]


def reach(a: Solid, m: Array) -> Array:
    """Return how far a shape reaches from its origin along directions m (n, 3) of length one."""
    local = np.einsum("nji,nj->ni", a.R, m)
    if a.hull is not None:
        return (local @ a.hull.vertices.T).max(1)
    if a.kind == "cylinder":
        return a.half[:, 2] * np.abs(local[:, 2]) + a.radius * np.linalg.norm(local[:, :2], axis=1)
    return (np.abs(local) * a.half).sum(1) + a.radius


def depth(a: Solid, b: Solid) -> Array:
    """Return how deep the deepest of some points of either shape is in the other (n,): what overlaps for sure."""
    return -np.minimum(outside(b, points_of(a)).min(1), outside(a, points_of(b)).min(1))


def separation(a: Solid, b: Solid) -> Array:
    """Return the largest separation along some directions (n,): no more than the distance."""
    best = np.full(len(a.p), -np.inf)
    towards = points_of(a)[:, 0] - points_of(b)[:, 0]
    for axis in (towards, *np.moveaxis(a.R, 2, 0), *np.moveaxis(b.R, 2, 0)):
        length = np.linalg.norm(axis, axis=1)
        for sign in (1.0, -1.0):
            m = sign * axis / np.maximum(length, 1e-300)[:, None]
            apart = np.einsum("ni,ni->n", m, a.p - b.p) - reach(a, -m) - reach(b, m)
            best = np.where(length > 1e-6, np.maximum(best, apart), best)
    return best
