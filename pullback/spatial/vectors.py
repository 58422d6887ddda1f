"""Spatial vectors and rigid transforms in kernels (Featherstone 2008, chapter 2).

Notation: a spatial vector is a 6-vector, angular part first: a motion (w, v) or a force (n, f). The pose of a child
frame B in its parent P is R = R_PB, p = p_PB. A rigid inertia is (m, h, I): mass, first moment m c, and rotational
inertia about the frame's origin.
"""

from typing import Any

import warp as wp


@wp.func
def angular(x: Any):
    """Return the angular part of a spatial vector."""
    return wp.vector(x[0], x[1], x[2])


@wp.func
def linear(x: Any):
    """Return the linear part of a spatial vector."""
    return wp.vector(x[3], x[4], x[5])


@wp.func
def spatial(a: Any, b: Any):
    """Build a spatial vector from its angular and linear parts."""
    return wp.vector(a[0], a[1], a[2], b[0], b[1], b[2])


@wp.func
def cross_motion(x: Any, y: Any):
    """Return x × y, the rate of the motion y carried along by the motion x."""
    w = angular(x)
    return spatial(wp.cross(w, angular(y)), wp.cross(w, linear(y)) + wp.cross(linear(x), angular(y)))


@wp.func
def cross_force(x: Any, f: Any):
    """Return x ×* f, the rate of the force f carried along by the motion x; (x × y)·f = -y·(x ×* f)."""
    w = angular(x)
    return spatial(wp.cross(w, angular(f)) + wp.cross(linear(x), linear(f)), wp.cross(w, linear(f)))


@wp.func
def motion_to_child(R: Any, p: Any, x: Any):
    """Express in the child frame the motion x of the parent frame."""
    w = angular(x)
    return spatial(w * R, (linear(x) + wp.cross(w, p)) * R)


@wp.func
def force_to_parent(R: Any, p: Any, f: Any):
    """Express in the parent frame the force f of the child frame: the transpose of `motion_to_child`."""
    force = R * linear(f)
    return spatial(R * angular(f) + wp.cross(p, force), force)


@wp.func
def inertia_times(m: Any, h: Any, rotational: Any, x: Any):
    """Return the momentum I x of a rigid inertia, its rotational part given as xx, xy, xz, yy, yz, zz."""
    w = angular(x)
    v = linear(x)
    return spatial(symmetric_times(rotational, w) + wp.cross(h, v), m * v - wp.cross(h, w))


@wp.func
def inertia_vjp(x: Any, y: Any):
    """Return the derivatives of x·(I y) by mass (1), first moment (3) and rotational inertia xx, xy, xz, yy, yz, zz."""
    a = angular(x)
    b = angular(y)
    first = wp.cross(linear(y), a) + wp.cross(linear(x), b)
    return wp.vector(
        wp.dot(linear(x), linear(y)),
        first[0],
        first[1],
        first[2],
        a[0] * b[0],
        a[0] * b[1] + a[1] * b[0],
        a[0] * b[2] + a[2] * b[0],
        a[1] * b[1],
        a[1] * b[2] + a[2] * b[1],
        a[2] * b[2],
    )


@wp.func
def rotation_about_z(R: Any, c: Any, s: Any):
    """Return R Rz, the rotation R followed by one about its own z axis with cosine c and sine s."""
    return wp.matrix_from_rows(
        wp.vector(c * R[0, 0] + s * R[0, 1], c * R[0, 1] - s * R[0, 0], R[0, 2]),
        wp.vector(c * R[1, 0] + s * R[1, 1], c * R[1, 1] - s * R[1, 0], R[1, 2]),
        wp.vector(c * R[2, 0] + s * R[2, 1], c * R[2, 1] - s * R[2, 0], R[2, 2]),
    )


@wp.func
def rotation_from_quaternion(quat: Any):
    """Return the rotation matrix of a quaternion xyzw of any length; zero gives NaN, where `wp.normalize` would not."""
    u = quat / wp.length(quat)
    x = u[0]
    y = u[1]
    z = u[2]
    s = u[3]
    one = u.dtype(1.0)
    two = u.dtype(2.0)
    return wp.matrix_from_rows(
        wp.vector(one - two * (y * y + z * z), two * (x * y - s * z), two * (x * z + s * y)),
        wp.vector(two * (x * y + s * z), one - two * (x * x + z * z), two * (y * z - s * x)),
        wp.vector(two * (x * z - s * y), two * (y * z + s * x), one - two * (x * x + y * y)),
    )


@wp.func
def rotation_from_quaternion_vjp(quat: Any, adj_rotation: Any):
    """Return adj_quat for `adj_rotation`, the cotangent of a small rotation in the rotated frame."""
    u = quat / wp.length(quat)
    axis = wp.vector(u[0], u[1], u[2])
    xyz = u[3] * adj_rotation + wp.cross(axis, adj_rotation)
    scale = u.dtype(2.0) / wp.length(quat)
    return scale * wp.vector(xyz[0], xyz[1], xyz[2], -wp.dot(axis, adj_rotation))


@wp.func
def quaternion_from_rotation(R: Any):
    """Return the unit quaternion xyzw, w >= 0, of a rotation matrix (Shepperd's choice of the largest component)."""
    one = R.dtype(1.0)
    trace = R[0, 0] + R[1, 1] + R[2, 2]
    q = wp.vector(R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1], one + trace)
    if trace <= R.dtype(0.0):
        if R[0, 0] >= R[1, 1] and R[0, 0] >= R[2, 2]:
            q = wp.vector(one + R[0, 0] - R[1, 1] - R[2, 2], R[0, 1] + R[1, 0], R[0, 2] + R[2, 0], R[2, 1] - R[1, 2])
        elif R[1, 1] >= R[2, 2]:
            q = wp.vector(R[0, 1] + R[1, 0], one - R[0, 0] + R[1, 1] - R[2, 2], R[1, 2] + R[2, 1], R[0, 2] - R[2, 0])
        else:
            q = wp.vector(R[0, 2] + R[2, 0], R[1, 2] + R[2, 1], one - R[0, 0] - R[1, 1] + R[2, 2], R[1, 0] - R[0, 1])
    q = wp.normalize(q)
    if q[3] < R.dtype(0.0):
        q = -q
    return q


@wp.func
def quaternion_from_rotation_vjp(q: Any, adj_q: Any):
    """Return the cotangent of a small rotation in the rotated frame, given the quaternion and its cotangent."""
    axis = wp.vector(q[0], q[1], q[2])
    adj_axis = wp.vector(adj_q[0], adj_q[1], adj_q[2])
    return q.dtype(0.5) * (q[3] * adj_axis - adj_q[3] * axis - wp.cross(axis, adj_axis))


@wp.func
def skew(x: Any):
    """Return the matrix of the cross product with x."""
    zero = x.dtype(0.0)
    return wp.matrix_from_rows(wp.vector(zero, -x[2], x[1]), wp.vector(x[2], zero, -x[0]), wp.vector(-x[1], x[0], zero))


@wp.func
def symmetric_times(s: Any, x: Any):
    """Return the product of a symmetric 3x3 matrix, given as xx, xy, xz, yy, yz, zz, and a vector."""
    return wp.vector(
        s[0] * x[0] + s[1] * x[1] + s[2] * x[2],
        s[1] * x[0] + s[3] * x[1] + s[4] * x[2],
        s[2] * x[0] + s[4] * x[1] + s[5] * x[2],
    )


@wp.func
def symmetric_outer(x: Any, y: Any):
    """Return xx, xy, xz, yy, yz, zz of the outer product of two parallel vectors."""
    return wp.vector(x[0] * y[0], x[0] * y[1], x[0] * y[2], x[1] * y[1], x[1] * y[2], x[2] * y[2])


@wp.func
def rotate_symmetric(R: Any, s: Any):
    """Return R S R^T, both symmetric matrices as xx, xy, xz, yy, yz, zz."""
    a = wp.vector(R[0, 0], R[0, 1], R[0, 2])
    b = wp.vector(R[1, 0], R[1, 1], R[1, 2])
    c = wp.vector(R[2, 0], R[2, 1], R[2, 2])
    sa = symmetric_times(s, a)
    sb = symmetric_times(s, b)
    sc = symmetric_times(s, c)
    return wp.vector(wp.dot(a, sa), wp.dot(b, sa), wp.dot(c, sa), wp.dot(b, sb), wp.dot(c, sb), wp.dot(c, sc))


@wp.func
def skew_times_symmetric(p: Any, s: Any):
    """Return the matrix [p]x S: its columns are p × the columns of S."""
    return wp.matrix_from_cols(
        wp.cross(p, wp.vector(s[0], s[1], s[2])),
        wp.cross(p, wp.vector(s[1], s[3], s[4])),
        wp.cross(p, wp.vector(s[2], s[4], s[5])),
    )


@wp.func
def times_skew_symmetrized(m: Any, p: Any):
    """Return N + N^T for N = M [p]x, as xx, xy, xz, yy, yz, zz; the rows of N are the rows of M × p."""
    a = wp.cross(wp.vector(m[0, 0], m[0, 1], m[0, 2]), p)
    b = wp.cross(wp.vector(m[1, 0], m[1, 1], m[1, 2]), p)
    c = wp.cross(wp.vector(m[2, 0], m[2, 1], m[2, 2]), p)
    return wp.vector(a[0] + a[0], a[1] + b[0], a[2] + c[0], b[1] + b[1], b[2] + c[1], c[2] + c[2])


@wp.func
def unit_or_up(x: Any):
    """Return x / |x|, or the z axis where x is zero and any direction is as good."""
    length = wp.length(x)
    zero = x.dtype(0.0)
    result = wp.vector(zero, zero, x.dtype(1.0))
    if length > zero:
        result = x / length
    return result
