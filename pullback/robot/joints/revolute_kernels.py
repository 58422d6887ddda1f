"""The revolute joint: it turns about z of its body's frame, S = (0, 0, 1, 0, 0, 0); q is the angle [rad].

Equations: docs/derivations/README.md, "Joints", and docs/derivations/integration.md.
"""

from typing import Any

import warp as wp

from pullback.robot.topology import PLACEMENT_ROWS, Topology
from pullback.spatial.arrays import load3, load33
from pullback.spatial.vectors import rotation_about_z, spatial

is_hinge = True


@wp.func
def pose(topology: Topology, i: int, placements: wp.array2d(dtype=Any), q: wp.array2d(dtype=Any), w: int):
    """Return R_PB = R_PJ Rz(q), p_PB = p_PJ."""
    R = load33(placements, i * PLACEMENT_ROWS, w)
    p = load3(placements, i * PLACEMENT_ROWS + 9, w)
    angle = q[topology.q_start[i], w]
    return rotation_about_z(R, wp.cos(angle), wp.sin(angle)), p


@wp.func
def motion(topology: Topology, i: int, rates: wp.array2d(dtype=Any), w: int):
    """Return S r."""
    zero = rates.dtype(0.0)
    return wp.vector(zero, zero, rates[topology.v_start[i], w], zero, zero, zero)


@wp.func
def bias(topology: Topology, i: int, V: Any, rates: wp.array2d(dtype=Any), w: int):
    """Return V x S r, without the products that are zero."""
    zero = V.dtype(0.0)
    r = rates[topology.v_start[i], w]
    return wp.vector(r * V[1], -r * V[0], zero, r * V[4], -r * V[3], zero)


@wp.func
def force(topology: Topology, i: int, f: Any, w: int, out: wp.array2d(dtype=Any)):
    """Add S^T f."""
    vi = topology.v_start[i]
    out[vi, w] = out[vi, w] + f[2]


@wp.func
def coordinates_vjp(
    topology: Topology, i: int, adj_pose: Any, q: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any)
):
    """Add the cotangent of the angle."""
    qi = topology.q_start[i]
    adj_q[qi, w] = adj_q[qi, w] + adj_pose[2]


@wp.func
def axis(topology: Topology, i: int, k: int, one: Any):
    """Return S."""
    zero = one - one
    return wp.vector(zero, zero, one, zero, zero, zero)


@wp.func
def component(topology: Topology, i: int, k: int, f: Any):
    """Return S^T f."""
    return f[2]


@wp.func
def world_axis(topology: Topology, i: int, k: int, R: Any, p: Any):
    """Return S in world axes, seen from where the body is at p."""
    z = wp.vector(R[0, 2], R[1, 2], R[2, 2])
    return spatial(z, wp.cross(p, z))


@wp.func
def point_velocity(topology: Topology, i: int, k: int, R: Any, arm: Any):
    """Return the velocity of a point of the body, `arm` from its origin, at rate one."""
    return wp.cross(wp.vector(R[0, 2], R[1, 2], R[2, 2]), arm)


@wp.func
def world_motion(topology: Topology, i: int, R: Any, rates: wp.array2d(dtype=Any), w: int):
    """Return S r in world axes, the linear part at the body's origin."""
    z = wp.vector(R[0, 2], R[1, 2], R[2, 2])
    return spatial(rates[topology.v_start[i], w] * z, z - z)


@wp.func
def inertia_column(topology: Topology, i: int, J: Any, H: Any, T: Any):
    """Return I S of an inertia with the blocks [[J, H], [H^T, T]], J and T as upper triangles."""
    return wp.vector(J[2], J[4], J[5], H[2, 0], H[2, 1], H[2, 2])
