"""A step that is split where something touches (docs/derivations/impacts.md): drift, impact, and the rest of the step.

    v    = the velocity of the whole step without what touches fast in it
    t    = the moment of touching on the way d(t) there, gap(q (+) d(t)) = 0                    (4)
    q1   = q (+) d(t),    v1 = qd + t / dt (v - qd)                                             (5)
    v2   = v1 + M^-1 J^T lam,    J v2 >= -e J v1 within the friction cone, at q1                (6)

and then a step of dt - t from (q1, v2), in which something else may touch. A step in which nothing touches fast is the
one of step_kernels.py. Parts of a step are made to err as the same stretch of a whole step does (section 4): what is
left of the error of a derivative then does not depend on where in a step a touch falls.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import MAX_EVENTS
from pullback.rigid.step.actuator_kernels import forget_limits, is_unsettled
from pullback.rigid.step.dynamics_kernels import solve_factor
from pullback.rigid.step.event_kernels import hand_on, keep_counts, keep_event, kept_counts, scratch_of_part
from pullback.rigid.step.force_kernels import is_driven_finitely
from pullback.rigid.step.impact_kernels import impacts_gain
from pullback.rigid.step.integrate_kernels import integrate, turn_axes
from pullback.rigid.step.part_forces_kernels import begin_part
from pullback.rigid.step.part_rows_kernels import begins_with_impact, set_aside, settle, write_impact_rows
from pullback.rigid.step.path_kernels import ARC, MOST_ARCS, largest_turn, write_way
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.record_kernels import MOST, add_to_records, stage_of, work_on_records
from pullback.rigid.step.refine_kernels import refine_impact
from pullback.rigid.step.resolve_kernels import resolve
from pullback.rigid.step.step_kernels import (
    NOT_CONVERGED,
    NOT_FINITE,
    OK,
    OVERFLOW,
    TURNED_FAR,
    changes_limits,
    contact_problem,
    move,
)
from pullback.rigid.step.touch_kernels import (
    NOTHING_TOUCHES,
    UNDECIDED,
    find_touch,
)
from pullback.spatial.arrays import rows_from

# parts of a step
WHOLE = wp.constant(0)  # a step to the end, as long as nothing touches
DRIFT = wp.constant(1)  # to the moment of touching
IMPACT = wp.constant(2)  # takes no time
DONE = wp.constant(3)
UNSPLIT = wp.constant(4)  # to its adjoint: a whole step in which nothing touches

LEAST_SPAN = wp.constant(1e-9)
"""What is left of a step after a touch at its very end, in steps."""


# -- parts that err as whole steps do ------------------------------------------------------------------------------


@wp.func
def travel_beyond(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Return how much of v - qd is added to the velocity that coordinates move by in the last part, eq. (12)."""
    span = scratch[job.scratch.span, w]
    share = scratch.dtype(0.0)
    if span > share:
        share = scratch.dtype(0.5) * (scratch.dtype(job.settings.dt) - span) / span
    return share


@wp.func
def write_velocities_of_part(job: Job, nc: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the velocity after a part of a step, and the one that coordinates move by, eq. (12).

    Return that impulses within a step do not make the two differ: impacts have parts of their own.
    """
    place = job.scratch
    velocity = rows_from(scratch, place.velocity)
    for v in range(job.scene.topology.nv):
        velocity[v, w] = scratch[place.s + v, w]
    solve_factor(job.scene, rows_from(scratch, place.L), w, velocity)
    share = travel_beyond(job, w, scratch)
    for v in range(job.scene.topology.nv):
        beyond = share * (velocity[v, w] - scratch[place.qd + v, w])
        scratch[place.travel + v, w] = velocity[v, w] + beyond
    return False


# -- what a part is ---------------------------------------------------------------------------------------------------


@wp.func
def arrange(
    job: Job, part: int, events: int, touched: int, may_split: bool, bounces: bool, found: int, nscalar: int,
    parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Decide which part of a step this is, and order its rows; return the part and its contacts and scalar rows."""
    nc = int(found)
    ns = int(nscalar)
    chosen = int(part)
    if part == WHOLE:
        if touched >= 0:
            settle(job, touched, nc, ns, w, scratch)
        if may_split and events < MAX_EVENTS:
            if events == 0 and begins_with_impact(job, nc, w, scratch):
                chosen = IMPACT
            else:
                count, count_scalar = set_aside(job, found, nscalar, parameters, w, scratch)
                nc = count
                ns = count_scalar
                if nc < found or ns < nscalar:
                    chosen = DRIFT
    if part == IMPACT:
        count, count_scalar = write_impact_rows(job, found, nscalar, bounces, parameters, w, scratch)
        nc = count
        ns = count_scalar
    return chosen, nc, ns


@wp.func
def solve_part(
    job: Job, part: int, events: int, touched: int, may_split: bool, as_matrix: bool, u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the problem of a part of a step and its impulses, as `solve_step` does of a step.

    Return which part it is, contacts and scalar rows that it has, those that there are, and sweeps; the contacts that
    there are may be more than there is room for.
    """
    asked = int(part)
    forget_limits(job, w, scratch)
    if part == IMPACT:
        begin_part(job, scratch.dtype(0.0), w, scratch)
    chosen = int(part)
    found = int(0)
    nscalar = int(0)
    nc = int(0)
    ns = int(0)
    sweeps = int(0)
    turn = int(0)
    bounces = bool(True)
    again = bool(True)
    while again:
        close, scalars = contact_problem(job, u, parameters, w, scratch)
        found = close
        nscalar = scalars
        room = wp.min(found, job.scene.max_contacts)
        kind, count, count_scalar = arrange(
            job, asked, events, touched, may_split, bounces, room, nscalar, parameters, w, scratch
        )  # fmt: skip
        chosen = kind
        nc = count
        ns = count_scalar
        again = chosen != asked and chosen == IMPACT
        if again:
            # it begins with one
            asked = IMPACT
            begin_part(job, scratch.dtype(0.0), w, scratch)
        else:
            sweeps = resolve(job, nc, ns, as_matrix, w, scratch)
            if chosen != IMPACT:
                turn += 1
                again = changes_limits(job, turn, u, parameters, w, scratch)
            elif bounces:
                # friction that jams: then without restitution
                again = impacts_gain(job, nc, ns, w, scratch)
                bounces = not again
            if chosen == IMPACT and not again:
                refine_impact(job, nc, ns, sweeps, as_matrix, w, scratch)
    return chosen, nc, ns, found, nscalar, sweeps


@wp.func
def solve_unless_touched(
    job: Job, as_matrix: bool, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Do what `solve_unless_split` does: a step in which nothing may touch is solved as a whole."""
    begin_part(job, scratch.dtype(job.settings.dt), w, scratch)
    chosen, nc, ns, found, nscalar, sweeps = solve_part(
        job, WHOLE, 0, -1, True, as_matrix, u, parameters, w, scratch
    )  # fmt: skip
    return chosen != WHOLE, found, ns, sweeps


# -- parts of a step -----------------------------------------------------------------------------------------------


@wp.func(inline=False)
def drift(job: Job, time: Any, w: int, scratch: wp.array2d(dtype=Any), after: wp.array2d(dtype=Any)):
    """Write the state at the moment of touching, eqs. (3) and (5), to scratch of the part after, which may be the same.

    `velocity` is that of the whole span.
    """
    place = job.scratch
    one = scratch.dtype(1.0)
    qd = rows_from(after, place.qd)
    way = rows_from(scratch, place.travel)
    span = scratch[place.span, w]
    write_way(job, time, span, rows_from(scratch, place.qd), rows_from(scratch, place.velocity), w, way)
    for k in range(job.scene.nq):
        after[place.q + k, w] = scratch[place.q + k, w]
    for v in range(job.scene.topology.nv):
        before = scratch[place.qd + v, w]
        qd[v, w] = before + time / span * (scratch[place.velocity + v, w] - before)
    integrate(job.scene, one, way, w, rows_from(after, place.q))
    turn_axes(job.scene, one, way, w, qd)


@wp.func(inline=False)
def take_velocity(job: Job, w: int, scratch: wp.array2d(dtype=Any), after: wp.array2d(dtype=Any)):
    """Write the state after an impact to scratch of the part after it, which may be the same."""
    qd = rows_from(after, job.scratch.qd)
    for k in range(job.scene.nq):
        after[job.scratch.q + k, w] = scratch[job.scratch.q + k, w]
    for v in range(job.scene.topology.nv):
        qd[v, w] = scratch[job.scratch.s + v, w]
    solve_factor(job.scene, rows_from(scratch, job.scratch.L), w, qd)


@wp.func
def time_left(job: Job, left: Any, time: Any):
    """Return what is left of a step after a time: never nothing, since parts divide by it."""
    return wp.max(left - time, type(left)(LEAST_SPAN) * type(left)(job.settings.dt))


@wp.func
def following(
    job: Job, part: int, nc: int, found: int, ns: int, nscalar: int, parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return which part follows one that is solved, and for a drift when what touches.

    After an impact the time is negative. WHOLE after a drift means that the step is not to be split there.
    """
    after = int(DONE)
    time = scratch.dtype(0.0)
    what = int(-1)
    if part == DRIFT:
        write_velocities_of_part(job, nc, w, scratch)
        moment, touching = find_touch(job, nc, found, ns, nscalar, parameters, w, scratch)
        time = moment
        what = touching
        if what == UNDECIDED:
            after = WHOLE
        elif what != NOTHING_TOUCHES:
            after = IMPACT
    elif part == IMPACT:
        after = WHOLE
        time = -scratch.dtype(1.0)
    return after, time, what


@wp.func
def report_part(
    job: Job, pulls_back: bool, part: int, after: int, share: Any, events: int, touched: int, nc: int, close: int,
    w: int, scratch: wp.array2d(dtype=Any), records: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the forces of a part to those of the step; to pull back, return the derivative by its share of the step.

    Of a drift that a touch ends only a share has happened.
    """
    happened = type(share)(1.0)
    if after == IMPACT:
        happened = share
    is_first = events == 0 and touched < 0
    work = type(share)(0.0)
    if pulls_back:
        work = work_on_records(job, is_first, nc, w, scratch, records)
    else:
        found = wp.min(close, job.scene.max_contacts)
        add_to_records(job, is_first, stage_of(events, part == IMPACT), happened, nc, found, w, scratch, records)
        most = job.scratch.records + MOST
        records[most, w] = wp.max(records[most, w], scratch.dtype(close))
    return work


@wp.func
def do_parts(
    job: Job, keeps: bool, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Do one step from the state in scratch, split where something touches, but for the motion of its last part.

    With `keeps`, keep what its adjoint needs. Return the status, how many touches there are, and the index of the part.
    """
    status = int(OK)
    left = scratch.dtype(job.settings.dt)
    part = int(WHOLE)
    index = int(0)
    events = int(0)
    touched = int(-1)
    may_split = bool(True)
    while part != DONE:
        next_index = index + wp.where(keeps, 1, 0)
        here = scratch_of_part(job, index, scratch)
        begin_part(job, left, w, here)
        chosen, nc, ns, close, nscalar, sweeps = solve_part(
            job, part, events, touched, may_split, keeps, u, parameters, w, here
        )  # fmt: skip
        keep_counts(job, nc, ns, sweeps, w, here)
        found = wp.min(close, job.scene.max_contacts)
        if close > found:
            status = status | OVERFLOW
        if sweeps < 0 or is_unsettled(job, w, here):
            status = status | NOT_CONVERGED
        after, time, what = following(job, chosen, nc, found, ns, nscalar, parameters, w, here)
        if chosen == DRIFT:
            followed = scratch.dtype(ARC) * scratch.dtype(MOST_ARCS)
            if largest_turn(job, nc, found, parameters, w, here) > followed:
                status = status | TURNED_FAR
        work = scratch.dtype(0.0)
        if job.reports == 1 and (chosen != DRIFT or after != WHOLE):
            work = report_part(job, keeps, chosen, after, time / left, events, touched, nc, close, w, here, scratch)
        if after == IMPACT or chosen == IMPACT:
            there = scratch_of_part(job, next_index, scratch)
            if keeps and (after == IMPACT or touched < 0):
                keep_event(job, events, left, time, what, work / left, w, here, scratch)
            if after == IMPACT:
                drift(job, time, w, here, there)
                left = time_left(job, left, time)
                touched = what
            else:
                take_velocity(job, w, here, there)
                events += 1
            hand_on(job, w, here, there)
            index = next_index
        may_split = chosen != DRIFT or after != WHOLE
        part = after
    return status, events, index


@wp.func
def split_step(
    job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Do one step on the state in scratch, split where something touches; return its status."""
    status, events, last = do_parts(job, False, u, parameters, w, scratch)
    nc, ns, sweeps = kept_counts(job, w, scratch)
    if not move(job, nc, ns, w, scratch) or not is_driven_finitely(job, u, w):
        status = status | NOT_FINITE
    return status
