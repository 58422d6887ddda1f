"""Support points of smooth convex shapes, and their derivatives (docs/derivations/smooth.md).

For each shape three functions of its half extents h and a unit vector m of its own frame: the point furthest along m,
eq. (1); its derivative by m, which is symmetric and maps m to 0, eq. (2); the vjp of the point by h, eq. (3).
"""

from typing import Any

import warp as wp

SMOOTH = wp.constant(6)  # kinds of shapes from here on are smooth; those before are in compile/scene.py
ELLIPSOID = wp.constant(6)


@wp.func
def ellipsoid_support(h: Any, m: Any):
    """Return the point of the ellipsoid with semi-axes h furthest along m, eq. (4)."""
    scaled = wp.cw_mul(h, m)
    return wp.cw_mul(h, scaled) / wp.length(scaled)


@wp.func
def ellipsoid_curvature(h: Any, m: Any):
    """Return the derivative of an ellipsoid's support point by m, eq. (5)."""
    s = ellipsoid_support(h, m)
    return (wp.diag(wp.cw_mul(h, h)) - wp.outer(s, s)) / wp.length(wp.cw_mul(h, m))


@wp.func
def ellipsoid_size_vjp(h: Any, m: Any, adj_s: Any):
    """Return the cotangent of an ellipsoid's semi-axes for that of its support point, eq. (6)."""
    scaled = wp.cw_mul(h, m)
    length = wp.length(scaled)
    s = wp.cw_mul(h, scaled) / length
    along = wp.dot(s, adj_s) / length
    return (h.dtype(2.0) * wp.cw_mul(scaled, adj_s) - along * wp.cw_mul(scaled, m)) / length


# -- of any smooth shape ---------------------------------------------------------------------------------------------


@wp.func
def is_smooth(kind: int):
    """Return whether shapes of this kind have a support function."""
    return kind >= SMOOTH


@wp.func
def local_support(kind: int, h: Any, m: Any):
    """Return the point of a shape furthest along m, in its own frame, eq. (1)."""
    s = h - h
    if kind == ELLIPSOID:
        s = ellipsoid_support(h, m)
    return s


@wp.func
def local_curvature(kind: int, h: Any, m: Any):
    """Return the derivative of a shape's support point by m, in its own frame, eq. (2)."""
    J = wp.diag(h - h)
    if kind == ELLIPSOID:
        J = ellipsoid_curvature(h, m)
    return J


@wp.func
def size_vjp(kind: int, h: Any, m: Any, adj_s: Any):
    """Return the cotangent of a shape's half extents for that of its support point, eq. (3)."""
    adj_h = h - h
    if kind == ELLIPSOID:
        adj_h = ellipsoid_size_vjp(h, m, adj_s)
    return adj_h


@wp.func
def support(kind: int, R: Any, h: Any, m: Any):
    """Return the point of a shape furthest along m relative to its origin, in world axes."""
    return R * local_support(kind, h, m * R)


@wp.func
def curvature(kind: int, R: Any, h: Any, m: Any):
    """Return the derivative of a shape's support point by m, in world axes."""
    return R * local_curvature(kind, h, m * R) * wp.transpose(R)
