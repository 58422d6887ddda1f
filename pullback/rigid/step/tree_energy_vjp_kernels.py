"""The adjoint of the correction of trees that turn fast (docs/derivations/gyroscopic.md, eqs. (12) to (15))."""

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
    SLOPE,
    WEIGHT,
    carried_velocity,
    damped_back,
    is_kept,
    is_travel,
    keep_chosen,
    root_of,
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
                adj = share * scratch[place.adj_velocity + v, w]
                asked += adj * scratch[place.correction + v, w] / weight
                if not is_travel(topology, i, k):
                    adj_scale += weight * adj * scratch[place.tree_ahead + v, w]
    first = topology.v_start[root] + 3
    adj_mass = zero
    travels = joint_travels(topology, root)
    if travels:
        adj3 = (share * weight) * load3(scratch, place.adj_velocity + first, w)
        adj_scale -= wp.dot(adj3, load3(scratch, place.tree_momentum + first, w)) / mass
    adj_energy, adj_energy_before = scale_vjp(job, root, adj_scale, w, scratch)
    adj_mass += energy_vjp(job, root, adj_energy, place.tree_velocity, place.tree_momentum, adj_e, adj_p, w, scratch)
    adj_mass += energy_vjp(
        job, root, adj_energy_before, place.tree_before, place.tree_momentum_before, adj_before, adj_p_before, w,
        scratch,
    )  # fmt: skip
    by_angle = asked * scratch[tree + SLOPE, w] * (dt + dt) * dt
    for i in range(root, topology.nbody):
        if root_of(topology, i) == root:
            for k in range(joint_nv(topology, i)):
                v = topology.v_start[i] + k
                turned = by_angle * turn_share(topology, i, k, one) * scratch[place.qd + v, w]
                scratch[place.adj_qd + v, w] = scratch[place.adj_qd + v, w] + turned
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
def correction_vjp(
    job: Job, parameters: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any), nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of the state and of parameters for what `adj_velocity` asks of the correction of trees."""
    scene = job.scene
    topology = scene.topology
    place = job.scratch
    rows = job.parameters
    nv = topology.nv
    zero = scratch.dtype(0.0)
    dt = scratch.dtype(job.settings.dt)
    ahead = scratch.dtype(job.settings.ahead)
    share = scratch[place.span, w] / dt
    q = rows_from(scratch, place.q)
    qd = rows_from(scratch, place.qd)
    adj_q = rows_from(scratch, place.adj_q)
    adj_qd = rows_from(scratch, place.adj_qd)
    zeros = rows_from(scratch, place.tree_zeros)
    fall = rows_from(scratch, place.tree_fall)
    e = rows_from(scratch, place.tree_velocity)
    before = rows_from(scratch, place.tree_before)
    trees = rows_from(scratch, place.trees)
    adj_p = rows_from(scratch, place.tree_adj)
    adj_p_before = rows_from(adj_p, nv)
    adj_ahead = rows_from(adj_p, 2 * nv)
    adj_e = rows_from(adj_p, 3 * nv)
    adj_before = rows_from(adj_p, 4 * nv)
    lam = rows_from(adj_p, 5 * nv)
    adj_q_before = rows_from(adj_p, 6 * nv)
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
    for r in range(6 * nv + scene.nq):
        adj_p[r, w] = zero
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
    # velocity products, eq. (14)
    for v in range(nv):
        adj_ahead[v, w] = adj_ahead[v, w] + adj_e[v, w]
        adj_qd[v, w] = adj_qd[v, w] + adj_ahead[v, w]
        lam[v, w] = -dt * adj_ahead[v, w]
    add_axes_rate_vjp(scene, dt, qd, adj_ahead, w, adj_qd)
    solve_transposed(scene, rows_from(scratch, place.tree_factor), w, lam)
    solve_factor(scene, rows_from(scratch, place.tree_factor), w, lam)
    inverse_dynamics_vjp(
        topology, q, qd, fall, robot, lam, w, adj_q, adj_qd, nowhere, adj_robot, work
    )  # fmt: skip
    for v in range(nv):
        adj_qd[v, w] = adj_qd[v, w] - parameters[rows.dofs + DOF_ROWS * v + DAMPING, w] * lam[v, w]
    damping_vjp(job, -scratch.dtype(1.0), lam, qd, w, adj_parameters)
    damping_vjp(job, -ahead, lam, fall, w, adj_parameters)
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
