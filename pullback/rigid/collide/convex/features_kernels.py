"""Features of hulls and cylinders: what their codes mean, and where they are (docs/derivations/convex.md).

A vertex is a point, an edge and a cylinder's side are lines, a face is a plane. A cylinder's rim is a circle: which of
its points touches depends on what it touches (`rim_kernels`).
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.support_kernels import corner, edge_direction, edge_middle, face_centre, face_normal
from pullback.rigid.collide.convex.tables import ARC, ARC_POINT, FEATURE_KINDS, HULL_CODES, RIM, SIDE, Hulls
from pullback.rigid.collide.features_kernels import EDGE, FACE, VERTEX, direction_in_world, half_extents, point_in_world
from pullback.rigid.compile.scene import RADIUS, SHAPE_ROWS, Scene


@wp.func
def hull_code(kind: int, index: int):
    """Return the code of a feature of a hull."""
    return HULL_CODES + 2 * (FEATURE_KINDS * index + kind)


@wp.func
def hull_kind(code: int):
    """Return VERTEX, EDGE, FACE, RIM, SIDE, ARC or ARC_POINT."""
    return ((code - HULL_CODES) // 2) % FEATURE_KINDS


@wp.func
def hull_index(code: int):
    """Return the number of a feature among those of its kind."""
    return ((code - HULL_CODES) // 2) // FEATURE_KINDS


@wp.func
def is_reversed(code: int):
    """Return whether an edge is given with its direction reversed."""
    return (code - HULL_CODES) % 2 == 1


@wp.func
def is_rim(kind: int):
    """Return whether a feature is a circle."""
    return kind == RIM or kind == ARC or kind == ARC_POINT


@wp.func
def is_line(kind: int):
    """Return whether a feature is a straight line."""
    return kind == EDGE or kind == SIDE


@wp.func
def rim_centre(hulls: Hulls, index: int, like: Any):
    """Return the centre of the end of a cylinder that an edge of its prism lies on, unscaled, and the way out of it."""
    z = edge_middle(hulls, index, like)[2]
    zero = like.dtype(0.0)
    return wp.vector(zero, zero, z), wp.vector(zero, zero, wp.sign(z))


@wp.func
def hull_feature(hulls: Hulls, code: int, like: Any):
    """Return centre, unscaled, and direction of a feature in the frame of its hull; a vertex has the direction 0.

    The direction of a rim is that out of the cylinder's end.
    """
    kind = hull_kind(code)
    i = hull_index(code)
    zero = like.dtype(0.0)
    s = like - like
    d = like - like
    if kind == VERTEX:
        s = corner(hulls, i, like)
    elif kind == EDGE:
        s = edge_middle(hulls, i, like)
        d = edge_direction(hulls, i, like)
    elif kind == FACE or kind == RIM:
        s = face_centre(hulls, i, like)
        d = face_normal(hulls, i, like)
    elif kind == SIDE:
        d = wp.vector(zero, zero, like.dtype(1.0))
    else:
        s, d = rim_centre(hulls, i, like)
    if is_line(kind) and is_reversed(code):
        d = -d
    return s, d


@wp.func
def hull_feature_in_world(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), shape: int, code: int, w: int
):
    """Return centre and direction of a feature in the world, and the radius around it."""
    h = half_extents(shapes, shape, w)
    s, d = hull_feature(scene.hulls, code, h)
    radius = shapes[shape * SHAPE_ROWS + RADIUS, w]
    if hull_kind(code) == SIDE:
        radius += h[0]
    c = point_in_world(scene, poses, shapes, shape, wp.cw_mul(s, h), w)
    return c, direction_in_world(scene, poses, shapes, shape, d, w), radius
