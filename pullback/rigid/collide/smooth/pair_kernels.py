"""Collision in worlds that have smooth shapes besides all others (docs/derivations/smooth.md).

`collide_any_smooth` and `any_smooth_contact_vjp` take the place of `collide_one` and `contact_vjp` in their kernels, as
the functions of `all_shapes_kernels.py` do in worlds without smooth shapes.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.all_shapes_kernels import any_contact_vjp, collide_any
from pullback.rigid.collide.collide_kernels import is_near
from pullback.rigid.collide.convex.convex_kernels import hulls_are_near
from pullback.rigid.collide.smooth.contact_kernels import collide_smooth, smooth_contact_vjp
from pullback.rigid.collide.smooth.field_kernels import collide_smooth_field, smooth_field_vjp
from pullback.rigid.collide.smooth.support_kernels import is_smooth
from pullback.rigid.compile.scene import BY_SAMPLES, BY_SUPPORT, CONTACT_ROWS, PAIR, Scene


@wp.func
def collide_any_smooth(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    contacts: wp.array2d(dtype=Any), candidates: wp.array2d(dtype=Any), work: wp.array2d(dtype=Any), pair: int,
    count: int,
):  # fmt: skip
    """Write the contacts of one pair behind the first `count`; return the count."""
    total = int(count)
    family = scene.pair_family[pair]
    a = scene.pair_a[pair]
    if family == BY_SUPPORT:
        if hulls_are_near(scene, poses, shapes, margin, w, pair):
            total = collide_smooth(scene, poses, shapes, margin, w, contacts, pair, work, total)
    elif family == BY_SAMPLES and is_smooth(scene.shape_kind[a]):
        if is_near(scene, poses, shapes, margin, w, a, scene.pair_b[pair]):
            total = collide_smooth_field(scene, poses, shapes, margin, w, contacts, candidates, pair, total)
    else:
        total = collide_any(scene, poses, shapes, margin, w, contacts, candidates, work, pair, total)
    return total


@wp.func
def any_smooth_contact_vjp(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), w: int, contacts: wp.array2d(dtype=Any),
    c: int, adj_gap: Any, adj_point: Any, adj_normal: Any, wrench: wp.array2d(dtype=Any),
    adj_shapes: wp.array2d(dtype=Any), tape: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangents of contact c's gap, point and normal back to the bodies' wrenches and to the shapes."""
    pair = int(contacts[c * CONTACT_ROWS + PAIR, w])
    family = scene.pair_family[pair]
    if family == BY_SUPPORT:
        smooth_contact_vjp(scene, poses, shapes, w, contacts, c, adj_gap, adj_point, adj_normal, wrench, adj_shapes)
    elif family == BY_SAMPLES and is_smooth(scene.shape_kind[scene.pair_a[pair]]):
        smooth_field_vjp(
            scene, poses, shapes, w, contacts, c, adj_gap, adj_point, adj_normal, wrench, adj_shapes, tape
        )  # fmt: skip
    else:
        any_contact_vjp(scene, poses, shapes, w, contacts, c, adj_gap, adj_point, adj_normal, wrench, adj_shapes, tape)
