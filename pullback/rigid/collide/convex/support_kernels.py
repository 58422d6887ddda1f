"""Placed hulls: reading their tables, and the vertices furthest along a direction (docs/derivations/convex.md).

Of two hulls A and B, A's origin stands at r = p_A - p_B and B's at 0, in world axes, so that numbers stay small
wherever the shapes are.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.tables import Hulls


@wp.struct
class PlacedHull32:
    """A hull of the tables, scaled by h, turned by R and moved by p; float32."""

    hull: int
    R: wp.mat33f
    h: wp.vec3f
    p: wp.vec3f


@wp.struct
class PlacedHull64:
    """A hull of the tables, scaled by h, turned by R and moved by p; float64."""

    hull: int
    R: wp.mat33d
    h: wp.vec3d
    p: wp.vec3d


@wp.func
def place_hull(hull: int, R: wp.mat33f, h: wp.vec3f, p: wp.vec3f):
    """Return a placed hull of the type of its numbers."""
    X = PlacedHull32()
    X.hull = hull
    X.R = R
    X.h = h
    X.p = p
    return X


@wp.func
def place_hull(hull: int, R: wp.mat33d, h: wp.vec3d, p: wp.vec3d):  # noqa: F811
    """Return a placed hull of the type of its numbers."""
    X = PlacedHull64()
    X.hull = hull
    X.R = R
    X.h = h
    X.p = p
    return X


@wp.func
def corner(hulls: Hulls, i: int, like: wp.vec3f):
    """Return vertex i, unscaled, in the frame of its hull."""
    return hulls.vertex[i]


@wp.func
def corner(hulls: Hulls, i: int, like: wp.vec3d):  # noqa: F811
    """Return vertex i, unscaled, in the frame of its hull."""
    return hulls.vertex_double[i]


@wp.func
def edge_direction(hulls: Hulls, i: int, like: wp.vec3f):
    """Return the unit vector along edge i."""
    return hulls.edge_direction[i]


@wp.func
def edge_direction(hulls: Hulls, i: int, like: wp.vec3d):  # noqa: F811
    """Return the unit vector along edge i."""
    return hulls.edge_direction_double[i]


@wp.func
def face_normal(hulls: Hulls, i: int, like: wp.vec3f):
    """Return the unit vector out of face i."""
    return hulls.face_normal[i]


@wp.func
def face_normal(hulls: Hulls, i: int, like: wp.vec3d):  # noqa: F811
    """Return the unit vector out of face i."""
    return hulls.face_normal_double[i]


@wp.func
def face_centre(hulls: Hulls, i: int, like: wp.vec3f):
    """Return the mean of the vertices of face i, unscaled."""
    return hulls.face_centre[i]


@wp.func
def face_centre(hulls: Hulls, i: int, like: wp.vec3d):  # noqa: F811
    """Return the mean of the vertices of face i, unscaled."""
    return hulls.face_centre_double[i]


@wp.func
def edge_middle(hulls: Hulls, i: int, like: Any):
    """Return the middle of edge i, unscaled."""
    ends = hulls.edge_vertices[i]
    return like.dtype(0.5) * (corner(hulls, ends[0], like) + corner(hulls, ends[1], like))


@wp.func
def rounding(like: wp.vec3f):
    """Return a few units of rounding of a vector's type."""
    return wp.float32(1.0e-6)


@wp.func
def rounding(like: wp.vec3d):  # noqa: F811
    """Return a few units of rounding of a vector's type."""
    return wp.float64(1.0e-14)


@wp.func
def furthest_vertex(hulls: Hulls, X: Any, d: Any, start: int):
    """Return the vertex of a hull furthest along d, climbing from neighbour to neighbour, eq. (1)."""
    slope = wp.cw_mul(X.h, d * X.R)
    best = int(start)
    height = wp.dot(slope, corner(hulls, start, d))
    climbing = int(1)
    while climbing == 1:
        climbing = int(0)
        at = int(best)
        for k in range(hulls.neighbour_start[at], hulls.neighbour_start[at + 1]):
            j = hulls.neighbour[k]
            level = wp.dot(slope, corner(hulls, j, d))
            if level > height:
                height = level
                best = j
                climbing = 1
    return best


@wp.func
def placed(hulls: Hulls, X: Any, i: int):
    """Return vertex i relative to the origin of its hull, in world axes."""
    return X.R * wp.cw_mul(X.h, corner(hulls, i, X.h))


@wp.func
def difference_support(hulls: Hulls, A: Any, B: Any, d: Any, start_a: int, start_b: int):
    """Return the point of A - B furthest along d, and the vertices of A and B it is made of, eq. (2)."""
    ia = int(start_a)
    ib = int(start_b)
    two = int(2)
    for side in range(two):
        X, ahead, i = A, d, ia
        if side == 1:
            X, ahead, i = B, -d, ib
        i = furthest_vertex(hulls, X, ahead, i)
        ia = wp.where(side == 0, i, ia)
        ib = wp.where(side == 1, i, ib)
    return A.p + placed(hulls, A, ia) - placed(hulls, B, ib), ia, ib
