"""Which side of its kinks a step is differentiated on, tried one after the other (docs/derivations/kinks.md, 4).

There are two ways, one from all tied rows let go, one from all of them held. Each turns over the rows, one after the
other, and keeps what is better, until a turn changes nothing. An attempt, of n rows, is one of the solver's adjoint:

    0, n + 1      the start of a way
    k, n + 1 + k  row k is put onto its other side
    2 (n + 1)     the sides chosen: those of the way with the longer gradient
"""

from typing import Any

import warp as wp

from pullback.rigid.solvers.kink_kernels import (
    CONVEX,
    FIRST,
    HELD,
    LENGTHS,
    TIES,
    find_ties,
    hold,
    is_better,
    is_convex,
    let_go,
)
from pullback.rigid.step.actuator_kernels import actuator, rate_of
from pullback.rigid.step.problem_kernels import Job
from pullback.spatial.arrays import rows_from

MOST_TURNS = wp.constant(4)


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
    return count


@wp.func
def choose_sides(m: int, attempt: int, ties: int, w: int, work: wp.array2d(dtype=Any)):
    """Write which tied rows an attempt holds."""
    lengths = LENGTHS * m
    k = attempt % (ties + 1)
    way = attempt // (ties + 1)
    if way == 2:
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
            work[HELD * m + j, w] = work.dtype(way)
        for j in range(2):
            work[lengths + 2 + j, w] = work[lengths + j, w]
            work[lengths + 4 + j, w] = work.dtype(0.0)


@wp.func
def take_sides(job: Job, nc: int, ns: int, attempt: int, ties: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Put tied rows onto the sides of an attempt."""
    place = job.scratch
    m = 3 * nc + ns
    work = rows_from(scratch, place.sides)
    lam = rows_from(scratch, place.lam)
    mu = rows_from(scratch, place.mu)
    lower = rows_from(scratch, place.lower)
    upper = rows_from(scratch, place.upper)
    choose_sides(m, attempt, ties, w, work)
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
def note_bend(job: Job, nc: int, m: int, k: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write of a tied row that is held whether its kink is convex."""
    place = job.scratch
    work = rows_from(scratch, place.sides)
    if work[HELD * m + k, w] != scratch.dtype(0.0):
        convex = is_convex(
            nc, int(work[TIES * m + k, w]), rows_from(scratch, place.lower), rows_from(scratch, place.upper), w, work,
            rows_from(scratch, place.multiplier),
        )  # fmt: skip
        work[CONVEX * m + k, w] = wp.where(convex, scratch.dtype(1.0), scratch.dtype(0.0))


@wp.func
def next_attempt(attempt: int, ties: int, kept: bool, w: int, turns: wp.array2d(dtype=Any)):
    """Return the attempt after this one. A turn that changed something is followed by another, up to a few."""
    following = attempt + 1
    k = attempt % (ties + 1)
    if kept and k > 0:
        turns[1, w] = turns.dtype(1.0)
    if k == ties:
        if ties == 1:
            following = 2 * (ties + 1)
        elif turns[1, w] != turns.dtype(0.0) and turns[0, w] < turns.dtype(MOST_TURNS - 1):
            following = attempt + 1 - ties
        turns[0, w] = turns[0, w] + turns.dtype(1.0)
        turns[1, w] = turns.dtype(0.0)
    return following


@wp.func
def control_length(
    job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Return the squared lengths of the gradient by the controls, eq. (2), and of that by the velocity, |eta|^2."""
    place = job.scratch
    by_controls = scratch.dtype(0.0)
    by_velocity = scratch.dtype(0.0)
    for a in range(job.scene.nu):
        rate = rate_of(job.scene, a, rows_from(scratch, place.qd), w)
        force, slopes, by_numbers = actuator(job, a, rows_from(scratch, place.q), rate, u, parameters, w, scratch)
        share = slopes[0] * rate_of(job.scene, a, rows_from(scratch, place.nu), w)
        by_controls += share * share
    for v in range(job.scene.topology.nv):
        by_velocity += scratch[place.eta + v, w] * scratch[place.eta + v, w]
    return wp.vector(by_controls, by_velocity)


@wp.func(inline=False)
def judge_sides(
    job: Job, nc: int, ns: int, attempt: int, ties: int, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any),
    w: int, scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Keep the sides of an attempt, by what its multipliers and its gradient say, or undo them; return the next one."""
    place = job.scratch
    m = 3 * nc + ns
    work = rows_from(scratch, place.sides)
    lengths = LENGTHS * m
    k = attempt % (ties + 1)
    length = control_length(job, u, parameters, w, scratch)
    kept = bool(True)
    if k > 0:
        # on the side that lets go, what the multiplier said before on the one that holds
        note_bend(job, nc, m, k - 1, w, scratch)
        best = wp.vector(work[lengths, w], work[lengths + 1, w])
        kept = is_better(work[CONVEX * m + k - 1, w] != scratch.dtype(0.0), length, best)
    if kept:
        for j in range(2):
            work[lengths + j, w] = length[j]
        for j in range(ties):
            note_bend(job, nc, m, j, w, scratch)
    else:
        work[HELD * m + k - 1, w] = scratch.dtype(1.0) - work[HELD * m + k - 1, w]
    return next_attempt(attempt, ties, kept, w, rows_from(work, LENGTHS * m + 4))
