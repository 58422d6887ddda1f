"""Support points of smooth convex shapes, and their derivatives (docs/derivations/smooth.md).

For each shape three functions of its half extents h and a unit vector m of its own frame: the point furthest along m,
eq. (1); its derivative by m, which is symmetric and maps m to 0, eq. (2); the vjp of the point by h, eq. (3).
"""

from typing import Any

import warp as wp

SMOOTH = wp.constant(6)  # kinds of shapes from here on are smooth; those before are in compile/scene.py


@wp.func
def is_smooth(kind: int):
    """Return whether shapes of this kind have a support function."""
    return kind >= SMOOTH


@wp.func
def local_support(kind: int, h: Any, m: Any):
    """Return the point of a shape furthest along m, in its own frame, eq. (1)."""
    s = h - h
    return s


@wp.func
def local_curvature(kind: int, h: Any, m: Any):
    """Return the derivative of a shape's support point by m, in its own frame, eq. (2)."""
    J = wp.diag(h - h)
    return J


@wp.func
def size_vjp(kind: int, h: Any, m: Any, adj_s: Any):
    """Return the cotangent of a shape's half extents for that of its support point, eq. (3)."""
    adj_h = h - h
    return adj_h


@wp.func
def support(kind: int, R: Any, h: Any, m: Any):
    """Return the point of a shape furthest along m relative to its origin, in world axes."""
    return R * local_support(kind, h, m * R)


@wp.func
def curvature(kind: int, R: Any, h: Any, m: Any):
    """Return the derivative of a shape's support point by m, in world axes."""
    return R * local_curvature(kind, h, m * R) * wp.transpose(R)
