"""Forces of actuators, and their adjoint (docs/derivations/actuators.md).

Each actuator follows a law, force = f(numbers; u, q, qd) of its joint, which returns the force and its derivatives by
(u, q, qd) and by its numbers: one source for the step, its adjoint and its Jacobian. `law` is the affine one here; in
worlds with other actuators a chain of laws takes its place (variants.py).

Where `job.settings.ahead` is the time step and not zero, forces are those at the velocity after the step, qd + ahead a:
what falls with velocity is an inertia, `add_actuator_inertias`, and whether a force is within its limit is known when
the step is solved (`limit_actuators`). Until then `held` says so: 0 within it, else the sign of the force at its limit.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import ACTUATOR_ROWS
from pullback.rigid.step.affine_law_kernels import law as affine_law
from pullback.rigid.step.problem_kernels import Job, Motion
from pullback.spatial.arrays import load4, rows_from

SECOND = wp.constant(1)


@wp.func
def law(kind: int, numbers: Any, u: Any, q: Any, qd: Any):
    """Return the force of an actuator, its derivatives by (u, q, qd), and those by its numbers."""
    return affine_law(numbers, u, q, qd)


@wp.func
def second_law(numbers: Any, u: Any, q: Any, qd: Any):
    """Stand for the law that `law_or_second` adds to a chain."""
    return affine_law(numbers, u, q, qd)


@wp.func
def law_or_second(kind: int, numbers: Any, u: Any, q: Any, qd: Any):
    """Return what `law` does, or the second law if the actuator's kind is SECOND: a link of a chain of laws."""
    force, slopes, by_numbers = law(kind, numbers, u, q, qd)
    if kind == SECOND:
        force, slopes, by_numbers = second_law(numbers, u, q, qd)
    return force, slopes, by_numbers


@wp.func
def is_ahead(job: Job, numbers: Any):
    """Tell whether an actuator's force is that at the velocity after the step."""
    return numbers.dtype(job.settings.ahead) * numbers[2] != numbers.dtype(0.0)


@wp.func
def actuator(
    job: Job, a: int, q: wp.array2d(dtype=Any), rate: Any, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any),
    w: int, scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return the force of actuator a and its derivatives, at the rate of its coordinate."""
    scene = job.scene
    v = scene.actuator_dof[a]
    zero = q.dtype(0.0)
    numbers = load4(parameters, job.parameters.actuators + a * ACTUATOR_ROWS, w)
    limit = numbers[3]
    side = zero
    if is_ahead(job, numbers):
        side = scratch[job.scratch.held + a, w]
        limit = q.dtype(1.0) / zero
    free = wp.vector(numbers[0], numbers[1], numbers[2], limit)
    force, slopes, by_numbers = law(scene.actuator_law[a], free, u[a, w], q[scene.dof_coordinate[v], w], rate)
    if side != zero:
        force = side * numbers[3]
        slopes = wp.vector(zero, zero, zero)
        by_numbers = wp.vector(zero, zero, zero, side)
    return force, slopes, by_numbers


@wp.func
def add_actuator_forces(
    job: Job, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any), tau: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the actuators' forces at the velocity qd to tau."""
    for a in range(job.scene.nu):
        v = job.scene.actuator_dof[a]
        force, slopes, by_numbers = actuator(job, a, q, qd[v, w], u, parameters, w, scratch)
        tau[v, w] = tau[v, w] + force


@wp.func
def actuator_inertia(job: Job, a: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Return by how much the force of actuator a falls with its joint's acceleration: integration.md, eq. (10)."""
    inertia = scratch.dtype(job.settings.ahead) * parameters[job.parameters.actuators + a * ACTUATOR_ROWS + 2, w]
    if inertia != scratch.dtype(0.0) and scratch[job.scratch.held + a, w] != scratch.dtype(0.0):
        inertia = scratch.dtype(0.0)
    return inertia


@wp.func
def add_actuator_inertias(
    job: Job, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any), M: wp.array2d(dtype=Any)
):
    """Add the actuators' inertias to the diagonal of the mass matrix."""
    for a in range(job.scene.nu):
        v = job.scene.actuator_dof[a]
        at = v * job.scene.topology.nv + v
        M[at, w] = M[at, w] + actuator_inertia(job, a, parameters, w, scratch)


@wp.func
def actuator_inertias_vjp(
    job: Job, y: wp.array2d(dtype=Any), z: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of the inertias in y^T M z."""
    ahead = scratch.dtype(job.settings.ahead)
    for a in range(job.scene.nu):
        if scratch[job.scratch.held + a, w] == scratch.dtype(0.0):
            v = job.scene.actuator_dof[a]
            row = job.parameters.actuators + a * ACTUATOR_ROWS + 2
            adj_parameters[row, w] = adj_parameters[row, w] + ahead * y[v, w] * z[v, w]


@wp.func
def has_limits_ahead(job: Job, parameters: wp.array2d(dtype=Any), w: int):
    """Tell whether some force that is taken at the velocity after the step has a limit."""
    found = bool(False)
    for a in range(job.scene.nu):
        numbers = load4(parameters, job.parameters.actuators + a * ACTUATOR_ROWS, w)
        if is_ahead(job, numbers) and wp.isfinite(numbers[3]):
            found = True
    return found


@wp.func
def limit_actuators(
    job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Hold the actuators whose forces at the velocity after the step exceed their limits; return whether there are any.

    The velocity stands in scratch. An actuator that is held stays so.
    """
    q = rows_from(scratch, job.scratch.q)
    zero = scratch.dtype(0.0)
    found = bool(False)
    for a in range(job.scene.nu):
        numbers = load4(parameters, job.parameters.actuators + a * ACTUATOR_ROWS, w)
        if is_ahead(job, numbers) and scratch[job.scratch.held + a, w] == zero:
            rate = scratch[job.scratch.velocity + job.scene.actuator_dof[a], w]
            force, slopes, by_numbers = actuator(job, a, q, rate, u, parameters, w, scratch)
            if wp.abs(force) > numbers[3]:
                scratch[job.scratch.held + a, w] = wp.sign(force)
                found = True
    return found


@wp.func
def actuator_forces_vjp(
    job: Job, motion: Motion, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    adj_u: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of all that forces read, at a fixed acceleration, for that of forces."""
    scene = job.scene
    q = rows_from(scratch, motion.q)
    adj_q = rows_from(scratch, motion.adj_q)
    adj_qd = rows_from(scratch, motion.adj_qd)
    adj_actuators = rows_from(adj_parameters, job.parameters.actuators)
    ahead = scratch.dtype(job.settings.ahead)
    for a in range(scene.nu):
        v = scene.actuator_dof[a]
        c = scene.dof_coordinate[v]
        adj = scratch[motion.adj_force + v, w]
        rate = scratch[motion.qd + v, w]
        if ahead > scratch.dtype(0.0):
            rate += ahead * scratch[motion.acceleration + v, w]
        force, slopes, by_numbers = actuator(job, a, q, rate, u, parameters, w, scratch)
        adj_q[c, w] = adj_q[c, w] + slopes[1] * adj
        adj_qd[v, w] = adj_qd[v, w] + slopes[2] * adj
        if adj_u:
            adj_u[a, w] = adj_u[a, w] + slopes[0] * adj
        if adj_actuators:
            for k in range(ACTUATOR_ROWS):
                row = a * ACTUATOR_ROWS + k
                adj_actuators[row, w] = adj_actuators[row, w] + by_numbers[k] * adj
