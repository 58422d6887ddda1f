"""The ball joint: a quaternion xyzw; the velocity is the angular velocity in the body's axes, S = (1, 0).

Equations: docs/derivations/README.md, "Joints", and docs/derivations/integration.md.
"""

from typing import Any

import warp as wp

from pullback.robot.topology import PLACEMENT_ROWS, Topology
from pullback.spatial.arrays import accumulate, load3, load4, load33, store
from pullback.spatial.rotations import (
    quaternion_rate,
    quaternion_rate_vjp,
    rotated,
    rotated_vjp,
    rotation_between,
    unit_vjp,
)
from pullback.spatial.vectors import (
    angular,
    cross_motion,
    rotation_from_quaternion,
    rotation_from_quaternion_vjp,
    spatial,
)


@wp.func
def pose(topology: Topology, i: int, placements: wp.array2d(dtype=Any), q: wp.array2d(dtype=Any), w: int):
    """Return R_PB = R_PJ R(q), p_PB = p_PJ."""
    R = load33(placements, i * PLACEMENT_ROWS, w)
    p = load3(placements, i * PLACEMENT_ROWS + 9, w)
    return R * rotation_from_quaternion(load4(q, topology.q_start[i], w)), p


@wp.func
def motion(topology: Topology, i: int, rates: wp.array2d(dtype=Any), w: int):
    """Return S r."""
    zero = rates.dtype(0.0)
    vi = topology.v_start[i]
    return wp.vector(rates[vi, w], rates[vi + 1, w], rates[vi + 2, w], zero, zero, zero)


@wp.func
def bias(topology: Topology, i: int, V: Any, rates: wp.array2d(dtype=Any), w: int):
    """Return V x S r."""
    return cross_motion(V, motion(topology, i, rates, w))


@wp.func
def force(topology: Topology, i: int, f: Any, w: int, out: wp.array2d(dtype=Any)):
    """Add S^T f."""
    accumulate(out, topology.v_start[i], w, angular(f))


@wp.func
def coordinates_vjp(
    topology: Topology, i: int, adj_pose: Any, q: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any)
):
    """Add the cotangent of the quaternion."""
    qi = topology.q_start[i]
    accumulate(adj_q, qi, w, rotation_from_quaternion_vjp(load4(q, qi, w), angular(adj_pose)))


@wp.func
def axis(topology: Topology, i: int, k: int, one: Any):
    """Return column k of S."""
    zero = one - one
    column = wp.vector(zero, zero, zero, zero, zero, zero)
    column[k] = one
    return column


@wp.func
def component(topology: Topology, i: int, k: int, f: Any):
    """Return entry k of S^T f."""
    return f[k]


@wp.func
def world_axis(topology: Topology, i: int, k: int, R: Any, p: Any):
    """Return column k of S in world axes, seen from where the body is at p."""
    column = wp.vector(R[0, k], R[1, k], R[2, k])
    return spatial(column, wp.cross(p, column))


@wp.func
def point_velocity(topology: Topology, i: int, k: int, R: Any, arm: Any):
    """Return the velocity of a point of the body, `arm` from its origin, under dof k at rate one."""
    return wp.cross(wp.vector(R[0, k], R[1, k], R[2, k]), arm)


@wp.func
def world_motion(topology: Topology, i: int, R: Any, rates: wp.array2d(dtype=Any), w: int):
    """Return S r in world axes, the linear part at the body's origin."""
    zero = rates.dtype(0.0)
    return spatial(R * load3(rates, topology.v_start[i], w), wp.vector(zero, zero, zero))


# -- on the manifold --------------------------------------------------------------------------------------------------


@wp.func
def integrate(topology: Topology, i: int, dt: Any, v: wp.array2d(dtype=Any), w: int, q: wp.array2d(dtype=Any)):
    """Turn q by dt v: quat exp(dt v)."""
    qi = topology.q_start[i]
    store(q, qi, w, rotated(load4(q, qi, w), dt * load3(v, topology.v_start[i], w)))


@wp.func
def integrate_vjp(
    topology: Topology, i: int, dt: Any, q: wp.array2d(dtype=Any), v: wp.array2d(dtype=Any),
    adj_next: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any), adj_v: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of q and v."""
    qi = topology.q_start[i]
    vi = topology.v_start[i]
    both = rotated_vjp(load4(q, qi, w), dt * load3(v, vi, w), load4(adj_next, qi, w))
    store(adj_q, qi, w, wp.vector(both[0], both[1], both[2], both[3]))
    store(adj_v, vi, w, dt * wp.vector(both[4], both[5], both[6]))


@wp.func
def difference(
    topology: Topology, i: int, from_q: wp.array2d(dtype=Any), q: wp.array2d(dtype=Any), w: int,
    dx: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the rotation vector from one quaternion to another."""
    qi = topology.q_start[i]
    store(dx, topology.v_start[i], w, rotation_between(load4(from_q, qi, w), load4(q, qi, w)))


@wp.func
def tangent_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), adj_q: wp.array2d(dtype=Any), w: int,
    adj_tangent: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangent of a small rotation in the body's axes."""
    qi = topology.q_start[i]
    store(adj_tangent, topology.v_start[i], w, quaternion_rate_vjp(load4(q, qi, w), load4(adj_q, qi, w)))


@wp.func
def tangent_inverse_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), adj_tangent: wp.array2d(dtype=Any), w: int,
    adj_q: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangent of the quaternion."""
    qi = topology.q_start[i]
    store(adj_q, qi, w, rotation_from_quaternion_vjp(load4(q, qi, w), load3(adj_tangent, topology.v_start[i], w)))


@wp.func
def add_rates(
    topology: Topology, i: int, h: Any, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any),
    qdd: wp.array2d(dtype=Any), w: int, y: wp.array2d(dtype=Any), z: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add h times the rates of quaternion and angular velocity."""
    qi = topology.q_start[i]
    vi = topology.v_start[i]
    store(y, qi, w, load4(y, qi, w) + h * quaternion_rate(load4(q, qi, w), load3(qd, vi, w)))
    store(z, vi, w, load3(z, vi, w) + h * load3(qdd, vi, w))


@wp.func
def rates_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), qdd: wp.array2d(dtype=Any),
    adj_y: wp.array2d(dtype=Any), adj_z: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any),
    adj_qd: wp.array2d(dtype=Any), adj_qdd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of q, qd and qdd."""
    qi = topology.q_start[i]
    vi = topology.v_start[i]
    adj_rate = load4(adj_y, qi, w)
    store(adj_q, qi, w, quaternion_rate(adj_rate, -load3(qd, vi, w)))
    store(adj_qd, vi, w, quaternion_rate_vjp(load4(q, qi, w), adj_rate))
    store(adj_qdd, vi, w, load3(adj_z, vi, w))


@wp.func
def normalize(topology: Topology, i: int, w: int, q: wp.array2d(dtype=Any)):
    """Make the quaternion unit."""
    quat = load4(q, topology.q_start[i], w)
    store(q, topology.q_start[i], w, quat / wp.length(quat))


@wp.func
def normalize_vjp(topology: Topology, i: int, q: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any)):
    """Replace the cotangent of the unit quaternion by that of the quaternion."""
    qi = topology.q_start[i]
    store(adj_q, qi, w, unit_vjp(load4(q, qi, w), load4(adj_q, qi, w)))
