"""The free joint: position and quaternion xyzw; velocities are angular, then linear, in the body's axes, S = 1.

The linear velocity v stands in axes that turn with w. A step finds the new one in the axes that the body has before
it, where it changes by a + w x v, a being the joint's acceleration, and then turns it into the axes after it. Explicit
integrators have z = R v, in axes that do not turn (docs/derivations/integration.md, runge_kutta.md).
"""

from typing import Any

import warp as wp

from pullback.robot.topology import PLACEMENT_ROWS, Topology
from pullback.spatial.arrays import accumulate, load3, load4, load6, load33, store
from pullback.spatial.rotations import (
    quaternion_from_vector,
    quaternion_from_vector_vjp,
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
    linear,
    rotation_from_quaternion,
    rotation_from_quaternion_vjp,
    spatial,
)


@wp.func
def pose(topology: Topology, i: int, placements: wp.array2d(dtype=Any), q: wp.array2d(dtype=Any), w: int):
    """Return R_PB = R_PJ R(q), p_PB = p_PJ + R_PJ p."""
    qi = topology.q_start[i]
    R = load33(placements, i * PLACEMENT_ROWS, w)
    p = load3(placements, i * PLACEMENT_ROWS + 9, w) + R * load3(q, qi, w)
    return R * rotation_from_quaternion(load4(q, qi + 3, w)), p


@wp.func
def motion(topology: Topology, i: int, rates: wp.array2d(dtype=Any), w: int):
    """Return S r = r."""
    return load6(rates, topology.v_start[i], w)


@wp.func
def bias(topology: Topology, i: int, V: Any, rates: wp.array2d(dtype=Any), w: int):
    """Return V x S r."""
    return cross_motion(V, motion(topology, i, rates, w))


@wp.func
def force(topology: Topology, i: int, f: Any, w: int, out: wp.array2d(dtype=Any)):
    """Add S^T f = f."""
    accumulate(out, topology.v_start[i], w, f)


@wp.func
def coordinates_vjp(
    topology: Topology, i: int, adj_pose: Any, q: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any)
):
    """Add the cotangents of position and quaternion."""
    qi = topology.q_start[i]
    quat = load4(q, qi + 3, w)
    accumulate(adj_q, qi, w, rotation_from_quaternion(quat) * linear(adj_pose))
    accumulate(adj_q, qi + 3, w, rotation_from_quaternion_vjp(quat, angular(adj_pose)))


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
    column = wp.vector(R[0, k % 3], R[1, k % 3], R[2, k % 3])
    result = spatial(column, wp.cross(p, column))
    if k > 2:
        result = spatial(column - column, column)
    return result


@wp.func
def point_velocity(topology: Topology, i: int, k: int, R: Any, arm: Any):
    """Return the velocity of a point of the body, `arm` from its origin, under dof k at rate one."""
    column = wp.vector(R[0, k % 3], R[1, k % 3], R[2, k % 3])
    if k < 3:
        column = wp.cross(column, arm)
    return column


@wp.func
def world_motion(topology: Topology, i: int, R: Any, rates: wp.array2d(dtype=Any), w: int):
    """Return S r in world axes, the linear part at the body's origin."""
    vi = topology.v_start[i]
    return spatial(R * load3(rates, vi, w), R * load3(rates, vi + 3, w))


# -- on the manifold --------------------------------------------------------------------------------------------------


@wp.func
def integrate(topology: Topology, i: int, dt: Any, v: wp.array2d(dtype=Any), w: int, q: wp.array2d(dtype=Any)):
    """Move q by dt v: p + R dt v, quat exp(dt w)."""
    qi = topology.q_start[i]
    vi = topology.v_start[i]
    quat = load4(q, qi + 3, w)
    accumulate(q, qi, w, rotation_from_quaternion(quat) * (dt * load3(v, vi + 3, w)))
    store(q, qi + 3, w, rotated(quat, dt * load3(v, vi, w)))


@wp.func
def integrate_vjp(
    topology: Topology, i: int, dt: Any, q: wp.array2d(dtype=Any), v: wp.array2d(dtype=Any),
    adj_next: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any), adj_v: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of q and v."""
    qi = topology.q_start[i]
    vi = topology.v_start[i]
    quat = load4(q, qi + 3, w)
    R = rotation_from_quaternion(quat)
    move = dt * load3(v, vi + 3, w)
    adj_p = load3(adj_next, qi, w)
    local = adj_p * R
    both = rotated_vjp(quat, dt * load3(v, vi, w), load4(adj_next, qi + 3, w))
    adj_quat = wp.vector(both[0], both[1], both[2], both[3])
    store(adj_q, qi, w, adj_p)
    store(adj_q, qi + 3, w, adj_quat + rotation_from_quaternion_vjp(quat, wp.cross(move, local)))
    store(adj_v, vi, w, dt * wp.vector(both[4], both[5], both[6]))
    store(adj_v, vi + 3, w, dt * local)


@wp.func
def difference(
    topology: Topology, i: int, from_q: wp.array2d(dtype=Any), q: wp.array2d(dtype=Any), w: int,
    dx: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write rotation vector and way from one pose to another, both in the axes of the first."""
    qi = topology.q_start[i]
    vi = topology.v_start[i]
    before = load4(from_q, qi + 3, w)
    store(dx, vi, w, rotation_between(before, load4(q, qi + 3, w)))
    way = load3(q, qi, w) - load3(from_q, qi, w)
    store(dx, vi + 3, w, way * rotation_from_quaternion(before))


@wp.func
def tangent_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), adj_q: wp.array2d(dtype=Any), w: int,
    adj_tangent: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangent of a small motion in the body's axes."""
    qi = topology.q_start[i]
    vi = topology.v_start[i]
    quat = load4(q, qi + 3, w)
    store(adj_tangent, vi, w, quaternion_rate_vjp(quat, load4(adj_q, qi + 3, w)))
    store(adj_tangent, vi + 3, w, load3(adj_q, qi, w) * rotation_from_quaternion(quat))


@wp.func
def tangent_inverse_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), adj_tangent: wp.array2d(dtype=Any), w: int,
    adj_q: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of position and quaternion."""
    qi = topology.q_start[i]
    vi = topology.v_start[i]
    quat = load4(q, qi + 3, w)
    store(adj_q, qi, w, rotation_from_quaternion(quat) * load3(adj_tangent, vi + 3, w))
    store(adj_q, qi + 3, w, rotation_from_quaternion_vjp(quat, load3(adj_tangent, vi, w)))


# -- axes that turn ---------------------------------------------------------------------------------------------------


@wp.func
def add_axes_rate(
    topology: Topology, i: int, dt: Any, qd: wp.array2d(dtype=Any), w: int, velocity: wp.array2d(dtype=Any)
):
    """Add dt w x v: what the linear acceleration lacks in axes that do not turn."""
    vi = topology.v_start[i]
    accumulate(velocity, vi + 3, w, dt * wp.cross(load3(qd, vi, w), load3(qd, vi + 3, w)))


@wp.func
def add_axes_rate_vjp(
    topology: Topology, i: int, dt: Any, qd: wp.array2d(dtype=Any), adj_velocity: wp.array2d(dtype=Any), w: int,
    adj_qd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangent of qd for that of the velocity after `add_axes_rate`."""
    vi = topology.v_start[i]
    adj = dt * load3(adj_velocity, vi + 3, w)
    accumulate(adj_qd, vi, w, wp.cross(load3(qd, vi + 3, w), adj))
    accumulate(adj_qd, vi + 3, w, wp.cross(adj, load3(qd, vi, w)))


@wp.func
def turn_axes(topology: Topology, i: int, dt: Any, v: wp.array2d(dtype=Any), w: int, qd: wp.array2d(dtype=Any)):
    """Express the linear velocity in the axes after moving by dt v."""
    vi = topology.v_start[i]
    R = rotation_from_quaternion(quaternion_from_vector(dt * load3(v, vi, w)))
    store(qd, vi + 3, w, load3(qd, vi + 3, w) * R)


@wp.func
def turn_axes_vjp(
    topology: Topology, i: int, dt: Any, v: wp.array2d(dtype=Any), before: wp.array2d(dtype=Any), w: int,
    adj_v: wp.array2d(dtype=Any), adj_qd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Replace the cotangent of qd after `turn_axes` by that of it before, and add that of v."""
    vi = topology.v_start[i]
    step = dt * load3(v, vi, w)
    turn = quaternion_from_vector(step)
    R = rotation_from_quaternion(turn)
    adj = load3(adj_qd, vi + 3, w)
    adj_rotation = wp.cross(adj, load3(before, vi + 3, w) * R)
    store(adj_qd, vi + 3, w, R * adj)
    adj_step = quaternion_from_vector_vjp(step, rotation_from_quaternion_vjp(turn, adj_rotation))
    accumulate(adj_v, vi, w, dt * adj_step)


# -- rates in axes that do not turn -----------------------------------------------------------------------------------


@wp.func
def fix_axes(topology: Topology, i: int, q: wp.array2d(dtype=Any), w: int, qd: wp.array2d(dtype=Any)):
    """Replace the linear velocity v by z = R v."""
    R = rotation_from_quaternion(load4(q, topology.q_start[i] + 3, w))
    row = topology.v_start[i] + 3
    store(qd, row, w, R * load3(qd, row, w))


@wp.func
def fix_axes_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), w: int,
    adj_q: wp.array2d(dtype=Any), adj_qd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Replace the cotangent of z by that of v, and add that of the quaternion."""
    turn = topology.q_start[i] + 3
    row = topology.v_start[i] + 3
    quat = load4(q, turn, w)
    adj_v = load3(adj_qd, row, w) * rotation_from_quaternion(quat)
    accumulate(adj_q, turn, w, rotation_from_quaternion_vjp(quat, wp.cross(load3(qd, row, w), adj_v)))
    store(adj_qd, row, w, adj_v)


@wp.func
def unfix_axes(topology: Topology, i: int, q: wp.array2d(dtype=Any), w: int, qd: wp.array2d(dtype=Any)):
    """Replace z by the linear velocity v = R^T z."""
    R = rotation_from_quaternion(load4(q, topology.q_start[i] + 3, w))
    row = topology.v_start[i] + 3
    store(qd, row, w, load3(qd, row, w) * R)


@wp.func
def unfix_axes_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), w: int,
    adj_q: wp.array2d(dtype=Any), adj_qd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Replace the cotangent of v, in qd, by that of z, and add that of the quaternion."""
    turn = topology.q_start[i] + 3
    row = topology.v_start[i] + 3
    quat = load4(q, turn, w)
    adj_v = load3(adj_qd, row, w)
    accumulate(adj_q, turn, w, rotation_from_quaternion_vjp(quat, wp.cross(adj_v, load3(qd, row, w))))
    store(adj_qd, row, w, rotation_from_quaternion(quat) * adj_v)


@wp.func
def add_rates(
    topology: Topology, i: int, h: Any, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any),
    qdd: wp.array2d(dtype=Any), w: int, y: wp.array2d(dtype=Any), z: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add h times the rates of position, quaternion, angular velocity and z."""
    qi = topology.q_start[i]
    vi = topology.v_start[i]
    quat = load4(q, qi + 3, w)
    omega = load3(qd, vi, w)
    v = load3(qd, vi + 3, w)
    R = rotation_from_quaternion(quat)
    change = load3(qdd, vi + 3, w) + wp.cross(omega, v)
    store(y, qi, w, load3(y, qi, w) + R * (h * v))
    store(y, qi + 3, w, load4(y, qi + 3, w) + h * quaternion_rate(quat, omega))
    store(z, vi, w, load3(z, vi, w) + h * load3(qdd, vi, w))
    store(z, vi + 3, w, load3(z, vi + 3, w) + R * (h * change))


@wp.func
def rates_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), qdd: wp.array2d(dtype=Any),
    adj_y: wp.array2d(dtype=Any), adj_z: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any),
    adj_qd: wp.array2d(dtype=Any), adj_qdd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of q, qd and qdd."""
    zero = q.dtype(0.0)
    qi = topology.q_start[i]
    vi = topology.v_start[i]
    quat = load4(q, qi + 3, w)
    omega = load3(qd, vi, w)
    v = load3(qd, vi + 3, w)
    R = rotation_from_quaternion(quat)
    change = load3(qdd, vi + 3, w) + wp.cross(omega, v)
    adj_rate = load4(adj_y, qi + 3, w)
    local_p = load3(adj_y, qi, w) * R
    local_z = load3(adj_z, vi + 3, w) * R
    adj_rotation = wp.cross(change, local_z) + wp.cross(v, local_p)
    adj_quat = quaternion_rate(adj_rate, -omega) + rotation_from_quaternion_vjp(quat, adj_rotation)
    store(adj_q, qi, w, wp.vector(zero, zero, zero))
    store(adj_q, qi + 3, w, adj_quat)
    store(adj_qd, vi, w, quaternion_rate_vjp(quat, adj_rate) + wp.cross(v, local_z))
    store(adj_qd, vi + 3, w, wp.cross(local_z, omega) + local_p)
    store(adj_qdd, vi, w, load3(adj_z, vi, w))
    store(adj_qdd, vi + 3, w, local_z)


@wp.func
def normalize(topology: Topology, i: int, w: int, q: wp.array2d(dtype=Any)):
    """Make the quaternion unit."""
    turn = topology.q_start[i] + 3
    quat = load4(q, turn, w)
    store(q, turn, w, quat / wp.length(quat))


@wp.func
def normalize_vjp(topology: Topology, i: int, q: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any)):
    """Replace the cotangent of the unit quaternion by that of the quaternion."""
    turn = topology.q_start[i] + 3
    store(adj_q, turn, w, unit_vjp(load4(q, turn, w), load4(adj_q, turn, w)))
