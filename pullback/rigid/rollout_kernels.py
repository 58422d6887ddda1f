"""A whole rollout in one launch, and its adjoint in one: a thread takes its world through all steps.

The adjoint follows the plan of a checkpoint schedule (docs/derivations/checkpoints.md): it restores, advances and saves
states, and pulls cotangents back through one step at a time.
"""

from typing import Any

import warp as wp

from pullback.core.array_struct import array_struct
from pullback.core.modules import made_once
from pullback.rigid.step.lanes_kernels import alone, together
from pullback.rigid.step.problem_kernels import Job, is_stopped
from pullback.rigid.step.step_kernels import NOT_CONVERGED, NOT_FINITE
from pullback.rigid.step.variants import Step
from pullback.rollout.checkpoint import ADVANCE, RESTORE, SAVE
from pullback.spatial.arrays import rows_from

# rows of a world's status: all flags that were raised, the first step that raised one, steps that did not converge, and
# the first of these
STATUS_ROWS = 4

STATE = ("q", "qd", "impulses")
"""A state or several, one after another, or their cotangents."""
INPUTS = (*STATE, "controls", "parameters")

_RESTORE = wp.constant(RESTORE)
_ADVANCE = wp.constant(ADVANCE)
_SAVE = wp.constant(SAVE)


@wp.func
def copy_rows(source: wp.array2d(dtype=Any), start: int, count: int, w: int, to: wp.array2d(dtype=Any), row: int):
    """Copy rows of one array to another."""
    for r in range(count):
        to[row + r, w] = source[start + r, w]


@wp.func
def copy_state(job: Job, states: Any, k: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Make the k-th of some states the current one."""
    nq = job.scene.nq
    nv = job.scene.topology.nv
    copy_rows(states.q, k * nq, nq, w, scratch, job.scratch.q)
    copy_rows(states.qd, k * nv, nv, w, scratch, job.scratch.qd)
    copy_rows(states.impulses, k * job.nimpulse, job.nimpulse, w, scratch, job.scratch.impulses)


@wp.func
def keep_state(job: Job, k: int, w: int, scratch: wp.array2d(dtype=Any), states: Any):
    """Write the current state as the k-th of some states."""
    nq = job.scene.nq
    nv = job.scene.topology.nv
    copy_rows(scratch, job.scratch.q, nq, w, states.q, k * nq)
    copy_rows(scratch, job.scratch.qd, nv, w, states.qd, k * nv)
    copy_rows(scratch, job.scratch.impulses, job.nimpulse, w, states.impulses, k * job.nimpulse)


@wp.func
def add_cotangents(
    adj: wp.array2d(dtype=Any), start: int, count: int, w: int, scratch: wp.array2d(dtype=Any), row: int
):
    """Add rows of an array, if it is there, to rows of scratch."""
    if adj:
        for r in range(count):
            scratch[row + r, w] = scratch[row + r, w] + adj[start + r, w]


@wp.func
def add_kept_cotangent(job: Job, k: int, adj_states: Any, w: int, scratch: wp.array2d(dtype=Any)):
    """Add the cotangents of the k-th state returned to those of the state in scratch."""
    nq = job.scene.nq
    nv = job.scene.topology.nv
    add_cotangents(adj_states.q, k * nq, nq, w, scratch, job.scratch.next_adj_q)
    add_cotangents(adj_states.qd, k * nv, nv, w, scratch, job.scratch.next_adj_qd)
    add_cotangents(adj_states.impulses, k * job.nimpulse, job.nimpulse, w, scratch, job.scratch.next_adj_impulses)


@wp.func
def add_result(scratch: wp.array2d(dtype=Any), row: int, count: int, w: int, adj: wp.array2d(dtype=Any)):
    """Add rows of scratch to an array, if it is asked for."""
    if adj:
        for r in range(count):
            adj[r, w] = adj[r, w] + scratch[row + r, w]


@wp.func
def any_row(scratch: wp.array2d(dtype=Any), row: int, count: int, w: int):
    """Tell, by 1 or 0, whether any of some rows is not zero."""
    found = int(0)
    for r in range(count):
        if scratch[row + r, w] != scratch.dtype(0.0):
            found = 1
    return found


@wp.func
def stay_alone(takes_part: bool, row: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Let each lane do its step by itself."""
    alone(row, w, scratch)


@made_once
def kernels(kind: Step):
    """Return the forward and vjp kernels of a rollout of one kind of step."""
    real = kind.real
    a = wp.array2d(dtype=real)
    Inputs = array_struct("rollout_inputs", INPUTS, real)
    States = array_struct("states", STATE, real)
    nan = wp.constant(real(float("nan")))
    step = kind.step
    retrace = kind.retrace
    # parts of a step that is split are as many as things touch in each world
    gather = stay_alone if kind.splits else together

    @wp.kernel(module=kind.module("rollout_forward"))
    def forward(job: Job, inputs: Inputs, states: States, status: a, scratch: a):
        w = wp.tid()
        place = job.scratch
        copy_state(job, inputs, 0, w, scratch)
        if job.skipped == 0:
            keep_state(job, 0, w, scratch, states)
        flags = int(0)
        first = int(-1)
        unconverged = int(0)
        first_unconverged = int(-1)
        kept = int(1)
        for t in range(job.steps):
            if is_stopped(job):
                break
            goes_on = flags & NOT_FINITE == 0
            gather(goes_on, place.lanes, w, scratch)
            if goes_on:
                controls = rows_from(inputs.controls, (t // job.substeps) * job.scene.nu)
                raised = step(job, controls, inputs.parameters, w, scratch)
                if raised & NOT_CONVERGED != 0:
                    unconverged += 1
                    if first_unconverged < 0:
                        first_unconverged = t
                if raised & ~NOT_CONVERGED != 0 and first < 0:
                    first = t
                flags = flags | raised
                if raised & NOT_FINITE != 0:
                    for r in range(job.scene.nq):
                        scratch[place.q + r, w] = nan
                    for r in range(job.scene.topology.nv):
                        scratch[place.qd + r, w] = nan
            if job.kept[kept] == t + 1:
                keep_state(job, kept - job.skipped, w, scratch, states)
                kept += 1
        status[0, w] = real(flags)
        status[1, w] = real(first)
        status[2, w] = real(unconverged)
        status[3, w] = real(first_unconverged)

    @wp.kernel(module=kind.module("rollout_vjp"))
    def vjp(
        job: Job, inputs: Inputs, states: States, status: a, adj_states: States, adj_status: a, adj_inputs: Inputs,
        scratch: a, nowhere: a,
    ):  # fmt: skip
        w = wp.tid()
        place = job.scratch
        nq = job.scene.nq
        nv = job.scene.topology.nv
        ni = job.nimpulse
        for r in range(job.nstate):
            scratch[place.next_adj_state + r, w] = real(0.0)
        kept = int(job.nkept - 1)
        for k in range(job.nactions):
            if is_stopped(job):
                break
            op = job.actions[3 * k]
            t = job.actions[3 * k + 1]
            slot = job.actions[3 * k + 2]
            control = (t // job.substeps) * job.scene.nu
            here = place.slots + (slot - job.nkept) * job.nstate
            if op == _RESTORE:
                if slot == 0:
                    copy_state(job, inputs, 0, w, scratch)
                elif slot < job.nkept:
                    copy_state(job, states, slot - job.skipped, w, scratch)
                else:
                    copy_rows(scratch, here, job.nstate, w, scratch, place.state)
            elif op == _SAVE:
                copy_rows(scratch, place.state, job.nstate, w, scratch, here)
            else:
                asked = int(1)
                if op != _ADVANCE:
                    if kept >= 0:
                        if job.kept[kept] == t + 1:
                            add_kept_cotangent(job, kept - job.skipped, adj_states, w, scratch)
                            kept -= 1
                    # nothing is asked of a world that the loss leaves out, whose states may be NaN
                    asked = any_row(scratch, place.next_adj_state, job.nstate, w)
                gather(asked == 1, place.lanes, w, scratch)
                if asked == 1:
                    retrace(
                        job, op != _ADVANCE, rows_from(inputs.controls, control), inputs.parameters, w,
                        rows_from(adj_inputs.controls, control), adj_inputs.parameters, scratch, nowhere,
                    )  # fmt: skip
                    if op != _ADVANCE:
                        copy_rows(scratch, place.adj_state, job.nstate, w, scratch, place.next_adj_state)
        if job.skipped == 0:
            add_kept_cotangent(job, 0, adj_states, w, scratch)
        add_result(scratch, place.next_adj_q, nq, w, adj_inputs.q)
        add_result(scratch, place.next_adj_qd, nv, w, adj_inputs.qd)
        add_result(scratch, place.next_adj_impulses, ni, w, adj_inputs.impulses)

    return forward, vjp
