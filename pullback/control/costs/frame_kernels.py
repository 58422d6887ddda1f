"""Cost of the pose of a frame, and its Gauss–Newton derivatives (docs/derivations/ilqr.md, 3).

    target   8 rows   position, quaternion xyzw, and 1 for the screw residual, 0 for position and rotation apart
    weights  6 rows   of the residual: linear, angular

A world is one node of a trajectory. x + φ × x / 2 + f φ × (φ × x) is the inverse
right Jacobian of the rotation φ times x, eq. (9).
"""

from typing import Any

import warp as wp

from pullback.core.modules import kernel_module, made_once
from pullback.robot.joint_kernels import joint_nv, joint_world_axis
from pullback.robot.kinematics_kernels import ROWS, body_pose, body_poses, frame_pose
from pullback.robot.topology import Topology
from pullback.spatial.arrays import load3, load4, load6, store
from pullback.spatial.rotations import (
    SMALL,
    inverse_jacobian_factor,
    inverse_right_jacobian_times,
    vector_from_quaternion,
)
from pullback.spatial.vectors import angular, linear, quaternion_from_rotation, rotation_from_quaternion, spatial

TARGET_ROWS = 8


@wp.func
def coupling_factors(s: Any):
    """Return the three factors of eq. (11) for a squared angle s."""
    a = type(s)(1.0 / 6.0) - s / type(s)(120.0) * (type(s)(1.0) - s / type(s)(42.0))
    b = type(s)(1.0 / 24.0) - s / type(s)(720.0) * (type(s)(1.0) - s / type(s)(56.0))
    c = type(s)(1.0 / 120.0) - s / type(s)(2520.0) * (type(s)(1.0) - s / type(s)(48.0))
    a += s * s * s / type(s)(-362880.0)
    b += s * s * s / type(s)(-3628800.0)
    c += s * s * s / type(s)(-9979200.0)
    if s > type(s)(SMALL):
        t = wp.sqrt(s)
        a = (t - wp.sin(t)) / (t * s)
        b = (s + type(s)(2.0) * wp.cos(t) - type(s)(2.0)) / (type(s)(2.0) * s * s)
        c = (type(s)(2.0) * t - type(s)(3.0) * wp.sin(t) + t * wp.cos(t)) / (type(s)(2.0) * s * s * t)
    return wp.vector(a, b, c)


@wp.func
def coupled(phi: Any, rho: Any, factors: Any, y: Any):
    """Return the derivative of a screw's linear part (rho, phi) by a rotation y, eq. (11)."""
    py = wp.cross(phi, y)
    ry = wp.cross(rho, y)
    rpy = wp.cross(rho, py)
    pry = wp.cross(phi, ry)
    prpy = wp.cross(phi, rpy)
    ppy = wp.cross(phi, py)
    rppy = wp.cross(rho, ppy)
    first = pry + rpy - prpy
    second = wp.cross(phi, pry) + rppy - factors.dtype(3.0) * prpy
    third = wp.cross(phi, rppy) + wp.cross(phi, prpy)
    return factors[0] * first - factors[1] * second + factors[2] * third - factors.dtype(0.5) * ry


@wp.func
def residual(R: Any, p: Any, target: wp.array2d(dtype=Any), w: int):
    """Return the residual (linear, angular) of a frame at R, p, eqs. (8) and (10)."""
    R_target = rotation_from_quaternion(load4(target, 3, w))
    phi = vector_from_quaternion(quaternion_from_rotation(wp.transpose(R_target) * R))
    way = p - load3(target, 0, w)
    if target[7, w] != target.dtype(0.0):
        # the inverse left Jacobian is the right one of the opposite rotation
        way = inverse_right_jacobian_times(-phi, inverse_jacobian_factor(wp.dot(phi, phi)), way * R_target)
    return spatial(way, phi)


@made_once
def value_kernels(real: type):
    """Return the kernel of half the weighted squares of the residual: one row."""
    a = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("frame_cost", real))
    def forward(topology: Topology, q: a, placements: a, frames: a, target: a, weights: a, value: a, scratch: a):
        w = wp.tid()
        body_poses(topology, q, placements, w, scratch)
        R, p = frame_pose(topology, frames, 0, w, scratch)
        r = residual(R, p, target, w)
        value[0, w] = real(0.5) * wp.dot(wp.cw_mul(load6(weights, 0, w), r), r)

    return forward, forward


@made_once
def expansion_kernels(real: type):
    """Return the kernel of the gradient by q, nv rows, and of the Hessian JᵀWJ, nv rows of nv."""
    a = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("frame_expansion", real))
    def forward(
        topology: Topology, q: a, placements: a, frames: a, target: a, weights: a,
        gradient: a, hessian: a, scratch: a,
    ):  # fmt: skip
        w = wp.tid()
        nv = topology.nv
        columns = topology.nbody * ROWS
        body_poses(topology, q, placements, w, scratch)
        R, p = frame_pose(topology, frames, 0, w, scratch)
        r = residual(R, p, target, w)
        weight = load6(weights, 0, w)
        phi = angular_part(r)
        s = wp.dot(phi, phi)
        f = inverse_jacobian_factor(s)
        factors = coupling_factors(s)
        is_screw = target[7, w] != real(0.0)
        for v in range(nv):
            store(scratch, columns + 6 * v, w, r - r)
        for k in range(topology.npath):
            i = topology.path[k]
            R_WB, p_WB = body_pose(i, w, scratch)
            for j in range(joint_nv(topology, i)):
                S = joint_world_axis(topology, i, j, R_WB, p_WB)
                moved = linear(S) + wp.cross(angular(S), p)
                turn = inverse_right_jacobian_times(phi, f, angular(S) * R)
                if is_screw:
                    moved = moved * R - coupled(phi, linear_part(r), factors, turn)
                    moved = inverse_right_jacobian_times(phi, f, moved)
                store(scratch, columns + 6 * (topology.v_start[i] + j), w, spatial(moved, turn))
        pull = wp.cw_mul(weight, r)
        for v in range(nv):
            column = load6(scratch, columns + 6 * v, w)
            gradient[v, w] = wp.dot(column, pull)
            weighted = wp.cw_mul(weight, column)
            for other in range(v + 1):
                entry = wp.dot(weighted, load6(scratch, columns + 6 * other, w))
                hessian[v * nv + other, w] = entry
                hessian[other * nv + v, w] = entry

    return forward, forward


@wp.func
def linear_part(r: Any):
    """Return the first half of a residual."""
    return wp.vector(r[0], r[1], r[2])


@wp.func
def angular_part(r: Any):
    """Return the second half of a residual."""
    return wp.vector(r[3], r[4], r[5])
