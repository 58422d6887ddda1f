"""Impacts that hardly give way: the solution is told what a first one gave way by (docs/derivations/impacts.md).

    A lam1 + b + c lam1    complementary to lam1
    A lam + b + c (lam - lam1)    complementary to lam                                                              (16)

so that what is left of the softness c, relative to the inverse mass, is its square.
"""

from typing import Any

import warp as wp

from pullback.rigid.solvers.pgs_kernels import is_unrolled, solver_vjp
from pullback.rigid.step.constraint_kernels import BIAS, BLOCK_ROWS, SCALAR_BIAS, SCALAR_ROWS, softness
from pullback.rigid.step.impulse_kernels import without_impulses
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.resolve_kernels import resolve


@wp.func
def resolve_again(job: Job, nc: int, ns: int, sweeps: int, as_matrix: bool, w: int, scratch: wp.array2d(dtype=Any)):
    """Solve an impact that is solved once more, eq. (16), if it was solved; return the sweeps."""
    place = job.scratch
    count = int(sweeps)
    if not is_unrolled(job, sweeps):
        cfm = softness(job.settings, scratch[place.span, w])
        for c in range(nc):
            row = place.blocks + c * BLOCK_ROWS + BIAS
            scratch[row, w] = scratch[row, w] - cfm * scratch[place.lam + 3 * c, w]
        for k in range(ns):
            row = place.scalars + k * SCALAR_ROWS + SCALAR_BIAS
            scratch[row, w] = scratch[row, w] - cfm * scratch[place.lam + 3 * nc + k, w]
        without_impulses(job, w, scratch)
        count = resolve(job, nc, ns, as_matrix, w, scratch)
    return count


@wp.func
def part_solver_vjp(
    job: Job, nc: int, ns: int, sweeps: int, cases: int, w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Do what `solver_vjp` does, in an impact through both solutions, eq. (17): lam stands for lam1 in the second."""
    place = job.scratch
    solver_vjp(job, nc, ns, sweeps, cases, w, adj_parameters, scratch)
    if scratch[place.span, w] == scratch.dtype(0.0) and not is_unrolled(job, sweeps):
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
