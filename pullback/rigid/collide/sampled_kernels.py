"""Contacts of a shape's samples with a field, and their adjoint (docs/derivations/sdf.md).

In such a pair a is the shape whose samples are taken and b the one with the field; FEATURE_A is the sample.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.features_kernels import half_extents, shape_pose
from pullback.rigid.collide.geometry_kernels import add_point_cotangent, write_contact
from pullback.rigid.compile.scene import (
    CONTACT_ROWS,
    FEATURE_A,
    FIELD,
    NORMAL,
    PAIR,
    RADIUS,
    SHAPE_ROWS,
    Scene,
)
from pullback.sdf.sample_kernels import deepest_sample, sample_contact_vjp, sample_position
from pullback.spatial.arrays import accumulate, load3


@wp.func
def sampled_core(scene: Scene, shapes: wp.array2d(dtype=Any), shape: int, w: int):
    """Return what a shape's samples are multiplied by, and the radius around them."""
    h = half_extents(shapes, shape, w)
    radius = shapes[shape * SHAPE_ROWS + RADIUS, w]
    if scene.shape_kind[shape] == FIELD:
        one = h.dtype(1.0)
        h = wp.vector(one, one, one)
        radius = h.dtype(0.0)
    return h, radius


@wp.func(inline=False)
def collide_samples(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    contacts: wp.array2d(dtype=Any), stack: wp.array2d(dtype=Any), pair: int, count: int,
):  # fmt: skip
    """Write the contacts of one pair behind the first `count`, as many as there is room for; return the count."""
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    field = scene.shape_field[b]
    samples = scene.shape_samples[a]
    h, radius = sampled_core(scene, shapes, a, w)
    R_WA, p_WA = shape_pose(scene, poses, shapes, a, w)
    R_WB, p_WB = shape_pose(scene, poses, shapes, b, w)
    R = wp.transpose(R_WB) * R_WA
    p = (p_WA - p_WB) * R_WB
    found = int(count)
    first = scene.fields.set_first[samples]
    for k in range(scene.fields.set_first[samples + 1] - first):
        sample, x, distance, n = deepest_sample(
            scene.fields, field, shapes, scene.shape_row[b], first + k, h, radius, R, p, margin, w, stack
        )
        if sample >= 0:
            point = p_WB + R_WB * (x - h.dtype(0.5) * (distance + radius) * n)
            found = write_contact(scene, pair, sample, 0, distance - radius, point, R_WB * n, w, contacts, found)
    return found


@wp.func(inline=False)
def sampled_contact_vjp(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), w: int, contacts: wp.array2d(dtype=Any),
    contact: int, adj_gap: Any, adj_point: Any, adj_normal: Any, wrench: wp.array2d(dtype=Any),
    adj_shapes: wp.array2d(dtype=Any), tape: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangents of a sample's gap, point and normal back to bodies and shapes, eqs. (18) to (20)."""
    row = contact * CONTACT_ROWS
    pair = int(contacts[row + PAIR, w])
    sample = int(contacts[row + FEATURE_A, w])
    n = load3(contacts, row + NORMAL, w)
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    h, radius = sampled_core(scene, shapes, a, w)
    one = n.dtype(1.0)
    share = sample_position(scene.fields, sample, wp.vector(one, one, one))
    local = wp.cw_mul(share, h)
    R_WA, p_WA = shape_pose(scene, poses, shapes, a, w)
    R_WB, p_WB = shape_pose(scene, poses, shapes, b, w)
    c = p_WA + R_WA * local
    x = (c - p_WB) * R_WB
    push, adj_n, adj_radius = sample_contact_vjp(
        scene.fields, scene.shape_field[b], shapes, scene.shape_row[b], x, radius, adj_gap, adj_point * R_WB,
        adj_normal * R_WB, w, adj_shapes, tape,
    )  # fmt: skip
    f = R_WB * push
    force = adj_point + f
    on_sample = add_point_cotangent(scene, poses, shapes, a, local, c, n - n, force, w, wrench, adj_shapes)
    add_point_cotangent(scene, poses, shapes, b, x, c, wp.cross(n, R_WB * adj_n), -f, w, wrench, adj_shapes)
    if adj_shapes and scene.shape_kind[a] != FIELD:
        adj_h = wp.cw_mul(share, on_sample)
        accumulate(adj_shapes, a * SHAPE_ROWS, w, wp.vector(adj_h[0], adj_h[1], adj_h[2], adj_radius))
