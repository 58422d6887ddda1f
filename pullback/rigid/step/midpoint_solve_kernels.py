"""The equation of a step's midpoint, solved for the velocity there (docs/derivations/midpoint.md).

E(v) = p - what the momenta before and after make it = 0,    W = M + h damping + h^2 stiffness              (15)
v <- v - W^-1 E(v), and where that shrinks slowly the inverse of dE/dv in the place of W^-1                 (16)
"""

from typing import Any

import warp as wp

from pullback.rigid.step.actuator_kernels import actuator, add_actuator_forces, rate_of
from pullback.rigid.step.dynamics_kernels import factorize, multiply_factor, solve_factor, solve_transposed
from pullback.rigid.step.integrate_kernels import integrate, turn_axes
from pullback.rigid.step.lagrangian_kernels import write_derivatives
from pullback.rigid.step.midpoint_momenta_kernels import half_step, take_balance
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.runge_kutta_kernels import stage_row
from pullback.robot.crba_kernels import mass_matrix
from pullback.robot.topology import DAMPING, DOF_ROWS
from pullback.spatial.arrays import rows_from

ITERATIONS = wp.constant(50)
# corrections small against these are none: accelerations [rad/s^2, m/s^2]; travel [rad, m] where servos are stiff
SLOW = wp.constant(10.0)
CLOSE = wp.constant(0.01)
ANY = wp.constant(1.0e30)  # the square of a correction before the first


@wp.func
def tolerance(x: wp.float32):
    """Return how small a correction is, against the velocity, that needs no other after it."""
    return wp.float32(1e-5)


@wp.func
def tolerance(x: wp.float64):  # noqa: F811
    """Return how small a correction is, against the velocity, that needs no other after it."""
    return wp.float64(1e-13)


@wp.func
def write_midpoint(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the midpoint's q from that at the start and the velocity: eq. (1)."""
    scene = job.scene
    h = half_step(job, scratch.dtype(0.0))
    q = rows_from(scratch, stage_row(job, 1))
    rates = rows_from(q, scene.nq)
    travel = rows_from(scratch, job.scratch.travel)
    for r in range(scene.nq):
        q[r, w] = scratch[stage_row(job, 0) + r, w]
    for v in range(scene.topology.nv):
        travel[v, w] = rates[v, w]
    # in the axes of the start
    turn_axes(scene, -h, rates, w, travel)
    integrate(scene, h, travel, w, q)


@wp.func
def factor_of(job: Job, stage: int, scratch: wp.array2d(dtype=Any)):
    """Return the mass matrix or its factor of a stage, the midpoint or the end."""
    nv = job.scene.topology.nv
    return rows_from(scratch, job.scratch.L + (stage - 1) * nv * nv)


@wp.func
def write_mass(job: Job, stage: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Write the mass matrix of a stage."""
    rows = job.parameters
    mass_matrix(
        job.scene.topology, rows_from(scratch, stage_row(job, stage)), rows_from(parameters, rows.placements),
        rows_from(parameters, rows.inertias), rows_from(parameters, rows.dofs), w, factor_of(job, stage, scratch),
        rows_from(scratch, job.scratch.dynamics),
    )  # fmt: skip


@wp.func
def write_factor(
    job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Write the factor that corrections are solved with, eq. (15); return the square that counts as none at rest."""
    scene = job.scene
    nv = scene.topology.nv
    h = half_step(job, scratch.dtype(0.0))
    slow = scratch.dtype(SLOW) * (h + h)
    close = scratch.dtype(CLOSE) / (h + h)
    dofs = rows_from(parameters, job.parameters.dofs)
    q = rows_from(scratch, stage_row(job, 1))
    M = factor_of(job, 1, scratch)
    write_mass(job, 1, parameters, w, scratch)
    square = scratch.dtype(0.0)
    for v in range(nv):
        square += M[v * nv + v, w] * slow * slow
        M[v * nv + v, w] = M[v * nv + v, w] + h * dofs[DOF_ROWS * v + DAMPING, w]
    for a in range(scene.nactuator):
        rate = rate_of(scene, a, rows_from(q, scene.nq), w)
        force, slopes, by_numbers = actuator(job, a, q, rate, u, parameters, w, scratch)
        stiffness = -h * wp.min(slopes[2] + h * slopes[1], scratch.dtype(0.0))
        square += stiffness * close * close
        # the diagonal, times the number of joints: no less than the whole block
        first = scene.actuator_start[a]
        count = scene.actuator_start[a + 1] - first
        for k in range(count):
            v = scene.actuator_dof[first + k]
            share = scratch.dtype(scene.actuator_share[first + k])
            M[v * nv + v, w] = M[v * nv + v, w] + scratch.dtype(count) * share * share * stiffness
    factorize(scene, w, M)
    return square


@wp.func
def write_forces(
    job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Write the midpoint, and momentum and force there: eqs. (1), (2)."""
    write_midpoint(job, w, scratch)
    q = rows_from(scratch, stage_row(job, 1))
    write_derivatives(job, 1, parameters, w, scratch)
    add_actuator_forces(
        job, q, rows_from(q, job.scene.nq), u, parameters, w, scratch, rows_from(scratch, job.scratch.force)
    )  # fmt: skip


@wp.func
def write_inverse(
    job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Write the inverse of dE/dv, by differences, in the place of the end's factor: eq. (17)."""
    nv = job.scene.topology.nv
    one = scratch.dtype(1.0)
    rates = rows_from(scratch, stage_row(job, 1) + job.scene.nq)
    rest = rows_from(rates, nv)
    base = rows_from(scratch, job.scratch.s)
    A = factor_of(job, 2, scratch)
    write_forces(job, u, parameters, w, scratch)
    take_balance(job, w, scratch)
    for v in range(nv):
        base[v, w] = rest[v, w]
    for k in range(nv):
        rate = rates[k, w]
        rates[k, w] = rate + wp.sqrt(tolerance(one)) * (one + wp.abs(rate))
        write_forces(job, u, parameters, w, scratch)
        take_balance(job, w, scratch)
        for v in range(nv):
            A[v * nv + k, w] = (rest[v, w] - base[v, w]) / (rates[k, w] - rate)
        rates[k, w] = rate
    # its symmetric part is positive: no pivots need to be looked for
    for k in range(nv):
        pivot = one / A[k * nv + k, w]
        A[k * nv + k, w] = one
        for j in range(nv):
            A[k * nv + j, w] = pivot * A[k * nv + j, w]
        for i in range(nv):
            if i != k:
                factor = A[i * nv + k, w]
                A[i * nv + k, w] = scratch.dtype(0.0)
                for j in range(nv):
                    A[i * nv + j, w] = A[i * nv + j, w] - factor * A[k * nv + j, w]


@wp.func
def take_correction(
    # model
    job: Job,
    w: int,
    # in: whether, and transposed, by the inverse of dE/dv; the square of the last correction
    inverse: bool,
    transposed: bool,
    before: Any,
    # in and out
    rest: wp.array2d(dtype=Any),
    x: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):
    """Replace `rest` by the correction that it asks for, take that from x, and return its square.

    Half of it where corrections hardly shrink: stiff servos would jump from one limit to the other.
    """
    nv = job.scene.topology.nv
    L = factor_of(job, 1, scratch)
    s = rows_from(scratch, job.scratch.s)
    if inverse:
        A = factor_of(job, 2, scratch)
        for v in range(nv):
            s[v, w] = rest[v, w]
        for v in range(nv):
            total = scratch.dtype(0.0)
            for k in range(nv):
                total += wp.where(transposed, A[k * nv + v, w], A[v * nv + k, w]) * s[k, w]
            rest[v, w] = total
    else:
        solve_transposed(job.scene, L, w, rest)
        solve_factor(job.scene, L, w, rest)
    for v in range(nv):
        s[v, w] = rest[v, w]
    multiply_factor(job.scene, L, w, s)
    square = scratch.dtype(0.0)
    for v in range(nv):
        square += s[v, w] * s[v, w]
    part = scratch.dtype(1.0)
    if square + square > before:
        part = scratch.dtype(0.5)
    for v in range(nv):
        x[v, w] = x[v, w] - part * rest[v, w]
    return square


@wp.func
def is_slow(square: Any, before: Any):
    """Tell whether corrections shrink slowly, given the squares of two of them."""
    return type(square)(10.0) * square > before


@wp.func
def solve(
    job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Find the midpoint of the step from the state in scratch; return whether corrections became small: eq. (16)."""
    nq = job.scene.nq
    nv = job.scene.topology.nv
    start = stage_row(job, 0)
    rates = rows_from(scratch, stage_row(job, 1) + nq)
    for r in range(nq):
        scratch[start + r, w] = scratch[job.scratch.q + r, w]
    for v in range(nv):
        scratch[start + nq + v, w] = scratch[job.scratch.qd + v, w]
        rates[v, w] = scratch[job.scratch.qd + v, w]
    write_derivatives(job, 0, parameters, w, scratch)
    write_midpoint(job, w, scratch)
    at_rest = write_factor(job, u, parameters, w, scratch)
    small = tolerance(scratch.dtype(0.0)) * tolerance(scratch.dtype(0.0))
    square = scratch.dtype(ANY)
    allowed = scratch.dtype(0.0)
    slow = bool(False)
    inverse = bool(False)
    count = int(0)
    while count < ITERATIONS and square > allowed:
        if slow:
            write_inverse(job, u, parameters, w, scratch)
            inverse = True
        write_forces(job, u, parameters, w, scratch)
        allowed = small * (take_balance(job, w, scratch) + at_rest)
        before = square
        square = take_correction(job, w, inverse, False, before, rows_from(rates, nv), rates, scratch)
        slow = is_slow(square, before)
        count += 1
    write_midpoint(job, w, scratch)
    return square <= allowed
