"""Moving coordinates, and its adjoint (docs/derivations/integration.md).

A free joint's velocity is in the body's frame: p' = p + R v dt, quaternion' = quaternion * exp(w dt / 2)   (1)
Quaternions are made unit on the way, so their length carries no gradient.

A step finds the new velocity in the axes that the body has before it, where the linear velocity v of a free joint
changes by a + w x v, a being the joint's acceleration, and then turns it into the axes after it: v' = exp(-w' dt) v (2)
Left in turning axes, Euler's step would add energy to whatever spins.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import Scene
from pullback.robot.topology import BALL, PRISMATIC
from pullback.spatial.arrays import accumulate, load3, load4, store
from pullback.spatial.vectors import rotation_from_quaternion, rotation_from_quaternion_vjp


@wp.func
def quaternion_product(a: Any, b: Any):
    """Return a b, both xyzw."""
    av = wp.vector(a[0], a[1], a[2])
    bv = wp.vector(b[0], b[1], b[2])
    xyz = a[3] * bv + b[3] * av + wp.cross(av, bv)
    return wp.vector(xyz[0], xyz[1], xyz[2], a[3] * b[3] - wp.dot(av, bv))


@wp.func
def half_sinc(half: Any):
    """Return sin(h) / (2 h)."""
    factor = type(half)(0.5) * (type(half)(1.0) - half * half / type(half)(6.0))
    if half > type(half)(1.0e-4):
        factor = wp.sin(half) / (half + half)
    return factor


@wp.func
def half_sinc_slope(half: Any):
    """Return the derivative of sin(h) / (2 h) by h, over h."""
    slope = type(half)(-1.0 / 6.0) * (type(half)(1.0) - half * half / type(half)(10.0))
    if half > type(half)(1.0e-2):
        slope = (half * wp.cos(half) - wp.sin(half)) / (type(half)(2.0) * half * half * half)
    return slope


@wp.func
def turn_of(step: Any):
    """Return the unit quaternion of the rotation vector `step`."""
    half = step.dtype(0.5) * wp.length(step)
    xyz = half_sinc(half) * step
    return wp.vector(xyz[0], xyz[1], xyz[2], wp.cos(half))


@wp.func
def turned(quat: Any, step: Any):
    """Return the unit quaternion after the rotation vector `step` in the body's frame."""
    return quaternion_product(quat / wp.length(quat), turn_of(step))


@wp.func
def integrate(scene: Scene, dt: Any, v: wp.array2d(dtype=Any), w: int, q: wp.array2d(dtype=Any)):
    """Move q by dt v, in place: eq. (1)."""
    topology = scene.topology
    for i in range(topology.nbody):
        kind = topology.kind[i]
        qi = topology.q_start[i]
        vi = topology.v_start[i]
        if kind <= PRISMATIC:
            q[qi, w] = q[qi, w] + dt * v[vi, w]
        elif kind == BALL:
            store(q, qi, w, turned(load4(q, qi, w), dt * load3(v, vi, w)))
        else:
            quat = load4(q, qi + 3, w)
            accumulate(q, qi, w, rotation_from_quaternion(quat) * (dt * load3(v, vi + 3, w)))
            store(q, qi + 3, w, turned(quat, dt * load3(v, vi, w)))


@wp.func
def turn_of_vjp(step: Any, adj_turn: Any):
    """Return the cotangent of a rotation vector for that of its quaternion."""
    half = step.dtype(0.5) * wp.length(step)
    factor = half_sinc(half)
    adj_xyz = wp.vector(adj_turn[0], adj_turn[1], adj_turn[2])
    # half = |step| / 2: d half = step / (4 half)
    quarter = step.dtype(0.25)
    along = quarter * half_sinc_slope(half) * wp.dot(adj_xyz, step) - factor * step.dtype(0.5) * adj_turn[3]
    return factor * adj_xyz + along * step


@wp.func
def add_axes_rate(scene: Scene, dt: Any, qd: wp.array2d(dtype=Any), w: int, velocity: wp.array2d(dtype=Any)):
    """Add dt w x v of free joints to the velocity: what their linear acceleration lacks in fixed axes, eq. (2)."""
    topology = scene.topology
    for i in range(topology.nbody):
        if topology.kind[i] > BALL:
            vi = topology.v_start[i]
            accumulate(velocity, vi + 3, w, dt * wp.cross(load3(qd, vi, w), load3(qd, vi + 3, w)))


@wp.func
def add_axes_rate_vjp(
    scene: Scene, dt: Any, qd: wp.array2d(dtype=Any), adj_velocity: wp.array2d(dtype=Any), w: int,
    adj_qd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangent of qd for that of the velocity after `add_axes_rate`."""
    topology = scene.topology
    for i in range(topology.nbody):
        if topology.kind[i] > BALL:
            vi = topology.v_start[i]
            adj = dt * load3(adj_velocity, vi + 3, w)
            accumulate(adj_qd, vi, w, wp.cross(load3(qd, vi + 3, w), adj))
            accumulate(adj_qd, vi + 3, w, wp.cross(adj, load3(qd, vi, w)))


@wp.func
def turn_axes(scene: Scene, dt: Any, v: wp.array2d(dtype=Any), w: int, qd: wp.array2d(dtype=Any)):
    """Express the linear velocities of free joints, in qd, in the axes after moving by dt v, eq. (2)."""
    topology = scene.topology
    for i in range(topology.nbody):
        if topology.kind[i] > BALL:
            vi = topology.v_start[i]
            R = rotation_from_quaternion(turn_of(dt * load3(v, vi, w)))
            store(qd, vi + 3, w, load3(qd, vi + 3, w) * R)


@wp.func
def turn_axes_vjp(
    scene: Scene, dt: Any, v: wp.array2d(dtype=Any), before: wp.array2d(dtype=Any), w: int,
    adj_v: wp.array2d(dtype=Any), adj_qd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Replace the cotangent of qd after `turn_axes` by that of it before, and add that of v."""
    topology = scene.topology
    for i in range(topology.nbody):
        if topology.kind[i] > BALL:
            vi = topology.v_start[i]
            step = dt * load3(v, vi, w)
            turn = turn_of(step)
            R = rotation_from_quaternion(turn)
            adj = load3(adj_qd, vi + 3, w)
            adj_rotation = wp.cross(adj, load3(before, vi + 3, w) * R)
            store(adj_qd, vi + 3, w, R * adj)
            accumulate(adj_v, vi, w, dt * turn_of_vjp(step, rotation_from_quaternion_vjp(turn, adj_rotation)))


@wp.func
def turned_vjp(quat: Any, step: Any, adj: Any):
    """Return the cotangents of quaternion and step of `turned`, as one vector of seven."""
    length = wp.length(quat)
    u = quat / length
    turn = turn_of(step)
    # of a product: adj_a = adj conj(b), adj_b = conj(a) adj
    adj_u = quaternion_product(adj, wp.vector(-turn[0], -turn[1], -turn[2], turn[3]))
    adj_turn = quaternion_product(wp.vector(-u[0], -u[1], -u[2], u[3]), adj)
    adj_quat = (adj_u - wp.dot(u, adj_u) * u) / length
    adj_step = turn_of_vjp(step, adj_turn)
    return wp.vector(adj_quat[0], adj_quat[1], adj_quat[2], adj_quat[3], adj_step[0], adj_step[1], adj_step[2])


@wp.func
def integrate_vjp(
    scene: Scene, dt: Any, q: wp.array2d(dtype=Any), v: wp.array2d(dtype=Any), adj_next: wp.array2d(dtype=Any), w: int,
    adj_q: wp.array2d(dtype=Any), adj_v: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of q and v for that of the coordinates after `integrate`."""
    topology = scene.topology
    for i in range(topology.nbody):
        kind = topology.kind[i]
        qi = topology.q_start[i]
        vi = topology.v_start[i]
        if kind <= PRISMATIC:
            adj = adj_next[qi, w]
            adj_q[qi, w] = adj
            adj_v[vi, w] = dt * adj
        elif kind == BALL:
            both = turned_vjp(load4(q, qi, w), dt * load3(v, vi, w), load4(adj_next, qi, w))
            store(adj_q, qi, w, wp.vector(both[0], both[1], both[2], both[3]))
            store(adj_v, vi, w, dt * wp.vector(both[4], both[5], both[6]))
        else:
            quat = load4(q, qi + 3, w)
            R = rotation_from_quaternion(quat)
            move = dt * load3(v, vi + 3, w)
            adj_p = load3(adj_next, qi, w)
            local = adj_p * R
            both = turned_vjp(quat, dt * load3(v, vi, w), load4(adj_next, qi + 3, w))
            adj_quat = wp.vector(both[0], both[1], both[2], both[3])
            store(adj_q, qi, w, adj_p)
            store(adj_q, qi + 3, w, adj_quat + rotation_from_quaternion_vjp(quat, wp.cross(move, local)))
            store(adj_v, vi, w, dt * wp.vector(both[4], both[5], both[6]))
            store(adj_v, vi + 3, w, dt * local)
