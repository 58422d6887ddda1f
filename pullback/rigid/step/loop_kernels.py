"""Closed loops: two frames that stay together, as rows of the contact problem (docs/derivations/loops.md).

Frame F on body a, with axes f and origin p, and frame G on body b, with axes g and origin o. A row stops one of six
motions, each the rate of an error that the frames have:

    kind 0, 1, 2    e = g·(p - o),    J v = g·u           g = x, y, z;  u: a's velocity relative to b's at p      (1)
    kind 3, 4, 5    e = f·g,          J v = (f × g)·ω     f, g = z, x;  z, y;  x, y;  ω: a's relative to b's      (2)
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import LOOP_ROWS, POSE_ROWS, Scene
from pullback.rigid.step.constraint_kernels import ContactSettings, scalar_row
from pullback.robot.joint_kernels import joint_component
from pullback.spatial.arrays import accumulate, load3, load33, store
from pullback.spatial.vectors import spatial

# where axes and origins stand among the rows of a loop; the axes of body a's frame are the first
ORIGIN_A = wp.constant(9)
AXES_B = wp.constant(12)
ORIGIN_B = wp.constant(21)


@wp.func
def loop_row_vectors(kind: int, row: int):
    """Return where the vectors of a row stand, p or f of frame a and g of frame b, and whether it is p."""
    first = row + ORIGIN_A
    second = row + AXES_B + 3 * kind
    if kind >= 3:
        first = row + 6
        second = row + AXES_B + 3 * (kind - 3)
    if kind == 5:
        first = row
        second = row + AXES_B + 3
    return first, second, kind < 3


@wp.func
def vector_body(scene: Scene, k: int):
    """Return the body that axis or origin k is fixed to; a loop has eight of them."""
    body = scene.loop_body_a[k // 8]
    if k % 8 > 3:
        body = scene.loop_body_b[k // 8]
    return body


@wp.func
def loop_frames(
    scene: Scene, poses: wp.array2d(dtype=Any), frames: wp.array2d(dtype=Any), w: int, loops: wp.array2d(dtype=Any)
):
    """Write the axes and origins of all loops' frames in the world."""
    for k in range(8 * scene.nloop):
        body = vector_body(scene, k)
        x = load3(frames, 3 * k, w)
        if body >= 0:
            x = load33(poses, body * POSE_ROWS, w) * x
            if k % 4 == 3:
                x = x + load3(poses, body * POSE_ROWS + 9, w)
        store(loops, 3 * k, w, x)


@wp.func
def loop_frames_vjp(
    scene: Scene, poses: wp.array2d(dtype=Any), loops: wp.array2d(dtype=Any), adj_loops: wp.array2d(dtype=Any), w: int,
    wrench: wp.array2d(dtype=Any), adj_frames: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of bodies' poses, as wrenches at the world's origin, and of the frames on them: eq. (7)."""
    for k in range(8 * scene.nloop):
        body = vector_body(scene, k)
        adj = load3(adj_loops, 3 * k, w)
        if body >= 0:
            push = adj
            if k % 4 < 3:
                push = adj - adj
            accumulate(wrench, 6 * body, w, spatial(wp.cross(load3(loops, 3 * k, w), adj), push))
            adj = adj * load33(poses, body * POSE_ROWS, w)
        if adj_frames:
            accumulate(adj_frames, 3 * k, w, adj)


@wp.func
def dof_power(scene: Scene, v: int, poses: wp.array2d(dtype=Any), force: Any, moment: Any, w: int):
    """Return the power of a force and its moment about the world's origin at the rate one of the dof v."""
    i = scene.dof_body[v]
    R = load33(poses, i * POSE_ROWS, w)
    torque = moment - wp.cross(load3(poses, i * POSE_ROWS + 9, w), force)
    return joint_component(scene.topology, i, v - scene.topology.v_start[i], spatial(torque * R, force * R))


@wp.func
def loop_row(
    scene: Scene, settings: ContactSettings, k: int, loops: wp.array2d(dtype=Any), poses: wp.array2d(dtype=Any),
    L: wp.array2d(dtype=Any), w: int, scalars: wp.array2d(dtype=Any), Y: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write row k, one of a loop: Y = L^-T J^T on the dofs of both bodies, its bias, and no bounds."""
    nv = scene.topology.nv
    loop = scene.loop_row_loop[k]
    row = loop * LOOP_ROWS
    first_vector, second_vector, is_point = loop_row_vectors(scene.loop_row_kind[k], row)
    x = load3(loops, first_vector, w)
    g = load3(loops, second_vector, w)
    moment = wp.cross(x, g)
    force = g - g
    held = x
    if is_point:
        force = g
        held = x - load3(loops, row + ORIGIN_B, w)
    zero = Y.dtype(0.0)
    far = Y.dtype(1.0) / zero
    first = scene.loop_start[loop] % nv
    way = scene.loop_start[loop] - first
    u = int(first)
    while u >= 0:
        sign = Y.dtype(scene.loop_sign[loop * nv + u])
        Y[k * nv + u, w] = sign * dof_power(scene, u, poses, force, moment, w)
        u = scene.dof_parent[way + u]
    bias = Y.dtype(settings.loop_erp / settings.dt) * wp.dot(held, g)
    numbers = wp.vector(bias, -far, far, zero)
    scalar_row(scene, settings, scene.loop_start[loop], Y.dtype(1.0), numbers, L, k, w, scalars, Y)
