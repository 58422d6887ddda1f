"""The adjoint of a step that is split where something touches (docs/derivations/impacts.md, sections 4 and 5).

The step is done again, and what each touch starts from is kept. Then its parts are pulled back, last first, each by
the adjoint of step_vjp_kernels.py. A part that follows a touch is shorter the later that comes: with P the derivative
of the loss by the time that is left, and the moment t a function of q1 by gap(q1(t)) = 0,

    adj_t = adj_q1 · dq1/dt + adj_v1 · dv1/dt - P,    adj_gap = -adj_t / (d gap / dt)                            (10)
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import ADJ_CONTACT_ROWS, ADJ_GAP, CONTACT_ROWS, GAP, PAIR
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
from pullback.rigid.step.integrate_kernels import integrate_vjp, turn_axes_vjp
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.rows_vjp_kernels import mass_matrix_vjp
from pullback.rigid.step.split_kernels import (
    DONE,
    DRIFT,
    IMPACT,
    WHOLE,
    drift,
    solve_part,
    take_velocity,
)
from pullback.rigid.step.step_kernels import move, write_acceleration, write_velocities
from pullback.rigid.step.step_vjp_kernels import (
    clear_geometry,
    free_motion_vjp,
    geometry_vjp,
    impulses_vjp,
    motion_vjp,
    solution_vjp,
)
from pullback.rigid.step.touch_kernels import NOTHING_TOUCHES, UNDECIDED, find_touch
from pullback.spatial.arrays import rows_from

# numbers of a touch that are kept, before its q, qd and velocity
SPAN = wp.constant(0)  # time that was left before it
TIME = wp.constant(1)  # from there to the touch; negative: it begins with one
WHAT = wp.constant(2)
EVENT_NUMBERS = wp.constant(3)


@wp.func
def event_row(job: Job, k: int):
    """Return where the k-th touch of the step stands in scratch."""
    return job.scratch.events + k * (EVENT_NUMBERS + job.scene.nq + 2 * job.scene.topology.nv)


@wp.func
def keep_event(job: Job, k: int, span: Any, time: Any, what: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Keep a touch: the state it starts from, which is that in scratch, and the velocity that leads to it."""
    place = job.scratch
    row = event_row(job, k)
    nq = job.scene.nq
    nv = job.scene.topology.nv
    scratch[row + SPAN, w] = span
    scratch[row + TIME, w] = time
    scratch[row + WHAT, w] = scratch.dtype(what)
    for r in range(nq):
        scratch[row + EVENT_NUMBERS + r, w] = scratch[place.q + r, w]
    for r in range(nv):
        scratch[row + EVENT_NUMBERS + nq + r, w] = scratch[place.qd + r, w]
        scratch[row + EVENT_NUMBERS + nq + nv + r, w] = scratch[place.velocity + r, w]


@wp.func
def restore_event(job: Job, k: int, part: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Make the state before a touch, or the one at it, the current one, and its span that of the step."""
    place = job.scratch
    row = event_row(job, k)
    nq = job.scene.nq
    nv = job.scene.topology.nv
    time = scratch[row + TIME, w]
    scratch[place.span, w] = scratch[row + SPAN, w]
    for r in range(nq):
        scratch[place.q + r, w] = scratch[row + EVENT_NUMBERS + r, w]
    for r in range(nv):
        scratch[place.qd + r, w] = scratch[row + EVENT_NUMBERS + nq + r, w]
        scratch[place.velocity + r, w] = scratch[row + EVENT_NUMBERS + nq + nv + r, w]
    if part == IMPACT and time >= scratch.dtype(0.0):
        drift(job, time, w, scratch)


# -- parts of a step ---------------------------------------------------------------------------------------------------


@wp.func
def path_vjp(
    job: Job, time: Any, span: Any, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any),
    velocity: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangents of the state at a touch back through eq. (5).

    Write adj_q, the cotangent `zeta` of the displacement t v, and `gamma` of qd + t / dt (v - qd).
    """
    place = job.scratch
    scene = job.scene
    one = scratch.dtype(1.0)
    way = rows_from(scratch, place.rates)
    before = rows_from(scratch, place.y)
    zeta = rows_from(scratch, place.zeta)
    gamma = rows_from(scratch, place.gamma)
    for v in range(scene.topology.nv):
        way[v, w] = time * velocity[v, w]
        before[v, w] = qd[v, w] + time / span * (velocity[v, w] - qd[v, w])
        gamma[v, w] = scratch[place.next_adj_qd + v, w]
    integrate_vjp(scene, one, q, way, rows_from(scratch, place.next_adj_q), w, rows_from(scratch, place.adj_q), zeta)
    turn_axes_vjp(scene, one, way, before, w, zeta, gamma)


@wp.func
def drift_vjp(job: Job, time: Any, w: int, scratch: wp.array2d(dtype=Any)):
    """Pull the cotangents of the state at a touch back to the velocity of the whole span, as gamma, and to q and qd.

    That of qd is kept in `adj_before`. Return the derivative by the span, at the same velocity and time.
    """
    place = job.scratch
    scene = job.scene
    span = scratch[place.span, w]
    share = time / span
    velocity = rows_from(scratch, place.velocity)
    qd = rows_from(scratch, place.qd)
    gamma = rows_from(scratch, place.gamma)
    write_acceleration(job, w, scratch)
    path_vjp(job, time, span, rows_from(scratch, place.q), qd, velocity, w, scratch)
    adj_span = scratch.dtype(0.0)
    for v in range(scene.topology.nv):
        adj_span -= share / span * gamma[v, w] * (velocity[v, w] - qd[v, w])
        scratch[place.adj_before + v, w] = (scratch.dtype(1.0) - share) * gamma[v, w]
        gamma[v, w] = share * gamma[v, w] + time * scratch[place.zeta + v, w]
    solve_transposed(scene, rows_from(scratch, place.L), w, gamma)
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
    """Return the derivative by the span of the velocity that a step finds, eq. (9); `eta` and multipliers are there."""
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
def part_vjp(
    # model
    job: Job,
    # in: which part, the time of its drift, its contacts, scalar rows and sweeps
    part: int,
    time: Any,
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
    """Pull the cotangents of the state after a part of a step back through it; return the derivative by its span."""
    place = job.scratch
    adj_span = scratch.dtype(0.0)
    shifted = bool(False)
    clear_geometry(job, nc, w, scratch)
    if part == WHOLE:
        shifted = motion_vjp(job, nc, w, scratch)
        for v in range(job.scene.topology.nv):
            adj_span += scratch[place.zeta + v, w] * scratch[place.travel + v, w]
        adj_span = adj_span / scratch[place.span, w]
    else:
        write_velocities(job, nc, w, scratch)
        if part == DRIFT:
            adj_span = drift_vjp(job, time, w, scratch)
        else:
            impact_velocity_vjp(job, w, scratch)
    impulses_vjp(job, nc, ns, shifted, w, scratch)
    solution_vjp(job, nc, ns, sweeps, shifted, u, parameters, w, adj_parameters, scratch)
    if part == IMPACT:
        # M (v2 - v1) = J^T lam takes the place of the equations of motion
        for v in range(job.scene.topology.nv):
            scratch[place.y + v, w] = -scratch[place.nu + v, w]
            scratch[place.z + v, w] = scratch[place.velocity + v, w] - scratch[place.qd + v, w]
        mass_matrix_vjp(job, parameters, w, adj_parameters, scratch)
    else:
        adj_span += span_vjp(job, nc, ns, w, scratch)
        free_motion_vjp(job, u, parameters, w, adj_u, adj_parameters, scratch, nowhere)
    if part == DRIFT:
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
    path_vjp(job, time, span, q, qd, velocity, w, scratch)
    adj_time = -adj_left
    for v in range(scene.topology.nv):
        gained = (velocity[v, w] - qd[v, w]) / span
        adj_time += scratch[place.zeta + v, w] * velocity[v, w] + scratch[place.gamma + v, w] * gained
    # how fast the gap closes on this path
    gap_vjp(job, what, one, nc, ns, parameters, w, nowhere, scratch)
    way = rows_from(scratch, place.rates)
    for v in range(scene.topology.nv):
        way[v, w] = time * velocity[v, w]
    integrate_vjp(
        scene, one, q, way, rows_from(scratch, place.adj_q), w, rows_from(scratch, place.trial_q),
        rows_from(scratch, place.zeta),
    )  # fmt: skip
    rate = scratch.dtype(0.0)
    for v in range(scene.topology.nv):
        rate += scratch[place.zeta + v, w] * velocity[v, w]
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
            restore_event(job, k, part, w, scratch)
            time = scratch[event_row(job, k) + TIME, w]
            touched = -1
            if k > 0:
                touched = int(scratch[event_row(job, k - 1) + WHAT, w])
            if part == DRIFT:
                # `arrange` comes to the same decision again
                part = WHOLE
        before = wp.where(goes_back, k, events)
        chosen, nc, ns, close, nscalar, sweeps = solve_part(
            job, part, before, touched, may_split, pulls_back, u, parameters, w, scratch
        )  # fmt: skip
        found = wp.min(close, job.scene.max_contacts)
        part = chosen
        if not goes_back:
            if part == DRIFT:
                write_velocities(job, nc, w, scratch)
                moment, what = find_touch(job, nc, found, ns, nscalar, parameters, w, scratch)
                if what == UNDECIDED:
                    may_split = False
                    part = WHOLE
                elif what == NOTHING_TOUCHES:
                    part = DONE
                else:
                    if pulls_back:
                        keep_event(job, events, left, moment, what, w, scratch)
                    drift(job, moment, w, scratch)
                    left = left - moment
                    touched = what
                    part = IMPACT
            elif part == IMPACT:
                if pulls_back and touched < 0:
                    keep_event(job, events, left, -scratch.dtype(1.0), touched, w, scratch)
                take_velocity(job, w, scratch)
                events += 1
                may_split = True
                part = WHOLE
            else:
                part = DONE
            if part == DONE:
                if pulls_back:
                    goes_back = True
                    may_split = True
                    k = events
                    part = WHOLE
                else:
                    move(job, nc, ns, w, scratch)
        if goes_back:
            adj_span = part_vjp(
                job, part, time, nc, ns, sweeps, u, parameters, w, adj_u, adj_parameters, scratch, nowhere
            )
            hand_back(job, k == events, w, scratch)
            if part == IMPACT and time >= zero:
                moment_vjp(job, k, adj_left, nc, ns, parameters, w, adj_parameters, scratch, nowhere)
                part = DRIFT
            else:
                adj_left = adj_left + adj_span
                k -= 1
                part = wp.where(k >= 0, IMPACT, DONE)
