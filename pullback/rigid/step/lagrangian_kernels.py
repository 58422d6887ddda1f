"""Momentum and force as derivatives of the Lagrangian l(q, v), and their adjoint (docs/derivations/midpoint.md).

Body by body, X the motion transform from parent to child, S the joint's motion subspace:

    V = X V_P + S v,    A = X A_P,    A_world = -gravity                                                        (7)
    F = I V + sum over children X^T F,    G = I A + sum over children X^T G
    dl/dv = S^T F + armature v,    dl/dq = -S^T ((V - S v) x* F + G)                                            (8)
"""

from typing import Any

import warp as wp

from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.runge_kutta_kernels import stage_row
from pullback.robot.joint_kernels import (
    joint_coordinates_vjp,
    joint_force,
    joint_motion,
    joint_pose,
    placement_vjp,
)
from pullback.robot.rnea_kernels import body_inertia_times, world_acceleration
from pullback.robot.topology import ARMATURE, DAMPING, DOF_ROWS, INERTIA_ROWS
from pullback.spatial.arrays import accumulate, load3, load6, load33, rows_from, store, store33
from pullback.spatial.vectors import (
    cross_force,
    cross_motion,
    force_to_parent,
    inertia_vjp,
    linear,
    motion_to_child,
)

# rows a body of the equations of motion: pose, velocity, gravity; momentum and weight of all that hangs on it
POSE = wp.constant(0)
VELOCITY = wp.constant(12)
GRAVITY = wp.constant(18)
MOMENTUM = wp.constant(24)
WEIGHT = wp.constant(30)
BODY_ROWS = wp.constant(36)

# rows a body of their adjoint: changes of velocity and place under the cotangents, cotangents of velocity and gravity
CHANGE = wp.constant(0)
SHIFT = wp.constant(6)
ADJ_VELOCITY = wp.constant(12)
ADJ_GRAVITY = wp.constant(18)
ADJ_ROWS = wp.constant(24)


@wp.func
def write_derivatives(job: Job, stage: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Write a stage's momentum dl/dv, and the force dl/dq with that of dampers: eqs. (7), (8)."""
    topology = job.scene.topology
    zero = scratch.dtype(0.0)
    q = rows_from(scratch, stage_row(job, stage))
    rates = rows_from(q, job.scene.nq)
    momentum = rows_from(rates, topology.nv)
    force = rows_from(scratch, job.scratch.force)
    inertias = rows_from(parameters, job.parameters.inertias)
    dofs = rows_from(parameters, job.parameters.dofs)
    bodies = rows_from(scratch, job.scratch.dynamics)
    for i in range(topology.nbody):
        parent = topology.parent[i]
        row = i * BODY_ROWS
        R, p = joint_pose(topology, i, rows_from(parameters, job.parameters.placements), q, w)
        V = wp.vector(zero, zero, zero, zero, zero, zero)
        A = world_acceleration(rows_from(parameters, job.parameters.gravity), w)
        if parent >= 0:
            V = load6(bodies, parent * BODY_ROWS + VELOCITY, w)
            A = load6(bodies, parent * BODY_ROWS + GRAVITY, w)
        V = motion_to_child(R, p, V) + joint_motion(topology, i, rates, w)
        A = motion_to_child(R, p, A)
        store33(bodies, row + POSE, w, R)
        store(bodies, row + POSE + 9, w, p)
        store(bodies, row + VELOCITY, w, V)
        store(bodies, row + GRAVITY, w, A)
        store(bodies, row + MOMENTUM, w, body_inertia_times(inertias, i, w, V))
        store(bodies, row + WEIGHT, w, body_inertia_times(inertias, i, w, A))
    for v in range(topology.nv):
        momentum[v, w] = dofs[DOF_ROWS * v + ARMATURE, w] * rates[v, w]
        force[v, w] = -dofs[DOF_ROWS * v + DAMPING, w] * rates[v, w]
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        row = i * BODY_ROWS
        F = load6(bodies, row + MOMENTUM, w)
        G = load6(bodies, row + WEIGHT, w)
        carried = load6(bodies, row + VELOCITY, w) - joint_motion(topology, i, rates, w)
        joint_force(topology, i, F, w, momentum)
        joint_force(topology, i, -(cross_force(carried, F) + G), w, force)
        if topology.parent[i] >= 0:
            R = load33(bodies, row + POSE, w)
            p = load3(bodies, row + POSE + 9, w)
            accumulate(bodies, topology.parent[i] * BODY_ROWS + MOMENTUM, w, force_to_parent(R, p, F))
            accumulate(bodies, topology.parent[i] * BODY_ROWS + WEIGHT, w, force_to_parent(R, p, G))


@wp.func
def derivatives_vjp(
    # model
    job: Job,
    # in: the cotangents of momentum and force; what `write_derivatives` left in scratch
    stage: int,
    parameters: wp.array2d(dtype=Any),
    w: int,
    adj_momentum: wp.array2d(dtype=Any),
    adj_force: wp.array2d(dtype=Any),
    # out, added to; an array without data is left out
    adj_q: wp.array2d(dtype=Any),
    adj_rates: wp.array2d(dtype=Any),
    adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):
    """Add the cotangents of all that `write_derivatives` reads: eqs. (9) to (11)."""
    topology = job.scene.topology
    zero = scratch.dtype(0.0)
    nothing = wp.vector(zero, zero, zero, zero, zero, zero)
    q = rows_from(scratch, stage_row(job, stage))
    rates = rows_from(q, job.scene.nq)
    placements = rows_from(parameters, job.parameters.placements)
    inertias = rows_from(parameters, job.parameters.inertias)
    adj_gravity = rows_from(adj_parameters, job.parameters.gravity)
    adj_placements = rows_from(adj_parameters, job.parameters.placements)
    adj_inertias = rows_from(adj_parameters, job.parameters.inertias)
    bodies = rows_from(scratch, job.scratch.dynamics)
    work = rows_from(scratch, job.scratch.recursion)
    # changes of velocity and place under the cotangents, root to leaves, eq. (9)
    for i in range(topology.nbody):
        parent = topology.parent[i]
        row = i * BODY_ROWS
        V = load6(bodies, row + VELOCITY, w)
        Y = nothing
        B = nothing
        if parent >= 0:
            R = load33(bodies, row + POSE, w)
            p = load3(bodies, row + POSE + 9, w)
            Y = motion_to_child(R, p, load6(work, parent * ADJ_ROWS + CHANGE, w))
            B = motion_to_child(R, p, load6(work, parent * ADJ_ROWS + SHIFT, w))
        own = joint_motion(topology, i, adj_force, w)
        Y = Y + joint_motion(topology, i, adj_momentum, w) + cross_motion(V - joint_motion(topology, i, rates, w), own)
        B = B + own
        store(work, i * ADJ_ROWS + CHANGE, w, Y)
        store(work, i * ADJ_ROWS + SHIFT, w, B)
        store(work, i * ADJ_ROWS + ADJ_VELOCITY, w, body_inertia_times(inertias, i, w, Y))
        store(work, i * ADJ_ROWS + ADJ_GRAVITY, w, -body_inertia_times(inertias, i, w, B))
        if adj_inertias:
            A = load6(bodies, row + GRAVITY, w)
            accumulate(adj_inertias, i * INERTIA_ROWS, w, inertia_vjp(Y, V) - inertia_vjp(B, A))
    # cotangents, leaves to root, eqs. (10), (11)
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        parent = topology.parent[i]
        row = i * BODY_ROWS
        R = load33(bodies, row + POSE, w)
        p = load3(bodies, row + POSE + 9, w)
        F = load6(bodies, row + MOMENTUM, w)
        adj_V = load6(work, i * ADJ_ROWS + ADJ_VELOCITY, w)
        adj_A = load6(work, i * ADJ_ROWS + ADJ_GRAVITY, w)
        if adj_rates:
            joint_force(topology, i, adj_V, w, adj_rates)
        own = joint_motion(topology, i, adj_force, w)
        carried = load6(bodies, row + VELOCITY, w) - joint_motion(topology, i, rates, w)
        adj_V = adj_V + cross_force(own, F)
        XY = load6(work, i * ADJ_ROWS + CHANGE, w) - joint_motion(topology, i, adj_momentum, w)
        XY = XY - cross_motion(carried, own)
        XB = load6(work, i * ADJ_ROWS + SHIFT, w) - own
        adj_pose = cross_force(XB, load6(bodies, row + WEIGHT, w)) - cross_force(carried, adj_V) - cross_force(XY, F)
        adj_pose = adj_pose - cross_force(load6(bodies, row + GRAVITY, w), adj_A)
        joint_coordinates_vjp(topology, i, adj_pose, q, w, adj_q)
        if adj_placements:
            placement_vjp(R, p, adj_pose, placements, i, adj_placements, w)
        if parent >= 0:
            accumulate(work, parent * ADJ_ROWS + ADJ_VELOCITY, w, force_to_parent(R, p, adj_V))
            accumulate(work, parent * ADJ_ROWS + ADJ_GRAVITY, w, force_to_parent(R, p, adj_A))
        elif adj_gravity:
            accumulate(adj_gravity, 0, w, -(R * linear(adj_A)))
    dofs_vjp(job, rates, parameters, w, adj_momentum, adj_force, adj_rates, adj_parameters)


@wp.func
def dofs_vjp(
    job: Job, rates: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    adj_momentum: wp.array2d(dtype=Any), adj_force: wp.array2d(dtype=Any), adj_rates: wp.array2d(dtype=Any),
    adj_parameters: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of what armature and damping do."""
    dofs = rows_from(parameters, job.parameters.dofs)
    adj_dofs = rows_from(adj_parameters, job.parameters.dofs)
    for v in range(job.scene.topology.nv):
        armature = DOF_ROWS * v + ARMATURE
        damping = DOF_ROWS * v + DAMPING
        a = adj_momentum[v, w]
        b = adj_force[v, w]
        if adj_rates:
            adj_rates[v, w] = adj_rates[v, w] + dofs[armature, w] * a - dofs[damping, w] * b
        if adj_dofs:
            adj_dofs[armature, w] = adj_dofs[armature, w] + a * rates[v, w]
            adj_dofs[damping, w] = adj_dofs[damping, w] - b * rates[v, w]
