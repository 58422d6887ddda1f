"""Sweeps of projected Gauss-Seidel over a contact problem, and their adjoint (docs/derivations/contact_solver.md).

The problem is that of problem.py. The sweeps are run again and each row's candidate x, its value before it is brought
back within its bounds, is kept; the way back needs nothing else:

    free:      x = -(A_i lam + b_i - A_ii lam_i) / A_ii:    adj_A_i -= (adj_x / A_ii) lam^T
    bounded:   the bound gets the cotangent

Work: the impulses as they stand (m), their cotangents (m), the candidates (m a sweep).
"""

from typing import Any

import warp as wp

from pullback.rigid.solvers.problem import Problem
from pullback.rigid.solvers.rows_kernels import add_multiple, dot_rows
from pullback.rigid.solvers.sweep_kernels import project_on_friction_cone, tangent_step_size
from pullback.spatial.arrays import rows_from


def unrolled_rows(m: int, sweeps: int) -> int:
    """Return the rows of work that `unrolled_vjp` needs for m rows and at most `sweeps` sweeps."""
    return m * (sweeps + 2)


@wp.func
def tangent_impulse(cone: int, x: Any, bound: Any):
    """Return the tangential impulse nearest to the candidate x: in the disk of radius `bound`, or in the square."""
    y1 = wp.clamp(x[0], -bound, bound)
    y2 = wp.clamp(x[1], -bound, bound)
    if cone:
        y1, y2 = project_on_friction_cone(x[0], x[1], bound)
    return wp.vector(y1, y2)


@wp.func
def tangent_step(A: wp.array2d(dtype=Any), i: int, m: int, w: int):
    """Return the step of the tangent rows i and i+1: eq. (4)."""
    return tangent_step_size(A[i * m + i, w], A[i * m + i + 1, w], A[(i + 1) * (m + 1), w])


@wp.func
def row_residual(
    m: int, i: int, A: wp.array2d(dtype=Any), b: wp.array2d(dtype=Any), lam: wp.array2d(dtype=Any), w: int
):  # fmt: skip
    """Return row i of A lam + b."""
    return b[i, w] + dot_rows(A, i * m, lam, 0, m, w)


@wp.func
def row_candidate(
    m: int, i: int, A: wp.array2d(dtype=Any), b: wp.array2d(dtype=Any), lam: wp.array2d(dtype=Any), w: int
):  # fmt: skip
    """Return the impulse of row i that makes its residual vanish: eq. (3)."""
    return lam[i, w] - row_residual(m, i, A, b, lam, w) / A[i * m + i, w]


@wp.func
def sweep(p: Problem, first: int, w: int, x: wp.array2d(dtype=Any)):
    """Update every impulse once in the first m rows of work, and keep the candidates from row `first` of it on."""
    A = rows_from(x, p.A)
    b = rows_from(x, p.b)
    mu = rows_from(x, p.mu)
    lower = rows_from(x, p.lower)
    upper = rows_from(x, p.upper)
    work = rows_from(x, p.work)
    nc = p.nc
    ns = p.ns
    cone = p.cone
    m = 3 * nc + ns
    for c in range(nc):
        i = 3 * c
        t = i + 1
        value = row_candidate(m, i, A, b, work, w)
        normal = wp.max(value, A.dtype(0.0))
        work[first + i, w] = value
        work[i, w] = normal
        limit = mu[c, w] * normal
        # eq. (4)
        if cone:
            step = tangent_step(A, t, m, w)
            x1 = work[t, w] - step * row_residual(m, t, A, b, work, w)
            x2 = work[t + 1, w] - step * row_residual(m, t + 1, A, b, work, w)
            y = tangent_impulse(cone, wp.vector(x1, x2), limit)
            work[first + t, w] = x1
            work[first + t + 1, w] = x2
            work[t, w] = y[0]
            work[t + 1, w] = y[1]
        else:
            for k in range(2):
                value = row_candidate(m, t + k, A, b, work, w)
                work[first + t + k, w] = value
                work[t + k, w] = wp.clamp(value, -limit, limit)
    for s in range(ns):
        i = 3 * nc + s
        value = row_candidate(m, i, A, b, work, w)
        work[first + i, w] = value
        work[i, w] = wp.clamp(value, lower[s, w], upper[s, w])


@wp.func
def contact_before(
    c: int, cone: int, m: int, turn: int, mu: wp.array2d(dtype=Any), lam_start: wp.array2d(dtype=Any), w: int,
    work: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return the impulse of contact c before sweep `turn`."""
    i = 3 * c
    zero = mu.dtype(0.0)
    before = wp.vector(zero, zero, zero)
    if turn > 0:
        i = i + m * (turn + 1)
        normal = wp.max(work[i, w], zero)
        y = tangent_impulse(cone, wp.vector(work[i + 1, w], work[i + 2, w]), mu[c, w] * normal)
        before = wp.vector(normal, y[0], y[1])
    else:
        before = wp.vector(lam_start[i, w], lam_start[i + 1, w], lam_start[i + 2, w])
    return before


@wp.func
def scalar_before(
    s: int, i: int, m: int, turn: int, lower: wp.array2d(dtype=Any), upper: wp.array2d(dtype=Any),
    lam_start: wp.array2d(dtype=Any), w: int, work: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return the impulse of scalar s, in row i, before sweep `turn`."""
    before = lower.dtype(0.0)
    if turn > 0:
        before = wp.clamp(work[m * (turn + 1) + i, w], lower[s, w], upper[s, w])
    else:
        before = lam_start[i, w]
    return before


@wp.func
def residual_vjp(
    m: int, i: int, adj_r: Any, A: wp.array2d(dtype=Any), w: int, work: wp.array2d(dtype=Any),
    adj_A: wp.array2d(dtype=Any), adj_b: wp.array2d(dtype=Any),
):  # fmt: skip
    """Hand the cotangent of row i's residual to A, b and the impulses: eq. (6)."""
    if adj_r != A.dtype(0.0):
        adj_b[i, w] += adj_r
        add_multiple(adj_A, i * m, adj_r, work, 0, m, w)
        add_multiple(work, m, adj_r, A, i * m, m, w)


@wp.func
def free_row_vjp(
    m: int, i: int, free: bool, before: Any, A: wp.array2d(dtype=Any), w: int, work: wp.array2d(dtype=Any),
    adj_A: wp.array2d(dtype=Any), adj_b: wp.array2d(dtype=Any),
):  # fmt: skip
    """Walk back over one row's own update, eq. (7), and put its impulse back to what it was `before`."""
    if free:
        residual_vjp(m, i, -work[m + i, w] / A[i * m + i, w], A, w, work, adj_A, adj_b)
    # what the row was before does not matter to what it becomes
    work[m + i, w] = A.dtype(0.0)
    work[i, w] = before


@wp.func
def cone_vjp(
    m: int, t: int, limit: Any, before: Any, first: int, A: wp.array2d(dtype=Any), w: int, work: wp.array2d(dtype=Any),
    adj_A: wp.array2d(dtype=Any), adj_b: wp.array2d(dtype=Any),
):  # fmt: skip
    """Walk back over the update of the tangent rows t and t+1 of a cone, and return the cotangent of its radius."""
    x = wp.vector(work[first + t, w], work[first + t + 1, w])
    adj_x = wp.vector(work[m + t, w], work[m + t + 1, w])
    adj_limit = A.dtype(0.0)
    length = wp.length(x)
    # eq. (8)
    if length > limit:
        e = x / length
        adj_limit = wp.dot(e, adj_x)
        adj_x = (limit / length) * (adj_x - adj_limit * e)
    step = tangent_step(A, t, m, w)
    trace = A[t * m + t, w] + A[(t + 1) * (m + 1), w]
    diagonal = wp.dot(adj_x, wp.vector(before[1], before[2]) - x) / trace
    adj_A[t * m + t, w] += diagonal
    adj_A[(t + 1) * (m + 1), w] += diagonal
    work[t, w] = before[1]
    work[t + 1, w] = before[2]
    work[m + t, w] = adj_x[0]
    work[m + t + 1, w] = adj_x[1]
    residual_vjp(m, t, -step * adj_x[0], A, w, work, adj_A, adj_b)
    residual_vjp(m, t + 1, -step * adj_x[1], A, w, work, adj_A, adj_b)
    return adj_limit


@wp.func
def pyramid_vjp(
    m: int, i: int, limit: Any, before: Any, first: int, A: wp.array2d(dtype=Any), w: int, work: wp.array2d(dtype=Any),
    adj_A: wp.array2d(dtype=Any), adj_b: wp.array2d(dtype=Any),
):  # fmt: skip
    """Walk back over the update of one tangent row of a pyramid, and return the cotangent of its half width."""
    x = work[first + i, w]
    adj_limit = A.dtype(0.0)
    if x >= limit:
        adj_limit = work[m + i, w]
    elif x <= -limit:
        adj_limit = -work[m + i, w]
    free_row_vjp(m, i, wp.abs(x) < limit, before, A, w, work, adj_A, adj_b)
    return adj_limit


@wp.func
def sweep_vjp(p: Problem, turn: int, w: int, x: wp.array2d(dtype=Any)):
    """Go back over sweep `turn`: the last row first, impulses and cotangents to what they were before it."""
    A = rows_from(x, p.A)
    mu = rows_from(x, p.mu)
    lower = rows_from(x, p.lower)
    upper = rows_from(x, p.upper)
    work = rows_from(x, p.work)
    adj_A = rows_from(x, p.adj_A)
    adj_mu = rows_from(x, p.adj_mu)
    adj_lower = rows_from(x, p.adj_lower)
    adj_upper = rows_from(x, p.adj_upper)
    adj_b = rows_from(x, p.multiplier)
    lam_start = rows_from(x, p.start)
    nc = p.nc
    ns = p.ns
    cone = p.cone
    m = 3 * nc + ns
    first = m * (turn + 2)
    for backwards in range(ns):
        s = ns - 1 - backwards
        i = 3 * nc + s
        value = work[first + i, w]
        above = value >= upper[s, w]
        below = value <= lower[s, w] and not above
        if above:
            adj_upper[s, w] += work[m + i, w]
        if below:
            adj_lower[s, w] += work[m + i, w]
        kept = scalar_before(s, i, m, turn, lower, upper, lam_start, w, work)
        free_row_vjp(m, i, not above and not below, kept, A, w, work, adj_A, adj_b)
    for backwards in range(nc):
        c = nc - 1 - backwards
        i = 3 * c
        before = contact_before(c, cone, m, turn, mu, lam_start, w, work)
        normal = work[i, w]
        limit = mu[c, w] * normal
        adj_limit = A.dtype(0.0)
        if cone:
            adj_limit = cone_vjp(m, i + 1, limit, before, first, A, w, work, adj_A, adj_b)
        else:
            adj_limit = pyramid_vjp(m, i + 2, limit, before[2], first, A, w, work, adj_A, adj_b)
            adj_limit += pyramid_vjp(m, i + 1, limit, before[1], first, A, w, work, adj_A, adj_b)
        adj_mu[c, w] += normal * adj_limit
        work[m + i, w] += mu[c, w] * adj_limit
        free_row_vjp(m, i, normal > A.dtype(0.0), before[0], A, w, work, adj_A, adj_b)


@wp.func(inline=False)
def unrolled_vjp(p: Problem, sweeps: int, w: int, x: wp.array2d(dtype=Any)):
    """Write the cotangents of all that sweeps from `start` read, given that of the impulses they end at.

    The multiplier is minus that of b.
    """
    work = rows_from(x, p.work)
    m = 3 * p.nc + p.ns
    zero = x.dtype(0.0)
    for i in range(m):
        work[i, w] = x[p.start + i, w]
        work[m + i, w] = x[p.adj_lam + i, w]
        x[p.multiplier + i, w] = zero
    for i in range(m * m):
        x[p.adj_A + i, w] = zero
    for c in range(p.nc):
        x[p.adj_mu + c, w] = zero
    for s in range(p.ns):
        x[p.adj_lower + s, w] = zero
        x[p.adj_upper + s, w] = zero
    for turn in range(sweeps):
        sweep(p, m * (turn + 2), w, x)
    for backwards in range(sweeps):
        sweep_vjp(p, sweeps - 1 - backwards, w, x)
    for i in range(m):
        x[p.adj_start + i, w] = work[m + i, w]
        x[p.multiplier + i, w] = -x[p.multiplier + i, w]
