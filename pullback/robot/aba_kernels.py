"""Forward dynamics by the articulated-body algorithm, and its adjoint (docs/derivations/forward_dynamics.md).

Leaves to root, each body with its articulated inertia IA and bias force pA, U = IA S, D = S^T U + armature:

    IA_P += X^T (IA - U D^-1 U^T) X                                        (1)
    u = tau - friction - S^T pA
    pA_P += X^T (pA + (IA - U D^-1 U^T) c + U D^-1 u),    c = V x S qd     (2)

then root to leaves: a' = X A_P + c,  qdd = D^-1 (u - U^T a'),  A = a' + S qdd   (3)

The adjoint never walks this backwards: with M mu = adj_qdd it is the adjoint of inverse dynamics for -mu.
The articulated inertia is kept as blocks [[rotational, coupling], [coupling^T, translational]].
"""

from typing import Any

import warp as wp

from pullback.core.array_struct import array_struct
from pullback.core.lanes import Lanes
from pullback.core.modules import kernel_module, made_once
from pullback.robot.joint_kernels import (
    joint_bias,
    joint_component,
    joint_inertia_column,
    joint_is_hinge,
    joint_motion,
    joint_nv,
    joint_pose,
)
from pullback.robot.rnea_kernels import (
    ROBOT_ROWS,
    body_inertia_times,
    inverse_dynamics_vjp,
    joint_friction,
    world_acceleration,
)
from pullback.robot.topology import ARMATURE, DOF_ROWS, INERTIA_ROWS, Topology
from pullback.spatial.arrays import (
    accumulate,
    accumulate33,
    full_symmetric,
    load3,
    load6,
    load33,
    store,
    store33,
    upper_triangle,
)
from pullback.spatial.vectors import (
    angular,
    cross_force,
    force_to_parent,
    linear,
    motion_to_child,
    rotate_symmetric,
    skew,
    skew_times_symmetric,
    spatial,
    symmetric_outer,
    symmetric_times,
    times_skew_symmetrized,
)

# rows of scratch a body
POSE = wp.constant(0)
VELOCITY = wp.constant(12)  # overwritten by the acceleration on the last sweep
ROTATIONAL = wp.constant(18)
COUPLING = wp.constant(24)
TRANSLATIONAL = wp.constant(33)
BIAS = wp.constant(39)  # overwritten by u, the force the joint still has to spend
ROWS = wp.constant(45)

# a one-dof joint keeps U and 1/D in the place of its articulated inertia
COLUMN = wp.constant(18)
INVERSE_D = wp.constant(24)


@wp.func
def rigid_coupling(inertias: wp.array2d(dtype=Any), i: int, w: int):
    """Return the coupling block of body i's own rigid inertia."""
    return skew(load3(inertias, i * INERTIA_ROWS + 1, w))


@wp.func
def rigid_translational(inertias: wp.array2d(dtype=Any), i: int, w: int):
    """Return the translational block of body i's own rigid inertia."""
    m = inertias[i * INERTIA_ROWS, w]
    zero = m - m
    return wp.vector(m, zero, zero, m, zero, m)


@wp.func
def add_armature(block: Any, dofs: wp.array2d(dtype=Any), v: int, w: int):
    """Return the symmetric 3x3 block with the armature of dofs v, v+1, v+2 on its diagonal."""
    row = DOF_ROWS * v + ARMATURE
    return block + wp.diag(wp.vector(dofs[row, w], dofs[row + DOF_ROWS, w], dofs[row + 2 * DOF_ROWS, w]))


@wp.func
def inverse_or_nan(m: Any):
    """Return the inverse of a 3x3 matrix; a singular one gives NaN, where Warp's own inverse gives zeros."""
    determinant = wp.determinant(m)
    return (determinant / determinant) * wp.inverse(m)


@wp.func
def solve_free(J: Any, H: Any, T: Any, dofs: wp.array2d(dtype=Any), vi: int, w: int, f: Any):
    """Return (IA + armature)^-1 f for a free body, by blocks."""
    rotational = add_armature(full_symmetric(J), dofs, vi, w)
    mobility = inverse_or_nan(add_armature(full_symmetric(T), dofs, vi + 3, w))
    reduced = inverse_or_nan(rotational - H * mobility * wp.transpose(H))
    x = reduced * (angular(f) - H * (mobility * linear(f)))
    return spatial(x, mobility * (linear(f) - x * H))


@wp.func
def ball_response(J: Any, dofs: wp.array2d(dtype=Any), vi: int, w: int):
    """Return D^-1 of a ball joint with the rotational inertia J."""
    return inverse_or_nan(add_armature(full_symmetric(J), dofs, vi, w))


@wp.func
def add_inertia_to_parent(
    topology: Topology, i: int, p: Any, rotational: Any, coupling: Any, translational: Any,
    inertias: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add an inertia at body i's origin, its blocks in the parent's axes, to the articulated inertia of the parent."""
    parent = topology.parent[i]
    row = parent * ROWS
    T = translational
    pxT = skew_times_symmetric(p, T)
    # J - G [p]x - (G [p]x)^T with G = H + [p]x T / 2
    J = rotational - times_skew_symmetrized(coupling + T.dtype(0.5) * pxT, p)
    H = coupling + pxT
    if topology.reaches_first[i]:
        store(scratch, row + ROTATIONAL, w, J + load6(inertias, parent * INERTIA_ROWS + 4, w))
        store33(scratch, row + COUPLING, w, H + rigid_coupling(inertias, parent, w))
        store(scratch, row + TRANSLATIONAL, w, T + rigid_translational(inertias, parent, w))
    else:
        accumulate(scratch, row + ROTATIONAL, w, J)
        accumulate33(scratch, row + COUPLING, w, H)
        accumulate(scratch, row + TRANSLATIONAL, w, T)


@wp.func
def hand_to_parent(
    topology: Topology, i: int, moves: bool, c: Any, force: wp.array2d(dtype=Any), inertias: wp.array2d(dtype=Any),
    dofs: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write u of body i's joint, and hand what its giving way leaves of inertia and bias to the parent: eqs. (1), (2).

    Unless the robot moves, c is zero and left out.
    """
    nv = joint_nv(topology, i)
    vi = topology.v_start[i]
    row = i * ROWS
    J = load6(inertias, i * INERTIA_ROWS + 4, w)
    H = rigid_coupling(inertias, i, w)
    T = rigid_translational(inertias, i, w)
    if not topology.is_leaf[i]:
        J = load6(scratch, row + ROTATIONAL, w)
        H = load33(scratch, row + COUPLING, w)
        T = load6(scratch, row + TRANSLATIONAL, w)
    R = load33(scratch, row + POSE, w)
    handed = load6(scratch, row + BIAS, w)
    is_planar = bool(False)
    if nv == 1:
        U = joint_inertia_column(topology, i, J, H, T)
        armature = dofs[DOF_ROWS * vi + ARMATURE, w]
        inverse_D = U.dtype(1.0) / (joint_component(topology, i, 0, U) + armature)
        u = force[vi, w] - joint_component(topology, i, 0, handed)
        scratch[row + BIAS, w] = u
        scratch[row + INVERSE_D, w] = inverse_D
        store(scratch, row + COLUMN, w, U)
        n = angular(U)
        f = linear(U)
        handed = handed + (u * inverse_D) * U
        T = T - symmetric_outer(f, inverse_D * f)
        is_planar = joint_is_hinge(topology, i) and armature == U.dtype(0.0)
        if is_planar:
            # no inertia is left about the joint's axis: two rows of J and H suffice
            x = inverse_D * n[0]
            y = inverse_D * n[1]
            xx = J[0] - x * n[0]
            xy = J[1] - x * n[1]
            yy = J[3] - y * n[1]
            h_x = wp.vector(H[0, 0], H[0, 1], H[0, 2]) - x * f
            h_y = wp.vector(H[1, 0], H[1, 1], H[1, 2]) - y * f
            if moves:
                turned = symmetric_times(T, linear(c)) + c[0] * h_x + c[1] * h_y
                handed = handed + wp.vector(
                    xx * c[0] + xy * c[1] + h_x[0] * c[3] + h_x[1] * c[4],
                    xy * c[0] + yy * c[1] + h_y[0] * c[3] + h_y[1] * c[4],
                    U.dtype(0.0), turned[0], turned[1], turned[2],
                )  # fmt: skip
            e_x = wp.vector(R[0, 0], R[1, 0], R[2, 0])
            e_y = wp.vector(R[0, 1], R[1, 1], R[2, 1])
            H = wp.outer(e_x, R * h_x) + wp.outer(e_y, R * h_y)
            J = symmetric_outer(e_x, xx * e_x + xy * e_y) + symmetric_outer(e_y, xy * e_x + yy * e_y)
        else:
            J = J - symmetric_outer(n, inverse_D * n)
            H = H - wp.outer(n, inverse_D * f)
    else:
        # these joints need their whole inertia again on the last sweep
        store(scratch, row + ROTATIONAL, w, J)
        store33(scratch, row + COUPLING, w, H)
        store(scratch, row + TRANSLATIONAL, w, T)
        if nv == 3:
            u3 = load3(force, vi, w) - angular(handed)
            store(scratch, row + BIAS, w, u3)
            response = ball_response(J, dofs, vi, w)
            x3 = response * u3
            handed = handed + spatial(symmetric_times(J, x3), x3 * H)
            square = full_symmetric(J)
            JD = square * response
            T = T - upper_triangle(wp.transpose(H) * response * H)
            H = H - JD * H
            J = J - upper_triangle(JD * square)
        else:
            u6 = load6(force, vi, w)
            store(scratch, row + BIAS, w, u6 - handed)
            handed = u6
            J = J - J
            H = H - H
            T = T - T
    if not is_planar:
        if moves:
            handed = handed + articulated_times(J, H, T, c)
        J = rotate_symmetric(R, J)
        H = R * H * wp.transpose(R)
    if topology.parent[i] >= 0:
        p = load3(scratch, row + POSE + 9, w)
        accumulate(scratch, topology.parent[i] * ROWS + BIAS, w, force_to_parent(R, p, handed))
        add_inertia_to_parent(topology, i, p, J, H, rotate_symmetric(R, T), inertias, w, scratch)


@wp.func
def articulated_times(J: Any, H: Any, T: Any, x: Any):
    """Return IA x for an articulated inertia given by its blocks."""
    return spatial(symmetric_times(J, angular(x)) + H * linear(x), angular(x) * H + symmetric_times(T, linear(x)))


@wp.func
def respond(
    topology: Topology, i: int, a: Any, dofs: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
    out: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the acceleration of body i's joint for u and the acceleration `a` it is carried with: eq. (3)."""
    nv = joint_nv(topology, i)
    vi = topology.v_start[i]
    row = i * ROWS
    if nv == 1:
        U = load6(scratch, row + COLUMN, w)
        out[vi, w] = (scratch[row + BIAS, w] - wp.dot(U, a)) * scratch[row + INVERSE_D, w]
    else:
        J = load6(scratch, row + ROTATIONAL, w)
        H = load33(scratch, row + COUPLING, w)
        T = load6(scratch, row + TRANSLATIONAL, w)
        Ia = articulated_times(J, H, T, a)
        if nv == 3:
            u3 = load3(scratch, row + BIAS, w) - angular(Ia)
            store(out, vi, w, ball_response(J, dofs, vi, w) * u3)
        else:
            store(out, vi, w, solve_free(J, H, T, dofs, vi, w, load6(scratch, row + BIAS, w) - Ia))


@wp.func
def forward_dynamics(
    # model
    topology: Topology,
    # in
    q: wp.array2d(dtype=Any),
    qd: wp.array2d(dtype=Any),
    tau: wp.array2d(dtype=Any),
    robot: Any,
    w: int,
    # out
    qdd: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):
    """Write the joint accelerations of world w under the joint forces tau."""
    placements = robot.placements
    inertias = robot.inertias
    dofs = robot.dofs
    zero = q.dtype(0.0)
    # velocities and bias forces, root to leaves
    for i in range(topology.nbody):
        parent = topology.parent[i]
        vi = topology.v_start[i]
        row = i * ROWS
        R, p = joint_pose(topology, i, placements, q, w)
        V = wp.vector(zero, zero, zero, zero, zero, zero)
        if parent >= 0:
            V = motion_to_child(R, p, load6(scratch, parent * ROWS + VELOCITY, w))
        V = V + joint_motion(topology, i, qd, w)
        F = cross_force(V, body_inertia_times(inertias, i, w, V))
        if robot.external:
            F = F - load6(robot.external, 6 * i, w)
        store33(scratch, row + POSE, w, R)
        store(scratch, row + POSE + 9, w, p)
        store(scratch, row + VELOCITY, w, V)
        store(scratch, row + BIAS, w, F)
        # qdd holds the force that acts on the joint until it is known
        for k in range(joint_nv(topology, i)):
            qdd[vi + k, w] = tau[vi + k, w] - joint_friction(dofs, vi + k, qd[vi + k, w], w)
    # articulated inertias, leaves to root
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        V = load6(scratch, i * ROWS + VELOCITY, w)
        c = joint_bias(topology, i, V, qd, w)
        hand_to_parent(topology, i, True, c, qdd, inertias, dofs, w, scratch)
    # accelerations, root to leaves
    for i in range(topology.nbody):
        parent = topology.parent[i]
        row = i * ROWS
        c = joint_bias(topology, i, load6(scratch, row + VELOCITY, w), qd, w)
        A = world_acceleration(robot.gravity, w)
        if parent >= 0:
            A = load6(scratch, parent * ROWS + VELOCITY, w)
        a = motion_to_child(load33(scratch, row + POSE, w), load3(scratch, row + POSE + 9, w), A) + c
        respond(topology, i, a, dofs, w, scratch, qdd)
        store(scratch, row + VELOCITY, w, a + joint_motion(topology, i, qdd, w))


@wp.func
def solve_mass_matrix(
    # model
    topology: Topology,
    # in
    q: wp.array2d(dtype=Any),
    placements: wp.array2d(dtype=Any),
    inertias: wp.array2d(dtype=Any),
    dofs: wp.array2d(dtype=Any),
    force: wp.array2d(dtype=Any),
    w: int,
    # out
    x: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):
    """Write x with M(q) x = force: forward dynamics at rest and without gravity."""
    zero = q.dtype(0.0)
    nothing = wp.vector(zero, zero, zero, zero, zero, zero)
    for i in range(topology.nbody):
        row = i * ROWS
        R, p = joint_pose(topology, i, placements, q, w)
        store33(scratch, row + POSE, w, R)
        store(scratch, row + POSE + 9, w, p)
        store(scratch, row + BIAS, w, nothing)
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        hand_to_parent(topology, i, False, nothing, force, inertias, dofs, w, scratch)
    for i in range(topology.nbody):
        parent = topology.parent[i]
        row = i * ROWS
        a = nothing
        if parent >= 0:
            A = load6(scratch, parent * ROWS + VELOCITY, w)
            a = motion_to_child(load33(scratch, row + POSE, w), load3(scratch, row + POSE + 9, w), A)
        respond(topology, i, a, dofs, w, scratch, x)
        store(scratch, row + VELOCITY, w, a + joint_motion(topology, i, x, w))


@made_once
def kernels(real: type):
    """Return the forward and vjp kernels for one floating-point type."""
    a = wp.array2d(dtype=real)
    Robot = array_struct("robot_rows", ROBOT_ROWS, real)
    Scratch = array_struct("aba_scratch", ("recursion", "mu", "nowhere"), real)

    @wp.kernel(module=kernel_module("aba", real, lanes=Lanes(writes=("qdd",))))
    def forward(topology: Topology, q: a, qd: a, tau: a, robot: Robot, qdd: a, scratch: a):
        w = wp.tid()
        forward_dynamics(topology, q, qd, tau, robot, w, qdd, scratch)

    written = Lanes(writes=("adj_q", "adj_qd", "adj_tau", "adj_robot"))

    @wp.kernel(module=kernel_module("aba_vjp", real, lanes=written))
    def vjp(
        topology: Topology, q: a, qd: a, tau: a, robot: Robot, qdd: a, adj_qdd: a,
        adj_q: a, adj_qd: a, adj_tau: a, adj_robot: Robot, scratch: Scratch,
    ):  # fmt: skip
        w = wp.tid()
        mu = scratch.mu
        solve_mass_matrix(
            topology, q, robot.placements, robot.inertias, robot.dofs, adj_qdd, w, mu, scratch.recursion
        )  # fmt: skip
        for v in range(topology.nv):
            if adj_tau:
                adj_tau[v, w] = adj_tau[v, w] + mu[v, w]
            mu[v, w] = -mu[v, w]
        inverse_dynamics_vjp(
            topology, q, qd, qdd, robot, mu, w, adj_q, adj_qd, scratch.nowhere, adj_robot, scratch.recursion
        )  # fmt: skip

    return forward, vjp
