"""Forces without contact, and the way back from the accelerations they give (docs/derivations/contact_step.md)."""

from typing import Any

import warp as wp

from pullback.rigid.step.actuator_kernels import (
    actuator_forces_vjp,
    add_actuator_forces,
    add_actuator_inertias,
    time_ahead,
)
from pullback.rigid.step.dynamics_kernels import equations_of_motion, factorize, solve_transposed
from pullback.rigid.step.gyroscopic_kernels import subtract_lone_forces, subtract_lone_forces_vjp
from pullback.rigid.step.problem_kernels import Job, Motion
from pullback.rigid.step.tree_energy_kernels import correct_trees
from pullback.robot.rnea_kernels import inverse_dynamics_vjp, robot_rows
from pullback.robot.topology import DAMPING, DOF_ROWS
from pullback.spatial.arrays import rows_from


@wp.func
def time_short(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Return by how much less than a step [s] actuators and damping look ahead in the part of it at hand."""
    return scratch.dtype(job.settings.ahead) - time_ahead(job, w, scratch)


@wp.func
def subtract_damping_ahead(
    job: Job, parameters: wp.array2d(dtype=Any), w: int, M: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any)
):
    """Leave of the inertia that stands for joint damping, which is that of a step, that of the part of it at hand."""
    nv = job.scene.topology.nv
    short = time_short(job, w, scratch)
    if short > scratch.dtype(0.0):
        for v in range(nv):
            damping = parameters[job.parameters.dofs + DOF_ROWS * v + DAMPING, w]
            M[v * nv + v, w] = M[v * nv + v, w] - short * damping


@wp.func
def damping_ahead_vjp(
    job: Job, y: wp.array2d(dtype=Any), z: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of joint damping in y^T M z, by what `subtract_damping_ahead` takes from M."""
    short = time_short(job, w, scratch)
    if adj_parameters and short > scratch.dtype(0.0):
        for v in range(job.scene.topology.nv):
            row = job.parameters.dofs + DOF_ROWS * v + DAMPING
            adj_parameters[row, w] = adj_parameters[row, w] - short * y[v, w] * z[v, w]


@wp.func
def free_forces(
    job: Job, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any), w: int, force: wp.array2d(dtype=Any), L: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write poses, the factor L of the mass matrix with the actuators' inertias, and the force L^-T (tau - h)."""
    scene = job.scene
    rows = job.parameters
    equations_of_motion(
        scene, q, qd, rows_from(parameters, rows.gravity), rows_from(parameters, rows.placements),
        rows_from(parameters, rows.inertias), rows_from(parameters, rows.dofs), w,
        rows_from(scratch, job.scratch.poses), force, L, rows_from(scratch, job.scratch.dynamics),
    )  # fmt: skip
    if job.stages == 0:
        correct_trees(job, q, qd, force, parameters, w, L, scratch)
    for v in range(scene.topology.nv):
        force[v, w] = -force[v, w]
    add_actuator_forces(job, q, qd, u, parameters, w, scratch, force)
    add_actuator_inertias(job, parameters, w, scratch, L)
    subtract_damping_ahead(job, parameters, w, L, scratch)
    if job.stages == 0:
        subtract_lone_forces(
            scene.topology, parameters.dtype(job.settings.dt), qd, rows_from(parameters, rows.inertias),
            rows_from(parameters, rows.dofs), w, force,
        )  # fmt: skip
    factorize(scene, w, L)
    solve_transposed(scene, L, w, force)


@wp.func
def dynamics_rows(job: Job, parameters: wp.array2d(dtype=Any), nowhere: wp.array2d(dtype=Any)):
    """Return what inverse dynamics read of a world's parameters, or their cotangents; there are no wrenches."""
    rows = job.parameters
    return robot_rows(
        nowhere, rows_from(parameters, rows.gravity), rows_from(parameters, rows.placements),
        rows_from(parameters, rows.inertias), rows_from(parameters, rows.dofs),
    )  # fmt: skip


@wp.func
def forces_vjp(
    job: Job, motion: Motion, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    adj_u: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangent of forces back through actuators and inverse dynamics."""
    rows = job.parameters
    q = rows_from(scratch, motion.q)
    qd = rows_from(scratch, motion.qd)
    adj_q = rows_from(scratch, motion.adj_q)
    adj_qd = rows_from(scratch, motion.adj_qd)
    adj_force = rows_from(scratch, motion.adj_force)
    actuator_forces_vjp(job, motion, u, parameters, w, adj_u, adj_parameters, scratch)
    if job.stages == 0:
        subtract_lone_forces_vjp(
            job.scene.topology, scratch.dtype(job.settings.dt), qd, rows_from(parameters, rows.inertias),
            rows_from(parameters, rows.dofs), adj_force, w, adj_qd, rows_from(adj_parameters, rows.inertias),
            rows_from(adj_parameters, rows.dofs),
        )  # fmt: skip
    for v in range(job.scene.topology.nv):
        adj_force[v, w] = -adj_force[v, w]
    damping_ahead_vjp(job, adj_force, rows_from(scratch, motion.acceleration), w, adj_parameters, scratch)
    inverse_dynamics_vjp(
        job.scene.topology, q, qd, rows_from(scratch, motion.acceleration), dynamics_rows(job, parameters, nowhere),
        adj_force, w, adj_q, adj_qd, nowhere, dynamics_rows(job, adj_parameters, nowhere),
        rows_from(scratch, job.scratch.recursion),
    )  # fmt: skip


@wp.func
def is_driven_finitely(job: Job, u: wp.array2d(dtype=Any), w: int):
    """Tell whether all controls of a step are finite."""
    total = u.dtype(0.0)
    for k in range(job.scene.nu):
        total += wp.abs(u[k, w])
    return wp.isfinite(total)
