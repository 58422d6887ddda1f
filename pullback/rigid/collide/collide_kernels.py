"""Which shapes touch, and where: the contacts of all pairs, and their adjoint (docs/derivations/collision.md).

Collision only selects features; gap, point and normal follow from them in closed form (`geometry_kernels`). Hulls and
fields: `all_shapes_kernels.py`; smooth shapes: `smooth/`. What a shape is: `world/shapes.py`.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.box_kernels import collide_boxes
from pullback.rigid.collide.capsule_kernels import collide_capsule_box, collide_capsules
from pullback.rigid.collide.features_kernels import (
    FACE,
    VERTEX,
    column,
    encode,
    feature_in_world,
    feature_kind,
    half_extents,
    nearest_feature,
    shape_pose,
    shape_position,
)
from pullback.rigid.collide.geometry_kernels import (
    add_candidate,
    add_contact,
    add_feature_cotangent,
    feature_contact_vjp,
    feature_cotangents,
)
from pullback.rigid.compile.scene import (
    BOX,
    CAPSULE,
    CONTACT_ROWS,
    FEATURE_A,
    FEATURE_B,
    PAIR,
    PLANE,
    RADIUS,
    SHAPE_ROWS,
    SPHERE,
    Scene,
)


@wp.func
def bounding_radius(shapes: wp.array2d(dtype=Any), shape: int, w: int):
    """Return the radius of the sphere about a shape's origin that holds all of it."""
    return wp.length(half_extents(shapes, shape, w)) + shapes[shape * SHAPE_ROWS + RADIUS, w]


@wp.func
def is_near(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int, a: int, b: int
):
    """Return whether the bounding spheres of two shapes, b perhaps a plane, are closer than the margin."""
    reach = margin + bounding_radius(shapes, a, w)
    r = shape_position(scene, poses, shapes, a, w)
    distance = reach
    if scene.shape_kind[b] == PLANE:
        R, p = shape_pose(scene, poses, shapes, b, w)
        distance = wp.dot(column(R, 2), r - p)
    else:
        distance = wp.length(r - shape_position(scene, poses, shapes, b, w))
        reach += bounding_radius(shapes, b, w)
    return distance < reach


@wp.func
def collide_plane(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    candidates: wp.array2d(dtype=Any), pair: int,
):  # fmt: skip
    """Add every vertex of shape a against the plane b as a candidate; return the count."""
    kind = scene.shape_kind[scene.pair_a[pair]]
    vertices = int(1)
    if kind == CAPSULE:
        vertices = 2
    elif kind == BOX:
        vertices = 8
    count = int(0)
    for i in range(vertices):
        x = int(0)
        y = int(0)
        z = int(0)
        if kind != SPHERE:
            z = 2 * (i % 2) - 1
        if kind == BOX:
            y = 2 * (i // 2 % 2) - 1
            x = 2 * (i // 4) - 1
        code_a = encode(VERTEX, 0, x, y, z)
        count = add_candidate(code_a, encode(FACE, 2, 0, 0, 0), wp.vector(margin, margin, margin), w, candidates, count)
    return count


@wp.func
def collide_sphere(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    candidates: wp.array2d(dtype=Any), pair: int,
):  # fmt: skip
    """Add the sphere a and the nearest feature of a sphere, capsule or box b as a candidate."""
    b = scene.pair_b[pair]
    R, p = shape_pose(scene, poses, shapes, b, w)
    x = (shape_position(scene, poses, shapes, scene.pair_a[pair], w) - p) * R
    code_b = nearest_feature(x, half_extents(shapes, b, w))
    return add_candidate(encode(VERTEX, 0, 0, 0, 0), code_b, x, w, candidates, 0)


@wp.func
def collide_round_pair(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    candidates: wp.array2d(dtype=Any), pair: int,
):  # fmt: skip
    """Add the features of a sphere and a sphere or plane as a candidate; return the count."""
    count = int(0)
    if scene.shape_kind[scene.pair_b[pair]] == PLANE:
        count = collide_plane(scene, poses, shapes, margin, w, candidates, pair)
    else:
        count = collide_sphere(scene, poses, shapes, margin, w, candidates, pair)
    return count


@wp.func
def collide_pair(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    candidates: wp.array2d(dtype=Any), pair: int,
):  # fmt: skip
    """Add the pairs of features of two shapes that may touch as candidates; return the count."""
    kind_a = scene.shape_kind[scene.pair_a[pair]]
    kind_b = scene.shape_kind[scene.pair_b[pair]]
    count = int(0)
    if kind_b == PLANE:
        count = collide_plane(scene, poses, shapes, margin, w, candidates, pair)
    elif kind_a == SPHERE:
        count = collide_sphere(scene, poses, shapes, margin, w, candidates, pair)
    elif kind_b == CAPSULE:
        count = collide_capsules(scene, poses, shapes, margin, w, candidates, pair)
    elif kind_a == CAPSULE:
        count = collide_capsule_box(scene, poses, shapes, margin, w, candidates, pair)
    else:
        count = collide_boxes(scene, poses, shapes, margin, w, candidates, pair)
    return count


@wp.func(inline=True)
def collide_one(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    contacts: wp.array2d(dtype=Any), candidates: wp.array2d(dtype=Any), work: wp.array2d(dtype=Any), pair: int,
    count: int,
):  # fmt: skip
    """Write the contacts of a pair of spheres, capsules, boxes or planes behind the first `count`; return the count."""
    total = int(count)
    if is_near(scene, poses, shapes, margin, w, scene.pair_a[pair], scene.pair_b[pair]):
        found = collide_pair(scene, poses, shapes, margin, w, candidates, pair)
        for k in range(found):
            total = add_contact(scene, poses, shapes, margin, w, contacts, pair, candidates, k, total)
    return total


@wp.func
def pair_margin(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, dt: Any,
    dynamics: wp.array2d(dtype=Any), w: int, pair: int,
):  # fmt: skip
    """Return the margin itself: how close shapes are that may touch within a step of dt."""
    return margin


@wp.func
def collide(
    scene: Scene,
    poses: wp.array2d(dtype=Any),
    shapes: wp.array2d(dtype=Any),
    margin: Any,
    dt: Any,
    w: int,
    contacts: wp.array2d(dtype=Any),
    dynamics: wp.array2d(dtype=Any),
    candidates: wp.array2d(dtype=Any),
    work: wp.array2d(dtype=Any),
):
    """Write all contacts with a gap below the margin [m], as many as there is room for; return how many there are.

    `dynamics` has the bodies' velocities, for margins that grow with speed (touch_kernels.py); `candidates` and `work`,
    of which hulls need CONVEX_ROWS, are scratch.
    """
    count = int(0)
    for pair in range(scene.npair):
        reach = pair_margin(scene, poses, shapes, margin, dt, dynamics, w, pair)
        count = collide_one(scene, poses, shapes, reach, w, contacts, candidates, work, pair, count)
    return count


@wp.func
def contact_vjp(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), w: int, contacts: wp.array2d(dtype=Any),
    c: int, adj_gap: Any, adj_point: Any, adj_normal: Any, wrench: wp.array2d(dtype=Any),
    adj_shapes: wp.array2d(dtype=Any), tape: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangents of contact c's gap, point and normal back to the bodies' wrenches and to the shapes."""
    row = c * CONTACT_ROWS
    pair = int(contacts[row + PAIR, w])
    code_a = int(contacts[row + FEATURE_A, w])
    code_b = int(contacts[row + FEATURE_B, w])
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    ca, da = feature_in_world(scene, poses, shapes, a, code_a, w)
    cb, db = feature_in_world(scene, poses, shapes, b, code_b, w)
    ra = shapes[a * SHAPE_ROWS + RADIUS, w]
    rb = shapes[b * SHAPE_ROWS + RADIUS, w]
    adj_ca, adj_da, adj_cb, adj_db, adj_ra, adj_rb = feature_contact_vjp(
        feature_kind(code_a), feature_kind(code_b), ca, da, cb, db, ra, rb, adj_gap, adj_point, adj_normal
    )
    adj_a = feature_cotangents(adj_ca, adj_da, adj_ra, ra - ra)
    adj_b = feature_cotangents(adj_cb, adj_db, adj_rb, ra - ra)
    add_feature_cotangent(scene, poses, shapes, a, code_a, ca, da, adj_a, w, wrench, adj_shapes)
    add_feature_cotangent(scene, poses, shapes, b, code_b, cb, db, adj_b, w, wrench, adj_shapes)
