"""A whole rollout in one launch, and its adjoint in one: a thread takes its world through all steps.

The adjoint follows the plan of a checkpoint schedule (rollout/checkpoint.py): it restores, advances and saves states, and
pulls cotangents back through one step at a time.
"""

from functools import cache
from typing import Any

import warp as wp

from pullback.core.launch import kernel_module
from pullback.rigid.step_kernels import NOT_CONVERGED, NOT_FINITE, Job, contact_problem, move, resolve, step
from pullback.rigid.step_vjp_kernels import step_vjp, write_problem
from pullback.rollout.checkpoint import ADVANCE, RESTORE, SAVE
from pullback.spatial.arrays import rows_from

# rows of a world's status: all flags that were raised, the first step that raised one, steps that did not converge
STATUS_ROWS = 3

_RESTORE = wp.constant(RESTORE)
_ADVANCE = wp.constant(ADVANCE)
_SAVE = wp.constant(SAVE)


@wp.func
def copy_rows(source: wp.array2d(dtype=Any), start: int, count: int, w: int, to: wp.array2d(dtype=Any), row: int):
    """Copy rows of one array to another."""
    for r in range(count):
        to[row + r, w] = source[start + r, w]


@wp.func
def add_kept_cotangent(
    job: Job, k: int, adj_q_out: wp.array2d(dtype=Any), adj_qd_out: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of the k-th state returned to those of the state in scratch."""
    nq = job.scene.nq
    nv = job.scene.topology.nv
    if adj_q_out:
        for r in range(nq):
            row = job.scratch.next_adj_q + r
            scratch[row, w] = scratch[row, w] + adj_q_out[k * nq + r, w]
    if adj_qd_out:
        for r in range(nv):
            row = job.scratch.next_adj_qd + r
            scratch[row, w] = scratch[row, w] + adj_qd_out[k * nv + r, w]


@cache
def kernels(real: type):
    """Return the forward and vjp kernels of a rollout for one floating-point type."""
    a = wp.array2d(dtype=real)
    nan = wp.constant(real(float("nan")))

    @wp.kernel(module=kernel_module("rollout", real))
    def forward(
        job: Job, q0: a, qd0: a, controls: a, parameters: a, q_out: a, qd_out: a, status: a, scratch: a,
    ):  # fmt: skip
        w = wp.tid()
        nq = job.scene.nq
        nv = job.scene.topology.nv
        place = job.scratch
        copy_rows(q0, 0, nq, w, scratch, place.q)
        copy_rows(qd0, 0, nv, w, scratch, place.qd)
        if job.skipped == 0:
            copy_rows(q0, 0, nq, w, q_out, 0)
            copy_rows(qd0, 0, nv, w, qd_out, 0)
        flags = int(0)
        first = int(-1)
        unconverged = int(0)
        kept = int(1)
        for t in range(job.steps):
            if flags & NOT_FINITE == 0:
                raised = step(job, rows_from(controls, (t // job.substeps) * job.scene.nu), parameters, w, scratch)
                if raised & NOT_CONVERGED != 0:
                    unconverged += 1
                if raised & ~NOT_CONVERGED != 0 and first < 0:
                    first = t
                flags = flags | raised
            if job.kept[kept] == t + 1:
                out = kept - job.skipped
                if flags & NOT_FINITE == 0:
                    copy_rows(scratch, place.q, nq, w, q_out, out * nq)
                    copy_rows(scratch, place.qd, nv, w, qd_out, out * nv)
                else:
                    for r in range(nq):
                        q_out[out * nq + r, w] = nan
                    for r in range(nv):
                        qd_out[out * nv + r, w] = nan
                kept += 1
        status[0, w] = real(flags)
        status[1, w] = real(first)
        status[2, w] = real(unconverged)

    @wp.kernel(module=kernel_module("rollout_vjp", real))
    def vjp(
        job: Job, q0: a, qd0: a, controls: a, parameters: a, q_out: a, qd_out: a, status: a,
        adj_q_out: a, adj_qd_out: a, adj_status: a,
        adj_q0: a, adj_qd0: a, adj_controls: a, adj_parameters: a, scratch: a, nowhere: a,
    ):  # fmt: skip
        w = wp.tid()
        nq = job.scene.nq
        nv = job.scene.topology.nv
        place = job.scratch
        for r in range(nq):
            scratch[place.next_adj_q + r, w] = real(0.0)
        for r in range(nv):
            scratch[place.next_adj_qd + r, w] = real(0.0)
        kept = int(job.nkept - 1)
        for k in range(job.nactions):
            op = job.actions[3 * k]
            t = job.actions[3 * k + 1]
            slot = job.actions[3 * k + 2]
            control = (t // job.substeps) * job.scene.nu
            here = place.slots + (slot - job.nkept) * (nq + nv)
            if op == _RESTORE:
                out = slot - job.skipped
                if slot == 0:
                    copy_rows(q0, 0, nq, w, scratch, place.q)
                    copy_rows(qd0, 0, nv, w, scratch, place.qd)
                elif slot < job.nkept:
                    copy_rows(q_out, out * nq, nq, w, scratch, place.q)
                    copy_rows(qd_out, out * nv, nv, w, scratch, place.qd)
                else:
                    copy_rows(scratch, here, nq, w, scratch, place.q)
                    copy_rows(scratch, here + nq, nv, w, scratch, place.qd)
            elif op == _SAVE:
                copy_rows(scratch, place.q, nq, w, scratch, here)
                copy_rows(scratch, place.qd, nv, w, scratch, here + nq)
            else:
                u = rows_from(controls, control)
                found, ns = contact_problem(job, u, parameters, w, scratch)
                nc = wp.min(found, job.scene.max_contacts)
                if op != _ADVANCE:
                    write_problem(job, nc, ns, w, scratch)
                sweeps = wp.abs(resolve(job, nc, ns, w, scratch))
                if op == _ADVANCE:
                    move(job, nc, w, scratch)
                else:
                    if kept >= 0:
                        if job.kept[kept] == t + 1:
                            add_kept_cotangent(job, kept - job.skipped, adj_q_out, adj_qd_out, w, scratch)
                            kept -= 1
                    step_vjp(
                        job, nc, ns, sweeps, u, parameters, w, rows_from(adj_controls, control), adj_parameters, scratch,
                        nowhere,
                    )  # fmt: skip
                    copy_rows(scratch, place.adj_q, nq, w, scratch, place.next_adj_q)
                    copy_rows(scratch, place.adj_qd, nv, w, scratch, place.next_adj_qd)
        if job.skipped == 0:
            add_kept_cotangent(job, 0, adj_q_out, adj_qd_out, w, scratch)
        if adj_q0:
            for r in range(nq):
                adj_q0[r, w] = adj_q0[r, w] + scratch[place.next_adj_q + r, w]
        if adj_qd0:
            for r in range(nv):
                adj_qd0[r, w] = adj_qd0[r, w] + scratch[place.next_adj_qd + r, w]

    return forward, vjp
