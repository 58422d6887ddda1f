"""Smoothed projections onto the bounds of a contact problem, and the elimination of its Newton's method.

With sigma = log e, e the width of the smoothing in units of an impulse (docs/derivations/exact_solver.md):

    plus(x) = (x + sqrt(x^2 + 4 e^2)) / 2                                    for a bound on one side    (4)
    k = 2 g / (sqrt((l + g)^2 + 4 e^2) + sqrt((l - g)^2 + 4 e^2)),  P = k x  for |P| < g, l = |x|       (5)

At e = 0 they are the projections themselves, and the derivatives are those on one side of the kink.
"""

from typing import Any

import warp as wp

from pullback.spatial.native import runs, value

_ELIMINATE = """
    {real}* a = reinterpret_cast<{real}*>(work_at);
    const size_t step = work_step / sizeof({real});
    const size_t width = n + 2;
    for (int j = 0; j < n; ++j) {{
        int pivot = j;
        for (int i = j + 1; i < n; ++i)
            if (fabs(a[(i * width + j) * step]) > fabs(a[(pivot * width + j) * step])) pivot = i;
        {real}* top = a + j * width * step;
        if (pivot != j) {{
            {real}* other = a + pivot * width * step;
            for (size_t k = j; k < width; ++k) {{
                const {real} kept = top[k * step];
                top[k * step] = other[k * step];
                other[k * step] = kept;
            }}
        }}
        const {real} inverse = 1 / top[j * step];
        for (int i = j + 1; i < n; ++i) {{
            {real}* row = a + i * width * step;
            const {real} factor = row[j * step] * inverse;
            if (factor != 0)
                for (size_t k = j + 1; k < width; ++k) row[k * step] -= factor * top[k * step];
        }}
    }}
    for (int j = n - 1; j >= 0; --j) {{
        {real}* row = a + j * width * step;
        {real} first = row[n * step], second = row[(n + 1) * step];
        for (int k = j + 1; k < n; ++k) {{
            first -= row[k * step] * a[(k * width + n) * step];
            second -= row[k * step] * a[(k * width + n + 1) * step];
        }}
        row[n * step] = first / row[j * step];
        row[(n + 1) * step] = second / row[j * step];
    }}
"""

for _real, _name in ((wp.float32, "float"), (wp.float64, "double")):
    _a = wp.array2d(dtype=_real)

    @wp.func_native(
        runs("x", "y") + f"    for (int k = 0; k < n; ++k) {value(_name, 'y')} = factor * {value(_name, 'x')};"
    )
    def set_multiple(y: _a, y_row: int, factor: _real, x: _a, x_row: int, n: int, w: int):
        """Write `factor` times n rows of x to as many of y."""

    @wp.func_native("    const int work_row = 0;" + runs("work") + _ELIMINATE.format(real=_name))
    def eliminate(n: int, w: int, work: _a):
        """Solve n equations for two right-hand sides, in the last two of the n + 2 columns, by partial pivoting."""


@wp.func
def plus(x: Any, e: Any):
    """Return the smoothed positive part, its slope, and its derivative by sigma: eq. (4)."""
    zero = type(x)(0.0)
    slope = zero
    rate = zero
    width = e + e
    root = wp.sqrt(x * x + width * width)
    if root > zero:
        rate = e * width / root
        slope = (root + x) / (root + root)
        if x < zero:
            # the same without a difference of nearly equal numbers
            slope = width * width / ((root - x) * (root + root))
    return root * slope, slope, rate


@wp.func
def shrinking(length: Any, limit: Any, e: Any):
    """Return k, eq. (5), and its derivatives by length, limit and sigma."""
    zero = type(length)(0.0)
    k = zero
    by_length = zero
    by_limit = zero
    by_sigma = zero
    width = e + e
    outer = wp.sqrt((length + limit) * (length + limit) + width * width)
    inner = wp.sqrt((length - limit) * (length - limit) + width * width)
    total = outer + inner
    if total > zero:
        k = (limit + limit) / total
        outer_slope = (length + limit) / outer
        inner_slope = zero
        spread = width * width / outer
        if inner > zero:
            inner_slope = (length - limit) / inner
            spread += width * width / inner
        bend = k / total
        by_length = -bend * (outer_slope + inner_slope)
        by_limit = type(total)(2.0) / total - bend * (outer_slope - inner_slope)
        by_sigma = -bend * spread
    return k, by_length, by_limit, by_sigma


@wp.func
def projected_contact(cone: int, x: Any, e: Any, mu: Any, mu_rate: Any):
    """Return the smoothed impulse of a contact, its derivative by x, and that by sigma: eqs. (4) to (6)."""
    zero = x[0] - x[0]
    normal, slope, normal_rate = plus(x[0], e[0])
    limit = mu * normal
    limit_rate = mu * normal_rate + mu_rate * normal
    P = wp.vector(normal, zero, zero)
    rate = wp.vector(normal_rate, zero, zero)
    slopes = wp.outer(x - x, x)
    slopes[0, 0] = slope
    for q in range(1, 3):
        length = wp.abs(x[q])
        if cone:
            length = wp.sqrt(x[1] * x[1] + x[2] * x[2])
        k, by_length, by_limit, by_sigma = shrinking(length, limit, e[q])
        P[q] = k * x[q]
        rate[q] = (by_sigma + by_limit * limit_rate) * x[q]
        slopes[q, 0] = by_limit * mu * slope * x[q]
        slopes[q, q] = k
        if length > zero:
            turn = by_length * x[q] / length
            if cone:
                slopes[q, 1] = slopes[q, 1] + turn * x[1]
                slopes[q, 2] = slopes[q, 2] + turn * x[2]
            else:
                slopes[q, q] = k + turn * x[q]
    return P, slopes, rate


@wp.func
def projected_scalar(x: Any, e: Any, lower: Any, upper: Any):
    """Return the smoothed impulse of a scalar row, its slope, and its derivative by sigma."""
    value = x
    slope = type(x)(1.0)
    rate = type(x)(0.0)
    below = wp.isfinite(lower)
    above = wp.isfinite(upper)
    if below and above:
        middle = type(x)(0.5) * (lower + upper)
        y = x - middle
        k, by_length, by_limit, by_sigma = shrinking(wp.abs(y), upper - middle, e)
        value = middle + k * y
        if e == type(x)(0.0):
            # to the last bit
            value = wp.clamp(x, lower, upper)
        slope = k + by_length * wp.abs(y)
        rate = by_sigma * y
    elif below or above:
        sign = wp.where(below, type(x)(1.0), type(x)(-1.0))
        bound = wp.where(below, lower, upper)
        inside, slope_inside, rate_inside = plus(sign * (x - bound), e)
        value = bound + sign * inside
        slope = slope_inside
        rate = sign * rate_inside
    return value, slope, rate


@wp.func
def scalar_start(lower: Any, upper: Any, distance: Any):
    """Return an impulse between two bounds, `distance` from the only finite one."""
    value = type(distance)(0.0)
    below = wp.isfinite(lower)
    above = wp.isfinite(upper)
    if below and above:
        value = type(distance)(0.5) * (lower + upper)
    elif below:
        value = lower + distance
    elif above:
        value = upper - distance
    return value
