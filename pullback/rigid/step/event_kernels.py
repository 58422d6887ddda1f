"""What is kept of a step that is split, in scratch, for its adjoint (docs/derivations/impacts.md, section 7).

Of each touch a few numbers and the states about it. The first parts have scratch of their own, laid out as that of a
step: they stand there as they were solved. Later ones share what is left, and are solved again on the way back.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import EVENT_NUMBERS
from pullback.rigid.step.lanes_kernels import alone
from pullback.rigid.step.part_forces_kernels import begin_part
from pullback.rigid.step.problem_kernels import Job
from pullback.spatial.arrays import rows_from

# numbers of a touch that are kept, before its q, qd and velocity
SPAN = wp.constant(0)  # time that was left before it
TIME = wp.constant(1)  # from there to the touch; negative: it begins with one
WHAT = wp.constant(2)
WORK = wp.constant(3)  # derivative of the loss by TIME, through reported forces of the way there


@wp.func
def event_row(job: Job, k: int):
    """Return where the k-th touch of the step stands in scratch."""
    return job.scratch.events + k * (EVENT_NUMBERS + job.scene.nq + 2 * job.scene.topology.nv)


@wp.func
def keep_event(
    job: Job, k: int, span: Any, time: Any, what: int, work: Any, w: int, scratch: wp.array2d(dtype=Any),
    events: wp.array2d(dtype=Any),
):  # fmt: skip
    """Keep a touch: the state it starts from, which is that in scratch, and the velocity that leads to it."""
    place = job.scratch
    row = event_row(job, k)
    nq = job.scene.nq
    nv = job.scene.topology.nv
    events[row + SPAN, w] = span
    events[row + TIME, w] = time
    events[row + WHAT, w] = scratch.dtype(what)
    events[row + WORK, w] = work
    for r in range(nq):
        events[row + EVENT_NUMBERS + r, w] = scratch[place.q + r, w]
    for r in range(nv):
        events[row + EVENT_NUMBERS + nq + r, w] = scratch[place.qd + r, w]
        events[row + EVENT_NUMBERS + nq + nv + r, w] = scratch[place.velocity + r, w]


@wp.func
def scratch_of_part(job: Job, index: int, scratch: wp.array2d(dtype=Any)):
    """Return the scratch of the part of a step with this index."""
    own = wp.min(index, job.nkept_part)
    first = int(0)
    if own > 0:
        first = job.kept_parts + (own - 1) * job.scratch.slots
    return rows_from(scratch, first)


@wp.func
def keep_counts(job: Job, nc: int, ns: int, sweeps: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Keep what `solve_part` returned of a part, beside it."""
    row = job.scratch.solved
    scratch[row, w] = scratch.dtype(nc)
    scratch[row + 1, w] = scratch.dtype(ns)
    scratch[row + 2, w] = scratch.dtype(sweeps)


@wp.func
def kept_counts(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Return contacts, scalar rows and sweeps of a part that was kept."""
    row = job.scratch.solved
    return int(scratch[row, w]), int(scratch[row + 1, w]), int(scratch[row + 2, w])


@wp.func
def hand_on(job: Job, w: int, scratch: wp.array2d(dtype=Any), after: wp.array2d(dtype=Any)):
    """Make the scratch of the next part ready: impulses of the step before to start from, and each world alone."""
    alone(job.scratch.lanes, w, after)
    for r in range(job.nimpulse):
        after[job.scratch.impulses + r, w] = scratch[job.scratch.impulses + r, w]


@wp.func
def carry_cotangents(job: Job, w: int, scratch: wp.array2d(dtype=Any), other: wp.array2d(dtype=Any)):
    """Copy the cotangents of the state after a part to the scratch of another."""
    place = job.scratch
    for r in range(job.nstate):
        other[place.next_adj_state + r, w] = scratch[place.next_adj_state + r, w]
    for r in range(job.nimpulse):
        other[place.kept_adj_impulses + r, w] = scratch[place.kept_adj_impulses + r, w]


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
def restore_event(job: Job, k: int, w: int, events: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any)):
    """Make the state before a touch the current one, and its span that of the step."""
    place = job.scratch
    row = event_row(job, k)
    nq = job.scene.nq
    nv = job.scene.topology.nv
    begin_part(job, events[row + SPAN, w], w, scratch)
    for r in range(nq):
        scratch[place.q + r, w] = events[row + EVENT_NUMBERS + r, w]
    for r in range(nv):
        scratch[place.qd + r, w] = events[row + EVENT_NUMBERS + nq + r, w]
        scratch[place.velocity + r, w] = events[row + EVENT_NUMBERS + nq + nv + r, w]
