"""The best separating axis of two hulls near a direction: a face, or two edges (docs/derivations/convex.md).

GJK and EPA return a direction up to rounding. The axes of the faces and edges around the support vertices are exact.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.support_kernels import (
    difference_support,
    edge_direction,
    face_centre,
    face_normal,
    furthest_vertex,
    placed,
    rounding,
)
from pullback.rigid.collide.convex.tables import Hulls

FACE_OF_A = wp.constant(0)
FACE_OF_B = wp.constant(1)

ASCENTS = wp.constant(20)
PARALLEL_EDGES = wp.constant(1.0e-4)  # squared sine of the angle below which two edges count as parallel
FACE_ADVANTAGE = wp.constant(1.0e-5)  # of the size: what edges must gain over a face
FLAT_ADVANTAGE = wp.constant(1.0e-2)  # of the smaller size: edges less deep than a face by this are alone
FLAT = wp.constant(0.98)  # cosine between normals above which two faces lie on each other, and edges on a face


@wp.func
def best_face_around(hulls: Hulls, X: Any, Y: Any, corner_x: int, corner_y: int):
    """Return the largest separation over the faces around a vertex of X, the face, -1: none, and its normal."""
    best = X.p.dtype(-1.0e30)
    face = int(-1)
    normal = X.p - X.p
    for k in range(hulls.around_start[corner_x], hulls.around_start[corner_x + 1]):
        f = hulls.around[k]
        n = X.R * face_normal(hulls, f, X.p)
        y = Y.p + placed(hulls, Y, furthest_vertex(hulls, Y, -n, corner_y))
        separated = wp.dot(n, y - X.p - X.R * wp.cw_mul(X.h, face_centre(hulls, f, X.p)))
        if separated > best:
            best = separated
            face = f
            normal = n
    return best, face, normal


@wp.func
def arc_of(hulls: Hulls, X: Any, e: int):
    """Return the normals of the faces left and right of an edge in world axes; 0 for a segment, which has none."""
    faces = hulls.edge_faces[e]
    left = X.p - X.p
    right = X.p - X.p
    if faces[0] >= 0:
        left = X.R * face_normal(hulls, faces[0], X.p)
        right = X.R * face_normal(hulls, faces[1], X.p)
    return left, right


@wp.func
def outer_normal(da: Any, left_a: Any, right_a: Any, db: Any, left_b: Any, right_b: Any, m: Any):
    """Return m = ± da x db, from B to A, if the two edges make a face of A - B, 0 if they do not, eq. (10)."""
    zero = m.dtype(0.0)
    side_a = wp.dot(m, left_a + right_a)
    side_b = wp.dot(m, left_b + right_b)
    crosses_a = wp.dot(db, left_a) * wp.dot(db, right_a) <= zero
    crosses_b = wp.dot(da, left_b) * wp.dot(da, right_b) <= zero
    result = m - m
    if crosses_a and crosses_b and side_a * side_b <= zero:
        result = m
        if side_a > side_b:
            result = -m
    return result


@wp.func
def best_edges_around(
    hulls: Hulls, A: Any, B: Any, r: Any, corner_a: int, corner_b: int, face_axis: Any, best_face: Any, size: Any
):
    """Return the separation, edges and axis of the best pair of edges at two vertices, if better than a face, eq. (10).

    r is the vector from the vertex of B to that of A. The edge of A is -1 if there is none.
    """
    best = best_face + size * size.dtype(FACE_ADVANTAGE)
    edge_a = int(-1)
    edge_b = int(-1)
    axis = face_axis
    for i in range(hulls.neighbour_start[corner_a], hulls.neighbour_start[corner_a + 1]):
        ea = hulls.neighbour_edge[i]
        da = A.R * edge_direction(hulls, ea, r)
        left_a, right_a = arc_of(hulls, A, ea)
        for j in range(hulls.neighbour_start[corner_b], hulls.neighbour_start[corner_b + 1]):
            eb = hulls.neighbour_edge[j]
            db = B.R * edge_direction(hulls, eb, r)
            m = wp.cross(da, db)
            square = wp.dot(m, m)
            if square > r.dtype(PARALLEL_EDGES):
                left_b, right_b = arc_of(hulls, B, eb)
                m = outer_normal(da, left_a, right_a, db, left_b, right_b, m / wp.sqrt(square))
                separated = wp.dot(m, r)
                if wp.dot(m, m) > r.dtype(0.5) and separated > best:
                    best = separated
                    edge_a = ea
                    edge_b = eb
                    axis = m
    return best, edge_a, edge_b, axis


@wp.func
def best_axis(hulls: Hulls, A: Any, B: Any, start_a: int, start_b: int, guess: Any, size: Any):
    """Climb from a direction to the axis of largest separation around it.

    Returns the hull of the best face, FACE_OF_A or FACE_OF_B, the face, its axis from B to A and its separation; the
    edges of A and B if they are better, else -1; the better axis and the separation along it; vertices of A and B near
    it. Eqs. (9) and (10).
    """
    r = A.p
    side_of_face = int(FACE_OF_A)
    face = int(-1)
    face_axis = guess
    face_separated = r.dtype(-1.0e30)
    edge_a = int(-1)
    edge_b = int(-1)
    axis = guess
    best = r.dtype(-1.0e30)
    ia = int(start_a)
    ib = int(start_b)
    climbing = int(1)
    ascents = int(ASCENTS)
    two = int(2)
    for turn in range(ascents):
        if climbing == 1:
            between, ia, ib = difference_support(hulls, A, B, -axis, ia, ib)
            face_best = r.dtype(-1.0e30)
            found = int(-1)
            found_side = int(FACE_OF_A)
            found_axis = axis
            for side in range(two):
                X, Y, ix, iy = A, B, ia, ib
                if side == 1:
                    X, Y, ix, iy = B, A, ib, ia
                separated, f, n = best_face_around(hulls, X, Y, ix, iy)
                # a face of b is chosen if it is better by this much
                if f >= 0 and separated > face_best + r.dtype(side) * size * r.dtype(FACE_ADVANTAGE):
                    face_best = separated
                    found_side = side
                    found = f
                    found_axis = n
                    if side == FACE_OF_A:
                        found_axis = -n
            edge_best, ea, eb, m = best_edges_around(hulls, A, B, between, ia, ib, found_axis, face_best, size)
            now = face_best
            if ea >= 0:
                now = edge_best
            if now > best + rounding(r) * size:
                best = now
                side_of_face = found_side
                face = found
                face_axis = found_axis
                face_separated = face_best
                edge_a = ea
                edge_b = eb
                axis = m
            else:
                climbing = 0
    return side_of_face, face, face_axis, face_separated, edge_a, edge_b, axis, best, ia, ib
