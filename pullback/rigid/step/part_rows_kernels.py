"""Rows of a part of a split step: which are set aside, which take part in an impact (docs/derivations/impacts.md)."""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import CONTACT_ROWS, GAP, PAIR, PAIR_ROWS
from pullback.rigid.step.constraint_kernels import (
    APPROACH,
    BIAS,
    BLOCK_ROWS,
    DOF,
    FRACTION,
    FREE,
    RESTITUTION,
    SCALAR_BIAS,
    SCALAR_ROWS,
    SCALAR_SLOPE,
    SHARE,
    SIGN,
    SLOPE,
    is_limit,
)
from pullback.rigid.step.path_kernels import RESTING, may_swing_in, touch_tolerance
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.touch_kernels import contact_closing_time, limit_closing_time
from pullback.spatial.arrays import rows_from


@wp.func
def swap_rows(x: wp.array2d(dtype=Any), first: int, second: int, count: int, w: int):
    """Exchange two runs of rows."""
    for r in range(count):
        kept = x[first + r, w]
        x[first + r, w] = x[second + r, w]
        x[second + r, w] = kept


@wp.func(inline=False)
def put_contact_last(job: Job, first: int, last: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Put a contact, with its rows, behind those up to `last`, which keep their order."""
    place = job.scratch
    n = 3 * job.scene.topology.nv
    for c in range(first, last):
        swap_rows(rows_from(scratch, place.contacts), c * CONTACT_ROWS, (c + 1) * CONTACT_ROWS, CONTACT_ROWS, w)
        swap_rows(rows_from(scratch, place.blocks), c * BLOCK_ROWS, (c + 1) * BLOCK_ROWS, BLOCK_ROWS, w)
        swap_rows(rows_from(scratch, place.Y), c * n, (c + 1) * n, n, w)


@wp.func(inline=False)
def put_scalar_last(job: Job, first: int, last: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Put a scalar row behind those up to `last`, which keep their order."""
    place = job.scratch
    n = job.scene.topology.nv
    for k in range(first, last):
        swap_rows(rows_from(scratch, place.scalars), k * SCALAR_ROWS, (k + 1) * SCALAR_ROWS, SCALAR_ROWS, w)
        swap_rows(rows_from(scratch, place.Y_scalar), k * n, (k + 1) * n, n, w)


@wp.func
def settle(job: Job, touched: int, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Take what has just touched as closed: a gap that is rounding is no bias, and has no slope."""
    place = job.scratch
    zero = scratch.dtype(0.0)
    for c in range(nc):
        row = place.contacts + c * CONTACT_ROWS
        if int(scratch[row + PAIR, w]) == touched and wp.abs(scratch[row + GAP, w]) <= touch_tolerance(zero):
            scratch[place.blocks + c * BLOCK_ROWS + BIAS, w] = zero
            scratch[place.blocks + c * BLOCK_ROWS + SLOPE, w] = zero
    for k in range(job.scene.nloop_row + job.scene.ncoupling, ns):
        row = place.scalars + k * SCALAR_ROWS
        is_same = job.scene.npair + int(scratch[row + DOF, w]) == touched
        if is_same and is_limit(rows_from(scratch, place.scalars), k, w):
            scratch[row + SCALAR_BIAS, w] = zero
            scratch[row + SCALAR_SLOPE, w] = zero


@wp.func
def set_aside(
    job: Job, found: int, nscalar: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Put contacts and limits that close fast under the velocity of s behind the others; return how many those are.

    So are contacts of what turns so far that the tangent does not tell.
    """
    zero = scratch.dtype(0.0)
    nc = int(found)
    c = int(0)
    while c < nc:
        free = scratch[job.scratch.blocks + c * BLOCK_ROWS + FREE, w]
        time, slowly = contact_closing_time(job, c, free, w, scratch)
        closes = time >= zero
        if not closes and not slowly:
            closes = may_swing_in(job, c, parameters, w, scratch)
        if closes:
            nc -= 1
            put_contact_last(job, c, nc, w, scratch)
        else:
            c += 1
    ns = int(nscalar)
    k = int(job.scene.nloop_row + job.scene.ncoupling)
    while k < ns:
        time, slowly = limit_closing_time(job, k, w, scratch)
        if time >= zero:
            ns -= 1
            put_scalar_last(job, k, ns, w, scratch)
        else:
            k += 1
    return nc, ns


@wp.func
def begins_with_impact(job: Job, nc: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Tell whether something overlaps already, and approaches fast."""
    place = job.scratch
    threshold = scratch.dtype(job.settings.threshold)
    found = bool(False)
    for c in range(nc):
        if scratch[place.contacts + c * CONTACT_ROWS + GAP, w] < -touch_tolerance(threshold):
            if scratch[place.blocks + c * BLOCK_ROWS + APPROACH, w] < -threshold:
                found = True
    return found


@wp.func
def takes_part(gap: Any, approach: Any, threshold: Any):
    """Return whether a row takes part in an impact: it touches, or it is at rest nearby."""
    return gap <= touch_tolerance(gap) or (gap <= type(gap)(RESTING) and approach >= -threshold)


@wp.func(inline=False)
def write_impact_rows(
    job: Job, found: int, nscalar: int, bounces: bool, parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Make the problem that of an impact, eq. (6): no time passes. Return how many contacts and scalar rows it has."""
    scene = job.scene
    place = job.scratch
    zero = scratch.dtype(0.0)
    threshold = scratch.dtype(job.settings.threshold)
    for v in range(scene.topology.nv):
        scratch[place.s + v, w] = scratch[place.start + v, w]
    nc = int(found)
    c = int(0)
    while c < nc:
        block = place.blocks + c * BLOCK_ROWS
        row = place.contacts + c * CONTACT_ROWS
        approach = scratch[block + APPROACH, w]
        if takes_part(scratch[row + GAP, w], approach, threshold):
            restitution = zero
            if bounces and approach < -threshold:
                restitution = parameters[job.parameters.pairs + int(scratch[row + PAIR, w]) * PAIR_ROWS + 1, w]
            scratch[block + BIAS, w] = restitution * approach
            scratch[block + RESTITUTION, w] = restitution
            scratch[block + FRACTION, w] = zero
            scratch[block + SHARE, w] = zero
            scratch[block + SLOPE, w] = zero
            c += 1
        else:
            nc -= 1
            put_contact_last(job, c, nc, w, scratch)
    ns = int(nscalar)
    k = int(0)
    while k < ns:
        row = place.scalars + k * SCALAR_ROWS
        is_held = k < scene.nloop_row + scene.ncoupling
        if not is_held and is_limit(rows_from(scratch, place.scalars), k, w):
            approach = scratch[row + SIGN, w] * scratch[place.qd + int(scratch[row + DOF, w]), w]
            v = int(scratch[row + DOF, w])
            gap = scratch[place.q + scene.dof_coordinate[v], w] - parameters[job.parameters.limits + 2 * v, w]
            if scratch[row + SIGN, w] < zero:
                gap = parameters[job.parameters.limits + 2 * v + 1, w] - scratch[place.q + scene.dof_coordinate[v], w]
            is_held = takes_part(gap, approach, threshold)
        if is_held:
            scratch[row + SCALAR_BIAS, w] = zero
            scratch[row + SCALAR_SLOPE, w] = zero
            k += 1
        else:
            ns -= 1
            put_scalar_last(job, k, ns, w, scratch)
    return nc, ns
