"""Symplectic steps of worlds without contact, by the variational midpoint rule, and their adjoint.

docs/derivations/midpoint.md. A step of h = dt / 2 before and after its midpoint q, which it passes at the velocity v:

    q0 = q (+) -h v,    q1 = q (+) h v                                                                          (1)
    p = dl/dv = M(q) v,    f = dl/dq + forces,    l(q, v) the Lagrangian                                        (2)
    p0, p1: the momenta M qd before and after the step, for which, where coordinates just add up,
    p = p0 + h f,    p1 = p0 + 2 h f                                                                            (3)

The first equation of (3) is solved for v. Stages 0, 1 and 2 are the start, the midpoint and the end, each with its q,
velocity and momentum; of the midpoint's momentum stands what is left of it in that equation.
"""

from typing import Any

import warp as wp

from pullback.rigid.step.actuator_kernels import actuator_forces_vjp
from pullback.rigid.step.dynamics_kernels import factorize, solve_factor, solve_transposed
from pullback.rigid.step.force_kernels import is_driven_finitely
from pullback.rigid.step.integrate_kernels import (
    integrate,
    integrate_vjp,
    turn_axes_vjp,
)
from pullback.rigid.step.lagrangian_kernels import derivatives_vjp, write_derivatives
from pullback.rigid.step.midpoint_momenta_kernels import (
    adj_row,
    half_step,
    momenta_vjp,
    write_end_momentum,
)
from pullback.rigid.step.midpoint_solve_kernels import (
    ANY,
    ITERATIONS,
    factor_of,
    is_slow,
    solve,
    take_correction,
    tolerance,
    write_factor,
    write_forces,
    write_inverse,
    write_mass,
)
from pullback.rigid.step.problem_kernels import Job, Motion
from pullback.rigid.step.runge_kutta_kernels import stage_row
from pullback.rigid.step.step_kernels import NOT_CONVERGED, NOT_FINITE, OK
from pullback.spatial.arrays import rows_from


@wp.func
def write_end(job: Job, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Write q, momentum and velocity at the end of the step: eqs. (1), (3), (4)."""
    scene = job.scene
    h = half_step(job, scratch.dtype(0.0))
    q = rows_from(scratch, stage_row(job, 2))
    qd = rows_from(q, scene.nq)
    for r in range(scene.nq):
        q[r, w] = scratch[stage_row(job, 1) + r, w]
    integrate(scene, h, rows_from(scratch, stage_row(job, 1) + scene.nq), w, q)
    write_end_momentum(job, w, scratch, qd)
    L = factor_of(job, 2, scratch)
    write_mass(job, 2, parameters, w, scratch)
    factorize(scene, w, L)
    solve_transposed(scene, L, w, qd)
    solve_factor(scene, L, w, qd)


@wp.func
def finish(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Replace the state in scratch by the end of the step; tell whether it is finite."""
    total = scratch.dtype(0.0)
    for r in range(job.scene.nq + job.scene.topology.nv):
        value = scratch[stage_row(job, 2) + r, w]
        scratch[job.scratch.state + r, w] = value
        total += wp.abs(value)
    return wp.isfinite(total)


@wp.func
def step(job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Do one step on the state in scratch; return its status."""
    status = int(OK)
    if not solve(job, u, parameters, w, scratch):
        status = status | NOT_CONVERGED
    write_end(job, parameters, w, scratch)
    if not finish(job, w, scratch) or not is_driven_finitely(job, u, w):
        status = status | NOT_FINITE
    return status


# -- backwards -------------------------------------------------------------------------------------------------------


@wp.func
def clear(x: wp.array2d(dtype=Any), count: int, w: int):
    """Set rows to zero."""
    for r in range(count):
        x[r, w] = x.dtype(0.0)


@wp.func
def end_vjp(
    job: Job, parameters: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any), nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of q and momentum at the end, where M(q) qd = p: eq. (12)."""
    nq = job.scene.nq
    nv = job.scene.topology.nv
    adj_q = rows_from(scratch, adj_row(job, 2) - nq)
    adj_momentum = rows_from(scratch, adj_row(job, 2))
    adj_force = rows_from(scratch, job.scratch.adj_force)
    L = factor_of(job, 2, scratch)
    for r in range(nq):
        adj_q[r, w] = scratch[job.scratch.next_adj_q + r, w]
    for v in range(nv):
        adj_momentum[v, w] = -scratch[job.scratch.next_adj_qd + v, w]
    solve_transposed(job.scene, L, w, adj_momentum)
    solve_factor(job.scene, L, w, adj_momentum)
    clear(adj_force, nv, w)
    write_derivatives(job, 2, parameters, w, scratch)
    derivatives_vjp(job, 2, parameters, w, adj_momentum, adj_force, adj_q, nowhere, adj_parameters, scratch)
    for v in range(nv):
        adj_momentum[v, w] = -adj_momentum[v, w]


@wp.func
def midpoint_vjp(
    job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, adj_u: wp.array2d(dtype=Any),
    adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of q and momentum before the step and of the velocity, for those of the others: eq. (17)."""
    scene = job.scene
    topology = scene.topology
    place = job.scratch
    h = half_step(job, scratch.dtype(0.0))
    q = rows_from(scratch, stage_row(job, 1))
    rates = rows_from(q, scene.nq)
    adj_q = rows_from(scratch, adj_row(job, 1) - scene.nq)
    adj_rates = rows_from(scratch, adj_row(job, 3))
    adj_force = rows_from(scratch, place.adj_force)
    zeta = rows_from(scratch, place.zeta)
    # from the midpoint to the end
    integrate_vjp(scene, h, q, rates, rows_from(scratch, adj_row(job, 2) - scene.nq), w, adj_q, adj_rates)
    momenta_vjp(job, w, scratch)
    # momentum and force
    adj_momentum = rows_from(scratch, adj_row(job, 1))
    derivatives_vjp(job, 1, parameters, w, adj_momentum, adj_force, adj_q, adj_rates, adj_parameters, scratch)
    motion = Motion()
    motion.q = stage_row(job, 1)
    motion.qd = motion.q + scene.nq
    motion.adj_q = adj_row(job, 1) - scene.nq
    motion.adj_qd = adj_row(job, 3)
    motion.adj_force = place.adj_force
    actuator_forces_vjp(job, motion, u, parameters, w, adj_u, adj_parameters, scratch)
    # from the start to the midpoint
    integrate_vjp(
        scene, h, rows_from(scratch, stage_row(job, 0)), rows_from(scratch, place.travel), adj_q, w,
        rows_from(scratch, place.adj_q), zeta,
    )  # fmt: skip
    turn_axes_vjp(scene, -h, rates, rates, w, adj_rates, zeta)
    for v in range(topology.nv):
        adj_rates[v, w] = adj_rates[v, w] + zeta[v, w]


@wp.func
def step_vjp(
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
    """Pull the cotangents of a step's result back through it, by the implicit function theorem."""
    nv = job.scene.topology.nv
    end_vjp(job, parameters, w, adj_parameters, scratch, nowhere)
    # the cotangent of the midpoint's momentum for which that of the velocity is zero, eqs. (17), (18)
    multiplier = rows_from(scratch, adj_row(job, 1))
    adj_rates = rows_from(scratch, adj_row(job, 3))
    clear(multiplier, nv, w)
    write_factor(job, u, parameters, w, scratch)
    write_forces(job, u, parameters, w, scratch)
    small = tolerance(scratch.dtype(0.0)) * tolerance(scratch.dtype(0.0))
    square = scratch.dtype(ANY)
    allowed = scratch.dtype(0.0)
    slow = bool(False)
    inverse = bool(False)
    count = int(0)
    while count < ITERATIONS and square > allowed:
        if slow and not inverse:
            write_inverse(job, u, parameters, w, scratch)
            write_forces(job, u, parameters, w, scratch)
            inverse = True
        midpoint_vjp(job, u, parameters, w, nowhere, nowhere, scratch)
        before = square
        square = take_correction(job, w, inverse, True, before, adj_rates, multiplier, scratch)
        slow = is_slow(square, before)
        if count == 0:
            allowed = small * square
        count += 1
    midpoint_vjp(job, u, parameters, w, adj_u, adj_parameters, scratch)
    # the momentum before the step
    adj_force = rows_from(scratch, job.scratch.adj_force)
    adj_qd = rows_from(scratch, job.scratch.adj_qd)
    clear(adj_force, nv, w)
    clear(adj_qd, nv, w)
    write_derivatives(job, 0, parameters, w, scratch)
    derivatives_vjp(
        job, 0, parameters, w, rows_from(scratch, adj_row(job, 0)), adj_force, rows_from(scratch, job.scratch.adj_q),
        adj_qd, adj_parameters, scratch,
    )  # fmt: skip


@wp.func
def retrace(
    job: Job, pulls_back: bool, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    adj_u: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Do the step from the state in scratch again, or pull the cotangents of its result back through it."""
    solve(job, u, parameters, w, scratch)
    write_end(job, parameters, w, scratch)
    if pulls_back:
        step_vjp(job, u, parameters, w, adj_u, adj_parameters, scratch, nowhere)
    else:
        finish(job, w, scratch)
