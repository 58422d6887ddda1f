"""How the equations of motion change with state and controls, as matrices (docs/derivations/linearize.md, section 2).

Everything is in world axes, seen from the place of the root body of each tree, which stays while bodies move. There the
quantities of all bodies outboard of a joint just add up: inertia (m, c, J), momentum (k, l), force F, and the operator

    B x = (Y w - k x w, -2 l x w)        for a motion x = (w, v), Y symmetric                               (5)
"""

from typing import Any

import warp as wp

from pullback.core.rows import Layout, Rows
from pullback.rigid.compile.scene import (
    CONTACT_ROWS,
    GAP,
    NORMAL,
    PAIR,
    PLANE,
    POINT,
    POSE_ROWS,
    RADIUS,
    SHAPE_ROWS,
    Scene,
)
from pullback.rigid.step.constraint_kernels import BLOCK_ROWS, TANGENT
from pullback.rigid.step.problem_kernels import Job
from pullback.robot.joint_kernels import joint_nv, joint_world_axis
from pullback.robot.rnea_kernels import world_acceleration
from pullback.robot.topology import INERTIA_ROWS
from pullback.spatial.arrays import (
    accumulate,
    accumulate33,
    load3,
    load6,
    load33,
    rows_from,
    store,
    store33,
    upper_triangle,
)
from pullback.spatial.vectors import (
    angular,
    cross_force,
    cross_motion,
    inertia_times,
    linear,
    rotate_symmetric,
    skew,
    skew_times_symmetric,
    spatial,
    symmetric_times,
    times_skew_symmetrized,
)

# rows of a body: where motions are seen from, motions, and sums over all that is outboard
ORIGIN = wp.constant(0)
VELOCITY = wp.constant(3)
ACCELERATION = wp.constant(9)
NEXT_VELOCITY = wp.constant(15)
SUMS = wp.constant(21)  # m (1), c (3), J (6), Y (6), k and l (6), F (6), impulses of contacts (6), eq. (24) (18)
FIRST_MOMENT = wp.constant(22)
ROTATIONAL = wp.constant(25)
TURNING = wp.constant(31)
MOMENTUM = wp.constant(37)
FORCE = wp.constant(43)
IMPULSE = wp.constant(49)
TORQUE_BY_VELOCITY = wp.constant(55)
TORQUE_BY_TURNING = wp.constant(64)
BODY_ROWS = wp.constant(73)

# rows of a dof: its axis S, what changes as it moves, eq. (3), what others feel of it, eqs. (7) and (8), and what the
# new velocity of the body before it makes of its axis, eq. (25)
AXIS = wp.constant(0)
TURNED = wp.constant(6)
TURNED_TWICE = wp.constant(12)
RATE = wp.constant(18)
INERTIAL = wp.constant(24)
GYROSCOPIC = wp.constant(30)
CARRIED = wp.constant(33)
FELT_INBOARD = wp.constant(39)
RATE_INBOARD = wp.constant(45)
NEXT_TURNED = wp.constant(51)
AXIS_ROWS = wp.constant(57)


LINEAR = Layout(
    "LinearRows",
    "The first row of each array of a linearisation's scratch.",
    Rows("bodies", lambda n: int(BODY_ROWS) * n.nbody),
    Rows("axes", lambda n: int(AXIS_ROWS) * n.nv),
    Rows("places", lambda n: 9 * n.nv, "of a contact and a dof: velocity of the point, change of force, of torque"),
    Rows("maps", lambda n: 7 * 12, "of a contact: gap, point and normal by motions of its two bodies"),
    Rows("rows", lambda n: n.m * n.columns, "changes of the velocities of contacts' rows, then of their impulses"),
    Rows("right", lambda n: max(1, n.m) * n.columns),
    Rows("change", lambda n: n.nv * n.columns, "of s = L v, then of v"),
    Rows("jacobian", lambda n: 2 * n.nv * n.columns),
    Rows("impulses", lambda n: 2 * n.nv * n.impulses, "cotangents of the last step's impulses, for each row"),
    Rows("next_q", lambda n: n.nq),
    Rows("state", lambda n: n.nstate, "before a step that is split"),
)
LinearRows = LINEAR.struct


@wp.struct
class LinearJob:
    """What a linearisation is told: the job of a step, where its own things stand, and the columns of a Jacobian."""

    job: Job
    place: LinearRows
    columns: int


@wp.func
def write_motions(
    job: Job, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
    bodies: wp.array2d(dtype=Any), axes: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the motions of bodies and dofs, and each body's own share of the sums: eqs. (2), (3) and (6)."""
    topology = job.scene.topology
    poses = rows_from(scratch, job.scratch.poses)
    qd = rows_from(scratch, job.scratch.qd)
    acceleration = rows_from(scratch, job.scratch.acceleration)
    inertias = rows_from(parameters, job.parameters.inertias)
    zero = scratch.dtype(0.0)
    half = scratch.dtype(0.5)
    two = scratch.dtype(2.0)
    nothing = wp.vector(zero, zero, zero, zero, zero, zero)
    ground = world_acceleration(rows_from(parameters, job.parameters.gravity), w)
    for i in range(topology.nbody):
        parent = topology.parent[i]
        row = i * BODY_ROWS
        R = load33(poses, i * POSE_ROWS, w)
        p = load3(poses, i * POSE_ROWS + 9, w)
        origin = p
        V_P = nothing
        A_P = ground
        N_P = nothing
        if parent >= 0:
            above = parent * BODY_ROWS
            origin = load3(bodies, above + ORIGIN, w)
            V_P = load6(bodies, above + VELOCITY, w)
            A_P = load6(bodies, above + ACCELERATION, w)
            N_P = load6(bodies, above + NEXT_VELOCITY, w)
        arm = p - origin
        # the joint's motions under qd, acceleration and new velocity: dof by dof
        rate = nothing
        A = A_P
        N = N_P
        for k in range(joint_nv(topology, i)):
            v = topology.v_start[i] + k
            S = joint_world_axis(topology, i, k, R, arm)
            rate = rate + qd[v, w] * S
            A = A + acceleration[v, w] * S
            N = N + scratch[job.scratch.velocity + v, w] * S
        V = V_P + rate
        A = A + cross_motion(V, rate)
        for k in range(joint_nv(topology, i)):
            S = joint_world_axis(topology, i, k, R, arm)
            at = (topology.v_start[i] + k) * AXIS_ROWS
            turned = cross_motion(V_P, S)
            store(axes, at + AXIS, w, S)
            store(axes, at + TURNED, w, turned)
            store(axes, at + TURNED_TWICE, w, cross_motion(A_P, S) + cross_motion(V_P, turned))
            store(axes, at + RATE, w, cross_motion(V, S) + turned)
            store(axes, at + NEXT_TURNED, w, cross_motion(N_P, S))
        store(bodies, row + ORIGIN, w, origin)
        store(bodies, row + VELOCITY, w, V)
        store(bodies, row + ACCELERATION, w, A)
        store(bodies, row + NEXT_VELOCITY, w, N)
        # inertia, momentum and force of the body alone
        m = inertias[i * INERTIA_ROWS, w]
        h = R * load3(inertias, i * INERTIA_ROWS + 1, w)
        J = rotate_symmetric(R, load6(inertias, i * INERTIA_ROWS + 4, w)) - times_skew_symmetrized(
            skew(h + (half * m) * arm), arm
        )
        c = h + m * arm
        momentum = inertia_times(m, c, J, V)
        F = inertia_times(m, c, J, A) + cross_force(V, momentum)
        # eq. (6)
        W = skew_times_symmetric(angular(V), J) - wp.outer(c, linear(V))
        along = two * wp.dot(c, linear(V))
        Y = upper_triangle(W + wp.transpose(W)) + wp.vector(along, zero, zero, along, zero, along)
        bodies[row + SUMS, w] = m
        store(bodies, row + FIRST_MOMENT, w, c)
        store(bodies, row + ROTATIONAL, w, J)
        store(bodies, row + TURNING, w, Y)
        store(bodies, row + MOMENTUM, w, momentum)
        store(bodies, row + FORCE, w, F)
        store(bodies, row + IMPULSE, w, nothing)
        store33(bodies, row + TORQUE_BY_VELOCITY, w, R - R)
        store33(bodies, row + TORQUE_BY_TURNING, w, R - R)


@wp.func
def is_vertex_on_plane(scene: Scene, pair: int):
    """Tell whether a pair is a vertex with a radius over a plane, whose contact is written down: eq. (13)."""
    return scene.shape_kind[scene.pair_a[pair]] < PLANE and scene.shape_kind[scene.pair_b[pair]] == PLANE


@wp.func
def vertex_height(
    scene: Scene, c: int, pair: int, shapes: wp.array2d(dtype=Any), contacts: wp.array2d(dtype=Any), w: int
):
    """Return how far the vertex is from the point of its contact with a plane."""
    radius = shapes[scene.pair_a[pair] * SHAPE_ROWS + RADIUS, w]
    return contacts.dtype(0.5) * contacts[c * CONTACT_ROWS + GAP, w] + radius


@wp.func
def write_impulses(
    job: Job, nc: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
    bodies: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the impulses of contacts, and what they do as a vertex moves over a plane, to those of bodies: eq. (24)."""
    scene = job.scene
    contacts = rows_from(scratch, job.scratch.contacts)
    shapes = rows_from(parameters, job.parameters.shapes)
    for c in range(nc):
        impulse = load3(scratch, job.scratch.lam + 3 * c, w)
        if impulse[0] > impulse.dtype(0.0):
            pair = int(contacts[c * CONTACT_ROWS + PAIR, w])
            point = load3(contacts, c * CONTACT_ROWS + POINT, w)
            n = load3(contacts, c * CONTACT_ROWS + NORMAL, w)
            t1 = load3(scratch, job.scratch.blocks + c * BLOCK_ROWS + TANGENT, w)
            f = impulse[0] * n + impulse[1] * t1 + impulse[2] * wp.cross(n, t1)
            for side in range(2):
                body = scene.shape_body[scene.pair_a[pair]]
                if side == 1:
                    body = scene.shape_body[scene.pair_b[pair]]
                    f = -f
                if body >= 0:
                    arm = point - load3(bodies, body * BODY_ROWS + ORIGIN, w)
                    accumulate(bodies, body * BODY_ROWS + IMPULSE, w, spatial(wp.cross(arm, f), f))
                    if side == 0 and is_vertex_on_plane(scene, pair):
                        vertex = arm + vertex_height(scene, c, pair, shapes, contacts, w) * n
                        by_velocity = wp.outer(wp.cross(f, n), f.dtype(0.5) * n) - skew(f)
                        accumulate33(bodies, body * BODY_ROWS + TORQUE_BY_VELOCITY, w, by_velocity)
                        accumulate33(bodies, body * BODY_ROWS + TORQUE_BY_TURNING, w, -(by_velocity * skew(vertex)))


@wp.func
def gather(scene: Scene, dt: Any, w: int, bodies: wp.array2d(dtype=Any), axes: wp.array2d(dtype=Any)):
    """Sum over all that is outboard of each joint, and write what other dofs feel of its dofs: eqs. (7), (8), (24)."""
    topology = scene.topology
    two = bodies.dtype(2.0)
    for b in range(topology.nbody):
        i = topology.nbody - 1 - b
        row = i * BODY_ROWS
        m = bodies[row + SUMS, w]
        c = load3(bodies, row + FIRST_MOMENT, w)
        J = load6(bodies, row + ROTATIONAL, w)
        Y = load6(bodies, row + TURNING, w)
        momentum = load6(bodies, row + MOMENTUM, w)
        F = load6(bodies, row + FORCE, w)
        P = load6(bodies, row + IMPULSE, w)
        by_velocity = load33(bodies, row + TORQUE_BY_VELOCITY, w)
        by_turning = load33(bodies, row + TORQUE_BY_TURNING, w)
        k = angular(momentum)
        l2 = two * linear(momentum)
        for j in range(joint_nv(topology, i)):
            at = (topology.v_start[i] + j) * AXIS_ROWS
            S = load6(axes, at + AXIS, w)
            turned = angular(load6(axes, at + TURNED, w))
            n = angular(S)
            store(axes, at + INERTIAL, w, inertia_times(m, c, J, S))
            store(axes, at + GYROSCOPIC, w, symmetric_times(Y, n) + wp.cross(k, n) + wp.cross(l2, linear(S)))
            store(axes, at + CARRIED, w, cross_force(S, P) + spatial(n * by_turning, n * by_velocity))
            felt = (
                inertia_times(m, c, J, load6(axes, at + TURNED_TWICE, w))
                + spatial(symmetric_times(Y, turned) - wp.cross(k, turned), wp.cross(turned, l2))
                + cross_force(S, F)
            )
            torque = by_turning * n + by_velocity * linear(S)
            store(axes, at + FELT_INBOARD, w, spatial(torque - dt * angular(felt), -dt * linear(felt)))
            felt_rate = inertia_times(m, c, J, load6(axes, at + RATE, w)) + spatial(
                symmetric_times(Y, n) - wp.cross(k, n), wp.cross(n, l2)
            )
            store(axes, at + RATE_INBOARD, w, -dt * felt_rate)
        parent = topology.parent[i]
        if parent >= 0:
            above = parent * BODY_ROWS
            bodies[above + SUMS, w] = bodies[above + SUMS, w] + m
            accumulate(bodies, above + FIRST_MOMENT, w, c)
            accumulate(bodies, above + ROTATIONAL, w, J)
            accumulate(bodies, above + TURNING, w, Y)
            accumulate(bodies, above + MOMENTUM, w, momentum)
            accumulate(bodies, above + FORCE, w, F)
            accumulate(bodies, above + IMPULSE, w, P)
            accumulate33(bodies, above + TORQUE_BY_VELOCITY, w, by_velocity)
            accumulate33(bodies, above + TORQUE_BY_TURNING, w, by_turning)


@wp.func
def outboard_entry(axes: wp.array2d(dtype=Any), alpha: Any, beta: Any, carried: Any, inner: int, dt: Any, w: int):
    """Return the change of the force on a dof as `inner`, inboard of it or in its joint, moves: eq. (9)."""
    n = inner * AXIS_ROWS
    S = load6(axes, n + AXIS, w)
    by_q = wp.dot(alpha, load6(axes, n + TURNED_TWICE, w)) + wp.dot(beta, load3(axes, n + TURNED, w))
    by_qd = wp.dot(alpha, load6(axes, n + RATE, w)) + wp.dot(beta, angular(S))
    return wp.dot(carried, S) - dt * by_q, -dt * by_qd


@wp.func
def write_dynamics(
    scene: Scene, columns: int, dt: Any, w: int, axes: wp.array2d(dtype=Any), change: wp.array2d(dtype=Any)
):  # fmt: skip
    """Write -dt dID + dJ^T lam by coordinates and velocities, all but what eq. (14) adds: eqs. (9) and (10)."""
    nv = scene.topology.nv
    for i in range(nv):
        body = scene.dof_body[i]
        row = i * AXIS_ROWS
        alpha = load6(axes, row + INERTIAL, w)
        beta = load3(axes, row + GYROSCOPIC, w)
        carried = load6(axes, row + CARRIED, w)
        felt = load6(axes, row + FELT_INBOARD, w)
        felt_rate = load6(axes, row + RATE_INBOARD, w)
        j = int(i)
        while j >= 0:
            by_q, by_qd = outboard_entry(axes, alpha, beta, carried, j, dt, w)
            change[i * columns + j, w] = by_q
            change[i * columns + nv + j, w] = by_qd
            if scene.dof_body[j] != body:
                S = load6(axes, j * AXIS_ROWS + AXIS, w)
                change[j * columns + i, w] = wp.dot(S, felt)
                change[j * columns + nv + i, w] = wp.dot(S, felt_rate)
            j = scene.dof_parent[j]
        # the dofs of its own joint that come after it
        last = scene.topology.v_start[body] + joint_nv(scene.topology, body)
        for k in range(i + 1, last):
            by_q, by_qd = outboard_entry(axes, alpha, beta, carried, k, dt, w)
            change[i * columns + k, w] = by_q
            change[i * columns + nv + k, w] = by_qd
