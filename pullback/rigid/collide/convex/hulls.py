"""Convex polyhedra as lists of vertices, edges and faces: the hull of points or of a mesh file, with few vertices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pullback.core.errors import PullbackError
from pullback.sdf.mesh_file import read_surface

VERTEX_BUDGET = 64
"""Vertices of a hull, unless another number is asked for."""

FLATNESS = 1e-6
"""Of the hull's size: triangles whose corners lie this close to a plane are one face."""

PRISM_SIDES = 32
"""Sides of the prism by which the features of a cylinder are found."""


@dataclass(frozen=True)
class Hull:
    """A convex polyhedron, or a point or a segment, in its own frame.

    `vertices` (nv, 3), `edges` (ne, 2) from vertex to vertex, `edge_faces` (ne, 2) the faces left and right of each,
    -1: none, `normals` (nf, 3) outwards, `loops` the vertices of each face, anticlockwise seen from outside. `error`
    [m] is how far the points it was made from stand out of it. `is_cylinder`: the prism stands for the cylinder around
    it.
    """

    vertices: np.ndarray
    edges: np.ndarray
    edge_faces: np.ndarray
    normals: np.ndarray
    loops: tuple[np.ndarray, ...]
    error: float = 0.0
    is_cylinder: bool = field(default=False, kw_only=True)

    @property
    def reach(self) -> float:
        """Distance of the furthest vertex from the origin."""
        return float(np.linalg.norm(self.vertices, axis=1).max(initial=0.0))

    def mass_properties(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the centre of mass [m], and the inertia (3, 3) [m²] about it of one kilogram spread evenly.

        Over the pyramids from the mean vertex to triangles of the faces, each with its volume, its centroid and the
        second moments of a tetrahedron, V / 20 (sum of x xᵀ over its corners + s sᵀ), s the sum of its corners.
        """
        tip = self.vertices.mean(0)
        x = self.vertices - tip
        corners = np.array([(x[f[0]], x[f[i]], x[f[i + 1]]) for f in self.loops for i in range(1, len(f) - 1)])
        volumes = np.linalg.det(corners) / 6.0
        total = volumes.sum()
        sums = corners.sum(1)
        centre = (volumes[:, None] * sums / 4.0).sum(0) / total
        products = np.einsum("tki,tkj->tij", corners, corners) + np.einsum("ti,tj->tij", sums, sums)
        second = (volumes[:, None, None] * products).sum(0) / (20.0 * total) - np.outer(centre, centre)
        return tip + centre, np.trace(second) * np.eye(3) - second


def convex_hull(points: Any, *, max_vertices: int = VERTEX_BUDGET, flatness: float = FLATNESS) -> Hull:
    """Return the hull of points (n, 3) [m], or of a choice of `max_vertices` of them that leaves little outside.

    The hull with fewer vertices lies inside the true one; `Hull.error` says how far the true one stands out.
    """
    points = _checked(points, max_vertices)
    corners, normals, offsets, triangles = _triangulated(points)
    error = 0.0
    if len(np.unique(triangles)) > max_vertices:
        chosen = _spread_choice(points[corners], max_vertices)
        _, normals, offsets, triangles = _triangulated(points[corners][chosen])
        error = max(0.0, float((points @ normals.T + offsets).max()))
        points = points[corners][chosen]
    size = float(np.ptp(points, axis=0).max())
    for tolerance in (flatness * size, 0.0):
        hull = _merged(points, normals, offsets, triangles, tolerance, error)
        if hull is not None:
            return hull
    raise PullbackError("the faces of a convex hull do not close; are points repeated within rounding? merge them")


def hull_of_file(path: str | Path, *, scale: Any = 1.0, max_vertices: int = VERTEX_BUDGET) -> Hull:
    """Return the hull of a mesh file (.stl, .obj, whatever trimesh reads), its vertices times `scale`, one or three."""
    path = Path(path)
    mesh = read_surface(path, process=False)
    try:
        return convex_hull(np.asarray(mesh.vertices, float) * np.asarray(scale, float), max_vertices=max_vertices)
    except PullbackError as error:
        raise PullbackError(f"mesh file {path.name!r}: {error}") from error


def box_hull() -> Hull:
    """Return the box of half extents 1."""
    signs = [(x, y, z) for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)]
    return convex_hull(np.array(signs))


def point_hull() -> Hull:
    """Return the core of a sphere, a vertex."""
    none = np.zeros((0, 2), int)
    return Hull(np.zeros((1, 3)), none, none, np.zeros((0, 3)), ())


def segment_hull() -> Hull:
    """Return the core of a capsule, an edge from -z to z."""
    ends = np.array([(0.0, 0.0, -1.0), (0.0, 0.0, 1.0)])
    return Hull(ends, np.array([(0, 1)]), np.array([(-1, -1)]), np.zeros((0, 3)), ())


def plane_hull() -> Hull:
    """Return the half space below z = 0: a face without border."""
    none = np.zeros((0, 2), int)
    return Hull(np.zeros((0, 3)), none, none, np.array([(0.0, 0.0, 1.0)]), (np.zeros(0, int),))


def ball_hull() -> Hull:
    """Return a polyhedron of 42 vertices in the sphere of radius 1, from which smooth shapes start."""
    import trimesh

    return convex_hull(trimesh.creation.icosphere(subdivisions=1).vertices)


def cylinder_hull(sides: int = PRISM_SIDES) -> Hull:
    """Return the prism in the cylinder of radius 1 from z = -1 to 1, by which the cylinder's features are found."""
    angle = 2 * np.pi * np.arange(sides) / sides
    ring = np.stack([np.cos(angle), np.sin(angle)], 1)
    vertices = np.concatenate([np.column_stack([ring, np.full(sides, z)]) for z in (-1.0, 1.0)])
    prism = convex_hull(vertices, max_vertices=2 * sides)
    return Hull(prism.vertices, prism.edges, prism.edge_faces, prism.normals, prism.loops, is_cylinder=True)


def _checked(points: Any, max_vertices: int) -> np.ndarray:
    points = np.asarray(points, float)
    if points.ndim != 2 or points.shape[1] != 3 or len(points) < 4:
        raise PullbackError(f"a convex hull needs at least four points (n, 3), got an array of shape {points.shape}")
    if not np.isfinite(points).all():
        raise PullbackError(f"point {int(np.argmin(np.isfinite(points).all(1)))} of a convex hull is not finite")
    if max_vertices < 4:
        raise PullbackError(f"a convex hull has at least four vertices, max_vertices is {max_vertices}")
    return points


def _triangulated(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the corners of the hull, and normal (nf, 3), offset (nf,) and corners (nf, 3) of its triangles."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        hull = ConvexHull(points)
    except QhullError:
        raise PullbackError(
            "the points of a convex hull lie in a plane or on a line; give the shape some thickness, or use a box"
        ) from None
    return hull.vertices, hull.equations[:, :3], hull.equations[:, 3], hull.simplices


def _spread_choice(points: np.ndarray, count: int) -> np.ndarray:
    """Return indices of `count` points: four far apart, then always the one that stands out of their hull most."""
    first = int(np.argmin(points[:, 0]))
    chosen = [first, int(np.argmax(np.linalg.norm(points - points[first], axis=1)))]
    along = points[chosen[1]] - points[first]
    chosen.append(int(np.argmax(np.linalg.norm(np.cross(points - points[first], along), axis=1))))
    across = np.cross(along, points[chosen[2]] - points[first])
    chosen.append(int(np.argmax(np.abs((points - points[first]) @ across))))
    while len(chosen) < count:
        _, normals, offsets, _ = _triangulated(points[chosen])
        outside = (points @ normals.T + offsets).max(1)
        outside[chosen] = -np.inf
        chosen.append(int(np.argmax(outside)))
    return np.array(chosen)


def _merged(
    points: np.ndarray, normals: np.ndarray, offsets: np.ndarray, triangles: np.ndarray, tolerance: float, error: float
) -> Hull | None:
    """Return the hull with triangles in one plane joined, or None if the edges then do not close."""
    group = _coplanar_groups(points, normals, offsets, triangles, tolerance)
    faces_of: dict[int, set[int]] = {}
    for triangle, face in zip(triangles, group):
        for corner in triangle:
            faces_of.setdefault(int(corner), set()).add(int(face))
    # a vertex where fewer than three faces meet lies inside a face or on an edge
    kept = np.array(sorted(corner for corner, faces in faces_of.items() if len(faces) > 2))
    loops, face_normals = [], []
    for face in range(max(group) + 1):
        members = triangles[group == face]
        normal = _area_normal(points, members, normals[group == face][0])
        corners = np.array([k for k, corner in enumerate(kept) if face in faces_of[int(corner)]])
        if len(corners) < 3:
            return None
        loops.append(_anticlockwise(points[kept[corners]], normal, corners))
        face_normals.append(normal)
    return _closed(points[kept], np.array(face_normals), tuple(loops), error)


def _coplanar_groups(
    points: np.ndarray, normals: np.ndarray, offsets: np.ndarray, triangles: np.ndarray, tolerance: float
) -> np.ndarray:
    """Return the face each triangle belongs to; faces grow from the largest triangles over their neighbours."""
    corners = points[triangles]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    sharing: dict[frozenset[int], list[int]] = {}
    for k, (a, b, c) in enumerate(triangles):
        for pair in ((a, b), (b, c), (c, a)):
            sharing.setdefault(frozenset(map(int, pair)), []).append(k)
    group = np.full(len(triangles), -1)
    count = 0
    for seed in np.argsort(-area, kind="stable"):
        if group[seed] >= 0:
            continue
        waiting, group[seed] = [int(seed)], count
        while waiting:
            a, b, c = triangles[waiting.pop()]
            for pair in ((a, b), (b, c), (c, a)):
                for k in sharing[frozenset(map(int, pair))]:
                    height = np.abs(points[triangles[k]] @ normals[seed] + offsets[seed]).max()
                    if group[k] < 0 and height <= tolerance and normals[k] @ normals[seed] > 0:
                        group[k] = count
                        waiting.append(k)
        count += 1
    return group


def _area_normal(points: np.ndarray, triangles: np.ndarray, outwards: np.ndarray) -> np.ndarray:
    corners = points[triangles]
    areas = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    total = (areas * np.sign(areas @ outwards)[:, None]).sum(0)
    return total / np.linalg.norm(total)


def _anticlockwise(corners: np.ndarray, normal: np.ndarray, names: np.ndarray) -> np.ndarray:
    r = corners - corners.mean(0)
    x = r[0] - (normal @ r[0]) * normal
    return names[np.argsort(np.arctan2(r @ np.cross(normal, x), r @ x), kind="stable")]


def _closed(vertices: np.ndarray, normals: np.ndarray, loops: Sequence[np.ndarray], error: float) -> Hull | None:
    """Return the hull of these faces with its edges, or None if some edge does not have a face on either side."""
    left: dict[tuple[int, int], int] = {}
    for face, loop in enumerate(loops):
        for a, b in zip(loop, np.roll(loop, -1)):
            left[int(a), int(b)] = face
    edges = [(a, b) for a, b in left if a < b]
    if any((b, a) not in left for a, b in left) or len(left) != sum(map(len, loops)):
        return None
    if len(vertices) - len(edges) + len(loops) != 2:
        return None
    faces = [(left[a, b], left[b, a]) for a, b in edges]
    return Hull(vertices, np.array(edges), np.array(faces), normals, tuple(loops), error)
