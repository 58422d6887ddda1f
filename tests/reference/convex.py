"""The signed distance of two convex shapes by its definition: the largest separation over all directions.

    distance = max over unit n of  min over x in A of n·x  -  max over y in B of n·y

Plain float64 numpy, for tests: many directions at first, then an ascent from the best of them. Apart or overlapping, it
is the same formula; n points from B to A.
"""

import numpy as np


def furthest(shape, R, p, n):
    """Return max of n·x over a shape for directions n (k, 3); `shape` is (kind, vertices or half extents, radius)."""
    kind, what, radius = shape
    local = n @ R
    if kind == "cylinder":
        reach = what[0] * np.linalg.norm(local[:, :2], axis=1) + what[2] * np.abs(local[:, 2])
    elif kind == "ellipsoid":
        reach = np.linalg.norm(local * what, axis=1)
    elif kind == "vertices":
        reach = (local @ np.asarray(what).T).max(1)
    else:
        reach = np.abs(local) @ np.asarray(what, float)
    return n @ p + reach + radius


def separation(a, b, pose_a, pose_b, n):
    """Return the separation of two shapes along directions n (k, 3) from b to a."""
    return -furthest(a, *pose_a, -n) - furthest(b, *pose_b, n)


def sphere_points(count):
    """Return directions spread evenly over the sphere."""
    k = np.arange(count) + 0.5
    z, angle = 1 - 2 * k / count, np.pi * (1 + 5**0.5) * k
    return np.stack([np.cos(angle) * np.sqrt(1 - z * z), np.sin(angle) * np.sqrt(1 - z * z), z], 1)


def signed_distance(a, b, pose_a, pose_b, hints=(), count=4000, starts=6):
    """Return the largest separation and its direction; `hints` are directions that are tried besides."""
    n = np.concatenate([sphere_points(count), *[np.reshape(h, (1, 3)) for h in hints]])
    value = separation(a, b, pose_a, pose_b, n)
    order = np.argsort(-value)
    chosen = [order[0]]
    for k in order[1:]:
        if len(chosen) < starts and (n[chosen] @ n[k]).max() < 0.97:
            chosen.append(k)
    n = n[chosen]
    best, width = separation(a, b, pose_a, pose_b, n), np.full(len(n), 0.1)
    ring = np.linspace(0, 2 * np.pi, 9)[:-1]
    # a search by pattern: the function has creases, where slopes mislead
    for _ in range(150):
        u = np.cross(n, np.where(np.abs(n[:, :1]) < 0.7, [[1.0, 0, 0]], [[0, 1.0, 0]]))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        v = np.cross(n, u)
        tried = n[:, None] + width[:, None, None] * (
            np.cos(ring)[:, None] * u[:, None] + np.sin(ring)[:, None] * v[:, None]
        )
        tried /= np.linalg.norm(tried, axis=2, keepdims=True)
        values = separation(a, b, pose_a, pose_b, tried.reshape(-1, 3)).reshape(len(n), -1)
        k = values.argmax(1)
        better = values[np.arange(len(n)), k] > best
        n = np.where(better[:, None], tried[np.arange(len(n)), k], n)
        best = np.where(better, values[np.arange(len(n)), k], best)
        width = np.where(better, 1.2 * width, 0.6 * width)
        if width.max() < 1e-10:
            break
    return best.max(), n[best.argmax()]
