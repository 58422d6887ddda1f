"""One step of a world with contact (docs/derivations/contact_step.md), stage by stage.

    M qdd + h = tau                         equations of motion, M = L^T L
    s = L (qd + dt c) + dt L^-T (tau - h)   s = L v of the velocity without contact     (1)
    Y = J L^-1                              contacts, joint limits, dry friction        (2)
    lam = solve,   s' = s + Y^T lam         projected Gauss-Seidel                      (3)
    v = L^-1 s',   q' = q (+) dt v          semi-implicit Euler on the manifold         (4)

All velocities but the last are in the axes that bodies have before the step: c makes up for the turning of free joints'
axes, and qd' is v turned into those after it (integrate_kernels.py).

An impact, a contact with restitution, acts at the moment of touching, the fraction theta of the step after its start,
so the coordinates move by dt (v - sum of theta M^-1 J^T lam) instead.                  (5)
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.collide_kernels import collide
from pullback.rigid.solvers.newton_kernels import newton_step
from pullback.rigid.solvers.pgs_kernels import solve, solve_matrix
from pullback.rigid.step.constraint_kernels import (
    BLOCK_ROWS,
    FRACTION,
    add_rows,
    contact_block,
    contact_rows,
    scalar_rows,
)
from pullback.rigid.step.dynamics_kernels import (
    multiply_factor,
    solve_factor,
)
from pullback.rigid.step.force_kernels import free_forces, is_driven_finitely
from pullback.rigid.step.impulse_kernels import (
    apply_impulses,
    raised_by_impulses,
    start_cold,
    start_warm,
    without_impulses,
)
from pullback.rigid.step.integrate_kernels import add_axes_rate, integrate, turn_axes
from pullback.rigid.step.loop_kernels import loop_frames, loop_row
from pullback.rigid.step.problem_kernels import Job, sweeps_over_matrix, write_problem
from pullback.rigid.step.warm_kernels import store_impulses
from pullback.spatial.arrays import load3, rows_from

OK = wp.constant(0)
NOT_FINITE = wp.constant(1)
OVERFLOW = wp.constant(2)
NOT_CONVERGED = wp.constant(4)

VERIFYING_SWEEPS = wp.constant(2)
"""Sweeps after a step of Newton's, which show whether it found the solution."""


@wp.func
def soften(job: Job, nc: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Do nothing: contacts are rigid."""


@wp.func
def contact_problem(
    shapes_are: Any,
    job: Job,
    u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any),
    w: int,
    scratch: wp.array2d(dtype=Any),
):
    """From the state in scratch, write L, s without contact and all rows; return contacts found and scalar rows."""
    scene = job.scene
    place = job.scratch
    q = rows_from(scratch, place.q)
    qd = rows_from(scratch, place.qd)
    poses = rows_from(scratch, place.poses)
    force = rows_from(scratch, place.force)
    L = rows_from(scratch, place.L)
    start = rows_from(scratch, place.start)
    s = rows_from(scratch, place.s)
    contacts = rows_from(scratch, place.contacts)
    blocks = rows_from(scratch, place.blocks)
    Y = rows_from(scratch, place.Y)
    dt = parameters.dtype(job.settings.dt)
    # equations of motion
    free_forces(job, q, qd, u, parameters, w, force, L, scratch)
    # the velocity without contact, eq. (1)
    for v in range(scene.topology.nv):
        start[v, w] = qd[v, w]
        s[v, w] = qd[v, w]
    add_axes_rate(scene, dt, qd, w, s)
    multiply_factor(scene, L, w, start)
    multiply_factor(scene, L, w, s)
    for v in range(scene.topology.nv):
        s[v, w] = s[v, w] + dt * force[v, w]
    # rows, eq. (2)
    shapes = rows_from(parameters, job.parameters.shapes)
    found = collide(
        shapes_are,
        scene,
        poses,
        shapes,
        parameters.dtype(job.settings.margin),
        w,
        contacts,
        rows_from(scratch, place.candidates),
        rows_from(scratch, place.hulls),
    )
    pairs = rows_from(parameters, job.parameters.pairs)
    for c in range(wp.min(found, scene.max_contacts)):
        contact_rows(scene, poses, L, contacts, c, w, blocks, Y)
        contact_block(scene, job.settings, contacts, c, L, start, s, pairs, w, Y, blocks)
    soften(job, wp.min(found, scene.max_contacts), parameters, w, scratch)
    loops = rows_from(scratch, place.loops)
    loop_frames(scene, poses, rows_from(parameters, job.parameters.loops), w, loops)
    for k in range(scene.nloop_row):
        loop_row(
            scene, job.settings, k, loops, poses, L, w,
            rows_from(scratch, place.scalars), rows_from(scratch, place.Y_scalar),
        )  # fmt: skip
    nscalar = scalar_rows(
        scene, job.settings, q, rows_from(parameters, job.parameters.limits),
        rows_from(parameters, job.parameters.friction), L, w,
        rows_from(scratch, place.scalars), rows_from(scratch, place.Y_scalar),
    )  # fmt: skip
    return found, nscalar


@wp.func
def newton(job: Job, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=wp.float32)):
    """Do nothing: in float32 sweeps come as close as Newton's step would."""


@wp.func
def newton(job: Job, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=wp.float64)):  # noqa: F811
    """Replace the impulses by those of Newton's step on the rows that hold, and s with them."""
    place = job.scratch
    lam = rows_from(scratch, place.lam)
    if not sweeps_over_matrix(job, ncontact, nscalar, scratch):
        without_impulses(job, w, scratch)
        write_problem(job, ncontact, nscalar, w, scratch)
    newton_step(
        ncontact, nscalar, job.settings.cone, rows_from(scratch, place.A), rows_from(scratch, place.b),
        rows_from(scratch, place.mu), rows_from(scratch, place.lower), rows_from(scratch, place.upper), w, lam,
        rows_from(scratch, place.alpha), rows_from(scratch, place.solver),
    )  # fmt: skip
    apply_impulses(job, ncontact, nscalar, w, scratch)


@wp.func
def polish(job: Job, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Improve the impulses that sweeps left; tell by 1 whether they are known to be the solution."""
    newton(job, ncontact, nscalar, w, scratch)
    return int(0)


@wp.func
def sweep_rows(job: Job, limit: int, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Sweep over the rows as they stand."""
    place = job.scratch
    more, change = solve(
        job.scene, job.settings, limit, ncontact, nscalar, rows_from(scratch, place.contacts),
        rows_from(scratch, place.blocks), rows_from(scratch, place.Y), rows_from(scratch, place.scalars),
        rows_from(scratch, place.Y_scalar), w, rows_from(scratch, place.lam), rows_from(scratch, place.s),
    )  # fmt: skip
    return more, change


@wp.func
def sweep_matrix(job: Job, limit: int, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Sweep over the problem as it was written, a matrix."""
    place = job.scratch
    more, change = solve_matrix(
        ncontact, nscalar, job.settings.cone, limit, scratch.dtype(job.settings.tolerance), rows_from(scratch, place.A),
        rows_from(scratch, place.b), rows_from(scratch, place.mu), rows_from(scratch, place.lower),
        rows_from(scratch, place.upper), w, rows_from(scratch, place.lam), rows_from(scratch, place.alpha),
    )  # fmt: skip
    apply_impulses(job, ncontact, nscalar, w, scratch)
    return more, change


@wp.func
def sweep(job: Job, limit: int, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=wp.float32)):
    """Sweep until impulses hardly change, or `limit` times; return sweeps and the last one's change."""
    return sweep_rows(job, limit, ncontact, nscalar, w, scratch)


@wp.func
def sweep(job: Job, limit: int, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=wp.float64)):  # noqa: F811
    """Sweep until impulses hardly change, or `limit` times; return sweeps and the last one's change."""
    more = int(0)
    change = scratch.dtype(0.0)
    if sweeps_over_matrix(job, ncontact, nscalar, scratch):
        more, change = sweep_matrix(job, limit, ncontact, nscalar, w, scratch)
    else:
        more, change = sweep_rows(job, limit, ncontact, nscalar, w, scratch)
    return more, change


@wp.func
def resolve(job: Job, ncontact: int, nscalar: int, as_matrix: bool, w: int, scratch: wp.array2d(dtype=Any)):
    """Solve for the impulses and move s by them, eq. (3); return the sweeps, negative if they did not converge.

    The problem is written as a matrix too, if that is wanted or swept over.

    Sweeps that are used up, by redundant contacts for instance, are followed by Newton's steps on the rows that hold.

    What adds energy is undone. Before any sweep a warm start may, without bound, by old impulses of contacts that were
    wedged; after sweeps that were used up friction may that had to shrink with the normal impulses. Sweeps then start
    cold, and where they did so already, half as many are made: a single one never adds any.
    """
    place = job.scratch
    lam = rows_from(scratch, place.lam)
    s = rows_from(scratch, place.s)
    tolerance = scratch.dtype(job.settings.tolerance)
    if as_matrix or sweeps_over_matrix(job, ncontact, nscalar, scratch):
        write_problem(job, ncontact, nscalar, w, scratch)
    for v in range(job.scene.topology.nv):
        scratch[place.free + v, w] = s[v, w]
    kept = rows_from(scratch, place.kept_lam)
    sweeps = int(0)
    done = int(ncontact + nscalar == 0)
    warm = int(0)
    most = int(job.settings.iterations)
    if job.nimpulse > 0 and done == 0:
        warm = 1
        start_warm(job, ncontact, nscalar, w, scratch)
    else:
        start_cold(job, ncontact, nscalar, w, scratch)
    # turn -1: only a look at the start
    turn = int(-1)
    while turn <= job.settings.newton_steps:
        limit = most
        if done == 0:
            if turn > 0:
                limit = VERIFYING_SWEEPS
                done = polish(job, ncontact, nscalar, w, scratch)
        if done == 0 and turn >= 0:
            more, change = sweep(job, limit, ncontact, nscalar, w, scratch)
            if turn == 0:
                sweeps = more
            if change < tolerance:
                done = 1
            elif turn == 0 and job.settings.newton_steps > 0:
                for r in range(3 * ncontact + nscalar):
                    kept[r, w] = lam[r, w]
        turn += 1
        again = int(0)
        if done == 0 and job.settings.compliant == 0:
            if warm == 1 and turn <= 1:
                again = most
            elif turn == 1:
                again = most // 2
        if again > 0:
            if not raised_by_impulses(job, ncontact, nscalar, w, scratch) <= scratch.dtype(0.0):
                start_cold(job, ncontact, nscalar, w, scratch)
                most = again
                warm = 0
                turn = 0
    if done == 0:
        sweeps = -sweeps
        if job.settings.newton_steps > 0:
            # back to what the sweeps had found, which their adjoint can answer for
            for r in range(3 * ncontact + nscalar):
                lam[r, w] = kept[r, w]
            apply_impulses(job, ncontact, nscalar, w, scratch)
    return sweeps


@wp.func
def impact_shift(job: Job, ncontact: int, w: int, scratch: wp.array2d(dtype=Any), shift: wp.array2d(dtype=Any)):
    """Write the part of the velocity that impacts gave, times the fraction of the step before each, eq. (5)."""
    place = job.scratch
    blocks = rows_from(scratch, place.blocks)
    contacts = rows_from(scratch, place.contacts)
    lam = rows_from(scratch, place.lam)
    Y = rows_from(scratch, place.Y)
    any_impact = int(0)
    for c in range(ncontact):
        fraction = blocks[c * BLOCK_ROWS + FRACTION, w]
        if fraction > shift.dtype(0.0):
            if any_impact == 0:
                for v in range(job.scene.topology.nv):
                    shift[v, w] = shift.dtype(0.0)
            any_impact = 1
            add_rows(job.scene, contacts, c, Y, fraction * load3(lam, 3 * c, w), w, shift)
    if any_impact == 1:
        solve_factor(job.scene, rows_from(scratch, place.L), w, shift)
    return any_impact


@wp.func
def move(job: Job, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Replace the state in scratch by the one after the step, eqs. (4) and (5); tell whether it is finite."""
    scene = job.scene
    place = job.scratch
    q = rows_from(scratch, place.q)
    qd = rows_from(scratch, place.qd)
    s = rows_from(scratch, place.s)
    shift = rows_from(scratch, place.force)
    dt = scratch.dtype(job.settings.dt)
    impacts = impact_shift(job, ncontact, w, scratch, shift)
    solve_factor(scene, rows_from(scratch, place.L), w, s)
    total = scratch.dtype(0.0)
    for v in range(scene.topology.nv):
        velocity = s[v, w]
        qd[v, w] = velocity
        total += wp.abs(velocity)
        if impacts == 1:
            s[v, w] = velocity - shift[v, w]
    integrate(scene, dt, s, w, q)
    turn_axes(scene, dt, s, w, qd)
    for k in range(scene.nq):
        total += wp.abs(q[k, w])
    if job.nimpulse > 0:
        store_impulses(
            scene, ncontact, nscalar, rows_from(scratch, place.contacts), rows_from(scratch, place.scalars),
            rows_from(scratch, place.lam), w, rows_from(scratch, place.impulses),
        )  # fmt: skip
    return wp.isfinite(total)


@wp.func
def step(
    shapes_are: Any,
    job: Job,
    u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any),
    w: int,
    scratch: wp.array2d(dtype=Any),
):
    """Do one step on the state in scratch; return its status."""
    status = int(OK)
    found, nscalar = contact_problem(shapes_are, job, u, parameters, w, scratch)
    ncontact = wp.min(found, job.scene.max_contacts)
    if found > ncontact:
        status = status | OVERFLOW
    if resolve(job, ncontact, nscalar, False, w, scratch) < 0:
        status = status | NOT_CONVERGED
    if not move(job, ncontact, nscalar, w, scratch) or not is_driven_finitely(job, u, w):
        status = status | NOT_FINITE
    return status
