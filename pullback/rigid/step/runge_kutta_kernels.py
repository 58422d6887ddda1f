"""Explicit steps of worlds without contact, Euler's and Runge and Kutta's, and their adjoint.

docs/derivations/runge_kutta.md. Free joints' linear velocities v are integrated in the axes they move in, z = R v:

    d quat / dt = quat (w, 0) / 2,    dp/dt = R v,    dz/dt = R (dv/dt + w x v)                                 (1)
    Y_i = y + dt sum of a_ij K_j over j < i,    K_j = dy/dt at Y_j,    y = (q, z)                               (2)
    y' = y + dt sum of b_j K_j, and quaternions are made unit                                                   (3)

A stage is kept as q, qd and qdd at Y_i; behind the last one stands the end of the step.
"""

from typing import Any

import warp as wp

from pullback.rigid.step.dynamics_kernels import solve_factor, solve_transposed
from pullback.rigid.step.force_kernels import Motion, forces_vjp, free_forces, is_driven_finitely
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.step_kernels import NOT_FINITE, OK
from pullback.robot.joint_kernels import (
    joint_add_rates,
    joint_fix_axes,
    joint_fix_axes_vjp,
    joint_normalize,
    joint_normalize_vjp,
    joint_rates_vjp,
    joint_unfix_axes,
    joint_unfix_axes_vjp,
)
from pullback.spatial.arrays import rows_from


@wp.func
def share(stages: int, i: int, j: int, dt: Any):
    """Return dt a_ij, and behind the last stage dt b_j: eq. (4)."""
    part = dt
    if stages > 1:
        if i == stages:
            part = dt / type(dt)(6.0)
            if j == 1 or j == 2:
                part = dt / type(dt)(3.0)
        elif j < i - 1:
            part = type(dt)(0.0)
        elif i < stages - 1:
            part = dt / type(dt)(2.0)
    return part


@wp.func
def stage_row(job: Job, i: int):
    """Return where stage i stands in scratch: q, then qd, then qdd."""
    return job.scratch.stages + i * (job.scene.nq + 2 * job.scene.topology.nv)


@wp.func
def write_stage(job: Job, i: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write q and qd of stage i, or of the end of the step, from the rates of the stages before: eqs. (2), (3)."""
    topology = job.scene.topology
    nq = job.scene.nq
    dt = scratch.dtype(job.settings.dt)
    q = rows_from(scratch, stage_row(job, i))
    qd = rows_from(scratch, stage_row(job, i) + nq)
    for r in range(nq + topology.nv):
        q[r, w] = scratch[stage_row(job, 0) + r, w]
    for body in range(topology.nbody):
        joint_fix_axes(topology, body, q, w, qd)
        for j in range(i):
            row = stage_row(job, j)
            joint_add_rates(
                topology, body, share(job.stages, i, j, dt), rows_from(scratch, row), rows_from(scratch, row + nq),
                rows_from(scratch, row + nq + topology.nv), w, q, qd,
            )  # fmt: skip
        joint_unfix_axes(topology, body, q, w, qd)


@wp.func
def write_stages(
    job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Write all stages from the state in scratch, the factors of their mass matrices, and the end of the step."""
    scene = job.scene
    place = job.scratch
    nv = scene.topology.nv
    for r in range(scene.nq):
        scratch[place.stages + r, w] = scratch[place.q + r, w]
    for r in range(nv):
        scratch[place.stages + scene.nq + r, w] = scratch[place.qd + r, w]
    for i in range(job.stages + 1):
        if i > 0:
            write_stage(job, i, w, scratch)
        if i < job.stages:
            q = rows_from(scratch, stage_row(job, i))
            qd = rows_from(scratch, stage_row(job, i) + scene.nq)
            qdd = rows_from(scratch, stage_row(job, i) + scene.nq + nv)
            L = rows_from(scratch, place.L + i * nv * nv)
            free_forces(job, q, qd, u, parameters, w, qdd, L, scratch)
            solve_factor(scene, L, w, qdd)


@wp.func
def finish(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Replace the state in scratch by the end of the step, quaternions unit; tell whether it is finite."""
    topology = job.scene.topology
    place = job.scratch
    end = stage_row(job, job.stages)
    total = scratch.dtype(0.0)
    for r in range(job.scene.nq):
        scratch[place.q + r, w] = scratch[end + r, w]
        total += wp.abs(scratch[end + r, w])
    for r in range(topology.nv):
        scratch[place.qd + r, w] = scratch[end + job.scene.nq + r, w]
        total += wp.abs(scratch[end + job.scene.nq + r, w])
    for body in range(topology.nbody):
        joint_normalize(topology, body, w, rows_from(scratch, place.q))
    return wp.isfinite(total)


@wp.func
def step(
    job: Job,
    u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any),
    w: int,
    scratch: wp.array2d(dtype=Any),
):
    """Do one step on the state in scratch; return its status."""
    status = int(OK)
    write_stages(job, u, parameters, w, scratch)
    if not finish(job, w, scratch) or not is_driven_finitely(job, u, w):
        status = status | NOT_FINITE
    return status


# -- backwards -------------------------------------------------------------------------------------------------------


@wp.func
def end_vjp(job: Job, w: int, scratch: wp.array2d(dtype=Any), adj: wp.array2d(dtype=Any)):
    """Write the cotangents of the end of the step before its quaternions were made unit: eq. (5)."""
    topology = job.scene.topology
    for r in range(job.scene.nq):
        adj[r, w] = scratch[job.scratch.next_adj_q + r, w]
    for r in range(topology.nv):
        adj[job.scene.nq + r, w] = scratch[job.scratch.next_adj_qd + r, w]
    for body in range(topology.nbody):
        joint_normalize_vjp(topology, body, rows_from(scratch, stage_row(job, job.stages)), w, adj)


@wp.func
def rates_vjp(
    job: Job, i: int, w: int, adj_rates: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
    adj: wp.array2d(dtype=Any), adj_qdd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of q, qd and qdd of stage i for those of its rates, eq. (1): eq. (6)."""
    topology = job.scene.topology
    nq = job.scene.nq
    here = stage_row(job, i)
    for body in range(topology.nbody):
        joint_rates_vjp(
            topology, body, rows_from(scratch, here), rows_from(scratch, here + nq),
            rows_from(scratch, here + nq + topology.nv), adj_rates, rows_from(adj_rates, nq), w,
            adj, rows_from(adj, nq), adj_qdd,
        )  # fmt: skip


@wp.func
def axes_vjp(job: Job, i: int, w: int, scratch: wp.array2d(dtype=Any), adj: wp.array2d(dtype=Any)):
    """Replace the cotangents of q and qd of stage i by those of q and z, v = R^T z: eq. (7)."""
    topology = job.scene.topology
    nq = job.scene.nq
    here = stage_row(job, i)
    for body in range(topology.nbody):
        joint_unfix_axes_vjp(
            topology, body, rows_from(scratch, here), rows_from(scratch, here + nq), w, adj, rows_from(adj, nq)
        )


@wp.func
def start_vjp(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the cotangents of the state before the step, z = R v there: the sum over all stages, eq. (8)."""
    topology = job.scene.topology
    place = job.scratch
    nq = job.scene.nq
    size = nq + topology.nv
    for r in range(size):
        total = scratch.dtype(0.0)
        for i in range(job.stages + 1):
            total += scratch[place.stage_adj + i * size + r, w]
        scratch[place.adj_q + r, w] = total
    for body in range(topology.nbody):
        joint_fix_axes_vjp(
            topology, body, rows_from(scratch, place.stages), rows_from(scratch, place.stages + nq), w,
            rows_from(scratch, place.adj_q), rows_from(scratch, place.adj_q + nq),
        )  # fmt: skip


@wp.func
def stages_vjp(
    # model
    job: Job,
    # in: all stages, and the cotangents of the state after the step, in scratch
    u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any),
    w: int,
    # out: the cotangents of the state before, in scratch; the others are added to
    adj_u: wp.array2d(dtype=Any),
    adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):
    """Pull the cotangents of a step's result back through its stages, last first."""
    scene = job.scene
    topology = scene.topology
    place = job.scratch
    nq = scene.nq
    nv = topology.nv
    dt = scratch.dtype(job.settings.dt)
    nu = rows_from(scratch, place.adj_force)
    size = nq + nv
    adj_rates = rows_from(scratch, place.stage_adj + (job.stages + 1) * size)
    for k in range(job.stages + 1):
        i = job.stages - k
        adj = rows_from(scratch, place.stage_adj + i * size)
        if k == 0:
            end_vjp(job, w, scratch, adj)
        else:
            # what later stages and the end ask of the rates
            for r in range(size):
                total = scratch.dtype(0.0)
                for later in range(i + 1, job.stages + 1):
                    total += share(job.stages, later, i, dt) * scratch[place.stage_adj + later * size + r, w]
                adj_rates[r, w] = total
            rates_vjp(job, i, w, adj_rates, scratch, adj, nu)
            # forward dynamics by way of inverse dynamics
            motion = Motion()
            motion.q = stage_row(job, i)
            motion.qd = motion.q + nq
            motion.acceleration = motion.qd + nv
            motion.adj_q = place.stage_adj + i * size
            motion.adj_qd = motion.adj_q + nq
            motion.adj_force = place.adj_force
            L = rows_from(scratch, place.L + i * nv * nv)
            solve_transposed(scene, L, w, nu)
            solve_factor(scene, L, w, nu)
            forces_vjp(job, motion, u, parameters, w, adj_u, adj_parameters, scratch, nowhere)
        axes_vjp(job, i, w, scratch, adj)
    start_vjp(job, w, scratch)


@wp.func
def retrace(
    job: Job,
    pulls_back: bool,
    u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any),
    w: int,
    adj_u: wp.array2d(dtype=Any),
    adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):
    """Do the step from the state in scratch again, or pull the cotangents of its result back through it."""
    write_stages(job, u, parameters, w, scratch)
    if pulls_back:
        stages_vjp(job, u, parameters, w, adj_u, adj_parameters, scratch, nowhere)
    else:
        finish(job, w, scratch)
