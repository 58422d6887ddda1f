"""How the rows of the contact problem change with the poses of bodies (docs/derivations/contact_step.md, section 4).

For rates x of the joints and weights alpha of the rows, the scalar alpha^T J x is the power of the contact forces
f = sum of alpha d over a contact's directions d, at the relative velocity u of its two bodies under x:

    alpha^T J x = sum over contacts f·u = sum over joints F·(S x)                  (6)

F being the wrench on everything outboard of a joint. Bodies that move carry S along, which gives each the cotangent
S x ×* F; the contact's point and directions have cotangents of their own.         (7)
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import (
    ADJ_CONTACT_ROWS,
    ADJ_NORMAL,
    ADJ_POINT,
    CONTACT_ROWS,
    LOOP_ROWS,
    MOTION_ROWS,
    NORMAL,
    PAIR,
    POINT,
    POSE_ROWS,
    Scene,
)
from pullback.rigid.step.constraint_kernels import BLOCK_ROWS, TANGENT, smallest_axis
from pullback.rigid.step.loop_kernels import ORIGIN_A, ORIGIN_B, loop_row_vectors
from pullback.rigid.step.problem_kernels import Job
from pullback.robot.joint_kernels import joint_world_motion
from pullback.spatial.arrays import accumulate, load3, load6, load33, rows_from, store
from pullback.spatial.vectors import angular, cross_force, linear, spatial

# rows of a body's motion
VELOCITY = wp.constant(0)
WRENCH = wp.constant(6)


@wp.func
def tangents_vjp(n: Any, adj_first: Any, adj_second: Any):
    """Return the cotangent of the normal for those of the two tangents."""
    axis = smallest_axis(n)
    along = wp.dot(axis, n)
    a = axis - along * n
    first = wp.normalize(a)
    adj = adj_first + wp.cross(adj_second, n)
    adj_a = (adj - wp.dot(first, adj) * first) / wp.length(a)
    return wp.cross(first, adj_second) - wp.dot(n, adj_a) * axis - along * adj_a


@wp.func
def velocity_at(body: int, point: Any, poses: wp.array2d(dtype=Any), motion: wp.array2d(dtype=Any), w: int):
    """Return the angular velocity of a body and the velocity of its material point; zero for the world."""
    zero = point.dtype(0.0)
    V = wp.vector(zero, zero, zero, zero, zero, zero)
    if body >= 0:
        V = load6(motion, body * MOTION_ROWS + VELOCITY, w)
        arm = point - load3(poses, body * POSE_ROWS + 9, w)
        V = spatial(angular(V), linear(V) + wp.cross(angular(V), arm))
    return V


@wp.func
def add_loop_term(
    scene: Scene, k: int, loops: wp.array2d(dtype=Any), slope: Any, poses: wp.array2d(dtype=Any), weight: Any, w: int,
    adj_loops: wp.array2d(dtype=Any), motion: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of weight (J x + slope error), of one row of a loop, by its frames; add its wrench to bodies'.

    docs/derivations/loops.md, eqs. (5) and (6).
    """
    loop = scene.loop_row_loop[k]
    row = loop * LOOP_ROWS
    body_a = scene.loop_body_a[loop]
    body_b = scene.loop_body_b[loop]
    point = load3(loops, row + ORIGIN_A, w)
    first, second, is_point = loop_row_vectors(scene.loop_row_kind[k], row)
    relative = velocity_at(body_a, point, poses, motion, w) - velocity_at(body_b, point, poses, motion, w)
    x = load3(loops, first, w)
    g = load3(loops, second, w)
    # an axis of a is held against g of b, or the way between the origins
    force = g - g
    held = x
    rate = wp.cross(angular(relative), x)
    if is_point:
        force = g
        held = x - load3(loops, row + ORIGIN_B, w)
        rate = linear(relative)
        accumulate(adj_loops, row + ORIGIN_B, w, -(weight * slope) * g)
    accumulate(adj_loops, first, w, weight * (wp.cross(g, angular(relative)) + slope * g))
    accumulate(adj_loops, second, w, weight * (rate + slope * held))
    F = weight * spatial(wp.cross(x, g), force)
    if body_a >= 0:
        accumulate(motion, body_a * MOTION_ROWS + WRENCH, w, F)
    if body_b >= 0:
        accumulate(motion, body_b * MOTION_ROWS + WRENCH, w, -F)


@wp.func
def jacobian_vjp(job: Job, nc: int, with_errors: bool, w: int, scratch: wp.array2d(dtype=Any)):
    """Add the cotangents of alpha^T J x by what contacts and loops consist of and by the poses of bodies, eq. (7).

    `with_errors`: of alpha^T (J x + bias) for loops; without time passing they have no bias.
    """
    scene = job.scene
    place = job.scratch
    contacts = rows_from(scratch, place.contacts)
    blocks = rows_from(scratch, place.blocks)
    loops = rows_from(scratch, place.loops)
    poses = rows_from(scratch, place.poses)
    alpha = rows_from(scratch, place.alpha)
    x = rows_from(scratch, place.rates)
    adj_contacts = rows_from(scratch, place.adj_contacts)
    adj_loops = rows_from(scratch, place.adj_loops)
    wrench = rows_from(scratch, place.wrench)
    motion = rows_from(scratch, place.motion)
    slope = scratch.dtype(0.0)
    if with_errors and scratch[place.span, w] > slope:
        slope = scratch.dtype(job.settings.loop_erp / job.settings.dt)
    topology = scene.topology
    zero = poses.dtype(0.0)
    nothing = wp.vector(zero, zero, zero, zero, zero, zero)
    # velocities under x, root to leaves
    for i in range(topology.nbody):
        parent = topology.parent[i]
        V = joint_world_motion(topology, i, load33(poses, i * POSE_ROWS, w), x, w)
        if parent >= 0:
            V = V + velocity_at(parent, load3(poses, i * POSE_ROWS + 9, w), poses, motion, w)
        store(motion, i * MOTION_ROWS + VELOCITY, w, V)
        store(motion, i * MOTION_ROWS + WRENCH, w, nothing)
    # the contacts' own cotangents, and their forces on the bodies
    for c in range(nc):
        row = c * CONTACT_ROWS
        a = load3(alpha, 3 * c, w)
        if a[0] != zero or a[1] != zero or a[2] != zero:
            pair = int(contacts[row + PAIR, w])
            point = load3(contacts, row + POINT, w)
            n = load3(contacts, row + NORMAL, w)
            t1 = load3(blocks, c * BLOCK_ROWS + TANGENT, w)
            body_a = scene.shape_body[scene.pair_a[pair]]
            body_b = scene.shape_body[scene.pair_b[pair]]
            relative = velocity_at(body_a, point, poses, motion, w) - velocity_at(body_b, point, poses, motion, w)
            u = linear(relative)
            f = a[0] * n + a[1] * t1 + a[2] * wp.cross(n, t1)
            out = c * ADJ_CONTACT_ROWS
            accumulate(adj_contacts, out + ADJ_POINT, w, wp.cross(f, angular(relative)))
            accumulate(adj_contacts, out + ADJ_NORMAL, w, a[0] * u + tangents_vjp(n, a[1] * u, a[2] * u))
            F = spatial(wp.cross(point, f), f)
            if body_a >= 0:
                accumulate(motion, body_a * MOTION_ROWS + WRENCH, w, F)
            if body_b >= 0:
                accumulate(motion, body_b * MOTION_ROWS + WRENCH, w, -F)
    for k in range(scene.nloop_row):
        add_loop_term(scene, k, loops, slope, poses, alpha[3 * nc + k, w], w, adj_loops, motion)
    # joints carry their axes along, leaves to root
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        F = load6(motion, i * MOTION_ROWS + WRENCH, w)
        S = joint_world_motion(topology, i, load33(poses, i * POSE_ROWS, w), x, w)
        S = spatial(angular(S), linear(S) + wp.cross(load3(poses, i * POSE_ROWS + 9, w), angular(S)))
        accumulate(wrench, 6 * i, w, cross_force(S, F))
        if topology.parent[i] >= 0:
            accumulate(motion, topology.parent[i] * MOTION_ROWS + WRENCH, w, F)
