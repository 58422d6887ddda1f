"""Which feature of a convex shape B a smooth shape A touches: a walk from feature to feature that only climbs.

Each step maximises the separation over the normals of one feature, and goes on to a neighbour if the contact point or
the normal left the feature: the conditions are those of a maximum over all directions, the table (10)
(docs/derivations/smooth.md).
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.features_kernels import hull_code, hull_index, hull_kind
from pullback.rigid.collide.convex.manifold_kernels import loop_edge
from pullback.rigid.collide.convex.support_kernels import (
    edge_direction,
    edge_middle,
    face_centre,
    face_normal,
    placed,
    rounding,
)
from pullback.rigid.collide.convex.tables import RIM, SIDE, Hulls
from pullback.rigid.collide.features_kernels import EDGE, FACE, VERTEX
from pullback.rigid.collide.smooth.direction_kernels import WHOLE, across_axis, best_direction, rim_point
from pullback.rigid.collide.smooth.support_kernels import support

WALK_LIMIT = wp.constant(24)
TILT = wp.constant(0.3)  # of a normal [rad] that leaves the axis of a cylinder's end for its rim


@wp.func
def beyond_vertex(hulls: Hulls, B: Any, i: int, n: Any, tolerance: Any):
    """Return the edge at vertex i that rises most along n, the vertex itself if none does."""
    result = hull_code(VERTEX, i)
    steepest = tolerance
    for k in range(hulls.neighbour_start[i], hulls.neighbour_start[i + 1]):
        e = hulls.neighbour_edge[k]
        slope = wp.dot(n, B.R * edge_direction(hulls, e, n))
        if hulls.edge_vertices[e][0] != i:
            slope = -slope
        if slope > steepest:
            steepest = slope
            result = hull_code(EDGE, e)
    return result


@wp.func
def beyond_edge(hulls: Hulls, B: Any, e: int, n: Any, x: Any, tolerance: Any):
    """Return the end of an edge that the contact point x is beyond, or the face that n is; else the edge."""
    result = hull_code(EDGE, e)
    ends = hulls.edge_vertices[e]
    d = B.R * edge_direction(hulls, e, n)
    if wp.dot(d, x - placed(hulls, B, ends[0])) < n.dtype(0.0):
        result = hull_code(VERTEX, ends[0])
    elif wp.dot(d, x - placed(hulls, B, ends[1])) > n.dtype(0.0):
        result = hull_code(VERTEX, ends[1])
    else:
        middle = edge_middle(hulls, e, n)
        steepest = tolerance
        two = int(2)
        for k in range(two):
            f = hulls.edge_faces[e][k]
            if f >= 0:
                inwards = B.R * wp.cw_mul(B.h, face_centre(hulls, f, n) - middle)
                slope = wp.dot(n, wp.normalize(inwards))
                if slope > steepest:
                    steepest = slope
                    result = hull_code(FACE, f)
    return result


@wp.func
def beyond_face(hulls: Hulls, B: Any, f: int, n: Any, x: Any):
    """Return the edge of a face that the contact point x is furthest beyond, the face itself if it is inside."""
    result = hull_code(FACE, f)
    furthest = n.dtype(0.0)
    for k in range(hulls.loop_start[f + 1] - hulls.loop_start[f]):
        e, sense = loop_edge(hulls, f, 0, k)
        outwards = wp.cross(B.R * edge_direction(hulls, e, n), n) * n.dtype(sense)
        beyond = wp.dot(outwards, x - placed(hulls, B, hulls.loop[hulls.loop_start[f] + k]))
        if beyond > furthest:
            furthest = beyond
            result = hull_code(EDGE, e)
    return result


@wp.func
def end_of(hulls: Hulls, B: Any, z: Any):
    """Return the face that is a cylinder's end on the side of z."""
    end = int(0)
    for f in range(hulls.hull_face[B.hull], hulls.hull_face[B.hull + 1]):
        if face_normal(hulls, f, B.h)[2] * wp.sign(z) > B.h.dtype(0.5):
            end = f
    return end


@wp.func
def touches_end(hulls: Hulls, kind: int, A: Any, B: Any, f: int):
    """Return whether A's point nearest to the plane of a cylinder's end is over the end, and its separation."""
    d = B.R * face_normal(hulls, f, B.h)
    x = (A.p + support(kind, A.R, A.h, -d)) * B.R
    inside = x[0] * x[0] + x[1] * x[1] < B.h[0] * B.h[0]
    return inside, wp.sign(face_normal(hulls, f, B.h)[2]) * x[2] - B.h[2]


@wp.func
def beyond_cylinder(hulls: Hulls, kind: int, A: Any, B: Any, code: int, n: Any, v: Any):
    """Return the next feature of a cylinder, its end, rim or side, that A may touch; the same if it is this one."""
    zero = n.dtype(0.0)
    x = (A.p + support(kind, A.R, A.h, -n)) * B.R
    result = int(code)
    if hull_kind(code) == SIDE:
        if wp.abs(x[2]) > B.h[2]:
            result = hull_code(RIM, end_of(hulls, B, x[2]))
    elif hull_kind(code) == FACE:
        if x[0] * x[0] + x[1] * x[1] >= B.h[0] * B.h[0]:
            result = hull_code(RIM, hull_index(code))
    else:
        f = hull_index(code)
        over_end, separated = touches_end(hulls, kind, A, B, f)
        if wp.dot(n, B.R * face_normal(hulls, f, n)) < zero:
            result = hull_code(SIDE, 0)
        elif over_end and separated >= wp.dot(n, v):
            result = hull_code(FACE, f)
    return result


@wp.func
def start_from(hulls: Hulls, kind: int, A: Any, B: Any, code: int, n: Any):
    """Return a normal to start from: against a rim one that leaves the axis of the cylinder."""
    result = n
    if code != WHOLE and hull_kind(code) == RIM:
        d = B.R * face_normal(hulls, hull_index(code), n)
        across = across_axis(n, d)
        if wp.dot(across, across) < n.dtype(1.0e-4):
            x = A.p + support(kind, A.R, A.h, -n)
            result = wp.normalize(d + n.dtype(TILT) * rim_point(d, n.dtype(1.0), x))
    return result


@wp.func
def best_face(hulls: Hulls, kind: int, A: Any, B: Any):
    """Return the face of B with the largest separation from A, -1: it has none."""
    best = A.p.dtype(-1.0e30)
    result = int(-1)
    for f in range(hulls.hull_face[B.hull], hulls.hull_face[B.hull + 1]):
        n = B.R * face_normal(hulls, f, A.p)
        x = A.p + support(kind, A.R, A.h, -n)
        separated = wp.dot(n, x - B.R * wp.cw_mul(B.h, face_centre(hulls, f, n)))
        # the sides of a prism are none of its cylinder
        if separated > best and hull_kind(hulls.face_round[f]) == FACE:
            best = separated
            result = hull_code(FACE, f)
    return result


@wp.func
def walk(hulls: Hulls, kind_a: int, A: Any, kind_b: int, B: Any, first: int, start: Any):
    """Return the feature of B that A touches, the normal, and the vector v between points, from a first guess."""
    code = int(first)
    tolerance = start.dtype(100.0) * rounding(start)  # of a normal [rad] that leaves the cone of a feature
    n, v = best_direction(hulls, kind_a, A, kind_b, B, code, start_from(hulls, kind_a, A, B, code, start))
    walking = int(1)
    if code == WHOLE:
        walking = 0
    limit = int(WALK_LIMIT)
    for step in range(limit):
        if walking == 1:
            x = A.p + support(kind_a, A.R, A.h, -n)
            kind = hull_kind(code)
            i = hull_index(code)
            ahead = int(code)
            if hulls.hull_is_round[B.hull] == 1:
                ahead = beyond_cylinder(hulls, kind_a, A, B, code, n, v)
            elif kind == VERTEX:
                ahead = beyond_vertex(hulls, B, i, n, tolerance)
            elif kind == EDGE:
                ahead = beyond_edge(hulls, B, i, n, x, tolerance)
            else:
                ahead = beyond_face(hulls, B, i, n, x)
            if ahead == code:
                walking = 0
            else:
                code = ahead
                n, v = best_direction(hulls, kind_a, A, kind_b, B, code, start_from(hulls, kind_a, A, B, code, n))
    if walking == 1:
        # shapes deep in each other, for which the separation has many maxima: fall back on a face
        face = best_face(hulls, kind_a, A, B)
        if face >= 0:
            code = face
            n, v = best_direction(hulls, kind_a, A, kind_b, B, code, n)
    return code, n, v
