"""The leaves of a field: value, gradient, and their derivatives along a direction (docs/derivations/sdf.md).

Each leaf returns, for a point y and a direction u of its own frame, phi, g = grad phi, H u, and the derivatives by its
four sizes of phi and of g·u.
"""

from typing import Any

import warp as wp

from pullback.sdf.fields import FRAME, GRID, HALFSPACE, HEIGHTS, LATTICE, REVOLVED, Fields


@wp.func
def beyond(x: Any, half: Any):
    """Return 1 where x = |y| - half is above zero, or is so at every other y, as where a side has no length; else 0."""
    zero = x - x
    return wp.where(x > zero or half == zero, zero + type(x)(1.0), zero)


@wp.func
def sign_of(x: Any):
    """Return -1 or 1; zero counts as positive."""
    return wp.where(x < x - x, type(x)(-1.0), type(x)(1.0))


@wp.func
def core_leaf(kind: int, size: Any, y: Any, u: Any):
    """Distance from a box, or from a rectangle turned about z, less a radius, eqs. (1) to (4)."""
    zero = y.dtype(0.0)
    one = y.dtype(1.0)
    # the point and the direction in the space of the box
    c = y
    d = u
    out = wp.vector(one, zero, zero)
    inverse = zero
    if kind == REVOLVED:
        rho = wp.sqrt(y[0] * y[0] + y[1] * y[1])
        if rho > zero:
            inverse = one / rho
            out = wp.vector(y[0] * inverse, y[1] * inverse, zero)
        c = wp.vector(rho - size[1], zero, y[2])
        d = wp.vector(wp.dot(out, u), zero, u[2])
    s = wp.vector(sign_of(c[0]), sign_of(c[1]), sign_of(c[2]))
    q = wp.cw_mul(s, c) - wp.vector(size[0], size[1], size[2])
    if kind == REVOLVED:
        q = wp.vector(q[0], wp.min(q[0], q[2]), q[2])
    free = wp.vector(beyond(q[0], size[0]), beyond(q[1], size[1]), beyond(q[2], size[2]))
    if kind == REVOLVED:
        free = wp.vector(free[0], zero, free[2])
    m = wp.cw_mul(free, q)
    distance = wp.length(m)
    n = y - y
    curved = y - y
    if distance > zero:
        n = wp.cw_mul(s, m) / distance
        curved = (wp.cw_mul(free, d) - wp.dot(n, d) * n) / distance
    else:
        # inside: the nearest face
        if q[0] >= q[1] and q[0] >= q[2]:
            n = wp.vector(s[0], zero, zero)
            distance = q[0]
        elif q[2] >= q[1]:
            n = wp.vector(zero, zero, s[2])
            distance = q[2]
        else:
            n = wp.vector(zero, s[1], zero)
            distance = q[1]
    by_size = wp.vector(-s[0] * n[0], -s[1] * n[1], -s[2] * n[2], -one)
    by_size_along = wp.vector(-s[0] * curved[0], -s[1] * curved[1], -s[2] * curved[2], zero)
    g = n
    Hu = curved
    if kind == REVOLVED:
        by_size = wp.vector(by_size[0], -n[0], by_size[2], -one)
        by_size_along = wp.vector(by_size_along[0], -curved[0], by_size_along[2], zero)
        up = wp.vector(zero, zero, one)
        g = n[0] * out + n[2] * up
        Hu = curved[0] * out + curved[2] * up + (n[0] * inverse) * (u - d[0] * out - u[2] * up)
    return distance - size[3], g, Hu, by_size, by_size_along


@wp.func
def spline_weights(t: Any):
    """Return the four uniform cubic B-splines at the fraction t of a cell, eq. (8)."""
    r = type(t)(1.0) - t
    sixth = type(t)(1.0) / type(t)(6.0)
    four = type(t)(4.0)
    three = type(t)(3.0)
    six = type(t)(6.0)
    return wp.vector(
        r * r * r * sixth,
        (four - six * t * t + three * t * t * t) * sixth,
        (four - six * r * r + three * r * r * r) * sixth,
        t * t * t * sixth,
    )


@wp.func
def spline_slopes(t: Any):
    """Return the derivatives of the B-splines by t."""
    r = type(t)(1.0) - t
    half = type(t)(0.5)
    x = type(t)(1.5)
    two = type(t)(2.0)
    return wp.vector(-half * r * r, (x * t - two) * t, (two - x * r) * r, half * t * t)


@wp.func
def spline_bends(t: Any):
    """Return the second derivatives of the B-splines by t."""
    r = type(t)(1.0) - t
    three = type(t)(3.0)
    two = type(t)(2.0)
    return wp.vector(r, three * t - two, three * r - two, t)


@wp.func
def cell_of(x: Any, n: int):
    """Return the cell that x, in spacings from the first of n samples, lies in."""
    return wp.clamp(int(wp.floor(x)), 0, wp.max(n - 2, 0))


@wp.func
def spline(fields: Fields, grid: int, x: Any, u: Any):
    """Return value, gradient and H u of a grid's spline at a point x of its box, eqs. (8) and (9)."""
    zero = x.dtype(0.0)
    nx = fields.lattice[grid * LATTICE]
    ny = fields.lattice[grid * LATTICE + 1]
    nz = fields.lattice[grid * LATTICE + 2]
    start = fields.lattice[grid * LATTICE + 3]
    per = wp.vector(
        x.dtype(1.0) / x.dtype(fields.frame[grid * FRAME + 3]),
        x.dtype(1.0) / x.dtype(fields.frame[grid * FRAME + 4]),
        x.dtype(1.0) / x.dtype(fields.frame[grid * FRAME + 5]),
    )
    origin = wp.vector(
        x.dtype(fields.frame[grid * FRAME]),
        x.dtype(fields.frame[grid * FRAME + 1]),
        x.dtype(fields.frame[grid * FRAME + 2]),
    )
    at = wp.cw_mul(x - origin, per)
    d = wp.cw_mul(u, per)
    i = cell_of(at[0], nx)
    j = cell_of(at[1], ny)
    k = cell_of(at[2], nz)
    tx = at[0] - x.dtype(i)
    ty = at[1] - x.dtype(j)
    tz = at[2] - x.dtype(k)
    ax = spline_weights(tx)
    bx = spline_slopes(tx)
    cx = spline_bends(tx)
    ay = spline_weights(ty)
    by = spline_slopes(ty)
    cy = spline_bends(ty)
    az = spline_weights(tz)
    bz = spline_slopes(tz)
    cz = spline_bends(tz)
    layers = wp.min(nz + 2, 4)
    rows = ny + 2
    columns = nz + 2
    if nz == 1:
        # heights: one layer, the same for all z
        layers = int(1)
        columns = int(1)
        az = wp.vector(x.dtype(1.0), zero, zero, zero)
        bz = az - az
        cz = az - az
    # four, but not to the compiler, which would write out all 64 terms
    width = wp.min(nx + 2, 4)
    value = zero
    g = x - x
    Hd = x - x
    for a in range(width):
        for b in range(width):
            row = start + ((i + a) * rows + j + b) * columns + k
            s0 = zero
            s1 = zero
            s2 = zero
            for c in range(layers):
                coefficient = x.dtype(fields.coefficients[row + c])
                s0 += coefficient * az[c]
                s1 += coefficient * bz[c]
                s2 += coefficient * cz[c]
            value += ax[a] * ay[b] * s0
            gx = bx[a] * ay[b]
            gy = ax[a] * by[b]
            flat = ax[a] * ay[b]
            g += wp.vector(gx * s0, gy * s0, flat * s1)
            xy = bx[a] * by[b] * s0
            Hd += wp.vector(
                cx[a] * ay[b] * s0 * d[0] + xy * d[1] + gx * s1 * d[2],
                xy * d[0] + ax[a] * cy[b] * s0 * d[1] + gy * s1 * d[2],
                gx * s1 * d[0] + gy * s1 * d[1] + flat * s2 * d[2],
            )
    return value, wp.cw_mul(g, per), wp.cw_mul(Hd, per)


@wp.func
def far_side(fields: Fields, grid: int, axis: int, like: Any):
    """Return where a grid's box begins and ends along an axis."""
    low = like.dtype(fields.frame[grid * FRAME + axis])
    steps = like.dtype(fields.lattice[grid * LATTICE + axis] - 1)
    return low, low + steps * like.dtype(fields.frame[grid * FRAME + 3 + axis])


@wp.func
def spline_leaf(fields: Fields, kind: int, grid: int, size: Any, y: Any, u: Any):
    """Value of a sampled distance, or height above a height field, eqs. (10) and (11)."""
    zero = y.dtype(0.0)
    one = y.dtype(1.0)
    x = y
    if kind == GRID:
        x = y / size[0]
    x0, x1 = far_side(fields, grid, 0, y)
    y0, y1 = far_side(fields, grid, 1, y)
    z0, z1 = far_side(fields, grid, 2, y)
    inside = wp.vector(wp.clamp(x[0], x0, x1), wp.clamp(x[1], y0, y1), wp.clamp(x[2], z0, z1))
    away = x - inside
    free = wp.vector(
        wp.where(away[0] == zero, one, zero), wp.where(away[1] == zero, one, zero), wp.where(away[2] == zero, one, zero)
    )
    value, g, Hu = spline(fields, grid, inside, wp.cw_mul(free, u))
    g = wp.cw_mul(free, g)
    Hu = wp.cw_mul(free, Hu)
    by_size = zero
    by_size_along = zero
    if kind == GRID:
        # beyond the box: the distance from it on top
        distance = wp.length(away)
        if distance > zero:
            n = away / distance
            stuck = u - wp.cw_mul(free, u)
            value += distance
            g += n
            Hu += (stuck - wp.dot(n, u) * n) / distance
        by_size = value - wp.dot(g, x)
        by_size_along = -wp.dot(Hu, x) / size[0]
        value = size[0] * value
        Hu = Hu / size[0]
    else:
        by_size = -value
        by_size_along = -wp.dot(g, u)
        value = y[2] - size[0] * value
        g = wp.vector(-size[0] * g[0], -size[0] * g[1], one)
        Hu = -size[0] * Hu
    return (
        value, g, Hu,
        wp.vector(by_size, zero, zero, zero),
        wp.vector(by_size_along, zero, zero, zero),
    )  # fmt: skip


@wp.func
def leaf(fields: Fields, kind: int, grid: int, size: Any, y: Any, u: Any):
    """Return phi, its gradient g, H u, and the derivatives of phi and of g·u by the sizes."""
    zero = y.dtype(0.0)
    value = y[2]
    g = wp.vector(zero, zero, y.dtype(1.0))
    Hu = y - y
    by_size = size - size
    by_size_along = size - size
    if kind < HALFSPACE:
        value, g, Hu, by_size, by_size_along = core_leaf(kind, size, y, u)
    elif kind == GRID or kind == HEIGHTS:
        value, g, Hu, by_size, by_size_along = spline_leaf(fields, kind, grid, size, y, u)
    return value, g, Hu, by_size, by_size_along
