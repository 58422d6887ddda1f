"""Rows on a kink, and the side of it that they are taken to be on (docs/derivations/kinks.md).

The implicit adjoint reads the case of each row off the impulses. A tied row, one that stands between two cases, is put
into either by impulses that differ from the solution by no more than the width of a tie: `cases`, a copy for the
adjoint to read. `ties` are the numbers of such rows: 3c for the touch of contact c, 3c+1 for its friction, 3 nc + s for
scalar s.
"""

from typing import Any

import warp as wp

from pullback.rigid.solvers.implicit_kernels import slack, tangent_residual
from pullback.rigid.solvers.rows_kernels import dot_rows

# runs of m rows of work: the impulses that cases are read off, the rows that are tied, and for each of these whether it
# is held, whether the first way held it, and whether its kink is convex; then the lengths of the best gradient, of this
# way and of the first; then the number of turns, and whether this one changed something
TIES = wp.constant(1)
HELD = wp.constant(2)
FIRST = wp.constant(3)
CONVEX = wp.constant(4)
LENGTHS = wp.constant(5)


def side_rows(m: int) -> int:
    """Return the rows of work that the choice of sides needs for m rows."""
    return int(LENGTHS) * m + 6


@wp.func
def inside(bound: wp.float32):
    """Return how far within a bound to put an impulse that is held."""
    return slack(bound) + wp.float32(1e-12)


@wp.func
def inside(bound: wp.float64):  # noqa: F811
    """Return how far within a bound to put an impulse that is held."""
    return slack(bound) + wp.float64(1e-12)


@wp.func
def is_low(value: Any, lower: Any, upper: Any):
    """Tell whether an impulse is nearer to its lower bound."""
    return value - lower < upper - value


@wp.func
def contact_tie(
    c: int, m: int, cone: int, width: Any, A: wp.array2d(dtype=Any), b: wp.array2d(dtype=Any),
    lam: wp.array2d(dtype=Any), w: int, mu: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return the row in which contact c is tied, its touch or its friction, or -1: eq. (6)."""
    i = 3 * c
    zero = A.dtype(0.0)
    row = int(-1)
    limit = mu[c, w] * lam[i, w]
    length = wp.sqrt(lam[i + 1, w] * lam[i + 1, w] + lam[i + 2, w] * lam[i + 2, w])
    inverse_mass = A.dtype(0.5) * (A[(i + 1) * (m + 1), w] + A[(i + 2) * (m + 1), w])
    touches = A[i * (m + 1), w] * lam[i, w] <= width
    slides = cone == 1 and limit > zero and length > zero and inverse_mass * (limit - length) <= width
    slow = bool(False)
    r = wp.vector(zero, zero)
    # a dot with all impulses, which most contacts do without
    if touches or slides:
        r = tangent_residual(m, i + 1, A, b, lam, w)
        slow = wp.length(r) <= width
    if touches:
        if wp.abs(b[i, w] + dot_rows(A, i * m, lam, 0, m, w)) <= width:
            row = i
            if cone == 0:
                slow = wp.min(wp.abs(r[0]), wp.abs(r[1])) <= width
            # the apex of the cone: friction has no direction, and is left out
            if slow:
                mu[c, w] = zero
    if slides and slow and row < 0:
        row = i + 1
    return row


@wp.func
def find_ties(
    nc: int, ns: int, cone: int, width: Any, A: wp.array2d(dtype=Any), b: wp.array2d(dtype=Any),
    lower: wp.array2d(dtype=Any), upper: wp.array2d(dtype=Any), lam: wp.array2d(dtype=Any), w: int,
    mu: wp.array2d(dtype=Any), ties: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the rows that are tied; return how many there are."""
    m = 3 * nc + ns
    count = int(0)
    for c in range(nc):
        row = contact_tie(c, m, cone, width, A, b, lam, w, mu)
        if row >= 0:
            ties[count, w] = A.dtype(row)
            count += 1
    for s in range(ns):
        i = 3 * nc + s
        inverse_mass = A[i * (m + 1), w]
        below = inverse_mass * (lam[i, w] - lower[s, w]) <= width
        above = inverse_mass * (upper[s, w] - lam[i, w]) <= width
        # without room between the bounds there is nothing to hold
        if below != above:
            if wp.abs(b[i, w] + dot_rows(A, i * m, lam, 0, m, w)) <= width:
                ties[count, w] = A.dtype(i)
                count += 1
    return count


@wp.func
def let_go(
    nc: int, row: int, mu: wp.array2d(dtype=Any), lower: wp.array2d(dtype=Any), upper: wp.array2d(dtype=Any), w: int,
    cases: wp.array2d(dtype=Any),
):  # fmt: skip
    """Put a tied row onto the side on which it gives way."""
    if row >= 3 * nc:
        s = row - 3 * nc
        cases[row, w] = wp.where(is_low(cases[row, w], lower[s, w], upper[s, w]), lower[s, w], upper[s, w])
    elif row % 3 == 0:
        for k in range(3):
            cases[row + k, w] = cases.dtype(0.0)
    else:
        length = wp.sqrt(cases[row, w] * cases[row, w] + cases[row + 1, w] * cases[row + 1, w])
        factor = mu[row // 3, w] * cases[row - 1, w] / length
        for k in range(2):
            cases[row + k, w] = cases[row + k, w] * factor


@wp.func
def hold(
    nc: int, ns: int, row: int, cone: int, A: wp.array2d(dtype=Any), b: wp.array2d(dtype=Any),
    mu: wp.array2d(dtype=Any), lower: wp.array2d(dtype=Any), upper: wp.array2d(dtype=Any), lam: wp.array2d(dtype=Any),
    w: int, cases: wp.array2d(dtype=Any),
):  # fmt: skip
    """Put a tied row that was let go onto the side on which it holds."""
    if row >= 3 * nc:
        s = row - 3 * nc
        shift = inside(wp.abs(cases[row, w]))
        if not is_low(cases[row, w], lower[s, w], upper[s, w]):
            shift = -shift
        cases[row, w] = cases[row, w] + shift
    elif row % 3 == 0:
        normal = wp.max(lam[row, w], inside(A.dtype(0.0)))
        cases[row, w] = normal
        # it slides against the velocity that it has
        r = tangent_residual(3 * nc + ns, row + 1, A, b, lam, w)
        e = -wp.normalize(r)
        if cone == 0:
            e = -wp.vector(wp.sign(r[0]), wp.sign(r[1]))
        for k in range(2):
            cases[row + 1 + k, w] = mu[row // 3, w] * normal * e[k]
    else:
        for k in range(2):
            cases[row + k, w] = cases[row + k, w] * (A.dtype(1.0) - slack(A.dtype(4.0)))


@wp.func
def is_convex(
    nc: int, row: int, lower: wp.array2d(dtype=Any), upper: wp.array2d(dtype=Any), w: int,
    cases: wp.array2d(dtype=Any), kappa: wp.array2d(dtype=Any),
):  # fmt: skip
    """Tell whether the kink of a row that holds bends the loss upwards, by the multiplier: eq. (5)."""
    bend = kappa[row, w]
    if row >= 3 * nc:
        s = row - 3 * nc
        if not is_low(cases[row, w], lower[s, w], upper[s, w]):
            bend = -bend
    elif row % 3 == 1:
        bend = -(cases[row, w] * kappa[row, w] + cases[row + 1, w] * kappa[row + 1, w])
    return bend > kappa.dtype(0.0)


@wp.func
def is_better(convex: bool, length: Any, best: Any):
    """Tell whether to take a gradient: the longer of a concave kink, the shorter of a convex one, eq. (4).

    Where controls do not tell, the velocity does.
    """
    difference = length[0] - best[0]
    if wp.abs(difference) <= slack(length[0] + best[0]):
        difference = length[1] - best[1]
    if convex:
        difference = -difference
    return difference > length.dtype(0.0)
