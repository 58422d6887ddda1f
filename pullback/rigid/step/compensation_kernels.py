"""Gravity compensation: forces that carry weights of bodies, and their adjoint (docs/derivations/compensation.md).

With m and h the mass and first moment that are carried of each body, a = -gravity, b = a in the body's axes:

    F = (h x b, m b) + sum over children X^T F,    tau += S^T F                                             (1)
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import COMPENSATION_ROWS
from pullback.rigid.step.problem_kernels import Job, Motion
from pullback.robot.joint_kernels import joint_coordinates_vjp, joint_force, joint_motion, joint_pose, placement_vjp
from pullback.spatial.arrays import accumulate, load3, load6, load33, rows_from, store, store33
from pullback.spatial.vectors import angular, cross_force, force_to_parent, linear, motion_to_child, spatial

# rows of scratch a body
POSE = wp.constant(0)
DIRECTION = wp.constant(12)  # b
FORCE = wp.constant(15)
VIRTUAL = wp.constant(21)  # velocity under the cotangents of forces
MOMENTUM = wp.constant(27)
CARRIED_ROWS = wp.constant(30)


@wp.func
def upward(job: Job, parameters: wp.array2d(dtype=Any), w: int):
    """Return a, the acceleration that carries a weight."""
    return -load3(parameters, job.parameters.gravity, w)


@wp.func
def carried_mass(job: Job, i: int, parameters: wp.array2d(dtype=Any), w: int):
    """Return mass and first moment of body i that are carried."""
    row = job.parameters.compensation + i * COMPENSATION_ROWS
    return parameters[row, w], load3(parameters, row + 1, w)


@wp.func
def write_carried(
    job: Job, i: int, q: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    bodies: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write pose, direction and own force of body i."""
    topology = job.scene.topology
    parent = topology.parent[i]
    row = i * CARRIED_ROWS
    R, p = joint_pose(topology, i, rows_from(parameters, job.parameters.placements), q, w)
    b = upward(job, parameters, w)
    if parent >= 0:
        b = load3(bodies, parent * CARRIED_ROWS + DIRECTION, w)
    b = b * R
    m, h = carried_mass(job, i, parameters, w)
    store33(bodies, row + POSE, w, R)
    store(bodies, row + POSE + 9, w, p)
    store(bodies, row + DIRECTION, w, b)
    store(bodies, row + FORCE, w, spatial(wp.cross(h, b), m * b))


@wp.func
def carry_weights(
    job: Job, q: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
    tau: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the forces of gravity compensation to tau: eq. (1)."""
    topology = job.scene.topology
    bodies = rows_from(scratch, job.scratch.carried)
    for i in range(topology.nbody):
        write_carried(job, i, q, parameters, w, bodies)
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        F = load6(bodies, i * CARRIED_ROWS + FORCE, w)
        joint_force(topology, i, F, w, tau)
        if topology.parent[i] >= 0:
            R = load33(bodies, i * CARRIED_ROWS + POSE, w)
            p = load3(bodies, i * CARRIED_ROWS + POSE + 9, w)
            accumulate(bodies, topology.parent[i] * CARRIED_ROWS + FORCE, w, force_to_parent(R, p, F))


@wp.func
def carry_weights_vjp(
    job: Job, motion: Motion, parameters: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of q and of parameters for that of forces: eqs. (2) to (5)."""
    topology = job.scene.topology
    zero = scratch.dtype(0.0)
    q = rows_from(scratch, motion.q)
    adj_q = rows_from(scratch, motion.adj_q)
    adj_force = rows_from(scratch, motion.adj_force)
    placements = rows_from(parameters, job.parameters.placements)
    adj_gravity = rows_from(adj_parameters, job.parameters.gravity)
    adj_placements = rows_from(adj_parameters, job.parameters.placements)
    adj_carried = rows_from(adj_parameters, job.parameters.compensation)
    bodies = rows_from(scratch, job.scratch.carried)
    for i in range(topology.nbody):
        row = i * CARRIED_ROWS
        write_carried(job, i, q, parameters, w, bodies)
        W = wp.vector(zero, zero, zero, zero, zero, zero)
        if topology.parent[i] >= 0:
            R = load33(bodies, row + POSE, w)
            p = load3(bodies, row + POSE + 9, w)
            W = motion_to_child(R, p, load6(bodies, topology.parent[i] * CARRIED_ROWS + VIRTUAL, w))
        W = W + joint_motion(topology, i, adj_force, w)  # eq. (2)
        m, h = carried_mass(job, i, parameters, w)
        b = load3(bodies, row + DIRECTION, w)
        store(bodies, row + VIRTUAL, w, W)
        store(bodies, row + MOMENTUM, w, m * linear(W) + wp.cross(angular(W), h))
        if adj_carried:
            at = i * COMPENSATION_ROWS
            adj_carried[at, w] = adj_carried[at, w] + wp.dot(b, linear(W))  # eq. (4)
            accumulate(adj_carried, at + 1, w, wp.cross(b, angular(W)))
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        row = i * CARRIED_ROWS
        R = load33(bodies, row + POSE, w)
        p = load3(bodies, row + POSE + 9, w)
        F = load6(bodies, row + FORCE, w)
        P = load3(bodies, row + MOMENTUM, w)
        b = load3(bodies, row + DIRECTION, w)
        XW = load6(bodies, row + VIRTUAL, w) - joint_motion(topology, i, adj_force, w)
        adj_pose = -cross_force(XW, F) - spatial(wp.cross(b, P), P - P)  # eq. (5)
        joint_coordinates_vjp(topology, i, adj_pose, q, w, adj_q)
        if adj_placements:
            placement_vjp(R, p, adj_pose, placements, i, adj_placements, w)
        if topology.parent[i] >= 0:
            above = topology.parent[i] * CARRIED_ROWS
            accumulate(bodies, above + FORCE, w, force_to_parent(R, p, F))
            accumulate(bodies, above + MOMENTUM, w, R * P)
        elif adj_gravity:
            accumulate(adj_gravity, 0, w, -(R * P))
