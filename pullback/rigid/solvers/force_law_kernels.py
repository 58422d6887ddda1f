"""Compliant contact: a spring with damping, and smoothed friction, as impulses (docs/derivations/compliant_contact.md).

    u' = u + response lam_n,    gap' = gap + ahead u'
    lam_n = dt k depth(gap')^p brake(1 - d u')                                                          (1)
    lam_t = -mu lam_n u_t' / sqrt(|u_t'|^2 + speed^2),    u_t' = u_t + response_t lam_t                  (2)

u is the velocity of the contact, normal first. With ahead = 0 and no response the forces are those before the step:
explicit. With ahead = dt, u without contact, and the contact's own inverse mass as response, they are those after it.
"""

from typing import Any

import warp as wp

from pullback.rigid.step.constraint_kernels import Compliance

NEWTON_STEPS = wp.constant(60)


@wp.func
def ramp(x: Any, width: Any):
    """Return max(x, 0) with a parabola between -width and width, and its slope: eq. (3)."""
    value = type(x)(0.0)
    slope = type(x)(0.0)
    if x >= width:
        value = x
        slope = type(x)(1.0)
    elif x > -width:
        slope = type(x)(0.5) * (x + width) / width
        value = slope * type(x)(0.5) * (x + width)
    return value, slope


@wp.func
def normal_impulse(u: Any, gap: Any, stiffness: Any, damping: Any, c: Compliance):
    """Return the impulse at a velocity u and a gap, and its derivatives by gap, u and damping: eq. (1)."""
    depth, depth_slope = ramp(-gap, type(u)(c.onset))
    brake, brake_slope = ramp(type(u)(1.0) - damping * u, type(u)(0.5))
    value = type(u)(0.0)
    by_gap = type(u)(0.0)
    by_u = type(u)(0.0)
    by_damping = type(u)(0.0)
    if depth > type(u)(0.0):
        power = type(u)(c.power)
        spring = type(u)(c.dt) * stiffness * depth
        if c.power != wp.float64(1.0):
            spring = spring * wp.pow(depth, power - type(u)(1.0))
        value = spring * brake
        by_gap = -power * spring / depth * depth_slope * brake
        by_u = -spring * brake_slope * damping
        by_damping = -spring * brake_slope * u
    return value, by_gap, by_u, by_damping


@wp.func
def solve_normal(start: Any, gap: Any, u: Any, stiffness: Any, damping: Any, response: Any, c: Compliance):
    """Return the normal impulse: Newton's method, which after its first step never overshoots, eq. (4)."""
    lam = start
    ahead = type(u)(c.ahead)
    left = int(NEWTON_STEPS)
    while left > 0:
        after = u + response * lam
        value, by_gap, by_u, by_damping = normal_impulse(after, gap + ahead * after, stiffness, damping, c)
        change = (value - lam) / (type(u)(1.0) - response * (ahead * by_gap + by_u))
        lam = wp.max(lam + change, type(u)(0.0))
        left -= 1
        if (left < NEWTON_STEPS - 1 and not (change > type(u)(0.0))) or lam + type(u)(0.25) * change == lam:
            left = 0
    return lam


@wp.func
def solve_sliding(start: Any, slip: Any, limit: Any, speed: Any, response: Any):
    """Return the speed of sliding after friction, and its length with the smoothing: eq. (5)."""
    v = start
    w = speed
    left = int(NEWTON_STEPS)
    while left > 0:
        w = wp.sqrt(v * v + speed * speed)
        gain = response * limit / w
        change = (slip - v * (type(slip)(1.0) + gain)) / (type(slip)(1.0) + gain * (speed / w) * (speed / w))
        v = wp.max(v + change, type(slip)(0.0))
        left -= 1
        if (left < NEWTON_STEPS - 1 and not (change > type(slip)(0.0))) or v + type(slip)(0.25) * change == v:
            left = 0
    return v, wp.sqrt(v * v + speed * speed)


@wp.func
def compliant_impulse(
    gap: Any, u: Any, stiffness: Any, damping: Any, mu: Any, speed: Any, response: Any, response_t: Any, c: Compliance
):  # fmt: skip
    """Return the impulse of a contact, normal and two tangents: eqs. (1) and (2)."""
    zero = type(gap)(0.0)
    normal = solve_normal(zero, gap, u[0], stiffness, damping, response, c)
    limit = mu * normal
    v, w = solve_sliding(zero, wp.sqrt(u[1] * u[1] + u[2] * u[2]), limit, speed, response_t)
    drag = limit / (w + response_t * limit)
    return wp.vector(normal, -drag * u[1], -drag * u[2])


@wp.func
def compliant_vjp(
    gap: Any, u: Any, stiffness: Any, damping: Any, mu: Any, speed: Any, response: Any, response_t: Any, c: Compliance,
    lam: Any, adj_lam: Any,
):  # fmt: skip
    """Return the cotangents of gap, u and (stiffness, damping, mu, speed, response, response_t) for that of lam."""
    zero = type(gap)(0.0)
    one = type(gap)(1.0)
    normal = lam[0]
    limit = mu * normal
    slip = wp.sqrt(u[1] * u[1] + u[2] * u[2])
    v, w = solve_sliding(zero, slip, limit, speed, response_t)
    # friction, eqs. (7) and (8)
    total = w + response_t * limit
    drag = limit / total
    adj_drag = -(adj_lam[1] * u[1] + adj_lam[2] * u[2])
    adj_total = -adj_drag * drag / total
    adj_v = adj_total * v / w / (one + response_t * limit * (speed / w) * (speed / w) / w)
    adj_gain = adj_total - adj_v * v / w
    adj_limit = adj_drag / total + response_t * adj_gain
    adj_speed = adj_total * speed / w + adj_v * response_t * limit * (v / w) * (speed / w) / w
    along = zero
    if slip > zero:
        along = adj_v / slip
    # normal, eq. (6)
    ahead = type(gap)(c.ahead)
    after = u[0] + response * normal
    value, by_gap, by_u, by_damping = normal_impulse(after, gap + ahead * after, stiffness, damping, c)
    by_after = ahead * by_gap + by_u
    adj_value = (adj_lam[0] + mu * adj_limit) / (one - response * by_after)
    adj_after = adj_value * by_after
    adj_u = wp.vector(adj_after, along * u[1] - drag * adj_lam[1], along * u[2] - drag * adj_lam[2])
    adj_parameters = wp.vector(
        adj_value * normal / stiffness,
        adj_value * by_damping,
        adj_limit * normal,
        adj_speed,
        adj_after * normal,
        limit * adj_gain,
    )
    return adj_value * by_gap, adj_u, adj_parameters
