"""The screw joint: turning by q [rad] about z it slides by pitch q along z, S = (0, 0, 1, 0, 0, pitch).

`topology.constant` is the pitch [m/rad] (docs/derivations/README.md, "Screws").
"""

from typing import Any

import warp as wp

from pullback.robot.topology import PLACEMENT_ROWS, Topology
from pullback.spatial.arrays import load3, load33
from pullback.spatial.vectors import rotation_about_z, spatial


@wp.func
def pose(topology: Topology, i: int, placements: wp.array2d(dtype=Any), q: wp.array2d(dtype=Any), w: int):
    """Return R_PB = R_PJ Rz(q), p_PB = p_PJ + pitch q z."""
    R = load33(placements, i * PLACEMENT_ROWS, w)
    p = load3(placements, i * PLACEMENT_ROWS + 9, w)
    angle = q[topology.q_start[i], w]
    way = q.dtype(topology.constant[i]) * angle
    return rotation_about_z(R, wp.cos(angle), wp.sin(angle)), p + way * wp.vector(R[0, 2], R[1, 2], R[2, 2])


@wp.func
def motion(topology: Topology, i: int, rates: wp.array2d(dtype=Any), w: int):
    """Return S r."""
    zero = rates.dtype(0.0)
    r = rates[topology.v_start[i], w]
    return wp.vector(zero, zero, r, zero, zero, rates.dtype(topology.constant[i]) * r)


@wp.func
def bias(topology: Topology, i: int, V: Any, rates: wp.array2d(dtype=Any), w: int):
    """Return V x S r, without the products that are zero."""
    zero = V.dtype(0.0)
    r = rates[topology.v_start[i], w]
    s = V.dtype(topology.constant[i]) * r
    return wp.vector(r * V[1], -r * V[0], zero, r * V[4] + s * V[1], -r * V[3] - s * V[0], zero)


@wp.func
def component(topology: Topology, i: int, k: int, f: Any):
    """Return S^T f."""
    return f[2] + f.dtype(topology.constant[i]) * f[5]


@wp.func
def force(topology: Topology, i: int, f: Any, w: int, out: wp.array2d(dtype=Any)):
    """Add S^T f."""
    vi = topology.v_start[i]
    out[vi, w] = out[vi, w] + component(topology, i, 0, f)


@wp.func
def coordinates_vjp(
    topology: Topology, i: int, adj_pose: Any, q: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any)
):
    """Add the cotangent of the angle."""
    qi = topology.q_start[i]
    adj_q[qi, w] = adj_q[qi, w] + component(topology, i, 0, adj_pose)


@wp.func
def axis(topology: Topology, i: int, k: int, one: Any):
    """Return S."""
    zero = one - one
    return wp.vector(zero, zero, one, zero, zero, type(one)(topology.constant[i]) * one)


@wp.func
def world_axis(topology: Topology, i: int, k: int, R: Any, p: Any):
    """Return S in world axes, seen from where the body is at p."""
    z = wp.vector(R[0, 2], R[1, 2], R[2, 2])
    return spatial(z, wp.cross(p, z) + z.dtype(topology.constant[i]) * z)


@wp.func
def point_velocity(topology: Topology, i: int, k: int, R: Any, arm: Any):
    """Return the velocity of a point of the body, `arm` from its origin, at rate one."""
    z = wp.vector(R[0, 2], R[1, 2], R[2, 2])
    return wp.cross(z, arm) + z.dtype(topology.constant[i]) * z


@wp.func
def world_motion(topology: Topology, i: int, R: Any, rates: wp.array2d(dtype=Any), w: int):
    """Return S r in world axes, the linear part at the body's origin."""
    turn = rates[topology.v_start[i], w] * wp.vector(R[0, 2], R[1, 2], R[2, 2])
    return spatial(turn, turn.dtype(topology.constant[i]) * turn)


@wp.func
def inertia_column(topology: Topology, i: int, J: Any, H: Any, T: Any):
    """Return I S of an inertia with the blocks [[J, H], [H^T, T]], J and T as upper triangles."""
    h = J.dtype(topology.constant[i])
    turning = wp.vector(J[2], J[4], J[5], H[2, 0], H[2, 1], H[2, 2])
    return turning + h * wp.vector(H[0, 2], H[1, 2], H[2, 2], T[2], T[4], T[5])
