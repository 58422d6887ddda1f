"""Couplings: joints that follow others, as rows of the contact problem (docs/derivations/loops.md, "Couplings").

A follower f with q_f = m q_l + c, l its leader, has one row, whose error and its rate are

    e = q_f - m q_l - c,    J v = v_f - m v_l                                                                  (8)

J does not change with the coordinates. Rows of couplings stand behind those of loops and before those of limits.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import COUPLING_ROWS, Scene
from pullback.rigid.step.constraint_kernels import ContactSettings, scalar_row
from pullback.rigid.step.problem_kernels import Job
from pullback.spatial.arrays import rows_from


@wp.func
def coupling_row(
    scene: Scene, settings: ContactSettings, k: int, q: wp.array2d(dtype=Any), couplings: wp.array2d(dtype=Any),
    L: wp.array2d(dtype=Any), w: int, scalars: wp.array2d(dtype=Any), Y: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the row of coupling k: Y = L^-T J^T on the dofs above both joints, its bias, and no bounds."""
    nv = scene.topology.nv
    s = scene.nloop_row + k
    follower = scene.coupling_follower[k]
    leader = scene.coupling_leader[k]
    multiplier = couplings[COUPLING_ROWS * k, w]
    zero = Y.dtype(0.0)
    one = Y.dtype(1.0)
    far = one / zero
    first = scene.coupling_start[k] % nv
    way = scene.coupling_start[k] - first
    u = int(first)
    while u >= 0:
        Y[s * nv + u, w] = zero
        u = scene.dof_parent[way + u]
    Y[s * nv + follower, w] = one
    Y[s * nv + leader, w] = -multiplier
    error = q[scene.dof_coordinate[follower], w] - multiplier * q[scene.dof_coordinate[leader], w]
    error = error - couplings[COUPLING_ROWS * k + 1, w]
    bias = Y.dtype(settings.loop_erp / settings.dt) * error
    scalar_row(scene, settings, scene.coupling_start[k], one, wp.vector(bias, -far, far, zero), L, s, w, scalars, Y)


@wp.func
def coupling_bias_vjp(
    job: Job, nc: int, parameters: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of coordinates, multipliers and offsets by the biases of couplings."""
    scene = job.scene
    place = job.scratch
    q = rows_from(scratch, place.q)
    adj_q = rows_from(scratch, place.adj_q)
    slope = scratch.dtype(job.settings.loop_erp / job.settings.dt)
    if scratch[place.span, w] == scratch.dtype(0.0):
        # an impact has no biases but those of restitution
        slope = scratch.dtype(0.0)
    for k in range(scene.ncoupling):
        row = job.parameters.couplings + COUPLING_ROWS * k
        follower = scene.dof_coordinate[scene.coupling_follower[k]]
        leader = scene.dof_coordinate[scene.coupling_leader[k]]
        adj_error = -scratch[place.multiplier + 3 * nc + scene.nloop_row + k, w] * slope
        adj_q[follower, w] = adj_q[follower, w] + adj_error
        adj_q[leader, w] = adj_q[leader, w] - parameters[row, w] * adj_error
        if adj_parameters:
            adj_parameters[row, w] = adj_parameters[row, w] - adj_error * q[leader, w]
            adj_parameters[row + 1, w] = adj_parameters[row + 1, w] - adj_error


@wp.func
def coupling_jacobian_vjp(
    job: Job, nc: int, w: int, adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any)
):
    """Add the cotangents of multipliers by a term alpha^T J x."""
    scene = job.scene
    if adj_parameters:
        for k in range(scene.ncoupling):
            row = job.parameters.couplings + COUPLING_ROWS * k
            weight = scratch[job.scratch.alpha + 3 * nc + scene.nloop_row + k, w]
            rate = scratch[job.scratch.rates + scene.coupling_leader[k], w]
            adj_parameters[row, w] = adj_parameters[row, w] - weight * rate
