"""The path of a step to a touch, and what touches on it (docs/derivations/impacts.md, section 2).

    q (+) d(t),    d(t) = t qd + t (t + dt) / 2 a,    a = (v - qd) / h                                             (3)

Newton's method on the gaps starts from the tangent of this path. What turns by more than FAR_TURN within a step leaves
its tangent by as much as it is long: then the path is looked at arc by arc.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.collide_kernels import collide_one
from pullback.rigid.compile.scene import (
    CONTACT_ROWS,
    GAP,
    MOTION_ROWS,
    NORMAL,
    PAIR,
    POINT,
    POSE_ROWS,
    SHAPE_POSITION,
    SHAPE_ROWS,
    SPHERE,
)
from pullback.rigid.step.dynamics_kernels import DYNAMICS_ROWS, VELOCITY
from pullback.rigid.step.integrate_kernels import integrate, turn_axes
from pullback.rigid.step.jacobian_kernels import velocity_at
from pullback.rigid.step.problem_kernels import Job
from pullback.robot.joint_kernels import joint_pose, joint_world_motion
from pullback.spatial.arrays import load3, load6, load33, rows_from, store, store33
from pullback.spatial.vectors import angular, linear

FAR_TURN = wp.constant(0.2)
"""The angle [rad] within a step beyond which shapes are followed on their arcs."""
ARC = wp.constant(0.1)
MOST_ARCS = wp.constant(64)
HALVINGS = wp.constant(5)
RESTING = wp.constant(1e-6)
"""Contacts that are closer [m, rad], and do not approach, take part in an impact."""


@wp.func
def touch_tolerance(x: wp.float32):
    """Return the gap [m, rad] below which things touch."""
    return wp.float32(2e-6)


@wp.func
def touch_tolerance(x: wp.float64):  # noqa: F811
    """Return the gap [m, rad] below which things touch."""
    return wp.float64(1e-11)


@wp.func
def least_reach(margin: Any):
    """Return how far contacts are sought at least: what touches, or rests, is seen without a margin too."""
    return wp.max(margin, type(margin)(RESTING) + touch_tolerance(margin))


# -- the way to a touch ------------------------------------------------------------------------------------------------


@wp.func
def way_share(job: Job, time: Any, span: Any):
    """Return the weight of v in the displacement d of eq. (3), and that in its derivative by time.

    Those of qd are the time, and one, less that.
    """
    dt = type(time)(job.settings.dt)
    half = type(time)(0.5)
    return half * time * (time + dt) / span, half * (time + time + dt) / span


@wp.func
def write_way(
    job: Job, time: Any, span: Any, qd: wp.array2d(dtype=Any), velocity: wp.array2d(dtype=Any), w: int,
    way: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the displacement d after a time, eq. (3)."""
    share, by_time = way_share(job, time, span)
    for v in range(job.scene.topology.nv):
        way[v, w] = time * qd[v, w] + share * (velocity[v, w] - qd[v, w])


@wp.func
def way_rate(by_time: Any, before: Any, after: Any):
    """Return the derivative of d by time, for one dof with velocities before and after the step."""
    return before + by_time * (after - before)


# -- what touches there ------------------------------------------------------------------------------------------------


@wp.func
def find_movers(job: Job, nc: int, found: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Mark the bodies whose poses tell the gaps of contacts set aside: their own, and those that carry them."""
    for i in range(job.scene.topology.nbody):
        scratch[job.scratch.is_mover + i, w] = scratch.dtype(0.0)
    for c in range(nc, found):
        pair = int(scratch[job.scratch.contacts + c * CONTACT_ROWS + PAIR, w])
        mark_branch(job, job.scene.shape_body[job.scene.pair_a[pair]], w, scratch)
        mark_branch(job, job.scene.shape_body[job.scene.pair_b[pair]], w, scratch)


@wp.func
def mark_branch(job: Job, body: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Mark a body, none if it is negative, and those that carry it."""
    i = int(body)
    while i >= 0:
        scratch[job.scratch.is_mover + i, w] = scratch.dtype(1.0)
        i = job.scene.topology.parent[i]


@wp.func
def write_trial(job: Job, time: Any, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Write poses and velocities of bodies that `find_movers` marked, after a time on the path of eq. (3)."""
    scene = job.scene
    place = job.scratch
    topology = scene.topology
    q = rows_from(scratch, place.trial_q)
    rates = rows_from(scratch, place.trial_rates)
    poses = rows_from(scratch, place.trial_poses)
    motion = rows_from(scratch, place.trial_motion)
    placements = rows_from(parameters, job.parameters.placements)
    way = rows_from(scratch, place.travel)
    span = scratch[place.span, w]
    one = scratch.dtype(1.0)
    write_way(job, time, span, rows_from(scratch, place.qd), rows_from(scratch, place.velocity), w, way)
    share, by_time = way_share(job, time, span)
    for k in range(scene.nq):
        q[k, w] = scratch[place.q + k, w]
    for v in range(topology.nv):
        rates[v, w] = way_rate(by_time, scratch[place.qd + v, w], scratch[place.velocity + v, w])
    integrate(scene, one, way, w, q)
    turn_axes(scene, one, way, w, rates)
    for i in range(topology.nbody):
        if scratch[place.is_mover + i, w] > scratch.dtype(0.0):
            parent = topology.parent[i]
            R, p = joint_pose(topology, i, placements, q, w)
            if parent >= 0:
                R_P = load33(poses, parent * POSE_ROWS, w)
                p = load3(poses, parent * POSE_ROWS + 9, w) + R_P * p
                R = R_P * R
            store33(poses, i * POSE_ROWS, w, R)
            store(poses, i * POSE_ROWS + 9, w, p)
            V = joint_world_motion(topology, i, R, rates, w)
            if parent >= 0:
                V = V + velocity_at(parent, p, poses, motion, w)
            store(motion, i * MOTION_ROWS, w, V)


@wp.func
def trial_touch(
    job: Job, nc: int, found: int, time: Any, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Return when the first of the contacts set aside touches, by Newton's step from a time: eq. (4).

    Return also the gap that it has, its pair, -1 if none closes, and the smallest gap of all of these pairs.
    """
    scene = job.scene
    place = job.scratch
    poses = rows_from(scratch, place.trial_poses)
    motion = rows_from(scratch, place.trial_motion)
    contacts = rows_from(scratch, place.trial_contacts)
    first = time
    gap_of_first = time - time
    pair_of_first = int(-1)
    least = scratch.dtype(job.settings.margin)
    last_pair = int(-1)
    for c in range(nc, found):
        row = place.contacts + c * CONTACT_ROWS
        pair = int(scratch[row + PAIR, w])
        if pair != last_pair:
            reach = least_reach(scratch.dtype(job.settings.margin)) + scratch.dtype(2.0) * scratch[row + GAP, w]
            count = collide_one(
                scene, poses, rows_from(parameters, job.parameters.shapes), reach, w, contacts,
                rows_from(scratch, place.candidates), rows_from(scratch, place.hulls), pair, 0,
            )  # fmt: skip
            for k in range(wp.min(count, scene.max_contacts)):
                gap = contacts[k * CONTACT_ROWS + GAP, w]
                least = wp.min(least, gap)
                point = load3(contacts, k * CONTACT_ROWS + POINT, w)
                relative = velocity_at(scene.shape_body[scene.pair_a[pair]], point, poses, motion, w) - velocity_at(
                    scene.shape_body[scene.pair_b[pair]], point, poses, motion, w
                )
                rate = wp.dot(load3(contacts, k * CONTACT_ROWS + NORMAL, w), linear(relative))
                if rate < -scratch.dtype(job.settings.threshold):
                    t = time - gap / rate
                    if pair_of_first < 0 or t < first:
                        first = t
                        gap_of_first = gap
                        pair_of_first = pair
        last_pair = pair
    return first, gap_of_first, pair_of_first, least


# -- what turns far ----------------------------------------------------------------------------------------------------


@wp.func
def turn_of_shape(job: Job, shape: int, w: int, parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any)):
    """Return the angle that a shape turns by within the span, zero for a ball that turns about its centre."""
    turn = scratch.dtype(0.0)
    body = job.scene.shape_body[shape]
    if body >= 0:
        shapes = rows_from(parameters, job.parameters.shapes)
        is_round = job.scene.shape_kind[shape] == SPHERE
        if not is_round or wp.length(load3(shapes, shape * SHAPE_ROWS + SHAPE_POSITION, w)) > turn:
            V = load6(scratch, job.scratch.dynamics + body * DYNAMICS_ROWS + VELOCITY, w)
            turn = scratch[job.scratch.span, w] * wp.length(angular(V))
    return turn


@wp.func
def turn_of_contact(job: Job, c: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Return the larger angle that the two shapes of contact c turn by within the span."""
    pair = int(scratch[job.scratch.contacts + c * CONTACT_ROWS + PAIR, w])
    a = turn_of_shape(job, job.scene.pair_a[pair], w, parameters, scratch)
    b = turn_of_shape(job, job.scene.pair_b[pair], w, parameters, scratch)
    return wp.max(a, b)


@wp.func
def may_swing_in(job: Job, c: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Return whether contact c is open and may close on an arc, although it does not along the tangent."""
    gap = scratch[job.scratch.contacts + c * CONTACT_ROWS + GAP, w]
    swings = bool(False)
    if gap > touch_tolerance(gap):
        swings = turn_of_contact(job, c, parameters, w, scratch) > scratch.dtype(FAR_TURN)
    return swings


@wp.func
def largest_turn(
    job: Job, nc: int, found: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Return the largest angle that shapes of contacts set aside turn by within the span."""
    turn = scratch.dtype(0.0)
    for c in range(nc, found):
        turn = wp.max(turn, turn_of_contact(job, c, parameters, w, scratch))
    return turn


@wp.func
def march(
    job: Job, nc: int, found: int, moment: Any, turn: Any, parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return a time shortly before contacts set aside first overlap on the path, negative if they do not by a moment.

    The path is looked at in arcs, and the first with an overlap is halved. Contacts that overlap from the start, and
    what turns so far that arcs would be too many, are left to the tangent: negative as well.
    """
    arcs = wp.min(int(wp.ceil(turn / type(turn)(ARC))), MOST_ARCS)
    half = type(moment)(0.5)
    low = moment - moment
    time = moment - moment
    overlaps = bool(False)
    k = int(0)
    while k <= arcs and not overlaps:
        time = moment * type(moment)(k) / type(moment)(arcs)
        write_trial(job, time, parameters, w, scratch)
        first, gap, pair, least = trial_touch(job, nc, found, time, parameters, w, scratch)
        overlaps = least < -touch_tolerance(least)
        if not overlaps:
            low = time
        k += 1
    if not overlaps or k == 1:
        low = -type(moment)(1.0)
    else:
        for _i in range(HALVINGS):
            middle = half * (low + time)
            write_trial(job, middle, parameters, w, scratch)
            first, gap, pair, least = trial_touch(job, nc, found, middle, parameters, w, scratch)
            if least < -touch_tolerance(least):
                time = middle
            else:
                low = middle
    return low
