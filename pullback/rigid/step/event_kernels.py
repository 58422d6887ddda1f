"""The touches of a step that is split, kept in scratch for its adjoint (docs/derivations/impacts.md, section 7)."""

from typing import Any

import warp as wp

from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.split_kernels import IMPACT, drift

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
