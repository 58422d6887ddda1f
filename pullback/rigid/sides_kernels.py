"""Which side of its kinks a step is differentiated on, tried one after the other (docs/derivations/kinks.md, 4).

With n tied rows the solver's adjoint is asked 2 n + 3 times, once for n = 0, three times for n = 1:

    0             all let go
    1 to n        one more is held, and stays so if that is better
    n + 1         all held
    n + 2 to 2n+1 one more is let go, and stays so if that is better
    the last      the sides chosen: of the two ways the one with the longer gradient
"""

from typing import Any

import warp as wp

from pullback.rigid.problem_kernels import Job
from pullback.rigid.solvers.kink_kernels import (
    CONVEX,
    FIRST,
    HELD,
    LENGTHS,
    TIES,
    control_length,
    find_ties,
    hold,
    is_better,
    is_convex,
    let_go,
)
from pullback.spatial.arrays import rows_from


@wp.func
def find_kinks(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write which rows are tied; return how many there are."""
    place = job.scratch
    count = find_ties(
        nc, ns, job.settings.cone, scratch.dtype(job.settings.kink_width), rows_from(scratch, place.A),
        rows_from(scratch, place.b), rows_from(scratch, place.lower), rows_from(scratch, place.upper),
        rows_from(scratch, place.lam), w, rows_from(scratch, place.mu),
        rows_from(scratch, place.sides + TIES * (3 * nc + ns)),
    )  # fmt: skip
    # the cotangent that each attempt starts from
    for v in range(job.scene.topology.nv):
        scratch[place.rates + v, w] = scratch[place.gamma + v, w]
    return count


@wp.func
def count_attempts(ties: int):
    """Return how often the solver's adjoint is asked."""
    attempts = 2 * ties + 3
    if ties < 2:
        attempts = 2 * ties + 1
    return attempts


@wp.func
def choose_sides(m: int, attempt: int, ties: int, w: int, work: wp.array2d(dtype=Any)):
    """Write which tied rows an attempt holds."""
    lengths = LENGTHS * m
    k = attempt % (ties + 1)
    if attempt == count_attempts(ties) - 1:
        best = wp.vector(work[lengths, w], work[lengths + 1, w])
        first = wp.vector(work[lengths + 2, w], work[lengths + 3, w])
        if ties > 1 and not is_better(False, best, first):
            for j in range(ties):
                work[HELD * m + j, w] = work[FIRST * m + j, w]
    elif k > 0:
        work[HELD * m + k - 1, w] = work.dtype(1.0) - work[HELD * m + k - 1, w]
    else:
        for j in range(ties):
            work[FIRST * m + j, w] = work[HELD * m + j, w]
            work[HELD * m + j, w] = work.dtype(wp.min(attempt, 1))
        for j in range(2):
            work[lengths + 2 + j, w] = work[lengths + j, w]


@wp.func
def take_sides(job: Job, nc: int, ns: int, attempt: int, ties: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Put tied rows onto the sides of an attempt, and start from the cotangent again."""
    place = job.scratch
    m = 3 * nc + ns
    work = rows_from(scratch, place.sides)
    lam = rows_from(scratch, place.lam)
    mu = rows_from(scratch, place.mu)
    lower = rows_from(scratch, place.lower)
    upper = rows_from(scratch, place.upper)
    choose_sides(m, attempt, ties, w, work)
    for v in range(job.scene.topology.nv):
        scratch[place.gamma + v, w] = scratch[place.rates + v, w]
    for r in range(m):
        work[r, w] = lam[r, w]
    for k in range(ties):
        row = int(work[TIES * m + k, w])
        let_go(nc, row, mu, lower, upper, w, work)
        if work[HELD * m + k, w] != scratch.dtype(0.0):
            hold(
                nc, ns, row, job.settings.cone, rows_from(scratch, place.A), rows_from(scratch, place.b), mu, lower,
                upper, lam, w, work,
            )  # fmt: skip


@wp.func
def note_bends(job: Job, nc: int, m: int, ties: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write of all rows that are held whether their kinks are convex."""
    place = job.scratch
    work = rows_from(scratch, place.sides)
    for k in range(ties):
        if work[HELD * m + k, w] != scratch.dtype(0.0):
            convex = is_convex(
                nc, int(work[TIES * m + k, w]), rows_from(scratch, place.lower), rows_from(scratch, place.upper), w,
                work, rows_from(scratch, place.multiplier),
            )  # fmt: skip
            work[CONVEX * m + k, w] = wp.where(convex, scratch.dtype(1.0), scratch.dtype(0.0))


@wp.func
def judge_sides(
    job: Job, nc: int, ns: int, attempt: int, ties: int, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any),
    w: int, scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Keep the sides of an attempt, by what its multipliers and its gradient say, or undo them."""
    place = job.scratch
    m = 3 * nc + ns
    work = rows_from(scratch, place.sides)
    lengths = LENGTHS * m
    k = attempt % (ties + 1)
    length = control_length(
        job.scene, rows_from(scratch, place.q), rows_from(scratch, place.qd), u,
        rows_from(parameters, job.parameters.actuators), rows_from(scratch, place.gamma), rows_from(scratch, place.nu),
        w,
    )  # fmt: skip
    # a multiplier tells on the side that holds: of the first way this attempt's, of the second that of the last kept
    if attempt <= ties:
        note_bends(job, nc, m, ties, w, scratch)
    kept = bool(True)
    if k > 0:
        best = wp.vector(work[lengths, w], work[lengths + 1, w])
        kept = is_better(work[CONVEX * m + k - 1, w] != scratch.dtype(0.0), length, best)
    if kept:
        for j in range(2):
            work[lengths + j, w] = length[j]
        if attempt > ties:
            note_bends(job, nc, m, ties, w, scratch)
    else:
        work[HELD * m + k - 1, w] = scratch.dtype(1.0) - work[HELD * m + k - 1, w]
