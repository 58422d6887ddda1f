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
from pullback.rigid.solvers.pgs_kernels import prepare_contacts
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
from pullback.rigid.step.integrate_kernels import add_axes_rate, integrate, turn_axes
from pullback.rigid.step.loop_kernels import loop_frames, loop_row
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.resolve_kernels import resolve
from pullback.rigid.step.warm_kernels import store_impulses
from pullback.spatial.arrays import load3, rows_from

OK = wp.constant(0)
NOT_FINITE = wp.constant(1)
OVERFLOW = wp.constant(2)
NOT_CONVERGED = wp.constant(4)


@wp.func
def contact_problem(
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
    prepare_contacts(job, wp.min(found, scene.max_contacts), parameters, w, scratch)
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
    job: Job,
    u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any),
    w: int,
    scratch: wp.array2d(dtype=Any),
):
    """Do one step on the state in scratch; return its status."""
    status = int(OK)
    found, nscalar = contact_problem(job, u, parameters, w, scratch)
    ncontact = wp.min(found, job.scene.max_contacts)
    if found > ncontact:
        status = status | OVERFLOW
    if resolve(job, ncontact, nscalar, False, w, scratch) < 0:
        status = status | NOT_CONVERGED
    if not move(job, ncontact, nscalar, w, scratch) or not is_driven_finitely(job, u, w):
        status = status | NOT_FINITE
    return status
