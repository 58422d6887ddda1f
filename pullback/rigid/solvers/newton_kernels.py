"""Newton's step on a contact problem near its solution (docs/derivations/contact_solver.md, "Newton's step").

The rows that hold, and the directions of contacts that slide, are those of the impulses it starts from. With unknowns,
trial columns E and test columns R of the implicit adjoint, and r = A lam + b,

    (R^T A E + D) dz = -R^T r,    lam += E dz                                      (17)

and the tangential impulses of sliding contacts are brought back to their limit.
"""

from typing import Any

import warp as wp

from pullback.rigid.solvers.implicit_kernels import (
    ROW,
    TEST_SECOND,
    TRIAL,
    UNKNOWN_ROWS,
    add_unknowns,
    contact_direction,
    solve_unknowns,
)
from pullback.rigid.solvers.problem import Problem
from pullback.rigid.solvers.rows_kernels import dot_rows
from pullback.spatial.arrays import rows_from

LARGEST = wp.constant(1.0e8)
"""Impulses that would change velocities by more than this many times the largest hide what they do in rounding."""


@wp.func(inline=False)
def newton_step(p: Problem, w: int, x: wp.array2d(dtype=Any)):
    """Replace lam by the impulses after one step, eq. (17), within their bounds."""
    A = rows_from(x, p.A)
    b = rows_from(x, p.b)
    mu = rows_from(x, p.mu)
    lower = rows_from(x, p.lower)
    upper = rows_from(x, p.upper)
    lam = rows_from(x, p.lam)
    work = rows_from(x, p.work)
    moved = rows_from(x, p.residual)
    nc = p.nc
    ns = p.ns
    cone = p.cone
    m = 3 * nc + ns
    zero = A.dtype(0.0)
    count = add_unknowns(nc, ns, cone, A, b, mu, lower, upper, lam, lam, w, work)
    right = m * (m + UNKNOWN_ROWS)
    for k in range(count):
        at = m * m + k * UNKNOWN_ROWS
        i = int(work[at + ROW, w])
        value = work[at + TRIAL, w] * (b[i, w] + dot_rows(A, i * m, lam, 0, m, w))
        second = work[at + TEST_SECOND, w]
        if second != zero:
            value += second * (b[i + 1, w] + dot_rows(A, (i + 1) * m, lam, 0, m, w))
        work[right + k, w] = -value
    solve_unknowns(nc, count, m, False, A, w, work)
    size = zero
    for k in range(count):
        size += wp.abs(work[right + k, w])
    # a singular system, of redundant rows without softness, leaves the impulses as they are
    taken = wp.where(wp.isfinite(size), count, 0)
    velocity = zero
    for i in range(m):
        moved[i, w] = lam[i, w]
        velocity = wp.max(velocity, wp.abs(b[i, w]))
    for k in range(taken):
        at = m * m + k * UNKNOWN_ROWS
        i = int(work[at + ROW, w])
        for j in range(3):
            trial = work[at + TRIAL + j, w]
            if trial != zero:
                moved[i + j, w] = moved[i + j, w] + trial * work[right + k, w]
    # back within the bounds; which contacts slide is read off the old impulses, so these are overwritten last
    for c in range(nc):
        i = 3 * c
        normal = wp.max(moved[i, w], zero)
        x1 = moved[i + 1, w]
        x2 = moved[i + 2, w]
        bound = mu[c, w] * normal
        if cone:
            length = wp.sqrt(x1 * x1 + x2 * x2)
            slides = length > bound
            if lam[i, w] > zero:
                e, r = contact_direction(c, m, cone, A, b, mu, lam, w)
                slides = slides or wp.dot(e, e) > zero
            if slides and length > zero:
                x1 = x1 * (bound / length)
                x2 = x2 * (bound / length)
        else:
            x1 = wp.clamp(x1, -bound, bound)
            x2 = wp.clamp(x2, -bound, bound)
        moved[i, w] = normal
        moved[i + 1, w] = x1
        moved[i + 2, w] = x2
    for s in range(ns):
        i = 3 * nc + s
        moved[i, w] = wp.clamp(moved[i, w], lower[s, w], upper[s, w])
    # sweeps could not tell whether such impulses are right
    is_large = int(0)
    for i in range(m):
        if not wp.abs(A[i * m + i, w] * moved[i, w]) <= A.dtype(LARGEST) * velocity:
            is_large = 1
    if is_large == 0:
        for i in range(m):
            lam[i, w] = moved[i, w]
