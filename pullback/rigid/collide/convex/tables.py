"""The hulls of a world in the arrays that kernels read: one flat table, shared by all worlds.

Vertices, edges and faces of all hulls are numbered through. Numbers stand in float32 and in float64, so that one struct
serves kernels of either type. The hull of a shape is scaled by the shape's half extents h: c = p + R (v∘h). A sphere, a
capsule and a box are a point, a segment and a cube of half extents 1; a mesh has its own hull and h = (s, s, s).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import warp as wp

from pullback.rigid.collide.convex.hulls import Hull

VERTEX, EDGE, FACE = 0, 1, 2  # as in features_kernels, which cannot be imported here: scenes hold these tables
# what a feature is, in its code: code = HULL_CODES + 2 (FEATURE_KINDS index + kind) + 1 if it is a reversed edge
HULL_CODES = wp.constant(243)  # the codes below belong to features of boxes of points (features_kernels)
FEATURE_KINDS = wp.constant(7)
RIM = wp.constant(3)  # the circle around a cylinder's end; its index is that of the end's face
SIDE = wp.constant(4)  # the round of a cylinder: an edge, its axis, with the radius of the cylinder
ARC = wp.constant(5)  # a rim near one edge of the prism, whose index it has, as its tangent
ARC_POINT = wp.constant(6)  # the same as a point


@wp.struct
class Hulls:
    """Vertices, edges and faces of hulls; `x_start` are where those of each hull, vertex or face begin."""

    shape_hull: wp.array(dtype=wp.int32)
    hull_vertex: wp.array(dtype=wp.int32)
    hull_edge: wp.array(dtype=wp.int32)
    hull_face: wp.array(dtype=wp.int32)
    hull_reach: wp.array(dtype=wp.float32)  # distance of the furthest vertex from the origin, rounded up
    hull_widest: wp.array(dtype=wp.float32)  # the largest coordinate of a vertex, likewise
    hull_is_round: wp.array(dtype=wp.int32)  # a prism in the place of a cylinder
    vertex: wp.array(dtype=wp.vec3f)
    vertex_double: wp.array(dtype=wp.vec3d)
    edge_direction: wp.array(dtype=wp.vec3f)
    edge_direction_double: wp.array(dtype=wp.vec3d)
    face_centre: wp.array(dtype=wp.vec3f)
    face_centre_double: wp.array(dtype=wp.vec3d)
    face_normal: wp.array(dtype=wp.vec3f)
    face_normal_double: wp.array(dtype=wp.vec3d)
    # codes of the features of a cylinder that those of its prism stand for; of other hulls their own
    vertex_round: wp.array(dtype=wp.int32)
    vertex_arc: wp.array(dtype=wp.int32)  # an arc next to the vertex
    edge_round: wp.array(dtype=wp.int32)
    edge_rim: wp.array(dtype=wp.int32)  # the whole rim an edge belongs to
    face_round: wp.array(dtype=wp.int32)
    edge_vertices: wp.array(dtype=wp.vec2i)
    edge_faces: wp.array(dtype=wp.vec2i)
    neighbour_start: wp.array(dtype=wp.int32)  # of a vertex
    neighbour: wp.array(dtype=wp.int32)
    neighbour_edge: wp.array(dtype=wp.int32)
    around_start: wp.array(dtype=wp.int32)  # of a vertex: the faces around it
    around: wp.array(dtype=wp.int32)
    loop_start: wp.array(dtype=wp.int32)  # of a face: its vertices and the edges from each to the next
    loop: wp.array(dtype=wp.int32)
    loop_edge: wp.array(dtype=wp.int32)


def hull_tables(hulls: Sequence[Hull], shape_hull: Sequence[int], device: Any = "cpu") -> Any:
    """Return the tables of some hulls, and which of them each shape has."""
    parts = [_tables_of(hull) for hull in hulls]
    counts = np.array([(len(h.vertices), len(h.edges), len(h.normals)) for h in hulls]).reshape(-1, 3)
    starts = np.concatenate([np.zeros((1, 3), int), np.cumsum(counts, 0)])
    tables = Hulls()

    def integers(x: Any, dtype: Any = wp.int32) -> Any:
        return wp.array(np.asarray(x, np.int32), dtype=dtype, device=device)

    def joined(name: str, shift: int | None) -> np.ndarray:
        moved = [part[name] + (0 if shift is None else starts[k, shift]) for k, part in enumerate(parts)]
        return np.concatenate(moved)

    def runs(name: str) -> Any:
        lengths = np.concatenate([part[name] for part in parts])
        return integers(np.concatenate([[0], np.cumsum(lengths)]))

    for k, name in enumerate(("hull_vertex", "hull_edge", "hull_face")):
        setattr(tables, name, integers(starts[:, k]))
    for name in ("vertex", "edge_direction", "face_centre", "face_normal"):
        values = joined(name, None).reshape(-1, 3)
        setattr(tables, name, wp.array(values, dtype=wp.vec3f, device=device))
        setattr(tables, name + "_double", wp.array(values, dtype=wp.vec3d, device=device))
    codes = [_codes_of(hull, *start) for hull, start in zip(hulls, starts)]
    for k, name in enumerate(("vertex_round", "vertex_arc", "edge_round", "edge_rim", "face_round")):
        setattr(tables, name, integers(np.concatenate([code[k] for code in codes])))
    tables.shape_hull = integers(shape_hull)
    widest = [np.abs(hull.vertices).max(initial=0.0) for hull in hulls]
    for name, sizes in (("hull_reach", [hull.reach for hull in hulls]), ("hull_widest", widest)):
        setattr(tables, name, wp.array(np.multiply(sizes, 1 + 1e-6), dtype=wp.float32, device=device))
    tables.hull_is_round = integers([hull.is_cylinder for hull in hulls])
    tables.edge_vertices = integers(joined("edges", 0), wp.vec2i)
    faces = joined("edge_faces", 2)
    alone = np.concatenate([part["edge_faces"] for part in parts]) < 0
    tables.edge_faces = integers(np.where(alone, -1, faces), wp.vec2i)
    tables.neighbour_start, tables.around_start, tables.loop_start = map(runs, ("valence", "faces_at", "corners"))
    tables.neighbour, tables.neighbour_edge = integers(joined("neighbour", 0)), integers(joined("neighbour_edge", 1))
    tables.around = integers(joined("around", 2))
    tables.loop, tables.loop_edge = integers(joined("loop", 0)), integers(joined("loop_edge", 1))
    return tables


def _tables_of(hull: Hull) -> dict[str, np.ndarray]:
    """Return the arrays of one hull, numbered from 0; lists of different lengths come flat, with their lengths."""
    count = len(hull.vertices)
    number = {frozenset(map(int, edge)): k for k, edge in enumerate(hull.edges)}
    neighbours: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    around: list[list[int]] = [[] for _ in range(count)]
    for k, (a, b) in enumerate(hull.edges):
        neighbours[a].append((int(b), k))
        neighbours[b].append((int(a), k))
    for face, loop in enumerate(hull.loops):
        for corner in loop:
            around[corner].append(face)
    ahead = hull.vertices[hull.edges[:, 1]] - hull.vertices[hull.edges[:, 0]]
    pairs = np.array([pair for row in neighbours for pair in row], int).reshape(-1, 2)
    borders = [number[frozenset((int(a), int(b)))] for loop in hull.loops for a, b in zip(loop, np.roll(loop, -1))]
    return {
        "vertex": hull.vertices.reshape(-1, 3),
        "edge_direction": ahead / np.linalg.norm(ahead, axis=1, keepdims=True),
        "face_centre": np.array([_centre(hull.vertices[loop]) for loop in hull.loops]).reshape(-1, 3),
        "face_normal": hull.normals,
        "edges": hull.edges,
        "edge_faces": hull.edge_faces,
        "valence": np.array([len(row) for row in neighbours], int),
        "neighbour": pairs[:, 0],
        "neighbour_edge": pairs[:, 1],
        "faces_at": np.array([len(row) for row in around], int),
        "around": np.array([face for row in around for face in row], int),
        "corners": np.array([len(loop) for loop in hull.loops], int),
        "loop": np.array([corner for loop in hull.loops for corner in loop], int),
        "loop_edge": np.array(borders, int),
    }


def _centre(corners: np.ndarray) -> np.ndarray:
    return corners.mean(0) if len(corners) else np.zeros(3)


def feature_code(kind: Any, index: Any) -> Any:
    """Return the code of a feature of a hull, `kind` VERTEX, EDGE, FACE, RIM, SIDE, ..."""
    return int(HULL_CODES) + 2 * (int(FEATURE_KINDS) * index + int(kind))


def _codes_of(hull: Hull, vertex: int, edge: int, face: int) -> tuple[np.ndarray, ...]:
    """Return what stands for the vertices, edges and faces of a hull whose first ones have these numbers."""
    vertices = feature_code(VERTEX, vertex + np.arange(len(hull.vertices)))
    edges = feature_code(EDGE, edge + np.arange(len(hull.edges)))
    faces = feature_code(FACE, face + np.arange(len(hull.normals)))
    if not hull.is_cylinder:
        return vertices, vertices, edges, edges, faces
    end = {sign: face + int(np.argmax(sign * hull.normals[:, 2])) for sign in (-1, 1)}
    side = feature_code(SIDE, 0)
    rims = np.array([feature_code(RIM, end[int(z)]) for z in np.sign(hull.vertices[:, 2])])
    arcs = feature_code(ARC, edge + np.arange(len(hull.edges)))
    is_upright = hull.vertices[hull.edges[:, 0], 2] != hull.vertices[hull.edges[:, 1], 2]
    vertex_arcs = np.zeros_like(rims)
    for k in np.flatnonzero(~is_upright):
        vertex_arcs[hull.edges[k]] = arcs[k]
    edge_rims = np.where(is_upright, side, rims[hull.edges[:, 0]])
    is_end = np.abs(hull.normals[:, 2]) > 0.5
    return rims, vertex_arcs, np.where(is_upright, side, arcs), edge_rims, np.where(is_end, faces, side)
