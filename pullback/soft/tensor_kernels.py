"""Matrices of two or three dimensions: cofactors, polar decomposition, eigenvectors, divided differences.

See docs/derivations/mpm.md.
"""

from types import SimpleNamespace

import warp as wp

from pullback.core.modules import made_once
from pullback.soft.variant_kernels import Variant

SWEEPS = 12
"""Sweeps of Jacobi's method at most; it needs four."""

ITERATIONS = 30
"""Newton's iterations for a rotation at most; from a stretch of 10 it needs seven."""


@made_once
def tensors(variant: Variant) -> SimpleNamespace:
    """Return the functions of matrices."""
    types, module = variant.types, variant.module("tensors")
    real, vec, mat = variant.real, types.vec, types.mat
    dim = variant.dim
    in_space = dim == 3
    precision = real(1e-30 if real == wp.float64 else 1e-13)
    sweeps, iterations = wp.constant(SWEEPS), wp.constant(ITERATIONS)

    @wp.func(module=module)
    def cofactors(A: mat):
        """Return det(A) A⁻ᵀ."""
        if in_space:
            r0 = wp.cross(A[1], A[2])
            r1 = wp.cross(A[2], A[0])
            r2 = wp.cross(A[0], A[1])
            return mat(r0[0], r0[1], r0[2], r1[0], r1[1], r1[2], r2[0], r2[1], r2[2])
        else:
            return mat(A[1, 1], -A[1, 0], -A[0, 1], A[0, 0])

    @wp.func(module=module)
    def symmetric(A: mat):
        return real(0.5) * (A + wp.transpose(A))

    @wp.func(module=module)
    def add_diagonal(A: mat, x: real):
        for a in range(dim):
            A[a, a] = A[a, a] + x
        return A

    @wp.func(module=module)
    def eigen(A: mat):
        """Return eigenvalues of a symmetric matrix and their vectors as columns, by Jacobi's rotations."""
        N = add_diagonal(mat(), real(1.0))
        off = real(1.0)
        scale = wp.ddot(A, A)
        count = int(0)
        while off > precision * scale and count < sweeps:
            for p in range(dim - 1):
                for q in range(p + 1, dim):
                    apq = A[p, q]
                    if apq != real(0.0):
                        theta = (A[q, q] - A[p, p]) / (real(2.0) * apq)
                        t = real(1.0) / (wp.abs(theta) + wp.sqrt(theta * theta + real(1.0)))
                        if theta < real(0.0):
                            t = -t
                        c = real(1.0) / wp.sqrt(t * t + real(1.0))
                        s = t * c
                        for k in range(dim):
                            x = A[k, p]
                            y = A[k, q]
                            A[k, p] = c * x - s * y
                            A[k, q] = s * x + c * y
                        for k in range(dim):
                            x = A[p, k]
                            y = A[q, k]
                            A[p, k] = c * x - s * y
                            A[q, k] = s * x + c * y
                        for k in range(dim):
                            x = N[k, p]
                            y = N[k, q]
                            N[k, p] = c * x - s * y
                            N[k, q] = s * x + c * y
            off = real(0.0)
            for p in range(dim - 1):
                for q in range(p + 1, dim):
                    off += A[p, q] * A[p, q]
            count += 1
        values = vec()
        for a in range(dim):
            values[a] = A[a, a]
        return values, N

    @wp.func(module=module)
    def inverted_rotation(F: mat):
        """Return the rotation of a matrix in space whose determinant may be negative, from eigenvectors of F Fᵀ."""
        values, N = eigen(F * wp.transpose(F))
        # the smallest goes last; its direction follows from the two others
        last = int(2)
        if values[0] <= values[1] and values[0] <= values[2]:
            last = int(0)
        elif values[1] <= values[2]:
            last = int(1)
        i = (last + 1) % 3
        j = (last + 2) % 3
        n1 = vec(N[0, i], N[1, i], N[2, i])
        n2 = vec(N[0, j], N[1, j], N[2, j])
        m1 = wp.normalize(wp.transpose(F) * n1)
        m2 = wp.normalize(wp.transpose(F) * n2)
        return wp.outer(n1, m1) + wp.outer(n2, m2) + wp.outer(wp.cross(n1, n2), wp.cross(m1, m2))

    @wp.func(module=module)
    def rotation(F: mat, J: real):
        """Return R of F = W R."""
        R = F
        if in_space:
            if J > real(0.0):
                change = real(1.0)
                count = int(0)
                while change > precision and count < iterations:
                    better = real(0.5) * (R + cofactors(R) / wp.determinant(R))
                    change = wp.ddot(better - R, better - R)
                    R = better
                    count += 1
            else:
                R = inverted_rotation(F)
        else:
            c = F[0, 0] + F[1, 1]
            s = F[1, 0] - F[0, 1]
            r = wp.sqrt(c * c + s * s)
            R = mat(c / r, -s / r, s / r, c / r)
        return R

    @wp.func(module=module)
    def turned(Y: mat, W: mat):
        """Return [y] for y = (tr W I - W)⁻¹ a, a the axial vector of Y - Yᵀ, eq. (27)."""
        if in_space:
            G = add_diagonal(-W, wp.trace(W))
            a = vec(Y[2, 1] - Y[1, 2], Y[0, 2] - Y[2, 0], Y[1, 0] - Y[0, 1])
            y = wp.transpose(cofactors(G)) * a / wp.determinant(G)
            return mat(real(0.0), -y[2], y[1], y[2], real(0.0), -y[0], -y[1], y[0], real(0.0))
        else:
            y = (Y[1, 0] - Y[0, 1]) / wp.trace(W)
            return mat(real(0.0), -y, y, real(0.0))

    @wp.func(module=module)
    def log_difference(p: real, q: real):
        """Return (½ log p - ½ log q)/(p - q), eq. (33)."""
        u = (p - q) / (p + q)
        s = u * u
        ratio = real(1.0)
        if s < real(0.0025):
            # atanh(u)/u
            ratio = real(1.0) + s * (
                real(1.0 / 3.0) + s * (real(0.2) + s * (real(1.0 / 7.0) + s * (real(1.0 / 9.0) + s * real(1.0 / 11.0))))
            )
        else:
            ratio = real(0.5) * wp.log(p / q) / u
        return ratio / (p + q)

    @wp.func(module=module)
    def sinh_ratio(x: real):
        """Return sinh(x)/x."""
        s = x * x
        if s < real(0.01):
            return real(1.0) + s * (
                real(1.0 / 6.0) + s * (real(1.0 / 120.0) + s * (real(1.0 / 5040.0) + s * real(1.0 / 362880.0)))
            )
        else:
            return real(0.5) * (wp.exp(x) - wp.exp(-x)) / x

    return SimpleNamespace(
        cofactors=cofactors,
        symmetric=symmetric,
        add_diagonal=add_diagonal,
        eigen=eigen,
        rotation=rotation,
        turned=turned,
        log_difference=log_difference,
        sinh_ratio=sinh_ratio,
    )
