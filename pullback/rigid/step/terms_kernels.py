"""The terms alpha^T J x and y^T M z of a step's adjoint (docs/derivations/contact_step.md, sections 4 and 5)."""

from typing import Any

import warp as wp

from pullback.rigid.step.constraint_kernels import BLOCK_ROWS, FRACTION, SHARE
from pullback.rigid.step.dynamics_kernels import solve_factor
from pullback.rigid.step.jacobian_kernels import add_jacobian_terms
from pullback.rigid.step.problem_kernels import Job, add_all_rows
from pullback.robot.crba_kernels import mass_product_vjp
from pullback.robot.topology import ARMATURE, DOF_ROWS
from pullback.spatial.arrays import load3, rows_from, store


@wp.func
def jacobian_terms(
    job: Job, nc: int, with_errors: bool, alpha: wp.array2d(dtype=Any), x: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of alpha^T J x, or of alpha^T (J x + bias) for loops, to those in scratch."""
    place = job.scratch
    slope = scratch.dtype(0.0)
    if with_errors:
        slope = scratch.dtype(job.settings.loop_erp / job.settings.dt)
    add_jacobian_terms(
        job.scene, nc, rows_from(scratch, place.contacts), rows_from(scratch, place.blocks),
        rows_from(scratch, place.loops), slope, rows_from(scratch, place.poses), alpha, x, w,
        rows_from(scratch, place.adj_contacts), rows_from(scratch, place.adj_loops),
        rows_from(scratch, place.wrench), rows_from(scratch, place.motion),
    )  # fmt: skip


@wp.func(inline=False)
def mass_terms(
    job: Job, y: wp.array2d(dtype=Any), z: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    adj_q: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the derivatives of y^T M z."""
    rows = job.parameters
    adj_dofs = rows_from(adj_parameters, rows.dofs)
    mass_product_vjp(
        job.scene.topology, rows_from(scratch, job.scratch.q), rows_from(parameters, rows.placements),
        rows_from(parameters, rows.inertias), y, z, w, adj_q, rows_from(adj_parameters, rows.placements),
        rows_from(adj_parameters, rows.inertias), rows_from(scratch, job.scratch.recursion),
    )  # fmt: skip
    if adj_dofs:
        for v in range(job.scene.topology.nv):
            row = DOF_ROWS * v + ARMATURE
            adj_dofs[row, w] = adj_dofs[row, w] + y[v, w] * z[v, w]


@wp.func
def write_shares(
    job: Job, nc: int, ns: int, factor: Any, w: int, scratch: wp.array2d(dtype=Any), out: wp.array2d(dtype=Any)
):
    """Write factor kappa times the share of free motion in the bias, for all rows."""
    zero = scratch.dtype(0.0)
    for c in range(nc):
        value = factor * scratch[job.scratch.multiplier + 3 * c, w]
        store(out, 3 * c, w, wp.vector(value * scratch[job.scratch.blocks + c * BLOCK_ROWS + SHARE, w], zero, zero))
    for k in range(ns):
        out[3 * nc + k, w] = zero


@wp.func
def prepare_term(job: Job, term: int, nc: int, ns: int, impacts: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write alpha and rates x of one term alpha^T J x, and y, z of one y^T M z; tell 1, 2 or 3: which there are.

    Term 0 is that of velocities before an impact, its weights written already; 1 and 2 those of eq. (10); 3 that of
    coordinates that impacts shift; 4 and 5 those of free motion in an impact's bias; the others, one a row, are what
    sweeps that have not converged leave: eq. (11).
    """
    place = job.scratch
    nv = job.scene.topology.nv
    m = 3 * nc + ns
    moving = 3 * nc + job.scene.nloop_row  # rows of J that are not constant, the first ones
    kappa = rows_from(scratch, place.multiplier)
    lam = rows_from(scratch, place.lam)
    alpha = rows_from(scratch, place.alpha)
    rates = rows_from(scratch, place.rates)
    y = rows_from(scratch, place.zeta)
    z = rows_from(scratch, place.shift)
    zero = scratch.dtype(0.0)
    one = scratch.dtype(1.0)
    kinds = int(1)
    source = int(place.qd)
    if term == 0:
        kinds = impacts & 1
    elif term == 1:
        source = place.nu
        for r in range(moving):
            alpha[r, w] = lam[r, w]
    elif term == 2:
        source = place.moved
        for r in range(moving):
            alpha[r, w] = -kappa[r, w]
    elif term == 3:
        source = place.zeta
        kinds = 0
        if impacts >= 2:
            kinds = 3
            solve_factor(job.scene, rows_from(scratch, place.L), w, y)
            for c in range(nc):
                fraction = scratch[place.blocks + c * BLOCK_ROWS + FRACTION, w]
                store(alpha, 3 * c, w, (-fraction) * load3(lam, 3 * c, w))
            for r in range(3 * nc, moving):
                alpha[r, w] = zero
    elif term == 4:
        source = place.rates
        kinds = 3 * (impacts & 1)
        if kinds > 0:
            for v in range(nv):
                y[v, w] = zero
                z[v, w] = zero
            add_all_rows(job, nc, ns, lam, one, w, scratch, z)
            write_shares(job, nc, ns, -one, w, scratch, alpha)
            add_all_rows(job, nc, ns, alpha, one, w, scratch, y)
            solve_factor(job.scene, rows_from(scratch, place.L), w, z)
            solve_factor(job.scene, rows_from(scratch, place.L), w, y)
            for v in range(nv):
                rates[v, w] = -y[v, w]
            for r in range(moving):
                alpha[r, w] = lam[r, w]
    elif term == 5:
        source = place.rates
        kinds = impacts & 1
        if kinds > 0:
            write_shares(job, nc, ns, -one, w, scratch, alpha)
            for v in range(nv):
                rates[v, w] = scratch[place.moved + v, w] - z[v, w]
    else:
        r = term - 6
        source = place.shift
        kinds = 3
        if r >= moving:
            kinds = 2
        weights = rows_from(scratch, place.adj_lam)
        adj_A = rows_from(scratch, place.adj_A)
        for v in range(nv):
            y[v, w] = zero
            z[v, w] = zero
        for k in range(m):
            alpha[k, w] = zero
            weights[k, w] = scratch.dtype(0.5) * (
                adj_A[r * m + k, w] + adj_A[k * m + r, w] + kappa[r, w] * lam[k, w] + kappa[k, w] * lam[r, w]
            )
        add_all_rows(job, nc, ns, weights, one, w, scratch, z)
        alpha[r, w] = one
        add_all_rows(job, nc, ns, alpha, -one, w, scratch, y)
        alpha[r, w] = one + one
        solve_factor(job.scene, rows_from(scratch, place.L), w, z)
        solve_factor(job.scene, rows_from(scratch, place.L), w, y)
    if source != place.rates:
        for v in range(nv):
            rates[v, w] = scratch[source + v, w]
    return kinds
