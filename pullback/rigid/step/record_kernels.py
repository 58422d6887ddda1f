"""Forces that contacts have in a step that is split: the sum over its parts (docs/derivations/impacts.md, section 8).

There is a record for every contact of the first part. Later parts add to the record of the same pair whose point is
nearest. Where a pair has none, since it came within reach only during the step, they add one of their own.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import (
    ADJ_CONTACT_ROWS,
    ADJ_GAP,
    ADJ_NORMAL,
    ADJ_POINT,
    CONTACT_ROWS,
    GAP,
    NORMAL,
    PAIR,
    POINT,
    POSE_ROWS,
    RECORD_ROWS,
    Scene,
)
from pullback.rigid.step.constraint_kernels import BLOCK_ROWS, TANGENT
from pullback.rigid.step.jacobian_kernels import tangents_vjp
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.step_vjp_kernels import clear_geometry, geometry_vjp
from pullback.spatial.arrays import accumulate, load3, rows_from, store
from pullback.spatial.vectors import spatial

# rows of a record; the first ones are those of a report
FORCE = wp.constant(8)
STAGE = wp.constant(11)  # the part that it was found in
MOMENT = wp.constant(12)  # torques on the bodies of both shapes, about their origins when the forces act
ARM = wp.constant(18)  # from these origins to the point, when it was found

# before the records
COUNT = wp.constant(0)
MOST = wp.constant(1)  # contacts of one part, or records: what there should be room for
FIRST_RECORD = wp.constant(2)


@wp.func
def contact_impulse(job: Job, c: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Return the impulse on the first shape of contact c, in world axes."""
    n = load3(scratch, job.scratch.contacts + c * CONTACT_ROWS + NORMAL, w)
    t1 = load3(scratch, job.scratch.blocks + c * BLOCK_ROWS + TANGENT, w)
    impulse = load3(scratch, job.scratch.lam + 3 * c, w)
    return impulse[0] * n + impulse[1] * t1 + impulse[2] * wp.cross(n, t1)


@wp.func
def add_impulse_cotangent(job: Job, c: int, push: Any, w: int, scratch: wp.array2d(dtype=Any)):
    """Add the cotangent of `contact_impulse` to those of its rows and normal: eq. (12) of contact_step.md."""
    place = job.scratch
    n = load3(scratch, place.contacts + c * CONTACT_ROWS + NORMAL, w)
    t1 = load3(scratch, place.blocks + c * BLOCK_ROWS + TANGENT, w)
    impulse = load3(scratch, place.lam + 3 * c, w)
    asked = wp.vector(wp.dot(n, push), wp.dot(t1, push), wp.dot(wp.cross(n, t1), push))
    accumulate(scratch, place.adj_lam + 3 * c, w, asked)
    adj_n = impulse[0] * push + tangents_vjp(n, impulse[1] * push, impulse[2] * push)
    accumulate(scratch, place.adj_contacts + c * ADJ_CONTACT_ROWS + ADJ_NORMAL, w, adj_n)


@wp.func
def add_geometry_cotangents(
    job: Job, c: int, row: int, w: int, adj: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any)
):
    """Add the cotangents of gap, point and normal, from a row of `adj` on, to those of contact c."""
    adj_contacts = rows_from(scratch, job.scratch.adj_contacts + c * ADJ_CONTACT_ROWS)
    adj_contacts[ADJ_GAP, w] = adj_contacts[ADJ_GAP, w] + adj[row, w]
    accumulate(adj_contacts, ADJ_POINT, w, load3(adj, row + 1, w))
    accumulate(adj_contacts, ADJ_NORMAL, w, load3(adj, row + 4, w))


# -- records -----------------------------------------------------------------------------------------------------------


@wp.func
def stage_of(touches: int, is_impact: bool):
    """Return the number of a part of a step, after so many touches."""
    return 2 * touches + wp.where(is_impact, 1, 0)


@wp.func
def origin_of(scene: Scene, shape: int, poses: wp.array2d(dtype=Any), w: int):
    """Return the origin of a shape's body, that of the world if it has none."""
    zero = poses.dtype(0.0)
    origin = wp.vector(zero, zero, zero)
    body = scene.shape_body[shape]
    if body >= 0:
        origin = load3(poses, body * POSE_ROWS + 9, w)
    return origin


@wp.func
def arms_of(job: Job, c: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Return where the point of contact c is, seen from the origins of both bodies, in world axes."""
    pair = int(scratch[job.scratch.contacts + c * CONTACT_ROWS + PAIR, w])
    point = load3(scratch, job.scratch.contacts + c * CONTACT_ROWS + POINT, w)
    poses = rows_from(scratch, job.scratch.poses)
    a = origin_of(job.scene, job.scene.pair_a[pair], poses, w)
    b = origin_of(job.scene, job.scene.pair_b[pair], poses, w)
    return point - a, point - b


@wp.func
def add_arm_cotangents(
    job: Job, c: int, adj_a: Any, adj_b: Any, w: int, scratch: wp.array2d(dtype=Any)
):  # fmt: skip
    """Pull the cotangents of `arms_of` back to the contact's point and to the bodies."""
    place = job.scratch
    pair = int(scratch[place.contacts + c * CONTACT_ROWS + PAIR, w])
    accumulate(scratch, place.adj_contacts + c * ADJ_CONTACT_ROWS + ADJ_POINT, w, adj_a + adj_b)
    poses = rows_from(scratch, place.poses)
    wrench = rows_from(scratch, place.wrench)
    body_a = job.scene.shape_body[job.scene.pair_a[pair]]
    if body_a >= 0:
        origin = load3(poses, body_a * POSE_ROWS + 9, w)
        accumulate(wrench, 6 * body_a, w, spatial(-wp.cross(origin, adj_a), -adj_a))
    body_b = job.scene.shape_body[job.scene.pair_b[pair]]
    if body_b >= 0:
        origin = load3(poses, body_b * POSE_ROWS + 9, w)
        accumulate(wrench, 6 * body_b, w, spatial(-wp.cross(origin, adj_b), -adj_b))


@wp.func
def record_of(
    job: Job, c: int, is_first: bool, count: int, w: int, scratch: wp.array2d(dtype=Any), records: wp.array2d(dtype=Any)
):
    """Return the row of the record that contact c of a part belongs to, of so many records; negative if there is none.

    Those of the first part are its contacts, in order; otherwise it is the nearest of the same pair.
    """
    first = job.scratch.records + FIRST_RECORD
    chosen = int(-1)
    if is_first:
        chosen = first + c * RECORD_ROWS
    else:
        contact = job.scratch.contacts + c * CONTACT_ROWS
        point = load3(scratch, contact + POINT, w)
        least = scratch.dtype(0.0)
        for k in range(wp.min(count, job.scene.max_contacts)):
            row = first + k * RECORD_ROWS
            if records[row, w] == scratch[contact + PAIR, w]:
                away = wp.length_sq(load3(records, row + 2, w) - point)
                if chosen < 0 or away < least:
                    chosen = row
                    least = away
    return chosen


@wp.func
def write_record(
    job: Job, row: int, c: int, stage: int, w: int, scratch: wp.array2d(dtype=Any), records: wp.array2d(dtype=Any)
):
    """Write a record of contact c, without forces."""
    contact = job.scratch.contacts + c * CONTACT_ROWS
    arm_a, arm_b = arms_of(job, c, w, scratch)
    for r in range(RECORD_ROWS):
        records[row + r, w] = scratch.dtype(0.0)
    records[row, w] = scratch[contact + PAIR, w]
    records[row + 1, w] = scratch[contact + GAP, w]
    store(records, row + 2, w, load3(scratch, contact + POINT, w))
    store(records, row + 5, w, load3(scratch, contact + NORMAL, w))
    records[row + STAGE, w] = scratch.dtype(stage)
    store(records, row + ARM, w, arm_a)
    store(records, row + ARM + 3, w, arm_b)


@wp.func(inline=False)
def add_to_records(
    job: Job, is_first: bool, stage: int, share: Any, nc: int, found: int, w: int, scratch: wp.array2d(dtype=Any),
    records: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the share of a part's impulses that happened to the forces of the records, eq. (18)."""
    room = job.scene.max_contacts
    head = job.scratch.records
    count = int(records[head + COUNT, w])
    before = count
    for c in range(wp.where(is_first, found, nc)):
        push = wp.vector(share - share, share - share, share - share)
        if c < nc:
            push = share / scratch.dtype(job.settings.dt) * contact_impulse(job, c, w, scratch)
        row = record_of(job, c, is_first, before, w, scratch, records)
        if is_first or (row < 0 and wp.length_sq(push) > share - share):
            row = -1
            if count < room:
                row = head + FIRST_RECORD + count * RECORD_ROWS
                write_record(job, row, c, stage, w, scratch, records)
            count += 1
        if row >= 0:
            arm_a, arm_b = arms_of(job, c, w, scratch)
            accumulate(records, row + FORCE, w, push)
            accumulate(records, row + MOMENT, w, wp.cross(arm_a, push))
            accumulate(records, row + MOMENT + 3, w, wp.cross(arm_b, push))
    records[head + COUNT, w] = scratch.dtype(count)
    records[head + MOST, w] = wp.max(records[head + MOST, w], scratch.dtype(count))


# -- the adjoint -------------------------------------------------------------------------------------------------------


@wp.func
def push_on(job: Job, c: int, row: int, w: int, scratch: wp.array2d(dtype=Any), adj: wp.array2d(dtype=Any)):
    """Return the cotangent of the impulse of contact c that the record at this row of `adj` asks for."""
    arm_a, arm_b = arms_of(job, c, w, scratch)
    on_a = wp.cross(load3(adj, row + MOMENT, w), arm_a)
    on_b = wp.cross(load3(adj, row + MOMENT + 3, w), arm_b)
    return (load3(adj, row + FORCE, w) + on_a + on_b) / scratch.dtype(job.settings.dt)


@wp.func(inline=False)
def work_on_records(
    job: Job, is_first: bool, nc: int, w: int, scratch: wp.array2d(dtype=Any), records: wp.array2d(dtype=Any)
):
    """Return the derivative of the loss by the share of a part's impulses that happened."""
    adj = rows_from(records, job.scratch.adj_records - job.scratch.records)
    count = int(records[job.scratch.records + COUNT, w])
    total = scratch.dtype(0.0)
    for c in range(nc):
        row = record_of(job, c, is_first, count, w, scratch, records)
        if row >= 0:
            total += wp.dot(push_on(job, c, row, w, scratch, adj), contact_impulse(job, c, w, scratch))
    return total


@wp.func(inline=False)
def add_record_cotangents(
    job: Job, is_first: bool, stage: int, share: Any, nc: int, w: int, scratch: wp.array2d(dtype=Any),
    records: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of records to those of a part's impulses and contacts, and of bodies' poses."""
    # row by row as the records
    adj = rows_from(records, job.scratch.adj_records - job.scratch.records)
    count = int(records[job.scratch.records + COUNT, w])
    for c in range(nc):
        row = record_of(job, c, is_first, count, w, scratch, records)
        if row >= 0:
            add_impulse_cotangent(job, c, share * push_on(job, c, row, w, scratch, adj), w, scratch)
            impulse = share / scratch.dtype(job.settings.dt) * contact_impulse(job, c, w, scratch)
            adj_a = wp.cross(impulse, load3(adj, row + MOMENT, w))
            adj_b = wp.cross(impulse, load3(adj, row + MOMENT + 3, w))
            add_arm_cotangents(job, c, adj_a, adj_b, w, scratch)
            if is_first or int(records[row + STAGE, w]) == stage:
                add_found_cotangents(job, c, row, w, adj, scratch)


@wp.func
def add_found_cotangents(
    job: Job, c: int, row: int, w: int, adj: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any)
):
    """Add the cotangents of where a record was found to those of contact c."""
    add_geometry_cotangents(job, c, row + 1, w, adj, scratch)
    add_arm_cotangents(job, c, load3(adj, row + ARM, w), load3(adj, row + ARM + 3, w), w, scratch)


@wp.func(inline=False)
def set_aside_vjp(
    job: Job, stage: int, nc: int, parameters: wp.array2d(dtype=Any), w: int, adj_parameters: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any), records: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull back what is asked of records of contacts of the first part that were set aside in it."""
    adj = rows_from(records, job.scratch.adj_records - job.scratch.records)
    first = job.scratch.records + FIRST_RECORD
    found = int(0)
    for k in range(wp.min(int(records[job.scratch.records + COUNT, w]), job.scene.max_contacts)):
        if int(records[first + k * RECORD_ROWS + STAGE, w]) == stage:
            found += 1
    if found > nc:
        clear_geometry(job, found, w, scratch)
        for c in range(nc, found):
            add_found_cotangents(job, c, first + c * RECORD_ROWS, w, adj, scratch)
        geometry_vjp(job, found, parameters, w, adj_parameters, scratch)
