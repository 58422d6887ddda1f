"""A whole rollout under feedback in one launch: u = controls + gains (state - nominal), clamped, then a step.

Changes of state are (δ, dqd) of docs/derivations/ilqr.md, eqs. (2) and (3); a step with its defect is (6) there. The
turn of a ball or free joint is a rotation vector in the body's axes, the way of a free one is in the axes before it.
"""

from typing import Any

import warp as wp

from pullback.core.array_struct import array_struct
from pullback.core.modules import kernel_module, made_once
from pullback.rigid.compile.scene import Scene
from pullback.rigid.rollout_kernels import INPUTS, STATE, copy_state, keep_state, stay_alone
from pullback.rigid.step.integrate_kernels import integrate
from pullback.rigid.step.lanes_kernels import together
from pullback.rigid.step.problem_kernels import Job, is_stopped
from pullback.rigid.step.step_kernels import NOT_CONVERGED, NOT_FINITE
from pullback.rigid.step.variants import Step
from pullback.robot.joint_kernels import joint_difference
from pullback.spatial.arrays import rows_from

POLICY = ("gains", "nominal_q", "nominal_qd", "lower", "upper", "defects")


@wp.func
def write_difference(
    scene: Scene, from_q: wp.array2d(dtype=Any), from_qd: wp.array2d(dtype=Any), q: wp.array2d(dtype=Any),
    qd: wp.array2d(dtype=Any), w: int, dx: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the change of state that leads from one to another."""
    topology = scene.topology
    for i in range(topology.nbody):
        joint_difference(topology, i, from_q, q, w, dx)
    for v in range(topology.nv):
        dx[topology.nv + v, w] = qd[v, w] - from_qd[v, w]


@wp.func
def write_controls(
    nu: int, n: int, controls: wp.array2d(dtype=Any), gains: wp.array2d(dtype=Any), dx: wp.array2d(dtype=Any),
    lower: wp.array2d(dtype=Any), upper: wp.array2d(dtype=Any), w: int, u: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write controls + gains dx within the bounds that there are."""
    for a in range(nu):
        value = controls[a, w]
        for r in range(n):
            value += gains[a * n + r, w] * dx[r, w]
        if lower:
            value = wp.max(value, lower[a, w])
        if upper:
            value = wp.min(value, upper[a, w])
        u[a, w] = value


@wp.func
def move_by_defect(job: Job, defect: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Move the state in scratch by a change, if there is one."""
    if defect:
        nv = job.scene.topology.nv
        integrate(job.scene, defect.dtype(1.0), defect, w, rows_from(scratch, job.scratch.q))
        for v in range(nv):
            scratch[job.scratch.qd + v, w] = scratch[job.scratch.qd + v, w] + defect[nv + v, w]


@made_once
def kernels(kind: Step):
    """Return the kernel of a rollout under feedback, twice; there is no vjp."""
    real = kind.real
    a = wp.array2d(dtype=real)
    Inputs = array_struct("rollout_inputs", INPUTS, real)
    Policy = array_struct("feedback_policy", POLICY, real)
    States = array_struct("states", STATE, real)
    nan = wp.constant(real(float("nan")))
    step = kind.step
    gather = stay_alone if kind.splits else together

    @wp.kernel(module=kernel_module(f"feedback_{kind.name}", real, large=True))
    def forward(
        job: Job, inputs: Inputs, policy: Policy, states: States, applied: a, status: a, scratch: a, dx: a
    ):  # fmt: skip
        w = wp.tid()
        place = job.scratch
        nq = job.scene.nq
        nv = job.scene.topology.nv
        nu = job.scene.nu
        copy_state(job, inputs, 0, w, scratch)
        keep_state(job, 0, w, scratch, states)
        flags = int(0)
        first = int(-1)
        unconverged = int(0)
        first_unconverged = int(-1)
        for t in range(job.steps // job.substeps):
            if is_stopped(job):
                break
            if flags & NOT_FINITE == 0:
                write_difference(
                    job.scene, rows_from(policy.nominal_q, t * nq), rows_from(policy.nominal_qd, t * nv),
                    rows_from(scratch, place.q), rows_from(scratch, place.qd), w, dx,
                )  # fmt: skip
                write_controls(
                    nu, 2 * nv, rows_from(inputs.controls, t * nu), rows_from(policy.gains, t * nu * 2 * nv), dx,
                    rows_from(policy.lower, t * nu), rows_from(policy.upper, t * nu), w, rows_from(applied, t * nu),
                )  # fmt: skip
            for s in range(job.substeps):
                goes_on = flags & NOT_FINITE == 0
                gather(goes_on, place.lanes, w, scratch)
                if goes_on:
                    raised = step(job, rows_from(applied, t * nu), inputs.parameters, w, scratch)
                    if raised & NOT_CONVERGED != 0:
                        unconverged += 1
                        if first_unconverged < 0:
                            first_unconverged = t * job.substeps + s
                    if raised & ~NOT_CONVERGED != 0 and first < 0:
                        first = t * job.substeps + s
                    flags = flags | raised
            if flags & NOT_FINITE == 0:
                move_by_defect(job, rows_from(policy.defects, t * 2 * nv), w, scratch)
            else:
                for r in range(nq):
                    scratch[place.q + r, w] = nan
                for r in range(nv):
                    scratch[place.qd + r, w] = nan
                for r in range(nu):
                    applied[t * nu + r, w] = nan
            keep_state(job, t + 1, w, scratch, states)
        status[0, w] = real(flags)
        status[1, w] = real(first)
        status[2, w] = real(unconverged)
        status[3, w] = real(first_unconverged)

    return forward, forward
