"""What sweeps leave, solved to the end: island by island, by the exact solver (docs/derivations/exact_solver.md).

Contacts and rows that A does not couple are problems of their own, and cheaper one by one. Of an island only rows in
play are solved for: those that sweeps left at a bound are set aside there, and taken in where the solution asks for
more of them. Work: for each row the first one of its island, -1 minus that while it is set aside; the rows of the
problem at hand and a copy of it; then that of `exact_solve`.
"""

from typing import Any

import warp as wp

from pullback.rigid.solvers import pgs_kernels as pgs
from pullback.rigid.solvers.accuracy_kernels import rounding
from pullback.rigid.solvers.exact_kernels import EXACT_STEPS, exact_rows, exact_solve
from pullback.rigid.solvers.problem import Problem
from pullback.rigid.solvers.rows_kernels import dot_rows, find_islands
from pullback.rigid.step.impulse_kernels import apply_impulses, without_impulses
from pullback.rigid.step.problem_kernels import Job, problem_of, write_problem
from pullback.spatial.arrays import rows_from

BUDGET = wp.constant(2.0e8)
"""Systems times the cube of their rows that an island may cost in a step: about 0.15 s on one core."""
LARGEST = wp.constant(215)
"""Rows in play that the budget allows 20 systems; fewer are of no use, and a larger problem is swept on instead."""
MORE_SWEEPS = wp.constant(8)
"""How many times the sweeps that are allowed a larger problem may take."""
ISLAND_VECTORS = wp.constant(7)
"""Rows of work for each row of the problem beside a matrix: islands, members, b, lam, friction and bounds."""


@wp.func
def cost_of(systems: int, m: int):
    """Return what so many systems of m rows cost, in units of the budget."""
    rows = float(m)
    return float(systems) * rows * rows * rows


@wp.func
def allowed_systems(m: int, spent: float):
    """Return how many systems of m rows may still be solved in a step; 0: none, the problem is too large."""
    systems = int(wp.min(float(EXACT_STEPS), (BUDGET - spent) / cost_of(1, m)))
    return wp.where(m > LARGEST, 0, systems)


@wp.func
def set_aside(p: Problem, w: int, x: wp.array2d(dtype=Any)):
    """Set rows aside that stand at a bound: contacts without impulse, scalars at a limit."""
    zero = x.dtype(0.0)
    for i in range(3 * p.nc + p.ns):
        at_bound = bool(False)
        if i < 3 * p.nc:
            at_bound = x[p.lam + i - i % 3, w] <= zero
        else:
            s = i - 3 * p.nc
            at_bound = x[p.lam + i, w] <= x[p.lower + s, w] or x[p.lam + i, w] >= x[p.upper + s, w]
        if at_bound:
            x[p.work + i, w] = x.dtype(-1.0) - x[p.work + i, w]


@wp.func
def take_in(p: Problem, first: int, tolerance: Any, w: int, x: wp.array2d(dtype=Any)):
    """Take rows of an island in that would leave their bounds; return how many.

    Faster than rounding, at most `tolerance`: of redundant rows a velocity of 1e-15 asks for an impulse of 1e-15 / cfm.
    """
    m = 3 * p.nc + p.ns
    label = rows_from(x, p.work)
    lam = rows_from(x, p.lam)
    taken = int(0)
    for i in range(m):
        if int(label[i, w]) == -1 - first and (i >= 3 * p.nc or i % 3 == 0):
            given = x[p.b + i, w]
            made = dot_rows(rows_from(x, p.A), i * m, lam, 0, m, w)
            speed = -given - made
            least = wp.min(tolerance, x.dtype(4.0) * rounding(given) * (wp.abs(given) + wp.abs(made)))
            rows = int(3)
            leaves = bool(True)
            if i >= 3 * p.nc:
                s = i - 3 * p.nc
                rows = 1
                if lam[i, w] >= x[p.upper + s, w]:
                    speed = -speed
                leaves = x[p.lower + s, w] < x[p.upper + s, w]
            if leaves and speed > least:
                for k in range(rows):
                    label[i + k, w] = x.dtype(first)
                taken += rows
    return taken


@wp.func
def rows_in_play(p: Problem, first: int, w: int, x: wp.array2d(dtype=Any)):
    """Return the problem of an island's rows in play, `first` its first row: the whole one, or a copy in work.

    Impulses of rows that are set aside, at limits that are not zero, are part of its velocities.
    """
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
            for j in range(3 * p.nc, m):
                if int(x[label + j, w]) == -1 - first:
                    x[island.b + k, w] += x[p.A + i * m + j, w] * x[p.lam + j, w]
    return island


@wp.func
def solve_island(p: Problem, first: int, tolerance: Any, w: int, x: wp.array2d(dtype=Any)):
    """Replace the impulses of an island by the solution; return whether it was found.

    Rows in play first, until no bound gives way, then all of them if that did not lead to a solution.
    """
    m = 3 * p.nc + p.ns
    solved = bool(False)
    spent = float(0.0)
    running = bool(True)
    while running:
        island = rows_in_play(p, first, w, x)
        rows = 3 * island.nc + island.ns
        solved = rows == 0
        if not solved:
            limit = allowed_systems(rows, spent)
            if limit > 0:
                systems = exact_solve(island, tolerance, limit, w, x)
                spent += cost_of(wp.abs(systems), rows)
                solved = systems >= 0
        if solved:
            if rows < m:
                for k in range(rows):
                    x[p.lam + int(x[p.work + m + k, w]), w] = x[island.lam + k, w]
            running = take_in(p, first, tolerance, w, x) > 0
        else:
            running = take_in(p, first, -x.dtype(wp.inf), w, x) > 0
            spent = 0.0
    return solved


@wp.func(inline=False)
def solve_islands(p: Problem, tolerance: Any, w: int, x: wp.array2d(dtype=Any)):
    """Replace lam by the solution, island by island; return whether all were solved, and stop where one is not."""
    m = 3 * p.nc + p.ns
    find_islands(p.nc, m, rows_from(x, p.A), w, x, p.work)
    set_aside(p, w, x)
    solved = bool(True)
    for first in range(m):
        label = int(x[p.work + first, w])
        if solved and (label == first or label == -1 - first):
            solved = solve_island(p, first, tolerance, w, x)
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
