"""What impulses make of the velocity, and what the solver starts from (docs/derivations/contact_solver.md)."""

from typing import Any

import warp as wp

from pullback.rigid.step.constraint_kernels import BIAS, BLOCK_ROWS, SCALAR_BIAS, SCALAR_ROWS, resolution, softness
from pullback.rigid.step.problem_kernels import Job, add_all_rows
from pullback.rigid.step.warm_kernels import load_impulses
from pullback.spatial.arrays import rows_from


@wp.func
def without_impulses(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Write s as it was without contact."""
    for v in range(job.scene.topology.nv):
        scratch[job.scratch.s + v, w] = scratch[job.scratch.free + v, w]


@wp.func
def keep_free_velocity(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Keep s as it is without contact."""
    for v in range(job.scene.topology.nv):
        scratch[job.scratch.free + v, w] = scratch[job.scratch.s + v, w]


@wp.func
def apply_impulses(job: Job, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write s as the impulses make it from the velocity without contact, however large others were before."""
    without_impulses(job, w, scratch)
    lam = rows_from(scratch, job.scratch.lam)
    s = rows_from(scratch, job.scratch.s)
    add_all_rows(job, ncontact, nscalar, lam, scratch.dtype(1.0), w, scratch, s)


@wp.func
def raised_by_impulses(job: Job, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Return lam^T A lam / 2 + lam^T b, zero without impulses: the energy they add beyond what biases ask for.

    Less what may be rounding.
    """
    place = job.scratch
    lam = rows_from(scratch, place.lam)
    half = scratch.dtype(0.5)
    cfm = softness(job.settings, scratch[place.span, w])
    raised = scratch.dtype(0.0)
    for v in range(job.scene.topology.nv):
        s = scratch[place.s + v, w]
        free = scratch[place.free + v, w]
        raised += half * (s - free) * (s + free) - resolution(scratch.dtype(0.05) * (s * s + free * free))
    for c in range(ncontact):
        raised += lam[3 * c, w] * scratch[place.blocks + c * BLOCK_ROWS + BIAS, w]
    for k in range(nscalar):
        raised += lam[3 * ncontact + k, w] * scratch[place.scalars + k * SCALAR_ROWS + SCALAR_BIAS, w]
    for r in range(3 * ncontact + nscalar):
        raised += half * cfm * lam[r, w] * lam[r, w]
    return raised


@wp.func
def start_cold(job: Job, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Start without impulses, and note that."""
    without_impulses(job, w, scratch)
    for r in range(3 * ncontact + nscalar):
        scratch[job.scratch.lam + r, w] = scratch.dtype(0.0)
    scratch[job.scratch.warm, w] = scratch.dtype(0.0)


@wp.func
def start_warm(job: Job, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Start from the impulses of the step before, and note that."""
    place = job.scratch
    load_impulses(
        job.scene, ncontact, nscalar, rows_from(scratch, place.contacts), rows_from(scratch, place.scalars),
        rows_from(scratch, place.impulses), w, rows_from(scratch, place.lam),
    )  # fmt: skip
    apply_impulses(job, ncontact, nscalar, w, scratch)
    scratch[place.warm, w] = scratch.dtype(1.0)


@wp.func
def started_warm(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Tell whether the sweeps started from the impulses of the step before."""
    warm = bool(False)
    if job.nimpulse > 0:
        warm = scratch[job.scratch.warm, w] != scratch.dtype(0.0)
    return warm
