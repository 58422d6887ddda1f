"""How the correction of trees that turn fast changes with the state (docs/derivations/gyroscopic.md, "Trees")."""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import TREE_ROWS
from pullback.rigid.linearize.dynamics_kernels import LinearJob
from pullback.rigid.linearize.rows_kernels import fill
from pullback.rigid.solvers.rows_kernels import add_multiple
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.tree_energy_kernels import SECOND, is_corrected, root_of
from pullback.rigid.step.tree_energy_vjp_kernels import correction_vjp
from pullback.robot.joint_kernels import joint_tangent_vjp
from pullback.spatial.arrays import rows_from


@wp.func
def write_correction_row(
    job: Job, k: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any), row: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the derivative of the correction of dof k by small displacements and by velocities: its adjoint."""
    place = job.scratch
    topology = job.scene.topology
    fill(scratch, place.adj_velocity, topology.nv, w)
    fill(scratch, place.adj_q, job.scene.nq, w)
    fill(scratch, place.adj_qd, topology.nv, w)
    scratch[place.adj_velocity + k, w] = scratch.dtype(1.0)
    correction_vjp(job, parameters, w, nowhere, scratch, nowhere)
    for i in range(topology.nbody):
        joint_tangent_vjp(topology, i, rows_from(scratch, place.q), rows_from(scratch, place.adj_q), w, row)
    for v in range(topology.nv):
        row[topology.nv + v, w] = scratch[place.adj_qd + v, w]


@wp.func
def add_correction_change(
    linear_job: LinearJob, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any), row: wp.array2d(dtype=Any), change: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add L times the change of the correction to that of s = L v."""
    job = linear_job.job
    scene = job.scene
    nv = scene.topology.nv
    L = rows_from(scratch, job.scratch.L)
    if is_corrected(job, w, scratch):
        for k in range(nv):
            tree = job.scratch.trees + root_of(scene.topology, scene.dof_body[k]) * TREE_ROWS
            if scratch[tree + SECOND, w] > scratch.dtype(0.0):
                write_correction_row(job, k, parameters, w, scratch, nowhere, row)
                # column k of L: the dofs outboard of k
                for v in range(k, nv):
                    u = int(v)
                    while u > k:
                        u = scene.dof_parent[u]
                    if u == k:
                        factor = L[v * nv + k, w]
                        if v == k:
                            factor = scratch.dtype(1.0) / factor
                        add_multiple(change, v * linear_job.columns, factor, row, 0, 2 * nv, w)
