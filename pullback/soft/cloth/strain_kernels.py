"""Strains of the four kinds of element, their derivatives and stiffness: docs/derivations/cloth.md, section 2.

Each kind has a row in `KINDS`, at the end, and functions of its vertices X (a row each) and rest numbers:

    strain     s
    slope      ds/dx_i
    second     the block (i, j) of the second derivative of sigma · s
    projected  sigma whose second derivatives are never negative
    weighted   C y, with the numbers of the material; all numbers are linear in it
    weighted_vjp  the derivatives of a · C t by those numbers
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

import warp as wp

from pullback.core.modules import kernel_module, made_once

TRIANGLE, SEGMENT, HINGE, BEND = "triangle", "segment", "hinge", "bend"


@made_once
def strain_functions(kind: str, real: Any) -> SimpleNamespace:
    """Return the functions of a kind of element, and its types."""
    row = KINDS[kind]
    types = SimpleNamespace(
        real=real,
        count=row.vertices,
        strains=row.strains,
        vec=wp.types.vector(3, real),
        mat=wp.types.matrix((3, 3), real),
        X=wp.types.matrix((row.vertices, 3), real),
        S=wp.types.vector(row.strains, real),
        G=wp.types.matrix((row.strains, 3), real),
        rest=wp.types.vector(row.rest, real),
        numbers=wp.types.vector(row.numbers, real),
        module=kernel_module(f"cloth_{kind}", real),
    )
    return SimpleNamespace(**vars(types), **row.make(types))


def _triangle(t: SimpleNamespace) -> dict[str, Any]:
    real, vec, _mat, X, S, G, rest, numbers, module = (
        t.real, t.vec, t.mat, t.X, t.S, t.G, t.rest, t.numbers, t.module
    )  # fmt: skip

    @wp.func(module=module)
    def axis(x: X, r: rest, a: int):
        """Return the column a of the deformation gradient, eq. (4)."""
        f = vec()
        for i in range(3):
            for c in range(3):
                f[c] = f[c] + r[2 * i + a] * x[i, c]
        return f

    @wp.func(module=module)
    def strain(x: X, r: rest):
        f, g = axis(x, r, 0), axis(x, r, 1)
        half = real(0.5)
        return S(half * (wp.dot(f, f) - real(1.0)), half * (wp.dot(g, g) - real(1.0)), wp.dot(f, g))

    @wp.func(module=module)
    def slope(x: X, r: rest, i: int):
        f, g = axis(x, r, 0), axis(x, r, 1)
        p, q = r[2 * i], r[2 * i + 1]
        found = G()
        for c in range(3):
            found[0, c] = p * f[c]
            found[1, c] = q * g[c]
            found[2, c] = p * g[c] + q * f[c]
        return found

    @wp.func(module=module)
    def second(x: X, r: rest, sigma: S, i: int, j: int):
        p, q, u, v = r[2 * i], r[2 * i + 1], r[2 * j], r[2 * j + 1]
        value = sigma[0] * p * u + sigma[1] * q * v + sigma[2] * (p * v + q * u)
        return wp.diag(vec(value, value, value))

    @wp.func(module=module)
    def projected(sigma: S):
        """Return the positive part of the stress, a symmetric 2 by 2 matrix, eq. (13)."""
        half = real(0.5)
        middle, apart = half * (sigma[0] + sigma[1]), half * (sigma[0] - sigma[1])
        radius = wp.sqrt(apart * apart + sigma[2] * sigma[2])
        high, low = wp.max(middle + radius, real(0.0)), wp.max(middle - radius, real(0.0))
        found = S(half * (high + low), half * (high + low), real(0.0))
        if radius > real(0.0):
            share = half * (high - low) / radius
            found = found + share * S(apart, -apart, sigma[2])
        return found

    @wp.func(module=module)
    def weighted(n: numbers, r: rest, y: S):
        return r[6] * S(n[0] * y[0] + n[1] * y[1], n[1] * y[0] + n[2] * y[1], n[3] * y[2])

    @wp.func(module=module)
    def weighted_vjp(r: rest, a: S, t: S):
        found = numbers()
        found[0] = r[6] * a[0] * t[0]
        found[1] = r[6] * (a[0] * t[1] + a[1] * t[0])
        found[2] = r[6] * a[1] * t[1]
        found[3] = r[6] * a[2] * t[2]
        return found

    @wp.func(module=module)
    def at_rest(n: numbers):
        return S()

    @wp.func(module=module)
    def at_rest_vjp(n: numbers, adj: S):
        return numbers()

    return _named(strain, slope, second, projected, weighted, weighted_vjp, at_rest, at_rest_vjp)


def _segment(t: SimpleNamespace) -> dict[str, Any]:
    real, vec, X, S, G, rest, module = t.real, t.vec, t.X, t.S, t.G, t.rest, t.module

    @wp.func(module=module)
    def strain(x: X, r: rest):
        e = x[1] - x[0]
        return S(real(0.5) * (wp.dot(e, e) / (r[0] * r[0]) - real(1.0)))

    @wp.func(module=module)
    def slope(x: X, r: rest, i: int):
        scale = real(2 * i - 1) / (r[0] * r[0])
        found = G()
        for c in range(3):
            found[0, c] = scale * (x[1, c] - x[0, c])
        return found

    @wp.func(module=module)
    def second(x: X, r: rest, sigma: S, i: int, j: int):
        value = real((2 * i - 1) * (2 * j - 1)) * sigma[0] / (r[0] * r[0])
        return wp.diag(vec(value, value, value))

    @wp.func(module=module)
    def projected(sigma: S):
        return S(wp.max(sigma[0], real(0.0)))

    @wp.func(module=module)
    def weight(r: rest):
        return r[0]

    scalar = _scalar(t, weight)
    return _named(strain, slope, second, projected) | scalar | _with_rest(t)


def _hinge(t: SimpleNamespace) -> dict[str, Any]:
    real, vec, mat, X, S, G, rest, module = t.real, t.vec, t.mat, t.X, t.S, t.G, t.rest, t.module

    class Wing:
        """One side of a hinge: slope of the angle by its tip, foot of the tip; derivatives by x_1 and the tip."""

        u: vec
        foot: real
        u_end: mat
        u_tip: mat
        foot_end: vec
        foot_tip: vec

    Wing = wp.struct(Wing, module=module)

    @wp.func(module=module)
    def wing(x: X, side: int):
        """Return eq. (7), (8) of the side whose tip is vertex 2 + side."""
        e, a = x[1] - x[0], x[2 + side] - x[0]
        length = wp.length(e)
        N = wp.cross(e, a)
        sign = real(2 * side - 1)
        area = real(1.0) / wp.dot(N, N)
        w = Wing()
        w.u = (sign * length * area) * N
        w.foot = wp.dot(a, e) / (length * length)
        mirror = sign * area * (wp.diag(vec(real(1.0), real(1.0), real(1.0))) - (real(2.0) * area) * wp.outer(N, N))
        w.u_tip = length * mirror * wp.skew(e)
        w.u_end = wp.outer((sign * area / length) * N, e) - length * mirror * wp.skew(a)
        w.foot_tip = e / (length * length)
        w.foot_end = (a - (real(2.0) * w.foot) * e) / (length * length)
        return w

    @wp.func(module=module)
    def strain(x: X, r: rest):
        e = x[1] - x[0]
        n, m = wp.cross(e, x[2] - x[0]), wp.cross(x[3] - x[0], e)
        return S(wp.atan2(wp.dot(wp.cross(n, m), e) / wp.length(e), wp.dot(n, m)))

    @wp.func(module=module)
    def share(w: Wing, side: int, i: int):
        """Return the share of a tip's slope that vertex i has, eq. (6)."""
        found = real(0.0)
        if i == 0:
            found = w.foot - real(1.0)
        elif i == 1:
            found = -w.foot
        elif i == 2 + side:
            found = real(1.0)
        return found

    @wp.func(module=module)
    def slope(x: X, r: rest, i: int):
        found = G()
        for side in range(2):
            w = wing(x, side)
            part = share(w, side, i)
            for c in range(3):
                found[0, c] = found[0, c] + part * w.u[c]
        return found

    @wp.func(module=module)
    def second(x: X, r: rest, sigma: S, i: int, j: int):
        """Return eq. (9)."""
        found = mat()
        for side in range(2):
            w = wing(x, side)
            at_end, at_tip = real(0.0), real(0.0)
            if j == 0:
                at_end, at_tip = -real(1.0), -real(1.0)
            elif j == 1:
                at_end = real(1.0)
            elif j == 2 + side:
                at_tip = real(1.0)
            by = at_end * w.u_end + at_tip * w.u_tip
            foot = at_end * w.foot_end + at_tip * w.foot_tip
            found = found + share(w, side, i) * by
            if i == 0:
                found = found + wp.outer(w.u, foot)
            elif i == 1:
                found = found - wp.outer(w.u, foot)
        return sigma[0] * found

    @wp.func(module=module)
    def projected(sigma: S):
        return S()

    @wp.func(module=module)
    def weight(r: rest):
        return r[0]

    return _named(strain, slope, second, projected) | _scalar(t, weight) | _with_rest(t)


def _bend(t: SimpleNamespace) -> dict[str, Any]:
    real, vec, _mat, X, S, _G, rest, numbers, module = (
        t.real, t.vec, t.mat, t.X, t.S, t.G, t.rest, t.numbers, t.module
    )  # fmt: skip

    @wp.func(module=module)
    def strain(x: X, r: rest):
        """Return the curvature vector, eq. (10); not a number beyond a full fold."""
        e, f = x[1] - x[0], x[2] - x[1]
        D = r[0] + wp.dot(e, f)
        if not D > real(0.0):
            D = real(0.0)
        return (real(2.0) / D) * wp.cross(e, f)

    @wp.func(module=module)
    def by_edges(x: X, r: rest):
        """Return the derivatives of the curvature by both edges, eq. (11)."""
        e, f = x[1] - x[0], x[2] - x[1]
        D = r[0] + wp.dot(e, f)
        k = strain(x, r)
        by_e = (-real(2.0) * wp.skew(f) - wp.outer(k, f)) / D
        by_f = (real(2.0) * wp.skew(e) - wp.outer(k, e)) / D
        return by_e, by_f

    @wp.func(module=module)
    def end(i: int, edge: int):
        """Return 1 if an edge ends at vertex i, -1 if it begins there."""
        found = real(0.0)
        if i == edge:
            found = -real(1.0)
        elif i == edge + 1:
            found = real(1.0)
        return found

    @wp.func(module=module)
    def slope(x: X, r: rest, i: int):
        by_e, by_f = by_edges(x, r)
        return end(i, 0) * by_e + end(i, 1) * by_f

    @wp.func(module=module)
    def second(x: X, r: rest, sigma: S, i: int, j: int):
        """Return eq. (12)."""
        e, f = x[1] - x[0], x[2] - x[1]
        D = r[0] + wp.dot(e, f)
        q = wp.dot(sigma, strain(x, r))
        q_e = (real(2.0) * wp.cross(f, sigma) - q * f) / D
        q_f = (real(2.0) * wp.cross(sigma, e) - q * e) / D
        ee = -(wp.outer(q_e, f) + wp.outer(f, q_e)) / D
        ff = -(wp.outer(q_f, e) + wp.outer(e, q_f)) / D
        one = wp.diag(vec(q, q, q))
        ef = (-real(2.0) * wp.skew(sigma) - one - wp.outer(f, q_f) - wp.outer(q_e, e)) / D
        ie, i_f, je, j_f = end(i, 0), end(i, 1), end(j, 0), end(j, 1)
        return (ie * je) * ee + (i_f * j_f) * ff + (ie * j_f) * ef + (i_f * je) * wp.transpose(ef)

    @wp.func(module=module)
    def projected(sigma: S):
        return S()

    @wp.func(module=module)
    def weight(r: rest):
        return real(1.0) / r[1]

    @wp.func(module=module)
    def at_rest(n: numbers):
        return S()

    @wp.func(module=module)
    def at_rest_vjp(n: numbers, adj: S):
        return numbers()

    return _named(strain, slope, second, projected, at_rest, at_rest_vjp) | _scalar(t, weight)


def _scalar(t: SimpleNamespace, weight: Any) -> dict[str, Any]:
    """Return the stiffness of elements that have one number for it."""
    S, rest, numbers, module = t.S, t.rest, t.numbers, t.module

    @wp.func(module=module)
    def weighted(n: numbers, r: rest, y: S):
        return (weight(r) * n[0]) * y

    @wp.func(module=module)
    def weighted_vjp(r: rest, a: S, y: S):
        found = numbers()
        found[0] = weight(r) * wp.dot(a, y)
        return found

    return _named(weighted, weighted_vjp)


def _with_rest(t: SimpleNamespace) -> dict[str, Any]:
    """Return the strain at rest of elements whose third number it is."""
    S, numbers, module = t.S, t.numbers, t.module

    @wp.func(module=module)
    def at_rest(n: numbers):
        return S(n[2])

    @wp.func(module=module)
    def at_rest_vjp(n: numbers, adj: S):
        found = numbers()
        found[2] = adj[0]
        return found

    return _named(at_rest, at_rest_vjp)


def _named(*functions: Any) -> dict[str, Any]:
    return {function.func.__name__: function for function in functions}


class Kind(NamedTuple):
    """A kind of element: its functions, how many vertices, strains and rest numbers, and numbers of its material.

    Of these `damping` says which is the damping [s]; the strain at rest comes last, of those that have one.
    """

    make: Any
    vertices: int
    strains: int
    rest: int
    numbers: int
    damping: int


KINDS: dict[str, Kind] = {
    # rest: slopes of the three weights by both material coordinates, area; numbers: C11, C12, C22, shear [N/m], damping
    TRIANGLE: Kind(_triangle, vertices=3, strains=3, rest=7, numbers=5, damping=4),
    # rest: length
    SEGMENT: Kind(_segment, vertices=2, strains=1, rest=1, numbers=3, damping=1),
    # rest: weight
    HINGE: Kind(_hinge, vertices=4, strains=1, rest=1, numbers=3, damping=1),
    # rest: product of the lengths, half their sum
    BEND: Kind(_bend, vertices=3, strains=3, rest=2, numbers=2, damping=1),
}
