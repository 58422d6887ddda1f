"""Impacts without the softness of cfm, by one step of iterative refinement (docs/derivations/impacts.md).

    A lam1 + b + c lam1    complementary to lam1
    A lam + b + c (lam - lam1)    complementary to lam                                                              (16)

so that what is left of the softness c, relative to the inverse mass, is its square.
"""

from typing import Any

import warp as wp

from pullback.rigid.solvers.pgs_kernels import needs_matrix, solver_vjp, sweep
from pullback.rigid.step.constraint_kernels import BIAS, BLOCK_ROWS, SCALAR_BIAS, SCALAR_ROWS, softness
from pullback.rigid.step.impulse_kernels import apply_impulses
from pullback.rigid.step.problem_kernels import Job
from pullback.spatial.arrays import rows_from


@wp.func
def move_biases(
    job: Job, nc: int, ns: int, as_matrix: bool, factor: Any, lam: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add a factor times the impulses to the biases of normals and scalar rows, in the matrix form too."""
    place = job.scratch
    for c in range(nc):
        added = factor * lam[3 * c, w]
        row = place.blocks + c * BLOCK_ROWS + BIAS
        scratch[row, w] = scratch[row, w] + added
        if as_matrix:
            scratch[place.b + 3 * c, w] = scratch[place.b + 3 * c, w] + added
    for k in range(ns):
        added = factor * lam[3 * nc + k, w]
        row = place.scalars + k * SCALAR_ROWS + SCALAR_BIAS
        scratch[row, w] = scratch[row, w] + added
        if as_matrix:
            scratch[place.b + 3 * nc + k, w] = scratch[place.b + 3 * nc + k, w] + added


@wp.func(inline=False)
def refine_impact(job: Job, nc: int, ns: int, sweeps: int, as_matrix: bool, w: int, scratch: wp.array2d(dtype=Any)):
    """Solve an impact once more with the softness at its first impulses taken out, eq. (16); note if that converged.

    Otherwise the first solution stays.
    """
    place = job.scratch
    scratch[place.refined, w] = scratch.dtype(0.0)
    if sweeps > 0 and job.settings.polishing_rounds > 0:
        cfm = softness(job.settings, scratch[place.span, w])
        has_matrix = as_matrix or needs_matrix(job, nc, ns)
        kept = rows_from(scratch, place.kept_lam)
        for r in range(3 * nc + ns):
            kept[r, w] = scratch[place.lam + r, w]
        move_biases(job, nc, ns, has_matrix, -cfm, kept, w, scratch)
        count, change = sweep(job, job.settings.iterations, nc, ns, w, scratch)
        if change < scratch.dtype(job.settings.tolerance):
            scratch[place.refined, w] = scratch.dtype(1.0)
        else:
            move_biases(job, nc, ns, has_matrix, cfm, kept, w, scratch)
            for r in range(3 * nc + ns):
                scratch[place.lam + r, w] = kept[r, w]
            apply_impulses(job, nc, ns, w, scratch)


@wp.func
def part_solver_vjp(
    job: Job, nc: int, ns: int, sweeps: int, cases: int, w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Do what `solver_vjp` does, in an impact through both solutions, eq. (17): lam stands for lam1 in the second."""
    place = job.scratch
    solver_vjp(job, nc, ns, sweeps, cases, w, adj_parameters, scratch)
    if scratch[place.span, w] == scratch.dtype(0.0) and scratch[place.refined, w] > scratch.dtype(0.0):
        cfm = softness(job.settings, scratch[place.span, w])
        m = 3 * nc + ns
        for r in range(m):
            scratch[place.kept_lam + r, w] = scratch[place.adj_lam + r, w]
            scratch[place.alpha + r, w] = scratch[place.multiplier + r, w]
            asked = cfm * scratch[place.multiplier + r, w]
            if r < 3 * nc and r % 3 != 0:
                asked = scratch.dtype(0.0)
            scratch[place.adj_lam + r, w] = asked
        for c in range(nc):
            scratch[place.weights + c, w] = scratch[place.adj_mu + c, w]
        solver_vjp(job, nc, ns, sweeps, cases, w, adj_parameters, scratch)
        for r in range(m):
            scratch[place.adj_lam + r, w] = scratch[place.kept_lam + r, w]
            scratch[place.multiplier + r, w] = scratch[place.multiplier + r, w] + scratch[place.alpha + r, w]
        for c in range(nc):
            scratch[place.adj_mu + c, w] = scratch[place.adj_mu + c, w] + scratch[place.weights + c, w]
