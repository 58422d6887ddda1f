"""The adjoint of the rows of a step: biases, and terms alpha^T J x and y^T M z.

docs/derivations/contact_step.md, sections 4 and 5.

All terms go through one loop, so that the code that differentiates J and M is compiled once.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import ADJ_CONTACT_ROWS, ADJ_GAP, CONTACT_ROWS, GAP, PAIR, PAIR_ROWS
from pullback.rigid.solvers.pgs_kernels import is_unrolled
from pullback.rigid.step.actuator_kernels import actuator_inertias_vjp
from pullback.rigid.step.constraint_kernels import (
    APPROACH,
    BIAS,
    BLOCK_ROWS,
    DOF,
    FRACTION,
    RESTITUTION,
    SCALAR_ROWS,
    SCALAR_SLOPE,
    SHARE,
    SIGN,
    SLOPE,
    is_limit,
    row_dots,
)
from pullback.rigid.step.coupling_kernels import coupling_bias_vjp, coupling_jacobian_vjp
from pullback.rigid.step.dynamics_kernels import add_transposed_product, solve_factor
from pullback.rigid.step.force_kernels import damping_ahead_vjp
from pullback.rigid.step.jacobian_kernels import jacobian_vjp
from pullback.rigid.step.problem_kernels import Job, add_all_rows
from pullback.robot.crba_kernels import mass_product_vjp
from pullback.robot.topology import ARMATURE, DOF_ROWS
from pullback.spatial.arrays import load3, rows_from, store

# what a term consists of, as flags
HAS_J_TERM = wp.constant(1)
HAS_M_TERM = wp.constant(2)

# the terms, in this order; those from UNCONVERGED on, one a row, are only there where sweeps are differentiated
APPROACHING = wp.constant(0)  # velocities before an impact, in its bias
IMPULSES = wp.constant(1)  # lam^T J nu of eq. (10)
MULTIPLIERS = wp.constant(2)  # -kappa^T J v of eq. (10)
SHIFTED = wp.constant(3)  # coordinates that impacts shift, eq. (5)
FREE_MOTION = wp.constant(4)  # free motion in the bias of an impact: its change by forces,
FREE_VELOCITY = wp.constant(5)  # and J v*
UNCONVERGED = wp.constant(6)  # eq. (11)


# -- biases ----------------------------------------------------------------------------------------------------------


@wp.func
def contact_bias_vjp(job: Job, nc: int, w: int, adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any)):
    """Add the cotangents of gaps, friction and restitution; write the weights of J qd; return whether any bounces."""
    scene = job.scene
    place = job.scratch
    contacts = rows_from(scratch, place.contacts)
    blocks = rows_from(scratch, place.blocks)
    adj_contacts = rows_from(scratch, place.adj_contacts)
    adj_pairs = rows_from(adj_parameters, job.parameters.pairs)
    zero = scratch.dtype(0.0)
    dt = scratch[place.span, w]
    bounces = bool(False)
    for c in range(nc):
        row = c * BLOCK_ROWS
        pair = int(contacts[c * CONTACT_ROWS + PAIR, w])
        adj_bias = -scratch[place.multiplier + 3 * c, w]
        adj_gap = adj_bias * blocks[row + SLOPE, w]
        restitution = blocks[row + RESTITUTION, w]
        approach = blocks[row + APPROACH, w]
        fraction = blocks[row + FRACTION, w]
        fall = scratch[place.b + 3 * c, w] - blocks[row + BIAS, w] - approach
        adj_approach = adj_bias * (restitution - blocks[row + SHARE, w])
        if fraction > zero:
            asked = row_dots(scene, contacts, c, rows_from(scratch, place.Y), rows_from(scratch, place.zeta_s), w)
            power = wp.dot(load3(scratch, place.lam + 3 * c, w), asked)
            gap = contacts[c * CONTACT_ROWS + GAP, w]
            adj_fraction = adj_bias * (scratch.dtype(1.0) + restitution) * fall - power
            adj_gap -= adj_fraction / (approach * dt)
            adj_approach += adj_fraction * gap / (approach * approach * dt)
        adj_contacts[c * ADJ_CONTACT_ROWS + ADJ_GAP, w] = adj_contacts[c * ADJ_CONTACT_ROWS + ADJ_GAP, w] + adj_gap
        store(scratch, place.alpha + 3 * c, w, wp.vector(adj_approach, zero, zero))
        if adj_pairs:
            adj_pairs[pair * PAIR_ROWS, w] = adj_pairs[pair * PAIR_ROWS, w] + scratch[place.adj_mu + c, w]
        if restitution > zero:
            bounces = True
            if adj_pairs:
                adj_pairs[pair * PAIR_ROWS + 1, w] = adj_pairs[pair * PAIR_ROWS + 1, w] + adj_bias * (
                    approach + fraction * fall
                )
    return bounces


@wp.func
def scalar_bias_vjp(
    job: Job, nc: int, ns: int, w: int, adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any)
):
    """Add the cotangents of joint limits and of dry friction; these rows have no weights of J qd."""
    scene = job.scene
    place = job.scratch
    scalars = rows_from(scratch, place.scalars)
    adj_q = rows_from(scratch, place.adj_q)
    adj_friction = rows_from(adj_parameters, job.parameters.friction)
    zero = scratch.dtype(0.0)
    dt = scratch[place.span, w]
    for k in range(ns):
        scratch[place.alpha + 3 * nc + k, w] = zero
    for k in range(scene.nloop_row + scene.ncoupling, ns):
        row = k * SCALAR_ROWS
        v = int(scalars[row + DOF, w])
        if is_limit(scalars, k, w):
            coordinate = scene.dof_coordinate[v]
            sign = scalars[row + SIGN, w]
            adj_gap = -scratch[place.multiplier + 3 * nc + k, w] * scalars[row + SCALAR_SLOPE, w] * sign
            adj_q[coordinate, w] = adj_q[coordinate, w] + adj_gap
            if adj_parameters:
                end = job.parameters.limits + 2 * v
                if sign < zero:
                    end += 1
                adj_parameters[end, w] = adj_parameters[end, w] - adj_gap
        elif adj_friction:
            adj_bound = scratch[place.adj_upper + k, w] - scratch[place.adj_lower + k, w]
            adj_friction[v, w] = adj_friction[v, w] + dt * adj_bound


@wp.func
def approach_vjp(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Add the cotangent of qd for that of the velocities J qd with which contacts approach, weights alpha."""
    place = job.scratch
    adj_start = rows_from(scratch, place.adj_start)
    for v in range(job.scene.topology.nv):
        adj_start[v, w] = scratch.dtype(0.0)
    add_all_rows(job, nc, ns, rows_from(scratch, place.alpha), scratch.dtype(1.0), w, scratch, adj_start)
    add_transposed_product(
        job.scene, rows_from(scratch, place.L), adj_start, w, rows_from(scratch, place.adj_qd)
    )  # fmt: skip


# -- terms -----------------------------------------------------------------------------------------------------------


@wp.func
def write_free_motion_weights(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write alpha = -kappa times the share of free motion in the bias, for all rows."""
    place = job.scratch
    zero = scratch.dtype(0.0)
    for c in range(nc):
        value = -scratch[place.multiplier + 3 * c, w]
        share = scratch[place.blocks + c * BLOCK_ROWS + SHARE, w]
        store(scratch, place.alpha + 3 * c, w, wp.vector(value * share, zero, zero))
    for k in range(ns):
        scratch[place.alpha + 3 * nc + k, w] = zero


@wp.func
def write_shift_term(job: Job, nc: int, moving: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the term of coordinates that impacts shift: y = x = L^-1 of their cotangent, z the shift."""
    place = job.scratch
    y = rows_from(scratch, place.y)
    for v in range(job.scene.topology.nv):
        y[v, w] = scratch[place.zeta_s + v, w]
        scratch[place.z + v, w] = scratch[place.shift + v, w]
    solve_factor(job.scene, rows_from(scratch, place.L), w, y)
    for c in range(nc):
        fraction = scratch[place.blocks + c * BLOCK_ROWS + FRACTION, w]
        store(scratch, place.alpha + 3 * c, w, (-fraction) * load3(scratch, place.lam + 3 * c, w))
    for r in range(3 * nc, moving):
        scratch[place.alpha + r, w] = scratch.dtype(0.0)


@wp.func
def write_free_motion_term(job: Job, nc: int, ns: int, moving: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the term of free motion in an impact's bias that goes through M: z = M^-1 J^T lam, y = M^-1 J^T alpha."""
    place = job.scratch
    nv = job.scene.topology.nv
    one = scratch.dtype(1.0)
    y = rows_from(scratch, place.y)
    z = rows_from(scratch, place.z)
    alpha = rows_from(scratch, place.alpha)
    lam = rows_from(scratch, place.lam)
    for v in range(nv):
        y[v, w] = scratch.dtype(0.0)
        z[v, w] = scratch.dtype(0.0)
    add_all_rows(job, nc, ns, lam, one, w, scratch, z)
    write_free_motion_weights(job, nc, ns, w, scratch)
    add_all_rows(job, nc, ns, alpha, one, w, scratch, y)
    solve_factor(job.scene, rows_from(scratch, place.L), w, z)
    solve_factor(job.scene, rows_from(scratch, place.L), w, y)
    for v in range(nv):
        scratch[place.rates + v, w] = -y[v, w]
    for r in range(moving):
        alpha[r, w] = lam[r, w]


@wp.func
def write_unconverged_term(job: Job, r: int, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the term of row r of H in eq. (11): z = K times the row, y = -K e_r, alpha = 2 e_r."""
    place = job.scratch
    m = 3 * nc + ns
    zero = scratch.dtype(0.0)
    one = scratch.dtype(1.0)
    y = rows_from(scratch, place.y)
    z = rows_from(scratch, place.z)
    alpha = rows_from(scratch, place.alpha)
    lam = rows_from(scratch, place.lam)
    kappa = rows_from(scratch, place.multiplier)
    adj_A = rows_from(scratch, place.adj_A)
    weights = rows_from(scratch, place.weights)
    for v in range(job.scene.topology.nv):
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


@wp.func
def write_term(
    job: Job, term: int, nc: int, ns: int, bounces: bool, shifted: bool, w: int, scratch: wp.array2d(dtype=Any)
):
    """Write alpha and the rates x of one term alpha^T J x, and y, z of one y^T M z; return which of them there are."""
    place = job.scratch
    moving = 3 * nc + job.scene.nloop_row + job.scene.ncoupling  # rows of J that are not constant, the first ones
    source = int(place.qd)  # of the rates
    has = int(HAS_J_TERM)
    if term == APPROACHING:
        has = wp.where(bounces, HAS_J_TERM, 0)
    elif term == IMPULSES:
        source = place.nu
        for r in range(moving):
            scratch[place.alpha + r, w] = scratch[place.lam + r, w]
    elif term == MULTIPLIERS:
        source = place.velocity
        for r in range(moving):
            scratch[place.alpha + r, w] = -scratch[place.multiplier + r, w]
    elif term == SHIFTED:
        source = place.y
        has = wp.where(shifted, HAS_J_TERM | HAS_M_TERM, 0)
        if shifted:
            write_shift_term(job, nc, moving, w, scratch)
    elif term == FREE_MOTION:
        source = place.rates
        has = wp.where(bounces, HAS_J_TERM | HAS_M_TERM, 0)
        if bounces:
            write_free_motion_term(job, nc, ns, moving, w, scratch)
    elif term == FREE_VELOCITY:
        source = place.rates
        has = wp.where(bounces, HAS_J_TERM, 0)
        if bounces:
            write_free_motion_weights(job, nc, ns, w, scratch)
            for v in range(job.scene.topology.nv):
                scratch[place.rates + v, w] = scratch[place.velocity + v, w] - scratch[place.z + v, w]
    else:
        source = place.z
        has = HAS_J_TERM | HAS_M_TERM
        if term - UNCONVERGED >= moving:
            has = HAS_M_TERM
        write_unconverged_term(job, term - UNCONVERGED, nc, ns, w, scratch)
    if source != place.rates:
        for v in range(job.scene.topology.nv):
            scratch[place.rates + v, w] = scratch[source + v, w]
    return has


@wp.func(inline=False)
def mass_matrix_vjp(
    job: Job, parameters: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the derivatives of y^T M z."""
    rows = job.parameters
    y = rows_from(scratch, job.scratch.y)
    z = rows_from(scratch, job.scratch.z)
    adj_dofs = rows_from(adj_parameters, rows.dofs)
    mass_product_vjp(
        job.scene.topology, rows_from(scratch, job.scratch.q), rows_from(parameters, rows.placements),
        rows_from(parameters, rows.inertias), y, z, w, rows_from(scratch, job.scratch.adj_q),
        rows_from(adj_parameters, rows.placements), rows_from(adj_parameters, rows.inertias),
        rows_from(scratch, job.scratch.recursion),
    )  # fmt: skip
    if adj_dofs:
        for v in range(job.scene.topology.nv):
            row = DOF_ROWS * v + ARMATURE
            adj_dofs[row, w] = adj_dofs[row, w] + y[v, w] * z[v, w]
        damping_ahead_vjp(job, y, z, w, adj_parameters, scratch)
        actuator_inertias_vjp(job, parameters, w, adj_parameters, scratch)


@wp.func
def rows_vjp(
    job: Job, nc: int, ns: int, sweeps: int, shifted: bool, parameters: wp.array2d(dtype=Any), w: int,
    adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add what the rows ask for: of parameters and coordinates by their biases, of bodies' poses by J, and by M."""
    bounces = contact_bias_vjp(job, nc, w, adj_parameters, scratch)
    scalar_bias_vjp(job, nc, ns, w, adj_parameters, scratch)
    coupling_bias_vjp(job, nc, parameters, w, adj_parameters, scratch)
    if bounces:
        approach_vjp(job, nc, ns, w, scratch)
    terms = int(UNCONVERGED)
    if is_unrolled(job, sweeps):
        terms += 3 * nc + ns
    for term in range(terms):
        has = write_term(job, term, nc, ns, bounces, shifted, w, scratch)
        if has & HAS_J_TERM != 0:
            # the errors of loops come with J v
            jacobian_vjp(job, nc, term == MULTIPLIERS, w, scratch)
            coupling_jacobian_vjp(job, nc, w, adj_parameters, scratch)
        if has & HAS_M_TERM != 0:
            mass_matrix_vjp(job, parameters, w, adj_parameters, scratch)
