"""What sweeps leave, solved to the end: island by island, by the exact solver (docs/derivations/exact_solver.md).

Contacts and rows that A does not couple are problems of their own, and cheaper one by one. Work: for each row the first
one of its island, and the problem of one island, from `Island` on; then that of `exact_solve`.
"""

from typing import Any

import warp as wp

from pullback.rigid.solvers import pgs_kernels as pgs
from pullback.rigid.solvers.exact_kernels import EXACT_STEPS, exact_rows, exact_solve
from pullback.rigid.solvers.problem import Problem
from pullback.rigid.solvers.rows_kernels import find_islands
from pullback.rigid.step.impulse_kernels import apply_impulses, without_impulses
from pullback.rigid.step.problem_kernels import Job, problem_of, write_problem
from pullback.spatial.arrays import rows_from

BUDGET = wp.constant(2.0e8)
"""Systems times the cube of their rows that an island may cost in a step: about 0.15 s on one core."""
LARGEST = wp.constant(215)
"""Rows of an island that the budget allows 20 systems; fewer are of no use, and a larger one is swept on instead."""
MORE_SWEEPS = wp.constant(8)
"""How many times the sweeps that are allowed a larger problem may take."""
ISLAND_VECTORS = wp.constant(7)
"""Rows of work for each row of the problem beside a matrix: islands, members, b, lam, friction and bounds."""


@wp.func
def allowed_systems(m: int):
    """Return how many systems of m rows may be solved in a step; 0: none, the problem is too large."""
    rows = float(m)
    systems = int(wp.min(float(EXACT_STEPS), BUDGET / (rows * rows * rows)))
    return wp.where(m > LARGEST, 0, systems)


@wp.func
def island_of(p: Problem, first: int, w: int, x: wp.array2d(dtype=Any)):
    """Return the problem of the island whose first row is `first`: the whole one, or a copy of its rows in work."""
    m = 3 * p.nc + p.ns
    label = p.work
    member = label + m
    nc = int(0)
    rows = int(0)
    for i in range(m):
        if int(x[label + i, w]) == first:
            x[member + rows, w] = x.dtype(i)
            rows += 1
            if i < 3 * p.nc and i % 3 == 0:
                nc += 1
    island = Problem()
    island.nc = nc
    island.ns = rows - 3 * nc
    island.cone = p.cone
    island.work = label + m * (m + ISLAND_VECTORS)
    island.A = p.A
    island.b = p.b
    island.mu = p.mu
    island.lower = p.lower
    island.upper = p.upper
    island.lam = p.lam
    if rows < m:
        island.b = member + m
        island.lam = island.b + m
        island.mu = island.lam + m
        island.lower = island.mu + m
        island.upper = island.lower + m
        island.A = island.upper + m
        for k in range(rows):
            i = int(x[member + k, w])
            x[island.b + k, w] = x[p.b + i, w]
            x[island.lam + k, w] = x[p.lam + i, w]
            if k < 3 * nc:
                x[island.mu + k // 3, w] = x[p.mu + i // 3, w]
            else:
                x[island.lower + k - 3 * nc, w] = x[p.lower + i - 3 * p.nc, w]
                x[island.upper + k - 3 * nc, w] = x[p.upper + i - 3 * p.nc, w]
            for l in range(rows):
                x[island.A + k * rows + l, w] = x[p.A + i * m + int(x[member + l, w]), w]
    return island


@wp.func(inline=False)
def solve_islands(p: Problem, tolerance: Any, w: int, x: wp.array2d(dtype=Any)):
    """Replace lam by the solution, island by island; return whether all were solved, and stop where one is not."""
    m = 3 * p.nc + p.ns
    find_islands(p.nc, m, rows_from(x, p.A), w, x, p.work)
    solved = bool(True)
    for first in range(m):
        if solved and int(x[p.work + first, w]) == first:
            island = island_of(p, first, w, x)
            rows = 3 * island.nc + island.ns
            limit = allowed_systems(rows)
            solved = False
            if limit > 0:
                solved = exact_solve(island, tolerance, limit, w, x) >= 0
            if solved and rows < m:
                for k in range(rows):
                    x[p.lam + int(x[p.work + m + k, w]), w] = x[island.lam + k, w]
    return solved


@wp.func
def polish(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Replace the impulses by the solution, and s with them; return whether it was found."""
    without_impulses(job, w, scratch)
    write_problem(job, nc, ns, w, scratch)
    solved = solve_islands(problem_of(job, nc, ns), scratch.dtype(job.settings.tolerance), w, scratch)
    apply_impulses(job, nc, ns, w, scratch)
    return solved


@wp.func
def further_sweeps(job: Job, nc: int, ns: int):
    """Return how many more sweeps a problem takes that may be too large to be solved."""
    return wp.where(3 * nc + ns > LARGEST, (MORE_SWEEPS - 1) * job.settings.iterations, 0)


def functions(real: type) -> dict[Any, Any]:
    """Return what takes the place of the functions of PGS."""
    return {**pgs.functions(real), pgs.polish: polish, pgs.further_sweeps: further_sweeps}


def work_rows(m: int, sweeps: int) -> int:
    """Return the rows of work for a problem of m rows and at most so many sweeps."""
    most = int(MORE_SWEEPS) * sweeps if m > int(LARGEST) else sweeps
    return max(pgs.work_rows(m, most), m * (m + int(ISLAND_VECTORS)) + exact_rows(m))
