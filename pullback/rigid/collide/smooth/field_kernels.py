"""Contacts of a smooth shape with a field, and their adjoint (docs/derivations/smooth.md, "Fields").

a is the smooth shape, b the one with the field. From the deepest sample of each cluster Newton's method finds where the
field is least on a's surface, or a point of a crease of the field that is nearly so (FEATURE_A >= 0). Positions and
normals are in the field's frame.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.support_kernels import rounding
from pullback.rigid.collide.features_kernels import VERTEX, half_extents, shape_pose
from pullback.rigid.collide.geometry_kernels import add_point_cotangent, write_contact
from pullback.rigid.collide.smooth.contact_kernels import add_smooth_cotangent
from pullback.rigid.collide.smooth.direction_kernels import tangent
from pullback.rigid.collide.smooth.support_kernels import curvature, support
from pullback.rigid.compile.scene import (
    CONTACT_ROWS,
    FEATURE_A,
    GAP,
    NORMAL,
    PAIR,
    POINT,
    SHAPE_ROWS,
    Scene,
)
from pullback.sdf.field_kernels import field_value_gradient, field_vjp
from pullback.sdf.sample_kernels import deepest_sample, distance_of, sample_contact_vjp
from pullback.spatial.arrays import accumulate, load3
from pullback.spatial.vectors import unit_or_up

FIELD_STEPS = wp.constant(120)
CREASES = wp.constant(16)  # times that a step is taken along a crease of the field
CREASE_STEP = wp.constant(0.3)  # of such a step, at first
CREASE_SHARE = wp.constant(1.0e-3)  # of a step: one that must be shorter than this to fall ends at a crease
LONGEST_STEP = wp.constant(0.5)  # of the normal [rad]
SHORTER = wp.constant(0.3)  # factor of a step that did not lower the field
SAMPLE_SLACK = wp.constant(0.03)  # of the largest half extent: how far a smooth shape stands out between its samples
APART = wp.constant(0.05)  # of the largest half extent: contacts closer to each other than this are one


@wp.func
def solve2(a: Any, b: Any, c: Any, d: Any, x: Any, y: Any):
    """Return the solution of a 2x2 system with the rows (a, b) and (c, d)."""
    determinant = a * d - b * c
    return (d * x - b * y) / determinant, (a * y - c * x) / determinant


@wp.func
def shortest_between(x: Any, y: Any):
    """Return the shortest vector on the line from x to y."""
    between = y - x
    square = wp.dot(between, between)
    share = x.dtype(0.0)
    if square > share:
        share = wp.clamp(-wp.dot(x, between) / square, x.dtype(0.0), x.dtype(1.0))
    return x + share * between


@wp.func(inline=False)
def least_on_surface(
    scene: Scene, shapes: wp.array2d(dtype=Any), pair: int, R: Any, p: Any, start: Any, w: int,
    stack: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return the normal at the point of a's surface where b's field is least, near `start`, and whether it was found.

    R, p: the pose of a in the field's frame. Slopes of the gradient are differences: they only set the steps, eq. (18).
    """
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    kind = scene.shape_kind[a]
    h = half_extents(shapes, a, w)
    size = wp.max(h)
    tiny = rounding(h)
    little = wp.sqrt(tiny)
    n = start
    g_here = n
    step = n - n
    lowest = h.dtype(1.0e30)
    share = h.dtype(1.0)
    found = bool(False)
    creases = int(0)
    searching = int(1)
    limit = int(FIELD_STEPS)
    three = int(3)
    for turn in range(limit):
        if searching == 1:
            ahead = wp.normalize(n + share * step)
            x = p + support(kind, R, h, -ahead)
            t = tangent(ahead, ahead, VERTEX)
            u = wp.cross(ahead, t)
            J = curvature(kind, R, h, -ahead)
            value = lowest
            g = n
            by_t = n
            by_u = n
            for k in range(three):
                move = h - h
                if k == 1:
                    move = little * (J * t)
                elif k == 2:
                    move = little * (J * u)
                level, slope = field_value_gradient(
                    scene.fields, scene.shape_field[b], shapes, scene.shape_row[b], x + move, w, stack
                )  # fmt: skip
                if k == 0:
                    value = level
                    g = slope
                elif k == 1:
                    by_t = (slope - g) / little
                else:
                    by_u = (slope - g) / little
            if value <= lowest + tiny * size:
                n = ahead
                g_here = g
                lowest = value
                share = h.dtype(1.0)
                length = wp.length(g)
                right_t = wp.dot(t, g)
                right_u = wp.dot(u, g)
                tt = length + wp.dot(t, by_t)
                uu = length + wp.dot(u, by_u)
                tu = wp.dot(t, by_u)
                ut = wp.dot(u, by_t)
                # where the field is not convex along the surface: straight down
                if tt <= h.dtype(0.0) or uu <= h.dtype(0.0) or tt * uu - tu * ut <= h.dtype(0.05) * tt * uu:
                    tt, uu, tu, ut = length, length, h.dtype(0.0), h.dtype(0.0)
                y, z = solve2(tt, tu, ut, uu, right_t, right_u)
                step = y * t + z * u
                turned = wp.length(step)
                if turned > h.dtype(LONGEST_STEP):
                    step = step * (h.dtype(LONGEST_STEP) / turned)
                if turned < h.dtype(100.0) * tiny:
                    found = True
                    searching = 0
            else:
                share = share * h.dtype(SHORTER)
                if share < h.dtype(CREASE_SHARE):
                    # a crease between here and there: along it both gradients fall, at its least point none does
                    step = shortest_between(wp.cross(wp.cross(n, g_here), n), wp.cross(wp.cross(n, g), n))
                    step = step / wp.length(g)
                    share = h.dtype(CREASE_STEP)
                    creases += 1
                if creases > CREASES or wp.length(step) < little:
                    searching = 0
    return n, found


@wp.func(inline=False)
def collide_smooth_field(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    contacts: wp.array2d(dtype=Any), stack: wp.array2d(dtype=Any), pair: int, count: int,
):  # fmt: skip
    """Write the contacts of one pair behind the first `count`, as many as there is room for; return the count."""
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    kind = scene.shape_kind[a]
    field = scene.shape_field[b]
    samples = scene.shape_samples[a]
    h = half_extents(shapes, a, w)
    zero = margin - margin
    R_WA, p_WA = shape_pose(scene, poses, shapes, a, w)
    R_WB, p_WB = shape_pose(scene, poses, shapes, b, w)
    R = wp.transpose(R_WB) * R_WA
    p = (p_WA - p_WB) * R_WB
    found = int(count)
    first = scene.fields.set_first[samples]
    for k in range(scene.fields.set_first[samples + 1] - first):
        sample, x, distance, n = deepest_sample(
            scene.fields, field, shapes, scene.shape_row[b], first + k, h, zero, R, p,
            margin + h.dtype(SAMPLE_SLACK) * wp.max(h), w, stack,
        )  # fmt: skip
        if sample >= 0:
            code = sample
            m, is_least = least_on_surface(scene, shapes, pair, R, p, n, w, stack)
            if is_least:
                code = count - found - 1
            x = p + support(kind, R, h, -m)
            value, g = field_value_gradient(scene.fields, field, shapes, scene.shape_row[b], x, w, stack)
            distance = distance_of(value, g)
            n = unit_or_up(g)
            point = p_WB + R_WB * (x - h.dtype(0.5) * distance * n)
            known = bool(False)
            for i in range(count, wp.min(found, scene.max_contacts)):
                between = point - load3(contacts, i * CONTACT_ROWS + POINT, w)
                if wp.length(between) < h.dtype(APART) * wp.max(h):
                    known = True
            if distance < margin and not known:
                found = write_contact(scene, pair, code, 0, distance, point, R_WB * n, w, contacts, found)
    return found


@wp.func(inline=False)
def gradient_vjp(
    scene: Scene, shapes: wp.array2d(dtype=Any), shape: int, x: Any, adj_g: Any, w: int,
    adj_shapes: wp.array2d(dtype=Any), tape: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return the cotangent of x for that of a field's gradient there, and add those of the field's parameters."""
    return field_vjp(
        scene.fields, scene.shape_field[shape], shapes, scene.shape_row[shape], x, adj_g[0] - adj_g[0], adj_g, w,
        adj_shapes, tape,
    )  # fmt: skip


@wp.func
def normal_pull(
    scene: Scene, shapes: wp.array2d(dtype=Any), shape: int, x: Any, n: Any, J: Any, adj_x: Any, w: int,
    tape: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return the field's gradient at x, and its cotangent through the normal that x follows, eq. (19)."""
    value, g = field_value_gradient(
        scene.fields, scene.shape_field[shape], shapes, scene.shape_row[shape], x, w, tape
    )  # fmt: skip
    nothing = wp.array(ptr=wp.uint64(0), shape=(0, 0), dtype=shapes.dtype)
    length = wp.length(g)
    t = tangent(n, n, VERTEX)
    u = wp.cross(n, t)
    by_t = gradient_vjp(scene, shapes, shape, x, J * t, w, nothing, tape)
    by_u = gradient_vjp(scene, shapes, shape, x, J * u, w, nothing, tape)
    adj_n = -(J * adj_x)
    # the transposed system
    y, z = solve2(
        length + wp.dot(t, by_t), wp.dot(u, by_t), wp.dot(t, by_u), length + wp.dot(u, by_u), wp.dot(t, adj_n),
        wp.dot(u, adj_n),
    )  # fmt: skip
    return g, y * t + z * u


@wp.func(inline=False)
def smooth_field_vjp(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), w: int, contacts: wp.array2d(dtype=Any),
    contact: int, adj_gap: Any, adj_point: Any, adj_normal: Any, wrench: wp.array2d(dtype=Any),
    adj_shapes: wp.array2d(dtype=Any), tape: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangents of a contact's gap, point and normal back to bodies and shapes, eqs. (18) to (20)."""
    row = contact * CONTACT_ROWS
    pair = int(contacts[row + PAIR, w])
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    kind = scene.shape_kind[a]
    h = half_extents(shapes, a, w)
    zero = adj_gap - adj_gap
    n_W = load3(contacts, row + NORMAL, w)
    R_WA, p_WA = shape_pose(scene, poses, shapes, a, w)
    R_WB, p_WB = shape_pose(scene, poses, shapes, b, w)
    is_least = contacts[row + FEATURE_A, w] < zero
    # at a crease a's point stays where it is on a, and is found from the contact
    c = load3(contacts, row + POINT, w) + zero.dtype(0.5) * contacts[row + GAP, w] * n_W
    if is_least:
        c = p_WA + support(kind, R_WA, h, -n_W)
    x = (c - p_WB) * R_WB
    n = n_W * R_WB
    push, adj_n, adj_radius = sample_contact_vjp(
        scene.fields, scene.shape_field[b], shapes, scene.shape_row[b], x, zero, adj_gap, adj_point * R_WB,
        adj_normal * R_WB, w, adj_shapes, tape,
    )  # fmt: skip
    torque = wp.cross(n, adj_n)
    if is_least:
        J = curvature(kind, wp.transpose(R_WB) * R_WA, h, -n)
        g, adj_g = normal_pull(scene, shapes, b, x, n, J, adj_point * R_WB + push, w, tape)
        push += gradient_vjp(scene, shapes, b, x, adj_g, w, adj_shapes, tape)
        torque += wp.cross(g, adj_g)
    f = R_WB * push
    add_point_cotangent(scene, poses, shapes, b, x, c, R_WB * torque, -f, w, wrench, adj_shapes)
    if is_least:
        add_smooth_cotangent(scene, poses, shapes, a, -n_W, adj_point + f, zero, w, wrench, adj_shapes)
    else:
        local = (c - p_WA) * R_WA
        on_point = add_point_cotangent(
            scene, poses, shapes, a, local, c, n - n, adj_point + f, w, wrench, adj_shapes
        )  # fmt: skip
        if adj_shapes:
            accumulate(adj_shapes, a * SHAPE_ROWS, w, wp.cw_mul(wp.cw_div(local, h), on_point))
