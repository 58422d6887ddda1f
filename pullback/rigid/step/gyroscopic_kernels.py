"""Rotation of bodies that turn freely, without gain of energy, and its adjoint (docs/derivations/gyroscopic.md).

A lone body is one that hangs on the world by a free or a ball joint, with nothing on it. Its turning w -> w' under no
torque is the implicit midpoint rule, which keeps energy and the length of the angular momentum,

    B (w' - w) + dt x × I x = 0,    x = (w + w') / 2                                                   (1)

with I the inertia about the centre of mass, or about a ball joint's pivot, and B = I + armature. A centre of mass at r
in a free body's frame goes on along a straight line: the origin swings about it by Q = exp(dt w'),

    swing = w' × (Q - 1) r / dt                                                                        (4)

The equations of motion have w × I w in the place of x × I x, and w × (w × r) in that of the swing; what follows is the
difference, a force on the body.
"""

from typing import Any

import warp as wp

from pullback.rigid.step.constraint_kernels import resolution
from pullback.robot.joint_kernels import joint_force, joint_motion, joint_travels, joint_turns
from pullback.robot.topology import ARMATURE, DOF_ROWS, INERTIA_ROWS, Topology
from pullback.spatial.arrays import accumulate, load3, load6
from pullback.spatial.rotations import quaternion_from_vector, right_jacobian
from pullback.spatial.vectors import angular, inertia_vjp, linear, rotation_from_quaternion, skew, spatial

NEWTON_STEPS = wp.constant(8)
"""At 3 rad a step, random inertias need 6; beyond that some have no solution that Newton's method finds."""


@wp.func
def is_lone(topology: Topology, i: int):
    """Tell whether body i turns about all axes, on the world, and carries nothing."""
    return topology.parent[i] < 0 and topology.is_leaf[i] == 1 and joint_turns(topology, i)


# -- eq. (1) ---------------------------------------------------------------------------------------------------------


@wp.func
def spin_inertia(topology: Topology, i: int, inertias: wp.array2d(dtype=Any), w: int):
    """Return the inertia of a lone body about the point that its turning leaves alone, 3 by 3."""
    row = i * INERTIA_ROWS
    s = load6(inertias, row + 4, w)
    I = wp.matrix_from_rows(wp.vector(s[0], s[1], s[2]), wp.vector(s[1], s[3], s[4]), wp.vector(s[2], s[4], s[5]))
    if joint_travels(topology, i):
        cross = skew(load3(inertias, row + 1, w))
        I = I + (cross * cross) / inertias[row, w]
    return I


@wp.func
def with_armature(topology: Topology, i: int, I: Any, dofs: wp.array2d(dtype=Any), w: int):
    """Return B = I + armature."""
    row = DOF_ROWS * topology.v_start[i] + ARMATURE
    return I + wp.diag(wp.vector(dofs[row, w], dofs[row + DOF_ROWS, w], dofs[row + 2 * DOF_ROWS, w]))


@wp.func
def spin_slope(I: Any, B: Any, x: Any, dt: Any):
    """Return N, the derivative by x of B (x - w) + dt/2 x × I x."""
    return B + (type(dt)(0.5) * dt) * (skew(x) * I - skew(I * x))


@wp.func
def find_midpoint(I: Any, B: Any, rate: Any, dt: Any):
    """Return x of eq. (1), and whether it was found: Newton's method from w, and one step more than it takes."""
    x = rate
    found = bool(False)
    enough = resolution(wp.length(B * rate))
    for _ in range(NEWTON_STEPS):
        if not found:
            residual = B * (x - rate) + (type(dt)(0.5) * dt) * wp.cross(x, I * x)
            found = wp.length(residual) <= enough
            if wp.dot(residual, residual) > type(dt)(0.0):
                x = x - wp.inverse(spin_slope(I, B, x, dt)) * residual
    return x, found


@wp.func
def product_vjp(I: Any, x: Any, adj: Any):
    """Return the cotangent of x for that of x × I x."""
    return wp.cross(I * x, adj) + I * wp.cross(adj, x)


@wp.func
def spin_vjp(I: Any, B: Any, rate: Any, x: Any, found: bool, dt: Any, adj_couple: Any, adj_after: Any):
    """Return the cotangent of w for those of the couple x × I x - w × I w and of w', and mu: eq. (3)."""
    adj_rate = -product_vjp(I, rate, adj_couple)
    mu = adj_rate - adj_rate
    if found:
        adj_x = product_vjp(I, x, adj_couple) + type(dt)(2.0) * adj_after
        mu = wp.inverse(wp.transpose(spin_slope(I, B, x, dt))) * adj_x
        adj_rate += B * mu - adj_after
    else:
        adj_rate += adj_after
    return adj_rate, mu


@wp.func
def spin(I: Any, rate: Any, x: Any, found: bool):
    """Return the couple x × I x - w × I w and w'; a body for which x was not found goes on as it turns."""
    couple = -wp.cross(rate, I * rate)
    after = rate
    if found:
        couple += wp.cross(x, I * x)
        after = x + x - rate
    return couple, after


# -- eq. (4) ---------------------------------------------------------------------------------------------------------


@wp.func
def swing(rate: Any, after: Any, r: Any, dt: Any):
    """Return w' × (Q - 1) r / dt - w × (w × r)."""
    Q = rotation_from_quaternion(quaternion_from_vector(dt * after))
    return wp.cross(after, Q * r - r) / dt - wp.cross(rate, wp.cross(rate, r))


@wp.func
def swing_vjp(rate: Any, after: Any, r: Any, dt: Any, adj: Any):
    """Return the cotangents of w, w' and r for that of `swing`."""
    Q = rotation_from_quaternion(quaternion_from_vector(dt * after))
    adj_way = wp.cross(adj, after) / dt
    back = adj_way * Q
    adj_after = wp.cross(Q * r - r, adj) / dt + dt * (wp.cross(r, back) * right_jacobian(dt * after))
    across = wp.cross(adj, rate)
    adj_rate = -wp.cross(wp.cross(rate, r), adj) - wp.cross(r, across)
    adj_r = back - adj_way - wp.cross(across, rate)
    return adj_rate, adj_after, adj_r


# -- lone bodies -----------------------------------------------------------------------------------------------------


@wp.func
def lone_force(
    topology: Topology, i: int, dt: Any, qd: wp.array2d(dtype=Any), inertias: wp.array2d(dtype=Any),
    dofs: wp.array2d(dtype=Any), w: int,
):  # fmt: skip
    """Return what the bias force of lone body i lacks, eq. (5)."""
    rate = load3(qd, topology.v_start[i], w)
    I = spin_inertia(topology, i, inertias, w)
    x, found = find_midpoint(I, with_armature(topology, i, I, dofs, w), rate, dt)
    couple, after = spin(I, rate, x, found)
    push = rate - rate
    if joint_travels(topology, i):
        h = load3(inertias, i * INERTIA_ROWS + 1, w)
        if wp.dot(h, h) > type(dt)(0.0):
            m = inertias[i * INERTIA_ROWS, w]
            push = m * swing(rate, after, h / m, dt)
            couple += wp.cross(h, push) / m
    return spatial(couple, push)


@wp.func
def lone_force_vjp(
    topology: Topology, i: int, dt: Any, qd: wp.array2d(dtype=Any), inertias: wp.array2d(dtype=Any),
    dofs: wp.array2d(dtype=Any), adj: Any, w: int, adj_inertias: wp.array2d(dtype=Any),
    adj_dofs: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return the cotangent of the angular velocity for that of `lone_force`; add those of inertia and armature."""
    rate = load3(qd, topology.v_start[i], w)
    I = spin_inertia(topology, i, inertias, w)
    B = with_armature(topology, i, I, dofs, w)
    x, found = find_midpoint(I, B, rate, dt)
    couple, after = spin(I, rate, x, found)
    row = i * INERTIA_ROWS
    m = inertias[row, w]
    h = load3(inertias, row + 1, w)
    adj_rate = rate - rate
    adj_after = adj_rate
    if joint_travels(topology, i):
        adj_swing = m * linear(adj) + wp.cross(angular(adj), h)
        by_rate, by_after, by_r = swing_vjp(rate, after, h / m, dt, adj_swing)
        adj_rate = by_rate
        adj_after = by_after
        if adj_inertias:
            way = swing(rate, after, h / m, dt)
            adj_h = wp.cross(way, angular(adj)) + by_r / m
            adj_m = wp.dot(linear(adj), way) - wp.dot(by_r, h) / (m * m)
            adj_inertias[row, w] = adj_inertias[row, w] + adj_m
            accumulate(adj_inertias, row + 1, w, adj_h)
    by_rate, mu = spin_vjp(I, B, rate, x, found, dt, angular(adj), adj_after)
    if adj_inertias:
        add_spin_inertia_vjp(topology, i, inertias, wp.cross(rate, angular(adj)), rate, w, adj_inertias)
        if found:
            a = wp.cross(angular(adj) - (type(dt)(0.5) * dt) * mu, x)
            add_spin_inertia_vjp(topology, i, inertias, a, x, w, adj_inertias)
            add_spin_inertia_vjp(topology, i, inertias, -mu, x - rate, w, adj_inertias)
    if adj_dofs:
        for k in range(3):
            at = DOF_ROWS * (topology.v_start[i] + k) + ARMATURE
            adj_dofs[at, w] = adj_dofs[at, w] - mu[k] * (x[k] - rate[k])
    return adj_rate + by_rate


@wp.func
def add_spin_inertia_vjp(
    topology: Topology, i: int, inertias: wp.array2d(dtype=Any), a: Any, b: Any, w: int,
    adj_inertias: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the derivatives of a·(I b), I the inertia of `spin_inertia`."""
    zero = a - a
    row = i * INERTIA_ROWS
    accumulate(adj_inertias, row, w, inertia_vjp(spatial(a, zero), spatial(b, zero)))
    if joint_travels(topology, i):
        m = inertias[row, w]
        h = load3(inertias, row + 1, w)
        # I = J + [h][h] / m, and a·[h][h] b = (a·h)(b·h) - (a·b)(h·h)
        across = wp.dot(a, h) * wp.dot(b, h) - wp.dot(a, b) * wp.dot(h, h)
        adj_inertias[row, w] = adj_inertias[row, w] - across / (m * m)
        by_h = wp.dot(b, h) * a + wp.dot(a, h) * b - (wp.dot(a, b) + wp.dot(a, b)) * h
        accumulate(adj_inertias, row + 1, w, by_h / m)


# -- a step's forces -------------------------------------------------------------------------------------------------


@wp.func
def subtract_lone_forces(
    topology: Topology, dt: Any, qd: wp.array2d(dtype=Any), inertias: wp.array2d(dtype=Any),
    dofs: wp.array2d(dtype=Any), w: int, force: wp.array2d(dtype=Any),
):  # fmt: skip
    """Subtract what the bias forces of lone bodies lack from the forces."""
    for i in range(topology.nbody):
        if is_lone(topology, i):
            joint_force(topology, i, -lone_force(topology, i, dt, qd, inertias, dofs, w), w, force)


@wp.func
def subtract_lone_forces_vjp(
    topology: Topology, dt: Any, qd: wp.array2d(dtype=Any), inertias: wp.array2d(dtype=Any),
    dofs: wp.array2d(dtype=Any), adj_force: wp.array2d(dtype=Any), w: int,
    adj_qd: wp.array2d(dtype=Any), adj_inertias: wp.array2d(dtype=Any), adj_dofs: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of all that `subtract_lone_forces` reads."""
    for i in range(topology.nbody):
        if is_lone(topology, i):
            adj = -joint_motion(topology, i, adj_force, w)
            by_rate = lone_force_vjp(topology, i, dt, qd, inertias, dofs, adj, w, adj_inertias, adj_dofs)
            accumulate(adj_qd, topology.v_start[i], w, by_rate)
