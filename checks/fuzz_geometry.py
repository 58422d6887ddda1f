"""Where shapes are and how far apart, in numpy and by other means than the kernels, to check contacts with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

import pullback as pb
from checks.random_worlds import RandomWorld, matrix
from pullback.rigid.collide.convex.hulls import Hull
from pullback.rigid.world.items import CollisionShape, Placed

Array = np.ndarray
Poses = dict[str, tuple[Array, Array]]
"""Rotations (n, 3, 3) and positions (n, 3) of links by name."""

ROUND = {("sphere", "plane"), ("capsule", "plane"), ("box", "plane"), ("sphere", "sphere"), ("sphere", "capsule")}
EXACT = ROUND | {("sphere", "box"), ("capsule", "capsule")}
"""Pairs whose least gap is known in closed form, overlapping or not; boxes on boxes and capsules only apart."""


class Solid:
    """A shape in all rows of a batch: rotation (n, 3, 3), position (n, 3), half extents (n, 3) and radius (n,)."""

    def __init__(self, kind: str, R: Array, p: Array, size: Array, hull: Hull | None = None) -> None:
        self.kind, self.R, self.p, self.hull = kind, R, p, hull
        n = len(p)
        size = np.broadcast_to(size, (n, size.shape[-1]))
        self.half, self.radius = np.zeros((n, 3)), np.zeros(n)
        if kind == "box":
            self.half = 0.5 * size
        elif kind in ("sphere", "capsule", "cylinder"):
            self.radius = size[:, 0]
        if kind in ("capsule", "cylinder"):
            self.half[:, 2] = 0.5 * size[:, 1]

    def inside(self, x: Array) -> Array:
        """Return points (n, 3) in the axes of the shape."""
        return np.einsum("nji,nj->ni", self.R, x - self.p)

    def ends(self) -> tuple[Array, Array]:
        """Return the ends of a capsule's axis."""
        along = self.R[:, :, 2] * self.half[:, 2:]
        return self.p - along, self.p + along


def link_poses(robot: pb.RobotModel, item: Placed, q: torch.Tensor) -> Poses:
    """Return rotation and position of all links in the world; `robot` is the item's, in float64."""
    fixed = robot.model.base == "fixed"
    R0, p0 = (item.rotation, item.position) if fixed else (np.eye(3), np.zeros(3))
    poses = {}
    for name, (p, quat) in robot.compute_forward_kinematics_all_links(q).items():
        poses[name] = R0 @ matrix(quat.numpy()), p.numpy() @ R0.T + p0
    return poses


def solid(shape: CollisionShape, R: Array, p: Array) -> Solid:
    """Return a shape on a link of poses R (n, 3, 3), p (n, 3)."""
    size = np.asarray(shape.size.numpy() if isinstance(shape.size, torch.Tensor) else shape.size, dtype=np.float64)
    position = np.asarray(shape.position, dtype=np.float64)
    hull = shape.source if isinstance(shape.source, Hull) else None
    return Solid(shape.kind, R @ shape.rotation, p + R @ position, size, hull)


def solids(drawn: RandomWorld, poses: list[Poses], rows: int) -> list[Solid]:
    """Return all shapes of a world in the order of `world.shape_names`."""
    found = []
    for item, links in zip(drawn.world.items, poses):
        for shape in item.shapes:
            if item.robot is None or shape.body < 0:
                place = np.broadcast_to(np.eye(3), (rows, 3, 3)), np.zeros((rows, 3))
                if item.robot is not None:
                    place = links[item.robot.model.links[shape.link].name]
            else:
                place = links[item.robot.model.links[shape.link].name]
            found.append(solid(shape, *place))
    return found


def least_gap(a: Solid, b: Solid) -> Array:
    """Return the distance of two shapes (n,); negative where they overlap, for boxes then only a bound."""
    return GAPS[a.kind, b.kind](a, b)


def plane_gap(a: Solid, b: Solid) -> Array:
    """Return how far the lowest point of a shape is above a plane."""
    n = b.R[:, :, 2]
    reach = np.abs(np.einsum("nji,nj->ni", a.R, n)) * a.half
    return np.einsum("ni,ni->n", n, a.p - b.p) - reach.sum(1) - a.radius


def vertex_gaps(a: Solid, b: Solid) -> Array:
    """Return the gaps of a shape's vertices, the corners of a box and the ends of a capsule, to a plane (n, 8)."""
    signs = np.stack(np.meshgrid(*[(-1.0, 1.0)] * 3), -1).reshape(8, 3)
    n = b.R[:, :, 2]
    reach = np.einsum("nji,nj->ni", a.R, n) * a.half
    heights = np.einsum("ni,ni->n", n, a.p - b.p) - a.radius
    gaps = heights[:, None] + reach @ signs.T
    # a capsule has two of them and a sphere one: count each once
    return gaps[:, np.unique(signs * (a.half[0] > 0), axis=0, return_index=True)[1]]


def point_to_box(x: Array, half: Array) -> Array:
    """Return the signed distance of points to a box about the origin."""
    d = np.abs(x) - half
    return np.linalg.norm(np.maximum(d, 0.0), axis=1) + np.minimum(d.max(1), 0.0)


def sphere_gap(a: Solid, b: Solid) -> Array:
    """Return the gap of a sphere and a sphere, capsule or box."""
    x = b.inside(a.p)
    if b.kind == "box":
        return point_to_box(x, b.half) - a.radius
    x = x - np.clip(x, -b.half, b.half)
    return np.linalg.norm(x, axis=1) - a.radius - b.radius


def point_to_segment(x: Array, u: Array, v: Array) -> Array:
    """Return the distance of points to segments from u to v."""
    d = v - u
    t = np.clip(np.einsum("ni,ni->n", x - u, d) / np.einsum("ni,ni->n", d, d), 0.0, 1.0)
    return np.linalg.norm(x - u - t[:, None] * d, axis=1)


def capsules_gap(a: Solid, b: Solid) -> Array:
    """Return the gap of two capsules: at an end of one of them, or between."""
    (a0, a1), (b0, b1) = a.ends(), b.ends()
    best = np.minimum(point_to_segment(a0, b0, b1), point_to_segment(a1, b0, b1))
    best = np.minimum(best, np.minimum(point_to_segment(b0, a0, a1), point_to_segment(b1, a0, a1)))
    d, e, r = a1 - a0, b1 - b0, a0 - b0
    dd, ee, de = (np.einsum("ni,ni->n", *pair) for pair in ((d, d), (e, e), (d, e)))
    dr, er = np.einsum("ni,ni->n", d, r), np.einsum("ni,ni->n", e, r)
    det = np.maximum(dd * ee - de * de, 1e-300)
    s, t = (de * er - ee * dr) / det, (dd * er - de * dr) / det
    within = (s > 0) & (s < 1) & (t > 0) & (t < 1) & (det > 1e-12 * dd * ee)
    across = np.linalg.norm(r + s[:, None] * d - t[:, None] * e, axis=1)
    return np.where(within, np.minimum(best, across), best) - a.radius - b.radius


def capsule_box_gap(a: Solid, b: Solid) -> Array:
    """Return the gap of a capsule and a box, whose distance is convex along the capsule: by trisection."""
    (u, v) = (b.inside(x) for x in a.ends())
    low, high = np.zeros(len(u)), np.ones(len(u))

    def distance(t: Array) -> Array:
        return point_to_box(u + t[:, None] * (v - u), b.half)

    for _ in range(60):
        third = (high - low) / 3
        left = distance(low + third) < distance(high - third)
        low, high = np.where(left, low, low + third), np.where(left, high - third, high)
    return distance(0.5 * (low + high)) - a.radius


def boxes_gap(a: Solid, b: Solid) -> Array:
    """Return the largest separation over the 15 axes of two boxes: at most their distance, negative as they overlap."""
    r, best = a.p - b.p, np.full(len(a.p), -np.inf)
    axes = [a.R[:, :, i] for i in range(3)] + [b.R[:, :, i] for i in range(3)]
    axes += [np.cross(a.R[:, :, i], b.R[:, :, j]) for i in range(3) for j in range(3)]
    for axis in axes:
        length = np.linalg.norm(axis, axis=1)
        m = axis / np.maximum(length, 1e-300)[:, None]
        reach = sum((np.abs(np.einsum("nji,nj->ni", s.R, m)) * s.half).sum(1) for s in (a, b))
        separated = np.abs(np.einsum("ni,ni->n", m, r)) - reach
        best = np.where((length > 1e-3) & (separated > best), separated, best)
    return best


GAPS: dict[tuple[str, str], Callable[[Solid, Solid], Array]] = {
    ("sphere", "plane"): plane_gap,
    ("capsule", "plane"): plane_gap,
    ("box", "plane"): plane_gap,
    ("sphere", "sphere"): sphere_gap,
    ("sphere", "capsule"): sphere_gap,
    ("sphere", "box"): sphere_gap,
    ("capsule", "capsule"): capsules_gap,
    ("capsule", "box"): capsule_box_gap,
    ("box", "box"): boxes_gap,
}
