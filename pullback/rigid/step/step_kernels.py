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
from pullback.rigid.step.actuator_kernels import forget_limits, has_limits_ahead, is_unsettled, limit_actuators
from pullback.rigid.step.constraint_kernels import (
    BLOCK_ROWS,
    FRACTION,
    add_rows,
    contact_block,
    contact_rows,
    scalar_rows,
)
from pullback.rigid.step.coupling_kernels import coupling_row
from pullback.rigid.step.dynamics_kernels import (
    multiply_factor,
    solve_factor,
)
from pullback.rigid.step.force_kernels import free_forces, is_driven_finitely
from pullback.rigid.step.impact_kernels import impacts_gain, stop_bouncing
from pullback.rigid.step.integrate_kernels import add_axes_rate, integrate, turn_axes
from pullback.rigid.step.lanes_kernels import converge, lanes_of, narrow, widen
from pullback.rigid.step.loop_kernels import loop_frames, loop_row
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.resolve_kernels import resolve
from pullback.rigid.step.tree_energy_kernels import add_correction
from pullback.rigid.step.warm_kernels import store_impulses
from pullback.spatial.arrays import load3, rows_from

OK = wp.constant(0)
NOT_FINITE = wp.constant(1)
OVERFLOW = wp.constant(2)
NOT_CONVERGED = wp.constant(4)
TURNED_FAR = wp.constant(16)


@wp.func
def span_whole_step(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Let the stages of a step take the whole of it."""
    scratch[job.scratch.span, w] = scratch.dtype(job.settings.dt)


@wp.func
def free_motion(
    job: Job,
    u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any),
    w: int,
    scratch: wp.array2d(dtype=Any),
):
    """From the state in scratch, write poses, L, and s of the velocity without contact, eq. (1)."""
    scene = job.scene
    place = job.scratch
    qd = rows_from(scratch, place.qd)
    force = rows_from(scratch, place.force)
    L = rows_from(scratch, place.L)
    start = rows_from(scratch, place.start)
    s = rows_from(scratch, place.s)
    dt = scratch[place.span, w]
    free_forces(job, rows_from(scratch, place.q), qd, u, parameters, w, force, L, scratch)
    for v in range(scene.topology.nv):
        start[v, w] = qd[v, w]
        s[v, w] = qd[v, w]
    add_axes_rate(scene, dt, qd, w, s)
    add_correction(job, scratch.dtype(1.0), w, s, scratch)
    multiply_factor(scene, L, w, start)
    multiply_factor(scene, L, w, s)
    for v in range(scene.topology.nv):
        s[v, w] = s[v, w] + dt * force[v, w]


@wp.func
def constraint_rows(job: Job, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """From poses, L and s in scratch, write all rows, eq. (2); return contacts found and scalar rows."""
    scene = job.scene
    place = job.scratch
    q = rows_from(scratch, place.q)
    poses = rows_from(scratch, place.poses)
    L = rows_from(scratch, place.L)
    start = rows_from(scratch, place.start)
    s = rows_from(scratch, place.s)
    contacts = rows_from(scratch, place.contacts)
    blocks = rows_from(scratch, place.blocks)
    Y = rows_from(scratch, place.Y)
    dt = scratch[place.span, w]
    shapes = rows_from(parameters, job.parameters.shapes)
    found = collide(
        scene,
        poses,
        shapes,
        parameters.dtype(job.settings.margin),
        dt,
        w,
        contacts,
        rows_from(scratch, place.dynamics),
        rows_from(scratch, place.candidates),
        rows_from(scratch, place.hulls),
    )
    converge(place.lanes, w, scratch)
    pairs = rows_from(parameters, job.parameters.pairs)
    for c in range(wp.min(found, scene.max_contacts)):
        contact_rows(scene, poses, L, contacts, c, w, blocks, Y)
        contact_block(scene, job.settings, dt, contacts, c, L, start, s, pairs, w, Y, blocks)
    converge(place.lanes, w, scratch)
    prepare_contacts(job, wp.min(found, scene.max_contacts), parameters, w, scratch)
    loops = rows_from(scratch, place.loops)
    loop_frames(scene, poses, rows_from(parameters, job.parameters.loops), w, loops)
    for k in range(scene.nloop_row):
        loop_row(
            scene, job.settings, k, loops, poses, L, w,
            rows_from(scratch, place.scalars), rows_from(scratch, place.Y_scalar),
        )  # fmt: skip
    for k in range(scene.ncoupling):
        coupling_row(
            scene, job.settings, k, q, rows_from(parameters, job.parameters.couplings), L, w,
            rows_from(scratch, place.scalars), rows_from(scratch, place.Y_scalar),
        )  # fmt: skip
    nscalar = scalar_rows(
        scene, job.settings, dt, q, rows_from(parameters, job.parameters.limits),
        rows_from(parameters, job.parameters.friction), L, w,
        rows_from(scratch, place.scalars), rows_from(scratch, place.Y_scalar),
    )  # fmt: skip
    return found, nscalar


@wp.func
def contact_problem(
    job: Job,
    u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any),
    w: int,
    scratch: wp.array2d(dtype=Any),
):
    """From the state in scratch, write L, s without contact and all rows; return contacts found and scalar rows."""
    free_motion(job, u, parameters, w, scratch)
    converge(job.scratch.lanes, w, scratch)
    found, nscalar = constraint_rows(job, parameters, w, scratch)
    return found, nscalar


@wp.func
def changes_limits(
    job: Job, turn: int, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Hold actuators whose forces at the velocity after the step exceed their limits; return whether one is new.

    That velocity is the one that forces act at, before the correction of trees that turn fast (write_acceleration).
    """
    place = job.scratch
    velocity = rows_from(scratch, place.velocity)
    found = has_limits_ahead(job, parameters, w)
    if found:
        for v in range(job.scene.topology.nv):
            velocity[v, w] = scratch[place.s + v, w]
        solve_factor(job.scene, rows_from(scratch, place.L), w, velocity)
        add_correction(job, -scratch.dtype(1.0), w, velocity, scratch)
        found = limit_actuators(job, turn, u, parameters, w, scratch)
    return found


@wp.func
def solve_step(
    job: Job, as_matrix: bool, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the contact problem and its impulses; return contacts found, scalar rows, and sweeps as `resolve` does.

    Forces of actuators at the velocity after the step may turn out to exceed their limits, or not to: then again.
    Impacts may turn out to add energy: then again, without bouncing.
    """
    span_whole_step(job, w, scratch)
    forget_limits(job, w, scratch)
    row = job.scratch.lanes
    lanes = lanes_of(row, w, scratch)
    found = int(0)
    ns = int(0)
    sweeps = int(0)
    turn = int(0)
    bounces = bool(True)
    again = bool(True)
    while again:
        contacts, scalars = contact_problem(job, u, parameters, w, scratch)
        found = contacts
        ns = scalars
        nc = wp.min(found, job.scene.max_contacts)
        converge(row, w, scratch)
        if not bounces:
            stop_bouncing(job, nc, w, scratch)
        sweeps = resolve(job, nc, ns, as_matrix, w, scratch)
        converge(row, w, scratch)
        again = False
        if bounces and impacts_gain(job, nc, ns, w, scratch):
            bounces = False
            again = True
        if not again:
            turn += 1
            again = changes_limits(job, turn, u, parameters, w, scratch)
        narrow(again, row, w, scratch)
    widen(lanes, row, w, scratch)
    return found, ns, sweeps


@wp.func
def solve_unless_split(
    job: Job, as_matrix: bool, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return whether the step is split where something touches, never here (split_kernels.py); else do `solve_step`."""
    found, ns, sweeps = solve_step(job, as_matrix, u, parameters, w, scratch)
    return False, found, ns, sweeps


@wp.func
def impact_shift(job: Job, nc: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the part of the velocity that impacts gave, times the fraction of the step before each, eq. (5).

    Return whether there is any.
    """
    place = job.scratch
    shift = rows_from(scratch, place.shift)
    shifted = bool(False)
    for c in range(nc):
        fraction = scratch[place.blocks + c * BLOCK_ROWS + FRACTION, w]
        if fraction > scratch.dtype(0.0):
            if not shifted:
                for v in range(job.scene.topology.nv):
                    shift[v, w] = scratch.dtype(0.0)
            shifted = True
            add_rows(
                job.scene, rows_from(scratch, place.contacts), c, rows_from(scratch, place.Y),
                fraction * load3(scratch, place.lam + 3 * c, w), w, shift,
            )  # fmt: skip
    if shifted:
        solve_factor(job.scene, rows_from(scratch, place.L), w, shift)
    return shifted


@wp.func
def write_velocities(job: Job, nc: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the velocity after the step, and the one that coordinates move by: eqs. (4) and (5).

    Return whether impacts make the two differ.
    """
    place = job.scratch
    velocity = rows_from(scratch, place.velocity)
    shifted = impact_shift(job, nc, w, scratch)
    for v in range(job.scene.topology.nv):
        velocity[v, w] = scratch[place.s + v, w]
    solve_factor(job.scene, rows_from(scratch, place.L), w, velocity)
    for v in range(job.scene.topology.nv):
        travel = velocity[v, w]
        if shifted:
            travel = travel - scratch[place.shift + v, w]
        scratch[place.travel + v, w] = travel
    return shifted


@wp.func
def write_acceleration(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the joint acceleration a = (v - qd) / dt - c that leads to the velocity after the step."""
    place = job.scratch
    dt = scratch[place.span, w]
    qd = rows_from(scratch, place.qd)
    acceleration = rows_from(scratch, place.acceleration)
    for v in range(job.scene.topology.nv):
        acceleration[v, w] = -qd[v, w]
    add_axes_rate(job.scene, -dt, qd, w, acceleration)
    add_correction(job, -scratch.dtype(1.0), w, acceleration, scratch)
    for v in range(job.scene.topology.nv):
        acceleration[v, w] = (scratch[place.velocity + v, w] + acceleration[v, w]) / dt


@wp.func
def move(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Replace the state in scratch by the one after the step, eqs. (4) and (5); return whether it is finite."""
    scene = job.scene
    place = job.scratch
    q = rows_from(scratch, place.q)
    qd = rows_from(scratch, place.qd)
    travel = rows_from(scratch, place.travel)
    dt = scratch[place.span, w]
    write_velocities(job, nc, w, scratch)
    total = scratch.dtype(0.0)
    for v in range(scene.topology.nv):
        qd[v, w] = scratch[place.velocity + v, w]
        total += wp.abs(qd[v, w])
    integrate(scene, dt, travel, w, q)
    turn_axes(scene, dt, travel, w, qd)
    for k in range(scene.nq):
        total += wp.abs(q[k, w])
    if job.nimpulse > 0:
        store_impulses(
            scene, nc, ns, rows_from(scratch, place.contacts), rows_from(scratch, place.scalars),
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
    found, ns, sweeps = solve_step(job, False, u, parameters, w, scratch)
    nc = wp.min(found, job.scene.max_contacts)
    if found > nc:
        status = status | OVERFLOW
    if sweeps < 0 or is_unsettled(job, w, scratch):
        status = status | NOT_CONVERGED
    if not move(job, nc, ns, w, scratch) or not is_driven_finitely(job, u, w):
        status = status | NOT_FINITE
    return status
