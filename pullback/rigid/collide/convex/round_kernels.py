"""From features of a prism to those of the cylinder it stands for (docs/derivations/convex.md, "Cylinders")."""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.features_kernels import (
    hull_code,
    hull_feature,
    hull_index,
    hull_kind,
    is_line,
    is_rim,
)
from pullback.rigid.collide.convex.manifold_kernels import is_candidate
from pullback.rigid.collide.convex.rim_kernels import across, rim_direction, rim_slope
from pullback.rigid.collide.convex.support_kernels import edge_middle, face_normal, placed, rounding
from pullback.rigid.collide.convex.tables import ARC_POINT, RIM, SIDE, Hulls
from pullback.rigid.collide.features_kernels import EDGE, FACE, VERTEX, column
from pullback.rigid.compile.scene import CANDIDATE_ROWS
from pullback.spatial.arrays import load3, store

GRAZING = wp.constant(0.05)  # how fast, relative to the radius, a line must leave a rim
NEAR = wp.constant(0.92)  # cosine of the angle along a rim in which the nearest point is looked for
ALONG = wp.constant(0.1)  # squared sine of the angle below which a tangent and a line are too parallel to cross
SHALLOW = wp.constant(0.2)  # of the radius: how far from the axis a vertex must be to be met by the side
LOWEST = wp.constant(0.98)  # cosine of the angle along a rim from a vertex of the prism to the point that meets a face
STANDING = wp.constant(0.02)  # sine of the tilt below which a cylinder stands on its end, and on points of the prism


@wp.func
def nearest_to_point(hulls: Hulls, X: Any, y: Any):
    """Return the feature of a cylinder nearest to a point y of its frame, outside or inside."""
    h = X.h
    zero = h.dtype(0.0)
    beyond_side = wp.sqrt(y[0] * y[0] + y[1] * y[1]) - h[0]
    beyond_end = wp.abs(y[2]) - h[2]
    end = int(0)
    for f in range(hulls.hull_face[X.hull], hulls.hull_face[X.hull + 1]):
        if face_normal(hulls, f, y)[2] * wp.sign(y[2]) > h.dtype(0.5):
            end = f
    code = hull_code(FACE, end)
    if beyond_side > zero and beyond_end > zero:
        code = hull_code(RIM, end)
    elif beyond_side > beyond_end:
        code = hull_code(SIDE, 0)
    return code


@wp.func
def rounded(hulls: Hulls, code: int):
    """Return the rim, side or end of a cylinder that a feature of its prism stands for; itself for other hulls."""
    kind = hull_kind(code)
    i = hull_index(code)
    result = int(code)
    if kind == VERTEX:
        result = hulls.vertex_round[i]
    elif kind == EDGE:
        result = hulls.edge_rim[i]
    else:
        result = hulls.face_round[i]
    return result


@wp.func
def against_line(hulls: Hulls, X: Any, code: int, pc: Any, pd: Any, outwards: Any):
    """Return the arc that a vertex or an edge of the prism lies on, or itself, if the arc's nearest point is far.

    A line that grazes a rim has no nearest point on it that moves with it. Where rim and line are parallel the rim is a
    point, if the line is outside: `outwards` points from it to the rim.
    """
    arc = hulls.vertex_arc[wp.where(hull_kind(code) == VERTEX, hull_index(code), 0)]
    if hull_kind(code) == EDGE:
        arc = hulls.edge_round[hull_index(code)]
    h = X.h
    s, d = hull_feature(hulls, arc, h)
    c = X.p + X.R * wp.cw_mul(s, h)
    middle = edge_middle(hulls, hull_index(arc), h)
    start = X.R * wp.normalize(wp.vector(middle[0], middle[1], middle[0] - middle[0]))
    u = rim_direction(EDGE, c, X.R * d, h[0], start, pc, pd)
    slope, growth = rim_slope(c, X.R * d, h[0], u, pc, pd)
    t = wp.cross(X.R * d, u)
    y = across(c + h[0] * u - pc, pd)
    found = wp.abs(slope) < h.dtype(100.0) * rounding(h) * growth and wp.dot(u, start) > h.dtype(NEAR)
    result = int(code)
    if found and growth > h.dtype(GRAZING) * h[0]:
        if wp.dot(t, across(t, pd)) > h.dtype(ALONG):
            result = arc
        elif wp.dot(y, outwards) > h.dtype(ALONG) * h[0]:
            result = hull_code(ARC_POINT, hull_index(arc))
    return result


@wp.func
def against_vertex(hulls: Hulls, X: Any, plain: int, x: Any):
    """Return the side of a cylinder for a vertex x outside its axis, else the face of the prism."""
    h = X.h
    s, n = hull_feature(hulls, plain, h)
    y = (x - X.p) * X.R
    result = int(plain)
    if hull_kind(plain) == EDGE or wp.dot(n, y) > h.dtype(SHALLOW) * h[0]:
        result = hull_code(SIDE, 0)
    return result


@wp.func
def against_point(hulls: Hulls, X: Any, code: int, x: Any):
    """Return the rim, or the end or the side of the cylinder beside it, whichever is nearest to a point x."""
    h = X.h
    y = (x - X.p) * X.R
    centre, outwards = hull_feature(hulls, code, h)
    result = int(code)
    if wp.dot(outwards, y) < h[2]:
        result = hull_code(SIDE, 0)
    elif y[0] * y[0] + y[1] * y[1] < h[0] * h[0]:
        result = hull_code(FACE, hull_index(code))
    return result


@wp.func
def is_lowest(hulls: Hulls, X: Any, plain: int, face: int, n: Any):
    """Return whether a tilted rim meets a face near a vertex of the prism, or the face is unbounded."""
    h = X.h
    s, _ = hull_feature(hulls, plain, h)
    lean = across(n, column(X.R, 2))
    tilt = wp.length(lean)
    down = -wp.dot(lean, X.R * wp.vector(s[0], s[1], s[0] - s[0]))
    endless = hulls.loop_start[face + 1] == hulls.loop_start[face]
    return tilt > h.dtype(STANDING) and (endless or down > h.dtype(LOWEST) * tilt)


@wp.func
def settle_rim(hulls: Hulls, X: Any, rim: int, plain: int, partner: int, centre: Any, direction: Any, outwards: Any):
    """Return the feature of a cylinder that touches a partner where its prism said that it is a rim."""
    kind = hull_kind(partner)
    result = int(rim)
    if is_line(kind):
        result = against_line(hulls, X, plain, centre, direction, outwards)
    elif kind == VERTEX:
        result = against_point(hulls, X, rim, centre)
    elif not is_lowest(hulls, X, plain, hull_index(partner), direction):
        result = plain
    return result


@wp.func
def round_candidates(hulls: Hulls, A: Any, B: Any, w: int, candidates: wp.array2d(dtype=Any), count: int):
    """Replace features of prisms by those of cylinders, and keep each pair of them once; return how many are left."""
    kept = int(0)
    for k in range(count):
        row = k * CANDIDATE_ROWS
        plain_a = int(candidates[row, w])
        plain_b = int(candidates[row + 1, w])
        # features of other hulls stay
        code_a = rounded(hulls, plain_a)
        code_b = rounded(hulls, plain_b)
        # of two rims, that of b is replaced by its prism
        a_is_rim = is_rim(hull_kind(code_a))
        if a_is_rim and is_rim(hull_kind(code_b)):
            code_b = plain_b
        if a_is_rim or is_rim(hull_kind(code_b)):
            X, rim, plain, partner, Y = B, code_b, plain_b, code_a, A
            if a_is_rim:
                X, rim, plain, partner, Y = A, code_a, plain_a, code_b, B
            s, d = hull_feature(hulls, partner, Y.h)
            outwards = load3(candidates, row + 2, w)
            if not a_is_rim:
                outwards = -outwards
            centre = Y.p + Y.R * wp.cw_mul(s, Y.h)
            settled = settle_rim(hulls, X, rim, plain, partner, centre, Y.R * d, outwards)
            if a_is_rim:
                code_a = settled
            else:
                code_b = settled
        # a vertex beyond the axis would be pushed out on the wrong side
        if hull_kind(code_a) == SIDE and hull_kind(code_b) == VERTEX:
            code_a = against_vertex(hulls, A, plain_a, B.p + placed(hulls, B, hull_index(code_b)))
        elif hull_kind(code_b) == SIDE and hull_kind(code_a) == VERTEX:
            code_b = against_vertex(hulls, B, plain_b, A.p + placed(hulls, A, hull_index(code_a)))
        if not is_candidate(code_a, code_b, w, candidates, kept):
            candidates[kept * CANDIDATE_ROWS, w] = candidates.dtype(code_a)
            candidates[kept * CANDIDATE_ROWS + 1, w] = candidates.dtype(code_b)
            store(candidates, kept * CANDIDATE_ROWS + 2, w, load3(candidates, row + 2, w))
            kept += 1
    return kept
