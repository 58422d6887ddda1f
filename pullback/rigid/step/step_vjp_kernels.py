"""The adjoint of one step (docs/derivations/contact_step.md, sections 3 to 5).

Seen as equations for v and lam, a step is inverse dynamics with the contact forces in it, and the rows that hold:

    ID(q, qd, a) = tau + J^T lam / dt,    a = (v - qd) / dt - c,    J v + bias + cfm lam = 0                    (8)

With g the cotangent of v, gamma = L^-T g, adj_lam = Y gamma, and kappa the multiplier of the solver's adjoint,

    eta = gamma - Y^T kappa,    nu = L^-1 eta,    adj_tau = dt nu,    adj_qd = L^T eta + ...                    (9)

and all the rest is the derivative, at fixed a, v, lam, nu, kappa, of

    -dt nu^T ID + lam^T J nu - kappa^T (J v + bias)                                                             (10)

Sweeps that have not converged leave more. With H = adj_A + kappa lam^T, symmetrised, and K = M^-1 J^T, it is

    2 H:(dJ K) - H:(K^T dM K)                                                                                   (11)
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.collide_kernels import contact_vjp
from pullback.rigid.compile.scene import CONTACT_ROWS, GAP, LOOP_ROWS, PAIR, PAIR_ROWS
from pullback.rigid.solvers.pgs_kernels import is_unrolled, solver_vjp
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
    row_dots,
)
from pullback.rigid.step.dynamics_kernels import (
    add_transposed_product,
    gather_wrenches,
    solve_factor,
    solve_transposed,
)
from pullback.rigid.step.force_kernels import forces_vjp
from pullback.rigid.step.impulse_kernels import started_warm
from pullback.rigid.step.integrate_kernels import (
    add_axes_rate,
    add_axes_rate_vjp,
    integrate_vjp,
    turn_axes_vjp,
)
from pullback.rigid.step.jacobian_kernels import (
    ADJ_CONTACT_ROWS,
    ADJ_GAP,
    ADJ_NORMAL,
    ADJ_POINT,
)
from pullback.rigid.step.loop_kernels import loop_frames_vjp
from pullback.rigid.step.problem_kernels import Job, add_all_rows, rows_of
from pullback.rigid.step.resolve_kernels import resolve
from pullback.rigid.step.sides_kernels import find_kinks, judge_sides, take_sides
from pullback.rigid.step.step_kernels import contact_problem, impact_shift, move
from pullback.rigid.step.terms_kernels import jacobian_terms, mass_terms, prepare_term, write_shares
from pullback.rigid.step.warm_kernels import add_store_impulses_vjp, load_impulses_vjp
from pullback.spatial.arrays import load3, rows_from, store


@wp.func
def bias_terms(
    job: Job, nc: int, ns: int, w: int, adj_q: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of gaps, friction, restitution and bounds; write the weights of J qd in alpha, tell if any."""
    scene = job.scene
    place = job.scratch
    contacts = rows_from(scratch, place.contacts)
    blocks = rows_from(scratch, place.blocks)
    scalars = rows_from(scratch, place.scalars)
    kappa = rows_from(scratch, place.multiplier)
    alpha = rows_from(scratch, place.alpha)
    adj_contacts = rows_from(scratch, place.adj_contacts)
    adj_mu = rows_from(scratch, place.adj_mu)
    adj_lower = rows_from(scratch, place.adj_lower)
    adj_upper = rows_from(scratch, place.adj_upper)
    lam = rows_from(scratch, place.lam)
    zeta = rows_from(scratch, place.zeta)
    adj_pairs = rows_from(adj_parameters, job.parameters.pairs)
    adj_friction = rows_from(adj_parameters, job.parameters.friction)
    zero = scratch.dtype(0.0)
    dt = scratch.dtype(job.settings.dt)
    any_impact = int(0)
    for c in range(nc):
        row = c * BLOCK_ROWS
        pair = int(contacts[c * CONTACT_ROWS + PAIR, w])
        adj_bias = -kappa[3 * c, w]
        adj_gap = adj_bias * blocks[row + SLOPE, w]
        restitution = blocks[row + RESTITUTION, w]
        approach = blocks[row + APPROACH, w]
        fraction = blocks[row + FRACTION, w]
        fall = scratch[place.b + 3 * c, w] - blocks[row + BIAS, w] - approach
        adj_approach = adj_bias * (restitution - blocks[row + SHARE, w])
        if fraction > zero:
            # zeta holds L^-T of the coordinates' cotangent here
            power = wp.dot(load3(lam, 3 * c, w), row_dots(scene, contacts, c, rows_from(scratch, place.Y), zeta, w))
            gap = contacts[c * CONTACT_ROWS + GAP, w]
            adj_fraction = adj_bias * (scratch.dtype(1.0) + restitution) * fall - power
            adj_gap -= adj_fraction / (approach * dt)
            adj_approach += adj_fraction * gap / (approach * approach * dt)
        adj_contacts[c * ADJ_CONTACT_ROWS + ADJ_GAP, w] = adj_contacts[c * ADJ_CONTACT_ROWS + ADJ_GAP, w] + adj_gap
        store(alpha, 3 * c, w, wp.vector(adj_approach, zero, zero))
        if adj_pairs:
            adj_pairs[pair * PAIR_ROWS, w] = adj_pairs[pair * PAIR_ROWS, w] + adj_mu[c, w]
        if restitution > zero:
            any_impact = 1
            if adj_pairs:
                adj_pairs[pair * PAIR_ROWS + 1, w] = adj_pairs[pair * PAIR_ROWS + 1, w] + adj_bias * (
                    approach + fraction * fall
                )
    for k in range(scene.nloop_row):
        alpha[3 * nc + k, w] = zero
    for k in range(scene.nloop_row, ns):
        row = k * SCALAR_ROWS
        v = int(scalars[row + DOF, w])
        slope = scalars[row + SCALAR_SLOPE, w]
        alpha[3 * nc + k, w] = zero
        if slope > zero:
            coordinate = scene.dof_coordinate[v]
            sign = scalars[row + SIGN, w]
            adj_gap = -kappa[3 * nc + k, w] * slope * sign
            adj_q[coordinate, w] = adj_q[coordinate, w] + adj_gap
            if adj_parameters:
                end = job.parameters.limits + 2 * v
                if sign < zero:
                    end += 1
                adj_parameters[end, w] = adj_parameters[end, w] - adj_gap
        elif adj_friction:
            adj_friction[v, w] = adj_friction[v, w] + dt * (adj_upper[k, w] - adj_lower[k, w])
    return any_impact


@wp.func
def step_vjp(
    # model
    job: Job,
    # in: the state before the step, its contact problem solved, and the cotangents of the state after it, in scratch
    nc: int,
    ns: int,
    sweeps: int,
    u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any),
    w: int,
    # out: the cotangents of the state before, in scratch; the others are added to
    adj_u: wp.array2d(dtype=Any),
    adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):
    """Pull the cotangents of a step's result back through it."""
    scene = job.scene
    topology = scene.topology
    place = job.scratch
    rows = job.parameters
    nv = topology.nv
    zero = scratch.dtype(0.0)
    one = scratch.dtype(1.0)
    dt = scratch.dtype(job.settings.dt)
    q = rows_from(scratch, place.q)
    qd = rows_from(scratch, place.qd)
    poses = rows_from(scratch, place.poses)
    L = rows_from(scratch, place.L)
    s = rows_from(scratch, place.s)
    moved = rows_from(scratch, place.moved)
    shift = rows_from(scratch, place.shift)
    gamma = rows_from(scratch, place.gamma)
    nu = rows_from(scratch, place.nu)
    zeta = rows_from(scratch, place.zeta)
    acceleration = rows_from(scratch, place.acceleration)
    adj_q = rows_from(scratch, place.adj_q)
    adj_qd = rows_from(scratch, place.adj_qd)
    adj_lam = rows_from(scratch, place.adj_lam)
    kappa = rows_from(scratch, place.multiplier)
    alpha = rows_from(scratch, place.alpha)
    contacts = rows_from(scratch, place.contacts)
    blocks = rows_from(scratch, place.blocks)
    adj_contacts = rows_from(scratch, place.adj_contacts)
    wrench = rows_from(scratch, place.wrench)
    # bit 2: some impacts come later than the step's start; bit 1, set below: there are impacts
    impacts = int(2 * impact_shift(job, nc, w, scratch, shift))
    for v in range(nv):
        moved[v, w] = s[v, w]
    solve_factor(scene, L, w, moved)
    for v in range(nv):
        acceleration[v, w] = moved[v, w]
        gamma[v, w] = scratch[place.next_adj_qd + v, w]
        if impacts >= 2:
            acceleration[v, w] = moved[v, w] - shift[v, w]
    # eq. (4) backwards; zeta is what the coordinates ask of the velocity
    integrate_vjp(scene, dt, q, acceleration, rows_from(scratch, place.next_adj_q), w, adj_q, zeta)
    turn_axes_vjp(scene, dt, acceleration, moved, w, zeta, gamma)
    for v in range(nv):
        gamma[v, w] = gamma[v, w] + zeta[v, w]
        adj_qd[v, w] = zero
        acceleration[v, w] = -qd[v, w]
    add_axes_rate(scene, -dt, qd, w, acceleration)
    for v in range(nv):
        acceleration[v, w] = (moved[v, w] + acceleration[v, w]) / dt
    solve_transposed(scene, L, w, gamma)
    # the solver
    rows_of(job, nc, ns, gamma, w, scratch, adj_lam)
    if impacts >= 2:
        solve_transposed(scene, L, w, zeta)
        for c in range(nc):
            fraction = blocks[c * BLOCK_ROWS + FRACTION, w]
            if fraction > zero:
                asked = row_dots(scene, contacts, c, rows_from(scratch, place.Y), zeta, w)
                store(adj_lam, 3 * c, w, load3(adj_lam, 3 * c, w) - fraction * asked)
    if job.nimpulse > 0:
        next_adj = rows_from(scratch, place.next_adj_impulses)
        add_store_impulses_vjp(scene, nc, ns, rows_from(scratch, place.scalars), next_adj, w, adj_lam)
    # impulses that are no solution are differentiated as the sweeps they come from
    unrolled = is_unrolled(job, sweeps)
    for r in range(ADJ_CONTACT_ROWS * nc):
        adj_contacts[r, w] = zero
    ties = int(0)
    cases = int(place.lam)
    attempt = int(2)
    if job.settings.kinks == 1 and not unrolled:
        ties = find_kinks(job, nc, ns, w, scratch)
        if ties > 0:
            cases = place.sides
            attempt = 0
    while attempt <= 2 * (ties + 1):
        if ties > 0:
            take_sides(job, nc, ns, attempt, ties, w, scratch)
        solver_vjp(job, nc, ns, sweeps, cases, w, adj_parameters, scratch)
        add_all_rows(job, nc, ns, kappa, -one, w, scratch, gamma)  # eq. (9): gamma is eta from here on
        write_shares(job, nc, ns, -one, w, scratch, alpha)
        add_all_rows(job, nc, ns, alpha, one, w, scratch, gamma)
        for v in range(nv):
            nu[v, w] = gamma[v, w]
        solve_factor(scene, L, w, nu)
        if ties > 0:
            attempt = judge_sides(job, nc, ns, attempt, ties, u, parameters, w, scratch)
        else:
            attempt += 1
    for r in range(job.nimpulse):
        scratch[place.adj_impulses + r, w] = zero
    if unrolled and started_warm(job, w, scratch):
        load_impulses_vjp(
            scene, nc, ns, contacts, rows_from(scratch, place.scalars), rows_from(scratch, place.impulses),
            rows_from(scratch, place.start_lam), w, rows_from(scratch, place.adj_impulses),
        )  # fmt: skip
    add_transposed_product(scene, L, gamma, w, adj_qd)
    for v in range(nv):
        gamma[v, w] = adj_qd[v, w]
    add_axes_rate_vjp(scene, dt, qd, gamma, w, adj_qd)
    # rows: biases, then how J changes, eq. (10)
    for i in range(6 * topology.nbody):
        wrench[i, w] = zero
    for r in range(LOOP_ROWS * scene.nloop):
        scratch[place.adj_loops + r, w] = zero
    if nc + ns > 0:
        if bias_terms(job, nc, ns, w, adj_q, adj_parameters, scratch) == 1:
            for v in range(nv):
                gamma[v, w] = zero
            add_all_rows(job, nc, ns, alpha, one, w, scratch, gamma)
            add_transposed_product(scene, L, gamma, w, adj_qd)
            impacts = impacts | 1
    # how J changes and, where it is left over, M
    terms = int(6)
    if unrolled:
        terms += 3 * nc + ns
    if nc + ns == 0:
        terms = 0
    for term in range(terms):
        kinds = prepare_term(job, term, nc, ns, impacts, w, scratch)
        if kinds & 1 == 1:
            # the errors of loops come with J v
            jacobian_terms(job, nc, term == 2, alpha, rows_from(scratch, place.rates), w, scratch)
        if kinds & 2 == 2:
            mass_terms(job, zeta, shift, parameters, w, adj_q, adj_parameters, scratch)
    for c in range(nc):
        row = c * ADJ_CONTACT_ROWS
        contact_vjp(
            scene, poses, rows_from(parameters, rows.shapes), w, contacts, c,
            adj_contacts[row + ADJ_GAP, w], load3(adj_contacts, row + ADJ_POINT, w),
            load3(adj_contacts, row + ADJ_NORMAL, w), wrench, rows_from(adj_parameters, rows.shapes),
            rows_from(scratch, place.candidates),
        )  # fmt: skip
    loop_frames_vjp(
        scene, poses, rows_from(scratch, place.loops), rows_from(scratch, place.adj_loops), w, wrench,
        rows_from(adj_parameters, rows.loops),
    )  # fmt: skip
    if nc + scene.nloop > 0:
        gather_wrenches(
            scene, q, rows_from(parameters, rows.placements), poses, w, wrench, adj_q,
            rows_from(adj_parameters, rows.placements),
        )  # fmt: skip
    # forces, eq. (9), and inverse dynamics
    for v in range(nv):
        nu[v, w] = dt * nu[v, w]
    forces_vjp(job, q, qd, acceleration, u, parameters, w, nu, adj_q, adj_qd, adj_u, adj_parameters, scratch, nowhere)


@wp.func
def retrace(
    job: Job, pulls_back: bool, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    adj_u: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Do the step from the state in scratch again, or pull the cotangents of its result back through it."""
    found, ns = contact_problem(job, u, parameters, w, scratch)
    nc = wp.min(found, job.scene.max_contacts)
    sweeps = resolve(job, nc, ns, pulls_back, w, scratch)
    if pulls_back:
        step_vjp(job, nc, ns, sweeps, u, parameters, w, adj_u, adj_parameters, scratch, nowhere)
    else:
        move(job, nc, ns, w, scratch)
