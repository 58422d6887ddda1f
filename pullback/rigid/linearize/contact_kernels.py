"""How the rows of contacts change with coordinates, as matrices (docs/derivations/linearize.md, section 3)."""

from typing import Any

import warp as wp

from pullback.rigid.collide.collide_kernels import contact_vjp
from pullback.rigid.compile.scene import CONTACT_ROWS, NORMAL, PAIR, POINT
from pullback.rigid.linearize.dynamics_kernels import (
    AXIS,
    AXIS_ROWS,
    BODY_ROWS,
    NEXT_TURNED,
    NEXT_VELOCITY,
    ORIGIN,
    LinearJob,
    vertex_height,
)
from pullback.rigid.linearize.rows_kernels import fill
from pullback.rigid.step.constraint_kernels import BLOCK_ROWS, SLOPE, TANGENT, smallest_axis
from pullback.rigid.step.problem_kernels import Job
from pullback.spatial.arrays import load3, load6, rows_from, store
from pullback.spatial.vectors import angular, linear, spatial

# rows of a contact and a dof
POINT_VELOCITY = wp.constant(0)
FORCE_CHANGE = wp.constant(3)
TORQUE_CHANGE = wp.constant(6)
PLACE_ROWS = wp.constant(9)

# numbers of a contact that its bodies move: gap, point, normal; each answers to two motions by six rows
GEOMETRY = wp.constant(7)
MAP_ROWS = wp.constant(12)


@wp.func
def motion_at(point: Any, origin: Any, x: Any):
    """Return the motion x, seen from `origin`, as angular velocity and velocity of the point."""
    return spatial(angular(x), linear(x) + wp.cross(angular(x), point - origin))


@wp.func
def body_motion_at(body: int, point: Any, bodies: wp.array2d(dtype=Any), w: int):
    """Return the new velocity of a body at a point; zero for the world."""
    zero = point.dtype(0.0)
    V = wp.vector(zero, zero, zero, zero, zero, zero)
    if body >= 0:
        row = body * BODY_ROWS
        V = motion_at(point, load3(bodies, row + ORIGIN, w), load6(bodies, row + NEXT_VELOCITY, w))
    return V


@wp.func
def first_tangent_jvp(n: Any, t1: Any, dn: Any):
    """Return the change of the first tangent for that of the normal."""
    axis = smallest_axis(n)
    along = wp.dot(axis, n)
    change = -(wp.dot(axis, dn) * n) - along * dn
    return (change - wp.dot(t1, change) * t1) / wp.length(axis - along * n)


@wp.func
def write_maps(
    job: Job, c: int, point: Any, body_a: int, body_b: int, parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any), nowhere: wp.array2d(dtype=Any), maps: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write how gap, point and normal of contact c answer to motions of its bodies at its point: eq. (12)."""
    scene = job.scene
    poses = rows_from(scratch, job.scratch.poses)
    shapes = rows_from(parameters, job.parameters.shapes)
    contacts = rows_from(scratch, job.scratch.contacts)
    wrench = rows_from(scratch, job.scratch.wrench)
    tape = rows_from(scratch, job.scratch.candidates)
    zero = point.dtype(0.0)
    one = point.dtype(1.0)
    nothing = wp.vector(zero, zero, zero, zero, zero, zero)
    numbers = int(GEOMETRY)  # a loop that is not unrolled: its body is large
    for g in range(numbers):
        if body_a >= 0:
            store(wrench, 6 * body_a, w, nothing)
        if body_b >= 0:
            store(wrench, 6 * body_b, w, nothing)
        x = wp.where(g % 3 == 1, one, zero)
        y = wp.where(g % 3 == 2, one, zero)
        z = wp.where(g % 3 == 0, one, zero)
        gap = zero
        to_point = wp.vector(zero, zero, zero)
        to_normal = wp.vector(zero, zero, zero)
        if g == 0:
            gap = one
        elif g < 4:
            to_point = wp.vector(x, y, z)
        else:
            to_normal = wp.vector(x, y, z)
        contact_vjp(scene, poses, shapes, w, contacts, c, gap, to_point, to_normal, wrench, nowhere, tape)
        for side in range(2):
            body = body_a
            if side == 1:
                body = body_b
            if body >= 0:
                G = load6(wrench, 6 * body, w)
                at_point = spatial(angular(G) - wp.cross(point, linear(G)), linear(G))
                store(maps, g * MAP_ROWS + 6 * side, w, at_point)


@wp.func
def moved_geometry(sign: int, x: Any, maps: wp.array2d(dtype=Any), number: int, w: int):
    """Return the change of one of a contact's numbers as body a (sign 1), b (-1) or both (0) move by x."""
    value = x.dtype(0.0)
    if sign >= 0:
        value += wp.dot(load6(maps, number * MAP_ROWS, w), x)
    if sign <= 0:
        value += wp.dot(load6(maps, number * MAP_ROWS + 6, w), x)
    return value


@wp.func
def row_by_motion(d: Any, u: Any, turning: Any, height: Any, n: Any, slope: Any, arm: Any):
    """Return how a row along d changes with the motion of a vertex over a plane, seen from -arm: eq. (25)."""
    a = wp.cross(d, turning)
    by_velocity = (slope - n.dtype(0.5) * wp.dot(n, a)) * n
    by_turning = wp.cross(height * n, a) + wp.cross(u, d)
    return spatial(by_turning + wp.cross(arm, by_velocity), by_velocity)


@wp.func
def write_plane_rows(
    linear_job: LinearJob, c: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
    work: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the change of the velocities of the rows of contact c, a vertex over a plane: eq. (25)."""
    job = linear_job.job
    scene = job.scene
    contacts = rows_from(scratch, job.scratch.contacts)
    bodies = rows_from(work, linear_job.place.bodies)
    axes = rows_from(work, linear_job.place.axes)
    columns = linear_job.columns
    rows = rows_from(work, linear_job.place.rows + 3 * c * columns)
    pair = int(contacts[c * CONTACT_ROWS + PAIR, w])
    point = load3(contacts, c * CONTACT_ROWS + POINT, w)
    n = load3(contacts, c * CONTACT_ROWS + NORMAL, w)
    t1 = load3(scratch, job.scratch.blocks + c * BLOCK_ROWS + TANGENT, w)
    t2 = wp.cross(n, t1)
    slope = scratch[job.scratch.blocks + c * BLOCK_ROWS + SLOPE, w]
    height = vertex_height(scene, c, pair, rows_from(parameters, job.parameters.shapes), contacts, w)
    body = scene.shape_body[scene.pair_a[pair]]
    V = body_motion_at(body, point, bodies, w)
    u = linear(V)
    turning = angular(V)
    arm = point - load3(bodies, body * BODY_ROWS + ORIGIN, w)
    by_normal = row_by_motion(n, u, turning, height, n, slope, arm)
    by_first = row_by_motion(t1, u, turning, height, n, slope - slope, arm)
    by_second = row_by_motion(t2, u, turning, height, n, slope - slope, arm)
    normal = spatial(wp.cross(arm, n), n)
    first = spatial(wp.cross(arm, t1), t1)
    second = spatial(wp.cross(arm, t2), t2)
    fill(rows, 0, 3 * columns, w)
    for k in range(scene.pair_dof_start[pair], scene.pair_dof_start[pair + 1]):
        j = scene.pair_dof[k]
        S = load6(axes, j * AXIS_ROWS + AXIS, w)
        turned = load6(axes, j * AXIS_ROWS + NEXT_TURNED, w)
        rows[j, w] = wp.dot(by_normal, S) + wp.dot(normal, turned)
        rows[columns + j, w] = wp.dot(by_first, S) + wp.dot(first, turned)
        rows[2 * columns + j, w] = wp.dot(by_second, S) + wp.dot(second, turned)


@wp.func
def add_contact_change(
    linear_job: LinearJob, c: int, parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any), nowhere: wp.array2d(dtype=Any), work: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add S^T dF of contact c to the change of forces; write that of its rows' velocities: eqs. (13) to (16)."""
    job = linear_job.job
    scene = job.scene
    place = linear_job.place
    topology = scene.topology
    contacts = rows_from(scratch, job.scratch.contacts)
    bodies = rows_from(work, place.bodies)
    axes = rows_from(work, place.axes)
    maps = rows_from(work, place.maps)
    places = rows_from(work, place.places)
    change = rows_from(work, place.change)
    columns = linear_job.columns
    rows = rows_from(work, place.rows + 3 * c * columns)
    pair = int(contacts[c * CONTACT_ROWS + PAIR, w])
    point = load3(contacts, c * CONTACT_ROWS + POINT, w)
    n = load3(contacts, c * CONTACT_ROWS + NORMAL, w)
    t1 = load3(scratch, job.scratch.blocks + c * BLOCK_ROWS + TANGENT, w)
    t2 = wp.cross(n, t1)
    slope = scratch[job.scratch.blocks + c * BLOCK_ROWS + SLOPE, w]
    lam = load3(scratch, job.scratch.lam + 3 * c, w)
    f = lam[0] * n + lam[1] * t1 + lam[2] * t2
    body_a = scene.shape_body[scene.pair_a[pair]]
    body_b = scene.shape_body[scene.pair_b[pair]]
    write_maps(job, c, point, body_a, body_b, parameters, w, scratch, nowhere, maps)
    V_a = body_motion_at(body_a, point, bodies, w)
    V_b = body_motion_at(body_b, point, bodies, w)
    relative = V_a - V_b
    u = linear(relative)
    first = scene.pair_dof_start[pair]
    last = scene.pair_dof_start[pair + 1]
    fill(rows, 0, 3 * columns, w)
    for k in range(first, last):
        j = scene.pair_dof[k]
        sign = scene.pair_sign[k]
        body = scene.dof_body[j]
        S = motion_at(point, load3(bodies, body * BODY_ROWS + ORIGIN, w), load6(axes, j * AXIS_ROWS + AXIS, w))
        # how the contact moves
        gap = moved_geometry(sign, S, maps, 0, w)
        dp = wp.vector(
            moved_geometry(sign, S, maps, 1, w),
            moved_geometry(sign, S, maps, 2, w),
            moved_geometry(sign, S, maps, 3, w),
        )
        dn = wp.vector(
            moved_geometry(sign, S, maps, 4, w),
            moved_geometry(sign, S, maps, 5, w),
            moved_geometry(sign, S, maps, 6, w),
        )
        dt1 = first_tangent_jvp(n, t1, dn)
        dt2 = wp.cross(dn, t1) + wp.cross(n, dt1)
        # the velocities that the joint carries along, eq. (15)
        carried = relative
        if sign != 0:
            above = body_motion_at(topology.parent[body], point, bodies, w)
            if sign > 0:
                carried = V_a - above
            else:
                carried = above - V_b
        du = (
            wp.cross(angular(relative), dp)
            + wp.cross(angular(S), linear(carried))
            + wp.cross(linear(S), angular(carried))
        )
        rows[j, w] = wp.dot(dn, u) + wp.dot(n, du) + slope * gap
        rows[columns + j, w] = wp.dot(dt1, u) + wp.dot(t1, du)
        rows[2 * columns + j, w] = wp.dot(dt2, u) + wp.dot(t2, du)
        store(places, j * PLACE_ROWS + POINT_VELOCITY, w, linear(S))
        store(places, j * PLACE_ROWS + FORCE_CHANGE, w, lam[0] * dn + lam[1] * dt1 + lam[2] * dt2)
        store(places, j * PLACE_ROWS + TORQUE_CHANGE, w, wp.cross(dp, f))
    # the work of the changed force at every dof, eq. (14)
    for k in range(first, last):
        i = scene.pair_dof[k]
        sign = scene.pair_sign[k]
        if sign != 0:
            of_sign = point.dtype(sign)
            velocity = of_sign * load3(places, i * PLACE_ROWS + POINT_VELOCITY, w)
            turning = of_sign * load3(axes, i * AXIS_ROWS + AXIS, w)
            for other in range(first, last):
                j = scene.pair_dof[other]
                value = wp.dot(velocity, load3(places, j * PLACE_ROWS + FORCE_CHANGE, w)) + wp.dot(
                    turning, load3(places, j * PLACE_ROWS + TORQUE_CHANGE, w)
                )
                at = i * columns + j
                change[at, w] = change[at, w] + value
