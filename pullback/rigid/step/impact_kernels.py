"""Impacts that would add energy, and what is done of them instead (docs/derivations/contact_step.md, section 2).

Newton's law of restitution turns normal velocities round, whatever impulse that takes. Where friction jams, impulses
are as large as the softness allows, and work as much. Then the contacts of a step that are impacts are made like any
others: they may close their gaps, and do not bounce.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import CONTACT_ROWS, GAP
from pullback.rigid.step.constraint_kernels import (
    BIAS,
    BLOCK_ROWS,
    FRACTION,
    RESTITUTION,
    SCALAR_BIAS,
    SCALAR_ROWS,
    SHARE,
    SLOPE,
    add_rows,
    gap_bias,
)
from pullback.rigid.step.problem_kernels import Job
from pullback.spatial.arrays import load3, rows_from

SLACK = wp.constant(1e-3)
"""What impacts may add, of the kinetic energy without them: more than rounding, for perfect bounces keep all of it."""


@wp.func
def has_impacts(job: Job, nc: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Tell whether a contact that presses is an impact."""
    found = bool(False)
    for c in range(nc):
        if scratch[job.scratch.blocks + c * BLOCK_ROWS + RESTITUTION, w] > scratch.dtype(0.0):
            found = found or scratch[job.scratch.lam + 3 * c, w] > scratch.dtype(0.0)
    return found


@wp.func
def asked_work(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Return the work that pushing out of penetrations, and back from limits, may do: that of rows but of impacts."""
    place = job.scratch
    zero = scratch.dtype(0.0)
    work = zero
    for c in range(nc):
        row = place.blocks + c * BLOCK_ROWS
        if scratch[row + RESTITUTION, w] == zero:
            work += scratch[place.lam + 3 * c, w] * wp.max(-scratch[row + BIAS, w], zero)
    for k in range(ns):
        work += wp.abs(scratch[place.lam + 3 * nc + k, w] * scratch[place.scalars + k * SCALAR_ROWS + SCALAR_BIAS, w])
    return work


@wp.func
def impacts_gain(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Tell whether impulses, impacts among them, add energy: to the velocity after the step, or to the way it moves.

    Coordinates move by a mean of the velocities before and after an impact, eq. (5); where others press against it at
    another time, by more than either.
    """
    gains = bool(False)
    if has_impacts(job, nc, w, scratch):
        place = job.scratch
        half = scratch.dtype(0.5)
        shift = rows_from(scratch, place.shift)
        for v in range(job.scene.topology.nv):
            shift[v, w] = scratch.dtype(0.0)
        for c in range(nc):
            fraction = scratch[place.blocks + c * BLOCK_ROWS + FRACTION, w]
            add_rows(
                job.scene, rows_from(scratch, place.contacts), c, rows_from(scratch, place.Y),
                fraction * load3(scratch, place.lam + 3 * c, w), w, shift,
            )  # fmt: skip
        before = scratch.dtype(0.0)
        after = scratch.dtype(0.0)
        moving = scratch.dtype(0.0)
        for v in range(job.scene.topology.nv):
            free = scratch[place.free + v, w]
            s = scratch[place.s + v, w]
            travel = s - shift[v, w]
            before += half * free * free
            after += half * s * s
            moving += half * travel * travel
        allowed = before + scratch.dtype(SLACK) * before + asked_work(job, nc, ns, w, scratch)
        gains = wp.max(after, moving) > allowed
    return gains


@wp.func
def stop_bouncing(job: Job, nc: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Let contacts that are impacts be such as may close their gaps, no more."""
    place = job.scratch
    zero = scratch.dtype(0.0)
    for c in range(nc):
        row = place.blocks + c * BLOCK_ROWS
        if scratch[row + RESTITUTION, w] > zero:
            # a bias of zero is that of a normal that nothing can move
            if scratch[row + BIAS, w] != zero:
                gap = scratch[place.contacts + c * CONTACT_ROWS + GAP, w]
                bias, slope = gap_bias(
                    gap, scratch[place.span, w], job.settings, scratch.dtype(job.settings.push_speed)
                )
                scratch[row + BIAS, w] = bias
                scratch[row + SLOPE, w] = slope
            scratch[row + RESTITUTION, w] = zero
            scratch[row + FRACTION, w] = zero
            scratch[row + SHARE, w] = zero
