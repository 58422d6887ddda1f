"""Momenta before, at and after the midpoint of a step, and their adjoint (docs/derivations/midpoint.md).

Coordinates of one dof add up: p = p0 + h f, p1 = p0 + 2 h f. A joint that turns is Q = exp(r), r = h w, from the start
at the midpoint, and as much from the end. N and G are its angular and linear momentum in the axes there, (w, v) its
velocity and (n, g) the force there:

    N0 = Q^T n0,    G0 = Q^T g0,    G1 = G0 + 2 h g,    N1 = N0 + 2 h (n - v x (G0 + G1) / 2)                   (4)
    J(r) x = x + (1 - cos |r|) / |r|^2 r x x + (|r| - sin |r|) / |r|^3 r x (r x x)                              (5)
    p = (J(r) N0 + J(-r) N1) / 2, (G0 + G1) / 2                                                                 (6)
"""

from typing import Any

import warp as wp

from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.runge_kutta_kernels import stage_row
from pullback.robot.joint_kernels import joint_travels, joint_turns
from pullback.spatial.arrays import accumulate, load3, store
from pullback.spatial.rotations import half_sinc, half_sinc_slope, quaternion_from_vector, right_jacobian
from pullback.spatial.vectors import angular, linear, rotation_from_quaternion, spatial


@wp.func
def half_step(job: Job, x: Any):
    """Return half the step, in the type of x."""
    return type(x)(0.5) * type(x)(job.settings.dt)


@wp.func
def start_row(job: Job):
    """Return where the momentum before the step stands in scratch."""
    return stage_row(job, 0) + job.scene.nq + job.scene.topology.nv


@wp.func
def adj_row(job: Job, k: int):
    """Return where cotangents of momenta stand: before, at the midpoint and after; the fourth: of the velocity."""
    return job.scratch.stage_adj + k * (job.scene.nq + job.scene.topology.nv) + job.scene.nq


@wp.func
def sine_defect(square: Any):
    """Return (x - sin x) / x^3, and its derivative by x over x, for the square of x."""
    one = type(square)(1.0)
    value = one / type(square)(6.0) - square / type(square)(120.0) * (
        one - square / type(square)(42.0) * (one - square / type(square)(72.0) * (one - square / type(square)(110.0)))
    )
    slope = -one / type(square)(60.0) + square / type(square)(1260.0) * (
        one - square / type(square)(48.0) * (one - square * type(square)(4.0 / 330.0))
    )
    if square > type(square)(0.05):
        x = wp.sqrt(square)
        value = (x - wp.sin(x)) / (x * square)
        slope = ((one - wp.cos(x)) / square - type(square)(3.0) * value) / square
    return value, slope


@wp.func
def turning(r: Any, x: Any):
    """Return the left Jacobian of the rotation vector r times x: eq. (5)."""
    return x * right_jacobian(r)


@wp.func
def turning_vjp(r: Any, x: Any, adj: Any):
    """Return the cotangent of r for that of `turning`: eq. (13)."""
    two = r.dtype(2.0)
    half = r.dtype(0.5) * wp.length(r)
    sinc = half_sinc(half)
    value, slope = sine_defect(wp.dot(r, r))
    normal = wp.cross(x, adj)
    along = sinc * half_sinc_slope(half) * wp.dot(r, normal) - two * value * wp.dot(x, adj)
    along += slope * (wp.dot(r, x) * wp.dot(r, adj) - wp.dot(r, r) * wp.dot(x, adj))
    return two * sinc * sinc * normal + value * (wp.dot(r, adj) * x + wp.dot(r, x) * adj) + along * r


@wp.func
def joint_momenta(job: Job, i: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Return the turn to the midpoint of a joint that turns, and momenta before and after in its axes: eq. (4)."""
    topology = job.scene.topology
    zero = scratch.dtype(0.0)
    h = half_step(job, zero)
    vi = topology.v_start[i]
    start = start_row(job) + vi
    rates = stage_row(job, 1) + job.scene.nq + vi
    Q = rotation_from_quaternion(quaternion_from_vector(h * load3(scratch, rates, w)))
    velocity = wp.vector(zero, zero, zero)
    impulse = wp.vector(zero, zero, zero)
    travelling = wp.vector(zero, zero, zero)
    if joint_travels(topology, i):
        velocity = load3(scratch, rates + 3, w)
        impulse = h * load3(scratch, job.scratch.force + vi + 3, w)
        travelling = load3(scratch, start + 3, w) * Q
    spinning = load3(scratch, start, w) * Q
    torque = load3(scratch, job.scratch.force + vi, w) - wp.cross(velocity, travelling + impulse)
    before = spatial(spinning, travelling)
    after = spatial(spinning + (h + h) * torque, travelling + impulse + impulse)
    return Q, before, after


@wp.func
def take_balance(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Take from the midpoint's momentum what those before and after make it, eqs. (3), (6); return v . p before."""
    topology = job.scene.topology
    h = half_step(job, scratch.dtype(0.0))
    half = scratch.dtype(0.5)
    rates = stage_row(job, 1) + job.scene.nq
    rest = rates + topology.nv
    energy = scratch.dtype(0.0)
    for v in range(topology.nv):
        energy += scratch[rates + v, w] * scratch[rest + v, w]
    for i in range(topology.nbody):
        vi = topology.v_start[i]
        if not joint_turns(topology, i):
            start = scratch[start_row(job) + vi, w]
            scratch[rest + vi, w] = scratch[rest + vi, w] - start - h * scratch[job.scratch.force + vi, w]
        else:
            Q, before, after = joint_momenta(job, i, w, scratch)
            r = h * load3(scratch, rates + vi, w)
            accumulate(scratch, rest + vi, w, -half * (turning(r, angular(before)) + turning(-r, angular(after))))
            if joint_travels(topology, i):
                accumulate(scratch, rest + vi + 3, w, -half * (linear(before) + linear(after)))
    return energy


@wp.func
def write_end_momentum(job: Job, w: int, scratch: wp.array2d(dtype=Any), out: wp.array2d(dtype=Any)):
    """Write the momentum at the end of the step, in the axes there: eqs. (3), (4)."""
    topology = job.scene.topology
    dt = scratch.dtype(job.settings.dt)
    for i in range(topology.nbody):
        vi = topology.v_start[i]
        if not joint_turns(topology, i):
            out[vi, w] = scratch[start_row(job) + vi, w] + dt * scratch[job.scratch.force + vi, w]
        else:
            Q, before, after = joint_momenta(job, i, w, scratch)
            store(out, vi, w, angular(after) * Q)
            if joint_travels(topology, i):
                store(out, vi + 3, w, linear(after) * Q)


@wp.func
def joint_momenta_vjp(job: Job, i: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Add the cotangent of the velocity of a joint that turns, write those of momentum before and force: eq. (14)."""
    h = half_step(job, scratch.dtype(0.0))
    half = scratch.dtype(0.5)
    place = job.scratch
    vi = job.scene.topology.v_start[i]
    rates = stage_row(job, 1) + job.scene.nq + vi
    adj_rates = adj_row(job, 3) + vi
    r = h * load3(scratch, rates, w)
    Q, before, after = joint_momenta(job, i, w, scratch)
    # the balance takes away from the momentum at the midpoint; the end is in its own axes
    adj_taken = -load3(scratch, adj_row(job, 1) + vi, w)
    adj_end = load3(scratch, adj_row(job, 2) + vi, w)
    adj_after = Q * adj_end + half * turning(r, adj_taken)
    adj_before = adj_after + half * turning(-r, adj_taken)
    adj_turn = wp.cross(adj_end, angular(after) * Q) + wp.cross(adj_before, angular(before))
    store(scratch, place.adj_force + vi, w, (h + h) * adj_after)
    store(scratch, adj_row(job, 0) + vi, w, Q * adj_before)
    if joint_travels(job.scene.topology, i):
        adj_end = load3(scratch, adj_row(job, 2) + vi + 3, w)
        adj_mean = (h + h) * wp.cross(load3(scratch, rates + 3, w), adj_after)
        adj_mean = adj_mean - load3(scratch, adj_row(job, 1) + vi + 3, w)
        adj_before = Q * adj_end + adj_mean
        adj_turn = adj_turn + wp.cross(adj_end, linear(after) * Q) + wp.cross(adj_before, linear(before))
        store(scratch, place.adj_force + vi + 3, w, (h + h) * (Q * adj_end) + h * adj_mean)
        store(scratch, adj_row(job, 0) + vi + 3, w, Q * adj_before)
        accumulate(scratch, adj_rates + 3, w, h * wp.cross(adj_after, linear(before) + linear(after)))
    adj_r = turning_vjp(r, angular(before), adj_taken) - turning_vjp(-r, angular(after), adj_taken)
    accumulate(scratch, adj_rates, w, h * (turning(r, adj_turn) + half * adj_r))


@wp.func
def momenta_vjp(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Add the cotangent of the velocity, and write those of momentum before and force: eqs. (13), (14)."""
    topology = job.scene.topology
    h = half_step(job, scratch.dtype(0.0))
    for i in range(topology.nbody):
        if joint_turns(topology, i):
            joint_momenta_vjp(job, i, w, scratch)
        else:
            vi = topology.v_start[i]
            adj_end = scratch[adj_row(job, 2) + vi, w]
            adj_taken = -scratch[adj_row(job, 1) + vi, w]
            scratch[adj_row(job, 0) + vi, w] = adj_end + adj_taken
            scratch[job.scratch.adj_force + vi, w] = h * (adj_end + adj_end + adj_taken)
