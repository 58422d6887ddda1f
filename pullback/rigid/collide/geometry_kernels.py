"""The contact of two features: gap, point and normal, and their adjoint (docs/derivations/collision.md).

A feature is a centre c and, unless it is a vertex, a unit direction d. The normal n of a contact points from b to a.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.features_kernels import (
    EDGE,
    FACE,
    VERTEX,
    centre_signs,
    feature_in_world,
    feature_kind,
    reversed_edge,
)
from pullback.rigid.compile.scene import (
    CANDIDATE_ROWS,
    CONTACT_ROWS,
    FEATURE_A,
    FEATURE_B,
    GAP,
    MAX_CANDIDATES,
    NORMAL,
    PAIR,
    POINT,
    POSE_ROWS,
    RADIUS,
    SHAPE_POSITION,
    SHAPE_ROTATION,
    SHAPE_ROWS,
    Scene,
)
from pullback.spatial.arrays import accumulate, accumulate33, load3, load33, store
from pullback.spatial.vectors import skew, spatial, unit_or_up


@wp.func
def unit_vjp(x: Any, n: Any, adj_n: Any):
    """Return adj_x of n = x / |x|; zero where x is, eq. (5)."""
    length = wp.length(x)
    adj_x = x - x
    if length > x.dtype(0.0):
        adj_x = (adj_n - wp.dot(n, adj_n) * n) / length
    return adj_x


@wp.func
def line_parameters(r: Any, da: Any, db: Any):
    """Return where two lines of unit directions, r = ca - cb, are closest: t along a, u along b, eq. (4)."""
    d = wp.dot(da, db)
    t = (d * wp.dot(db, r) - wp.dot(da, r)) / (r.dtype(1.0) - d * d)
    return t, wp.dot(db, r) + t * d


@wp.func
def separation(kind_a: int, kind_b: int, r: Any, da: Any, db: Any):
    """Return a vector along the normal, of any length, for two features with r = ca - cb, eq. (2)."""
    x = r
    if kind_b == FACE:
        x = db
    elif kind_a == FACE:
        x = -da
    elif kind_a == EDGE and kind_b == EDGE:
        x = wp.cross(da, db)
    elif kind_a == EDGE:
        x = r - wp.dot(da, r) * da
    elif kind_b == EDGE:
        x = r - wp.dot(db, r) * db
    return x


@wp.func
def feature_contact(kind_a: int, kind_b: int, ca: Any, da: Any, cb: Any, db: Any, ra: Any, rb: Any):
    """Return gap, point and normal of the contact between two features, eqs. (2) to (4)."""
    r = ca - cb
    n = unit_or_up(separation(kind_a, kind_b, r, da, db))
    distance = wp.dot(n, r)
    half = r.dtype(0.5)
    x = ca
    if kind_a == EDGE and kind_b == EDGE:
        t, u = line_parameters(r, da, db)
        x = ca + t * da
    elif kind_a != VERTEX:
        x = cb + distance * n
    return distance - ra - rb, x - half * (distance + ra - rb) * n, n


@wp.func
def feature_contact_vjp(
    kind_a: int, kind_b: int, ca: Any, da: Any, cb: Any, db: Any, ra: Any, rb: Any,
    adj_gap: Any, adj_point: Any, adj_normal: Any,
):  # fmt: skip
    """Return the cotangents of ca, da, cb, db, ra, rb, eqs. (5) to (8)."""
    r = ca - cb
    x = separation(kind_a, kind_b, r, da, db)
    n = unit_or_up(x)
    distance = wp.dot(n, r)
    half = r.dtype(0.5)
    push = half * wp.dot(n, adj_point)
    adj_ra = -adj_gap - push
    adj_rb = push - adj_gap
    adj_distance = adj_gap - push
    adj_n = adj_normal - half * (distance + ra - rb) * adj_point
    zero = r - r
    adj_ca = zero
    adj_cb = zero
    adj_da = zero
    adj_db = zero
    adj_r = zero

    # the point's anchor: on a's feature, or on b's vertex
    if kind_a == EDGE and kind_b == EDGE:
        # eq. (7)
        one = r.dtype(1.0)
        d = wp.dot(da, db)
        t, u = line_parameters(r, da, db)
        adj_numerator = wp.dot(da, adj_point) / (one - d * d)
        adj_d = adj_numerator * (wp.dot(db, r) + (t + t) * d)
        adj_ca = adj_point
        adj_r = adj_numerator * (d * db - da)
        adj_da = t * adj_point - adj_numerator * r + adj_d * db
        adj_db = adj_numerator * d * r + adj_d * da
    elif kind_a == VERTEX:
        adj_ca = adj_point
    else:
        adj_cb = adj_point
        adj_distance += push + push
        adj_n += distance * adj_point

    # eq. (6)
    adj_n += adj_distance * r
    adj_r += adj_distance * n

    # the normal
    if kind_b == FACE:
        adj_db += adj_n
    elif kind_a == FACE:
        adj_da -= adj_n
    else:
        adj_x = unit_vjp(x, n, adj_n)
        if kind_a == EDGE and kind_b == EDGE:
            adj_da += wp.cross(db, adj_x)
            adj_db += wp.cross(adj_x, da)
        elif kind_a == EDGE:
            along = wp.dot(da, adj_x)
            adj_da -= wp.dot(da, r) * adj_x + along * r
            adj_r += adj_x - along * da
        elif kind_b == EDGE:
            along = wp.dot(db, adj_x)
            adj_db -= wp.dot(db, r) * adj_x + along * r
            adj_r += adj_x - along * db
        else:
            adj_r += adj_x
    return adj_ca + adj_r, adj_da, adj_cb - adj_r, adj_db, adj_ra, adj_rb


@wp.func
def add_point_cotangent(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), shape: int, local: Any, c: Any,
    torque: Any, force: Any, w: int, wrench: wp.array2d(dtype=Any), adj_shapes: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull a force at the point c, `local` in the shape's frame, and a torque back to body and shape: eqs. (9), (10).

    Return the force in the shape's axes, which is what the point itself gets; zero if no shape's cotangent is wanted.
    """
    body = scene.shape_body[shape]
    on_point = force - force
    if body >= 0:
        accumulate(wrench, 6 * body, w, spatial(torque + wp.cross(c, force), force))
    if adj_shapes:
        row = shape * SHAPE_ROWS
        push = force
        twist = torque
        if body >= 0:
            R_WB = load33(poses, body * POSE_ROWS, w)
            push = force * R_WB
            twist = torque * R_WB
        R_BS = load33(shapes, row + SHAPE_ROTATION, w)
        twist += wp.cross(R_BS * local, push)
        accumulate33(adj_shapes, row + SHAPE_ROTATION, w, skew(force.dtype(0.5) * twist) * R_BS)
        accumulate(adj_shapes, row + SHAPE_POSITION, w, push)
        on_point = push * R_BS
    return on_point


@wp.func
def feature_cotangents(adj_c: Any, adj_d: Any, adj_radius: Any, adj_round: Any):
    """Return the cotangents of a feature's centre, direction and radius, and of a cylinder's radius, as one vector."""
    return wp.vector(adj_c[0], adj_c[1], adj_c[2], adj_d[0], adj_d[1], adj_d[2], adj_radius, adj_round)


@wp.func
def add_feature_cotangent(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), shape: int, code: int, c: Any, d: Any,
    adj: Any, w: int, wrench: wp.array2d(dtype=Any), adj_shapes: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull `feature_cotangents` back to a feature's body and shape, eqs. (9) and (10)."""
    adj_c = wp.vector(adj[0], adj[1], adj[2])
    adj_d = wp.vector(adj[3], adj[4], adj[5])
    h = load3(shapes, shape * SHAPE_ROWS, w)
    s = centre_signs(code, h)
    on_point = add_point_cotangent(
        scene, poses, shapes, shape, wp.cw_mul(s, h), c, wp.cross(d, adj_d), adj_c, w, wrench, adj_shapes
    )
    if adj_shapes:
        adj_h = wp.cw_mul(s, on_point)
        accumulate(adj_shapes, shape * SHAPE_ROWS, w, wp.vector(adj_h[0], adj_h[1], adj_h[2], adj[6]))


@wp.func
def add_candidate(
    code_a: int, code_b: int, towards_a: Any, w: int, candidates: wp.array2d(dtype=Any), count: int
):  # fmt: skip
    """Add two features that may touch, and for two edges the side of their normal; return the new count."""
    if count < MAX_CANDIDATES:
        row = count * CANDIDATE_ROWS
        candidates[row, w] = candidates.dtype(code_a)
        candidates[row + 1, w] = candidates.dtype(code_b)
        store(candidates, row + 2, w, towards_a)
    return wp.min(count + 1, MAX_CANDIDATES)


@wp.func
def write_contact(
    scene: Scene, pair: int, code_a: int, code_b: int, gap: Any, point: Any, n: Any, w: int,
    contacts: wp.array2d(dtype=Any), count: int,
):  # fmt: skip
    """Write a contact behind the first `count` if there is room; return the count with it."""
    if count < scene.max_contacts:
        row = count * CONTACT_ROWS
        contacts[row + PAIR, w] = contacts.dtype(pair)
        contacts[row + FEATURE_A, w] = contacts.dtype(code_a)
        contacts[row + FEATURE_B, w] = contacts.dtype(code_b)
        contacts[row + GAP, w] = gap
        store(contacts, row + POINT, w, point)
        store(contacts, row + NORMAL, w, n)
    return count + 1


@wp.func
def add_contact(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    contacts: wp.array2d(dtype=Any), pair: int, candidates: wp.array2d(dtype=Any), k: int, count: int,
):  # fmt: skip
    """Write candidate k as a contact behind the first `count` if it is closer than the margin; return the count."""
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    code_a = int(candidates[k * CANDIDATE_ROWS, w])
    code_b = int(candidates[k * CANDIDATE_ROWS + 1, w])
    ca, da = feature_in_world(scene, poses, shapes, a, code_a, w)
    cb, db = feature_in_world(scene, poses, shapes, b, code_b, w)
    if feature_kind(code_a) == EDGE and feature_kind(code_b) == EDGE:
        towards_a = load3(candidates, k * CANDIDATE_ROWS + 2, w)
        if wp.dot(wp.cross(da, db), towards_a) < towards_a.dtype(0.0):
            code_a = reversed_edge(code_a)
            da = -da
    ra = shapes[a * SHAPE_ROWS + RADIUS, w]
    rb = shapes[b * SHAPE_ROWS + RADIUS, w]
    gap, point, n = feature_contact(feature_kind(code_a), feature_kind(code_b), ca, da, cb, db, ra, rb)
    found = count
    if gap < margin:
        found = write_contact(scene, pair, code_a, code_b, gap, point, n, w, contacts, count)
    return found
