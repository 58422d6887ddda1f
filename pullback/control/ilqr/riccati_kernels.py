"""The backward pass over all steps in one launch: a thread for each problem on a CPU, a block of them on a GPU.

Equations: docs/derivations/ilqr.md, section 4. Matrices of step t and problem w are item t B + w of their arrays.
"""

from typing import Any

import warp as wp

from pullback.control.ilqr.dense_kernels import (
    BLOCK,
    factor_cholesky,
    matrix,
    mirror,
    plus_dots,
    plus_row_product,
    plus_symmetric,
    plus_transposed,
    product,
    row_product,
    solve_cholesky,
    sync,
)
from pullback.core.array_struct import array_struct
from pullback.core.modules import kernel_module, made_once

BOX_STEPS = wp.constant(50)
"""The most steps of projected Newton."""

BOX_HALVINGS = wp.constant(20)
"""The most halvings of one of them."""

ENOUGH = 0.1
"""Required fraction of the decrease that the slope predicts (Armijo)."""

RESULTS = 4
"""Rows of a problem's result: linear, quadratic, gradient, ok."""


@wp.struct
class Riccati:
    """Sizes of the backward pass, lanes per problem, and offsets in its scratch."""

    steps: int
    problems: int
    n: int
    m: int
    lanes: int
    bounded: int  # 1: controls are bounded
    V: int
    v: int
    W: int
    Qxx: int
    Qux: int
    Quu: int
    Qu: int
    factor: int
    held: int
    slope: int
    step: int
    tried: int
    failed: int


def make_riccati(steps: int, problems: int, n: int, m: int, *, bounded: bool, device: str) -> tuple[Any, int]:
    """Return the kernel's sizes and offsets, and the scratch numbers of a problem."""
    job = Riccati()
    job.steps, job.problems, job.n, job.m = steps, problems, n, m
    job.lanes, job.bounded = lanes_on(device), int(bounded)
    sizes = {"V": n * n, "v": n, "W": n * max(n, m), "Qxx": n * n, "Qux": m * n, "Quu": m * m, "Qu": m}
    sizes |= {"factor": m * m, "held": m, "slope": m, "step": m, "tried": max(n, m), "failed": 1}
    total = 0
    for name, size in sizes.items():
        setattr(job, name, total)
        total += size
    return job, total


def lanes_on(device: str) -> int:
    """Return the number of threads of a problem."""
    return 1 if device == "cpu" else BLOCK


# -- rows -------------------------------------------------------------------------------------------------------------


@wp.func
def copy(y: wp.array2d(dtype=Any), x: wp.array2d(dtype=Any), n: int, lane: int, lanes: int):
    """Write row x to row y."""
    for j in range(lane, n, lanes):
        y[0, j] = x[0, j]


@wp.func
def dot(x: wp.array2d(dtype=Any), y: wp.array2d(dtype=Any), n: int):
    """Return the inner product of two rows."""
    total = x.dtype(0.0)
    for i in range(n):
        total += x[0, i] * y[0, i]
    return total


# -- the box-QP, by one thread ---------------------------------------------------------------------------------------


@wp.func
def write_free(Q: wp.array2d(dtype=Any), held: wp.array2d(dtype=Any), m: int, free: wp.array2d(dtype=Any)):
    """Write Q with the rows and columns of held variables replaced by those of the identity."""
    for i in range(m):
        for j in range(i + 1):
            entry = Q[i, j]
            if held[0, i] + held[0, j] > Q.dtype(0.0):
                entry = Q.dtype(0.0)
                if i == j:
                    entry = Q.dtype(1.0)
            free[i, j] = entry


@wp.func
def write_held(
    Q: wp.array2d(dtype=Any), q: wp.array2d(dtype=Any), u: wp.array2d(dtype=Any), low: wp.array2d(dtype=Any),
    high: wp.array2d(dtype=Any), x: wp.array2d(dtype=Any), m: int,
    slope: wp.array2d(dtype=Any), held: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the gradient at x and which variables are held at a bound; return how many of these changed."""
    changed = int(0)
    zero = Q.dtype(0.0)
    for i in range(m):
        g = q[0, i]
        for j in range(m):
            g += Q[i, j] * x[0, j]
        slope[0, i] = g
        below = low[0, i] - u[0, i]
        above = high[0, i] - u[0, i]
        now = zero
        if (x[0, i] <= below and g > zero) or (x[0, i] >= above and g < zero) or below >= above:
            now = Q.dtype(1.0)
        if now != held[0, i]:
            changed += 1
        held[0, i] = now
    return changed


@wp.func
def try_step(
    Q: wp.array2d(dtype=Any), u: wp.array2d(dtype=Any), low: wp.array2d(dtype=Any), high: wp.array2d(dtype=Any),
    x: wp.array2d(dtype=Any), slope: wp.array2d(dtype=Any), step: wp.array2d(dtype=Any), length: Any, m: int,
    move: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the projection of x + length step onto the box; return whether it decreases enough, and is unprojected."""
    whole = bool(True)
    along = Q.dtype(0.0)
    for i in range(m):
        wanted = x[0, i] + length * step[0, i]
        reached = wp.min(wp.max(wanted, low[0, i] - u[0, i]), high[0, i] - u[0, i])
        if reached != wanted:
            whole = False
        move[0, i] = reached - x[0, i]
        along += slope[0, i] * move[0, i]
    curved = Q.dtype(0.0)
    for i in range(m):
        for j in range(m):
            curved += move[0, i] * Q[i, j] * move[0, j]
    return along + Q.dtype(0.5) * curved <= Q.dtype(ENOUGH) * along, whole


@wp.func
def box_qp(
    job: Riccati, Q: wp.array2d(dtype=Any), q: wp.array2d(dtype=Any), u: wp.array2d(dtype=Any),
    low: wp.array2d(dtype=Any), high: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
    x: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the minimiser of x^T Q x / 2 + q^T x in the box and the factor of the free part of Q.

    Each step solves for the free variables, and is halved and projected onto the box until the quadratic decreases
    enough. Return whether the free part of Q is positive definite.
    """
    m = job.m
    one = Q.dtype(1.0)
    factor = matrix(scratch, w, job.factor, m)
    held = matrix(scratch, w, job.held, m)
    slope = matrix(scratch, w, job.slope, m)
    step = matrix(scratch, w, job.step, m)
    move = matrix(scratch, w, job.tried, m)
    for i in range(m):
        x[0, i] = wp.min(wp.max(Q.dtype(0.0), low[0, i] - u[0, i]), high[0, i] - u[0, i])
        held[0, i] = -one
    fine = bool(True)
    solved = bool(False)
    turn = int(0)
    while turn < BOX_STEPS:
        turn += 1
        changed = write_held(Q, q, u, low, high, x, m, slope, held)
        if changed == 0 and solved:
            turn = BOX_STEPS
        else:
            write_free(Q, held, m, factor)
            fine = factor_cholesky(factor, m)
            if not fine:
                turn = BOX_STEPS
        if turn < BOX_STEPS:
            for i in range(m):
                step[0, i] = -slope[0, i] * (one - held[0, i])
            solve_cholesky(factor, matrix(step, 0, 0, 1), m, 1, 0, 1)
            length = Q.dtype(2.0)
            falls = bool(False)
            halvings = int(0)
            while not falls and halvings < BOX_HALVINGS:
                halvings += 1
                length *= Q.dtype(0.5)
                falls, solved = try_step(Q, u, low, high, x, slope, step, length, m, move)
            if falls:
                for i in range(m):
                    x[0, i] = x[0, i] + move[0, i]
                solved = solved and halvings == 1
            else:
                turn = BOX_STEPS
    return fine


# -- one step back ---------------------------------------------------------------------------------------------------


@wp.func
def feed_forward(
    job: Riccati, u: wp.array2d(dtype=Any), low: wp.array2d(dtype=Any), high: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any), k: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write k, and the factor of Quu, of its free part where there are bounds; by one thread."""
    m = job.m
    Quu = matrix(scratch, w, job.Quu, m)
    Qu = matrix(scratch, w, job.Qu, m)
    fine = bool(True)
    if job.bounded == 1:
        fine = box_qp(job, Quu, Qu, u, low, high, w, scratch, k)
    else:
        factor = matrix(scratch, w, job.factor, m)
        for i in range(m):
            k[0, i] = -Qu[0, i]
            for j in range(i + 1):
                factor[i, j] = Quu[i, j]
        fine = factor_cholesky(factor, m)
        if fine:
            solve_cholesky(factor, matrix(k, 0, 0, 1), m, 1, 0, 1)
    if not fine:
        failed = matrix(scratch, w, job.failed, 1)
        failed[0, 0] = Quu.dtype(1.0)


@wp.func
def steepest(
    job: Riccati, u: wp.array2d(dtype=Any), low: wp.array2d(dtype=Any), high: wp.array2d(dtype=Any),
    Qu: wp.array2d(dtype=Any), gradient: Any,
):  # fmt: skip
    """Return the larger of `gradient` and the largest |Qu| of a control that is not held at a bound."""
    zero = Qu.dtype(0.0)
    largest = zero + gradient
    for i in range(job.m):
        g = Qu[0, i]
        is_held = bool(False)
        if job.bounded == 1:
            is_held = (u[0, i] <= low[0, i] and g > zero) or (u[0, i] >= high[0, i] and g < zero)
        if not is_held:
            largest = wp.max(largest, wp.abs(g))
    return largest


@wp.func
def expand(
    job: Riccati, A: wp.array2d(dtype=Any), B: wp.array2d(dtype=Any), gap: wp.array2d(dtype=Any),
    u: wp.array2d(dtype=Any), xx: wp.array2d(dtype=Any), uu: wp.array2d(dtype=Any), ux: wp.array2d(dtype=Any), r: Any,
    w: int, lane: int, scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the lower triangle of Qxx, Qux, Quu and Qu: the step's own cost u, xx, uu, ux and what follows it."""
    n = job.n
    m = job.m
    lanes = job.lanes
    V = matrix(scratch, w, job.V, n)
    v = matrix(scratch, w, job.v, n)
    Quu = matrix(scratch, w, job.Quu, m)
    plus_row_product(v, v, gap, V, n, n, lane, lanes)
    plus_row_product(matrix(scratch, w, job.Qu, m), u, v, B, n, m, lane, lanes)
    W = matrix(scratch, w, job.W, m)
    product(W, V, B, n, n, m, lane, lanes)
    plus_transposed(Quu, uu, B, W, m, n, m, lane, lanes)
    for i in range(lane, m, lanes):
        Quu[i, i] = Quu[i, i] + r
    W = matrix(scratch, w, job.W, n)
    product(W, V, A, n, n, n, lane, lanes)
    plus_transposed(matrix(scratch, w, job.Qux, n), ux, B, W, m, n, n, lane, lanes)
    plus_symmetric(matrix(scratch, w, job.Qxx, n), xx, A, W, n, n, n, lane, lanes)


@wp.func
def write_value(
    job: Riccati, A: wp.array2d(dtype=Any), x: wp.array2d(dtype=Any), k: wp.array2d(dtype=Any),
    K: wp.array2d(dtype=Any), r: Any, w: int, lane: int, scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the gains, and the value before the step."""
    n = job.n
    m = job.m
    lanes = job.lanes
    Qxx = matrix(scratch, w, job.Qxx, n)
    Qux = matrix(scratch, w, job.Qux, n)
    V = matrix(scratch, w, job.V, n)
    v = matrix(scratch, w, job.v, n)
    Qx = matrix(scratch, w, job.tried, n)
    held = matrix(scratch, w, job.held, m)
    zero = V.dtype(0.0)
    for i in range(m):
        is_free = V.dtype(-1.0)
        if job.bounded == 1:
            if held[0, i] > zero:
                is_free = zero
        for j in range(lane, n, lanes):
            K[i, j] = is_free * Qux[i, j]
    solve_cholesky(matrix(scratch, w, job.factor, m), K, m, n, lane, lanes)
    plus_row_product(Qx, x, v, A, n, n, lane, lanes)
    plus_row_product(v, Qx, k, Qux, m, n, lane, lanes)
    plus_symmetric(Qxx, Qxx, Qux, K, n, m, n, lane, lanes)
    mirror(V, Qxx, r, n, lane, lanes)
    # whatever is not finite, gains included, reaches the diagonal or the gradient
    total = zero
    for j in range(lane, n, lanes):
        total += wp.abs(v[0, j]) + wp.abs(Qxx[j, j])
    if not wp.isfinite(total):
        failed = matrix(scratch, w, job.failed, 1)
        failed[0, 0] = V.dtype(1.0)
    sync()


# -- the kernel ------------------------------------------------------------------------------------------------------


@made_once
def kernels(real: type) -> Any:
    """Return the kernel of the backward pass for one floating-point type."""
    a = wp.array2d(dtype=real)
    Dynamics = array_struct("riccati_dynamics", ("A", "B", "gaps"), real)
    Cost = array_struct("riccati_cost", ("x", "u", "xx", "uu", "ux"), real)
    Controls = array_struct("riccati_controls", ("u", "lower", "upper"), real)
    zero = wp.constant(real(0.0))
    infinity = wp.constant(real(float("inf")))

    @wp.kernel(module=kernel_module("riccati", real))
    def backward(
        job: Riccati, dynamics: Dynamics, cost: Cost, controls: Controls, regularization: a, k: a, K: a, result: a,
        scratch: a,
    ):  # fmt: skip
        tid = wp.tid()
        lanes = job.lanes
        w = tid // lanes
        lane = tid - w * lanes
        n = job.n
        m = job.m
        last = job.steps * job.problems + w
        r = regularization[0, w]
        V = matrix(scratch, w, job.V, n)
        failed = matrix(scratch, w, job.failed, 1)
        mirror(V, matrix(cost.xx, last, 0, 0), r, n, lane, lanes)
        copy(matrix(scratch, w, job.v, n), matrix(cost.x, last, 0, n), n, lane, lanes)
        if lane == 0:
            failed[0, 0] = zero
        sync()
        gradient = real(0.0)
        t = int(job.steps - 1)
        while t >= 0:
            at = t * job.problems + w
            At = matrix(dynamics.A, at, 0, 0)
            Bt = matrix(dynamics.B, at, 0, 0)
            kt = matrix(k, at, 0, m)
            Kt = matrix(K, at, 0, n)
            ut = matrix(controls.u, at, 0, m)
            low = matrix(controls.lower, at, 0, m)
            high = matrix(controls.upper, at, 0, m)
            expand(
                job, At, Bt, matrix(dynamics.gaps, at, 0, n), matrix(cost.u, at, 0, m), matrix(cost.xx, at, 0, 0),
                matrix(cost.uu, at, 0, 0), matrix(cost.ux, at, 0, 0), r, w, lane, scratch,
            )  # fmt: skip
            if lane == 0:
                gradient = steepest(job, ut, low, high, matrix(scratch, w, job.Qu, m), gradient)
                feed_forward(job, ut, low, high, w, scratch, kt)
            sync()
            if failed[0, 0] == zero:
                write_value(job, At, matrix(cost.x, at, 0, n), kt, Kt, r, w, lane, scratch)
            t -= 1
            if failed[0, 0] != zero:
                t = -1
        # the expected change of cost, along the policy's linear trajectory; dx in v, du in the row of the step
        linear = real(0.0)
        quadratic = real(0.0)
        dx = matrix(scratch, w, job.v, n)
        du = matrix(scratch, w, job.step, m)
        bent = matrix(scratch, w, job.W, n)
        curved = matrix(scratch, w, job.slope, m)
        after = matrix(scratch, w, job.tried, n)
        for j in range(lane, n, lanes):
            dx[0, j] = zero
        is_fine = failed[0, 0] == zero
        sync()
        for s in range(job.steps):
            at = s * job.problems + w
            kt = matrix(k, at, 0, m)
            Kt = matrix(K, at, 0, n)
            if not is_fine:
                for i in range(m):
                    for j in range(lane, n, lanes):
                        Kt[i, j] = zero
                    kt[0, i] = zero
            else:
                uxt = matrix(cost.ux, at, 0, 0)
                plus_dots(du, kt, Kt, dx, m, n, lane, lanes)
                # quadratic part of the change; the mixed term counts twice
                row_product(bent, dx, matrix(cost.xx, at, 0, 0), n, n, lane, lanes)
                plus_row_product(bent, bent, du, uxt, m, n, lane, lanes)
                plus_row_product(bent, bent, du, uxt, m, n, lane, lanes)
                row_product(curved, du, matrix(cost.uu, at, 0, 0), m, m, lane, lanes)
                if lane == 0:
                    linear += dot(matrix(cost.x, at, 0, n), dx, n) + dot(matrix(cost.u, at, 0, m), du, m)
                    quadratic += dot(bent, dx, n) + dot(curved, du, m)
                plus_dots(after, matrix(dynamics.gaps, at, 0, n), matrix(dynamics.A, at, 0, 0), dx, n, n, lane, lanes)
                plus_dots(dx, after, matrix(dynamics.B, at, 0, 0), du, n, m, lane, lanes)
        if is_fine:
            row_product(bent, dx, matrix(cost.xx, last, 0, 0), n, n, lane, lanes)
            if lane == 0:
                linear += dot(matrix(cost.x, last, 0, n), dx, n)
                quadratic += dot(bent, dx, n)
        else:
            gradient = infinity
        if lane == 0:
            result[0, w] = linear
            result[1, w] = quadratic
            result[2, w] = gradient
            result[3, w] = zero
            if is_fine:
                result[3, w] = real(1.0)

    return backward
