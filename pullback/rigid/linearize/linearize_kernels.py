"""All step Jacobians of a trajectory in one launch, a thread for each state (docs/derivations/linearize.md).

A step whose impulses are a solution, in which nothing bounces and no loop is closed, is differentiated by matrices: one
elimination for all columns. Any other is walked back by the step's adjoint, row by row. A row is a cotangent of the
state after the step, in its tangent space, and becomes one of the state before: coordinates, velocities, impulses of a
warm start.
"""

from typing import Any

import warp as wp

from pullback.core.array_struct import array_struct
from pullback.core.modules import kernel_module, made_once
from pullback.rigid.compile.scene import Scene
from pullback.rigid.linearize.dynamics_kernels import LinearJob
from pullback.rigid.linearize.rows_kernels import copy_run, fill
from pullback.rigid.linearize.solve_kernels import velocity_jacobian
from pullback.rigid.rollout_kernels import INPUTS, copy_rows, copy_state
from pullback.rigid.solvers.pgs_kernels import has_held_rows
from pullback.rigid.solvers.rows_kernels import add_multiple
from pullback.rigid.step.actuator_kernels import is_unsettled
from pullback.rigid.step.constraint_kernels import BLOCK_ROWS, RESTITUTION
from pullback.rigid.step.integrate_kernels import integrate
from pullback.rigid.step.lanes_kernels import alone
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.step_kernels import (
    NOT_CONVERGED,
    NOT_FINITE,
    OVERFLOW,
    move,
    solve_unless_split,
    write_acceleration,
    write_velocities,
)
from pullback.rigid.step.step_vjp_kernels import step_vjp
from pullback.rigid.step.variants import Step
from pullback.robot.joint_kernels import (
    joint_nv,
    joint_tangent_inverse_vjp,
    joint_tangent_vjp,
    joint_travels,
    joint_turns,
)
from pullback.rollout.checkpoint import ADVANCE, RESTORE, SAVE
from pullback.spatial.arrays import load3, rows_from, store
from pullback.spatial.rotations import quaternion_from_vector, right_jacobian
from pullback.spatial.vectors import rotation_from_quaternion, skew

_RESTORE = wp.constant(RESTORE)
_ADVANCE = wp.constant(ADVANCE)
_SAVE = wp.constant(SAVE)


# -- tangent space ---------------------------------------------------------------------------------------------------


@wp.func
def coordinate_cotangents(
    scene: Scene, q: wp.array2d(dtype=Any), w: int, tangent: wp.array2d(dtype=Any), adj_q: wp.array2d(dtype=Any)
):
    """Write the cotangent of q for one of small displacements, nv numbers."""
    for i in range(scene.topology.nbody):
        joint_tangent_inverse_vjp(scene.topology, i, q, tangent, w, adj_q)


@wp.func
def tangent_cotangents(
    scene: Scene, q: wp.array2d(dtype=Any), adj_q: wp.array2d(dtype=Any), w: int, tangent: wp.array2d(dtype=Any)
):
    """Write the cotangent of small displacements, nv numbers, for that of q."""
    for i in range(scene.topology.nbody):
        joint_tangent_vjp(scene.topology, i, q, adj_q, w, tangent)


# -- the Jacobian of a step by matrices ------------------------------------------------------------------------------


@wp.func
def add_product(
    R: Any, source: wp.array2d(dtype=Any), first: int, columns: int, w: int, to: wp.array2d(dtype=Any), row: int
):
    """Add R times three rows of a matrix to three of another."""
    for a in range(3):
        for b in range(3):
            add_multiple(to, (row + a) * columns, R[a, b], source, (first + b) * columns, columns, w)


@wp.func
def add_block(R: Any, columns: int, w: int, to: wp.array2d(dtype=Any), row: int, column: int):
    """Add a 3x3 matrix to that part of another."""
    for a in range(3):
        at = (row + a) * columns + column
        store(to, at, w, load3(to, at, w) + wp.vector(R[a, 0], R[a, 1], R[a, 2]))


@wp.func
def write_jacobian(
    scene: Scene, dt: Any, columns: int, v: wp.array2d(dtype=Any), change: wp.array2d(dtype=Any), w: int,
    jacobian: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the Jacobian of the state after the step from that of its velocity v: eqs. (20) to (23)."""
    topology = scene.topology
    nv = topology.nv
    one = v.dtype(1.0)
    fill(jacobian, 0, nv * columns, w)
    copy_run(jacobian, nv * columns, change, 0, nv * columns, w)
    for i in range(topology.nbody):
        vi = topology.v_start[i]
        if not joint_turns(topology, i):
            for r in range(vi, vi + joint_nv(topology, i)):
                add_multiple(jacobian, r * columns, dt, change, r * columns, columns, w)
                jacobian[r * columns + r, w] = jacobian[r * columns + r, w] + one
        else:
            turn = dt * load3(v, vi, w)
            back = wp.transpose(rotation_from_quaternion(quaternion_from_vector(turn)))
            turning = dt * right_jacobian(turn)
            add_product(turning, change, vi, columns, w, jacobian, vi)
            add_block(back, columns, w, jacobian, vi, vi)
            if joint_travels(topology, i):
                u = load3(v, vi + 3, w)
                y = back * u
                add_product(dt * back, change, vi + 3, columns, w, jacobian, vi + 3)
                add_block(back, columns, w, jacobian, vi + 3, vi + 3)
                add_block(-(back * skew(dt * u)), columns, w, jacobian, vi + 3, vi)
                fill(jacobian, (nv + vi + 3) * columns, 3 * columns, w)
                add_product(back, change, vi + 3, columns, w, jacobian, nv + vi + 3)
                add_product(skew(y) * turning, change, vi, columns, w, jacobian, nv + vi + 3)


@wp.func
def is_smooth(job: Job, nc: int, sweeps: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Tell whether the impulses are a solution, to be differentiated as one, nothing bounces and no loop is closed."""
    smooth = has_held_rows(job, sweeps) and job.scene.nloop == 0
    for c in range(nc):
        if scratch[job.scratch.blocks + c * BLOCK_ROWS + RESTITUTION, w] > scratch.dtype(0.0):
            smooth = False
    return smooth


@wp.func
def write_next_q(linear_job: LinearJob, w: int, scratch: wp.array2d(dtype=Any), work: wp.array2d(dtype=Any)):
    """Write the coordinates after the step."""
    job = linear_job.job
    next_q = rows_from(work, linear_job.place.next_q)
    for k in range(job.scene.nq):
        next_q[k, w] = scratch[job.scratch.q + k, w]
    integrate(job.scene, scratch.dtype(job.settings.dt), rows_from(scratch, job.scratch.travel), w, next_q)


# -- the kernel ------------------------------------------------------------------------------------------------------


@wp.func
def multiply(linear_job: LinearJob, w: int, is_last: bool, rows: wp.array2d(dtype=Any), work: wp.array2d(dtype=Any)):
    """Multiply the rows of cotangents by the Jacobian; add those of controls. The last step's are unit rows."""
    place = linear_job.place
    n = 2 * linear_job.job.scene.topology.nv
    nu = linear_job.job.scene.nu
    columns = linear_job.columns
    jacobian = rows_from(work, place.jacobian)
    total = rows_from(work, place.right)
    if is_last:
        copy_run(rows, 0, jacobian, 0, n * columns, w)
    else:
        for r in range(n):
            fill(total, 0, columns, w)
            for k in range(n):
                add_multiple(total, 0, rows[r * columns + k, w], jacobian, k * columns, columns, w)
            copy_run(rows, r * columns, total, 0, n, w)
            add_multiple(rows, r * columns + n, rows.dtype(1.0), total, n, nu, w)
    fill(work, place.impulses, n * linear_job.job.nimpulse, w)


@wp.func
def start_rows(linear_job: LinearJob, w: int, rows: wp.array2d(dtype=Any), work: wp.array2d(dtype=Any)):
    """Write unit rows, and no cotangents of controls and impulses."""
    n = 2 * linear_job.job.scene.topology.nv
    fill(rows, 0, n * linear_job.columns, w)
    fill(work, linear_job.place.impulses, n * linear_job.job.nimpulse, w)
    for r in range(n):
        rows[r * linear_job.columns + r, w] = rows.dtype(1.0)


@wp.func
def leave(
    job: Job, pulls_back: bool, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    adj_u: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Stand for the retracing of split steps where there are none."""


@made_once
def kernels(kind: Step):
    """Return the kernel that writes A and B side by side, row by row, and status; there is no vjp."""
    real = kind.real
    a = wp.array2d(dtype=real)
    Inputs = array_struct("rollout_inputs", INPUTS, real)
    solve = kind.variant(solve_unless_split)
    change_velocity = kind.variant(velocity_jacobian)
    pull_back = kind.variant(step_vjp)
    can_be_a_matrix = kind.variant(is_smooth)
    retrace = kind.retrace if kind.splits else leave

    @wp.kernel(module=kernel_module(f"linearize_{kind.name}", real, large=True))
    def forward(linear_job: LinearJob, inputs: Inputs, rows: a, status: a, scratch: a, work: a, nowhere: a):
        controls = inputs.controls
        parameters = inputs.parameters
        place = linear_job.job.scratch
        nv = linear_job.job.scene.topology.nv
        ni = linear_job.job.nimpulse
        columns = linear_job.columns
        dt = real(linear_job.job.settings.dt)
        w = wp.tid()
        alone(place.lanes, w, scratch)
        flags = int(0)
        is_last = bool(True)
        by_rows = bool(False)
        for k in range(linear_job.job.nactions):
            op = linear_job.job.actions[3 * k]
            slot = linear_job.job.actions[3 * k + 2]
            here = place.slots + (slot - linear_job.job.nkept) * linear_job.job.nstate
            if op == _RESTORE:
                if slot == 0:
                    copy_state(linear_job.job, inputs, 0, w, scratch)
                else:
                    copy_rows(scratch, here, linear_job.job.nstate, w, scratch, place.state)
            elif op == _SAVE:
                copy_rows(scratch, place.state, linear_job.job.nstate, w, scratch, here)
            else:
                split, found, ns, sweeps = solve(linear_job.job, op != _ADVANCE, controls, parameters, w, scratch)
                nc = wp.min(found, linear_job.job.scene.max_contacts)
                if found > nc:
                    flags = flags | OVERFLOW
                if sweeps < 0 or is_unsettled(linear_job.job, w, scratch):
                    flags = flags | NOT_CONVERGED
                if split and op == _ADVANCE:
                    retrace(linear_job.job, False, controls, parameters, w, nowhere, nowhere, scratch, nowhere)
                elif op == _ADVANCE:
                    if not move(linear_job.job, nc, ns, w, scratch):
                        flags = flags | NOT_FINITE
                else:
                    if not split:
                        write_velocities(linear_job.job, nc, w, scratch)
                        write_acceleration(linear_job.job, w, scratch)
                    # what a later step's sweeps ask of this step's impulses is the adjoint's to answer
                    can_be = not split and not (by_rows and ni > 0)
                    if can_be:
                        can_be = can_be_a_matrix(linear_job.job, nc, sweeps, w, scratch)
                    if can_be:
                        change_velocity(linear_job, nc, ns, controls, parameters, w, scratch, nowhere, work)
                        write_jacobian(
                            linear_job.job.scene, dt, columns, rows_from(scratch, place.velocity),
                            rows_from(work, linear_job.place.change), w, rows_from(work, linear_job.place.jacobian),
                        )  # fmt: skip
                        multiply(linear_job, w, is_last, rows, work)
                    else:
                        by_rows = True
                        if split:
                            # the adjoint of each row does the step again, from the state before it
                            copy_rows(scratch, place.state, linear_job.job.nstate, w, work, linear_job.place.state)
                            retrace(linear_job.job, False, controls, parameters, w, nowhere, nowhere, scratch, nowhere)
                            copy_rows(scratch, place.q, linear_job.job.scene.nq, w, work, linear_job.place.next_q)
                            copy_rows(work, linear_job.place.state, linear_job.job.nstate, w, scratch, place.state)
                        else:
                            write_next_q(linear_job, w, scratch, work)
                        if is_last:
                            start_rows(linear_job, w, rows, work)
                        for r in range(2 * nv):
                            row = rows_from(rows, r * columns)
                            coordinate_cotangents(
                                linear_job.job.scene, rows_from(work, linear_job.place.next_q), w, row,
                                rows_from(scratch, place.next_adj_q),
                            )  # fmt: skip
                            copy_rows(row, nv, nv, w, scratch, place.next_adj_qd)
                            impulses = rows_from(work, linear_job.place.impulses + r * ni)
                            copy_rows(impulses, 0, ni, w, scratch, place.next_adj_impulses)
                            if split:
                                retrace(
                                    linear_job.job, True, controls, parameters, w, rows_from(row, 2 * nv), nowhere,
                                    scratch, nowhere,
                                )  # fmt: skip
                            else:
                                pull_back(
                                    linear_job.job, nc, ns, sweeps, controls, parameters, w, rows_from(row, 2 * nv),
                                    nowhere, scratch, nowhere,
                                )  # fmt: skip
                            tangent_cotangents(
                                linear_job.job.scene, rows_from(scratch, place.q), rows_from(scratch, place.adj_q), w,
                                row,
                            )  # fmt: skip
                            copy_rows(scratch, place.adj_qd, nv, w, row, nv)
                            copy_rows(scratch, place.adj_impulses, ni, w, impulses, 0)
                    is_last = False
        total = real(0.0)
        for r in range(2 * nv):
            total += wp.abs(rows[r * columns + r, w])
        if not wp.isfinite(total):
            flags = flags | NOT_FINITE
        status[0, w] = real(flags)
        status[1, w] = real(-1)
        status[2, w] = real(wp.where(flags & NOT_CONVERGED != 0, 1, 0))
        status[3, w] = real(wp.where(flags & NOT_CONVERGED != 0, 0, -1))

    return forward, forward
