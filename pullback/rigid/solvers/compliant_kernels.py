"""Compliant contact of a whole step: all contacts at the velocity after it (docs/derivations/compliant_contact.md).

    lam_c = f(u'_c, gap_c + dt u'_c),    u' = J v* + A lam,    contact c                               (11)

f is the force law of force_law_kernels.py. Joint limits and dry friction stay rows with bounds.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import ADJ_CONTACT_ROWS, ADJ_GAP, CONTACT_ROWS, GAP
from pullback.rigid.solvers import pgs_kernels as pgs
from pullback.rigid.solvers.force_law_kernels import compliant_vjp, normal_impulse, solve_normal, solve_sliding
from pullback.rigid.solvers.implicit_kernels import implicit_rows, solve_in_place
from pullback.rigid.solvers.sweep_kernels import solve
from pullback.rigid.step.constraint_kernels import (
    BIAS,
    BLOCK_ROWS,
    DIAGONAL,
    FRACTION,
    FRICTION,
    RESTITUTION,
    SCALAR_BIAS,
    SCALAR_ROWS,
    SHARE,
    SLOPE,
    add_rows,
    row_dots,
    scalar_dot,
)
from pullback.rigid.step.impulse_kernels import apply_impulses, without_impulses
from pullback.rigid.step.problem_kernels import Job, write_problem
from pullback.spatial.arrays import load3, load6, rows_from, store


@wp.func
def drop_biases(job: Job, nc: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Note stiffness and damping; leave contacts no penetration to correct, and no impacts."""
    scratch[job.scratch.material, w] = parameters[job.parameters.material, w]
    scratch[job.scratch.material + 1, w] = parameters[job.parameters.material + 1, w]
    zero = scratch.dtype(0.0)
    for c in range(nc):
        row = job.scratch.blocks + c * BLOCK_ROWS
        scratch[row + BIAS, w] = zero
        scratch[row + SLOPE, w] = zero
        scratch[row + RESTITUTION, w] = zero
        scratch[row + FRACTION, w] = zero
        scratch[row + SHARE, w] = zero


@wp.func
def contact_turn(job: Job, c: int, old: Any, u: Any, D: Any, w: int, scratch: wp.array2d(dtype=Any)):
    """Return the impulse of contact c at the velocity u that it had with the old one: eqs. (12) and (13)."""
    law = job.settings.compliance
    cfm = scratch.dtype(job.settings.cfm)
    half = scratch.dtype(0.5)
    response = D[0] - cfm
    normal = solve_normal(
        old[0], scratch[job.scratch.contacts + c * CONTACT_ROWS + GAP, w], u[0] - response * old[0],
        scratch[job.scratch.material, w], scratch[job.scratch.material + 1, w], response, law,
    )  # fmt: skip
    # no less than the tangents' block of A
    apart = half * (D[3] - D[5])
    response_t = half * (D[3] + D[5]) - cfm + wp.sqrt(apart * apart + D[4] * D[4])
    x1 = u[1] + D[1] * (normal - old[0]) - response_t * old[1]
    x2 = u[2] + D[2] * (normal - old[0]) - response_t * old[2]
    limit = scratch[job.scratch.blocks + c * BLOCK_ROWS + FRICTION, w] * normal
    now = wp.sqrt(u[1] * u[1] + u[2] * u[2])
    v, length = solve_sliding(now, wp.sqrt(x1 * x1 + x2 * x2), limit, scratch.dtype(law.speed), response_t)
    drag = limit / (length + response_t * limit)
    return wp.vector(normal, -drag * x1, -drag * x2)


@wp.func(inline=False)
def compliant_sweeps(job: Job, iterations: int, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Let contacts and rows take turns until they hardly change; return sweeps and the last one's change."""
    scene = job.scene
    place = job.scratch
    contacts = rows_from(scratch, place.contacts)
    blocks = rows_from(scratch, place.blocks)
    Y = rows_from(scratch, place.Y)
    lam = rows_from(scratch, place.lam)
    s = rows_from(scratch, place.s)
    zero = scratch.dtype(0.0)
    sweeps = int(0)
    left = int(iterations)
    change = zero
    while left > 0:
        change = zero
        for c in range(nc):
            old = load3(lam, 3 * c, w)
            D = load6(blocks, c * BLOCK_ROWS + DIAGONAL, w)
            new = contact_turn(job, c, old, row_dots(scene, contacts, c, Y, s, w), D, w, scratch)
            move = new - old
            if move[0] != zero or move[1] != zero or move[2] != zero:
                add_rows(scene, contacts, c, Y, move, w, s)
                store(lam, 3 * c, w, new)
                change = wp.max(change, D[0] * wp.abs(move[0]))
                change = wp.max(change, wp.max(D[3] * wp.abs(move[1]), D[5] * wp.abs(move[2])))
        if ns > 0:
            # one sweep over the other rows
            one, moved = solve(job, 1, 0, ns, place.lam + 3 * nc, w, scratch)
            change = wp.max(change, moved)
        sweeps += 1
        left -= 1
        if change < scratch.dtype(job.settings.tolerance):
            left = 0
    return sweeps, change


@wp.func
def force_law(job: Job, c: int, u: Any, w: int, scratch: wp.array2d(dtype=Any)):
    """Return the impulse f of contact c at the velocity u after the step, and its derivative by u: eq. (14)."""
    law = job.settings.compliance
    zero = u.dtype(0.0)
    one = u.dtype(1.0)
    ahead = u.dtype(law.ahead)
    speed = u.dtype(law.speed)
    gap = scratch[job.scratch.contacts + c * CONTACT_ROWS + GAP, w]
    normal, by_gap, by_u, by_damping = normal_impulse(
        u[0], gap + ahead * u[0], scratch[job.scratch.material, w], scratch[job.scratch.material + 1, w], law
    )
    slope = ahead * by_gap + by_u
    mu = scratch[job.scratch.blocks + c * BLOCK_ROWS + FRICTION, w]
    length = wp.sqrt(u[1] * u[1] + u[2] * u[2] + speed * speed)
    e1 = u[1] / length
    e2 = u[2] / length
    drag = mu * normal / length
    slopes = wp.matrix_from_rows(
        wp.vector(slope, zero, zero),
        wp.vector(-mu * slope * e1, -drag * (one - e1 * e1), drag * e1 * e2),
        wp.vector(-mu * slope * e2, drag * e1 * e2, -drag * (one - e2 * e2)),
    )
    return wp.vector(normal, -drag * u[1], -drag * u[2]), slopes


@wp.func
def is_held(job: Job, k: int, nc: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Tell whether the impulse of scalar row k is between its bounds."""
    place = job.scratch
    lam = scratch[place.lam + 3 * nc + k, w]
    return lam > scratch[place.lower + k, w] and lam < scratch[place.upper + k, w]


@wp.func
def write_system(job: Job, nc: int, ns: int, transposed: bool, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the matrix G of eq. (15), or its transpose, and after it the residuals of all rows."""
    scene = job.scene
    place = job.scratch
    m = 3 * nc + ns
    zero = scratch.dtype(0.0)
    one = scratch.dtype(1.0)
    cfm = scratch.dtype(job.settings.cfm)
    A = rows_from(scratch, place.A)
    G = rows_from(scratch, place.work)
    s = rows_from(scratch, place.s)
    across = m
    down = int(1)
    if transposed:
        across = 1
        down = m
    for c in range(nc):
        u = row_dots(scene, rows_from(scratch, place.contacts), c, rows_from(scratch, place.Y), s, w)
        impulse, slopes = force_law(job, c, u, w, scratch)
        store(G, m * m + 3 * c, w, impulse - load3(scratch, place.lam + 3 * c, w))
        for j in range(m):
            column = wp.vector(A[3 * c * m + j, w], A[(3 * c + 1) * m + j, w], A[(3 * c + 2) * m + j, w])
            # contacts have no other softness than their own
            own = j - 3 * c
            soft = wp.vector(
                wp.where(own == 0, cfm, zero), wp.where(own == 1, cfm, zero), wp.where(own == 2, cfm, zero)
            )
            column = slopes * (column - soft)
            for r in range(3):
                G[(3 * c + r) * across + j * down, w] = wp.where(own == r, one, zero) - column[r]
    for k in range(ns):
        i = 3 * nc + k
        held = is_held(job, k, nc, w, scratch)
        residual = zero
        if held:
            residual = scalar_dot(scene, rows_from(scratch, place.scalars), k, rows_from(scratch, place.Y_scalar), s, w)
            residual += scratch[place.scalars + k * SCALAR_ROWS + SCALAR_BIAS, w] + cfm * scratch[place.lam + i, w]
        G[m * m + i, w] = -residual
        for j in range(m):
            value = wp.where(i == j, one, zero)
            if held:
                value = A[i * m + j, w]
            G[i * across + j * down, w] = value


@wp.func(inline=False)
def newton_step(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Replace the impulses by those of Newton's step on eq. (11); A is there, s is that of the impulses."""
    place = job.scratch
    m = 3 * nc + ns
    step = rows_from(scratch, place.work + m * m)
    write_system(job, nc, ns, False, w, scratch)
    solve_in_place(m, m * m, m * (m + 1), w, rows_from(scratch, place.work))
    size = scratch.dtype(0.0)
    for i in range(m):
        size += wp.abs(step[i, w])
    if wp.isfinite(size):
        for i in range(m):
            value = scratch[place.lam + i, w] + step[i, w]
            if i >= 3 * nc:
                k = i - 3 * nc
                value = wp.clamp(value, scratch[place.lower + k, w], scratch[place.upper + k, w])
            scratch[place.lam + i, w] = value


@wp.func
def polish(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Replace the impulses by those of one of Newton's steps; return False: sweeps have to verify it."""
    without_impulses(job, w, scratch)
    write_problem(job, nc, ns, w, scratch)
    apply_impulses(job, nc, ns, w, scratch)
    newton_step(job, nc, ns, w, scratch)
    apply_impulses(job, nc, ns, w, scratch)
    return False


@wp.func
def never_gains_energy(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Tell that any impulses are taken: springs give energy back."""
    return False


@wp.func
def is_never(job: Job, sweeps: int):
    """Tell that sweeps are not differentiated, and that no row is held: impulses follow the force law."""
    return False


@wp.func(inline=False)
def compliant_solver_vjp(
    job: Job, nc: int, ns: int, sweeps: int, cases: int, w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write kappa with adj_b = -kappa and adj_A = -kappa lam^T, eq. (16), and what gaps, bounds and the law get."""
    scene = job.scene
    place = job.scratch
    law = job.settings.compliance
    m = 3 * nc + ns
    zero = scratch.dtype(0.0)
    x = rows_from(scratch, place.work + m * m)
    kappa = rows_from(scratch, place.multiplier)
    adj_contacts = rows_from(scratch, place.adj_contacts)
    adj_material = rows_from(adj_parameters, job.parameters.material)
    write_system(job, nc, ns, True, w, scratch)
    for i in range(m):
        x[i, w] = scratch[place.adj_lam + i, w]
    solve_in_place(m, m * m, m * (m + 1), w, rows_from(scratch, place.work))
    for c in range(nc):
        u = row_dots(
            scene, rows_from(scratch, place.contacts), c, rows_from(scratch, place.Y), rows_from(scratch, place.s), w
        )
        adj_gap, adj_u, adj_law = compliant_vjp(
            scratch[place.contacts + c * CONTACT_ROWS + GAP, w], u, scratch[place.material, w],
            scratch[place.material + 1, w], scratch[place.blocks + c * BLOCK_ROWS + FRICTION, w],
            scratch.dtype(law.speed), zero, zero, law, load3(scratch, place.lam + 3 * c, w), load3(x, 3 * c, w),
        )  # fmt: skip
        store(kappa, 3 * c, w, -adj_u)
        row = c * ADJ_CONTACT_ROWS + ADJ_GAP
        adj_contacts[row, w] = adj_contacts[row, w] + adj_gap
        scratch[place.adj_mu + c, w] = adj_law[2]
        if adj_material:
            adj_material[0, w] = adj_material[0, w] + adj_law[0]
            adj_material[1, w] = adj_material[1, w] + adj_law[1]
    for k in range(ns):
        i = 3 * nc + k
        lam = scratch[place.lam + i, w]
        free = is_held(job, k, nc, w, scratch)
        above = not free and lam >= scratch[place.upper + k, w]
        kappa[i, w] = wp.where(free, x[i, w], zero)
        scratch[place.adj_upper + k, w] = wp.where(above, x[i, w], zero)
        scratch[place.adj_lower + k, w] = wp.where(free or above, zero, x[i, w])


def functions(real: type) -> dict[Any, Any]:
    """Return what takes the place of the functions of PGS."""
    return {
        pgs.prepare_contacts: drop_biases,
        pgs.needs_matrix: pgs.never_needs_matrix,
        pgs.sweep: compliant_sweeps,
        pgs.polish: polish,
        pgs.gains_energy: never_gains_energy,
        pgs.is_unrolled: is_never,
        pgs.has_held_rows: is_never,
        pgs.solver_vjp: compliant_solver_vjp,
    }


def work_rows(m: int, sweeps: int) -> int:
    """Return the rows of work for a problem of m rows."""
    return implicit_rows(m)
