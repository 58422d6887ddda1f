"""Poses, velocities and Jacobians of frames fixed to bodies, and their adjoints (docs/derivations/kinematics.md).

A frame F sits on its body B at R_BF, p_BF: 12 rows a frame, like `placements`. Cotangents are gathered as wrenches in
world axes about the world's origin: G = (n, f) is the cotangent of a small motion of everything that is outboard.
"""

from typing import Any

import warp as wp

from pullback.core.array_struct import array_struct
from pullback.core.lanes import Lanes
from pullback.core.modules import kernel_module, made_once
from pullback.robot.joint_kernels import (
    joint_coordinates_vjp,
    joint_nv,
    joint_pose,
    joint_world_axis,
    placement_vjp,
)
from pullback.robot.topology import PLACEMENT_ROWS, Topology
from pullback.spatial.arrays import accumulate, accumulate33, load3, load4, load6, load33, store, store33
from pullback.spatial.vectors import (
    angular,
    cross_force,
    linear,
    quaternion_from_rotation,
    quaternion_from_rotation_vjp,
    skew,
    spatial,
)

# rows of scratch a body: its pose in the world and the wrench that gathers the cotangents outboard of it
POSE = wp.constant(0)
WRENCH = wp.constant(12)
ROWS = wp.constant(18)
FRAME_OUT = wp.constant(7)  # position, quaternion
# and, for velocities, its twist in world axes at the world's origin, and the cotangent of it and all twists outboard
TWIST = wp.constant(0)
ADJ_TWIST = wp.constant(6)
TWIST_ROWS = wp.constant(12)


@wp.func
def body_poses(
    topology: Topology,
    q: wp.array2d(dtype=Any),
    placements: wp.array2d(dtype=Any),
    w: int,
    scratch: wp.array2d(dtype=Any),
):
    """Write the world poses of the bodies on the path to the frames, and clear their wrenches."""
    zero = q.dtype(0.0)
    for k in range(topology.npath):
        i = topology.path[k]
        parent = topology.parent[i]
        R, p = joint_pose(topology, i, placements, q, w)
        if parent >= 0:
            R_W, p_W = body_pose(parent, w, scratch)
            p = p_W + R_W * p
            R = R_W * R
        store33(scratch, i * ROWS + POSE, w, R)
        store(scratch, i * ROWS + POSE + 9, w, p)
        store(scratch, i * ROWS + WRENCH, w, wp.vector(zero, zero, zero, zero, zero, zero))


@wp.func
def body_pose(i: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Return R_WB, p_WB of body i."""
    return load33(scratch, i * ROWS + POSE, w), load3(scratch, i * ROWS + POSE + 9, w)


@wp.func
def frame_pose(topology: Topology, frames: wp.array2d(dtype=Any), k: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Return R_WF, p_WF of frame k."""
    R = load33(frames, k * PLACEMENT_ROWS, w)
    p = load3(frames, k * PLACEMENT_ROWS + 9, w)
    body = topology.frame_body[k]
    if body >= 0:
        R_WB, p_WB = body_pose(body, w, scratch)
        p = p_WB + R_WB * p
        R = R_WB * R
    return R, p


@wp.func
def add_frame_wrench(
    topology: Topology, frames: wp.array2d(dtype=Any), k: int, torque: Any, force: Any, p_WF: Any, w: int,
    adj_frames: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull a torque and a force on frame k, in world axes at its origin, back to its placement and to its body."""
    body = topology.frame_body[k]
    row = k * PLACEMENT_ROWS
    adj_rotation = torque
    adj_p = force
    if body >= 0:
        accumulate(scratch, body * ROWS + WRENCH, w, spatial(torque + wp.cross(p_WF, force), force))
        R_WB = load33(scratch, body * ROWS + POSE, w)
        adj_rotation = torque * R_WB
        adj_p = force * R_WB
    if adj_frames:
        half = force.dtype(0.5)
        accumulate33(adj_frames, row, w, skew(half * adj_rotation) * load33(frames, row, w))
        accumulate(adj_frames, row + 9, w, adj_p)


@wp.func
def gather_wrenches(
    topology: Topology,
    q: wp.array2d(dtype=Any),
    placements: wp.array2d(dtype=Any),
    w: int,
    adj_q: wp.array2d(dtype=Any),
    adj_placements: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):
    """Sum the wrenches leaves to root and pull them back to coordinates and placements."""
    for k in range(topology.npath):
        i = topology.path[topology.npath - 1 - k]
        parent = topology.parent[i]
        G = load6(scratch, i * ROWS + WRENCH, w)
        R_WB, p_WB = body_pose(i, w, scratch)
        # the wrench at the body's origin in the body's axes is the cotangent of a small body-fixed motion
        adj_pose = spatial((angular(G) - wp.cross(p_WB, linear(G))) * R_WB, linear(G) * R_WB)
        if adj_q:
            joint_coordinates_vjp(topology, i, adj_pose, q, w, adj_q)
        if adj_placements:
            R, p = joint_pose(topology, i, placements, q, w)
            placement_vjp(R, p, adj_pose, placements, i, adj_placements, w)
        if parent >= 0:
            accumulate(scratch, parent * ROWS + WRENCH, w, G)


WRITTEN = Lanes(writes=("adj_q", "adj_placements", "adj_frames"))


@made_once
def pose_kernels(real: type):
    """Return the kernels of the frames' poses: 7 rows a frame, position then quaternion xyzw."""
    a = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("poses", real))
    def forward(topology: Topology, q: a, placements: a, frames: a, poses: a, scratch: a):
        w = wp.tid()
        body_poses(topology, q, placements, w, scratch)
        for k in range(topology.nframe):
            R, p = frame_pose(topology, frames, k, w, scratch)
            store(poses, k * FRAME_OUT, w, p)
            store(poses, k * FRAME_OUT + 3, w, quaternion_from_rotation(R))

    @wp.kernel(module=kernel_module("poses_vjp", real, lanes=WRITTEN))
    def vjp(
        topology: Topology, q: a, placements: a, frames: a, poses: a, adj_poses: a,
        adj_q: a, adj_placements: a, adj_frames: a, scratch: a,
    ):  # fmt: skip
        w = wp.tid()
        body_poses(topology, q, placements, w, scratch)
        for k in range(topology.nframe):
            R, p = frame_pose(topology, frames, k, w, scratch)
            row = k * FRAME_OUT
            adj_rotation = quaternion_from_rotation_vjp(load4(poses, row + 3, w), load4(adj_poses, row + 3, w))
            force = load3(adj_poses, row, w)
            add_frame_wrench(topology, frames, k, R * adj_rotation, force, p, w, adj_frames, scratch)
        gather_wrenches(topology, q, placements, w, adj_q, adj_placements, scratch)

    return forward, vjp


@made_once
def jacobian_kernels(real: type):
    """Return the kernels of one frame's Jacobian: 6 rows of nv, linear then angular, in world axes at its origin."""
    a = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("jacobian", real, lanes=Lanes(writes=("jacobian",))))
    def forward(topology: Topology, q: a, placements: a, frames: a, jacobian: a, scratch: a):
        w = wp.tid()
        nv = topology.nv
        for r in range(6 * nv):
            jacobian[r, w] = real(0.0)
        body_poses(topology, q, placements, w, scratch)
        R_WF, p_WF = frame_pose(topology, frames, 0, w, scratch)
        for k in range(topology.npath):
            i = topology.path[k]
            R, p = body_pose(i, w, scratch)
            for j in range(joint_nv(topology, i)):
                v = topology.v_start[i] + j
                S = joint_world_axis(topology, i, j, R, p)
                column = linear(S) + wp.cross(angular(S), p_WF)
                for r in range(3):
                    jacobian[r * nv + v, w] = column[r]
                    jacobian[(r + 3) * nv + v, w] = S[r]

    @wp.kernel(module=kernel_module("jacobian_vjp", real, lanes=WRITTEN))
    def vjp(
        topology: Topology, q: a, placements: a, frames: a, jacobian: a, adj_jacobian: a,
        adj_q: a, adj_placements: a, adj_frames: a, scratch: a,
    ):  # fmt: skip
        w = wp.tid()
        nv = topology.nv
        body_poses(topology, q, placements, w, scratch)
        R_WF, p_WF = frame_pose(topology, frames, 0, w, scratch)
        force = p_WF - p_WF
        for k in range(topology.npath):
            i = topology.path[k]
            R, p = body_pose(i, w, scratch)
            for j in range(joint_nv(topology, i)):
                v = topology.v_start[i] + j
                S = joint_world_axis(topology, i, j, R, p)
                adj_linear = wp.vector(adj_jacobian[v, w], adj_jacobian[nv + v, w], adj_jacobian[2 * nv + v, w])
                adj_angular = wp.vector(
                    adj_jacobian[3 * nv + v, w], adj_jacobian[4 * nv + v, w], adj_jacobian[5 * nv + v, w]
                )
                # the column moves with the frame's origin and with the axis itself, eqs. (7) and (8)
                force += wp.cross(adj_linear, angular(S))
                adj_S = spatial(adj_angular + wp.cross(p_WF, adj_linear), adj_linear)
                accumulate(scratch, i * ROWS + WRENCH, w, cross_force(S, adj_S))
        add_frame_wrench(topology, frames, 0, force - force, force, p_WF, w, adj_frames, scratch)
        gather_wrenches(topology, q, placements, w, adj_q, adj_placements, scratch)

    return forward, vjp


@wp.func
def body_twists(
    topology: Topology, qd: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any), twists: wp.array2d(dtype=Any)
):
    """Write the twists of the bodies on the path to the frames, and clear their cotangents; their poses are there."""
    zero = qd.dtype(0.0)
    nothing = wp.vector(zero, zero, zero, zero, zero, zero)
    for k in range(topology.npath):
        i = topology.path[k]
        parent = topology.parent[i]
        R, p = body_pose(i, w, scratch)
        V = nothing
        if parent >= 0:
            V = load6(twists, parent * TWIST_ROWS + TWIST, w)
        for j in range(joint_nv(topology, i)):
            V = V + qd[topology.v_start[i] + j, w] * joint_world_axis(topology, i, j, R, p)
        store(twists, i * TWIST_ROWS + TWIST, w, V)
        store(twists, i * TWIST_ROWS + ADJ_TWIST, w, nothing)


@wp.func
def frame_twist(topology: Topology, k: int, zero: Any, w: int, twists: wp.array2d(dtype=Any)):
    """Return the twist of the body of frame k."""
    V = wp.vector(zero, zero, zero, zero, zero, zero)
    if topology.frame_body[k] >= 0:
        V = load6(twists, topology.frame_body[k] * TWIST_ROWS + TWIST, w)
    return V


@made_once
def velocity_kernels(real: type):
    """Return the kernels of frames' velocities: 6 rows a frame, linear then angular, in world axes at its origin."""
    a = wp.array2d(dtype=real)
    Scratch = array_struct("velocity_scratch", ("poses", "twists"), real)
    zero = wp.constant(real(0.0))

    @wp.kernel(module=kernel_module("velocities", real, lanes=Lanes(writes=("velocities",))))
    def forward(topology: Topology, q: a, qd: a, placements: a, frames: a, velocities: a, scratch: Scratch):
        w = wp.tid()
        body_poses(topology, q, placements, w, scratch.poses)
        body_twists(topology, qd, w, scratch.poses, scratch.twists)
        for k in range(topology.nframe):
            R_WF, p_WF = frame_pose(topology, frames, k, w, scratch.poses)
            V = frame_twist(topology, k, zero, w, scratch.twists)
            store(velocities, 6 * k, w, linear(V) + wp.cross(angular(V), p_WF))
            store(velocities, 6 * k + 3, w, angular(V))

    written = Lanes(writes=("adj_q", "adj_qd", "adj_placements", "adj_frames"))

    @wp.kernel(module=kernel_module("velocities_vjp", real, lanes=written))
    def vjp(
        topology: Topology, q: a, qd: a, placements: a, frames: a, velocities: a, adj_velocities: a,
        adj_q: a, adj_qd: a, adj_placements: a, adj_frames: a, scratch: Scratch,
    ):  # fmt: skip
        w = wp.tid()
        body_poses(topology, q, placements, w, scratch.poses)
        body_twists(topology, qd, w, scratch.poses, scratch.twists)
        # the frames' origins, and the twists of their bodies, eq. (9)
        for k in range(topology.nframe):
            R_WF, p_WF = frame_pose(topology, frames, k, w, scratch.poses)
            adj_linear = load3(adj_velocities, 6 * k, w)
            adj_angular = load3(adj_velocities, 6 * k + 3, w)
            force = wp.cross(adj_linear, angular(frame_twist(topology, k, zero, w, scratch.twists)))
            add_frame_wrench(topology, frames, k, force - force, force, p_WF, w, adj_frames, scratch.poses)
            body = topology.frame_body[k]
            if body >= 0:
                adj_twist = spatial(adj_angular + wp.cross(p_WF, adj_linear), adj_linear)
                accumulate(scratch.twists, body * TWIST_ROWS + ADJ_TWIST, w, adj_twist)
        # the joints' rates and axes, leaves to root, eq. (10)
        for k in range(topology.npath):
            i = topology.path[topology.npath - 1 - k]
            adj_twist = load6(scratch.twists, i * TWIST_ROWS + ADJ_TWIST, w)
            R, p = body_pose(i, w, scratch.poses)
            for j in range(joint_nv(topology, i)):
                v = topology.v_start[i] + j
                S = joint_world_axis(topology, i, j, R, p)
                if adj_qd:
                    adj_qd[v, w] = adj_qd[v, w] + wp.dot(S, adj_twist)
                accumulate(scratch.poses, i * ROWS + WRENCH, w, cross_force(S, qd[v, w] * adj_twist))
            if topology.parent[i] >= 0:
                accumulate(scratch.twists, topology.parent[i] * TWIST_ROWS + ADJ_TWIST, w, adj_twist)
        gather_wrenches(topology, q, placements, w, adj_q, adj_placements, scratch.poses)

    return forward, vjp
