"""Projected Gauss-Seidel and its adjoint (docs/derivations/contact_solver.md).

Every solver's kernels file provides what a step asks of a solver, under these names; other solvers' take their place in
the step's variants (step/variants.py):

    prepare_contacts   change the rows of the contacts before they are solved
    needs_matrix       whether sweeps want the problem written as a matrix
    sweep              sweep until impulses hardly change
    polish             improve the impulses that sweeps left
    further_sweeps     how many more sweeps to take where that was of no use
    gains_energy       whether impulses add energy, so that they must not be taken
    is_unrolled        whether the sweeps are differentiated one by one, instead of the solution
    has_held_rows      whether the solution is that of rows that hold, so that Jacobians may be taken as matrices
    solver_vjp         the multipliers of the adjoint
"""

from typing import Any

import warp as wp

from pullback.rigid.solvers.implicit_kernels import implicit_rows, implicit_vjp
from pullback.rigid.solvers.sweep_kernels import solve, solve_matrix
from pullback.rigid.solvers.unrolled_kernels import unrolled_rows, unrolled_vjp
from pullback.rigid.step.impulse_kernels import apply_impulses, raised_by_impulses, started_warm
from pullback.rigid.step.problem_kernels import Job, problem_of
from pullback.rigid.step.warm_kernels import load_impulses
from pullback.spatial.arrays import rows_from

MATRIX_ROWS = wp.constant(36)
"""Sweeps over a matrix of 12 rows take half the time, those over one of 36, mostly zeros, as long as without it."""


@wp.func
def prepare_contacts(job: Job, nc: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Do nothing: contacts are rigid."""


@wp.func
def needs_matrix(job: Job, nc: int, ns: int):
    """Tell whether the problem is swept over as a matrix: a small one, where there is room for it."""
    return job.settings.polishing_rounds > 0 and 3 * nc + ns <= MATRIX_ROWS


@wp.func
def never_needs_matrix(job: Job, nc: int, ns: int):
    """Tell that rows are swept over as they stand."""
    return False


@wp.func(inline=False)
def sweep_rows(job: Job, limit: int, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Sweep over the rows until impulses hardly change, or `limit` times; return sweeps and the last one's change."""
    sweeps, change = solve(job, limit, nc, ns, job.scratch.lam, w, scratch)
    return sweeps, change


@wp.func(inline=False)
def sweep_matrix(job: Job, limit: int, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Do what `sweep_rows` does, for the problem as a matrix."""
    tolerance = scratch.dtype(job.settings.tolerance)
    sweeps, change = solve_matrix(problem_of(job, nc, ns), limit, tolerance, w, scratch)
    apply_impulses(job, nc, ns, w, scratch)
    return sweeps, change


@wp.func
def sweep(job: Job, limit: int, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Sweep until impulses hardly change, or `limit` times; return sweeps and the last one's change."""
    sweeps = int(0)
    change = scratch.dtype(0.0)
    if needs_matrix(job, nc, ns):
        sweeps, change = sweep_matrix(job, limit, nc, ns, w, scratch)
    else:
        sweeps, change = sweep_rows(job, limit, nc, ns, w, scratch)
    return sweeps, change


@wp.func
def polish(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Do nothing: what sweeps left stands."""
    return False


@wp.func
def further_sweeps(job: Job, nc: int, ns: int):
    """Return 0: as many sweeps were taken as are allowed."""
    return 0


@wp.func
def gains_energy(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Tell whether the impulses add energy beyond what biases ask for; what is not finite does."""
    return not raised_by_impulses(job, nc, ns, w, scratch) <= scratch.dtype(0.0)


@wp.func
def is_unrolled(job: Job, sweeps: int):
    """Tell whether sweeps are differentiated: if the user wants that, and if they did not converge."""
    return job.settings.unrolled == 1 or sweeps < 0


@wp.func
def has_held_rows(job: Job, sweeps: int):
    """Tell whether the impulses are a solution, in which each row is held, at a bound or free."""
    return job.settings.unrolled == 0 and sweeps >= 0


@wp.func
def solver_vjp(
    job: Job, nc: int, ns: int, sweeps: int, cases: int, w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write kappa, the multiplier with adj_b = -kappa, and the cotangents of friction coefficients and bounds.

    The implicit adjoint reads the case of each row off the impulses from row `cases` of scratch on.
    """
    place = job.scratch
    problem = problem_of(job, nc, ns)
    if is_unrolled(job, sweeps):
        start = rows_from(scratch, place.start_lam)
        for r in range(3 * nc + ns):
            start[r, w] = scratch.dtype(0.0)
        if started_warm(job, w, scratch):
            load_impulses(
                job.scene, nc, ns, rows_from(scratch, place.contacts), rows_from(scratch, place.scalars),
                rows_from(scratch, place.impulses), w, start,
            )  # fmt: skip
        unrolled_vjp(problem, wp.abs(sweeps), w, scratch)
    else:
        problem.lam = cases
        implicit_vjp(problem, w, scratch)


def functions(real: type) -> dict[Any, Any]:
    """Return what takes the place of the functions above in kernels of one floating-point type."""
    if real == wp.float64:
        return {}
    return {needs_matrix: never_needs_matrix, sweep: sweep_rows}


def work_rows(m: int, sweeps: int) -> int:
    """Return the rows of work for a problem of m rows and at most so many sweeps."""
    return max(implicit_rows(m), unrolled_rows(m, sweeps))
