"""The adjoint of one step (docs/derivations/contact_step.md, sections 3 to 5), stage by stage.

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
from pullback.rigid.compile.scene import ADJ_CONTACT_ROWS, ADJ_GAP, ADJ_NORMAL, ADJ_POINT, LOOP_ROWS
from pullback.rigid.solvers.pgs_kernels import is_unrolled, solver_vjp
from pullback.rigid.step.constraint_kernels import BLOCK_ROWS, FRACTION, row_dots
from pullback.rigid.step.dynamics_kernels import (
    add_transposed_product,
    gather_wrenches,
    solve_factor,
    solve_transposed,
)
from pullback.rigid.step.force_kernels import forces_vjp
from pullback.rigid.step.impulse_kernels import started_warm
from pullback.rigid.step.integrate_kernels import add_axes_rate_vjp, integrate_vjp, turn_axes_vjp
from pullback.rigid.step.lanes_kernels import converge
from pullback.rigid.step.loop_kernels import loop_frames_vjp
from pullback.rigid.step.problem_kernels import Job, Motion, add_all_rows, rows_of
from pullback.rigid.step.rows_vjp_kernels import rows_vjp, write_free_motion_weights
from pullback.rigid.step.sides_kernels import find_kinks, judge_sides, take_sides
from pullback.rigid.step.step_kernels import move, solve_step, write_acceleration, write_velocities
from pullback.rigid.step.tree_energy_kernels import is_corrected
from pullback.rigid.step.tree_energy_vjp_kernels import correction_vjp
from pullback.rigid.step.warm_kernels import add_store_impulses_vjp, load_impulses_vjp
from pullback.spatial.arrays import load3, rows_from, store


@wp.func
def motion_vjp(job: Job, nc: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Pull back through eq. (4): write adj_q, zeta, what the coordinates ask of the velocity, and gamma.

    Return whether impacts shift the coordinates, eq. (5).
    """
    scene = job.scene
    place = job.scratch
    dt = scratch[place.span, w]
    travel = rows_from(scratch, place.travel)
    gamma = rows_from(scratch, place.gamma)
    zeta = rows_from(scratch, place.zeta)
    shifted = write_velocities(job, nc, w, scratch)
    write_acceleration(job, w, scratch)
    for v in range(scene.topology.nv):
        gamma[v, w] = scratch[place.next_adj_qd + v, w]
    integrate_vjp(
        scene, dt, rows_from(scratch, place.q), travel, rows_from(scratch, place.next_adj_q), w,
        rows_from(scratch, place.adj_q), zeta,
    )  # fmt: skip
    turn_axes_vjp(scene, dt, travel, rows_from(scratch, place.velocity), w, zeta, gamma)
    for v in range(scene.topology.nv):
        gamma[v, w] = gamma[v, w] + zeta[v, w]
    solve_transposed(scene, rows_from(scratch, place.L), w, gamma)
    return shifted


@wp.func
def impulses_vjp(job: Job, nc: int, ns: int, shifted: bool, w: int, scratch: wp.array2d(dtype=Any)):
    """Write adj_lam = Y gamma, less what impacts late in the step do not move, and what the next step starts from."""
    place = job.scratch
    zeta_s = rows_from(scratch, place.zeta_s)
    adj_lam = rows_from(scratch, place.adj_lam)
    rows_of(job, nc, ns, rows_from(scratch, place.gamma), w, scratch, adj_lam)
    if shifted:
        for v in range(job.scene.topology.nv):
            zeta_s[v, w] = scratch[place.zeta + v, w]
        solve_transposed(job.scene, rows_from(scratch, place.L), w, zeta_s)
        for c in range(nc):
            fraction = scratch[place.blocks + c * BLOCK_ROWS + FRACTION, w]
            if fraction > scratch.dtype(0.0):
                asked = row_dots(
                    job.scene, rows_from(scratch, place.contacts), c, rows_from(scratch, place.Y), zeta_s, w
                )
                store(adj_lam, 3 * c, w, load3(adj_lam, 3 * c, w) - fraction * asked)
    if job.nimpulse > 0:
        add_store_impulses_vjp(
            job.scene, nc, ns, rows_from(scratch, place.scalars), rows_from(scratch, place.next_adj_impulses), w,
            adj_lam,
        )  # fmt: skip


@wp.func
def multipliers(
    job: Job, nc: int, ns: int, sweeps: int, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write kappa, eta and nu, eq. (9); at kinks on the side in which the loss falls, if that is wanted."""
    place = job.scratch
    nv = job.scene.topology.nv
    one = scratch.dtype(1.0)
    eta = rows_from(scratch, place.eta)
    nu = rows_from(scratch, place.nu)
    ties = int(0)
    cases = int(place.lam)
    attempt = int(2)
    if job.settings.kinks == 1 and not is_unrolled(job, sweeps):
        ties = find_kinks(job, nc, ns, w, scratch)
        if ties > 0:
            cases = place.sides
            attempt = 0
    while attempt <= 2 * (ties + 1):
        if ties > 0:
            take_sides(job, nc, ns, attempt, ties, w, scratch)
        solver_vjp(job, nc, ns, sweeps, cases, w, adj_parameters, scratch)
        for v in range(nv):
            eta[v, w] = scratch[place.gamma + v, w]
        add_all_rows(job, nc, ns, rows_from(scratch, place.multiplier), -one, w, scratch, eta)
        write_free_motion_weights(job, nc, ns, w, scratch)
        add_all_rows(job, nc, ns, rows_from(scratch, place.alpha), one, w, scratch, eta)
        for v in range(nv):
            nu[v, w] = eta[v, w]
        solve_factor(job.scene, rows_from(scratch, place.L), w, nu)
        if ties > 0:
            attempt = judge_sides(job, nc, ns, attempt, ties, u, parameters, w, scratch)
        else:
            attempt += 1


@wp.func
def start_vjp(job: Job, nc: int, ns: int, sweeps: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the cotangents of the last step's impulses: there are some where sweeps that started warm are unrolled."""
    place = job.scratch
    for r in range(job.nimpulse):
        scratch[place.adj_impulses + r, w] = scratch.dtype(0.0)
    if is_unrolled(job, sweeps) and started_warm(job, w, scratch):
        load_impulses_vjp(
            job.scene, nc, ns, rows_from(scratch, place.contacts), rows_from(scratch, place.scalars),
            rows_from(scratch, place.impulses), rows_from(scratch, place.adj_start_lam), w,
            rows_from(scratch, place.adj_impulses),
        )  # fmt: skip


@wp.func
def velocity_vjp(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Write adj_qd = L^T eta, and what the turning of free joints' axes adds, eq. (9)."""
    place = job.scratch
    adj_qd = rows_from(scratch, place.adj_qd)
    adj_velocity = rows_from(scratch, place.adj_velocity)
    for v in range(job.scene.topology.nv):
        adj_qd[v, w] = scratch.dtype(0.0)
    add_transposed_product(job.scene, rows_from(scratch, place.L), rows_from(scratch, place.eta), w, adj_qd)
    for v in range(job.scene.topology.nv):
        adj_velocity[v, w] = adj_qd[v, w]
    add_axes_rate_vjp(
        job.scene, scratch[place.span, w], rows_from(scratch, place.qd), adj_velocity, w, adj_qd
    )  # fmt: skip


@wp.func
def clear_geometry(job: Job, nc: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Set the cotangents of contacts, loops and bodies' poses to zero."""
    place = job.scratch
    zero = scratch.dtype(0.0)
    for r in range(ADJ_CONTACT_ROWS * nc):
        scratch[place.adj_contacts + r, w] = zero
    for r in range(LOOP_ROWS * job.scene.nloop):
        scratch[place.adj_loops + r, w] = zero
    for r in range(6 * job.scene.topology.nbody):
        scratch[place.wrench + r, w] = zero


@wp.func
def geometry_vjp(
    job: Job, nc: int, parameters: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangents of contacts and loops back to shapes, frames and placements, and to coordinates."""
    scene = job.scene
    place = job.scratch
    rows = job.parameters
    poses = rows_from(scratch, place.poses)
    wrench = rows_from(scratch, place.wrench)
    adj_contacts = rows_from(scratch, place.adj_contacts)
    for c in range(nc):
        row = c * ADJ_CONTACT_ROWS
        contact_vjp(
            scene, poses, rows_from(parameters, rows.shapes), w, rows_from(scratch, place.contacts), c,
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
            scene, rows_from(scratch, place.q), rows_from(parameters, rows.placements), poses, w, wrench,
            rows_from(scratch, place.adj_q), rows_from(adj_parameters, rows.placements),
        )  # fmt: skip


@wp.func
def impulse_cotangents(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the cotangents of the impulses for those of the state after the step; return whether impacts shift it."""
    clear_geometry(job, nc, w, scratch)
    # eqs. (4) and (5) backwards
    shifted = motion_vjp(job, nc, w, scratch)
    impulses_vjp(job, nc, ns, shifted, w, scratch)
    converge(job.scratch.lanes, w, scratch)
    return shifted


@wp.func
def solution_vjp(
    job: Job, nc: int, ns: int, sweeps: int, shifted: bool, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any),
    w: int, adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull cotangents of impulses and velocity back through the solver, rows and contacts; nu is for what remains."""
    # the solver, eq. (9)
    multipliers(job, nc, ns, sweeps, u, parameters, w, adj_parameters, scratch)
    converge(job.scratch.lanes, w, scratch)
    start_vjp(job, nc, ns, sweeps, w, scratch)
    velocity_vjp(job, w, scratch)
    # biases, and how J changes, eqs. (10) and (11)
    if nc + ns > 0:
        rows_vjp(job, nc, ns, sweeps, shifted, parameters, w, adj_parameters, scratch)
    converge(job.scratch.lanes, w, scratch)
    geometry_vjp(job, nc, parameters, w, adj_parameters, scratch)


@wp.func
def free_motion_vjp(
    job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, adj_u: wp.array2d(dtype=Any),
    adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any), nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull nu back through inverse dynamics at the acceleration of the whole step, eq. (10), and actuators."""
    place = job.scratch
    if is_corrected(job, w, scratch):
        correction_vjp(job, parameters, w, adj_parameters, scratch, nowhere)
    for v in range(job.scene.topology.nv):
        scratch[place.adj_force + v, w] = scratch[place.span, w] * scratch[place.nu + v, w]
    motion = Motion()
    motion.q = place.q
    motion.qd = place.qd
    motion.acceleration = place.acceleration
    motion.adj_q = place.adj_q
    motion.adj_qd = place.adj_qd
    motion.adj_force = place.adj_force
    forces_vjp(job, motion, u, parameters, w, adj_u, adj_parameters, scratch, nowhere)


@wp.func
def problem_vjp(
    job: Job, nc: int, ns: int, sweeps: int, shifted: bool, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any),
    w: int, adj_u: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangents of impulses, and of the velocity after the step, back through the contact problem."""
    solution_vjp(job, nc, ns, sweeps, shifted, u, parameters, w, adj_parameters, scratch)
    converge(job.scratch.lanes, w, scratch)
    free_motion_vjp(job, u, parameters, w, adj_u, adj_parameters, scratch, nowhere)


@wp.func
def step_vjp(
    # model
    job: Job,
    # in: contacts, scalar rows, sweeps; the solved problem and the cotangents of the state after the step, in scratch
    nc: int,
    ns: int,
    sweeps: int,
    u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any),
    w: int,
    # out: the cotangents of the state before the step, in scratch; the others are added to
    adj_u: wp.array2d(dtype=Any),
    adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):
    """Pull the cotangents of a step's result back through it."""
    shifted = impulse_cotangents(job, nc, ns, w, scratch)
    problem_vjp(job, nc, ns, sweeps, shifted, u, parameters, w, adj_u, adj_parameters, scratch, nowhere)


@wp.func
def retrace(
    job: Job, pulls_back: bool, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    adj_u: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Do the step from the state in scratch again, or pull the cotangents of its result back through it."""
    found, ns, sweeps = solve_step(job, pulls_back, u, parameters, w, scratch)
    nc = wp.min(found, job.scene.max_contacts)
    if pulls_back:
        step_vjp(job, nc, ns, sweeps, u, parameters, w, adj_u, adj_parameters, scratch, nowhere)
    else:
        move(job, nc, ns, w, scratch)
