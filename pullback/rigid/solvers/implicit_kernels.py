"""The adjoint of a contact problem at its solution (docs/derivations/contact_solver.md).

The problem is that of problem.py. Its solution tells which rows are held. With an unknown z for each, trial columns E
(d lam = E dz + what bounds and mu move) and test columns R,

    (R^T A E + D)^T y = E^T adj_lam,    multiplier = R y,    adj_b = -multiplier,    adj_A = -multiplier lam^T

A test column has one or two entries, in rows i and i+1; a trial column is the same, and where it is the normal of a
contact that slides, it has the tangents it drags along.
"""

from typing import Any

import warp as wp

from pullback.rigid.solvers.problem import Problem
from pullback.rigid.solvers.rows_kernels import NEGLIGIBLE, SMALL, add_multiple, dot_rows, find_islands, solve_small
from pullback.spatial.arrays import rows_from

# rows of work an unknown, after the m m rows of the matrix; after those of all unknowns, the right-hand side, the
# equation by which each unknown was eliminated, and the island of each row
ROW = wp.constant(0)
TRIAL = wp.constant(1)
TEST_SECOND = wp.constant(4)
DIAGONAL = wp.constant(5)
UNKNOWN_ROWS = wp.constant(6)


def implicit_rows(m: int) -> int:
    """Return the rows of work that `implicit_vjp`, or one of Newton's steps, needs for m rows."""
    return m * (m + UNKNOWN_ROWS + 3)


@wp.func
def slack(limit: wp.float32):
    """Return how far below its limit a tangential impulse may be and still slide."""
    return wp.float32(1e-6) * limit


@wp.func
def slack(limit: wp.float64):  # noqa: F811
    """Return how far below its limit a tangential impulse may be and still slide."""
    return wp.float64(1e-9) * limit


@wp.func
def negligible(size: wp.float32):
    """Return below what a pivot is rounding in a column of that size."""
    return wp.float32(wp.static(NEGLIGIBLE["float"])) * size


@wp.func
def negligible(size: wp.float64):  # noqa: F811
    """Return below what a pivot is rounding in a column of that size."""
    return wp.float64(wp.static(NEGLIGIBLE["double"])) * size


@wp.func
def tangent_residual(
    m: int, i: int, A: wp.array2d(dtype=Any), b: wp.array2d(dtype=Any), lam: wp.array2d(dtype=Any), w: int
):  # fmt: skip
    """Return rows i and i+1 of A lam + b."""
    first = b[i, w] + dot_rows(A, i * m, lam, 0, m, w)
    return wp.vector(first, b[i + 1, w] + dot_rows(A, (i + 1) * m, lam, 0, m, w))


@wp.func
def bound_side(tangent: Any, limit: Any, r: Any):
    """Return on which side one tangent row of a pyramid is at its bound, 1 or -1, or 0 if it is held."""
    side = limit - limit
    if wp.abs(tangent) >= limit - slack(limit):
        # at a limit of zero the residual tells where the impulse would go
        side = wp.sign(tangent)
        if tangent == limit - limit:
            side = -wp.sign(r)
    return side


@wp.func
def sliding_direction(cone: int, tangent: Any, limit: Any, r: Any):
    """Return the direction e of a tangential impulse at its limit, lam_t = limit e; zero where it sticks: eq. (10)."""
    e = r - r
    if cone:
        length = wp.length(tangent)
        if length >= limit - slack(limit):
            e = tangent / length
            if length == limit - limit:
                e = -wp.normalize(r)
    else:
        e = wp.vector(bound_side(tangent[0], limit, r[0]), bound_side(tangent[1], limit, r[1]))
    return e


@wp.func
def contact_direction(
    c: int, m: int, cone: int, A: wp.array2d(dtype=Any), b: wp.array2d(dtype=Any), mu: wp.array2d(dtype=Any),
    lam: wp.array2d(dtype=Any), w: int,
):  # fmt: skip
    """Return the sliding direction of the closed contact c, and the residual of its tangent rows if it slides."""
    t = 3 * c + 1
    tangent = wp.vector(lam[t, w], lam[t + 1, w])
    limit = mu[c, w] * lam[t - 1, w]
    size = wp.max(wp.abs(tangent[0]), wp.abs(tangent[1]))
    if cone:
        size = wp.length(tangent)
    r = tangent - tangent
    # a dot with all impulses, which contacts that stick do without
    if size >= limit - slack(limit):
        r = tangent_residual(m, t, A, b, lam, w)
    e = sliding_direction(cone, tangent, limit, r)
    return e, r


@wp.func
def add_unknown(
    count: int, m: int, row: int, trial: Any, test_second: Any, diagonal: Any, adj_lam: wp.array2d(dtype=Any), w: int,
    work: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write unknown number `count`, whose columns start at `row`, and its right-hand side; return the next number."""
    at = m * m + count * UNKNOWN_ROWS
    work[at + ROW, w] = work.dtype(row)
    work[at + TEST_SECOND, w] = test_second
    work[at + DIAGONAL, w] = diagonal
    right = work.dtype(0.0)
    for k in range(3):
        work[at + TRIAL + k, w] = trial[k]
        if trial[k] != work.dtype(0.0):
            right += trial[k] * adj_lam[row + k, w]
    work[m * (m + UNKNOWN_ROWS) + count, w] = right
    return count + 1


@wp.func
def add_contact_unknowns(
    count: int, c: int, m: int, cone: int, A: wp.array2d(dtype=Any), b: wp.array2d(dtype=Any),
    mu: wp.array2d(dtype=Any), lam: wp.array2d(dtype=Any), adj_lam: wp.array2d(dtype=Any), w: int,
    work: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the unknowns of the closed contact c; return the next number."""
    i = 3 * c
    zero = A.dtype(0.0)
    one = A.dtype(1.0)
    e, r = contact_direction(c, m, cone, A, b, mu, lam, w)
    friction = mu[c, w]
    limit = friction * lam[i, w]
    slides = wp.dot(e, e) > zero
    # eq. (11)
    number = add_unknown(count, m, i, wp.vector(one, friction * e[0], friction * e[1]), zero, zero, adj_lam, w, work)
    if limit > zero:
        if cone and slides:
            # eq. (12)
            across = wp.vector(-e[1], e[0], zero)
            number = add_unknown(number, m, i + 1, across, e[0], wp.length(r) / limit, adj_lam, w, work)
        else:
            for k in range(2):
                if e[k] == zero:
                    number = add_unknown(number, m, i + 1 + k, wp.vector(one, zero, zero), zero, zero, adj_lam, w, work)
    return number


@wp.func
def add_unknowns(
    nc: int, ns: int, cone: int, A: wp.array2d(dtype=Any), b: wp.array2d(dtype=Any), mu: wp.array2d(dtype=Any),
    lower: wp.array2d(dtype=Any), upper: wp.array2d(dtype=Any), lam: wp.array2d(dtype=Any),
    adj_lam: wp.array2d(dtype=Any), w: int, work: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write an unknown for each row that is held; return how many there are."""
    m = 3 * nc + ns
    zero = A.dtype(0.0)
    count = int(0)
    for c in range(nc):
        if lam[3 * c, w] > zero:
            count = add_contact_unknowns(count, c, m, cone, A, b, mu, lam, adj_lam, w, work)
    for s in range(ns):
        i = 3 * nc + s
        if lam[i, w] > lower[s, w] and lam[i, w] < upper[s, w]:
            count = add_unknown(count, m, i, wp.vector(A.dtype(1.0), zero, zero), zero, zero, adj_lam, w, work)
    return count


@wp.func
def trial_product(A: wp.array2d(dtype=Any), i: int, trial: Any, w: int):
    """Return the product of a trial column with A from entry i on."""
    value = trial[0] * A[i, w]
    if trial[1] != trial.dtype(0.0):
        value += trial[1] * A[i + 1, w]
    if trial[2] != trial.dtype(0.0):
        value += trial[2] * A[i + 2, w]
    return value


@wp.func
def assemble(
    start: int, count: int, m: int, transposed: bool, A: wp.array2d(dtype=Any), w: int, work: wp.array2d(dtype=Any)
):  # fmt: skip
    """Write R^T A E + D of `count` unknowns from `start` on, or its transpose, to the first rows of work: eq. (13)."""
    first_at = m * m + start * UNKNOWN_ROWS
    for column in range(count):
        at = first_at + column * UNKNOWN_ROWS
        row = int(work[at + ROW, w])
        first = work[at + TRIAL, w]
        second = work[at + TEST_SECOND, w]
        for k in range(count):
            trial_at = first_at + k * UNKNOWN_ROWS
            trial = wp.vector(work[trial_at + TRIAL, w], work[trial_at + TRIAL + 1, w], work[trial_at + TRIAL + 2, w])
            i = row * m + int(work[trial_at + ROW, w])
            value = first * trial_product(A, i, trial, w)
            if second != A.dtype(0.0):
                value += second * trial_product(A, i + m, trial, w)
            if k == column:
                value += work[at + DIAGONAL, w]
            if transposed:
                work[k * count + column, w] = value
            else:
                work[column * count + k, w] = value


@wp.func
def swap_rows(n: int, i: int, j: int, w: int, work: wp.array2d(dtype=Any)):
    """Exchange n rows of work from row i on with those from row j on."""
    for k in range(n):
        kept = work[i + k, w]
        work[i + k, w] = work[j + k, w]
        work[j + k, w] = kept


@wp.func
def solve_large(n: int, right: int, equation: int, w: int, work: wp.array2d(dtype=Any)):
    """Solve in place by elimination with partial pivoting.

    Columns that depend on those before get zeros, and as many equations are left out.
    """
    rank = int(0)
    for j in range(n):
        pivot = int(rank)
        largest = wp.abs(work[rank * n + j, w])
        for i in range(rank + 1, n):
            size = wp.abs(work[i * n + j, w])
            if size > largest:
                largest = size
                pivot = i
        above = work.dtype(0.0)
        for i in range(rank):
            above += wp.abs(work[i * n + j, w])
        work[equation + j, w] = work.dtype(-1.0)
        if not largest <= negligible(above):
            if pivot != rank:
                swap_rows(n - j, rank * n + j, pivot * n + j, w, work)
                swap_rows(1, right + rank, right + pivot, w, work)
            for i in range(rank + 1, n):
                factor = -work[i * n + j, w] / work[rank * n + j, w]
                if factor != work.dtype(0.0):
                    add_multiple(work, i * n + j + 1, factor, work, rank * n + j + 1, n - 1 - j, w)
                    work[right + i, w] += factor * work[right + rank, w]
            work[equation + j, w] = work.dtype(rank)
            rank += 1
    for backwards in range(n):
        j = n - 1 - backwards
        row = int(work[equation + j, w])
        value = work.dtype(0.0)
        if row >= 0:
            known = dot_rows(work, row * n + j + 1, work, right + j + 1, backwards, w)
            value = (work[right + row, w] - known) / work[row * n + j, w]
        work[right + j, w] = value


@wp.func
def solve_in_place(n: int, right: int, equation: int, w: int, work: wp.array2d(dtype=Any)):
    """Solve the n by n system in the first rows of work; the solution takes the place of the right-hand side.

    A large system notes in n rows from `equation` on by which equation each unknown was eliminated.
    """
    if n <= SMALL:
        solve_small(n, right, w, work)
    else:
        solve_large(n, right, equation, w, work)


@wp.func
def gather_island(start: int, count: int, m: int, island: int, w: int, work: wp.array2d(dtype=Any)):
    """Bring the unknowns of the island of unknown `start` next to it, of `count` in all; return how many there are."""
    right = m * (m + UNKNOWN_ROWS)
    first_at = m * m + start * UNKNOWN_ROWS
    here = work[island + int(work[first_at + ROW, w]), w]
    gathered = int(1)
    for k in range(start + 1, count):
        at = m * m + k * UNKNOWN_ROWS
        if work[island + int(work[at + ROW, w]), w] == here:
            if k > start + gathered:
                swap_rows(UNKNOWN_ROWS, first_at + gathered * UNKNOWN_ROWS, at, w, work)
                swap_rows(1, right + start + gathered, right + k, w, work)
            gathered += 1
    return gathered


@wp.func
def solve_unknowns(
    nc: int, count: int, m: int, transposed: bool, A: wp.array2d(dtype=Any), w: int, work: wp.array2d(dtype=Any)
):  # fmt: skip
    """Solve R^T A E + D, or its transpose, for all unknowns; the solution takes the place of the right-hand side.

    Where there are many, those of islands that A does not couple are solved for one island after the other, and the
    unknowns put in that order.
    """
    right = m * (m + UNKNOWN_ROWS)
    equation = right + m
    island = equation + m
    if count > SMALL:
        find_islands(nc, m, A, w, work, island)
    solved = int(0)
    while solved < count:
        size = int(count)
        if count > SMALL:
            size = gather_island(solved, count, m, island, w, work)
        assemble(solved, size, m, transposed, A, w, work)
        solve_in_place(size, right + solved, equation, w, work)
        solved += size


@wp.func
def has_bounded_rows(p: Problem, w: int, x: wp.array2d(dtype=Any)):
    """Tell whether any closed contact slides, or any other row is at a bound."""
    A = rows_from(x, p.A)
    b = rows_from(x, p.b)
    mu = rows_from(x, p.mu)
    lam = rows_from(x, p.lam)
    m = 3 * p.nc + p.ns
    found = bool(False)
    for c in range(p.nc):
        if not found and lam[3 * c, w] > x.dtype(0.0):
            e, r = contact_direction(c, m, p.cone, A, b, mu, lam, w)
            found = wp.dot(e, e) > x.dtype(0.0)
    for s in range(p.ns):
        i = 3 * p.nc + s
        if lam[i, w] >= x[p.upper + s, w] or lam[i, w] <= x[p.lower + s, w]:
            found = True
    return found


@wp.func
def bounds_vjp(p: Problem, w: int, x: wp.array2d(dtype=Any)):
    """Write the cotangents of friction coefficients and bounds: eqs. (15) and (16)."""
    A = rows_from(x, p.A)
    b = rows_from(x, p.b)
    mu = rows_from(x, p.mu)
    lower = rows_from(x, p.lower)
    upper = rows_from(x, p.upper)
    lam = rows_from(x, p.lam)
    multiplier = rows_from(x, p.multiplier)
    rho = rows_from(x, p.work)
    m = 3 * p.nc + p.ns
    zero = x.dtype(0.0)
    # rho = adj_lam - A^T multiplier, if there is any row at a bound
    bounded = has_bounded_rows(p, w, x)
    if bounded:
        for i in range(m):
            rho[i, w] = x[p.adj_lam + i, w]
        for i in range(m):
            if multiplier[i, w] != zero:
                add_multiple(rho, 0, -multiplier[i, w], A, i * m, m, w)
    for c in range(p.nc):
        i = 3 * c
        adj_mu = zero
        if bounded and lam[i, w] > zero:
            e, r = contact_direction(c, m, p.cone, A, b, mu, lam, w)
            adj_mu = lam[i, w] * wp.dot(e, wp.vector(rho[i + 1, w], rho[i + 2, w]))
        x[p.adj_mu + c, w] = adj_mu
    for s in range(p.ns):
        i = 3 * p.nc + s
        above = lam[i, w] >= upper[s, w]
        below = lam[i, w] <= lower[s, w]
        if above and below:
            # no room between the bounds: the residual tells which of them stops the impulse
            above = b[i, w] + dot_rows(A, i * m, lam, 0, m, w) <= zero
            below = not above
        x[p.adj_upper + s, w] = wp.where(above, rho[i, w], zero)
        x[p.adj_lower + s, w] = wp.where(below, rho[i, w], zero)


@wp.func
def implicit_vjp(p: Problem, w: int, x: wp.array2d(dtype=Any)):
    """Write the multiplier, from which adj_b = -multiplier and adj_A = -multiplier lam^T, and what mu and bounds get.

    `lam` is the solution.
    """
    A = rows_from(x, p.A)
    multiplier = rows_from(x, p.multiplier)
    work = rows_from(x, p.work)
    m = 3 * p.nc + p.ns
    zero = x.dtype(0.0)
    count = add_unknowns(
        p.nc, p.ns, p.cone, A, rows_from(x, p.b), rows_from(x, p.mu), rows_from(x, p.lower), rows_from(x, p.upper),
        rows_from(x, p.lam), rows_from(x, p.adj_lam), w, work,
    )  # fmt: skip
    solve_unknowns(p.nc, count, m, True, A, w, work)
    right = m * (m + UNKNOWN_ROWS)
    # eq. (14)
    for i in range(m):
        multiplier[i, w] = zero
    for k in range(count):
        at = m * m + k * UNKNOWN_ROWS
        i = int(work[at + ROW, w])
        multiplier[i, w] += work[at + TRIAL, w] * work[right + k, w]
        second = work[at + TEST_SECOND, w]
        if second != zero:
            multiplier[i + 1, w] += second * work[right + k, w]
    bounds_vjp(p, w, x)
