"""Contacts between features of hulls: gap, point and normal, and their adjoint (docs/derivations/convex.md).

The formulas are those of `geometry_kernels`; here is where a hull's feature stands, and what its centre depends on.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.features_kernels import (
    hull_feature,
    hull_feature_in_world,
    hull_index,
    hull_kind,
    is_reversed,
    is_rim,
)
from pullback.rigid.collide.convex.rim_kernels import rim_direction, rim_vjp
from pullback.rigid.collide.convex.support_kernels import edge_middle
from pullback.rigid.collide.convex.tables import ARC, RIM, SIDE
from pullback.rigid.collide.features_kernels import EDGE, VERTEX, direction_in_world, half_extents
from pullback.rigid.collide.geometry_kernels import (
    add_point_cotangent,
    feature_contact,
    feature_contact_vjp,
    feature_cotangents,
    write_contact,
)
from pullback.rigid.compile.scene import (
    CANDIDATE_ROWS,
    CONTACT_ROWS,
    FEATURE_A,
    FEATURE_B,
    PAIR,
    SHAPE_ROWS,
    Scene,
)
from pullback.spatial.arrays import accumulate, load3


@wp.func
def plain_kind(kind: int):
    """Return VERTEX, EDGE or FACE: the kind whose formulas a feature follows."""
    result = int(kind)
    if kind == SIDE:
        result = EDGE
    elif is_rim(kind):
        result = VERTEX
        if kind == ARC:
            result = EDGE
    return result


@wp.func
def touching_rim(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), shape: int, code: int, partner: int,
    c: Any, d: Any, pc: Any, pd: Any, w: int,
):  # fmt: skip
    """Return the direction u from a rim's centre c to where it touches a partner, and the rim's radius."""
    h = half_extents(shapes, shape, w)
    zero = h.dtype(0.0)
    start = wp.vector(h.dtype(1.0), zero, zero)
    if hull_kind(code) != RIM:
        middle = edge_middle(scene.hulls, hull_index(code), h)
        start = wp.normalize(wp.vector(middle[0], middle[1], zero))
    start = direction_in_world(scene, poses, shapes, shape, start, w)
    return rim_direction(partner, c, d, h[0], start, pc, pd), h[0]


@wp.func
def add_hull_contact(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    contacts: wp.array2d(dtype=Any), pair: int, candidates: wp.array2d(dtype=Any), k: int, count: int,
):  # fmt: skip
    """Write candidate k as a contact behind the first `count` if it is closer than the margin; return the count."""
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    code_a = int(candidates[k * CANDIDATE_ROWS, w])
    code_b = int(candidates[k * CANDIDATE_ROWS + 1, w])
    ca, da, ra = hull_feature_in_world(scene, poses, shapes, a, code_a, w)
    cb, db, rb = hull_feature_in_world(scene, poses, shapes, b, code_b, w)
    kind_a = plain_kind(hull_kind(code_a))
    kind_b = plain_kind(hull_kind(code_b))
    a_is_rim = is_rim(hull_kind(code_a))
    if a_is_rim or is_rim(hull_kind(code_b)):
        shape, code, partner, c, d, pc, pd = b, code_b, kind_a, cb, db, ca, da
        if a_is_rim:
            shape, code, partner, c, d, pc, pd = a, code_a, kind_b, ca, da, cb, db
        u, R = touching_rim(scene, poses, shapes, shape, code, partner, c, d, pc, pd, w)
        if a_is_rim:
            ca = c + R * u
            da = wp.cross(d, u)
        else:
            cb = c + R * u
            db = wp.cross(d, u)
    if kind_a == EDGE and kind_b == EDGE:
        towards_a = load3(candidates, k * CANDIDATE_ROWS + 2, w)
        if wp.dot(wp.cross(da, db), towards_a) < towards_a.dtype(0.0):
            code_a += 1
            da = -da
    gap, point, n = feature_contact(kind_a, kind_b, ca, da, cb, db, ra, rb)
    found = count
    if gap < margin:
        found = write_contact(scene, pair, code_a, code_b, gap, point, n, w, contacts, count)
    return found


@wp.func
def add_hull_cotangent(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), shape: int, code: int, c: Any, d: Any,
    adj: Any, w: int, wrench: wp.array2d(dtype=Any), adj_shapes: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull `feature_cotangents` back to a feature's body and shape, eq. (13)."""
    adj_c = wp.vector(adj[0], adj[1], adj[2])
    adj_d = wp.vector(adj[3], adj[4], adj[5])
    h = half_extents(shapes, shape, w)
    s, _ = hull_feature(scene.hulls, code, h)
    on_point = add_point_cotangent(
        scene, poses, shapes, shape, wp.cw_mul(s, h), c, wp.cross(d, adj_d), adj_c, w, wrench, adj_shapes
    )
    if adj_shapes:
        adj_h = wp.cw_mul(s, on_point)
        accumulate(adj_shapes, shape * SHAPE_ROWS, w, wp.vector(adj_h[0] + adj[7], adj_h[1], adj_h[2], adj[6]))


@wp.func(inline=False)
def hull_contact_vjp(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), w: int,
    contacts: wp.array2d(dtype=Any), contact: int, adj_gap: Any, adj_point: Any, adj_normal: Any,
    wrench: wp.array2d(dtype=Any), adj_shapes: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangents of a contact's gap, point and normal back to the bodies' wrenches and to the shapes."""
    row = contact * CONTACT_ROWS
    pair = int(contacts[row + PAIR, w])
    code_a = int(contacts[row + FEATURE_A, w])
    code_b = int(contacts[row + FEATURE_B, w])
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    kind_a = plain_kind(hull_kind(code_a))
    kind_b = plain_kind(hull_kind(code_b))
    ca, da, ra = hull_feature_in_world(scene, poses, shapes, a, code_a, w)
    cb, db, rb = hull_feature_in_world(scene, poses, shapes, b, code_b, w)
    # the rim, if there is one, and its partner
    a_is_rim = is_rim(hull_kind(code_a))
    has_rim = a_is_rim or is_rim(hull_kind(code_b))
    shape, code, partner, c, d, pc, pd = b, code_b, kind_a, cb, db, ca, da
    if a_is_rim:
        shape, code, partner, c, d, pc, pd = a, code_a, kind_b, ca, da, cb, db
    xa, ta, xb, tb = ca, da, cb, db
    u = d
    R = ra
    sense = ra.dtype(1.0)
    if has_rim:
        u, R = touching_rim(scene, poses, shapes, shape, code, partner, c, d, pc, pd, w)
        if is_reversed(code):
            sense = -sense
        if a_is_rim:
            xa = c + R * u
            ta = sense * wp.cross(d, u)
        else:
            xb = c + R * u
            tb = wp.cross(d, u)
    adj_ca, adj_da, adj_cb, adj_db, adj_ra, adj_rb = feature_contact_vjp(
        kind_a, kind_b, xa, ta, xb, tb, ra, rb, adj_gap, adj_point, adj_normal
    )
    round_a = ra - ra
    round_b = ra - ra
    if hull_kind(code_a) == SIDE:
        round_a = adj_ra
    if hull_kind(code_b) == SIDE:
        round_b = adj_rb
    if has_rim:
        adj_x = adj_cb
        adj_t = adj_db
        if a_is_rim:
            adj_x = adj_ca
            adj_t = sense * adj_da
        adj_c, adj_d, adj_R, adj_pc, adj_pd = rim_vjp(partner, c, d, R, u, pc, pd, adj_x, adj_t)
        if a_is_rim:
            adj_ca = adj_c
            adj_da = adj_d
            round_a = adj_R
            adj_cb += adj_pc
            adj_db += adj_pd
        else:
            adj_cb = adj_c
            adj_db = adj_d
            round_b = adj_R
            adj_ca += adj_pc
            adj_da += adj_pd
    two = int(2)
    for i in range(two):
        shape, code, c, d, adj_c, adj_d = a, code_a, ca, da, adj_ca, adj_da
        adj_r = adj_ra
        adj_R = round_a
        if i == 1:
            shape, code, c, d, adj_c, adj_d = b, code_b, cb, db, adj_cb, adj_db
            adj_r = adj_rb
            adj_R = round_b
        adj = feature_cotangents(adj_c, adj_d, adj_r, adj_R)
        add_hull_cotangent(scene, poses, shapes, shape, code, c, d, adj, w, wrench, adj_shapes)
