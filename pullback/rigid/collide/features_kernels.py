"""Features of shapes, vertices, edges and faces: their codes, and where they are (docs/derivations/collision.md).

A feature of a core with half extents h has its centre at s∘h, s in {-1, 0, 1}³, and an axis, along an edge or
normal to a face. Its code holds kind, axis and signs; the sign on an edge's axis is that of its direction.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import POSE_ROWS, SHAPE_POSITION, SHAPE_ROTATION, SHAPE_ROWS, Scene
from pullback.spatial.arrays import load3, load33

VERTEX = wp.constant(0)
EDGE = wp.constant(1)
FACE = wp.constant(2)

AXIS_STEP = wp.constant(27)
KIND_STEP = wp.constant(81)


@wp.func
def sign_step(axis: int):
    """Return the weight of a sign on this axis in a code."""
    step = int(1)
    if axis == 1:
        step = 3
    elif axis == 2:
        step = 9
    return step


@wp.func
def encode(kind: int, axis: int, x: int, y: int, z: int):
    """Return the code of a feature with the signs x, y, z."""
    return kind * KIND_STEP + axis * AXIS_STEP + (x + 1) + 3 * (y + 1) + 9 * (z + 1)


@wp.func
def encode_on_axis(kind: int, axis: int, sign: int):
    """Return the code of a feature whose only sign is that on its axis."""
    return encode(kind, axis, 0, 0, 0) + sign * sign_step(axis)


@wp.func
def feature_kind(code: int):
    """Return VERTEX, EDGE or FACE."""
    return code // KIND_STEP


@wp.func
def feature_axis(code: int):
    """Return the axis along an edge or normal to a face."""
    return (code // AXIS_STEP) % 3


@wp.func
def feature_sign(code: int, axis: int):
    """Return the sign -1, 0 or 1 on an axis."""
    return (code // sign_step(axis)) % 3 - 1


@wp.func
def reversed_edge(code: int):
    """Return the code of an edge, given with the direction +, with its direction reversed."""
    return code - sign_step(feature_axis(code))


@wp.func
def bordering(code: int, axis: int, sign: int):
    """Return the feature that bounds this one where a free axis ends: an edge of a face, a vertex of an edge."""
    signs = code % AXIS_STEP + sign * sign_step(axis)
    result = signs
    if feature_kind(code) == FACE:
        result = signs + EDGE * KIND_STEP + (3 - axis - feature_axis(code)) * AXIS_STEP
    return result


@wp.func
def centre_signs(code: int, like: Any):
    """Return the signs s of the centre s∘h as a vector of the type of `like`."""
    edge_axis = int(-1)
    if feature_kind(code) == EDGE:
        edge_axis = feature_axis(code)
    x = feature_sign(code, 0)
    y = feature_sign(code, 1)
    z = feature_sign(code, 2)
    if edge_axis == 0:
        x = int(0)
    if edge_axis == 1:
        y = int(0)
    if edge_axis == 2:
        z = int(0)
    return wp.vector(like.dtype(x), like.dtype(y), like.dtype(z))


@wp.func
def axis_direction(code: int, like: Any):
    """Return the unit vector along an edge or out of a face, in the shape's frame."""
    axis = feature_axis(code)
    one = like.dtype(1.0)
    zero = like.dtype(0.0)
    if feature_sign(code, axis) < 0:
        one = -one
    return wp.vector(wp.where(axis == 0, one, zero), wp.where(axis == 1, one, zero), wp.where(axis == 2, one, zero))


@wp.func
def half_extents(shapes: wp.array2d(dtype=Any), shape: int, w: int):
    """Return the half extents of a shape's core."""
    return load3(shapes, shape * SHAPE_ROWS, w)


@wp.func
def point_in_world(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), shape: int, x: Any, w: int
):
    """Return the world position of a point of the shape's frame."""
    row = shape * SHAPE_ROWS
    y = load3(shapes, row + SHAPE_POSITION, w) + load33(shapes, row + SHAPE_ROTATION, w) * x
    body = scene.shape_body[shape]
    if body >= 0:
        y = load3(poses, body * POSE_ROWS + 9, w) + load33(poses, body * POSE_ROWS, w) * y
    return y


@wp.func
def direction_in_world(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), shape: int, x: Any, w: int
):
    """Return a vector of the shape's frame in world axes."""
    y = load33(shapes, shape * SHAPE_ROWS + SHAPE_ROTATION, w) * x
    body = scene.shape_body[shape]
    if body >= 0:
        y = load33(poses, body * POSE_ROWS, w) * y
    return y


@wp.func
def feature_in_world(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), shape: int, code: int, w: int
):
    """Return centre and direction of a feature; a vertex has the direction 0, eq. (1)."""
    h = half_extents(shapes, shape, w)
    c = point_in_world(scene, poses, shapes, shape, wp.cw_mul(centre_signs(code, h), h), w)
    d = c - c
    if feature_kind(code) != VERTEX:
        d = direction_in_world(scene, poses, shapes, shape, axis_direction(code, h), w)
    return c, d


@wp.func
def column(R: Any, k: int):
    """Return a column of a 3x3 matrix."""
    return wp.vector(R[0, k], R[1, k], R[2, k])


@wp.func
def side(x: Any):
    """Return the sign -1 or 1 of a number; zero counts as positive."""
    result = int(1)
    if x < x - x:
        result = -1
    return result


@wp.func
def shape_position(scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), shape: int, w: int):
    """Return p_WS of a shape."""
    p = load3(shapes, shape * SHAPE_ROWS + SHAPE_POSITION, w)
    body = scene.shape_body[shape]
    if body >= 0:
        p = load3(poses, body * POSE_ROWS + 9, w) + load33(poses, body * POSE_ROWS, w) * p
    return p


@wp.func
def shape_pose(scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), shape: int, w: int):
    """Return R_WS, p_WS of a shape."""
    R = load33(shapes, shape * SHAPE_ROWS + SHAPE_ROTATION, w)
    body = scene.shape_body[shape]
    if body >= 0:
        R = load33(poses, body * POSE_ROWS, w) * R
    return R, shape_position(scene, poses, shapes, shape, w)


@wp.func
def clamped_side(x: Any, h: Any):
    """Return the sign of x where it is beyond ±h, 0 where it is not."""
    result = int(0)
    if h > h - h and wp.abs(x) > h:
        result = side(x)
    return result


@wp.func
def nearest_feature(x: Any, h: Any):
    """Return the feature of a core with half extents h that is nearest to a point x of its frame."""
    zero = x.dtype(0.0)
    sx = clamped_side(x[0], h[0])
    sy = clamped_side(x[1], h[1])
    sz = clamped_side(x[2], h[2])
    # an axis is free if the point lies within the core's extent along it
    free_x = int(0)
    free_y = int(0)
    free_z = int(0)
    if sx == 0 and h[0] > zero:
        free_x = 1
    if sy == 0 and h[1] > zero:
        free_y = 1
    if sz == 0 and h[2] > zero:
        free_z = 1
    free = free_x + free_y + free_z
    kind = free
    axis = int(0)
    if free == 1:
        axis = free_y + 2 * free_z
    elif free == 2:
        axis = 3 - free_y - 2 * free_z
    elif free == 3:
        # inside: the nearest face
        kind = FACE
        depth = h - wp.vector(wp.abs(x[0]), wp.abs(x[1]), wp.abs(x[2]))
        if depth[1] < depth[0] and depth[1] <= depth[2]:
            axis = 1
        elif depth[2] < depth[0]:
            axis = 2
    code = encode(kind, axis, sx, sy, sz)
    if free == 3:
        code = encode_on_axis(FACE, axis, side(x[axis]))
    return code
