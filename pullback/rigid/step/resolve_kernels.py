"""The impulses of a step: start, sweeps, polish, fallback (docs/derivations/contact_solver.md).

What a solver does in each stage is its own: `sweep`, `polish`, `further_sweeps`, `gains_energy` and `needs_matrix` are
those of PGS here, and other solvers' in the step's variants (variants.py).
"""

from typing import Any

import warp as wp

from pullback.rigid.solvers.pgs_kernels import further_sweeps, gains_energy, has_held_rows, needs_matrix, polish, sweep
from pullback.rigid.step.constraint_kernels import (
    LOWER,
    SCALAR_BIAS,
    SCALAR_DIAGONAL,
    SCALAR_ROWS,
    is_limit,
    scalar_dot,
)
from pullback.rigid.step.impulse_kernels import apply_impulses, keep_free_velocity, start_cold, start_warm
from pullback.rigid.step.problem_kernels import Job, write_problem
from pullback.spatial.arrays import rows_from

VERIFYING_SWEEPS = wp.constant(2)
"""Sweeps after polishing, which show whether that found the solution."""


@wp.func
def start(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the impulses to start from, those of the last step or none; return whether the start is warm."""
    warm = bool(False)
    # the impulses of an impact, which takes no time, have nothing to do with those of a step
    if job.nimpulse > 0 and scratch[job.scratch.span, w] > scratch.dtype(0.0):
        start_warm(job, nc, ns, w, scratch)
        # stale impulses of wedged contacts add energy without bound
        warm = not gains_energy(job, nc, ns, w, scratch)
    if not warm:
        start_cold(job, nc, ns, w, scratch)
    return warm


@wp.func
def sweep_until_passive(job: Job, nc: int, ns: int, warm: bool, w: int, scratch: wp.array2d(dtype=Any)):
    """Sweep until convergence, or as often as is allowed; return the sweeps and whether they converged.

    Sweeps that are used up can have added energy, by friction that had to shrink with its normal impulse. Then restart
    cold, and with half the sweeps if that was cold already: a single sweep adds none.
    """
    place = job.scratch
    tolerance = scratch.dtype(job.settings.tolerance)
    limit = int(job.settings.iterations)
    sweeps = int(0)
    converged = bool(False)
    is_warm = bool(warm)
    again = bool(True)
    while again:
        again = False
        count, change = sweep(job, limit, nc, ns, w, scratch)
        sweeps = count
        converged = change < tolerance
        if not converged:
            if job.settings.polishing_rounds > 0:
                for r in range(3 * nc + ns):
                    scratch[place.kept_lam + r, w] = scratch[place.lam + r, w]
            if not is_warm:
                limit = limit // 2
            if limit > 0:
                again = gains_energy(job, nc, ns, w, scratch)
            if again:
                start_cold(job, nc, ns, w, scratch)
                is_warm = False
    return sweeps, converged


@wp.func
def polish_and_verify(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Polish the impulses and sweep a little, until sweeps hardly change them; return whether that was reached.

    A solution adds no energy: where impulses do, rounding in a singular problem has been taken for one.
    """
    solved = bool(False)
    for _ in range(job.settings.polishing_rounds):
        if not solved:
            solved = polish(job, nc, ns, w, scratch)
            if not solved:
                count, change = sweep(job, VERIFYING_SWEEPS, nc, ns, w, scratch)
                solved = change < scratch.dtype(job.settings.tolerance)
            if solved:
                solved = not gains_energy(job, nc, ns, w, scratch)
    return solved


@wp.func
def take_kept(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Return to the impulses that the sweeps had found."""
    for r in range(3 * nc + ns):
        scratch[job.scratch.lam + r, w] = scratch[job.scratch.kept_lam + r, w]
    apply_impulses(job, nc, ns, w, scratch)


@wp.func
def fall_back(job: Job, nc: int, ns: int, sweeps: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Return to the impulses of the sweeps, which their adjoint can answer for; sweep on where that is all there is.

    Return the sweeps, negative if they did not converge.
    """
    told = -sweeps
    if job.settings.polishing_rounds > 0:
        take_kept(job, nc, ns, w, scratch)
        further = further_sweeps(job, nc, ns)
        # fewer sweeps than are allowed were taken because more would have added energy
        if further > 0 and sweeps == job.settings.iterations:
            count, change = sweep(job, further, nc, ns, w, scratch)
            if change < scratch.dtype(job.settings.tolerance):
                told = sweeps + count
            elif gains_energy(job, nc, ns, w, scratch):
                take_kept(job, nc, ns, w, scratch)
            else:
                told = -sweeps - count
    return told


@wp.func
def let_go_of_unloaded_limits(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Take joint limits whose load is below the tolerance for open, whatever rounding says: contact_step.md, 6."""
    place = job.scratch
    scalars = rows_from(scratch, place.scalars)
    s = rows_from(scratch, place.s)
    tolerance = scratch.dtype(job.settings.tolerance)
    for k in range(job.scene.nloop_row + job.scene.ncoupling, ns):
        row = k * SCALAR_ROWS
        i = place.lam + 3 * nc + k
        lower = scalars[row + LOWER, w]
        loaded = scalars[row + SCALAR_DIAGONAL, w] * (scratch[i, w] - lower)
        if is_limit(scalars, k, w) and loaded > scratch.dtype(0.0) and loaded <= tolerance:
            speed = scalar_dot(job.scene, scalars, k, rows_from(scratch, place.Y_scalar), s, w)
            if wp.abs(speed + scalars[row + SCALAR_BIAS, w]) <= tolerance:
                scratch[i, w] = lower


@wp.func
def resolve(job: Job, nc: int, ns: int, as_matrix: bool, w: int, scratch: wp.array2d(dtype=Any)):
    """Solve for the impulses and move s by them, eq. (3); return the sweeps, negative if they did not converge.

    The problem is written as a matrix too, if that is wanted, as for derivatives, or swept over.
    """
    sweeps = int(0)
    if as_matrix or needs_matrix(job, nc, ns):
        write_problem(job, nc, ns, w, scratch)
    keep_free_velocity(job, w, scratch)
    if nc + ns == 0:
        start_cold(job, nc, ns, w, scratch)
    else:
        warm = start(job, nc, ns, w, scratch)
        count, converged = sweep_until_passive(job, nc, ns, warm, w, scratch)
        sweeps = count
        if not converged:
            if not polish_and_verify(job, nc, ns, w, scratch):
                sweeps = fall_back(job, nc, ns, count, w, scratch)
        if as_matrix and has_held_rows(job, sweeps):
            let_go_of_unloaded_limits(job, nc, ns, w, scratch)
    return sweeps
