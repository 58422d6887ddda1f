"""Sweeps of projected Gauss-Seidel over the contact problem (docs/derivations/contact_solver.md).

Without its matrix: the unknown impulses lam move s = L v by Y^T lam, so a row's residual is Y·s + bias + cfm lam with
the newest s. With it: a contact that moves changes all residuals by its rows of A.
"""

from typing import Any

import warp as wp

from pullback.rigid.solvers.problem import Problem
from pullback.rigid.solvers.rows_kernels import add_multiple, add_three_rows, dot_rows
from pullback.rigid.step.constraint_kernels import (
    BIAS,
    BLOCK_ROWS,
    DIAGONAL,
    FRICTION,
    LOWER,
    SCALAR_BIAS,
    SCALAR_DIAGONAL,
    SCALAR_ROWS,
    UPPER,
    add_rows,
    add_scalar_row,
    row_dots,
    scalar_dot,
    softness,
)
from pullback.rigid.step.problem_kernels import Job
from pullback.spatial.arrays import load3, load6, rows_from, store

THIN = wp.constant(0.025)
"""Determinant over squared trace of the tangents' block, below which one of them hardly moves."""


@wp.func
def tangent_step_size(a: Any, b: Any, c: Any):
    """Return the step size of two tangent rows whose block is [a b; b c]: eq. (4)."""
    trace = a + c
    share = a.dtype(2.0)
    if a * c - b * b < a.dtype(THIN) * trace * trace:
        share = a.dtype(1.5)
    return share / trace


@wp.func
def project_on_friction_cone(x1: Any, x2: Any, bound: Any):
    """Return the tangential impulse in the disk of radius `bound`, mu times the normal impulse, nearest to (x1, x2)."""
    length = wp.sqrt(x1 * x1 + x2 * x2)
    scale = x1.dtype(1.0)
    if length > bound:
        scale = bound / length
    return scale * x1, scale * x2


@wp.func
def contact_update(cone: int, lam: Any, residual: Any, D: Any, mu: Any):
    """Return the impulse of a contact after its turn: normal first, then the tangents within the new bound."""
    zero = lam.dtype(0.0)
    normal = wp.max(lam[0] - residual[0] / D[0], zero)
    change = normal - lam[0]
    r1 = residual[1] + D[1] * change
    r2 = residual[2] + D[2] * change
    bound = mu * normal
    x1 = lam[1]
    x2 = lam[2]
    if cone:
        step = tangent_step_size(D[3], D[4], D[5])
        x1, x2 = project_on_friction_cone(x1 - step * r1, x2 - step * r2, bound)
    else:
        x1 = wp.clamp(x1 - r1 / D[3], -bound, bound)
        r2 = r2 + D[4] * (x1 - lam[1])
        x2 = wp.clamp(x2 - r2 / D[5], -bound, bound)
    return wp.vector(normal, x1, x2)


@wp.func
def solve(job: Job, limit: int, nc: int, ns: int, first: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Sweep over the rows until they hardly change, or `limit` times; return sweeps and the last one's change.

    Impulses stand from row `first` of scratch on; s = L v moves with them.
    """
    scene = job.scene
    settings = job.settings
    place = job.scratch
    contacts = rows_from(scratch, place.contacts)
    blocks = rows_from(scratch, place.blocks)
    Y = rows_from(scratch, place.Y)
    scalars = rows_from(scratch, place.scalars)
    Y_scalar = rows_from(scratch, place.Y_scalar)
    lam = rows_from(scratch, first)
    s = rows_from(scratch, place.s)
    zero = s.dtype(0.0)
    cfm = softness(settings, scratch[place.span, w])
    tolerance = s.dtype(settings.tolerance)
    sweeps = int(0)
    sweeps_left = int(limit)
    change = zero
    while sweeps_left > 0:
        change = zero
        for c in range(nc):
            row = c * BLOCK_ROWS
            old = load3(lam, 3 * c, w)
            D = load6(blocks, row + DIAGONAL, w)
            r = row_dots(scene, contacts, c, Y, s, w) + cfm * old
            r = wp.vector(r[0] + blocks[row + BIAS, w], r[1], r[2])
            new = contact_update(settings.cone, old, r, D, blocks[row + FRICTION, w])
            move = new - old
            if move[0] != zero or move[1] != zero or move[2] != zero:
                add_rows(scene, contacts, c, Y, move, w, s)
                store(lam, 3 * c, w, new)
                change = wp.max(change, D[0] * wp.abs(move[0]))
                change = wp.max(change, wp.max(D[3] * wp.abs(move[1]), D[5] * wp.abs(move[2])))
        for k in range(ns):
            row = k * SCALAR_ROWS
            old_scalar = lam[3 * nc + k, w]
            r_scalar = scalar_dot(scene, scalars, k, Y_scalar, s, w) + scalars[row + SCALAR_BIAS, w] + cfm * old_scalar
            D_scalar = scalars[row + SCALAR_DIAGONAL, w]
            new_scalar = wp.clamp(old_scalar - r_scalar / D_scalar, scalars[row + LOWER, w], scalars[row + UPPER, w])
            if new_scalar != old_scalar:
                add_scalar_row(scene, scalars, k, Y_scalar, new_scalar - old_scalar, w, s)
                lam[3 * nc + k, w] = new_scalar
                change = wp.max(change, D_scalar * wp.abs(new_scalar - old_scalar))
        sweeps += 1
        sweeps_left -= 1
        if change < tolerance:
            sweeps_left = 0
    return sweeps, change


@wp.func
def solve_matrix(p: Problem, limit: int, tolerance: Any, w: int, x: wp.array2d(dtype=Any)):
    """Do what `solve` does, to the impulses alone, for the problem as a matrix."""
    A = rows_from(x, p.A)
    b = rows_from(x, p.b)
    mu = rows_from(x, p.mu)
    lower = rows_from(x, p.lower)
    upper = rows_from(x, p.upper)
    lam = rows_from(x, p.lam)
    residual = rows_from(x, p.residual)
    nc = p.nc
    ns = p.ns
    m = 3 * nc + ns
    zero = A.dtype(0.0)
    for i in range(m):
        residual[i, w] = b[i, w] + dot_rows(A, i * m, lam, 0, m, w)
    sweeps = int(0)
    sweeps_left = int(limit)
    change = zero
    while sweeps_left > 0:
        change = zero
        for c in range(nc):
            i = 3 * c
            old = load3(lam, i, w)
            first = load3(A, i * m + i, w)
            second = load3(A, (i + 1) * m + i, w)
            D = wp.vector(first[0], first[1], first[2], second[1], second[2], A[(i + 2) * m + i + 2, w])
            new = contact_update(p.cone, old, load3(residual, i, w), D, mu[c, w])
            move = new - old
            if move[0] != zero or move[1] != zero or move[2] != zero:
                add_three_rows(residual, move[0], move[1], move[2], A, i * m, m, w)
                store(lam, i, w, new)
                change = wp.max(change, D[0] * wp.abs(move[0]))
                change = wp.max(change, wp.max(D[3] * wp.abs(move[1]), D[5] * wp.abs(move[2])))
        for k in range(ns):
            i = 3 * nc + k
            D_scalar = A[i * m + i, w]
            old_scalar = lam[i, w]
            new_scalar = wp.clamp(old_scalar - residual[i, w] / D_scalar, lower[k, w], upper[k, w])
            if new_scalar != old_scalar:
                add_multiple(residual, 0, new_scalar - old_scalar, A, i * m, m, w)
                lam[i, w] = new_scalar
                change = wp.max(change, D_scalar * wp.abs(new_scalar - old_scalar))
        sweeps += 1
        sweeps_left -= 1
        if change < tolerance:
            sweeps_left = 0
    return sweeps, change
