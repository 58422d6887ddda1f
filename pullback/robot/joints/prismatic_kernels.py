"""The prismatic joint: it slides along z of its body's frame, S = (0, 0, 0, 0, 0, 1); q is the way [m].

Equations: docs/derivations/README.md, "Joints", and docs/derivations/integration.md.
"""

from typing import Any

import warp as wp

from pullback.robot.topology import PLACEMENT_ROWS, Topology
from pullback.spatial.arrays import load3, load33
from pullback.spatial.vectors import spatial


@wp.func
def pose(topology: Topology, i: int, placements: wp.array2d(dtype=Any), q: wp.array2d(dtype=Any), w: int):
    """Return R_PB = R_PJ, p_PB = p_PJ + q z."""
    R = load33(placements, i * PLACEMENT_ROWS, w)
    p = load3(placements, i * PLACEMENT_ROWS + 9, w)
    return R, p + q[topology.q_start[i], w] * wp.vector(R[0, 2], R[1, 2], R[2, 2])


@wp.func
def motion(topology: Topology, i: int, rates: wp.array2d(dtype=Any), w: int):
    """Return S r."""
    zero = rates.dtype(0.0)
    return wp.vector(zero, zero, zero, zero, zero, rates[topology.v_start[i], w])


@wp.func
def bias(topology: Topology, i: int, V: Any, rates: wp.array2d(dtype=Any), w: int):
    """Return V x S r, without the products that are zero."""
    zero = V.dtype(0.0)
    r = rates[topology.v_start[i], w]
    return wp.vector(zero, zero, zero, r * V[1], -r * V[0], zero)


@wp.func
def force(topology: Topology, i: int, f: Any, w: int, out: wp.array2d(dtype=Any)):
    """Add S^T f."""
    vi = topology.v_start[i]
    out[vi, w] = out[vi, w] + f[5]


@wp.func
def coordinates_vjp(
    topology: Topology, i: int, adj_pose: Any, q: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any)
):
    """Add the cotangent of the way."""
    qi = topology.q_start[i]
    adj_q[qi, w] = adj_q[qi, w] + adj_pose[5]


@wp.func
def axis(topology: Topology, i: int, k: int, one: Any):
    """Return S."""
    zero = one - one
    return wp.vector(zero, zero, zero, zero, zero, one)


@wp.func
def component(topology: Topology, i: int, k: int, f: Any):
    """Return S^T f."""
    return f[5]


@wp.func
def world_axis(topology: Topology, i: int, k: int, R: Any, p: Any):
    """Return S in world axes; it is the same seen from anywhere."""
    z = wp.vector(R[0, 2], R[1, 2], R[2, 2])
    return spatial(z - z, z)


@wp.func
def point_velocity(topology: Topology, i: int, k: int, R: Any, arm: Any):
    """Return the velocity of any point of the body at rate one."""
    return wp.vector(R[0, 2], R[1, 2], R[2, 2])


@wp.func
def world_motion(topology: Topology, i: int, R: Any, rates: wp.array2d(dtype=Any), w: int):
    """Return S r in world axes."""
    z = wp.vector(R[0, 2], R[1, 2], R[2, 2])
    return spatial(z - z, rates[topology.v_start[i], w] * z)


@wp.func
def inertia_column(topology: Topology, i: int, J: Any, H: Any, T: Any):
    """Return I S of an inertia with the blocks [[J, H], [H^T, T]], J and T as upper triangles."""
    return wp.vector(H[0, 2], H[1, 2], H[2, 2], T[2], T[4], T[5])
