"""Steps of a group of worlds on a CPU: up to the contact problem in the lanes of vectors, from there on world by world.

Scratch of a group is that of its worlds in lanes, row by row, then that of each world by itself (core/groups.py). The
state of a world is in its own. Each step it is copied to lanes, where the velocity without contact, contacts, rows and
their matrix are written. A world whose numbers went the way of the first lane's takes up from there what it needs, and
goes on by itself; another does by itself what it could not take up. All of them get the bits they would have alone.
docs/decisions/0023-worlds-in-lanes.md says why, docs/derivations/contact_step.md what a step is.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import CONTACT_ROWS, POSE_ROWS
from pullback.rigid.solvers.pgs_kernels import needs_matrix
from pullback.rigid.step.actuator_kernels import forget_limits
from pullback.rigid.step.constraint_kernels import BLOCK_ROWS, SCALAR_ROWS
from pullback.rigid.step.problem_kernels import Job, write_problem
from pullback.rigid.step.step_kernels import constraint_rows, free_motion, span_whole_step

FEW = wp.constant(3)
"""Lanes that cost as much as these worlds one by one: fewer are not worth it."""
PATIENCE = wp.constant(16)
"""Steps that a group whose worlds go different ways does without lanes, before it tries again."""
RESTS = wp.constant(64)
"""Groups that are told apart in that."""

# rows of a group, from `job.group` on: how far the step of a world is done, its contacts and scalar rows; then controls
# and parameters of the worlds in lanes
DONE = wp.constant(0)
FOUND = wp.constant(1)
SCALARS = wp.constant(2)
GROUP_ROWS = wp.constant(3)

# how far the step of a world is done
NOTHING = wp.constant(0)
FREE = wp.constant(1)
"""Up to the velocity without contact."""
ROWS = wp.constant(2)
"""Up to the problem, as a matrix too where it is needed,"""
MATRIX = wp.constant(3)
"""and taken up: the matrix is still to be skipped."""

_COUNT = "    return wp::LANES;"
_LANES = """
    wp::array_t<{real}> x = scratch;
    x.strides[0] = sizeof(wp::lanes);
    x.strides[1] = sizeof({real});
    return x;
"""
_WORLD = """
    wp::array_t<{real}> x = scratch;
    x.data += wp::LANES * rows + lane * rows;
    x.strides[0] = sizeof({real});
    x.strides[1] = 0;
    return x;
"""
_TO_LANES = """
    {real}* to = scratch.data + row * wp::LANES;
    for (int l = 0; l < wp::LANES; ++l) {{
        const {real}* from = scratch.data + wp::LANES * rows + (l < worlds ? l : worlds - 1) * rows + row;
        for (int r = 0; r < count; ++r) to[r * wp::LANES + l] = from[r];
    }}
"""
_TO_WORLDS = """
    const {real}* from = scratch.data + row * wp::LANES;
    {real}* to = scratch.data + wp::LANES * rows + row;
    for (int r = 0; r < count; ++r)
        for (int l = 0; l < wp::LANES; ++l) to[l * rows + r] = from[r * wp::LANES + l];
"""
_SPREAD = """
    {real}* to = scratch.data + row * wp::LANES;
    if (a.strides[1] == 0) {{
        const char* from = reinterpret_cast<const char*>(a.data) + start * size_t(a.strides[0]);
        for (int r = 0; r < count; ++r)
            reinterpret_cast<wp::lanes*>(to)[r] = *reinterpret_cast<const {real}*>(from + r * size_t(a.strides[0]));
        return;
    }}
    for (int l = 0; l < wp::LANES; ++l) {{
        const size_t w = first + (l < worlds ? l : worlds - 1);
        const char* from = reinterpret_cast<const char*>(a.data) + w * a.strides[1] + start * size_t(a.strides[0]);
        for (int r = 0; r < count; ++r)
            to[r * wp::LANES + l] = *reinterpret_cast<const {real}*>(from + r * size_t(a.strides[0]));
    }}
"""
_BEGIN = """
    for (int l = 0; l < wp::LANES; ++l)
        reinterpret_cast<unsigned*>(scratch.data + row * wp::LANES)[l] = wp::pullback_counts()[l];
"""
_ODD = """
    int odd = 0;
    for (int l = 0; l < wp::LANES; ++l)
        if (reinterpret_cast<unsigned*>(scratch.data + row * wp::LANES)[l] != wp::pullback_counts()[l]) odd |= 1 << l;
    return odd;
"""

for _real, _name in ((wp.float32, "float"), (wp.float64, "double")):
    _a = wp.array2d(dtype=_real)

    @wp.func_native(_COUNT)
    def lane_count(scratch: _a) -> int:
        """Return how many worlds a group has."""

    @wp.func_native(_LANES.format(real=_name))
    def lanes_of_group(scratch: _a) -> _a:
        """Return scratch of the worlds in lanes."""

    @wp.func_native(_WORLD.format(real=_name))
    def rows_of_world(rows: int, lane: int, scratch: _a) -> _a:
        """Return scratch of one world of a group."""

    @wp.func_native(_TO_LANES.format(real=_name))
    def to_lanes(rows: int, row: int, count: int, worlds: int, scratch: _a):
        """Copy rows of the worlds to their lanes; those without a world get the last one's."""

    @wp.func_native(_TO_WORLDS.format(real=_name))
    def to_worlds(rows: int, row: int, count: int, scratch: _a):
        """Copy rows in lanes to their worlds."""

    @wp.func_native(_SPREAD.format(real=_name))
    def spread(a: _a, start: int, count: int, first: int, worlds: int, row: int, scratch: _a):
        """Copy rows of worlds from `first` on to lanes."""

    @wp.func_native(_BEGIN)
    def watch(row: int, scratch: _a):
        """Note in a row how often lanes have taken another way so far."""

    @wp.func_native(_ODD)
    def disagreements(row: int, scratch: _a) -> int:
        """Return, as bits, the lanes that would have taken another way since."""


@wp.func
def agreeing(odd: int, worlds: int):
    """Return how many worlds have lanes that are not odd."""
    count = int(0)
    for l in range(worlds):
        count += 1 - ((odd >> l) & 1)
    return count


@wp.func
def how_far(l: int, strayed: int, odd: int):
    """Return how far the step of a world is done, given the lanes that strayed before and while rows were written."""
    done = int(ROWS)
    if (strayed >> l) & 1 == 1:
        done = NOTHING
    elif (odd >> l) & 1 == 1:
        done = FREE
    return done


@wp.func
def begin_in_lanes(
    job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Begin a step of all worlds: up to the velocity without contact."""
    span_whole_step(job, w, scratch)
    forget_limits(job, w, scratch)
    free_motion(job, u, parameters, w, scratch)


@wp.func
def problem_in_lanes(
    job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Write the contact problem of all worlds, as a matrix too if it is needed, and how many contacts and rows."""
    found, ns = constraint_rows(job, parameters, w, scratch)
    nc = wp.min(found, job.scene.max_contacts)
    if needs_matrix(job, nc, ns):
        write_problem(job, nc, ns, w, scratch)
    scratch[job.group + FOUND, w] = scratch.dtype(found)
    scratch[job.group + SCALARS, w] = scratch.dtype(ns)


@wp.func
def hand_over(job: Job, odd: int, rows: int, in_lanes: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any)):
    """Copy to each world what lanes have written and the rest of its step reads; those that are odd need poses."""
    place = job.scratch
    nv = job.scene.topology.nv
    to_worlds(rows, place.L, nv * nv, scratch)
    to_worlds(rows, place.corrects, place.tree_zeros - place.corrects, scratch)
    to_worlds(rows, place.held, place.free - place.held, scratch)
    if odd != 0:
        to_worlds(rows, place.poses, job.scene.topology.nbody * POSE_ROWS, scratch)
    if odd != -1:
        ns = int(in_lanes[job.group + SCALARS, 0])
        nc = wp.min(int(in_lanes[job.group + FOUND, 0]), job.scene.max_contacts)
        to_worlds(rows, job.group, GROUP_ROWS, scratch)
        to_worlds(rows, place.contacts, nc * CONTACT_ROWS, scratch)
        to_worlds(rows, place.blocks, nc * BLOCK_ROWS, scratch)
        to_worlds(rows, place.Y, 3 * nv * nc, scratch)
        to_worlds(rows, place.scalars, ns * SCALAR_ROWS, scratch)
        to_worlds(rows, place.Y_scalar, nv * ns, scratch)
        to_worlds(rows, place.loops, place.lam - place.loops, scratch)
        if needs_matrix(job, nc, ns):
            m = 3 * nc + ns
            to_worlds(rows, place.A, m * m, scratch)
            to_worlds(rows, place.b, m, scratch)
            to_worlds(rows, place.mu, nc, scratch)
            to_worlds(rows, place.lower, ns, scratch)
            to_worlds(rows, place.upper, ns, scratch)


# -- what takes the place of functions of a step that is begun in lanes ------------------------------------------------


@wp.func
def forget_limits_unless_begun(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Begin a step, unless that was done in lanes."""
    if scratch[job.group + DONE, w] == scratch.dtype(NOTHING):
        forget_limits(job, w, scratch)


@wp.func
def rest_of_problem(
    job: Job, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Write what is left to write of the contact problem; return contacts found and scalar rows."""
    done = int(scratch[job.group + DONE, w])
    found = int(0)
    ns = int(0)
    after = int(NOTHING)
    if done == ROWS:
        found = int(scratch[job.group + FOUND, w])
        ns = int(scratch[job.group + SCALARS, w])
        if needs_matrix(job, wp.min(found, job.scene.max_contacts), ns):
            after = MATRIX
    else:
        if done != FREE:
            free_motion(job, u, parameters, w, scratch)
        contacts, scalars = constraint_rows(job, parameters, w, scratch)
        found = contacts
        ns = scalars
    scratch[job.group + DONE, w] = scratch.dtype(after)
    return found, ns


@wp.func
def write_problem_unless_done(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the contact problem as a matrix, unless that was done in lanes."""
    if scratch[job.group + DONE, w] == scratch.dtype(MATRIX):
        scratch[job.group + DONE, w] = scratch.dtype(NOTHING)
    else:
        write_problem(job, nc, ns, w, scratch)
