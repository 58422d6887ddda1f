"""The point of a cylinder's rim that touches something, and its adjoint (docs/derivations/convex.md, "Cylinders").

A rim is the circle c + R u, u a unit vector at right angles to d. What it touches is a face (its normal pd), a vertex
(pc), or a line (pc + t pd); against the first two the rim acts as a vertex, against a line as the tangent d x u.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.features_kernels import FACE, VERTEX
from pullback.rigid.collide.geometry_kernels import unit_vjp

RIM_STEPS = wp.constant(10)
LONGEST_STEP = wp.constant(0.3)  # of the angle along a rim


@wp.func
def across(x: Any, d: Any):
    """Return the part of x at right angles to the unit vector d."""
    return x - wp.dot(d, x) * d


@wp.func
def rim_slope(c: Any, d: Any, radius: Any, u: Any, pc: Any, pd: Any):
    """Return half the derivative of the squared distance to a line by the angle, and its derivative, eq. (16)."""
    t = wp.cross(d, u)
    y = across(c + radius * u - pc, pd)
    return wp.dot(t, y), radius * wp.dot(t, across(t, pd)) - wp.dot(u, y)


@wp.func
def rim_pull(partner: int, c: Any, pc: Any, pd: Any):
    """Return the vector whose part across the axis points to where a rim touches a face or a vertex, eq. (15)."""
    pull = pc - c
    if partner == FACE:
        pull = -pd
    return pull


@wp.func
def rim_direction(partner: int, c: Any, d: Any, radius: Any, start: Any, pc: Any, pd: Any):
    """Return u of the point where a rim touches a face, a vertex or a line; the last is sought from `start` on."""
    u = start
    if partner == FACE or partner == VERTEX:
        e = across(rim_pull(partner, c, pc, pd), d)
        length = wp.length(e)
        if length > d.dtype(0.0):
            u = e / length
    else:
        steps = int(RIM_STEPS)
        longest = d.dtype(LONGEST_STEP)
        for k in range(steps):
            slope, growth = rim_slope(c, d, radius, u, pc, pd)
            step = longest
            if wp.abs(slope) < longest * wp.abs(growth):
                step = slope / growth
            elif slope < d.dtype(0.0):
                step = -longest
            u = wp.normalize(wp.cos(step) * u - wp.sin(step) * wp.cross(d, u))
    return u


@wp.func
def rim_vjp(partner: int, c: Any, d: Any, radius: Any, u: Any, pc: Any, pd: Any, adj_x: Any, adj_t: Any):
    """Return the cotangents of c, d, radius, pc, pd for those of the point and the tangent, eqs. (17) and (18)."""
    adj_c = adj_x
    adj_radius = wp.dot(u, adj_x)
    adj_d = c - c
    adj_pc = c - c
    adj_pd = c - c
    adj_u = radius * adj_x
    if partner == FACE or partner == VERTEX:
        pull = rim_pull(partner, c, pc, pd)
        adj_e = unit_vjp(across(pull, d), u, adj_u)
        adj_pull = across(adj_e, d)
        adj_d = -wp.dot(pull, d) * adj_e - wp.dot(d, adj_e) * pull
        if partner == FACE:
            adj_pd = -adj_pull
        else:
            adj_pc = adj_pull
            adj_c -= adj_pull
    else:
        adj_u += wp.cross(adj_t, d)
        slope, growth = rim_slope(c, d, radius, u, pc, pd)
        t = wp.cross(d, u)
        r = c + radius * u - pc
        g = across(t, pd)
        scale = -wp.dot(adj_u, t) / growth
        adj_c += scale * g
        adj_pc -= scale * g
        adj_radius += scale * wp.dot(g, u)
        adj_d = wp.cross(u, adj_t + scale * across(r, pd)) - (wp.dot(adj_u, d) + scale * radius * wp.dot(g, d)) * u
        adj_pd = -scale * (wp.dot(pd, t) * r + wp.dot(pd, r) * t)
    return adj_c, adj_d, adj_radius, adj_pc, adj_pd
