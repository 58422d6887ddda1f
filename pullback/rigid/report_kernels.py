"""The contacts of one moment and the forces a step would give them (docs/derivations/contact_step.md)."""

import warp as wp

from pullback.core.modules import kernel_module, made_once
from pullback.rigid.compile.scene import CONTACT_ROWS, GAP, NORMAL, PAIR, POINT
from pullback.rigid.step.constraint_kernels import BLOCK_ROWS, TANGENT
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.step_kernels import solve_step
from pullback.rigid.step.variants import Step
from pullback.spatial.arrays import load3, rows_from, store

# rows of a contact in the report: pair, gap, point, normal, force on shape a in world axes
REPORT_ROWS = 11


@made_once
def kernels(kind: Step):
    """Return the kernel that reports contacts: how many there are, then REPORT_ROWS for each; there is no vjp."""
    real = kind.real
    a = wp.array2d(dtype=real)
    rows = wp.constant(REPORT_ROWS)
    solve = kind.variant(solve_step)

    @wp.kernel(module=kernel_module(f"rollout_{kind.name}", real, large=True))
    def forward(job: Job, q: a, qd: a, impulses: a, controls: a, parameters: a, report: a, scratch: a):
        w = wp.tid()
        place = job.scratch
        for r in range(job.nimpulse):
            scratch[place.impulses + r, w] = impulses[r, w]
        for r in range(job.scene.nq):
            scratch[place.q + r, w] = q[r, w]
        for r in range(job.scene.topology.nv):
            scratch[place.qd + r, w] = qd[r, w]
        found, ns, sweeps = solve(job, False, controls, parameters, w, scratch)
        nc = wp.min(found, job.scene.max_contacts)
        contacts = rows_from(scratch, place.contacts)
        blocks = rows_from(scratch, place.blocks)
        lam = rows_from(scratch, place.lam)
        dt = real(job.settings.dt)
        report[0, w] = real(found)
        for c in range(nc):
            n = load3(contacts, c * CONTACT_ROWS + NORMAL, w)
            t1 = load3(blocks, c * BLOCK_ROWS + TANGENT, w)
            impulse = load3(lam, 3 * c, w)
            row = 1 + c * rows
            report[row, w] = contacts[c * CONTACT_ROWS + PAIR, w]
            report[row + 1, w] = contacts[c * CONTACT_ROWS + GAP, w]
            store(report, row + 2, w, load3(contacts, c * CONTACT_ROWS + POINT, w))
            store(report, row + 5, w, n)
            force = impulse[0] * n + impulse[1] * t1 + impulse[2] * wp.cross(n, t1)
            store(report, row + 8, w, force / dt)

    return forward, forward
