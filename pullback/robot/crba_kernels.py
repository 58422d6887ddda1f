"""The joint-space mass matrix by the composite-rigid-body algorithm, and its adjoint (docs/derivations/mass_matrix.md).

    Ic = I + sum over children X^T Ic X,    M[j, k] = S_k^T X^T ... X^T Ic S_j      (1)

For the symmetric cotangent G of M the adjoint sums, over the dofs j, that of y^T M z with y = e_j and z = G e_j:

    y^T M z = sum over bodies W^T I Z,   W = X W_P + S y,   Z = X Z_P + S z           (2)
"""

from typing import Any

import warp as wp

from pullback.core.array_struct import array_struct
from pullback.core.lanes import Lanes
from pullback.core.modules import kernel_module, made_once
from pullback.robot.joint_kernels import (
    joint_axis,
    joint_component,
    joint_coordinates_vjp,
    joint_motion,
    joint_nv,
    joint_pose,
    placement_vjp,
)
from pullback.robot.rnea_kernels import body_inertia_times
from pullback.robot.topology import ARMATURE, DOF_ROWS, INERTIA_ROWS, Topology
from pullback.spatial.arrays import accumulate, load3, load6, load33, store, store33
from pullback.spatial.vectors import (
    cross_force,
    force_to_parent,
    inertia_times,
    inertia_vjp,
    motion_to_child,
    rotate_symmetric,
    skew,
    times_skew_symmetrized,
)

# rows of scratch a body
POSE = wp.constant(0)
COMPOSITE = wp.constant(12)
ROWS = wp.constant(22)

# the adjoint of y^T M z keeps W, Z and their cotangents
FIRST = wp.constant(12)
SECOND = wp.constant(18)
ADJ_FIRST = wp.constant(24)
ADJ_SECOND = wp.constant(30)
VJP_ROWS = wp.constant(36)


@wp.func
def add_composite_to_parent(i: int, parent: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Add the composite inertia of body i, X^T Ic X, to its parent's."""
    row = i * ROWS
    R = load33(scratch, row + POSE, w)
    p = load3(scratch, row + POSE + 9, w)
    m = scratch[row + COMPOSITE, w]
    h = R * load3(scratch, row + COMPOSITE + 1, w)
    # J - G [p]x - (G [p]x)^T with G = [h]x + m [p]x / 2
    half = m * p.dtype(0.5)
    J = rotate_symmetric(R, load6(scratch, row + COMPOSITE + 4, w)) - times_skew_symmetrized(skew(h + half * p), p)
    h = h + m * p
    row = parent * ROWS + COMPOSITE
    scratch[row, w] = scratch[row, w] + m
    accumulate(scratch, row + 1, w, h)
    accumulate(scratch, row + 4, w, J)


@wp.func
def mass_matrix(
    # model
    topology: Topology,
    # in
    q: wp.array2d(dtype=Any),
    placements: wp.array2d(dtype=Any),
    inertias: wp.array2d(dtype=Any),
    dofs: wp.array2d(dtype=Any),
    w: int,
    # out
    M: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):
    """Write the mass matrix of world w, row by row, armature included."""
    zero = q.dtype(0.0)
    one = q.dtype(1.0)
    nv = topology.nv
    for r in range(nv * nv):
        M[r, w] = zero
    for i in range(topology.nbody):
        R, p = joint_pose(topology, i, placements, q, w)
        store33(scratch, i * ROWS + POSE, w, R)
        store(scratch, i * ROWS + POSE + 9, w, p)
        for r in range(INERTIA_ROWS):
            scratch[i * ROWS + COMPOSITE + r, w] = inertias[i * INERTIA_ROWS + r, w]
    for b in range(topology.nbody):
        i = topology.nbody - 1 - b
        if topology.parent[i] >= 0:
            add_composite_to_parent(i, topology.parent[i], w, scratch)
        row = i * ROWS + COMPOSITE
        for j in range(joint_nv(topology, i)):
            axis = joint_axis(topology, i, j, one)
            v = topology.v_start[i] + j
            F = inertia_times(scratch[row, w], load3(scratch, row + 1, w), load6(scratch, row + 4, w), axis)
            # the force this dof's acceleration needs, felt by its own joint and by every joint inboard of it
            ancestor = i
            while ancestor >= 0:
                for k in range(joint_nv(topology, ancestor)):
                    u = topology.v_start[ancestor] + k
                    value = joint_component(topology, ancestor, k, F)
                    M[v * nv + u, w] = value
                    M[u * nv + v, w] = value
                R = load33(scratch, ancestor * ROWS + POSE, w)
                p = load3(scratch, ancestor * ROWS + POSE + 9, w)
                F = force_to_parent(R, p, F)
                ancestor = topology.parent[ancestor]
    for v in range(nv):
        M[v * nv + v, w] = M[v * nv + v, w] + dofs[DOF_ROWS * v + ARMATURE, w]


@wp.func
def mass_product_vjp(
    # model
    topology: Topology,
    # in
    q: wp.array2d(dtype=Any),
    placements: wp.array2d(dtype=Any),
    inertias: wp.array2d(dtype=Any),
    y: wp.array2d(dtype=Any),
    z: wp.array2d(dtype=Any),
    w: int,
    # out, added to
    adj_q: wp.array2d(dtype=Any),
    adj_placements: wp.array2d(dtype=Any),
    adj_inertias: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):
    """Add the derivatives of y^T M z, armature apart, by coordinates, placements and inertias: eq. (2)."""
    zero = q.dtype(0.0)
    nothing = wp.vector(zero, zero, zero, zero, zero, zero)
    for i in range(topology.nbody):
        parent = topology.parent[i]
        row = i * VJP_ROWS
        R, p = joint_pose(topology, i, placements, q, w)
        W = nothing
        Z = nothing
        if parent >= 0:
            W = motion_to_child(R, p, load6(scratch, parent * VJP_ROWS + FIRST, w))
            Z = motion_to_child(R, p, load6(scratch, parent * VJP_ROWS + SECOND, w))
        W = W + joint_motion(topology, i, y, w)
        Z = Z + joint_motion(topology, i, z, w)
        store33(scratch, row + POSE, w, R)
        store(scratch, row + POSE + 9, w, p)
        store(scratch, row + FIRST, w, W)
        store(scratch, row + SECOND, w, Z)
        store(scratch, row + ADJ_FIRST, w, body_inertia_times(inertias, i, w, Z))
        store(scratch, row + ADJ_SECOND, w, body_inertia_times(inertias, i, w, W))
        if adj_inertias:
            accumulate(adj_inertias, i * INERTIA_ROWS, w, inertia_vjp(W, Z))
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        parent = topology.parent[i]
        row = i * VJP_ROWS
        R = load33(scratch, row + POSE, w)
        p = load3(scratch, row + POSE + 9, w)
        adj_W = load6(scratch, row + ADJ_FIRST, w)
        adj_Z = load6(scratch, row + ADJ_SECOND, w)
        XW = load6(scratch, row + FIRST, w) - joint_motion(topology, i, y, w)
        XZ = load6(scratch, row + SECOND, w) - joint_motion(topology, i, z, w)
        adj_pose = -(cross_force(XW, adj_W) + cross_force(XZ, adj_Z))
        if adj_q:
            joint_coordinates_vjp(topology, i, adj_pose, q, w, adj_q)
        if adj_placements:
            placement_vjp(R, p, adj_pose, placements, i, adj_placements, w)
        if parent >= 0:
            accumulate(scratch, parent * VJP_ROWS + ADJ_FIRST, w, force_to_parent(R, p, adj_W))
            accumulate(scratch, parent * VJP_ROWS + ADJ_SECOND, w, force_to_parent(R, p, adj_Z))


@made_once
def kernels(real: type):
    """Return the forward and vjp kernels for one floating-point type."""
    a = wp.array2d(dtype=real)
    Robot = array_struct("mass_rows", ("placements", "inertias", "dofs"), real)

    @wp.kernel(module=kernel_module("crba", real, lanes=Lanes(writes=("M",))))
    def forward(topology: Topology, q: a, robot: Robot, M: a, scratch: a):
        w = wp.tid()
        mass_matrix(topology, q, robot.placements, robot.inertias, robot.dofs, w, M, scratch)

    written = Lanes(writes=("adj_q", "adj_robot"), scratch=("scratch", "y", "z"))

    @wp.kernel(module=kernel_module("crba_vjp", real, lanes=written))
    def vjp(
        topology: Topology, q: a, robot: Robot, M: a, adj_M: a, adj_q: a, adj_robot: Robot, scratch: a, y: a, z: a
    ):  # fmt: skip
        w = wp.tid()
        nv = topology.nv
        for v in range(nv):
            y[v, w] = real(0.0)
        for j in range(nv):
            y[j, w] = real(1.0)
            for k in range(nv):
                z[k, w] = real(0.5) * (adj_M[j * nv + k, w] + adj_M[k * nv + j, w])
            mass_product_vjp(
                topology, q, robot.placements, robot.inertias, y, z, w, adj_q, adj_robot.placements,
                adj_robot.inertias, scratch,
            )  # fmt: skip
            y[j, w] = real(0.0)
            if adj_robot.dofs:
                row = DOF_ROWS * j + ARMATURE
                adj_robot.dofs[row, w] = adj_robot.dofs[row, w] + adj_M[j * nv + j, w]

    return forward, vjp
