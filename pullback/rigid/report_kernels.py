"""The contacts of one moment and the forces a step would give them (docs/derivations/contact_step.md, section 8)."""

from typing import Any

import warp as wp

from pullback.core.array_struct import array_struct
from pullback.core.modules import made_once
from pullback.rigid.compile.scene import CONTACT_ROWS, GAP, NORMAL, PAIR, POINT
from pullback.rigid.rollout_kernels import INPUTS, add_result, copy_state
from pullback.rigid.step.lanes_kernels import together
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.record_kernels import add_geometry_cotangents, add_impulse_cotangent, contact_impulse
from pullback.rigid.step.step_kernels import solve_step
from pullback.rigid.step.step_vjp_kernels import impulse_cotangents, problem_vjp
from pullback.rigid.step.variants import Step
from pullback.spatial.arrays import load3, rows_from, store

# rows of a contact in the report: pair, gap, point, normal, force on shape a in world axes
REPORT_ROWS = 11
ROWS = wp.constant(REPORT_ROWS)


@wp.func
def add_contact_cotangents(
    job: Job, nc: int, adj_report: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)
):
    """Add the cotangents of gaps, points, normals and forces to those of contacts and impulses, eq. (12)."""
    for c in range(nc):
        row = 1 + c * ROWS
        push = load3(adj_report, row + 8, w) / scratch.dtype(job.settings.dt)
        add_impulse_cotangent(job, c, push, w, scratch)
        add_geometry_cotangents(job, c, row + 1, w, adj_report, scratch)


@made_once
def kernels(kind: Step):
    """Return the kernels of the report on contacts: how many there are, then REPORT_ROWS for each."""
    if kind.splits:
        # imported lazily: few worlds are split
        from pullback.rigid import split_report_kernels

        return split_report_kernels.kernels(kind)
    real = kind.real
    a = wp.array2d(dtype=real)
    Inputs = array_struct("rollout_inputs", INPUTS, real)
    solve = kind.variant(solve_step)
    begin = kind.variant(impulse_cotangents)
    finish = kind.variant(problem_vjp)

    @wp.kernel(module=kind.module("rollout_forward"))
    def forward(job: Job, inputs: Inputs, report: a, scratch: a):
        w = wp.tid()
        place = job.scratch
        together(True, place.lanes, w, scratch)
        copy_state(job, inputs, 0, w, scratch)
        found, ns, sweeps = solve(job, False, inputs.controls, inputs.parameters, w, scratch)
        nc = wp.min(found, job.scene.max_contacts)
        contacts = rows_from(scratch, place.contacts)
        dt = real(job.settings.dt)
        report[0, w] = real(found)
        for c in range(nc):
            row = 1 + c * ROWS
            report[row, w] = contacts[c * CONTACT_ROWS + PAIR, w]
            report[row + 1, w] = contacts[c * CONTACT_ROWS + GAP, w]
            store(report, row + 2, w, load3(contacts, c * CONTACT_ROWS + POINT, w))
            store(report, row + 5, w, load3(contacts, c * CONTACT_ROWS + NORMAL, w))
            store(report, row + 8, w, contact_impulse(job, c, w, scratch) / dt)

    @wp.kernel(module=kind.module("contacts_vjp"))
    def vjp(
        job: Job, inputs: Inputs, report: a, adj_report: a, adj_inputs: Inputs, scratch: a, nowhere: a
    ):  # fmt: skip
        w = wp.tid()
        place = job.scratch
        together(True, place.lanes, w, scratch)
        copy_state(job, inputs, 0, w, scratch)
        for r in range(job.nstate):
            scratch[place.next_adj_state + r, w] = real(0.0)
        found, ns, sweeps = solve(job, True, inputs.controls, inputs.parameters, w, scratch)
        nc = wp.min(found, job.scene.max_contacts)
        shifted = begin(job, nc, ns, w, scratch)
        add_contact_cotangents(job, nc, adj_report, w, scratch)
        finish(
            job, nc, ns, sweeps, shifted, inputs.controls, inputs.parameters, w, adj_inputs.controls,
            adj_inputs.parameters, scratch, nowhere,
        )  # fmt: skip
        add_result(scratch, place.adj_q, job.scene.nq, w, adj_inputs.q)
        add_result(scratch, place.adj_qd, job.scene.topology.nv, w, adj_inputs.qd)
        add_result(scratch, place.adj_impulses, job.nimpulse, w, adj_inputs.impulses)

    return forward, vjp
