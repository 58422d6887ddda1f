"""A rollout of groups of worlds on a CPU: that of rollout_kernels.py, with steps begun in lanes (group_kernels.py).

docs/decisions/0023-worlds-in-lanes.md says why, docs/derivations/contact_step.md what a step is.
"""

from typing import Any

import warp as wp

from pullback.core.array_struct import array_struct
from pullback.core.modules import kernel_module, made_once
from pullback.rigid.rollout_kernels import INPUTS, STATE, copy_state, keep_state
from pullback.rigid.step.actuator_kernels import forget_limits
from pullback.rigid.step.group_kernels import (
    DONE,
    FEW,
    GROUP_ROWS,
    PATIENCE,
    RESTS,
    agreeing,
    begin_in_lanes,
    disagreements,
    forget_limits_unless_begun,
    hand_over,
    how_far,
    lane_count,
    lanes_of_group,
    problem_in_lanes,
    rest_of_problem,
    rows_of_world,
    spread,
    to_lanes,
    watch,
    write_problem_unless_done,
)
from pullback.rigid.step.problem_kernels import Job, is_stopped, write_problem
from pullback.rigid.step.step_kernels import NOT_CONVERGED, NOT_FINITE, contact_problem
from pullback.rigid.step.step_kernels import step as whole_step
from pullback.rigid.step.variants import Step, variant
from pullback.spatial.arrays import rows_from


@wp.func
def note(raised: int, t: int, w: int, status: wp.array2d(dtype=Any)):
    """Add what step t raised to a world's status (rollout_kernels.py says what its rows are)."""
    status[0, w] = status.dtype(int(status[0, w]) | raised)
    if raised & NOT_CONVERGED != 0:
        if status[2, w] == status.dtype(0.0):
            status[3, w] = status.dtype(t)
        status[2, w] = status[2, w] + status.dtype(1.0)
    if raised & ~NOT_CONVERGED != 0 and status[1, w] < status.dtype(0.0):
        status[1, w] = status.dtype(t)


@wp.func
def forget_state(job: Job, w: int, x: wp.array2d(dtype=Any)):
    """Let the state of a world that is no longer finite be NaN."""
    nan = x.dtype(wp.nan)
    for r in range(job.scene.nq):
        x[job.scratch.q + r, w] = nan
    for r in range(job.scene.topology.nv):
        x[job.scratch.qd + r, w] = nan


def group_functions(kind: Step) -> tuple[Any, ...]:
    """Return a step that goes on from what lanes have done, the two stages in lanes, and what hands it over."""
    name = f"{kind.name}_group" if kind.real == wp.float64 else f"{kind.name}_single_group"
    replaced = dict(kind.chosen)
    others = [variant(f, name, replaced) for f in (begin_in_lanes, problem_in_lanes, hand_over)]
    new = {
        contact_problem: variant(rest_of_problem, name, replaced),
        write_problem: variant(write_problem_unless_done, name, replaced),
        forget_limits: variant(forget_limits_unless_begun, name, replaced),
    }
    return variant(whole_step, name, {**kind.chosen, **new}), *others


@made_once
def kernel(kind: Step) -> Any:
    """Return the forward kernel of a rollout of one kind of step, for groups of worlds on a CPU."""
    real = kind.real
    a = wp.array2d(dtype=real)
    Inputs = array_struct("rollout_inputs", INPUTS, real)
    States = array_struct("states", STATE, real)
    step, begin_in_lanes, problem_in_lanes, hand_over = group_functions(kind)

    @wp.kernel(module=kernel_module(f"rollout_groups_{kind.name}", real, large=True, groups=True))
    def forward(job: Job, inputs: Inputs, states: States, status: a, scratch: a):
        first = wp.tid()
        worlds = wp.min(lane_count(scratch), status.shape[1] - first)
        nu = job.scene.nu
        nparameter = inputs.parameters.shape[0]
        controls_row = job.group + GROUP_ROWS
        rows = controls_row + nu + nparameter
        in_lanes = lanes_of_group(scratch)
        u_in_lanes = rows_from(in_lanes, controls_row)
        parameters_in_lanes = rows_from(in_lanes, controls_row + nu)
        spread(inputs.parameters, 0, nparameter, first, worlds, controls_row + nu, scratch)
        for l in range(worlds):
            x = rows_of_world(rows, l, scratch)
            copy_state(job, inputs, 0, first + l, x)
            if job.skipped == 0:
                keep_state(job, 0, first + l, x, states)
            status[0, first + l] = real(0.0)
            status[1, first + l] = real(-1.0)
            status[2, first + l] = real(0.0)
            status[3, first + l] = real(-1.0)
        rests = job.rests
        rest = 2 * (first // lane_count(scratch) % RESTS)
        kept = int(1)
        for t in range(job.steps):
            if is_stopped(job):
                break
            control = (t // job.substeps) * nu
            # lanes, as bits, whose velocity without contact, or whose contact problem, is not that of their worlds
            strayed = int(-1)
            odd = int(-1)
            if worlds >= FEW and rests[rest] == 0:
                spread(inputs.controls, control, nu, first, worlds, controls_row, scratch)
                to_lanes(rows, job.scratch.state, job.nstate, worlds, scratch)
                watch(job.group, scratch)
                begin_in_lanes(job, u_in_lanes, parameters_in_lanes, 0, in_lanes)
                strayed = disagreements(job.group, scratch)
                if agreeing(strayed, worlds) < FEW:
                    rests[rest] = PATIENCE
                elif rests[rest + 1] == 0:
                    problem_in_lanes(job, u_in_lanes, parameters_in_lanes, 0, in_lanes)
                    odd = disagreements(job.group, scratch)
                    if agreeing(odd, worlds) < FEW:
                        rests[rest + 1] = PATIENCE
                else:
                    rests[rest + 1] = rests[rest + 1] - 1
                hand_over(job, odd, rows, in_lanes, scratch)
            elif worlds >= FEW:
                rests[rest] = rests[rest] - 1
            for l in range(worlds):
                w = first + l
                x = rows_of_world(rows, l, scratch)
                if int(status[0, w]) & NOT_FINITE == 0:
                    x[job.group + DONE, w] = real(how_far(l, strayed, odd))
                    raised = step(job, rows_from(inputs.controls, control), inputs.parameters, w, x)
                    note(raised, t, w, status)
                    if raised & NOT_FINITE != 0:
                        forget_state(job, w, x)
                if job.kept[kept] == t + 1:
                    keep_state(job, kept - job.skipped, w, x, states)
            if job.kept[kept] == t + 1:
                kept += 1

    return forward
