"""The adjoint of a step that is split where something touches (docs/derivations/impacts.md, sections 5 and 6).

The step is done again, and what each touch starts from is kept. Then its parts are pulled back, last first, each by
the adjoint of step_vjp_kernels.py. A part that follows a touch is shorter the later that comes: with P the derivative
of the loss by the time that is left, and the moment t a function of q1 by gap(q1(t)) = 0,

    adj_t = adj_q1 · dq1/dt + adj_v1 · dv1/dt - P,    adj_gap = -adj_t / (d gap / dt)                            (10)
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import ADJ_CONTACT_ROWS, ADJ_GAP, CONTACT_ROWS, FALL, GAP, PAIR
from pullback.rigid.step.actuator_kernels import inertia_share, numbers_of, time_ahead
from pullback.rigid.step.constraint_kernels import (
    BIAS,
    BLOCK_ROWS,
    DOF,
    SCALAR_BIAS,
    SCALAR_ROWS,
    SIGN,
    SLOPE,
    UPPER,
    is_limit,
)
from pullback.rigid.step.dynamics_kernels import solve_transposed
from pullback.rigid.step.event_kernels import EVENT_NUMBERS, SPAN, TIME, WHAT, event_row, keep_event, restore_event
from pullback.rigid.step.integrate_kernels import integrate_vjp, turn_axes_vjp
from pullback.rigid.step.path_kernels import way_rate, way_share, write_way
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.rows_vjp_kernels import mass_matrix_vjp
from pullback.rigid.step.split_kernels import (
    DONE,
    DRIFT,
    IMPACT,
    UNSPLIT,
    WHOLE,
    drift,
    following,
    solve_part,
    take_velocity,
    time_left,
    travel_beyond,
    write_velocities_of_part,
)
from pullback.rigid.step.step_kernels import move, write_acceleration
from pullback.rigid.step.step_vjp_kernels import (
    clear_geometry,
    free_motion_vjp,
    geometry_vjp,
    impulses_vjp,
    motion_vjp,
    solution_vjp,
)
from pullback.robot.topology import DAMPING, DOF_ROWS
from pullback.spatial.arrays import rows_from

# -- parts of a step ---------------------------------------------------------------------------------------------------


@wp.func
def way_vjp(
    job: Job, time: Any, span: Any, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any),
    velocity: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangents of the state at a touch back through eq. (5).

    Write adj_q, the cotangent `zeta` of the displacement d, and `gamma` of qd + t / h (v - qd).
    """
    place = job.scratch
    scene = job.scene
    one = scratch.dtype(1.0)
    way = rows_from(scratch, place.rates)
    before = rows_from(scratch, place.y)
    zeta = rows_from(scratch, place.zeta)
    gamma = rows_from(scratch, place.gamma)
    write_way(job, time, span, qd, velocity, w, way)
    for v in range(scene.topology.nv):
        before[v, w] = qd[v, w] + time / span * (velocity[v, w] - qd[v, w])
        gamma[v, w] = scratch[place.next_adj_qd + v, w]
    integrate_vjp(scene, one, q, way, rows_from(scratch, place.next_adj_q), w, rows_from(scratch, place.adj_q), zeta)
    turn_axes_vjp(scene, one, way, before, w, zeta, gamma)


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
def ahead_vjp(job: Job, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Return the derivative by the span through how far actuators and damping look ahead, eq. (13)."""
    place = job.scratch
    total = scratch.dtype(0.0)
    for v in range(job.scene.topology.nv):
        damping = parameters[job.parameters.dofs + DOF_ROWS * v + DAMPING, w]
        total += scratch[place.nu + v, w] * damping * scratch[place.acceleration + v, w]
    total = total * time_ahead(job, w, scratch)
    for a in range(job.scene.nactuator):
        v = job.scene.actuator_dof[job.scene.actuator_start[a]]
        k = inertia_share(job, a, parameters, w, scratch) * numbers_of(job, a, parameters, w)[FALL]
        total += scratch[place.nu + v, w] * k * scratch[place.acceleration + v, w]
    # in proportion to what there is ahead
    span = scratch[place.span, w]
    return -total * span / (span + scratch.dtype(job.settings.dt))


@wp.func
def part_motion_vjp(job: Job, part: int, time: Any, nc: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Pull the cotangents of the state after a part of a step back to its velocity, as gamma, and to q and qd.

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
    impulses_vjp(job, nc, ns, False, w, scratch)
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


# -- the moment of touching ------------------------------------------------------------------------------------------


@wp.func
def gap_vjp(
    job: Job, what: int, adj_gap: Any, nc: int, ns: int, parameters: wp.array2d(dtype=Any), w: int,
    adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write adj_q, and add to those of parameters, for the cotangent of the gap of what touches in an impact."""
    place = job.scratch
    zero = scratch.dtype(0.0)
    for r in range(job.scene.nq):
        scratch[place.adj_q + r, w] = zero
    clear_geometry(job, nc, w, scratch)
    if what < job.scene.npair:
        touching = int(-1)
        least = zero
        for c in range(nc):
            row = place.contacts + c * CONTACT_ROWS
            gap = wp.abs(scratch[row + GAP, w])
            if int(scratch[row + PAIR, w]) == what and (touching < 0 or gap < least):
                touching = c
                least = gap
        if touching >= 0:
            scratch[place.adj_contacts + touching * ADJ_CONTACT_ROWS + ADJ_GAP, w] = adj_gap
        geometry_vjp(job, nc, parameters, w, adj_parameters, scratch)
    else:
        for k in range(job.scene.nloop_row + job.scene.ncoupling, ns):
            row = place.scalars + k * SCALAR_ROWS
            v = int(scratch[row + DOF, w])
            if job.scene.npair + v == what and is_limit(rows_from(scratch, place.scalars), k, w):
                sign = scratch[row + SIGN, w]
                scratch[place.adj_q + job.scene.dof_coordinate[v], w] = sign * adj_gap
                if adj_parameters:
                    end = job.parameters.limits + 2 * v
                    if sign < zero:
                        end += 1
                    adj_parameters[end, w] = adj_parameters[end, w] - sign * adj_gap


@wp.func
def moment_vjp(
    job: Job, k: int, adj_left: Any, nc: int, ns: int, parameters: wp.array2d(dtype=Any), w: int,
    adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any), nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add to the cotangents of the state at a touch what they and the time left ask of its moment, eq. (10).

    They stand in next_adj_q and next_adj_qd; nc and ns are the rows of the impact.
    """
    place = job.scratch
    scene = job.scene
    row = event_row(job, k)
    time = scratch[row + TIME, w]
    span = scratch[row + SPAN, w]
    what = int(scratch[row + WHAT, w])
    q = rows_from(scratch, row + EVENT_NUMBERS)
    qd = rows_from(scratch, row + EVENT_NUMBERS + scene.nq)
    velocity = rows_from(scratch, row + EVENT_NUMBERS + scene.nq + scene.topology.nv)
    one = scratch.dtype(1.0)
    share, by_time = way_share(job, time, span)
    way_vjp(job, time, span, q, qd, velocity, w, scratch)
    adj_time = -adj_left
    for v in range(scene.topology.nv):
        adj_time += scratch[place.zeta + v, w] * way_rate(by_time, qd[v, w], velocity[v, w])
        adj_time += scratch[place.gamma + v, w] * (velocity[v, w] - qd[v, w]) / span
    # how fast the gap closes on this path
    gap_vjp(job, what, one, nc, ns, parameters, w, nowhere, scratch)
    way = rows_from(scratch, place.rates)
    write_way(job, time, span, qd, velocity, w, way)
    integrate_vjp(
        scene, one, q, way, rows_from(scratch, place.adj_q), w, rows_from(scratch, place.trial_q),
        rows_from(scratch, place.zeta),
    )  # fmt: skip
    rate = scratch.dtype(0.0)
    for v in range(scene.topology.nv):
        rate += scratch[place.zeta + v, w] * way_rate(by_time, qd[v, w], velocity[v, w])
    gap_vjp(job, what, -adj_time / rate, nc, ns, parameters, w, adj_parameters, scratch)
    for r in range(scene.nq):
        scratch[place.next_adj_q + r, w] = scratch[place.next_adj_q + r, w] + scratch[place.adj_q + r, w]


# -- the step ----------------------------------------------------------------------------------------------------------


@wp.func
def hand_back(job: Job, is_last: bool, w: int, scratch: wp.array2d(dtype=Any)):
    """Make the cotangents of the state before a part those of the state after the part before it.

    Impulses that a solver starts from are those of the step before in all parts, and its last part leaves the new ones.
    """
    place = job.scratch
    for r in range(job.scene.nq):
        scratch[place.next_adj_q + r, w] = scratch[place.adj_q + r, w]
    for v in range(job.scene.topology.nv):
        scratch[place.next_adj_qd + v, w] = scratch[place.adj_qd + v, w]
    for r in range(job.nimpulse):
        asked = scratch[place.adj_impulses + r, w]
        if not is_last:
            asked += scratch[place.kept_adj_impulses + r, w]
        scratch[place.kept_adj_impulses + r, w] = asked
        scratch[place.adj_impulses + r, w] = asked
        scratch[place.next_adj_impulses + r, w] = scratch.dtype(0.0)


@wp.func
def split_retrace(
    job: Job, pulls_back: bool, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    adj_u: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Do the step from the state in scratch again, or pull the cotangents of its result back through it."""
    place = job.scratch
    zero = scratch.dtype(0.0)
    left = scratch.dtype(job.settings.dt)
    adj_left = zero
    part = int(WHOLE)
    events = int(0)
    touched = int(-1)
    may_split = bool(True)
    goes_back = bool(False)
    k = int(0)
    while part != DONE:
        scratch[place.span, w] = left
        time = zero
        if goes_back:
            # `solve_part` comes to the same decision again: a drift is asked for as a whole part
            restore_event(job, k, part, w, scratch)
            time = scratch[event_row(job, k) + TIME, w]
            touched = -1
            if k > 0:
                touched = int(scratch[event_row(job, k - 1) + WHAT, w])
            part = wp.where(part == DRIFT, WHOLE, part)
        before = wp.where(goes_back, k, events)
        chosen, nc, ns, close, nscalar, sweeps = solve_part(
            job, part, before, touched, may_split, pulls_back, u, parameters, w, scratch
        )  # fmt: skip
        part = chosen
        if not goes_back:
            found = wp.min(close, job.scene.max_contacts)
            after, moment, what = following(job, chosen, nc, found, ns, nscalar, parameters, w, scratch)
            if after == IMPACT:
                if pulls_back:
                    keep_event(job, events, left, moment, what, w, scratch)
                drift(job, moment, w, scratch)
                left = time_left(job, left, moment)
                touched = what
            elif chosen == IMPACT:
                if pulls_back and touched < 0:
                    keep_event(job, events, left, -scratch.dtype(1.0), touched, w, scratch)
                take_velocity(job, w, scratch)
                events += 1
            elif after == DONE:
                if pulls_back:
                    goes_back = True
                    k = events
                    part = wp.where(events > 0, WHOLE, UNSPLIT)
                else:
                    move(job, nc, ns, w, scratch)
            may_split = goes_back or chosen != DRIFT or after != WHOLE
            if not goes_back:
                part = after
        if goes_back:
            adj_span = part_motion_vjp(job, part, time, nc, w, scratch)
            adj_span += part_vjp(job, part, nc, ns, sweeps, u, parameters, w, adj_u, adj_parameters, scratch, nowhere)
            if part == UNSPLIT:
                part = DONE
            else:
                hand_back(job, k == events, w, scratch)
            if part == IMPACT and time >= zero:
                moment_vjp(job, k, adj_left, nc, ns, parameters, w, adj_parameters, scratch, nowhere)
                part = DRIFT
            elif part != DONE:
                adj_left = adj_left + adj_span
                k -= 1
                part = wp.where(k >= 0, IMPACT, DONE)
