"""Forces of actuators, and their adjoint (docs/derivations/actuators.md).

Each actuator follows a law, force = f(numbers; u, q, qd) of its joint, or of a sum of joints, which returns the force
and its derivatives by (u, q, qd) and by its numbers: one source for the step, its adjoint and its Jacobian. `law` is
the affine one here; in worlds with other actuators a chain of laws takes its place (variants.py).

Where `job.settings.ahead` is the time step and not zero, forces are those at the velocity after the step, qd + ahead a:
what falls with velocity is an inertia, `add_actuator_inertias`, and whether a force is within its bounds is known when
the step is solved (`limit_actuators`). Until then `held` says so: 0 within them, else the sign of the bound it is at.
Forces on several joints, and those whose gain grows with velocity, are those at the velocity before the step.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import ACTUATOR_ROWS, FALL, LEAST, MOST, VELOCITY_GAIN, Scene
from pullback.rigid.step.affine_law_kernels import law as affine_law
from pullback.rigid.step.problem_kernels import Job, Motion
from pullback.spatial.arrays import load10, rows_from

SECOND = wp.constant(1)
TOGETHER = wp.constant(8)
"""How often a step is solved before actuators meet or leave their bounds one at a time,"""
TURNS = wp.constant(64)
"""and before those that are held stay so."""
UNKNOWN = wp.constant(2.0)
"""In the place of the bound that an actuator is held at: `add_actuator_forces` finds it."""


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
def length_of(scene: Scene, a: int, q: wp.array2d(dtype=Any), w: int):
    """Return the sum of an actuator's coordinates, each times its share."""
    length = q.dtype(0.0)
    for k in range(scene.actuator_start[a], scene.actuator_start[a + 1]):
        length += q.dtype(scene.actuator_share[k]) * q[scene.dof_coordinate[scene.actuator_dof[k]], w]
    return length


@wp.func
def rate_of(scene: Scene, a: int, qd: wp.array2d(dtype=Any), w: int):
    """Return the sum of velocities, or of cotangents of forces, of an actuator's dofs, each times its share."""
    rate = qd.dtype(0.0)
    for k in range(scene.actuator_start[a], scene.actuator_start[a + 1]):
        rate += qd.dtype(scene.actuator_share[k]) * qd[scene.actuator_dof[k], w]
    return rate


@wp.func
def time_ahead(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Return how far ahead [s] the velocities are that actuators and damping act at: a step, or nothing."""
    return scratch.dtype(job.settings.ahead)


@wp.func
def is_ahead(job: Job, a: int, numbers: Any):
    """Tell whether an actuator's force is that at the velocity after the step."""
    zero = numbers.dtype(0.0)
    single = job.scene.actuator_start[a + 1] - job.scene.actuator_start[a] == 1
    # one that does not fall with velocity is the same either way, but for the derivative by how it does
    falls = numbers[FALL] != zero or not has_bounds(numbers)
    return single and falls and job.settings.ahead > wp.float64(0.0) and numbers[VELOCITY_GAIN] == zero


@wp.func
def has_bounds(numbers: Any):
    """Tell whether an actuator's force has a bound."""
    return wp.isfinite(numbers[LEAST]) or wp.isfinite(numbers[MOST])


@wp.func
def numbers_of(job: Job, a: int, parameters: wp.array2d(dtype=Any), w: int):
    """Return the numbers of an actuator's law."""
    return load10(parameters, job.parameters.actuators + a * ACTUATOR_ROWS, w)


@wp.func
def actuator(
    job: Job, a: int, q: wp.array2d(dtype=Any), rate: Any, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any),
    w: int, scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return the force of actuator a and its derivatives, at the rate of its length; a spring has no control."""
    scene = job.scene
    zero = q.dtype(0.0)
    one = q.dtype(1.0)
    numbers = numbers_of(job, a, parameters, w)
    free = numbers_of(job, a, parameters, w)
    side = zero
    if is_ahead(job, a, numbers):
        side = scratch[job.scratch.held + a, w]
        free[LEAST] = -one / zero
        free[MOST] = one / zero
    control = zero
    if a < scene.nu:
        control = u[a, w]
    force, slopes, by_numbers = law(scene.actuator_law[a], free, control, length_of(scene, a, q, w), rate)
    if side < zero:
        force = numbers[LEAST]
        slopes = wp.vector(zero, zero, zero)
        by_numbers = wp.vector(zero, zero, zero, zero, one, zero, zero, zero, zero, zero)
    if side > zero:
        force = numbers[MOST]
        slopes = wp.vector(zero, zero, zero)
        by_numbers = wp.vector(zero, zero, zero, zero, zero, one, zero, zero, zero, zero)
    return force, slopes, by_numbers


@wp.func
def add_carried_weights(
    job: Job, q: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
    tau: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add nothing: in worlds with gravity compensation `carry_weights` takes its place (variants.py)."""
    return


@wp.func
def carried_weights_vjp(
    job: Job, motion: Motion, parameters: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add nothing: in worlds with gravity compensation `carry_weights_vjp` takes its place (variants.py)."""
    return


@wp.func
def exceeded_side(job: Job, a: int, numbers: Any, force: Any):
    """Return the sign of the bound that a force at the velocity after the step exceeds, 0 if it is within them."""
    side = type(force)(0.0)
    if is_ahead(job, a, numbers):
        if force < numbers[LEAST]:
            side = type(force)(-1.0)
        if force > numbers[MOST]:
            side = type(force)(1.0)
    return side


@wp.func
def add_actuator_forces(
    job: Job, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any), tau: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the forces of actuators and springs at the velocity qd, and of gravity compensation, to tau.

    Where it is unknown whether an actuator is held at a bound, it is if its force exceeds that here.
    """
    scene = job.scene
    for a in range(scene.nactuator):
        at = job.scratch.held + a
        guesses = scratch[at, w] == scratch.dtype(UNKNOWN)
        if guesses:
            scratch[at, w] = scratch.dtype(0.0)
        force, slopes, by_numbers = actuator(job, a, q, rate_of(scene, a, qd, w), u, parameters, w, scratch)
        if guesses:
            numbers = numbers_of(job, a, parameters, w)
            side = exceeded_side(job, a, numbers, force)
            scratch[at, w] = side
            if side < scratch.dtype(0.0):
                force = numbers[LEAST]
            if side > scratch.dtype(0.0):
                force = numbers[MOST]
        for k in range(scene.actuator_start[a], scene.actuator_start[a + 1]):
            v = scene.actuator_dof[k]
            tau[v, w] = tau[v, w] + q.dtype(scene.actuator_share[k]) * force
    add_carried_weights(job, q, parameters, w, scratch, tau)


@wp.func
def inertia_share(job: Job, a: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Return the time step times the square of the share of the one joint that actuator a drives, 0 if it has none.

    Times k it is how the force falls with the joint's acceleration (docs/derivations/integration.md, eq. (10)).
    """
    zero = scratch.dtype(0.0)
    share = zero
    if is_ahead(job, a, numbers_of(job, a, parameters, w)):
        if scratch[job.scratch.held + a, w] == zero:
            share = scratch.dtype(job.scene.actuator_share[job.scene.actuator_start[a]])
    return time_ahead(job, w, scratch) * share * share


@wp.func
def add_actuator_inertias(
    job: Job, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any), M: wp.array2d(dtype=Any)
):
    """Add the actuators' inertias to the diagonal of the mass matrix."""
    for a in range(job.scene.nactuator):
        v = job.scene.actuator_dof[job.scene.actuator_start[a]]
        at = v * job.scene.topology.nv + v
        k = parameters[job.parameters.actuators + a * ACTUATOR_ROWS + FALL, w]
        M[at, w] = M[at, w] + inertia_share(job, a, parameters, w, scratch) * k


@wp.func
def actuator_inertias_vjp(
    job: Job, parameters: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of the inertias in y^T M z."""
    for a in range(job.scene.nactuator):
        v = job.scene.actuator_dof[job.scene.actuator_start[a]]
        row = job.parameters.actuators + a * ACTUATOR_ROWS + FALL
        yz = scratch[job.scratch.y + v, w] * scratch[job.scratch.z + v, w]
        adj_parameters[row, w] = adj_parameters[row, w] + inertia_share(job, a, parameters, w, scratch) * yz


@wp.func
def has_limits_ahead(job: Job, parameters: wp.array2d(dtype=Any), w: int):
    """Tell whether some force that is taken at the velocity after the step has a bound."""
    found = bool(False)
    for a in range(job.scene.nactuator):
        numbers = numbers_of(job, a, parameters, w)
        if is_ahead(job, a, numbers) and has_bounds(numbers):
            found = True
    return found


@wp.func
def exceeded_bound(
    job: Job, a: int, rate: Any, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Let go of actuator a; return the sign of the bound that its force at a rate exceeds, 0 if it is within them."""
    scratch[job.scratch.held + a, w] = scratch.dtype(0.0)
    numbers = numbers_of(job, a, parameters, w)
    side = scratch.dtype(0.0)
    if is_ahead(job, a, numbers):
        q = rows_from(scratch, job.scratch.q)
        force, slopes, by_numbers = actuator(job, a, q, rate, u, parameters, w, scratch)
        side = exceeded_side(job, a, numbers, force)
    return side


@wp.func
def forget_limits(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Begin a step: actuators whose forces exceed their bounds at the velocity before it will be held."""
    scratch[job.scratch.unsettled, w] = scratch.dtype(0.0)
    for a in range(job.scene.nactuator):
        scratch[job.scratch.held + a, w] = scratch.dtype(UNKNOWN)


@wp.func
def limit_actuators(
    job: Job, turn: int, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Hold actuators whose forces at the velocity after the step exceed a bound, let go of others; return if any was.

    The velocity stands in scratch. One that exceeds the other bound is let go first. `turn` counts how often the step
    was solved: docs/derivations/integration.md says why this ends, and that one may then be held against its law, which
    `unsettled` tells. In a part of a step forces are those at a velocity further on than its end
    (docs/derivations/impacts.md, eq. (11)).
    """
    beyond = time_ahead(job, w, scratch) / scratch[job.scratch.span, w] - scratch.dtype(1.0)
    zero = scratch.dtype(0.0)
    unsettled = scratch.dtype(0.0)
    found = bool(False)
    for a in range(job.scene.nactuator):
        old = scratch[job.scratch.held + a, w]
        if turn < TOGETHER or not found:
            rate = rate_of(job.scene, a, rows_from(scratch, job.scratch.velocity), w)
            rate += beyond * (rate - rate_of(job.scene, a, rows_from(scratch, job.scratch.qd), w))
            new = exceeded_bound(job, a, rate, u, parameters, w, scratch)
            if new * old < zero:
                new = zero
            if new != old and old != zero and turn >= TURNS:
                new = old
                unsettled = scratch.dtype(1.0)
            scratch[job.scratch.held + a, w] = new
            if new != old:
                found = True
    scratch[job.scratch.unsettled, w] = unsettled
    return found


@wp.func
def is_unsettled(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Return whether the step was left with an actuator held at a limit that its law does not exceed."""
    return scratch[job.scratch.unsettled, w] != scratch.dtype(0.0)


@wp.func
def actuator_forces_vjp(
    job: Job, motion: Motion, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    adj_u: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of all that forces read, at a fixed acceleration, for that of forces."""
    scene = job.scene
    q = rows_from(scratch, motion.q)
    qd = rows_from(scratch, motion.qd)
    adj_force = rows_from(scratch, motion.adj_force)
    adj_q = rows_from(scratch, motion.adj_q)
    adj_qd = rows_from(scratch, motion.adj_qd)
    adj_actuators = rows_from(adj_parameters, job.parameters.actuators)
    for a in range(scene.nactuator):
        adj = rate_of(scene, a, adj_force, w)
        rate = rate_of(scene, a, qd, w)
        if is_ahead(job, a, numbers_of(job, a, parameters, w)):
            rate += time_ahead(job, w, scratch) * rate_of(scene, a, rows_from(scratch, motion.acceleration), w)
        force, slopes, by_numbers = actuator(job, a, q, rate, u, parameters, w, scratch)
        for k in range(scene.actuator_start[a], scene.actuator_start[a + 1]):
            v = scene.actuator_dof[k]
            c = scene.dof_coordinate[v]
            share = q.dtype(scene.actuator_share[k]) * adj
            adj_q[c, w] = adj_q[c, w] + slopes[1] * share
            adj_qd[v, w] = adj_qd[v, w] + slopes[2] * share
        if adj_u:
            if a < scene.nu:
                adj_u[a, w] = adj_u[a, w] + slopes[0] * adj
        if adj_actuators:
            for k in range(ACTUATOR_ROWS):
                row = a * ACTUATOR_ROWS + k
                adj_actuators[row, w] = adj_actuators[row, w] + by_numbers[k] * adj
    carried_weights_vjp(job, motion, parameters, w, adj_parameters, scratch)
