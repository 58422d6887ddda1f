"""The contacts of two hulls along an axis: the corners of the area two faces share (docs/derivations/convex.md).

X is the hull with the face, Y the other; n is the normal out of X. If more contacts are found than may be kept, those
furthest in seven directions of the plane and the deepest are: they stand in slots, in scratch, one a direction.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.axis_kernels import FLAT, PARALLEL_EDGES
from pullback.rigid.collide.convex.features_kernels import hull_code
from pullback.rigid.collide.convex.support_kernels import (
    edge_direction,
    edge_middle,
    face_centre,
    face_normal,
    furthest_vertex,
    placed,
)
from pullback.rigid.collide.convex.tables import Hulls
from pullback.rigid.collide.features_kernels import EDGE, FACE, VERTEX, column
from pullback.rigid.collide.geometry_kernels import add_candidate, line_parameters
from pullback.rigid.compile.scene import CANDIDATE_ROWS

MAX_POINTS = wp.constant(8)  # contacts of a pair
DIRECTIONS = wp.constant(7)  # slots, besides that of the deepest
ROUND_DIRECTIONS = wp.constant(4)  # the same around the end of a cylinder
SCORES = wp.constant(40)  # where the scores of the slots start, behind CANDIDATE_ROWS for each
DEPTHS = wp.constant(48)
CIRCLE = wp.constant(6.283185307179586)
LEAN = wp.constant(0.1)  # how far the normal of two edges may lie outside their normal cones (sine of the angle)
DEEPER = wp.constant(0.1)  # of its depth: a corner beside the face counts if it is this much deeper than all others,
NEARER = wp.constant(1.0e-4)  # and by this part of the smaller size
BORDER = wp.constant(1.0e-3)  # of the smaller size: what is closer to a border than this lies on it


@wp.func
def loop_vertex(hulls: Hulls, face: int, hull: int, k: int):
    """Return vertex k of a face's border; without a face, vertex k of the hull."""
    i = int(0)
    if face >= 0:
        i = hulls.loop[hulls.loop_start[face] + k]
    else:
        i = hulls.hull_vertex[hull] + k
    return i


@wp.func
def loop_edge(hulls: Hulls, face: int, hull: int, k: int):
    """Return edge k of a face's border, and 1 or -1 for its sense; without a face, edge k of the hull."""
    e = int(0)
    sense = int(1)
    if face >= 0:
        e = hulls.loop_edge[hulls.loop_start[face] + k]
        if hulls.edge_vertices[e][0] != hulls.loop[hulls.loop_start[face] + k]:
            sense = -1
    else:
        e = hulls.hull_edge[hull] + k
    return e, sense


@wp.func
def inside_by(hulls: Hulls, X: Any, face: int, n: Any, x: Any):
    """Return how far inside the border of a face a point is, seen along its normal; negative outside."""
    result = n.dtype(1.0e30)
    for k in range(hulls.loop_start[face], hulls.loop_start[face + 1]):
        e, sense = loop_edge(hulls, face, 0, k - hulls.loop_start[face])
        inwards = wp.cross(n, X.R * edge_direction(hulls, e, n)) * n.dtype(sense)
        start = X.p + placed(hulls, X, hulls.loop[k])
        result = wp.min(result, wp.dot(inwards, x - start))
    return result


@wp.func
def is_at_corner(hulls: Hulls, X: Any, face: int, n: Any, x: Any, tolerance: Any):
    """Return whether a point is at a corner of a face, seen along a normal."""
    result = bool(False)
    for k in range(hulls.loop_start[face], hulls.loop_start[face + 1]):
        between = x - X.p - placed(hulls, X, hulls.loop[k])
        between -= wp.dot(n, between) * n
        if wp.dot(between, between) < tolerance * tolerance:
            result = True
    return result


@wp.func
def facing(hulls: Hulls, X: Any, i: int, n: Any):
    """Return the face around vertex i whose normal is closest to -n, -1: none, and the normal in world axes."""
    face = int(-1)
    normal = n - n
    for k in range(hulls.around_start[i], hulls.around_start[i + 1]):
        m = X.R * face_normal(hulls, hulls.around[k], n)
        if face < 0 or wp.dot(m, n) < wp.dot(normal, n):
            face = hulls.around[k]
            normal = m
    return face, normal


@wp.func
def is_candidate(code_a: int, code_b: int, w: int, candidates: wp.array2d(dtype=Any), count: int):
    """Return whether two features are among the first candidates already."""
    result = bool(False)
    for k in range(wp.min(count, MAX_POINTS)):
        same_a = int(candidates[k * CANDIDATE_ROWS, w]) == code_a
        if same_a and int(candidates[k * CANDIDATE_ROWS + 1, w]) == code_b:
            result = True
    return result


@wp.func
def add_to_slots(
    code_a: int, code_b: int, towards_a: Any, x: Any, y: Any, depth: Any, directions: int, w: int,
    candidates: wp.array2d(dtype=Any), slots: wp.array2d(dtype=Any), count: int,
):  # fmt: skip
    """Add a candidate at (x, y) of the plane, while there is room, and to the slots it is best for."""
    noted = int(count)
    if not is_candidate(code_a, code_b, w, candidates, count):
        if count < MAX_POINTS:
            add_candidate(code_a, code_b, towards_a, w, candidates, count)
        for k in range(directions + 1):
            angle = depth.dtype(CIRCLE) * depth.dtype(k) / depth.dtype(directions)
            score = wp.cos(angle) * x + wp.sin(angle) * y
            if k == directions:
                score = depth
            if count == 0 or score > slots[SCORES + k, w]:
                add_candidate(code_a, code_b, towards_a, w, slots, k)
                slots[SCORES + k, w] = score
                slots[DEPTHS + k, w] = depth
        noted = count + 1
    return noted


@wp.func
def keep_extremes(
    lead: Any, directions: int, w: int, candidates: wp.array2d(dtype=Any), slots: wp.array2d(dtype=Any), count: int
):
    """Replace too many candidates by those in the slots, each once; return how many are left.

    The deepest is one of them only if it is so by more than `lead`.
    """
    kept = int(count)
    if count > MAX_POINTS:
        kept = int(0)
        deepest = slots[DEPTHS, w]
        for k in range(directions + 1):
            needed = k < directions or slots[DEPTHS + k, w] > deepest + lead
            deepest = wp.max(deepest, slots[DEPTHS + k, w])
            row = k * CANDIDATE_ROWS
            code_a = int(slots[row, w])
            code_b = int(slots[row + 1, w])
            if needed and not is_candidate(code_a, code_b, w, candidates, kept):
                for i in range(CANDIDATE_ROWS):
                    candidates[kept * CANDIDATE_ROWS + i, w] = slots[row + i, w]
                kept += 1
    return kept


@wp.func
def crossing(
    hulls: Hulls, X: Any, edge_x: int, sense_x: int, n: Any, Y: Any, edge_y: int, sense_y: int, n_y: Any, tolerance: Any
):
    """Return whether two border edges cross seen along n, where, and how far apart they are, eq. (12)."""
    half = n.dtype(0.5)
    dX = X.R * edge_direction(hulls, edge_x, n)
    dY = Y.R * edge_direction(hulls, edge_y, n)
    cX = X.p + X.R * wp.cw_mul(X.h, edge_middle(hulls, edge_x, n))
    cY = Y.p + Y.R * wp.cw_mul(Y.h, edge_middle(hulls, edge_y, n))
    ends_x = hulls.edge_vertices[edge_x]
    ends_y = hulls.edge_vertices[edge_y]
    length_x = half * wp.length(placed(hulls, X, ends_x[1]) - placed(hulls, X, ends_x[0]))
    length_y = half * wp.length(placed(hulls, Y, ends_y[1]) - placed(hulls, Y, ends_y[0]))
    cosine = wp.dot(dX, dY)
    found = bool(False)
    point = cX
    apart = length_x
    if n.dtype(1.0) - cosine * cosine > n.dtype(PARALLEL_EDGES):
        t, u = line_parameters(cX - cY, dX, dY)
        if wp.abs(t) < length_x - tolerance and wp.abs(u) < length_y - tolerance:
            m = wp.normalize(wp.cross(dX, dY))
            if wp.dot(m, n) < n.dtype(0.0):
                m = -m
            lean_x = wp.dot(m, wp.cross(dX, n)) * n.dtype(sense_x)
            lean_y = wp.dot(m, wp.cross(dY, n_y)) * n.dtype(sense_y)
            found = wp.dot(m, n) > n.dtype(FLAT) and lean_x > -n.dtype(LEAN) and lean_y < n.dtype(LEAN)
            point = cX + t * dX
            apart = wp.dot(m, cY - cX)
    return found, point, apart


@wp.func
def add_face_contacts(
    hulls: Hulls, x_is_a: bool, X: Any, face_x: int, Y: Any, near_y: int, edges: wp.vec2i, range_of_gaps: Any,
    size: Any, w: int, candidates: wp.array2d(dtype=Any), slots: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the corners of the area that a face of X and the facing one of Y share, or all of Y if X is a plane.

    Candidates whose gap is outside of `range_of_gaps` are left out. `edges`: codes of two edges of A and B that were
    found before and come first; -1: none. Eqs. (11) and (12).
    """
    zero = size - size
    floor = range_of_gaps[0]
    reach = range_of_gaps[1]
    edges_a = edges[0]
    hull_y = Y.hull
    n = X.R * face_normal(hulls, face_x, X.p)
    cX = X.p + X.R * wp.cw_mul(X.h, face_centre(hulls, face_x, X.p))
    tolerance = size * size.dtype(BORDER)
    across = wp.normalize(
        wp.cross(n, column(X.R, 0) + column(X.R, 1) * size.dtype(0.7) + column(X.R, 2) * size.dtype(0.3))
    )
    up = wp.cross(n, across)
    corner_y = furthest_vertex(hulls, Y, -n, near_y)
    nx = hulls.loop_start[face_x + 1] - hulls.loop_start[face_x]
    face_y = int(-1)
    n_y = n - n
    ny = hulls.hull_vertex[hull_y + 1] - hulls.hull_vertex[hull_y]
    if nx > 0:
        face_y, n_y = facing(hulls, Y, corner_y, n)
    edges_y = hulls.hull_edge[hull_y + 1] - hulls.hull_edge[hull_y]
    if face_y >= 0:
        ny = hulls.loop_start[face_y + 1] - hulls.loop_start[face_y]
        edges_y = ny
    flat = -wp.dot(n, n_y) > n.dtype(FLAT)
    corners_x = int(0)
    crossings = int(0)
    if flat:
        corners_x = nx
    if flat or face_y < 0:
        crossings = nx * edges_y
    directions = int(DIRECTIONS)
    if hulls.hull_is_round[X.hull] == 1 or hulls.hull_is_round[hull_y] == 1:
        directions = int(ROUND_DIRECTIONS)
    count = int(0)
    deepest = -reach
    for item in range(-1, ny + corners_x + crossings + 1):
        code_x = hull_code(FACE, face_x)
        code_y = int(0)
        found = bool(False)
        point = cX
        apart = zero
        corners = item < ny + corners_x or item == ny + corners_x + crossings
        if item < 0:
            # the edges found before
            found = edges_a >= 0
            code_x = wp.where(x_is_a, edges_a, edges[1])
            code_y = wp.where(x_is_a, edges[1], edges_a)
        elif corners:
            # a corner of Y over the face of X, or of X over that of Y; at last the deepest, if none as deep was found
            of_x = item >= ny and item < ny + corners_x
            F, face, nF, C = X, face_x, n, Y
            i = int(corner_y)
            if item < ny:
                i = loop_vertex(hulls, face_y, hull_y, item)
            if of_x:
                F, face, nF, C = Y, face_y, n_y, X
                i = loop_vertex(hulls, face_x, 0, item - ny)
            point = C.p + placed(hulls, C, i)
            apart = wp.dot(nF, point - F.p - F.R * wp.cw_mul(F.h, face_centre(hulls, face, n)))
            code_y = hull_code(VERTEX, i)
            if of_x:
                code_x = hull_code(VERTEX, i)
                code_y = hull_code(FACE, face_y)
            if item < ny + corners_x:
                found = apart < reach and inside_by(hulls, F, face, nF, point) >= -tolerance
                if found and of_x:
                    found = not is_at_corner(hulls, Y, face_y, n, point, tolerance)
            else:
                lead = n.dtype(DEEPER) * wp.max(-apart, zero) + n.dtype(NEARER) * size
                found = count == 0 or (-apart > deepest + lead and nx > 0 and edges_a < 0)
        else:
            # two borders that cross
            k = item - ny - corners_x
            edge_x, sense_x = loop_edge(hulls, face_x, 0, k // edges_y)
            edge_y, sense_y = loop_edge(hulls, face_y, hull_y, k % edges_y)
            found, point, apart = crossing(hulls, X, edge_x, sense_x, n, Y, edge_y, sense_y, n_y, tolerance)
            found = found and apart < reach
            code_x = hull_code(EDGE, edge_x)
            code_y = hull_code(EDGE, edge_y)
        if found and (item < 0 or apart > floor):
            if item >= 0:
                deepest = wp.max(deepest, -apart)
            count = add_to_slots(
                wp.where(x_is_a, code_x, code_y), wp.where(x_is_a, code_y, code_x), wp.where(x_is_a, -n, n),
                wp.dot(across, point - cX), wp.dot(up, point - cX), -apart, directions, w, candidates, slots,
                count,
            )  # fmt: skip
    return keep_extremes(n.dtype(NEARER) * size, directions, w, candidates, slots, count)
