"""Collision in worlds of every shape: cylinders, meshes and fields besides spheres, capsules, boxes and planes.

docs/derivations/collision.md, convex.md and sdf.md.

`collide_any` and `any_contact_vjp` take the place of `collide_one` and `contact_vjp` of `collide_kernels.py` in the
kernels of worlds that have such shapes (docs/decisions/0007-one-source-for-kernels-that-differ.md).
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.collide_kernels import collide_one, contact_vjp, is_near
from pullback.rigid.collide.convex.contact_kernels import add_hull_contact, hull_contact_vjp
from pullback.rigid.collide.convex.convex_kernels import collide_hulls, hulls_are_near
from pullback.rigid.collide.sampled_kernels import collide_samples, sampled_contact_vjp
from pullback.rigid.compile.scene import BY_HULLS, BY_SAMPLES, CONTACT_ROWS, PAIR, Scene


@wp.func
def collide_any(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    contacts: wp.array2d(dtype=Any), candidates: wp.array2d(dtype=Any), work: wp.array2d(dtype=Any), pair: int,
    count: int,
):  # fmt: skip
    """Write the contacts of one pair behind the first `count`; return the count."""
    total = int(count)
    family = scene.pair_family[pair]
    if family == BY_SAMPLES:
        if is_near(scene, poses, shapes, margin, w, scene.pair_a[pair], scene.pair_b[pair]):
            total = collide_samples(scene, poses, shapes, margin, w, contacts, candidates, pair, total)
    elif family == BY_HULLS:
        if hulls_are_near(scene, poses, shapes, margin, w, pair):
            found = collide_hulls(scene, poses, shapes, margin, w, candidates, pair, work)
            for k in range(found):
                total = add_hull_contact(scene, poses, shapes, margin, w, contacts, pair, candidates, k, total)
    else:
        total = collide_one(scene, poses, shapes, margin, w, contacts, candidates, work, pair, total)
    return total


@wp.func
def any_contact_vjp(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), w: int, contacts: wp.array2d(dtype=Any),
    c: int, adj_gap: Any, adj_point: Any, adj_normal: Any, wrench: wp.array2d(dtype=Any),
    adj_shapes: wp.array2d(dtype=Any), tape: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangents of contact c's gap, point and normal back to the bodies' wrenches and to the shapes."""
    family = scene.pair_family[int(contacts[c * CONTACT_ROWS + PAIR, w])]
    if family == BY_SAMPLES:
        sampled_contact_vjp(
            scene, poses, shapes, w, contacts, c, adj_gap, adj_point, adj_normal, wrench, adj_shapes, tape
        )  # fmt: skip
    elif family == BY_HULLS:
        hull_contact_vjp(scene, poses, shapes, w, contacts, c, adj_gap, adj_point, adj_normal, wrench, adj_shapes)
    else:
        contact_vjp(scene, poses, shapes, w, contacts, c, adj_gap, adj_point, adj_normal, wrench, adj_shapes, tape)
