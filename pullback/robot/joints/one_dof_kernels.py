"""What all joints with one coordinate have in common: it is a plain number, and its rate is the velocity.

Equations: docs/derivations/README.md, "Joints", and docs/derivations/integration.md.
"""

from typing import Any

import warp as wp

from pullback.robot.topology import Topology

is_hinge = False
"""Whether the joint turns about z and does nothing else."""


@wp.func
def integrate(topology: Topology, i: int, dt: Any, v: wp.array2d(dtype=Any), w: int, q: wp.array2d(dtype=Any)):
    """Move q by dt v."""
    qi = topology.q_start[i]
    q[qi, w] = q[qi, w] + dt * v[topology.v_start[i], w]


@wp.func
def integrate_vjp(
    topology: Topology, i: int, dt: Any, q: wp.array2d(dtype=Any), v: wp.array2d(dtype=Any),
    adj_next: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any), adj_v: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of q and v."""
    adj = adj_next[topology.q_start[i], w]
    adj_q[topology.q_start[i], w] = adj
    adj_v[topology.v_start[i], w] = dt * adj


@wp.func
def difference(
    topology: Topology, i: int, from_q: wp.array2d(dtype=Any), q: wp.array2d(dtype=Any), w: int,
    dx: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the change from one coordinate to another."""
    qi = topology.q_start[i]
    dx[topology.v_start[i], w] = q[qi, w] - from_q[qi, w]


@wp.func
def tangent_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), adj_q: wp.array2d(dtype=Any), w: int,
    adj_tangent: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangent of a small motion."""
    adj_tangent[topology.v_start[i], w] = adj_q[topology.q_start[i], w]


@wp.func
def tangent_inverse_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), adj_tangent: wp.array2d(dtype=Any), w: int,
    adj_q: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangent of q."""
    adj_q[topology.q_start[i], w] = adj_tangent[topology.v_start[i], w]


@wp.func
def add_rates(
    topology: Topology, i: int, h: Any, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any),
    qdd: wp.array2d(dtype=Any), w: int, y: wp.array2d(dtype=Any), z: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add h qd and h qdd."""
    qi = topology.q_start[i]
    vi = topology.v_start[i]
    y[qi, w] = y[qi, w] + h * qd[vi, w]
    z[vi, w] = z[vi, w] + h * qdd[vi, w]


@wp.func
def rates_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), qdd: wp.array2d(dtype=Any),
    adj_y: wp.array2d(dtype=Any), adj_z: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any),
    adj_qd: wp.array2d(dtype=Any), adj_qdd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of q, qd and qdd."""
    qi = topology.q_start[i]
    vi = topology.v_start[i]
    adj_q[qi, w] = adj_q.dtype(0.0)
    adj_qd[vi, w] = adj_y[qi, w]
    adj_qdd[vi, w] = adj_z[vi, w]
