"""When things touch within a step: contacts and joint limits that close fast (docs/derivations/impacts.md, section 2).

What closes is judged by the motion that happens, the velocity v that the step would have without it, not by that before
the step. The moment is found on the path itself, by Newton's method on the gaps of the shapes. With the acceleration
a = (v - qd) / h of the time h that is left of a step of dt, the path is

    q (+) d(t),    d(t) = t qd + t (t + dt) / 2 a                                                                  (3)
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.collide_kernels import bounding_radius
from pullback.rigid.collide.features_kernels import half_extents
from pullback.rigid.compile.scene import (
    CONTACT_ROWS,
    GAP,
    HULL,
    PAIR,
    POSE_ROWS,
    SHAPE_POSITION,
    SHAPE_ROWS,
    SPHERE,
    Scene,
)
from pullback.rigid.step.constraint_kernels import (
    APPROACH,
    BLOCK_ROWS,
    DOF,
    LOWER,
    SCALAR_BIAS,
    SCALAR_ROWS,
    SCALAR_SLOPE,
    SIGN,
    ContactSettings,
    is_limit,
    resolution,
    scalar_dot,
)
from pullback.rigid.step.dynamics_kernels import DYNAMICS_ROWS, VELOCITY
from pullback.rigid.step.path_kernels import (
    FAR_TURN,
    find_movers,
    largest_turn,
    least_reach,
    march,
    touch_tolerance,
    trial_touch,
    write_trial,
)
from pullback.rigid.step.problem_kernels import Job
from pullback.spatial.arrays import load3, load6, load33, rows_from
from pullback.spatial.vectors import angular, linear

NEWTON_STEPS = wp.constant(12)

# what becomes of a step in which something was set aside
NOTHING_TOUCHES = wp.constant(-1)
UNDECIDED = wp.constant(-2)


# -- how far contacts are sought ---------------------------------------------------------------------------------------


@wp.func
def shape_velocity(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), dynamics: wp.array2d(dtype=Any),
    shape: int, w: int,
):  # fmt: skip
    """Return the velocity of a shape's origin in the world, and how fast turning moves its points about that."""
    zero = shapes.dtype(0.0)
    v = wp.vector(zero, zero, zero)
    body = scene.shape_body[shape]
    spin = zero
    if body >= 0:
        V = load6(dynamics, body * DYNAMICS_ROWS + VELOCITY, w)
        place = load3(shapes, shape * SHAPE_ROWS + SHAPE_POSITION, w)
        v = load33(poses, body * POSE_ROWS, w) * (linear(V) + wp.cross(angular(V), place))
        if scene.shape_kind[shape] != SPHERE:
            size = bounding_radius(shapes, shape, w)
            if scene.shape_kind[shape] == HULL:
                size = wp.max(half_extents(shapes, shape, w)) * size.dtype(
                    scene.hulls.hull_reach[scene.hulls.shape_hull[shape]]
                )
            spin = wp.length(angular(V)) * size
    return v, spin


@wp.func
def margin_ahead(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, dt: Any,
    dynamics: wp.array2d(dtype=Any), w: int, pair: int,
):  # fmt: skip
    """Return the margin and the way that two shapes may come closer within dt: eq. (1).

    In an impact, which takes no time, velocities of bodies are not known.
    """
    reach = least_reach(margin)
    if dt > type(dt)(0.0):
        va, spin_a = shape_velocity(scene, poses, shapes, dynamics, scene.pair_a[pair], w)
        vb, spin_b = shape_velocity(scene, poses, shapes, dynamics, scene.pair_b[pair], w)
        reach += dt * (wp.length(va - vb) + spin_a + spin_b)
    return reach


@wp.func
def is_no_impact_row(settings: ContactSettings, gap: Any, dt: Any, approach: Any, restitution: Any):
    """Return False: where steps are split at the touch, impacts are solved there."""
    return False


@wp.func
def impact_share(x: wp.float32):
    """Return the share of their softness that contacts have in an impact: rounding needs all of it."""
    return wp.float32(1.0)


@wp.func
def impact_share(x: wp.float64):  # noqa: F811
    """Return the share of their softness that contacts have in an impact."""
    return wp.float64(1e-3)


@wp.func
def softness_of_part(settings: ContactSettings, span: Any):
    """Return the softness of a part of a step, less in an impact: it would give way by cfm times its impulse."""
    cfm = type(span)(settings.cfm)
    if span == type(span)(0.0):
        cfm = cfm * impact_share(cfm)
    return cfm


# -- what closes -------------------------------------------------------------------------------------------------------


@wp.func
def may_close_fast(job: Job, gap: Any, approach: Any, rate: Any, span: Any):
    """Return whether a gap may close as fast as eq. (2) asks for: eq. (14). Feet that stand do not."""
    one = type(gap)(1.0)
    threshold = type(gap)(job.settings.threshold)
    fast = wp.min(approach, rate) < -threshold
    if fast and approach >= -threshold:
        gained = approach - rate
        needed = (span * (threshold - approach) + type(gap)(job.settings.dt) * gained) * (approach + threshold)
        fast = needed < (one + resolution(one) + resolution(one)) * type(gap)(2.0) * gained * gap
    return fast


@wp.func
def closing_time(job: Job, gap: Any, approach: Any, rate: Any, span: Any):
    """Return when a gap closes whose rate goes from `approach` to `rate` within the span, along eq. (3).

    It is negative if the gap does not close within the span, or too slowly for an impact: eq. (2). Return also whether
    it is the latter.
    """
    zero = type(gap)(0.0)
    half = type(gap)(0.5)
    time = type(gap)(-1.0)
    gained = half * (span + type(gap)(job.settings.dt)) * (rate - approach)
    closes = gap >= -touch_tolerance(gap) and gap + span * approach + gained < zero
    if closes and may_close_fast(job, gap, approach, rate, span):
        acceleration = (rate - approach) / span
        first = approach + half * type(gap)(job.settings.dt) * acceleration
        open_gap = wp.max(gap, zero)
        slope = wp.sqrt(wp.max(first * first - type(gap)(2.0) * acceleration * open_gap, zero)) - first
        if slope > zero:
            t = type(gap)(2.0) * open_gap / slope
            if approach + t * acceleration < -type(gap)(job.settings.threshold):
                time = t
    return time, closes and time < zero


@wp.func
def normal_rate(job: Job, c: int, row: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Return the normal velocity of contact c for s = L v, which stands in scratch at `row`."""
    scene = job.scene
    nv = scene.topology.nv
    pair = int(scratch[job.scratch.contacts + c * CONTACT_ROWS + PAIR, w])
    total = scratch.dtype(0.0)
    for k in range(scene.pair_dof_start[pair], scene.pair_dof_start[pair + 1]):
        v = scene.pair_dof[k]
        total += scratch[row + v, w] * scratch[job.scratch.Y + 3 * (c * nv + v), w]
    return total


@wp.func
def contact_closing_time(job: Job, c: int, rate: Any, w: int, scratch: wp.array2d(dtype=Any)):
    """Return when contact c closes whose rate becomes that, negative if it does not, and whether it does slowly."""
    place = job.scratch
    gap = scratch[place.contacts + c * CONTACT_ROWS + GAP, w]
    approach = scratch[place.blocks + c * BLOCK_ROWS + APPROACH, w]
    time, slowly = closing_time(job, gap, approach, rate, scratch[place.span, w])
    return time, slowly


@wp.func
def is_locked(scalars: wp.array2d(dtype=Any), s: int, w: int):
    """Tell whether the limit of scalar row s is that of a joint without room between its ends: it holds both ways."""
    return scalars[s * SCALAR_ROWS + LOWER, w] < scalars.dtype(0.0)


@wp.func
def limit_gap(k: int, w: int, scalars: wp.array2d(dtype=Any)):
    """Return how far a joint is from the limit of scalar row k; any negative number where it is far beyond."""
    gap = scalars.dtype(-1.0)
    slope = scalars[k * SCALAR_ROWS + SCALAR_SLOPE, w]
    if slope > scalars.dtype(0.0):
        gap = scalars[k * SCALAR_ROWS + SCALAR_BIAS, w] / slope
    return gap


@wp.func
def limit_closing_time(job: Job, k: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Return when the scalar row k, if it is a joint limit, closes under the velocity of s; as of a contact."""
    place = job.scratch
    row = place.scalars + k * SCALAR_ROWS
    time = scratch.dtype(-1.0)
    slowly = bool(False)
    scalars = rows_from(scratch, place.scalars)
    if is_limit(scalars, k, w) and not is_locked(scalars, k, w):
        gap = limit_gap(k, w, scalars)
        if gap >= -touch_tolerance(gap):
            approach = scratch[row + SIGN, w] * scratch[place.qd + int(scratch[row + DOF, w]), w]
            rate = scalar_dot(
                job.scene, rows_from(scratch, place.scalars), k, rows_from(scratch, place.Y_scalar),
                rows_from(scratch, place.s), w,
            )  # fmt: skip
            time, slowly = closing_time(job, gap, approach, rate, scratch[place.span, w])
    return time, slowly


# -- the moment of touching --------------------------------------------------------------------------------------------


@wp.func(inline=False)
def find_touch(
    job: Job, nc: int, found: int, ns: int, nscalar: int, parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return when the first of what was set aside touches on the path of eq. (3), and what it is.

    That is a pair, or npair + v for the limit of dof v. If it is negative, it is one of NOTHING_TOUCHES and UNDECIDED.
    """
    span = scratch[job.scratch.span, w]
    zero = scratch.dtype(0.0)
    what = int(NOTHING_TOUCHES)
    moment = span  # of the first limit, then of the first contact if that is earlier
    estimate = span
    for k in range(ns, nscalar):
        time, slowly = limit_closing_time(job, k, w, scratch)
        if slowly:
            what = UNDECIDED
        if time >= zero and time < moment and what != UNDECIDED:
            moment = time
            what = job.scene.npair + int(scratch[job.scratch.scalars + k * SCALAR_ROWS + DOF, w])
    for c in range(nc, found):
        rate = normal_rate(job, c, job.scratch.s, w, scratch)
        time, slowly = contact_closing_time(job, c, rate, w, scratch)
        if slowly:
            what = UNDECIDED
        if time >= zero:
            estimate = wp.min(estimate, time)
    seeking = estimate < moment and what != UNDECIDED
    turn = largest_turn(job, nc, found, parameters, w, scratch)
    find_movers(job, nc, found, w, scratch)
    if turn > scratch.dtype(FAR_TURN) and what != UNDECIDED:
        before = march(job, nc, found, moment, turn, parameters, w, scratch)
        if before >= zero:
            estimate = before
            seeking = True
    steps = int(0)
    while seeking:
        write_trial(job, estimate, parameters, w, scratch)
        following, gap, pair, least = trial_touch(job, nc, found, estimate, parameters, w, scratch)
        steps += 1
        if pair < 0 or following >= moment:
            seeking = False
        elif wp.abs(gap) <= touch_tolerance(gap) * wp.where(estimate > zero, scratch.dtype(0.1), scratch.dtype(1.0)):
            moment = estimate
            what = pair
            seeking = False
        elif steps >= NEWTON_STEPS:
            what = UNDECIDED
            seeking = False
        else:
            estimate = wp.max(following, zero)
    return moment, what
