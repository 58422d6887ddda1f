"""The adjoint of a step that is split where something touches (docs/derivations/impacts.md, sections 5 and 6).

The step is done again, and its parts are kept. Then they are pulled back, last first, each by the adjoint of
step_vjp_kernels.py. A part that follows a touch is shorter the later that comes: the derivative of the loss by the time
that is left goes to the moment of touching (moment_vjp_kernels.py).
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import CONTACT_ROWS, FALL, GAP
from pullback.rigid.step.actuator_kernels import inertia_share, numbers_of, time_ahead
from pullback.rigid.step.constraint_kernels import (
    BIAS,
    BLOCK_ROWS,
    SCALAR_BIAS,
    SCALAR_ROWS,
    SLOPE,
    UPPER,
    is_limit,
)
from pullback.rigid.step.dynamics_kernels import solve_transposed
from pullback.rigid.step.event_kernels import (
    TIME,
    WHAT,
    WORK,
    carry_cotangents,
    event_row,
    hand_back,
    keep_counts,
    kept_counts,
    restore_event,
    scratch_of_part,
)
from pullback.rigid.step.moment_vjp_kernels import moment_vjp, way_vjp
from pullback.rigid.step.path_kernels import way_share
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.record_kernels import add_record_cotangents, set_aside_vjp, stage_of
from pullback.rigid.step.rows_vjp_kernels import mass_matrix_vjp
from pullback.rigid.step.split_kernels import (
    DONE,
    DRIFT,
    IMPACT,
    UNSPLIT,
    WHOLE,
    do_parts,
    drift,
    solve_part,
    travel_beyond,
    write_velocities_of_part,
)
from pullback.rigid.step.step_kernels import move, write_acceleration
from pullback.rigid.step.step_vjp_kernels import (
    clear_geometry,
    free_motion_vjp,
    impulses_vjp,
    motion_vjp,
    solution_vjp,
)
from pullback.robot.topology import DAMPING, DOF_ROWS
from pullback.spatial.arrays import rows_from

# -- parts of a step ---------------------------------------------------------------------------------------------------


@wp.func
def drift_vjp(job: Job, time: Any, w: int, scratch: wp.array2d(dtype=Any)):
    """Pull the cotangents of the state at a touch back to the velocity of the whole span, as gamma, and to q and qd.

    That of qd is kept in `adj_before`, eq. (8). Return the derivative by the span, at the same velocity and time.
    """
    place = job.scratch
    scene = job.scene
    span = scratch[place.span, w]
    share = time / span
    on_way, by_time = way_share(job, time, span)
    velocity = rows_from(scratch, place.velocity)
    qd = rows_from(scratch, place.qd)
    gamma = rows_from(scratch, place.gamma)
    way_vjp(job, time, span, rows_from(scratch, place.q), qd, velocity, w, scratch)
    adj_span = scratch.dtype(0.0)
    for v in range(scene.topology.nv):
        asked = share * gamma[v, w] + on_way * scratch[place.zeta + v, w]
        adj_span -= asked * (velocity[v, w] - qd[v, w]) / span
        scratch[place.adj_before + v, w] = gamma[v, w] + time * scratch[place.zeta + v, w] - asked
        gamma[v, w] = asked
    solve_transposed(scene, rows_from(scratch, place.L), w, gamma)
    return adj_span


@wp.func
def last_motion_vjp(job: Job, part: int, nc: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Pull the cotangents of the state after the last part back as those of a step, eq. (12), and as `drift_vjp`.

    Nobody asks for the derivative by the span of a step that is not split.
    """
    place = job.scratch
    motion_vjp(job, nc, w, scratch)
    adj_span = scratch.dtype(0.0)
    if part != UNSPLIT:
        span = scratch[place.span, w]
        share = travel_beyond(job, w, scratch)
        by_span = scratch.dtype(0.5) * scratch.dtype(job.settings.dt) / (span * span)
        beyond = rows_from(scratch, place.y)
        for v in range(job.scene.topology.nv):
            zeta = scratch[place.zeta + v, w]
            gained = scratch[place.velocity + v, w] - scratch[place.qd + v, w]
            adj_span += zeta * (scratch[place.travel + v, w] / span - by_span * gained)
            beyond[v, w] = share * zeta
            scratch[place.adj_before + v, w] = -share * zeta
        solve_transposed(job.scene, rows_from(scratch, place.L), w, beyond)
        for v in range(job.scene.topology.nv):
            scratch[place.gamma + v, w] = scratch[place.gamma + v, w] + beyond[v, w]
    return adj_span


@wp.func
def impact_velocity_vjp(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Take the cotangents of the state after an impact: those of q stay, that of the velocity becomes gamma."""
    place = job.scratch
    gamma = rows_from(scratch, place.gamma)
    for r in range(job.scene.nq):
        scratch[place.adj_q + r, w] = scratch[place.next_adj_q + r, w]
    for v in range(job.scene.topology.nv):
        gamma[v, w] = scratch[place.next_adj_qd + v, w]
    solve_transposed(job.scene, rows_from(scratch, place.L), w, gamma)


@wp.func
def span_vjp(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Return the derivative by the span of the velocity that a part finds, eq. (9); `eta` and multipliers are there."""
    place = job.scratch
    zero = scratch.dtype(0.0)
    total = zero
    for v in range(job.scene.topology.nv):
        total += scratch[place.eta + v, w] * (scratch[place.free + v, w] - scratch[place.start + v, w])
    for c in range(nc):
        block = place.blocks + c * BLOCK_ROWS
        if scratch[place.contacts + c * CONTACT_ROWS + GAP, w] > zero and scratch[block + SLOPE, w] > zero:
            total += scratch[place.multiplier + 3 * c, w] * scratch[block + BIAS, w]
    for k in range(job.scene.nloop_row + job.scene.ncoupling, ns):
        row = place.scalars + k * SCALAR_ROWS
        if not is_limit(rows_from(scratch, place.scalars), k, w):
            adj_bound = scratch[place.adj_upper + k, w] - scratch[place.adj_lower + k, w]
            total += scratch[row + UPPER, w] * adj_bound
        elif scratch[row + SCALAR_BIAS, w] > zero:
            total += scratch[place.multiplier + 3 * nc + k, w] * scratch[row + SCALAR_BIAS, w]
    return total / scratch[place.span, w]


@wp.func
def inertia_ahead(
    job: Job, y: wp.array2d(dtype=Any), z: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return the part of y^T M z by the inertias that stand for damping and servos."""
    total = scratch.dtype(0.0)
    for v in range(job.scene.topology.nv):
        total += y[v, w] * parameters[job.parameters.dofs + DOF_ROWS * v + DAMPING, w] * z[v, w]
    total = total * time_ahead(job, w, scratch)
    for a in range(job.scene.nactuator):
        v = job.scene.actuator_dof[job.scene.actuator_start[a]]
        k = inertia_share(job, a, parameters, w, scratch) * numbers_of(job, a, parameters, w)[FALL]
        total += y[v, w] * k * z[v, w]
    return total


@wp.func
def part_mass_matrix_vjp(
    job: Job, parameters: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Do what `mass_matrix_vjp` does, and add what the inertias of a part ask of its span, eq. (15)."""
    y = rows_from(scratch, job.scratch.y)
    z = rows_from(scratch, job.scratch.z)
    mass_matrix_vjp(job, parameters, w, adj_parameters, scratch)
    added = inertia_ahead(job, y, z, parameters, w, scratch)
    scratch[job.scratch.adj_ahead, w] = scratch[job.scratch.adj_ahead, w] + added


@wp.func
def ahead_vjp(job: Job, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Return the derivative by the span through how far actuators and damping look ahead, eqs. (13) and (15)."""
    place = job.scratch
    nu = rows_from(scratch, place.nu)
    acceleration = rows_from(scratch, place.acceleration)
    span = scratch[place.span, w]
    total = scratch[place.adj_ahead, w] - span * inertia_ahead(job, nu, acceleration, parameters, w, scratch)
    # in proportion to what there is ahead
    return total / (span + scratch.dtype(job.settings.dt))


@wp.func
def part_motion_vjp(job: Job, part: int, time: Any, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Pull the cotangents of the state after a part of a step back to its impulses, and to q and qd.

    `time` is that of a drift. What qd gets is kept in `adj_before`. Return the derivative by the span.
    """
    adj_span = scratch.dtype(0.0)
    clear_geometry(job, nc, w, scratch)
    if part == WHOLE or part == UNSPLIT:
        adj_span = last_motion_vjp(job, part, nc, w, scratch)
    else:
        write_velocities_of_part(job, nc, w, scratch)
        if part == DRIFT:
            write_acceleration(job, w, scratch)
            adj_span = drift_vjp(job, time, w, scratch)
        else:
            impact_velocity_vjp(job, w, scratch)
    impulses_vjp(job, nc, ns, False, w, scratch)
    return adj_span


@wp.func
def part_vjp(
    # model
    job: Job,
    # in: which part, its contacts, scalar rows and sweeps; the cotangents that `part_motion_vjp` leaves, in scratch
    part: int,
    nc: int,
    ns: int,
    sweeps: int,
    u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any),
    w: int,
    # out
    adj_u: wp.array2d(dtype=Any),
    adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):
    """Pull the cotangent of the velocity that a part of a step finds back through it; return that of its span."""
    place = job.scratch
    adj_span = scratch.dtype(0.0)
    scratch[place.adj_ahead, w] = adj_span
    solution_vjp(job, nc, ns, sweeps, False, u, parameters, w, adj_parameters, scratch)
    if part == IMPACT:
        # M (v2 - v1) = J^T lam takes the place of the equations of motion
        for v in range(job.scene.topology.nv):
            scratch[place.y + v, w] = -scratch[place.nu + v, w]
            scratch[place.z + v, w] = scratch[place.velocity + v, w] - scratch[place.qd + v, w]
        mass_matrix_vjp(job, parameters, w, adj_parameters, scratch)
    else:
        if part != UNSPLIT:
            adj_span = span_vjp(job, nc, ns, w, scratch) + ahead_vjp(job, parameters, w, scratch)
        free_motion_vjp(job, u, parameters, w, adj_u, adj_parameters, scratch, nowhere)
        if part != UNSPLIT:
            for v in range(job.scene.topology.nv):
                scratch[place.adj_qd + v, w] = scratch[place.adj_qd + v, w] + scratch[place.adj_before + v, w]
    return adj_span


# -- the step ----------------------------------------------------------------------------------------------------------


@wp.func
def solve_again(
    job: Job, part: int, k: int, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    events: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Solve a part that was not kept once more: the drift to the k-th touch, or its impact."""
    asked = int(part)
    touched = int(-1)
    restore_event(job, k, w, events, scratch)
    time = events[event_row(job, k) + TIME, w]
    if k > 0:
        touched = int(events[event_row(job, k - 1) + WHAT, w])
    if part == DRIFT:
        # it comes out as one again
        asked = WHOLE
    elif time >= scratch.dtype(0.0):
        drift(job, time, w, scratch, scratch)
    chosen, nc, ns, found, nscalar, sweeps = solve_part(
        job, asked, k, touched, True, True, u, parameters, w, scratch
    )  # fmt: skip
    keep_counts(job, nc, ns, sweeps, w, scratch)


@wp.func
def parts_vjp(
    job: Job, events: int, last: int, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    adj_u: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull cotangents back through the parts of a step that is done, with so many touches, from the last part on."""
    zero = scratch.dtype(0.0)
    adj_left = zero
    index = int(last)
    k = int(events)
    part = int(wp.where(events > 0, WHOLE, UNSPLIT))
    if last > 0:
        carry_cotangents(job, w, scratch, scratch_of_part(job, last, scratch))
    while part != DONE:
        here = scratch_of_part(job, index, scratch)
        time = zero
        if k < events:
            time = scratch[event_row(job, k) + TIME, w]
            if index >= job.nkept_part:
                solve_again(job, part, k, u, parameters, w, scratch, here)
        nc, ns, sweeps = kept_counts(job, w, here)
        adj_span = part_motion_vjp(job, part, time, nc, ns, w, here)
        is_first = k == 0 and (part != IMPACT or time < zero)
        stage = stage_of(k, part == IMPACT)
        if job.reports == 1:
            share = scratch.dtype(1.0)
            if part == DRIFT:
                share = time / here[job.scratch.span, w]
                adj_span -= share * scratch[event_row(job, k) + WORK, w]
            add_record_cotangents(job, is_first, stage, share, nc, w, here, scratch)
        adj_span += part_vjp(job, part, nc, ns, sweeps, u, parameters, w, adj_u, adj_parameters, here, nowhere)
        if job.reports == 1 and is_first:
            set_aside_vjp(job, stage, nc, parameters, w, adj_parameters, here, scratch)
        if part == UNSPLIT:
            part = DONE
        else:
            hand_back(job, k == events, w, here)
            if part == IMPACT and time >= zero:
                moment_vjp(job, k, adj_left, nc, ns, parameters, w, scratch, adj_parameters, here, nowhere)
                part = DRIFT
            else:
                adj_left = adj_left + adj_span
                k -= 1
                part = wp.where(k >= 0, IMPACT, DONE)
            if part != DONE:
                index -= 1
                carry_cotangents(job, w, here, scratch_of_part(job, index, scratch))


@wp.func
def split_retrace(
    job: Job, pulls_back: bool, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    adj_u: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Do the step from the state in scratch again, or pull the cotangents of its result back through it."""
    status, events, last = do_parts(job, pulls_back, u, parameters, w, scratch)
    if pulls_back:
        parts_vjp(job, events, last, u, parameters, w, adj_u, adj_parameters, scratch, nowhere)
    else:
        nc, ns, sweeps = kept_counts(job, w, scratch)
        move(job, nc, ns, w, scratch)
