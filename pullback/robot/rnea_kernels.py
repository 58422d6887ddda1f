"""Inverse dynamics by the recursive Newton-Euler algorithm, and its adjoint (docs/derivations/inverse_dynamics.md).

Body by body, in body coordinates, X the motion transform from parent to child and S the joint's motion subspace:

    V = X V_P + S qd                                                       (1)
    A = X A_P + S qdd + V x S qd,     A_world = -gravity                   (2)
    F = I A + V x* I V - F_ext        tau = S^T (F + sum over children X^T F)  (3)
    tau += armature qdd + damping qd + friction sign(qd)                   (4)
"""

from typing import Any

import warp as wp

from pullback.core.array_struct import array_struct
from pullback.core.lanes import Lanes
from pullback.core.modules import kernel_module, made_once
from pullback.robot.joint_kernels import (
    joint_bias,
    joint_coordinates_vjp,
    joint_force,
    joint_motion,
    joint_pose,
    placement_vjp,
)
from pullback.robot.topology import ARMATURE, DAMPING, DOF_ROWS, FRICTION, INERTIA_ROWS, Topology
from pullback.spatial.arrays import accumulate, load3, load6, load33, store, store33
from pullback.spatial.vectors import (
    cross_force,
    cross_motion,
    force_to_parent,
    inertia_times,
    inertia_vjp,
    linear,
    motion_to_child,
)

# rows of scratch a body
POSE = wp.constant(0)
VELOCITY = wp.constant(12)
ACCELERATION = wp.constant(18)
FORCE = wp.constant(24)
ROWS = wp.constant(30)

# the adjoint keeps the motion under the cotangent, W, and the cotangents of V, A and W
VIRTUAL = wp.constant(24)
ADJ_VELOCITY = wp.constant(30)
ADJ_ACCELERATION = wp.constant(36)
ADJ_VIRTUAL = wp.constant(42)
VJP_ROWS = wp.constant(48)

ROBOT_ROWS = ("external", "gravity", "placements", "inertias", "dofs")
"""What the dynamics of a robot read besides its motion, or the cotangents of that."""

Array32 = wp.array2d(dtype=wp.float32)
Array64 = wp.array2d(dtype=wp.float64)
RobotRows32 = array_struct("robot_rows", ROBOT_ROWS, wp.float32)
RobotRows64 = array_struct("robot_rows", ROBOT_ROWS, wp.float64)


@wp.func
def robot_rows(external: Array32, gravity: Array32, placements: Array32, inertias: Array32, dofs: Array32):
    """Return the arrays as one struct."""
    return RobotRows32(external, gravity, placements, inertias, dofs)


@wp.func
def robot_rows(  # noqa: F811
    external: Array64, gravity: Array64, placements: Array64, inertias: Array64, dofs: Array64
):
    """Return the arrays as one struct."""
    return RobotRows64(external, gravity, placements, inertias, dofs)


@wp.func
def world_acceleration(gravity: wp.array2d(dtype=Any), w: int):
    """Return the acceleration of the world that stands for gravity."""
    zero = gravity.dtype(0.0)
    return wp.vector(zero, zero, zero, -gravity[0, w], -gravity[1, w], -gravity[2, w])


@wp.func
def body_inertia_times(inertias: wp.array2d(dtype=Any), i: int, w: int, x: Any):
    """Return I x for the rigid inertia of body i."""
    row = i * INERTIA_ROWS
    return inertia_times(inertias[row, w], load3(inertias, row + 1, w), load6(inertias, row + 4, w), x)


@wp.func
def inverse_dynamics(
    # model
    topology: Topology,
    # in
    q: wp.array2d(dtype=Any),
    qd: wp.array2d(dtype=Any),
    qdd: wp.array2d(dtype=Any),
    robot: Any,
    w: int,
    # out
    tau: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):
    """Write the joint forces of world w for the motion (q, qd, qdd)."""
    zero = q.dtype(0.0)
    # velocities, accelerations and net forces, root to leaves
    for i in range(topology.nbody):
        parent = topology.parent[i]
        row = i * ROWS
        R, p = joint_pose(topology, i, robot.placements, q, w)
        V = wp.vector(zero, zero, zero, zero, zero, zero)
        A = world_acceleration(robot.gravity, w)
        if parent >= 0:
            V = load6(scratch, parent * ROWS + VELOCITY, w)
            A = load6(scratch, parent * ROWS + ACCELERATION, w)
        V = motion_to_child(R, p, V) + joint_motion(topology, i, qd, w)  # eq. (1)
        A = motion_to_child(R, p, A) + joint_motion(topology, i, qdd, w) + joint_bias(topology, i, V, qd, w)  # (2)
        momentum = body_inertia_times(robot.inertias, i, w, V)
        F = body_inertia_times(robot.inertias, i, w, A) + cross_force(V, momentum)  # eq. (3)
        if robot.external:
            F = F - load6(robot.external, 6 * i, w)
        store33(scratch, row + POSE, w, R)
        store(scratch, row + POSE + 9, w, p)
        store(scratch, row + VELOCITY, w, V)
        store(scratch, row + ACCELERATION, w, A)
        store(scratch, row + FORCE, w, F)
    # friction and armature
    for v in range(topology.nv):
        tau[v, w] = robot.dofs[DOF_ROWS * v + ARMATURE, w] * qdd[v, w] + joint_friction(robot.dofs, v, qd[v, w], w)
    # forces, leaves to root
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        parent = topology.parent[i]
        row = i * ROWS
        F = load6(scratch, row + FORCE, w)
        joint_force(topology, i, F, w, tau)
        if parent >= 0:
            R = load33(scratch, row + POSE, w)
            p = load3(scratch, row + POSE + 9, w)
            accumulate(scratch, parent * ROWS + FORCE, w, force_to_parent(R, p, F))


@wp.func
def joint_friction(dofs: wp.array2d(dtype=Any), v: int, rate: Any, w: int):
    """Return the viscous and dry friction of dof v that opposes `rate`."""
    return dofs[DOF_ROWS * v + DAMPING, w] * rate + dofs[DOF_ROWS * v + FRICTION, w] * direction(rate)


@wp.func
def direction(rate: Any):
    """Return -1, 0 or 1: the sign of `rate`, 0 at rest."""
    # without a branch: worlds in lanes take the same instructions; NaN stays NaN
    return (rate - rate) + type(rate)(0.5) * (wp.sign(rate) - wp.sign(-rate))


@wp.func
def inverse_dynamics_vjp(
    # model
    topology: Topology,
    # in
    q: wp.array2d(dtype=Any),
    qd: wp.array2d(dtype=Any),
    qdd: wp.array2d(dtype=Any),
    robot: Any,
    adj_tau: wp.array2d(dtype=Any),
    w: int,
    # out, added to; an array without data is left out
    adj_q: wp.array2d(dtype=Any),
    adj_qd: wp.array2d(dtype=Any),
    adj_qdd: wp.array2d(dtype=Any),
    adj_robot: Any,
    scratch: wp.array2d(dtype=Any),
):
    """Add the cotangents of everything that `inverse_dynamics` reads, for the cotangent `adj_tau` of its result."""
    zero = q.dtype(0.0)
    nothing = wp.vector(zero, zero, zero, zero, zero, zero)
    # motions, root to leaves; W is the velocity under the joint rates adj_tau
    for i in range(topology.nbody):
        parent = topology.parent[i]
        row = i * VJP_ROWS
        R, p = joint_pose(topology, i, robot.placements, q, w)
        V = nothing
        W = nothing
        A = world_acceleration(robot.gravity, w)
        if parent >= 0:
            V = load6(scratch, parent * VJP_ROWS + VELOCITY, w)
            A = load6(scratch, parent * VJP_ROWS + ACCELERATION, w)
            W = load6(scratch, parent * VJP_ROWS + VIRTUAL, w)
        V = motion_to_child(R, p, V) + joint_motion(topology, i, qd, w)
        A = motion_to_child(R, p, A) + joint_motion(topology, i, qdd, w) + joint_bias(topology, i, V, qd, w)
        W = motion_to_child(R, p, W) + joint_motion(topology, i, adj_tau, w)
        # what body i alone contributes to the cotangents, eqs. (6) to (8)
        momentum = body_inertia_times(robot.inertias, i, w, V)
        F = body_inertia_times(robot.inertias, i, w, A) + cross_force(V, momentum)
        WxV = cross_motion(W, V)
        if robot.external:
            F = F - load6(robot.external, 6 * i, w)
        store33(scratch, row + POSE, w, R)
        store(scratch, row + POSE + 9, w, p)
        store(scratch, row + VELOCITY, w, V)
        store(scratch, row + ACCELERATION, w, A)
        store(scratch, row + VIRTUAL, w, W)
        store(scratch, row + ADJ_VELOCITY, w, body_inertia_times(robot.inertias, i, w, WxV) - cross_force(W, momentum))
        store(scratch, row + ADJ_ACCELERATION, w, body_inertia_times(robot.inertias, i, w, W))
        store(scratch, row + ADJ_VIRTUAL, w, F)
        if adj_robot.external:
            accumulate(adj_robot.external, 6 * i, w, -W)
        if adj_robot.inertias:
            accumulate(adj_robot.inertias, i * INERTIA_ROWS, w, inertia_vjp(W, A) + inertia_vjp(WxV, V))  # eq. (9)
    # cotangents, leaves to root
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        parent = topology.parent[i]
        row = i * VJP_ROWS
        R = load33(scratch, row + POSE, w)
        p = load3(scratch, row + POSE + 9, w)
        V = load6(scratch, row + VELOCITY, w)
        adj_A = load6(scratch, row + ADJ_ACCELERATION, w)
        adj_W = load6(scratch, row + ADJ_VIRTUAL, w)
        rate = joint_motion(topology, i, qd, w)
        adj_V = load6(scratch, row + ADJ_VELOCITY, w) + cross_force(rate, adj_A)  # eq. (10)
        if adj_qd:
            joint_force(topology, i, adj_V - cross_force(V, adj_A), w, adj_qd)  # eq. (11)
        if adj_qdd:
            joint_force(topology, i, adj_A, w, adj_qdd)
        # the parts of V, A and W that came through X give the cotangent of the pose, eq. (12)
        XV = V - rate
        XA = load6(scratch, row + ACCELERATION, w) - joint_motion(topology, i, qdd, w)
        XA = XA - joint_bias(topology, i, V, qd, w)
        XW = load6(scratch, row + VIRTUAL, w) - joint_motion(topology, i, adj_tau, w)
        adj_pose = -(cross_force(XV, adj_V) + cross_force(XA, adj_A) + cross_force(XW, adj_W))
        if adj_q:
            joint_coordinates_vjp(topology, i, adj_pose, q, w, adj_q)
        if adj_robot.placements:
            placement_vjp(R, p, adj_pose, robot.placements, i, adj_robot.placements, w)
        if parent >= 0:
            parent_row = parent * VJP_ROWS
            accumulate(scratch, parent_row + ADJ_VELOCITY, w, force_to_parent(R, p, adj_V))
            accumulate(scratch, parent_row + ADJ_ACCELERATION, w, force_to_parent(R, p, adj_A))
            accumulate(scratch, parent_row + ADJ_VIRTUAL, w, force_to_parent(R, p, adj_W))
        elif adj_robot.gravity:
            accumulate(adj_robot.gravity, 0, w, -(R * linear(adj_A)))
    # friction and armature, eq. (4)
    for v in range(topology.nv):
        mu = adj_tau[v, w]
        if adj_qd:
            adj_qd[v, w] = adj_qd[v, w] + robot.dofs[DOF_ROWS * v + DAMPING, w] * mu
        if adj_qdd:
            adj_qdd[v, w] = adj_qdd[v, w] + robot.dofs[DOF_ROWS * v + ARMATURE, w] * mu
        if adj_robot.dofs:
            row = DOF_ROWS * v
            adj_robot.dofs[row + ARMATURE, w] = adj_robot.dofs[row + ARMATURE, w] + mu * qdd[v, w]
            adj_robot.dofs[row + DAMPING, w] = adj_robot.dofs[row + DAMPING, w] + mu * qd[v, w]
            adj_robot.dofs[row + FRICTION, w] = adj_robot.dofs[row + FRICTION, w] + mu * direction(qd[v, w])


@made_once
def kernels(real: type):
    """Return the forward and vjp kernels for one floating-point type."""
    a = wp.array2d(dtype=real)
    Robot = array_struct("robot_rows", ROBOT_ROWS, real)

    @wp.kernel(module=kernel_module("rnea", real, lanes=Lanes(writes=("tau",))))
    def forward(topology: Topology, q: a, qd: a, qdd: a, robot: Robot, tau: a, scratch: a):
        w = wp.tid()
        inverse_dynamics(topology, q, qd, qdd, robot, w, tau, scratch)

    written = Lanes(writes=("adj_q", "adj_qd", "adj_qdd", "adj_robot"))

    @wp.kernel(module=kernel_module("rnea_vjp", real, lanes=written))
    def vjp(
        topology: Topology, q: a, qd: a, qdd: a, robot: Robot, tau: a, adj_tau: a,
        adj_q: a, adj_qd: a, adj_qdd: a, adj_robot: Robot, scratch: a,
    ):  # fmt: skip
        w = wp.tid()
        inverse_dynamics_vjp(
            topology, q, qd, qdd, robot, adj_tau, w, adj_q, adj_qd, adj_qdd, adj_robot, scratch
        )  # fmt: skip

    return forward, vjp
