"""The equations of motion of a forest of bodies, M qdd + h = tau, and M factored along the branches.

One sweep out and one back give body poses, the bias force h (gravity, velocity products, damping) and the mass matrix
(docs/derivations/contact_step.md). M = L^T L keeps the branches' sparsity: row v of L is zero but for v and the dofs
inboard of it (Featherstone 2008, chapter 8). Row v of M, then of L, stands at rows v * nv + u of its array; in the
place of L's diagonal stands its inverse.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import POSE_ROWS, Scene
from pullback.robot.joint_kernels import (
    joint_axis,
    joint_bias,
    joint_component,
    joint_coordinates_vjp,
    joint_force,
    joint_motion,
    joint_nv,
    joint_pose,
    placement_vjp,
)
from pullback.robot.rnea_kernels import body_inertia_times, world_acceleration
from pullback.robot.topology import ARMATURE, DAMPING, DOF_ROWS, INERTIA_ROWS
from pullback.spatial.arrays import accumulate, load3, load6, load33, store, store33
from pullback.spatial.vectors import (
    angular,
    cross_force,
    force_to_parent,
    inertia_times,
    linear,
    motion_to_child,
    rotate_symmetric,
    skew,
    spatial,
    times_skew_symmetrized,
)

# rows of scratch a body: pose in the parent, velocity, acceleration, force, composite inertia
LOCAL = wp.constant(0)
VELOCITY = wp.constant(12)
ACCELERATION = wp.constant(18)
FORCE = wp.constant(24)
COMPOSITE = wp.constant(30)
DYNAMICS_ROWS = wp.constant(40)


@wp.func
def equations_of_motion(
    # model
    scene: Scene,
    # in
    q: wp.array2d(dtype=Any),
    qd: wp.array2d(dtype=Any),
    gravity: wp.array2d(dtype=Any),
    placements: wp.array2d(dtype=Any),
    inertias: wp.array2d(dtype=Any),
    dofs: wp.array2d(dtype=Any),
    w: int,
    # out
    poses: wp.array2d(dtype=Any),
    bias: wp.array2d(dtype=Any),
    M: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):
    """Write the bodies' poses in the world, the bias force h and the mass matrix."""
    topology = scene.topology
    zero = q.dtype(0.0)
    nothing = wp.vector(zero, zero, zero, zero, zero, zero)
    # poses, velocities and forces at zero joint acceleration, root to leaves
    for i in range(topology.nbody):
        parent = topology.parent[i]
        row = i * DYNAMICS_ROWS
        R, p = joint_pose(topology, i, placements, q, w)
        R_W = R
        p_W = p
        V = nothing
        A = world_acceleration(gravity, w)
        if parent >= 0:
            R_P = load33(poses, parent * POSE_ROWS, w)
            R_W = R_P * R
            p_W = load3(poses, parent * POSE_ROWS + 9, w) + R_P * p
            V = motion_to_child(R, p, load6(scratch, parent * DYNAMICS_ROWS + VELOCITY, w))
            A = load6(scratch, parent * DYNAMICS_ROWS + ACCELERATION, w)
        V = V + joint_motion(topology, i, qd, w)
        A = motion_to_child(R, p, A) + joint_bias(topology, i, V, qd, w)
        F = body_inertia_times(inertias, i, w, A) + cross_force(V, body_inertia_times(inertias, i, w, V))
        store33(poses, i * POSE_ROWS, w, R_W)
        store(poses, i * POSE_ROWS + 9, w, p_W)
        store33(scratch, row + LOCAL, w, R)
        store(scratch, row + LOCAL + 9, w, p)
        store(scratch, row + VELOCITY, w, V)
        store(scratch, row + ACCELERATION, w, A)
        store(scratch, row + FORCE, w, F)
        scratch[row + COMPOSITE, w] = inertias[i * INERTIA_ROWS, w]
        store(scratch, row + COMPOSITE + 1, w, load3(inertias, i * INERTIA_ROWS + 1, w))
        store(scratch, row + COMPOSITE + 4, w, load6(inertias, i * INERTIA_ROWS + 4, w))
    for v in range(topology.nv):
        bias[v, w] = dofs[DOF_ROWS * v + DAMPING, w] * qd[v, w]
    # joint forces and composite inertias, leaves to root
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        row = i * DYNAMICS_ROWS
        F = load6(scratch, row + FORCE, w)
        joint_force(topology, i, F, w, bias)
        mass_matrix_rows(scene, i, dofs, w, M, scratch)
        if topology.parent[i] >= 0:
            add_to_parent(i, topology.parent[i], F, w, scratch)


@wp.func
def products_of_bias(
    scene: Scene, qd: wp.array2d(dtype=Any), gravity: wp.array2d(dtype=Any), dofs: wp.array2d(dtype=Any),
    bias: wp.array2d(dtype=Any), poses: wp.array2d(dtype=Any), w: int, out: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the velocity products in a bias force, both of `equations_of_motion`: without damping and gravity.

    The weight of what a body carries is that of its composite inertia.
    """
    topology = scene.topology
    for v in range(topology.nv):
        out[v, w] = bias[v, w] - dofs[DOF_ROWS * v + DAMPING, w] * qd[v, w]
    for i in range(topology.nbody):
        composite = i * DYNAMICS_ROWS + COMPOSITE
        down = load3(gravity, 0, w) * load33(poses, i * POSE_ROWS, w)
        weight = spatial(wp.cross(load3(scratch, composite + 1, w), down), scratch[composite, w] * down)
        joint_force(topology, i, weight, w, out)


@wp.func(inline=False)
def velocity_products(
    scene: Scene, qd: wp.array2d(dtype=Any), inertias: wp.array2d(dtype=Any), placements: wp.array2d(dtype=Any), w: int,
    out: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write h(q, qd) without gravity and damping, with the placements that `equations_of_motion` left."""
    topology = scene.topology
    zero = out.dtype(0.0)
    nothing = wp.vector(zero, zero, zero, zero, zero, zero)
    for i in range(topology.nbody):
        parent = topology.parent[i]
        row = i * DYNAMICS_ROWS
        V = nothing
        A = nothing
        if parent >= 0:
            R = load33(placements, row + LOCAL, w)
            p = load3(placements, row + LOCAL + 9, w)
            V = motion_to_child(R, p, load6(scratch, parent * DYNAMICS_ROWS + VELOCITY, w))
            A = motion_to_child(R, p, load6(scratch, parent * DYNAMICS_ROWS + ACCELERATION, w))
        V = V + joint_motion(topology, i, qd, w)
        A = A + joint_bias(topology, i, V, qd, w)
        F = body_inertia_times(inertias, i, w, A) + cross_force(V, body_inertia_times(inertias, i, w, V))
        store(scratch, row + VELOCITY, w, V)
        store(scratch, row + ACCELERATION, w, A)
        store(scratch, row + FORCE, w, F)
    for v in range(topology.nv):
        out[v, w] = zero
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        row = i * DYNAMICS_ROWS
        F = load6(scratch, row + FORCE, w)
        joint_force(topology, i, F, w, out)
        if topology.parent[i] >= 0:
            R = load33(placements, row + LOCAL, w)
            p = load3(placements, row + LOCAL + 9, w)
            accumulate(scratch, topology.parent[i] * DYNAMICS_ROWS + FORCE, w, force_to_parent(R, p, F))


@wp.func
def add_to_parent(i: int, parent: int, F: Any, w: int, scratch: wp.array2d(dtype=Any)):
    """Add the force and the composite inertia of body i to its parent's."""
    row = i * DYNAMICS_ROWS
    R = load33(scratch, row + LOCAL, w)
    p = load3(scratch, row + LOCAL + 9, w)
    m = scratch[row + COMPOSITE, w]
    h = R * load3(scratch, row + COMPOSITE + 1, w)
    half = m * p.dtype(0.5)
    J = rotate_symmetric(R, load6(scratch, row + COMPOSITE + 4, w)) - times_skew_symmetrized(skew(h + half * p), p)
    above = parent * DYNAMICS_ROWS
    accumulate(scratch, above + FORCE, w, force_to_parent(R, p, F))
    scratch[above + COMPOSITE, w] = scratch[above + COMPOSITE, w] + m
    accumulate(scratch, above + COMPOSITE + 1, w, h + m * p)
    accumulate(scratch, above + COMPOSITE + 4, w, J)


@wp.func(inline=True)
def mass_matrix_rows(
    scene: Scene, i: int, dofs: wp.array2d(dtype=Any), w: int, M: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any)
):
    """Write the rows of M of body i's dofs, the dofs inboard of each included."""
    topology = scene.topology
    nv = topology.nv
    row = i * DYNAMICS_ROWS + COMPOSITE
    m = scratch[row, w]
    h = load3(scratch, row + 1, w)
    J = load6(scratch, row + 4, w)
    one = type(m)(1.0)
    for j in range(joint_nv(topology, i)):
        v = topology.v_start[i] + j
        F = inertia_times(m, h, J, joint_axis(topology, i, j, one))
        for k in range(j + 1):
            M[v * nv + topology.v_start[i] + k, w] = joint_component(topology, i, k, F)
        M[v * nv + v, w] = M[v * nv + v, w] + dofs[DOF_ROWS * v + ARMATURE, w]
        # felt by every joint inboard
        outer = int(i)
        ancestor = int(topology.parent[i])
        while ancestor >= 0:
            R = load33(scratch, outer * DYNAMICS_ROWS + LOCAL, w)
            p = load3(scratch, outer * DYNAMICS_ROWS + LOCAL + 9, w)
            F = force_to_parent(R, p, F)
            for k in range(joint_nv(topology, ancestor)):
                M[v * nv + topology.v_start[ancestor] + k, w] = joint_component(topology, ancestor, k, F)
            outer = ancestor
            ancestor = topology.parent[ancestor]


@wp.func
def factorize(scene: Scene, w: int, L: wp.array2d(dtype=Any)):
    """Turn M, in place, into L with M = L^T L, the inverse of its diagonal in the diagonal's place."""
    nv = scene.topology.nv
    one = L.dtype(1.0)
    for b in range(nv):
        k = nv - 1 - b
        inverse = one / wp.sqrt(L[k * nv + k, w])
        L[k * nv + k, w] = inverse
        i = int(scene.dof_parent[k])
        while i >= 0:
            L[k * nv + i, w] = L[k * nv + i, w] * inverse
            i = scene.dof_parent[i]
        i = int(scene.dof_parent[k])
        while i >= 0:
            factor = L[k * nv + i, w]
            j = int(i)
            while j >= 0:
                L[i * nv + j, w] = L[i * nv + j, w] - factor * L[k * nv + j, w]
                j = scene.dof_parent[j]
            i = scene.dof_parent[i]


@wp.func
def solve_transposed(scene: Scene, L: wp.array2d(dtype=Any), w: int, x: wp.array2d(dtype=Any)):
    """Replace x by L^-T x."""
    nv = scene.topology.nv
    for b in range(nv):
        v = nv - 1 - b
        value = x[v, w] * L[v * nv + v, w]
        x[v, w] = value
        u = int(scene.dof_parent[v])
        while u >= 0:
            x[u, w] = x[u, w] - L[v * nv + u, w] * value
            u = scene.dof_parent[u]


@wp.func
def solve_factor(scene: Scene, L: wp.array2d(dtype=Any), w: int, x: wp.array2d(dtype=Any)):
    """Replace x by L^-1 x."""
    nv = scene.topology.nv
    for v in range(nv):
        value = x[v, w]
        u = int(scene.dof_parent[v])
        while u >= 0:
            value -= L[v * nv + u, w] * x[u, w]
            u = scene.dof_parent[u]
        x[v, w] = value * L[v * nv + v, w]


@wp.func
def multiply_factor(scene: Scene, L: wp.array2d(dtype=Any), w: int, x: wp.array2d(dtype=Any)):
    """Replace x by L x."""
    nv = scene.topology.nv
    for b in range(nv):
        v = nv - 1 - b
        value = x[v, w] / L[v * nv + v, w]
        u = int(scene.dof_parent[v])
        while u >= 0:
            value += L[v * nv + u, w] * x[u, w]
            u = scene.dof_parent[u]
        x[v, w] = value


@wp.func
def add_transposed_product(
    scene: Scene, L: wp.array2d(dtype=Any), x: wp.array2d(dtype=Any), w: int, out: wp.array2d(dtype=Any)
):
    """Add L^T x to `out`."""
    nv = scene.topology.nv
    for v in range(nv):
        value = x[v, w]
        out[v, w] = out[v, w] + value / L[v * nv + v, w]
        u = int(scene.dof_parent[v])
        while u >= 0:
            out[u, w] = out[u, w] + L[v * nv + u, w] * value
            u = scene.dof_parent[u]


@wp.func
def gather_wrenches(
    scene: Scene, q: wp.array2d(dtype=Any), placements: wp.array2d(dtype=Any), poses: wp.array2d(dtype=Any), w: int,
    wrench: wp.array2d(dtype=Any), adj_q: wp.array2d(dtype=Any), adj_placements: wp.array2d(dtype=Any),
):  # fmt: skip
    """Sum the bodies' wrench cotangents, at the world's origin, to the root; add those of q and of placements."""
    topology = scene.topology
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        G = load6(wrench, 6 * i, w)
        R_WB = load33(poses, i * POSE_ROWS, w)
        p_WB = load3(poses, i * POSE_ROWS + 9, w)
        adj_pose = spatial((angular(G) - wp.cross(p_WB, linear(G))) * R_WB, linear(G) * R_WB)
        joint_coordinates_vjp(topology, i, adj_pose, q, w, adj_q)
        if adj_placements:
            R, p = joint_pose(topology, i, placements, q, w)
            placement_vjp(R, p, adj_pose, placements, i, adj_placements, w)
        if topology.parent[i] >= 0:
            accumulate(wrench, 6 * topology.parent[i], w, G)
