"""The contact normal of a smooth shape A and a partner B, by Newton's method (docs/derivations/smooth.md).

The normal n, from B to A, maximises the separation n·v(n), v = p_A + s_A(-n) - c - s_B(n): all directions are free
against a vertex, a rim or another smooth shape, those across an edge d against an edge, none against a face. Positions
are relative to B's origin, in world axes.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.contact_kernels import plain_kind
from pullback.rigid.collide.convex.features_kernels import hull_feature, hull_kind
from pullback.rigid.collide.convex.support_kernels import rounding
from pullback.rigid.collide.convex.tables import HULL_CODES, RIM, Hulls
from pullback.rigid.collide.features_kernels import EDGE, FACE, VERTEX
from pullback.rigid.collide.smooth.support_kernels import curvature, support

WHOLE = wp.constant(0)  # the code of a smooth shape, which is its own only feature
NEWTON_LIMIT = wp.constant(40)
LONGEST_STEP = wp.constant(0.5)  # of n [rad]
NEAREST_TO_AXIS = wp.constant(0.2)  # of a tilt from a rim's axis: what a step leaves of it at least
SHORTER = wp.constant(0.3)  # factor of a step that did not raise the separation
LEAST_CURVED = wp.constant(1.0e-3)  # of curvature and separation: the least eigenvalue of K in a step


@wp.func
def partner_feature(hulls: Hulls, B: Any, code: int):
    """Return centre and direction of a feature of B, and how many directions it leaves free as VERTEX, EDGE, FACE."""
    c = B.p - B.p
    d = B.p - B.p
    freedom = int(VERTEX)
    if code >= HULL_CODES:
        s, e = hull_feature(hulls, code, B.h)
        c = B.R * wp.cw_mul(s, B.h)
        d = B.R * e
        freedom = plain_kind(hull_kind(code))
    return c, d, freedom


@wp.func
def across_axis(n: Any, d: Any):
    """Return the part of n at right angles to the unit vector d; twice, because near d rounding leaves some of d."""
    across = n - wp.dot(d, n) * d
    return across - wp.dot(d, across) * d


@wp.func
def rim_point(d: Any, radius: Any, n: Any):
    """Return the point of a circle around the axis d that is furthest along n, relative to its centre; 0 if all are."""
    across = across_axis(n, d)
    length = wp.length(across)
    if length > d.dtype(0.0):
        across = across * (radius / length)
    return across


@wp.func
def rim_curvature(d: Any, radius: Any, n: Any):
    """Return the derivative of a circle's support point by n, eq. (9)."""
    across = across_axis(n, d)
    t = wp.cross(d, across)
    J = wp.outer(t, t)
    square = wp.dot(across, across)
    if square > d.dtype(0.0):
        J = J * (radius / (square * wp.sqrt(square)))
    return J


@wp.func
def partner_support(kind: int, B: Any, code: int, d: Any, n: Any):
    """Return the support point of B's feature along n, relative to the feature's centre."""
    s = n - n
    if code == WHOLE:
        s = support(kind, B.R, B.h, n)
    elif hull_kind(code) == RIM:
        s = rim_point(d, B.h[0], n)
    return s


@wp.func
def partner_curvature(kind: int, B: Any, code: int, d: Any, n: Any):
    """Return the derivative of `partner_support` by n."""
    J = wp.diag(n - n)
    if code == WHOLE:
        J = curvature(kind, B.R, B.h, n)
    elif hull_kind(code) == RIM:
        J = rim_curvature(d, B.h[0], n)
    return J


@wp.func
def tangent(n: Any, d: Any, freedom: int):
    """Return the first of the free directions across n: along d x n over an edge, any over a vertex."""
    one = n.dtype(1.0)
    zero = n.dtype(0.0)
    t = wp.cross(d, n)
    if freedom == VERTEX:
        axis = wp.vector(one, zero, zero)
        if wp.abs(n[0]) > n.dtype(0.6):
            axis = wp.vector(zero, one, zero)
        t = wp.cross(n, axis)
    return wp.normalize(t)


@wp.func
def newton_step(freedom: int, n: Any, d: Any, v: Any, J: Any):
    """Return the step of n that solves eq. (8), or climbs where the separation is not concave."""
    zero = n.dtype(0.0)
    half = n.dtype(0.5)
    g = wp.dot(n, v)
    t = tangent(n, d, freedom)
    u = wp.cross(n, t)
    # K = g + Tᵀ J T, made positive
    tt = wp.dot(t, J * t)
    uu = wp.dot(u, J * u)
    tu = wp.dot(t, J * u)
    right_t = wp.dot(t, v)
    right_u = wp.dot(u, v)
    if freedom == EDGE:
        uu = tt
        tu = zero
        right_u = zero
    least = half * (tt + uu) - wp.sqrt(half * half * (tt - uu) * (tt - uu) + tu * tu)
    shift = wp.max(g, n.dtype(LEAST_CURVED) * (least + wp.abs(g)) - least)
    tt += shift
    uu += shift
    determinant = tt * uu - tu * tu
    step = v - v
    if determinant > zero:
        step = ((uu * right_t - tu * right_u) * t + (tt * right_u - tu * right_t) * u) / determinant
    length = wp.length(step)
    if length > n.dtype(LONGEST_STEP):
        step = step * (n.dtype(LONGEST_STEP) / length)
    return step


@wp.func
def moved_direction(code: int, n: Any, d: Any, step: Any):
    """Return n after a step; against a rim along its tilt from the axis d and around d, and never across d.

    The separation from a rim has a kink at n = d, around which azimuths are close to each other: eq. (9).
    """
    result = wp.normalize(n + step)
    across = across_axis(n, d)
    length = wp.length(across)
    if code != WHOLE and hull_kind(code) == RIM and length > n.dtype(0.0):
        e = across / length
        t = wp.cross(d, e)
        height = wp.dot(d, n)
        tilt = wp.atan2(length, height)
        nearest = wp.max(n.dtype(NEAREST_TO_AXIS) * tilt, n.dtype(1000.0) * rounding(n))
        tilt = wp.max(tilt + wp.dot(step, height * e - length * d), nearest)
        around = wp.clamp(wp.dot(step, t) / length, -n.dtype(LONGEST_STEP), n.dtype(LONGEST_STEP))
        result = wp.cos(tilt) * d + wp.sin(tilt) * (wp.cos(around) * e + wp.sin(around) * t)
    return result


@wp.func
def best_direction(hulls: Hulls, kind_a: int, A: Any, kind_b: int, B: Any, code: int, start: Any):
    """Return the normal that maximises the separation of A from a feature of B, near `start`, and the vector v."""
    c, d, freedom = partner_feature(hulls, B, code)
    n = start
    if freedom == FACE:
        n = d
    elif freedom == EDGE:
        n = wp.normalize(start - wp.dot(d, start) * d)
    v = A.p + support(kind_a, A.R, A.h, -n) - c - partner_support(kind_b, B, code, d, n)
    tiny = n.dtype(4.0) * rounding(n)
    step = n - n
    share = n.dtype(1.0)
    searching = int(1)
    if freedom == FACE:
        searching = 0
    else:
        J = curvature(kind_a, A.R, A.h, -n) + partner_curvature(kind_b, B, code, d, n)
        step = newton_step(freedom, n, d, v, J)
    limit = int(NEWTON_LIMIT)
    for turn in range(limit):
        if searching == 1:
            ahead = moved_direction(code, n, d, share * step)
            v_ahead = A.p + support(kind_a, A.R, A.h, -ahead) - c - partner_support(kind_b, B, code, d, ahead)
            rise = wp.dot(ahead, v_ahead) - wp.dot(n, v)
            if share * wp.length(step) < tiny:
                searching = 0
            if rise >= -tiny * (wp.length(v) + wp.length(A.p)):
                n = ahead
                v = v_ahead
                share = n.dtype(1.0)
                J = curvature(kind_a, A.R, A.h, -n) + partner_curvature(kind_b, B, code, d, n)
                step = newton_step(freedom, n, d, v, J)
            else:
                share = share * n.dtype(SHORTER)
    return n, v
