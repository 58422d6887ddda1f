"""An exact solver of contact problems: Newton's method, and a curve to the solution (docs/derivations/exact_solver.md).

The problem is that of problem.py. A solution is a zero at eps = 0 of

    G(lam, eps) = a (lam - P(x)),    x = (1 - kappa) lam - r / a                                        (7)

a the diagonal of A, P a smoothed projection onto the bounds (smooth_kernels.py). Newton's method at eps = 0 comes
first: a landing. Where it does not converge, the curve G(lam, eps) = 0 is followed from a soft, smooth problem towards
eps = 0, by its arc length, so that it may turn back on its way; landings are tried from points of it.

Work: the bordered system, m+1 rows of m+3: dG/dlam, dG/dsigma, two right-hand sides. Then, m rows each, the impulses it
started from, those of the last point of the curve, their scales, the projected impulses, and the tangent, m+1.
"""

from typing import Any

import warp as wp

from pullback.rigid.solvers.accuracy_kernels import allowed_residual, proximal, rounding
from pullback.rigid.solvers.problem import Problem
from pullback.rigid.solvers.rows_kernels import add_multiple, dot_rows
from pullback.rigid.solvers.smooth_kernels import (
    eliminate,
    projected_contact,
    projected_scalar,
    scalar_start,
    set_multiple,
)
from pullback.spatial.arrays import rows_from

LANDING_STEPS = wp.constant(8)
WARM_STEPS = wp.constant(8)
COLD_STEPS = wp.constant(25)
ATTEMPTS = wp.constant(6)  # curves: one from the impulses given, five from large eps, of these the last four with care
EXACT_STEPS = wp.constant(600)

CONTINUE = wp.constant(0)
PREDICT = wp.constant(1)
ACCEPT = wp.constant(2)
RESTART = wp.constant(3)


def exact_rows(m: int) -> int:
    """Return the rows of work that `exact_solve` needs for m rows."""
    return (m + 1) * (m + 3) + 5 * m + 1


@wp.func
def contact_size(cone: int, m: int, i: int, A: wp.array2d(dtype=Any), w: int):
    """Return the diagonal of A of the contact at row i; both tangents of a cone have their mean."""
    first = A[(i + 1) * (m + 1), w]
    second = A[(i + 2) * (m + 1), w]
    if cone:
        first = A.dtype(0.5) * (first + second)
        second = first
    return wp.vector(A[i * (m + 1), w], first, second)


@wp.func
def candidate(
    m: int, i: int, keep: Any, size: Any, A: wp.array2d(dtype=Any), b: wp.array2d(dtype=Any),
    lam: wp.array2d(dtype=Any), w: int,
):  # fmt: skip
    """Return x of row i: eq. (7)."""
    return keep * lam[i, w] - (b[i, w] + dot_rows(A, i * m, lam, 0, m, w)) / size


@wp.func
def write_row(
    p: Problem, i: int, first: int, value: Any, rate: Any, keep: Any, size: Any, slopes: Any, sizes: Any, w: int,
    x: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write row i of the system, eq. (9), for slopes dP_i/dx of up to three rows from `first` on; return |G_i|."""
    A = rows_from(x, p.A)
    lam = rows_from(x, p.lam)
    work = rows_from(x, p.work)
    m = 3 * p.nc + p.ns
    at = i * (m + 3)
    zero = A.dtype(0.0)
    set_multiple(work, at, size * slopes[0] / sizes[0], A, first * m, m, w)
    softened = slopes[0] * lam[first, w]
    work[at + first, w] -= keep * size * slopes[0]
    for k in range(1, 3):
        if slopes[k] != zero:
            add_multiple(work, at, size * slopes[k] / sizes[k], A, (first + k) * m, m, w)
            softened += slopes[k] * lam[first + k, w]
            work[at + first + k, w] -= keep * size * slopes[k]
    work[at + i, w] += size + proximal(size)
    G = size * (lam[i, w] - value)
    work[at + m, w] = size * ((A.dtype(1.0) - keep) * softened - rate)
    work[at + m + 1, w] = -G
    work[at + m + 2, w] = zero
    return wp.abs(G)


@wp.func
def larger(x: Any, y: Any):
    """Return the larger one, or what is not a number."""
    return wp.where(x >= y or x != x, x, y)


@wp.func
def unevenness(i: int, attempt: int, eps: Any):
    """Return a factor around one for the width of row i: no two alike, so that no curve forks by symmetry."""
    turns = type(eps)(0.618034) * type(eps)((i + 1) * attempt)
    return type(eps)(1.0) + type(eps)(0.5) * (turns - wp.floor(turns))


@wp.func
def linearize(
    p: Problem, attempt: int, eps: Any, phase: Any, soft: Any, projected: int, w: int, x: wp.array2d(dtype=Any)
):
    """Write G, its derivatives and the projected impulses; return the largest |G| and the largest a |lam|."""
    A = rows_from(x, p.A)
    b = rows_from(x, p.b)
    mu = rows_from(x, p.mu)
    lower = rows_from(x, p.lower)
    upper = rows_from(x, p.upper)
    lam = rows_from(x, p.lam)
    work = rows_from(x, p.work)
    nc = p.nc
    ns = p.ns
    m = 3 * nc + ns
    zero = A.dtype(0.0)
    one = A.dtype(1.0)
    keep = one - soft
    worst = zero
    largest = zero
    for c in range(nc):
        i = 3 * c
        size = contact_size(p.cone, m, i, A, w)
        target = wp.vector(
            candidate(m, i, keep, size[0], A, b, lam, w),
            candidate(m, i + 1, keep, size[1], A, b, lam, w),
            candidate(m, i + 2, keep, size[2], A, b, lam, w),
        )
        width = eps * unevenness(c, attempt, eps)
        widths = wp.vector(width / size[0], width / size[1], width / size[2])
        # friction sets in as eps falls, eq. (8)
        friction = mu[c, w] / (one + phase)
        P, slopes, rate = projected_contact(p.cone, target, widths, friction, -friction * phase / (one + phase))
        for k in range(3):
            work[projected + i + k, w] = P[k]
            row = wp.vector(slopes[k, 0], slopes[k, 1], slopes[k, 2])
            g = write_row(p, i + k, i, P[k], rate[k], keep, size[k], row, size, w, x)
            worst = larger(worst, g)
            largest = wp.max(largest, size[k] * wp.abs(lam[i + k, w]))
    for s in range(ns):
        i = 3 * nc + s
        size_s = A[i * (m + 1), w]
        target_s = candidate(m, i, keep, size_s, A, b, lam, w)
        P_s, slope_s, rate_s = projected_scalar(
            target_s, eps * unevenness(i, attempt, eps) / size_s, lower[s, w], upper[s, w]
        )
        work[projected + i, w] = P_s
        row = wp.vector(slope_s, zero, zero)
        g = write_row(p, i, i, P_s, rate_s, keep, size_s, row, wp.vector(size_s, one, one), w, x)
        worst = larger(worst, g)
        largest = wp.max(largest, size_s * wp.abs(lam[i, w]))
    return worst, largest


@wp.func
def write_scales(
    nc: int, ns: int, eps: Any, scales: int, A: wp.array2d(dtype=Any), mu: wp.array2d(dtype=Any),
    lam: wp.array2d(dtype=Any), w: int, work: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write what counts as a change of one in each impulse: eq. (11)."""
    m = 3 * nc + ns
    for i in range(m):
        scale = wp.abs(lam[i, w])
        if i < 3 * nc and i % 3 > 0:
            scale = wp.max(scale, mu[i // 3, w] * lam[i - i % 3, w])
        work[scales + i, w] = scale + eps / A[i * (m + 1), w]


@wp.func
def cold_start(
    nc: int, ns: int, eps: Any, soft: Any, A: wp.array2d(dtype=Any), lower: wp.array2d(dtype=Any),
    upper: wp.array2d(dtype=Any), w: int, lam: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the impulses of the problem in which no row feels another: eq. (10)."""
    m = 3 * nc + ns
    inside = eps / wp.sqrt(A.dtype(1.0) + soft)
    for i in range(m):
        value = A.dtype(0.0)
        distance = inside / A[i * (m + 1), w]
        if i >= 3 * nc:
            value = scalar_start(lower[i - 3 * nc, w], upper[i - 3 * nc, w], distance)
        elif i % 3 == 0:
            value = distance
        lam[i, w] = value


@wp.func
def write_border(m: int, fixed: bool, scales: int, tangent: int, w: int, work: wp.array2d(dtype=Any)):
    """Write the last equation: the change is normal to the tangent, or eps is `fixed`: eq. (12)."""
    at = m * (m + 3)
    for i in range(m):
        work[at + i, w] = work.dtype(0.0)
        if not fixed:
            work[at + i, w] = work[tangent + i, w] / work[scales + i, w]
    work[at + m, w] = work.dtype(1.0)
    if not fixed:
        work[at + m, w] = work[tangent + m, w]
    work[at + m + 1, w] = work.dtype(0.0)
    work[at + m + 2, w] = work.dtype(1.0)


@wp.func
def largest_change(m: int, scales: int, w: int, work: wp.array2d(dtype=Any)):
    """Return the largest change of an impulse by its scale, or of sigma; not a number if the system is singular."""
    size = wp.abs(work[m * (m + 3) + m + 1, w])
    for i in range(m):
        size = larger(size, wp.abs(work[i * (m + 3) + m + 1, w]) / work[scales + i, w])
    return size


@wp.func
def write_tangent(m: int, sign: Any, scales: int, tangent: int, w: int, work: wp.array2d(dtype=Any)):
    """Write the tangent of the curve, with a largest entry of one: eq. (12)."""
    largest = wp.abs(work[m * (m + 3) + m + 2, w])
    for i in range(m):
        largest = wp.max(largest, wp.abs(work[i * (m + 3) + m + 2, w]) / work[scales + i, w])
    for i in range(m):
        work[tangent + i, w] = sign * work[i * (m + 3) + m + 2, w] / (work[scales + i, w] * largest)
    work[tangent + m, w] = sign * work[m * (m + 3) + m + 2, w] / largest


@wp.func
def speed_scale(
    m: int, A: wp.array2d(dtype=Any), b: wp.array2d(dtype=Any), lam: wp.array2d(dtype=Any), w: int
):  # fmt: skip
    """Return the largest velocity of the problem, the unit of eps."""
    speed = A.dtype(1e-12)
    for i in range(m):
        speed = wp.max(speed, wp.abs(b[i, w]))
        speed = wp.max(speed, A.dtype(1e-3) * A[i * (m + 1), w] * wp.abs(lam[i, w]))
    return speed


@wp.func
def curve_settings(attempt: int, one: Any):
    """Return eps at the start of a curve, in units of the speed, and how soft the problem is there."""
    start = type(one)(10.0)
    softness = type(one)(0.3)
    if attempt == 1:
        start = type(one)(0.01)
    elif attempt == 4:
        softness = type(one)(3.0)
    elif attempt == 5:
        start = type(one)(100.0)
        softness = type(one)(0.03)
    elif attempt == 6:
        start = type(one)(100.0)
        softness = one
    return start, softness


@wp.func
def move_along(
    m: int, factor: Any, column: int, w: int, lam: wp.array2d(dtype=Any), work: wp.array2d(dtype=Any)
):  # fmt: skip
    """Add a multiple of one of the two solutions to the impulses."""
    for i in range(m):
        lam[i, w] = lam[i, w] + factor * work[i * (m + 3) + column, w]


@wp.func(inline=False)
def exact_solve(p: Problem, tolerance: Any, limit: int, w: int, x: wp.array2d(dtype=Any)):
    """Replace lam by the solution, with |G| <= `tolerance`; return the systems solved, negative if more than `limit`.

    Where it does not converge, lam is left as it was.
    """
    A = rows_from(x, p.A)
    b = rows_from(x, p.b)
    mu = rows_from(x, p.mu)
    lower = rows_from(x, p.lower)
    upper = rows_from(x, p.upper)
    lam = rows_from(x, p.lam)
    work = rows_from(x, p.work)
    nc = p.nc
    ns = p.ns
    m = 3 * nc + ns
    zero = A.dtype(0.0)
    one = A.dtype(1.0)
    started = (m + 1) * (m + 3)
    base = started + m
    scales = base + m
    projected = scales + m
    tangent = projected + m
    speed = speed_scale(m, A, b, lam, w)
    tiny = rounding(zero)
    for i in range(m):
        work[started + i, w] = lam[i, w]
    write_scales(nc, ns, A.dtype(1e-2) * speed, scales, A, mu, lam, w, work)
    landing = bool(True)
    on_curve = bool(False)
    attempt = int(0)
    steps = int(0)
    turn = int(0)
    sigma = zero
    base_sigma = zero
    h = one
    previous = zero
    softness = A.dtype(0.3)
    start = one
    land_below = zero
    found = bool(False)
    closer = bool(False)
    least = zero
    running = bool(True)
    while running:
        eps = zero
        if not landing:
            eps = wp.exp(sigma)
        phase = eps / speed
        worst, largest = linearize(p, attempt, eps, phase, softness * phase, projected, w, x)
        if found:
            # one more step than it takes, kept if it came closer
            running = False
            closer = worst < least
        elif landing and worst <= allowed_residual(tolerance, largest):
            found = True
            least = worst
            running = steps < limit and worst > A.dtype(4.0) * tiny * largest
            for i in range(m):
                work[started + i, w] = work[projected + i, w]
        else:
            running = steps < limit
        if running:
            write_border(m, landing or not on_curve, scales, tangent, w, work)
            eliminate(m + 1, w, work)
            steps += 1
            turn += 1
            size = largest_change(m, scales, w, work)
            finite = size < A.dtype(1e30)
            event = int(CONTINUE)
            if landing:
                if found or (finite and turn <= LANDING_STEPS and (turn < 3 or size <= A.dtype(10.0) * previous)):
                    move_along(m, one, m + 1, w, lam, work)
                else:
                    landing = False
                    event = wp.where(on_curve, PREDICT, RESTART)
            elif not on_curve:
                # the first point of a curve, at its eps
                event = RESTART
                if finite and turn <= wp.where(attempt == 1, WARM_STEPS, COLD_STEPS):
                    event = CONTINUE
                    move_along(m, wp.min(one, one / size), m + 1, w, lam, work)
                    if size < A.dtype(0.05):
                        event = ACCEPT
                        h = one
                    elif size > A.dtype(0.5):
                        write_scales(nc, ns, eps, scales, A, mu, lam, w, work)
            else:
                careful = attempt > 2
                allowed = wp.where(careful, A.dtype(0.5), A.dtype(2.0))
                if turn > 1:
                    allowed = wp.where(careful, A.dtype(0.3), A.dtype(0.8)) * previous
                if size <= allowed:
                    move_along(m, one, m + 1, w, lam, work)
                    sigma += work[m * (m + 3) + m + 1, w]
                    if size < wp.where(careful, A.dtype(0.01), A.dtype(0.05)):
                        event = ACCEPT
                        if turn <= 2:
                            h = wp.min(A.dtype(2.5) * h, A.dtype(3.0))
                        elif turn > 3:
                            h = h / A.dtype(1.5)
                else:
                    h = A.dtype(0.25) * h
                    event = wp.where(h < A.dtype(1e-5), RESTART, PREDICT)
            previous = size
            if event == ACCEPT:
                eps = wp.exp(sigma)
                write_scales(nc, ns, eps, scales, A, mu, lam, w, work)
                write_tangent(m, wp.where(on_curve, one, -one), scales, tangent, w, work)
                for i in range(m):
                    work[base + i, w] = lam[i, w]
                base_sigma = sigma
                on_curve = True
                turn = 0
                event = PREDICT
                if eps < A.dtype(50.0) * tiny * speed or eps > A.dtype(2.0) * start * speed:
                    event = RESTART
                elif eps < land_below:
                    landing = True
                    event = CONTINUE
                    while land_below > eps:
                        land_below = A.dtype(0.01) * land_below
            if event == RESTART:
                attempt += 1
                running = attempt <= ATTEMPTS
                on_curve = False
                turn = 0
                start, softness = curve_settings(attempt, one)
                eps = start * speed
                sigma = wp.log(eps)
                land_below = A.dtype(0.01) * wp.min(eps, speed)
                cold_start(nc, ns, eps, softness * start, A, lower, upper, w, lam)
                for i in range(m):
                    if attempt == 1:
                        lam[i, w] = work[started + i, w]
                write_scales(nc, ns, eps, scales, A, mu, lam, w, work)
            if event == PREDICT:
                turn = 0
                for i in range(m):
                    lam[i, w] = work[base + i, w] + h * work[scales + i, w] * work[tangent + i, w]
                sigma = base_sigma + h * work[tangent + m, w]
    # projected impulses are on their bounds to the last bit
    source = wp.where(closer, projected, started)
    for i in range(m):
        lam[i, w] = work[source + i, w]
    return wp.where(found, steps, -wp.max(steps, 1))
