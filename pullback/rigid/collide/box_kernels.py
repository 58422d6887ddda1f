"""Which features of two boxes touch (docs/derivations/collision.md, "Boxes").

The axis of largest separation decides: a face of one box, against which the nearest face of the other is laid, or a
pair of edges. X is the box with the face, Y the other; n is the normal out of X.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.features_kernels import (
    EDGE,
    FACE,
    axis_direction,
    bordering,
    centre_signs,
    column,
    encode,
    encode_on_axis,
    feature_axis,
    feature_sign,
    half_extents,
    shape_pose,
    side,
)
from pullback.rigid.collide.geometry_kernels import add_candidate, line_parameters
from pullback.rigid.compile.scene import Scene

PARALLEL = wp.constant(1.0e-4)  # squared sine of the angle below which two edges count as parallel
LEAN = wp.constant(0.1)  # how far the normal of two edges may lie outside their normal cones (sine of the angle)
FLAT = wp.constant(0.95)  # cosine between normals above which two faces lie on each other, and edges count with them
TOLERANCE = wp.constant(1.0e-3)  # of a half extent: vertices closer to a border than this lie on it
COINCIDENT = wp.constant(9.8e-4)  # as TOLERANCE, for corners that are one; less, so that rounding leaves none out
FACE_PREFERENCE = wp.constant(
    1.0e-5
)  # of the size: what b's face must gain over a's, and edges over faces, to be chosen
EDGE_ADVANTAGE = wp.constant(1.0e-2)  # of the size: what edges must gain over a face that lies as flat as they do


@wp.func
def extent(R: Any, h: Any, n: Any):
    """Return how far a box reaches along a unit vector from its centre."""
    x = n * R
    return wp.abs(x[0]) * h[0] + wp.abs(x[1]) * h[1] + wp.abs(x[2]) * h[2]


@wp.func
def supporting_edge(R: Any, axis: int, n: Any):
    """Return the edge of a box along one of its axes that lies furthest along n."""
    x = n * R
    return encode(
        EDGE, axis, wp.where(axis == 0, 0, side(x[0])), wp.where(axis == 1, 0, side(x[1])),
        wp.where(axis == 2, 0, side(x[2])),
    )  # fmt: skip


@wp.func
def facing(R: Any, n: Any):
    """Return the face of a box whose normal is closest to n."""
    x = n * R
    axis = int(0)
    if wp.abs(x[1]) > wp.abs(x[0]):
        axis = 1
    if wp.abs(x[2]) > wp.max(wp.abs(x[0]), wp.abs(x[1])):
        axis = 2
    return encode_on_axis(FACE, axis, side(x[axis]))


@wp.func
def centre_of(R: Any, p: Any, h: Any, code: int):
    """Return the centre of a feature of a box."""
    return p + R * wp.cw_mul(centre_signs(code, h), h)


@wp.func
def border_of_face(face: int, i: int):
    """Return edge i, 0 to 3, of a face, and the axis on which it ends the face."""
    axis = (feature_axis(face) + 1 + i % 2) % 3
    return bordering(face, axis, 2 * (i // 2) - 1), axis


@wp.func
def corner_of_face(face: int, i: int):
    """Return vertex i, 0 to 3, of a face."""
    axis = feature_axis(face)
    edge = bordering(face, (axis + 1) % 3, 2 * (i % 2) - 1)
    return bordering(edge, (axis + 2) % 3, 2 * (i // 2) - 1)


@wp.func
def place_in_face(x: Any, h: Any, face: int):
    """Return 0, 1 or 2 for a point outside a face's rectangle, in it, or at a corner of it."""
    axis = feature_axis(face)
    j = (axis + 1) % 3
    k = (axis + 2) % 3
    tolerance = h.dtype(TOLERANCE)
    u = wp.abs(x[j]) / h[j] - h.dtype(1.0)
    v = wp.abs(x[k]) / h[k] - h.dtype(1.0)
    place = int(0)
    if u <= tolerance and v <= tolerance:
        place = 1
        coincident = h.dtype(COINCIDENT)
        if u >= -coincident and v >= -coincident and u <= coincident and v <= coincident:
            place = 2
    return place


@wp.func
def add_ordered(
    x_is_a: bool, code_x: int, code_y: int, towards_a: Any, w: int, candidates: wp.array2d(dtype=Any), count: int
):
    """Add a feature of X and one of Y as a candidate."""
    return add_candidate(
        wp.where(x_is_a, code_x, code_y), wp.where(x_is_a, code_y, code_x), towards_a, w, candidates, count
    )


@wp.func
def add_crossings(
    x_is_a: bool, RX: Any, pX: Any, hX: Any, RY: Any, pY: Any, hY: Any, face_x: int, face_y: int, w: int,
    candidates: wp.array2d(dtype=Any), before: int,
):  # fmt: skip
    """Add the edges where the borders of two faces cross."""
    n = RX * axis_direction(face_x, hX)
    one = n.dtype(1.0)
    inner = one - n.dtype(COINCIDENT)
    count = int(before)
    four = int(4)
    for i in range(four):
        edge_x, axis_x = border_of_face(face_x, i)
        cX = centre_of(RX, pX, hX, edge_x)
        dX = column(RX, feature_axis(edge_x))
        for j in range(four):
            edge_y, axis_y = border_of_face(face_y, j)
            dY = column(RY, feature_axis(edge_y))
            cosine = wp.dot(dX, dY)
            if one - cosine * cosine > n.dtype(PARALLEL):
                t, u = line_parameters(cX - centre_of(RY, pY, hY, edge_y), dX, dY)
                if wp.abs(t) < inner * hX[feature_axis(edge_x)] and wp.abs(u) < inner * hY[feature_axis(edge_y)]:
                    m = wp.normalize(wp.cross(dX, dY))
                    if wp.dot(m, n) < n.dtype(0.0):
                        m = -m
                    out_x = n.dtype(feature_sign(edge_x, axis_x)) * wp.dot(m, column(RX, axis_x))
                    out_y = n.dtype(feature_sign(edge_y, axis_y)) * wp.dot(m, column(RY, axis_y))
                    if wp.dot(m, n) > n.dtype(FLAT) and out_x > -n.dtype(LEAN) and out_y < n.dtype(LEAN):
                        towards_a = wp.where(x_is_a, -n, n)
                        count = add_ordered(x_is_a, edge_x, edge_y, towards_a, w, candidates, count)
    return count


@wp.func
def add_face_contacts(
    x_is_a: bool, RX: Any, pX: Any, hX: Any, RY: Any, pY: Any, hY: Any, face_x: int, overlapping: bool, margin: Any,
    w: int, candidates: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the corners of the area that a face of X and the facing one of Y share."""
    n = RX * axis_direction(face_x, hX)
    face_y = facing(RY, -n)
    n_y = RY * axis_direction(face_y, hY)
    level_x = wp.dot(n, centre_of(RX, pX, hX, face_x)) + margin
    level_y = wp.dot(n_y, centre_of(RY, pY, hY, face_y)) + margin
    count = int(0)
    lowest = corner_of_face(face_y, 0)
    depth = wp.dot(n, centre_of(RY, pY, hY, lowest))
    flat = -wp.dot(n, n_y) > n.dtype(FLAT)
    four = int(4)
    for i in range(four):
        corner_y = corner_of_face(face_y, i)
        y = centre_of(RY, pY, hY, corner_y)
        if wp.dot(n, y) < depth:
            depth = wp.dot(n, y)
            lowest = corner_y
        if wp.dot(n, y) < level_x and place_in_face((y - pX) * RX, hX, face_x) > 0:
            count = add_ordered(x_is_a, face_x, corner_y, n, w, candidates, count)
        corner_x = corner_of_face(face_x, i)
        x = centre_of(RX, pX, hX, corner_x)
        # a corner of X at a corner of Y is there already
        if flat and wp.dot(n_y, x) < level_y and place_in_face((x - pY) * RY, hY, face_y) == 1:
            count = add_ordered(x_is_a, corner_x, face_y, n, w, candidates, count)
    count = add_crossings(x_is_a, RX, pX, hX, RY, pY, hY, face_x, face_y, w, candidates, count)
    if overlapping and count == 0:
        count = add_ordered(x_is_a, face_x, lowest, n, w, candidates, count)
    return count


@wp.func
def best_face(R: Any, h: Any, other: Any, h_other: Any, r: Any):
    """Return the separation along a box's best face normal, and the face; r points to the other box, eq. (12)."""
    x = r * R
    n = column(R, 0)
    best = wp.abs(x[0]) - h[0] - extent(other, h_other, n)
    axis = int(0)
    for k in range(1, 3):
        separated = wp.abs(x[k]) - h[k] - extent(other, h_other, column(R, k))
        if separated > best:
            best = separated
            axis = k
    return best, encode_on_axis(FACE, axis, side(x[axis]))


@wp.func
def collide_boxes(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    candidates: wp.array2d(dtype=Any), pair: int,
):  # fmt: skip
    """Add the features of two boxes that may touch: the corners of two faces, or two edges."""
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    Ra, pa = shape_pose(scene, poses, shapes, a, w)
    Rb, pb = shape_pose(scene, poses, shapes, b, w)
    ha = half_extents(shapes, a, w)
    hb = half_extents(shapes, b, w)
    r = pa - pb
    size = wp.min(wp.min(ha), wp.min(hb))
    best_a, face_a = best_face(Ra, ha, Rb, hb, -r)
    best_b, face_b = best_face(Rb, hb, Ra, ha, r)
    x_is_a = not (best_b > best_a + r.dtype(FACE_PREFERENCE) * size)
    best = wp.max(best_a, best_b)
    n = Rb * axis_direction(face_b, hb)
    if x_is_a:
        n = Ra * axis_direction(face_a, ha)
    # a pair of edges, if it is clearly better
    best_edge = best + r.dtype(FACE_PREFERENCE) * size
    flat_edge = best + r.dtype(EDGE_ADVANTAGE) * size
    axis_a = int(-1)
    axis_b = int(0)
    towards_a = r
    three = int(3)
    for i in range(three):
        for j in range(three):
            m = wp.cross(column(Ra, i), column(Rb, j))
            square = wp.dot(m, m)
            if square > r.dtype(PARALLEL):
                m = m * (r.dtype(side(wp.dot(m, r))) / wp.sqrt(square))
                separated = wp.dot(m, r) - extent(Ra, ha, m) - extent(Rb, hb, m)
                flat = wp.abs(wp.dot(m, n)) > r.dtype(FLAT)
                if separated > best_edge and (separated > flat_edge or not flat):
                    best_edge = separated
                    axis_a = i
                    axis_b = j
                    towards_a = m
    count = int(0)
    if axis_a >= 0:
        if best_edge < margin:
            edge_a = supporting_edge(Ra, axis_a, -towards_a)
            edge_b = supporting_edge(Rb, axis_b, towards_a)
            between = centre_of(Ra, pa, ha, edge_a) - centre_of(Rb, pb, hb, edge_b)
            t, u = line_parameters(between, column(Ra, axis_a), column(Rb, axis_b))
            # apart, the lines may be near beyond the ends of the edges
            if best_edge < r.dtype(0.0) or (wp.abs(t) <= ha[axis_a] and wp.abs(u) <= hb[axis_b]):
                count = add_candidate(edge_a, edge_b, towards_a, w, candidates, count)
    elif best < margin:
        RX, pX, hX, RY, pY, hY, face = Ra, pa, ha, Rb, pb, hb, face_a
        if not x_is_a:
            RX, pX, hX, RY, pY, hY, face = Rb, pb, hb, Ra, pa, ha, face_b
        count = add_face_contacts(x_is_a, RX, pX, hX, RY, pY, hY, face, best < r.dtype(0.0), margin, w, candidates)
    return count
