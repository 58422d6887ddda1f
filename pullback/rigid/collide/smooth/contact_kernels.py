"""Contacts of smooth shapes with convex ones: gap, point and normal, and their adjoint (docs/derivations/smooth.md).

In such a pair a is the smooth shape; FEATURE_B is the feature of b that it touches, or WHOLE.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.axis_kernels import FACE_OF_B, best_axis
from pullback.rigid.collide.convex.contact_kernels import add_hull_cotangent
from pullback.rigid.collide.convex.convex_kernels import PRISM_SLACK, hull_size, is_plane, place_pair
from pullback.rigid.collide.convex.epa_kernels import epa
from pullback.rigid.collide.convex.features_kernels import hull_code, hull_kind
from pullback.rigid.collide.convex.gjk_kernels import FAR, TOUCHING, gjk
from pullback.rigid.collide.convex.round_kernels import rounded
from pullback.rigid.collide.convex.support_kernels import furthest_vertex
from pullback.rigid.collide.convex.tables import RIM, SIDE
from pullback.rigid.collide.features_kernels import EDGE, FACE, VERTEX, half_extents, shape_pose, shape_position
from pullback.rigid.collide.geometry_kernels import add_point_cotangent, feature_cotangents, unit_vjp, write_contact
from pullback.rigid.collide.smooth.direction_kernels import (
    WHOLE,
    across_axis,
    partner_curvature,
    partner_feature,
    partner_support,
    tangent,
)
from pullback.rigid.collide.smooth.support_kernels import (
    curvature,
    is_smooth,
    local_support,
    size_vjp,
    support,
)
from pullback.rigid.collide.smooth.walk_kernels import walk
from pullback.rigid.compile.scene import (
    CONTACT_ROWS,
    FEATURE_B,
    NORMAL,
    PAIR,
    RADIUS,
    SHAPE_ROWS,
    Scene,
)
from pullback.spatial.arrays import accumulate, load3
from pullback.spatial.vectors import unit_or_up

PROXY_SLACK = wp.constant(0.07)  # of the largest half extent: how far a smooth shape stands out of its polyhedron


@wp.func
def side_radius(B: Any, code: int):
    """Return the radius of a cylinder around its side, 0 for other features."""
    radius = B.h[0] - B.h[0]
    if code != WHOLE and hull_kind(code) == SIDE:
        radius = B.h[0]
    return radius


@wp.func
def guess(scene: Scene, A: Any, kind_b: int, B: Any, reach: Any, work: wp.array2d(dtype=Any), w: int):
    """Return a feature of B that A may touch, -1: they are further apart than `reach`, and a normal.

    GJK and EPA see a polyhedron inside each smooth shape.
    """
    hulls = scene.hulls
    ia = hulls.hull_vertex[A.hull]
    ib = hulls.hull_vertex[B.hull]
    size = wp.max(hull_size(hulls, A.h, A.hull), hull_size(hulls, B.h, B.hull))
    code = int(-1)
    status, v, points = gjk(hulls, A, B, ia, ib, reach, size, work, w)
    n = unit_or_up(v)
    if status != FAR:
        if status == TOUCHING:
            n = epa(hulls, A, B, ia, ib, -n, size, work, w)
        if is_smooth(kind_b):
            code = WHOLE
        else:
            code = hull_code(VERTEX, furthest_vertex(hulls, B, n, ib))
            if status == TOUCHING:
                side, face, face_axis, face_separated, edge_a, edge_b, axis, best, ja, jb = best_axis(
                    hulls, A, B, ia, ib, n, size
                )  # fmt: skip
                n = axis
                if edge_b >= 0:
                    code = hull_code(EDGE, edge_b)
                elif side == FACE_OF_B and face >= 0:
                    code = hull_code(FACE, face)
                else:
                    code = hull_code(VERTEX, jb)
            code = rounded(hulls, code)
    return code, n


@wp.func(inline=False)
def collide_smooth(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    contacts: wp.array2d(dtype=Any), pair: int, work: wp.array2d(dtype=Any), count: int,
):  # fmt: skip
    """Write the contact of a pair behind the first `count` if it is closer than the margin; return the count."""
    hulls = scene.hulls
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    kind_a = scene.shape_kind[a]
    kind_b = scene.shape_kind[b]
    A, B = place_pair(scene, poses, shapes, pair, w)
    slack = A.h.dtype(PROXY_SLACK)
    ra = shapes[a * SHAPE_ROWS + RADIUS, w]
    rb = shapes[b * SHAPE_ROWS + RADIUS, w]
    reach = margin + ra + rb + slack * wp.max(A.h)
    if is_smooth(kind_b):
        reach += slack * wp.max(B.h)
    elif hulls.hull_is_round[B.hull] == 1:
        reach += A.h.dtype(PRISM_SLACK) * B.h[0]
    code = hull_code(FACE, hulls.hull_face[B.hull])
    n = A.p
    if not is_plane(hulls, b):
        code, n = guess(scene, A, kind_b, B, reach, work, w)
    found = int(count)
    if code >= 0:
        code, n, v = walk(hulls, kind_a, A, kind_b, B, code, n)
        gap = wp.dot(n, v) - ra - rb - side_radius(B, code)
        if gap < margin:
            x = shape_position(scene, poses, shapes, b, w) + A.p + support(kind_a, A.R, A.h, -n)
            point = x - (ra + gap.dtype(0.5) * gap) * n
            found = write_contact(scene, pair, WHOLE, code, gap, point, n, w, contacts, count)
    return found


@wp.func
def normal_vjp(freedom: int, n: Any, d: Any, v: Any, J: Any, adj_n: Any):
    """Return the cotangents of v and d for that of the normal, by the implicit function theorem: eqs. (13) to (15)."""
    t = tangent(n, d, freedom)
    u = wp.cross(n, t)
    g = wp.dot(n, v)
    tt = g + wp.dot(t, J * t)
    adj_v = n - n
    adj_d = n - n
    if freedom == FACE:
        adj_d = adj_n
    elif freedom == EDGE:
        y = wp.dot(t, adj_n) / tt
        adj_v = y * t
        adj_d = (y * wp.dot(t, J * d) - wp.dot(adj_n, d)) * n - (y * wp.dot(v, d)) * t
    else:
        uu = g + wp.dot(u, J * u)
        tu = wp.dot(t, J * u)
        along_t = wp.dot(t, adj_n)
        along_u = wp.dot(u, adj_n)
        adj_v = ((uu * along_t - tu * along_u) * t + (tt * along_u - tu * along_t) * u) / (tt * uu - tu * tu)
    return adj_v, adj_d


@wp.func
def add_smooth_cotangent(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), shape: int, m: Any, force: Any,
    adj_radius: Any, w: int, wrench: wp.array2d(dtype=Any), adj_shapes: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangent of a shape's support point along m back to its body and to its size, eq. (16)."""
    kind = scene.shape_kind[shape]
    h = half_extents(shapes, shape, w)
    R, p = shape_pose(scene, poses, shapes, shape, w)
    local = local_support(kind, h, m * R)
    torque = wp.cross(curvature(kind, R, h, m) * force, m)
    on_point = add_point_cotangent(
        scene, poses, shapes, shape, local, p + R * local, torque, force, w, wrench, adj_shapes
    )  # fmt: skip
    if adj_shapes:
        adj_h = size_vjp(kind, h, m * R, on_point)
        accumulate(adj_shapes, shape * SHAPE_ROWS, w, wp.vector(adj_h[0], adj_h[1], adj_h[2], adj_radius))


@wp.func(inline=False)
def smooth_contact_vjp(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), w: int, contacts: wp.array2d(dtype=Any),
    contact: int, adj_gap: Any, adj_point: Any, adj_normal: Any, wrench: wp.array2d(dtype=Any),
    adj_shapes: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangents of a contact's gap, point and normal back to bodies and shapes, eqs. (11) to (17)."""
    row = contact * CONTACT_ROWS
    pair = int(contacts[row + PAIR, w])
    code = int(contacts[row + FEATURE_B, w])
    n = load3(contacts, row + NORMAL, w)
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    kind_a = scene.shape_kind[a]
    kind_b = scene.shape_kind[b]
    A, B = place_pair(scene, poses, shapes, pair, w)
    c, d, freedom = partner_feature(scene.hulls, B, code)
    s_b = partner_support(kind_b, B, code, d, n)
    J_a = curvature(kind_a, A.R, A.h, -n)
    v = A.p + support(kind_a, A.R, A.h, -n) - c - s_b
    ra = shapes[a * SHAPE_ROWS + RADIUS, w]
    gap = wp.dot(n, v) - ra - shapes[b * SHAPE_ROWS + RADIUS, w] - side_radius(B, code)
    # eqs. (11) and (12)
    half = ra.dtype(0.5)
    push = wp.dot(n, adj_point)
    adj_distance = adj_gap - half * push
    adj_n = adj_normal + adj_distance * v - (ra + half * gap) * adj_point - J_a * adj_point
    J = J_a + partner_curvature(kind_b, B, code, d, n)
    adj_v, adj_d = normal_vjp(freedom, n, d, v, J, adj_n)
    adj_v += adj_distance * n
    add_smooth_cotangent(
        scene, poses, shapes, a, -n, adj_point + adj_v, -adj_distance - push, w, wrench, adj_shapes
    )  # fmt: skip
    if code == WHOLE:
        add_smooth_cotangent(scene, poses, shapes, b, n, -adj_v, -adj_distance, w, wrench, adj_shapes)
    else:
        # a cylinder's own radius, at its side and at its rim, eq. (17)
        adj_round = ra - ra
        if hull_kind(code) == SIDE:
            adj_round = -adj_distance
        elif hull_kind(code) == RIM:
            across = across_axis(n, d)
            outwards = unit_or_up(across)
            adj_round = -wp.dot(outwards, adj_v)
            adj_across = unit_vjp(across, outwards, -B.h[0] * adj_v)
            adj_d -= wp.dot(d, n) * adj_across + wp.dot(d, adj_across) * n
        p = shape_position(scene, poses, shapes, b, w)
        adj = feature_cotangents(-adj_v, adj_d, -adj_distance, adj_round)
        add_hull_cotangent(scene, poses, shapes, b, code, p + c, d, adj, w, wrench, adj_shapes)
