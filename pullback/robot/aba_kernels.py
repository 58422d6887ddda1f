"""Forward dynamics by the articulated-body algorithm, and its adjoint (docs/derivations/forward_dynamics.md).

Leaves to root, each body with its articulated inertia IA and bias force pA, U = IA S, D = S^T U + armature:

    IA_P += X^T (IA - U D^-1 U^T) X                                        (1)
    u = tau - friction - S^T pA
    pA_P += X^T (pA + (IA - U D^-1 U^T) c + U D^-1 u),    c = V x S qd     (2)

then root to leaves: a' = X A_P + c,  qdd = D^-1 (u - U^T a'),  A = a' + S qdd   (3)

The adjoint never walks this backwards: with M mu = adj_qdd it is the adjoint of inverse dynamics for -mu.
The articulated inertia is kept as blocks [[rotational, coupling], [coupling^T, translational]].
"""

from functools import cache
from typing import Any

import warp as wp

from pullback.robot.joint_kernels import joint_dofs, joint_motion, joint_pose
from pullback.robot.rnea_kernels import (
    body_inertia_times,
    inverse_dynamics_vjp,
    joint_friction,
    world_acceleration,
)
from pullback.robot.topology import ARMATURE, BALL, DOF_ROWS, INERTIA_ROWS, PRISMATIC, REVOLUTE, Topology
from pullback.spatial.arrays import (
    accumulate,
    accumulate33,
    load3,
    load6,
    load33,
    load_symmetric,
    store,
    store33,
    upper_triangle,
)
from pullback.spatial.vectors import (
    angular,
    cross_force,
    cross_motion,
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


@wp.func
def start_articulated_inertia(inertias: wp.array2d(dtype=Any), i: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Set the articulated inertia of body i to its own rigid inertia."""
    row = i * ROWS
    m = inertias[i * INERTIA_ROWS, w]
    zero = m - m
    store(scratch, row + ROTATIONAL, w, load6(inertias, i * INERTIA_ROWS + 4, w))
    store33(scratch, row + COUPLING, w, skew(load3(inertias, i * INERTIA_ROWS + 1, w)))
    store(scratch, row + TRANSLATIONAL, w, wp.vector(m, zero, zero, m, zero, m))


@wp.func
def joint_column(kind: int, J: Any, H: Any, T: Any):
    """Return U = IA S of a one-dof joint: the last column of the rotational or of the translational half."""
    U = wp.vector(H[0, 2], H[1, 2], H[2, 2], T[2], T[4], T[5])
    if kind == REVOLUTE:
        U = wp.vector(J[2], J[4], J[5], H[2, 0], H[2, 1], H[2, 2])
    return U


@wp.func
def joint_component(kind: int, x: Any):
    """Return S^T x of a one-dof joint."""
    component = x[5]
    if kind == REVOLUTE:
        component = x[2]
    return component


@wp.func
def add_armature(block: Any, dofs: wp.array2d(dtype=Any), v: int, w: int):
    """Return the symmetric 3x3 block with the armature of dofs v, v+1, v+2 on its diagonal."""
    row = DOF_ROWS * v + ARMATURE
    return block + wp.diag(wp.vector(dofs[row, w], dofs[row + DOF_ROWS, w], dofs[row + 2 * DOF_ROWS, w]))


@wp.func
def solve_free(dofs: wp.array2d(dtype=Any), vi: int, i: int, w: int, scratch: wp.array2d(dtype=Any), f: Any):
    """Return (IA + armature)^-1 f for a free body, by blocks."""
    row = i * ROWS
    coupling = load33(scratch, row + COUPLING, w)
    rotational = add_armature(load_symmetric(scratch, row + ROTATIONAL, w), dofs, vi, w)
    mobility = wp.inverse(add_armature(load_symmetric(scratch, row + TRANSLATIONAL, w), dofs, vi + 3, w))
    reduced = wp.inverse(rotational - coupling * mobility * wp.transpose(coupling))
    x = reduced * (angular(f) - coupling * (mobility * linear(f)))
    return spatial(x, mobility * (linear(f) - x * coupling))


@wp.func
def ball_response(J: Any, dofs: wp.array2d(dtype=Any), vi: int, w: int):
    """Return D^-1 of a ball joint with the rotational inertia J."""
    full = wp.matrix_from_rows(
        wp.vector(J[0], J[1], J[2]), wp.vector(J[1], J[3], J[4]), wp.vector(J[2], J[4], J[5])
    )
    return wp.inverse(add_armature(full, dofs, vi, w))


@wp.func
def add_inertia_to_parent(
    R: Any, p: Any, rotational: Any, coupling: Any, translational: Any, parent: int, w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the inertia given by its blocks in a child's frame, X^T I X, to the articulated inertia of the parent."""
    row = parent * ROWS
    T = rotate_symmetric(R, translational)
    H = R * coupling * wp.transpose(R)
    pxT = skew_times_symmetric(p, T)
    # J - G [p]x - (G [p]x)^T with G = H + [p]x T / 2
    J = rotate_symmetric(R, rotational) - times_skew_symmetrized(H + T.dtype(0.5) * pxT, p)
    accumulate(scratch, row + ROTATIONAL, w, J)
    accumulate33(scratch, row + COUPLING, w, H + pxT)
    accumulate(scratch, row + TRANSLATIONAL, w, T)


@wp.func
def hand_to_parent(
    kind: int, parent: int, vi: int, i: int, w: int, c: Any, force: wp.array2d(dtype=Any),
    dofs: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write u of body i's joint, and hand what its giving way leaves of inertia and bias to the parent: eqs. (1), (2)."""
    row = i * ROWS
    J = load6(scratch, row + ROTATIONAL, w)
    H = load33(scratch, row + COUPLING, w)
    T = load6(scratch, row + TRANSLATIONAL, w)
    bias = load6(scratch, row + BIAS, w)
    handed = bias + spatial(
        symmetric_times(J, angular(c)) + H * linear(c), angular(c) * H + symmetric_times(T, linear(c))
    )
    if kind <= PRISMATIC:
        U = joint_column(kind, J, H, T)
        D = joint_component(kind, U) + dofs[DOF_ROWS * vi + ARMATURE, w]
        u = force[vi, w] - joint_component(kind, bias)
        scratch[row + BIAS, w] = u
        handed = handed + ((u - wp.dot(U, c)) / D) * U
        n = angular(U)
        f = linear(U)
        n_D = n / D
        f_D = f / D
        J = J - symmetric_outer(n, n_D)
        H = H - wp.outer(n, f_D)
        T = T - symmetric_outer(f, f_D)
    elif kind == BALL:
        u3 = load3(force, vi, w) - angular(bias)
        store(scratch, row + BIAS, w, u3)
        response = ball_response(J, dofs, vi, w)
        x = response * (u3 + angular(bias) - angular(handed))
        handed = handed + spatial(symmetric_times(J, x), x * H)
        square = load_symmetric(scratch, row + ROTATIONAL, w)
        JD = square * response
        T = T - upper_triangle(wp.transpose(H) * response * H)
        H = H - JD * H
        J = J - upper_triangle(JD * square)
    else:
        u6 = load6(force, vi, w)
        store(scratch, row + BIAS, w, u6 - bias)
        handed = u6
    if parent >= 0:
        R = load33(scratch, row + POSE, w)
        p = load3(scratch, row + POSE + 9, w)
        accumulate(scratch, parent * ROWS + BIAS, w, force_to_parent(R, p, handed))
        if kind <= BALL:
            add_inertia_to_parent(R, p, J, H, T, parent, w, scratch)


@wp.func
def articulated_times(i: int, w: int, scratch: wp.array2d(dtype=Any), x: Any):
    """Return IA x."""
    row = i * ROWS
    H = load33(scratch, row + COUPLING, w)
    return spatial(
        load_symmetric(scratch, row + ROTATIONAL, w) * angular(x) + H * linear(x),
        angular(x) * H + load_symmetric(scratch, row + TRANSLATIONAL, w) * linear(x),
    )


@wp.func
def respond(
    kind: int, vi: int, i: int, w: int, a: Any, dofs: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
    out: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the joint's acceleration for u and the acceleration `a` it is carried with: eq. (3)."""
    row = i * ROWS
    if kind <= PRISMATIC:
        U = joint_column(
            kind, load6(scratch, row + ROTATIONAL, w), load33(scratch, row + COUPLING, w), load6(scratch, row + TRANSLATIONAL, w)
        )
        D = joint_component(kind, U) + dofs[DOF_ROWS * vi + ARMATURE, w]
        out[vi, w] = (scratch[row + BIAS, w] - wp.dot(U, a)) / D
    elif kind == BALL:
        u3 = load3(scratch, row + BIAS, w) - angular(articulated_times(i, w, scratch, a))
        store(out, vi, w, ball_response(load6(scratch, row + ROTATIONAL, w), dofs, vi, w) * u3)
    else:
        u6 = load6(scratch, row + BIAS, w) - articulated_times(i, w, scratch, a)
        store(out, vi, w, solve_free(dofs, vi, i, w, scratch, u6))


@wp.func
def forward_dynamics(
    # model
    topology: Topology,
    # in
    q: wp.array2d(dtype=Any),
    qd: wp.array2d(dtype=Any),
    tau: wp.array2d(dtype=Any),
    external: wp.array2d(dtype=Any),
    gravity: wp.array2d(dtype=Any),
    placements: wp.array2d(dtype=Any),
    inertias: wp.array2d(dtype=Any),
    dofs: wp.array2d(dtype=Any),
    w: int,
    # out
    qdd: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):
    """Write the joint accelerations of world w under the joint forces tau."""
    zero = q.dtype(0.0)
    # velocities and bias forces, root to leaves
    for i in range(topology.nbody):
        kind = topology.kind[i]
        parent = topology.parent[i]
        vi = topology.v_start[i]
        row = i * ROWS
        R, p = joint_pose(kind, placements, i, q, topology.q_start[i], w)
        V = wp.vector(zero, zero, zero, zero, zero, zero)
        if parent >= 0:
            V = motion_to_child(R, p, load6(scratch, parent * ROWS + VELOCITY, w))
        V = V + joint_motion(kind, qd, vi, w)
        F = cross_force(V, body_inertia_times(inertias, i, w, V))
        if external:
            F = F - load6(external, 6 * i, w)
        store33(scratch, row + POSE, w, R)
        store(scratch, row + POSE + 9, w, p)
        store(scratch, row + VELOCITY, w, V)
        store(scratch, row + BIAS, w, F)
        start_articulated_inertia(inertias, i, w, scratch)
        # qdd holds the force that acts on the joint until it is known
        for k in range(joint_dofs(kind)):
            qdd[vi + k, w] = tau[vi + k, w] - joint_friction(dofs, vi + k, qd[vi + k, w], w)
    # articulated inertias, leaves to root
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        kind = topology.kind[i]
        parent = topology.parent[i]
        vi = topology.v_start[i]
        c = cross_motion(load6(scratch, i * ROWS + VELOCITY, w), joint_motion(kind, qd, vi, w))
        hand_to_parent(kind, parent, vi, i, w, c, qdd, dofs, scratch)
    # accelerations, root to leaves
    for i in range(topology.nbody):
        kind = topology.kind[i]
        parent = topology.parent[i]
        vi = topology.v_start[i]
        row = i * ROWS
        c = cross_motion(load6(scratch, row + VELOCITY, w), joint_motion(kind, qd, vi, w))
        A = world_acceleration(gravity, w)
        if parent >= 0:
            A = load6(scratch, parent * ROWS + VELOCITY, w)
        a = motion_to_child(load33(scratch, row + POSE, w), load3(scratch, row + POSE + 9, w), A) + c
        respond(kind, vi, i, w, a, dofs, scratch, qdd)
        store(scratch, row + VELOCITY, w, a + joint_motion(kind, qdd, vi, w))


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
        R, p = joint_pose(topology.kind[i], placements, i, q, topology.q_start[i], w)
        store33(scratch, row + POSE, w, R)
        store(scratch, row + POSE + 9, w, p)
        store(scratch, row + BIAS, w, nothing)
        start_articulated_inertia(inertias, i, w, scratch)
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        vi = topology.v_start[i]
        hand_to_parent(topology.kind[i], topology.parent[i], vi, i, w, nothing, force, dofs, scratch)
    for i in range(topology.nbody):
        kind = topology.kind[i]
        parent = topology.parent[i]
        row = i * ROWS
        a = nothing
        if parent >= 0:
            A = load6(scratch, parent * ROWS + VELOCITY, w)
            a = motion_to_child(load33(scratch, row + POSE, w), load3(scratch, row + POSE + 9, w), A)
        respond(kind, topology.v_start[i], i, w, a, dofs, scratch, x)
        store(scratch, row + VELOCITY, w, a + joint_motion(kind, x, topology.v_start[i], w))


@cache
def kernels(real: type):
    """Return the forward and vjp kernels for one floating-point type."""
    a = wp.array2d(dtype=real)

    @wp.kernel(module=f"pullback.aba.{real.__name__}", enable_backward=False)
    def forward(
        topology: Topology, q: a, qd: a, tau: a, external: a, gravity: a, placements: a, inertias: a, dofs: a,
        qdd: a, scratch: a,
    ):  # fmt: skip
        w = wp.tid()
        forward_dynamics(topology, q, qd, tau, external, gravity, placements, inertias, dofs, w, qdd, scratch)

    @wp.kernel(module=f"pullback.aba_vjp.{real.__name__}", enable_backward=False)
    def vjp(
        topology: Topology, q: a, qd: a, tau: a, external: a, gravity: a, placements: a, inertias: a, dofs: a,
        qdd: a, adj_qdd: a,
        adj_q: a, adj_qd: a, adj_tau: a, adj_external: a, adj_gravity: a, adj_placements: a, adj_inertias: a,
        adj_dofs: a, scratch: a, mu: a, nowhere: a,
    ):  # fmt: skip
        w = wp.tid()
        solve_mass_matrix(topology, q, placements, inertias, dofs, adj_qdd, w, mu, scratch)
        for v in range(topology.nv):
            if adj_tau:
                adj_tau[v, w] = adj_tau[v, w] + mu[v, w]
            mu[v, w] = -mu[v, w]
        inverse_dynamics_vjp(
            topology, q, qd, qdd, external, gravity, placements, inertias, dofs, mu, w,
            adj_q, adj_qd, nowhere, adj_external, adj_gravity, adj_placements, adj_inertias, adj_dofs, scratch,
        )  # fmt: skip

    return forward, vjp
