"""The joint types in kernels: pose, motion subspace S, and the cotangent of the coordinates.

A joint's pose X_J(q) maps its body's frame to the joint frame placed at R_PJ, p_PJ in the parent. A small body-fixed
motion of that pose, delta = S dq for a one-dof joint, is what cotangents are taken of (docs/derivations/README.md).
"""

from typing import Any

import warp as wp

from pullback.robot.topology import BALL, PLACEMENT_ROWS, PRISMATIC, REVOLUTE
from pullback.spatial.arrays import accumulate, accumulate33, load3, load4, load6, load33
from pullback.spatial.vectors import (
    angular,
    cross_motion,
    force_to_parent,
    linear,
    rotation_about_z,
    rotation_from_quaternion,
    rotation_from_quaternion_vjp,
    skew,
)


@wp.func
def joint_pose(
    kind: int,
    placements: wp.array2d(dtype=Any),
    i: int,
    q: wp.array2d(dtype=Any),
    qi: int,
    w: int,
):
    """Return R_PB, p_PB of body i, whose coordinates start at row qi."""
    R = load33(placements, i * PLACEMENT_ROWS, w)
    p = load3(placements, i * PLACEMENT_ROWS + 9, w)
    if kind == REVOLUTE:
        angle = q[qi, w]
        R = rotation_about_z(R, wp.cos(angle), wp.sin(angle))
    elif kind == PRISMATIC:
        p = p + q[qi, w] * wp.vector(R[0, 2], R[1, 2], R[2, 2])
    elif kind == BALL:
        R = R * rotation_from_quaternion(load4(q, qi, w))
    else:
        p = p + R * load3(q, qi, w)
        R = R * rotation_from_quaternion(load4(q, qi + 3, w))
    return R, p


@wp.func
def joint_motion(kind: int, rates: wp.array2d(dtype=Any), vi: int, w: int):
    """Return S r, the motion of the body against its parent under the joint rates r from row vi on."""
    zero = rates.dtype(0.0)
    r = rates[vi, w]
    # whole vectors: writing single components of one is slow on a CPU
    motion = wp.vector(zero, zero, r, zero, zero, zero)
    if kind == PRISMATIC:
        motion = wp.vector(zero, zero, zero, zero, zero, r)
    elif kind == BALL:
        motion = wp.vector(r, rates[vi + 1, w], rates[vi + 2, w], zero, zero, zero)
    elif kind > BALL:
        motion = load6(rates, vi, w)
    return motion


@wp.func
def cross_joint_motion(kind: int, V: Any, rates: wp.array2d(dtype=Any), vi: int, w: int):
    """Return V x S r, without the products that are zero for one-dof joints."""
    zero = V.dtype(0.0)
    r = rates[vi, w]
    product = wp.vector(r * V[1], -r * V[0], zero, r * V[4], -r * V[3], zero)
    if kind == PRISMATIC:
        product = wp.vector(zero, zero, zero, r * V[1], -r * V[0], zero)
    elif kind > PRISMATIC:
        product = cross_motion(V, joint_motion(kind, rates, vi, w))
    return product


@wp.func
def joint_force(kind: int, f: Any, out: wp.array2d(dtype=Any), vi: int, w: int):
    """Add S^T f, the force f seen by the joint, to the rows of `out` from vi on."""
    if kind == REVOLUTE:
        out[vi, w] = out[vi, w] + f[2]
    elif kind == PRISMATIC:
        out[vi, w] = out[vi, w] + f[5]
    elif kind == BALL:
        accumulate(out, vi, w, angular(f))
    else:
        accumulate(out, vi, w, f)


@wp.func
def joint_dofs(kind: int):
    """Return how many degrees of freedom a joint has."""
    n = int(1)
    if kind > PRISMATIC:
        n = 3 * (kind - 1)
    return n


@wp.func
def joint_coordinates_vjp(
    kind: int,
    adj_pose: Any,
    q: wp.array2d(dtype=Any),
    qi: int,
    adj_q: wp.array2d(dtype=Any),
    w: int,
):
    """Pull `adj_pose`, the cotangent of a small body-fixed motion, back to the joint's coordinates."""
    if kind == REVOLUTE:
        adj_q[qi, w] = adj_q[qi, w] + adj_pose[2]
    elif kind == PRISMATIC:
        adj_q[qi, w] = adj_q[qi, w] + adj_pose[5]
    elif kind == BALL:
        accumulate(adj_q, qi, w, rotation_from_quaternion_vjp(load4(q, qi, w), angular(adj_pose)))
    else:
        quat = load4(q, qi + 3, w)
        accumulate(adj_q, qi, w, rotation_from_quaternion(quat) * linear(adj_pose))
        accumulate(adj_q, qi + 3, w, rotation_from_quaternion_vjp(quat, angular(adj_pose)))


@wp.func
def placement_vjp(
    R: Any,
    p: Any,
    adj_pose: Any,
    placements: wp.array2d(dtype=Any),
    i: int,
    adj_placements: wp.array2d(dtype=Any),
    w: int,
):
    """Pull `adj_pose` back to R_PJ, p_PJ: any matrix adj_R whose product with rotations of R_PJ is right will do."""
    row = i * PLACEMENT_ROWS
    in_parent = force_to_parent(R, p, adj_pose)
    adj_p = linear(in_parent)
    adj_rotation = angular(in_parent) - wp.cross(load3(placements, row + 9, w), adj_p)
    half = adj_p.dtype(0.5)
    accumulate33(adj_placements, row, w, skew(half * adj_rotation) * load33(placements, row, w))
    accumulate(adj_placements, row + 9, w, adj_p)
