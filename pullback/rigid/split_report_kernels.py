"""The contacts of one moment and the forces that they have in a step that is split (docs/derivations/impacts.md)."""

import warp as wp

from pullback.core.array_struct import array_struct
from pullback.core.modules import made_once
from pullback.rigid.compile.scene import RECORD_ROWS
from pullback.rigid.rollout_kernels import INPUTS, add_result, copy_rows, copy_state
from pullback.rigid.step.lanes_kernels import alone
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.record_kernels import COUNT, FIRST_RECORD, MOST
from pullback.rigid.step.split_kernels import do_parts
from pullback.rigid.step.split_vjp_kernels import parts_vjp
from pullback.rigid.step.variants import Step


@made_once
def kernels(kind: Step):
    """Return the kernels of the report on contacts: how many there are, then RECORD_ROWS for each."""
    real = kind.real
    a = wp.array2d(dtype=real)
    Inputs = array_struct("rollout_inputs", INPUTS, real)
    do = kind.variant(do_parts)
    pull_back = kind.variant(parts_vjp)

    @wp.kernel(module=kind.module("rollout_forward"))
    def forward(job: Job, inputs: Inputs, report: a, scratch: a):
        w = wp.tid()
        head = job.scratch.records
        alone(job.scratch.lanes, w, scratch)
        copy_state(job, inputs, 0, w, scratch)
        scratch[head + COUNT, w] = real(0.0)
        scratch[head + MOST, w] = real(0.0)
        do(job, False, inputs.controls, inputs.parameters, w, scratch)
        report[0, w] = scratch[head + MOST, w]
        for c in range(job.scene.max_contacts):
            row = c * RECORD_ROWS
            if c < int(scratch[head + COUNT, w]):
                copy_rows(scratch, head + FIRST_RECORD + row, RECORD_ROWS, w, report, 1 + row)
            else:
                report[1 + row, w] = real(-1.0)
                for r in range(1, RECORD_ROWS):
                    report[1 + row + r, w] = real(0.0)

    @wp.kernel(module=kind.module("contacts_vjp"))
    def vjp(
        job: Job, inputs: Inputs, report: a, adj_report: a, adj_inputs: Inputs, scratch: a, nowhere: a
    ):  # fmt: skip
        w = wp.tid()
        place = job.scratch
        rows = job.scene.max_contacts * RECORD_ROWS
        alone(place.lanes, w, scratch)
        copy_state(job, inputs, 0, w, scratch)
        for r in range(job.nstate):
            scratch[place.next_adj_state + r, w] = real(0.0)
        # their pairs and places tell which contact of a part belongs to which
        scratch[place.records + COUNT, w] = real(0.0)
        for c in range(job.scene.max_contacts):
            if report[1 + c * RECORD_ROWS, w] >= real(0.0):
                scratch[place.records + COUNT, w] = real(c + 1)
        copy_rows(report, 1, rows, w, scratch, place.records + FIRST_RECORD)
        copy_rows(adj_report, 1, rows, w, scratch, place.adj_records + FIRST_RECORD)
        status, events, last = do(job, True, inputs.controls, inputs.parameters, w, scratch)
        pull_back(
            job, events, last, inputs.controls, inputs.parameters, w, adj_inputs.controls, adj_inputs.parameters,
            scratch, nowhere,
        )  # fmt: skip
        add_result(scratch, place.adj_q, job.scene.nq, w, adj_inputs.q)
        add_result(scratch, place.adj_qd, job.scene.topology.nv, w, adj_inputs.qd)
        add_result(scratch, place.adj_impulses, job.nimpulse, w, adj_inputs.impulses)

    return forward, vjp
