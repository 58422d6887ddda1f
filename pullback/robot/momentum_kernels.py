"""Momentum, first moment and kinetic energy of the whole robot, and their adjoint (docs/derivations/momentum.md).

Summed over the bodies, about the world's origin and in world axes, 6 + 3 + 1 rows:

    h = sum X^T I V,    s = sum m p + R (m c),    K = sum V^T I V / 2              (1)
"""

import warp as wp

from pullback.core.lanes import Lanes
from pullback.core.modules import kernel_module, made_once
from pullback.robot.joint_kernels import joint_coordinates_vjp, joint_force, joint_motion, joint_pose, placement_vjp
from pullback.robot.rnea_kernels import body_inertia_times
from pullback.robot.topology import INERTIA_ROWS, Topology
from pullback.spatial.arrays import accumulate, load3, load6, load33, store, store33
from pullback.spatial.vectors import cross_force, force_to_parent, inertia_vjp, motion_to_child, spatial

OUT_ROWS = 10

# rows of scratch a body: pose, V, and the momentum of body and descendants; then their mass and first moment
POSE = wp.constant(0)
VELOCITY = wp.constant(12)
MOMENTUM = wp.constant(18)
MOMENT = wp.constant(24)
ROWS = wp.constant(28)

# the adjoint keeps the cotangent of h as a motion carried along, that of s as a direction b and b·p, and cotangents
VIRTUAL = wp.constant(18)
ADJ_VELOCITY = wp.constant(24)
ADJ_VIRTUAL = wp.constant(30)
ADJ_POSITION = wp.constant(36)
DIRECTION = wp.constant(42)
HEIGHT = wp.constant(45)
VJP_ROWS = wp.constant(46)


@made_once
def kernels(real: type):
    """Return the forward and vjp kernels for one floating-point type."""
    a = wp.array2d(dtype=real)
    vec3 = wp.types.vector(3, real)
    vec6 = wp.types.vector(6, real)

    @wp.kernel(module=kernel_module("momentum", real, lanes=Lanes(writes=("totals",))))
    def forward(topology: Topology, q: a, qd: a, placements: a, inertias: a, totals: a, scratch: a):
        w = wp.tid()
        kinetic = real(0.0)
        for r in range(9):
            totals[r, w] = real(0.0)
        for i in range(topology.nbody):
            parent = topology.parent[i]
            row = i * ROWS
            R, p = joint_pose(topology, i, placements, q, w)
            V = vec6()
            if parent >= 0:
                V = motion_to_child(R, p, load6(scratch, parent * ROWS + VELOCITY, w))
            V = V + joint_motion(topology, i, qd, w)
            momentum = body_inertia_times(inertias, i, w, V)
            kinetic += real(0.5) * wp.dot(V, momentum)
            store33(scratch, row + POSE, w, R)
            store(scratch, row + POSE + 9, w, p)
            store(scratch, row + VELOCITY, w, V)
            store(scratch, row + MOMENTUM, w, momentum)
            for r in range(4):
                scratch[row + MOMENT + r, w] = inertias[i * INERTIA_ROWS + r, w]
        for k in range(topology.nbody):
            i = topology.nbody - 1 - k
            parent = topology.parent[i]
            row = i * ROWS
            R = load33(scratch, row + POSE, w)
            p = load3(scratch, row + POSE + 9, w)
            m = scratch[row + MOMENT, w]
            momentum = force_to_parent(R, p, load6(scratch, row + MOMENTUM, w))
            moment = R * load3(scratch, row + MOMENT + 1, w) + m * p
            if parent >= 0:
                row = parent * ROWS
                accumulate(scratch, row + MOMENTUM, w, momentum)
                accumulate(scratch, row + MOMENT + 1, w, moment)
                scratch[row + MOMENT, w] = scratch[row + MOMENT, w] + m
            else:
                accumulate(totals, 0, w, momentum)
                accumulate(totals, 6, w, moment)
        totals[9, w] = kinetic

    written = Lanes(writes=("adj_q", "adj_qd", "adj_placements", "adj_inertias"))

    @wp.kernel(module=kernel_module("momentum_vjp", real, lanes=written))
    def vjp(
        topology: Topology, q: a, qd: a, placements: a, inertias: a, totals: a, adj_totals: a,
        adj_q: a, adj_qd: a, adj_placements: a, adj_inertias: a, scratch: a,
    ):  # fmt: skip
        w = wp.tid()
        adj_kinetic = adj_totals[9, w]
        for i in range(topology.nbody):
            parent = topology.parent[i]
            row = i * VJP_ROWS
            R, p = joint_pose(topology, i, placements, q, w)
            V = vec6()
            W = load6(adj_totals, 0, w)
            b = load3(adj_totals, 6, w)
            height = real(0.0)
            if parent >= 0:
                V = motion_to_child(R, p, load6(scratch, parent * VJP_ROWS + VELOCITY, w))
                W = load6(scratch, parent * VJP_ROWS + VIRTUAL, w)
                b = load3(scratch, parent * VJP_ROWS + DIRECTION, w)
                height = scratch[parent * VJP_ROWS + HEIGHT, w]
            V = V + joint_motion(topology, i, qd, w)
            W = motion_to_child(R, p, W)
            height = height + wp.dot(b, p)
            b = b * R
            store33(scratch, row + POSE, w, R)
            store(scratch, row + POSE + 9, w, p)
            store(scratch, row + VELOCITY, w, V)
            store(scratch, row + VIRTUAL, w, W)
            store(scratch, row + DIRECTION, w, b)
            scratch[row + HEIGHT, w] = height
            # what body i alone contributes, eqs. (2) to (4)
            store(scratch, row + ADJ_VELOCITY, w, body_inertia_times(inertias, i, w, W + adj_kinetic * V))
            store(scratch, row + ADJ_VIRTUAL, w, body_inertia_times(inertias, i, w, V))
            store(scratch, row + ADJ_POSITION, w, body_inertia_times(inertias, i, w, spatial(vec3(), b)))
            if adj_inertias:
                accumulate(adj_inertias, i * INERTIA_ROWS, w, inertia_vjp(W + real(0.5) * adj_kinetic * V, V))
                accumulate(adj_inertias, i * INERTIA_ROWS + 1, w, b)
                adj_inertias[i * INERTIA_ROWS, w] = adj_inertias[i * INERTIA_ROWS, w] + height
        for k in range(topology.nbody):
            i = topology.nbody - 1 - k
            parent = topology.parent[i]
            row = i * VJP_ROWS
            R = load33(scratch, row + POSE, w)
            p = load3(scratch, row + POSE + 9, w)
            adj_V = load6(scratch, row + ADJ_VELOCITY, w)
            adj_W = load6(scratch, row + ADJ_VIRTUAL, w)
            adj_position = load6(scratch, row + ADJ_POSITION, w)
            XV = load6(scratch, row + VELOCITY, w) - joint_motion(topology, i, qd, w)
            XW = load6(scratch, row + VIRTUAL, w)
            if adj_qd:
                joint_force(topology, i, adj_V, w, adj_qd)
            adj_pose = adj_position - cross_force(XV, adj_V) - cross_force(XW, adj_W)
            if adj_q:
                joint_coordinates_vjp(topology, i, adj_pose, q, w, adj_q)
            if adj_placements:
                placement_vjp(R, p, adj_pose, placements, i, adj_placements, w)
            if parent >= 0:
                row = parent * VJP_ROWS
                accumulate(scratch, row + ADJ_VELOCITY, w, force_to_parent(R, p, adj_V))
                accumulate(scratch, row + ADJ_VIRTUAL, w, force_to_parent(R, p, adj_W))
                accumulate(scratch, row + ADJ_POSITION, w, force_to_parent(R, p, adj_position))

    return forward, vjp
