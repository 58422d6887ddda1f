"""Reading the tables of hulls, and the points of a hull furthest along a direction (docs/derivations/convex.md).

Two hulls A and B are placed by rotations Ra, Rb and scales ha, hb; A's origin stands at r, B's at 0, so that numbers
stay small wherever in the world the shapes are.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.tables import Hulls


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
def furthest_vertex(hulls: Hulls, R: Any, h: Any, d: Any, start: int):
    """Return the vertex of a hull furthest along d, climbing from neighbour to neighbour, eq. (1)."""
    slope = wp.cw_mul(h, d * R)
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
def placed(hulls: Hulls, R: Any, h: Any, i: int):
    """Return vertex i as seen from the origin of its hull, in world axes."""
    return R * wp.cw_mul(h, corner(hulls, i, h))


@wp.func
def difference_support(
    hulls: Hulls, Ra: Any, ha: Any, Rb: Any, hb: Any, r: Any, d: Any, start_a: int, start_b: int
):  # fmt: skip
    """Return the point of A - B furthest along d, and the vertices of A and B it is made of, eq. (2)."""
    ia = int(start_a)
    ib = int(start_b)
    two = int(2)
    for side in range(two):
        R, h, ahead, i = Ra, ha, d, ia
        if side == 1:
            R, h, ahead, i = Rb, hb, -d, ib
        i = furthest_vertex(hulls, R, h, ahead, i)
        ia = wp.where(side == 0, i, ia)
        ib = wp.where(side == 1, i, ib)
    return r + placed(hulls, Ra, ha, ia) - placed(hulls, Rb, hb, ib), ia, ib
