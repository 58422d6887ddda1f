"""The adjoint of the correction of trees that turn fast (docs/derivations/gyroscopic.md, eqs. (12) to (17))."""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import TREE_ROWS
from pullback.rigid.step.dynamics_kernels import solve_factor, solve_transposed
from pullback.rigid.step.integrate_kernels import add_axes_rate_vjp, integrate_vjp, turn_axes_vjp
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.tree_energy_kernels import (
    ENERGY,
    ENERGY_BEFORE,
    MASS,
    SCALE,
    SECOND,
    SECOND_SLOPE,
    SLOPE,
    WEIGHT,
    carried_velocity,
    damped_back,
    is_kept,
    is_travel,
    keep_chosen,
    keeps_some,
    root_of,
    scaled_travel,
    turn_share,
)
from pullback.robot.joint_kernels import joint_nv, joint_travels
from pullback.robot.rnea_kernels import inverse_dynamics_vjp, robot_rows
from pullback.robot.topology import DAMPING, DOF_ROWS, INERTIA_ROWS
from pullback.spatial.arrays import accumulate, load3, rows_from, store
from pullback.spatial.rotations import right_jacobian


@wp.func
def scale_vjp(job: Job, root: int, adj_scale: Any, w: int, scratch: wp.array2d(dtype=Any)):
    """Return the cotangents of the energies after and before, eq. (12); a scale that is held has none."""
    tree = job.scratch.trees + root * TREE_ROWS
    scale = scratch[tree + SCALE, w]
    before = scratch[tree + ENERGY_BEFORE, w]
    adj_energy = scratch.dtype(0.0)
    adj_before = scratch.dtype(0.0)
    if scale < scratch.dtype(1.0):
        share = scratch.dtype(0.5) * adj_scale * scale
        adj_energy = -share / scratch[tree + ENERGY, w]
        adj_before = share / before
    return adj_energy, adj_before


@wp.func
def energy_vjp(
    job: Job, root: int, adj_energy: Any, velocity: int, momentum: int, adj_velocity: int, adj_momentum: int, w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of velocity and momentum of a tree for that of its energy; return that of its mass."""
    topology = job.scene.topology
    half = scratch.dtype(0.5)
    adj_mass = scratch.dtype(0.0)
    for i in range(root, topology.nbody):
        if root_of(topology, i) == root:
            for k in range(joint_nv(topology, i)):
                v = topology.v_start[i] + k
                scratch[adj_momentum + v, w] = half * adj_energy * scratch[velocity + v, w]
                scratch[adj_velocity + v, w] = half * adj_energy * scratch[momentum + v, w]
    if joint_travels(topology, root):
        first = topology.v_start[root] + 3
        mass = scratch[job.scratch.trees + root * TREE_ROWS + MASS, w]
        p = load3(scratch, momentum + first, w)
        store(scratch, adj_momentum + first, w, -adj_energy * p / mass)
        adj_mass = half * adj_energy * wp.dot(p, p) / (mass * mass)
    return adj_mass


@wp.func
def add_angle_vjp(job: Job, root: int, adj_angle: Any, w: int, scratch: wp.array2d(dtype=Any)):
    """Add the cotangent of qd for that of the squared angle by which a tree turns in a step."""
    topology = job.scene.topology
    dt = scratch.dtype(job.settings.dt)
    for i in range(root, topology.nbody):
        if root_of(topology, i) == root:
            for k in range(joint_nv(topology, i)):
                v = topology.v_start[i] + k
                turned = adj_angle * (dt + dt) * dt * turn_share(topology, i, k, scratch.dtype(1.0))
                scratch[job.scratch.adj_qd + v, w] = (
                    scratch[job.scratch.adj_qd + v, w] + turned * scratch[job.scratch.qd + v, w]
                )


@wp.func
def tree_vjp(job: Job, root: int, share: Any, w: int, scratch: wp.array2d(dtype=Any)):
    """Pull the cotangent of one tree's correction back to velocities and momenta; return that of its mass: eq. (12).

    Those of qd are added; those of the velocity after the velocity products, of momenta and of the velocities that
    these are made of are written.
    """
    topology = job.scene.topology
    place = job.scratch
    nv = topology.nv
    zero = scratch.dtype(0.0)
    one = scratch.dtype(1.0)
    dt = scratch.dtype(job.settings.dt)
    tree = place.trees + root * TREE_ROWS
    weight = scratch[tree + WEIGHT, w]
    scale = scratch[tree + SCALE, w]
    mass = scratch[tree + MASS, w]
    adj_p = place.tree_adj
    adj_p_before = adj_p + nv
    adj_ahead = adj_p + 2 * nv
    adj_e = adj_p + 3 * nv
    adj_before = adj_p + 4 * nv
    asked = zero
    adj_scale = zero
    for i in range(root, topology.nbody):
        if root_of(topology, i) == root:
            for k in range(joint_nv(topology, i)):
                v = topology.v_start[i] + k
                if not is_travel(topology, i, k):
                    adj = share * scratch[place.adj_velocity + v, w] * scratch[place.tree_ahead + v, w]
                    asked += (scale - one) * adj
                    adj_scale += weight * adj
    first = topology.v_start[root] + 3
    adj_mass = zero
    travels = joint_travels(topology, root)
    if travels:
        adj3 = (share * weight) * load3(scratch, place.adj_velocity + first, w)
        adj_scale -= wp.dot(adj3, load3(scratch, place.tree_momentum + first, w)) / mass
        asked += wp.dot(adj3, scaled_travel(job, root, rows_from(scratch, place.qd), w, scratch)) / weight
    adj_energy, adj_energy_before = scale_vjp(job, root, adj_scale, w, scratch)
    adj_mass += energy_vjp(job, root, adj_energy, place.tree_velocity, place.tree_momentum, adj_e, adj_p, w, scratch)
    adj_mass += energy_vjp(
        job, root, adj_energy_before, place.tree_before, place.tree_momentum_before, adj_before, adj_p_before, w,
        scratch,
    )  # fmt: skip
    add_angle_vjp(job, root, asked * scratch[tree + SLOPE, w], w, scratch)
    for i in range(root, topology.nbody):
        if root_of(topology, i) == root:
            for k in range(joint_nv(topology, i)):
                v = topology.v_start[i] + k
                scratch[adj_ahead + v, w] = (scale - one) * share * weight * scratch[place.adj_velocity + v, w]
    if travels:
        adj3 = (share * weight) * load3(scratch, place.adj_velocity + first, w)
        p = load3(scratch, place.tree_momentum + first, w)
        carried, Q = carried_velocity(job, root, w, scratch)
        store(scratch, adj_ahead + first, w, -adj3)
        accumulate(scratch, place.adj_qd + first, w, adj3)
        accumulate(scratch, adj_p + first, w, -(scale / mass) * adj3)
        accumulate(scratch, adj_p_before + first, w, (Q * adj3) / mass)
        turn = dt * load3(scratch, place.qd + first - 3, w)
        accumulate(scratch, place.adj_qd + first - 3, w, dt * (wp.cross(adj3, carried) * right_jacobian(turn)))
        adj_mass += (scale * wp.dot(adj3, p) / mass - wp.dot(adj3, carried)) / mass
    return adj_mass


@wp.func
def damping_vjp(
    job: Job, factor: Any, y: wp.array2d(dtype=Any), z: wp.array2d(dtype=Any), w: int,
    adj_parameters: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add a factor times y z to the cotangents of joint damping."""
    if adj_parameters:
        for v in range(job.scene.topology.nv):
            row = job.parameters.dofs + DOF_ROWS * v + DAMPING
            adj_parameters[row, w] = adj_parameters[row, w] + factor * y[v, w] * z[v, w]


@wp.func(inline=False)
def products_vjp(
    job: Job, x: int, fall: int, adj_velocity: int, adj_x: int, parameters: wp.array2d(dtype=Any), w: int,
    adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any), nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of qd, of x and of all else that the fall reads, for that of its velocity: eq. (14)."""
    scene = job.scene
    place = job.scratch
    rows = job.parameters
    nv = scene.topology.nv
    dt = scratch.dtype(job.settings.dt)
    N = rows_from(scratch, place.tree_factor)
    lam = rows_from(scratch, place.tree_adj + 5 * nv)
    robot = robot_rows(
        nowhere, rows_from(scratch, place.tree_zeros), rows_from(parameters, rows.placements),
        rows_from(parameters, rows.inertias), rows_from(parameters, rows.dofs),
    )  # fmt: skip
    adj_robot = robot_rows(
        nowhere, nowhere, rows_from(adj_parameters, rows.placements), rows_from(adj_parameters, rows.inertias),
        rows_from(adj_parameters, rows.dofs),
    )  # fmt: skip
    for v in range(nv):
        scratch[place.adj_qd + v, w] = scratch[place.adj_qd + v, w] + scratch[adj_velocity + v, w]
        lam[v, w] = -dt * scratch[adj_velocity + v, w]
    add_axes_rate_vjp(
        scene, dt, rows_from(scratch, x), rows_from(scratch, adj_velocity), w, rows_from(scratch, adj_x)
    )  # fmt: skip
    solve_transposed(scene, N, w, lam)
    solve_factor(scene, N, w, lam)
    inverse_dynamics_vjp(
        scene.topology, rows_from(scratch, place.q), rows_from(scratch, x), rows_from(scratch, fall), robot, lam, w,
        rows_from(scratch, place.adj_q), rows_from(scratch, adj_x), nowhere, adj_robot,
        rows_from(scratch, place.recursion),
    )  # fmt: skip
    for v in range(nv):
        damped = parameters[rows.dofs + DOF_ROWS * v + DAMPING, w] * lam[v, w]
        scratch[adj_x + v, w] = scratch[adj_x + v, w] - damped
    damping_vjp(job, -scratch.dtype(1.0), lam, rows_from(scratch, x), w, adj_parameters)
    damping_vjp(job, -scratch.dtype(job.settings.ahead), lam, rows_from(scratch, fall), w, adj_parameters)


@wp.func(inline=False)
def kept_energy_vjp(
    job: Job, share: Any, parameters: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any), nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangent of e', and add the others of all that `add_kept_energy` reads: eqs. (12) to (15)."""
    scene = job.scene
    topology = scene.topology
    place = job.scratch
    rows = job.parameters
    nv = topology.nv
    dt = scratch.dtype(job.settings.dt)
    ahead = scratch.dtype(job.settings.ahead)
    q = rows_from(scratch, place.q)
    qd = rows_from(scratch, place.qd)
    adj_q = rows_from(scratch, place.adj_q)
    adj_qd = rows_from(scratch, place.adj_qd)
    zeros = rows_from(scratch, place.tree_zeros)
    e = rows_from(scratch, place.tree_velocity)
    before = rows_from(scratch, place.tree_before)
    trees = rows_from(scratch, place.trees)
    adj_p = rows_from(scratch, place.tree_adj)
    adj_p_before = rows_from(adj_p, nv)
    adj_ahead = rows_from(adj_p, 2 * nv)
    adj_e = rows_from(adj_p, 3 * nv)
    adj_before = rows_from(adj_p, 4 * nv)
    lam = rows_from(adj_p, 5 * nv)
    adj_q_before = rows_from(adj_p, 8 * nv)
    adj_start = rows_from(adj_q_before, scene.nq)
    work = rows_from(scratch, place.recursion)
    robot = robot_rows(
        nowhere, zeros, rows_from(parameters, rows.placements), rows_from(parameters, rows.inertias),
        rows_from(parameters, rows.dofs),
    )  # fmt: skip
    adj_robot = robot_rows(
        nowhere, nowhere, rows_from(adj_parameters, rows.placements), rows_from(adj_parameters, rows.inertias),
        rows_from(adj_parameters, rows.dofs),
    )  # fmt: skip
    for i in range(topology.nbody):
        if topology.parent[i] < 0 and is_kept(trees, i, w):
            adj_mass = tree_vjp(job, i, share, w, scratch)
            if adj_parameters:
                for j in range(i, topology.nbody):
                    if root_of(topology, j) == i:
                        row = rows.inertias + j * INERTIA_ROWS
                        adj_parameters[row, w] = adj_parameters[row, w] + adj_mass
    # the momentum after the velocity products, eq. (13)
    inverse_dynamics_vjp(
        topology, q, zeros, e, robot, adj_p, w, adj_q, nowhere, adj_e, adj_robot, work
    )  # fmt: skip
    damped_back(job, parameters, adj_p, w, adj_e)
    damping_vjp(job, -ahead, adj_p, e, w, adj_parameters)
    keep_chosen(job, trees, w, adj_e)
    for v in range(nv):
        adj_ahead[v, w] = adj_ahead[v, w] + adj_e[v, w]
    # where the tree came from, eq. (15)
    inverse_dynamics_vjp(
        topology, rows_from(scratch, place.tree_q), zeros, before, robot, adj_p_before, w, adj_q_before, nowhere,
        adj_before, adj_robot, work,
    )  # fmt: skip
    damped_back(job, parameters, adj_p_before, w, adj_before)
    damping_vjp(job, -ahead, adj_p_before, before, w, adj_parameters)
    keep_chosen(job, trees, w, adj_before)
    integrate_vjp(scene, -dt, q, qd, adj_q_before, w, adj_start, lam)
    turn_axes_vjp(scene, -dt, qd, qd, w, lam, adj_before)
    for r in range(scene.nq):
        adj_q[r, w] = adj_q[r, w] + adj_start[r, w]
    for v in range(nv):
        adj_qd[v, w] = adj_qd[v, w] + lam[v, w] + adj_before[v, w]


@wp.func
def second_order_vjp(job: Job, share: Any, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the cotangents of f and of e for those of the correction and of e'; add that of the weight: eq. (17)."""
    topology = job.scene.topology
    place = job.scratch
    adj_ahead = place.tree_adj + 2 * topology.nv
    adj_f = place.tree_adj + 6 * topology.nv
    for root in range(topology.nbody):
        if topology.parent[root] < 0:
            tree = place.trees + root * TREE_ROWS
            second = scratch[tree + SECOND, w]
            asked = scratch.dtype(0.0)
            for i in range(root, topology.nbody):
                if root_of(topology, i) == root:
                    for k in range(joint_nv(topology, i)):
                        v = topology.v_start[i] + k
                        adj = share * scratch[place.adj_velocity + v, w] + scratch[adj_ahead + v, w]
                        asked += adj * scratch[place.tree_gain + v, w]
                        scratch[adj_f + v, w] = second * adj
                        scratch[adj_ahead + v, w] = scratch[adj_ahead + v, w] - second * adj
            add_angle_vjp(job, root, asked * scratch[tree + SECOND_SLOPE, w], w, scratch)


@wp.func(inline=False)
def correction_vjp(
    job: Job, parameters: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any), nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of the state and of parameters for what `adj_velocity` asks of the correction of trees."""
    place = job.scratch
    nv = job.scene.topology.nv
    share = scratch[place.span, w] / scratch.dtype(job.settings.dt)
    adj_ahead = place.tree_adj + 2 * nv
    adj_f = place.tree_adj + 6 * nv
    adj_half = place.tree_adj + 7 * nv
    for r in range(8 * nv + job.scene.nq):
        scratch[place.tree_adj + r, w] = scratch.dtype(0.0)
    if keeps_some(job, w, scratch):
        kept_energy_vjp(job, share, parameters, w, adj_parameters, scratch, nowhere)
    second_order_vjp(job, share, w, scratch)
    products_vjp(
        job, place.tree_half, place.tree_half_fall, adj_f, adj_half, parameters, w, adj_parameters, scratch, nowhere
    )
    # the velocity half a step on
    for v in range(nv):
        adj = scratch.dtype(0.5) * scratch[adj_half + v, w]
        scratch[place.adj_qd + v, w] = scratch[place.adj_qd + v, w] + adj
        scratch[adj_ahead + v, w] = scratch[adj_ahead + v, w] + adj
    products_vjp(
        job, place.qd, place.tree_fall, adj_ahead, place.adj_qd, parameters, w, adj_parameters, scratch, nowhere
    )
