"""The adjoint of the way to a touch, and of its moment (docs/derivations/impacts.md, sections 5 and 6).

With P the derivative of the loss by the time that is left after a touch, and its moment t a function of the state there
by gap(q1(t)) = 0,

    adj_t = adj_q1 · dq1/dt + adj_v1 · dv1/dt - P,    adj_gap = -adj_t / (d gap / dt)                            (10)
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import ADJ_CONTACT_ROWS, ADJ_GAP, CONTACT_ROWS, EVENT_NUMBERS, GAP, PAIR
from pullback.rigid.step.constraint_kernels import DOF, SCALAR_ROWS, SIGN, is_limit
from pullback.rigid.step.event_kernels import SPAN, TIME, WHAT, WORK, event_row
from pullback.rigid.step.integrate_kernels import integrate_vjp, turn_axes_vjp
from pullback.rigid.step.path_kernels import way_rate, way_share, write_way
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.step_vjp_kernels import clear_geometry, geometry_vjp
from pullback.spatial.arrays import rows_from


@wp.func
def way_vjp(
    job: Job, time: Any, span: Any, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any),
    velocity: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangents of the state at a touch back through eq. (5).

    Write adj_q, the cotangent `zeta` of the displacement d, and `gamma` of qd + t / h (v - qd).
    """
    place = job.scratch
    scene = job.scene
    one = scratch.dtype(1.0)
    way = rows_from(scratch, place.rates)
    before = rows_from(scratch, place.y)
    zeta = rows_from(scratch, place.zeta)
    gamma = rows_from(scratch, place.gamma)
    write_way(job, time, span, qd, velocity, w, way)
    for v in range(scene.topology.nv):
        before[v, w] = qd[v, w] + time / span * (velocity[v, w] - qd[v, w])
        gamma[v, w] = scratch[place.next_adj_qd + v, w]
    integrate_vjp(scene, one, q, way, rows_from(scratch, place.next_adj_q), w, rows_from(scratch, place.adj_q), zeta)
    turn_axes_vjp(scene, one, way, before, w, zeta, gamma)


@wp.func
def gap_vjp(
    job: Job, what: int, adj_gap: Any, nc: int, ns: int, parameters: wp.array2d(dtype=Any), w: int,
    adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write adj_q, and add to those of parameters, for the cotangent of the gap of what touches in an impact."""
    place = job.scratch
    zero = scratch.dtype(0.0)
    for r in range(job.scene.nq):
        scratch[place.adj_q + r, w] = zero
    clear_geometry(job, nc, w, scratch)
    if what < job.scene.npair:
        touching = int(-1)
        least = zero
        for c in range(nc):
            row = place.contacts + c * CONTACT_ROWS
            gap = wp.abs(scratch[row + GAP, w])
            if int(scratch[row + PAIR, w]) == what and (touching < 0 or gap < least):
                touching = c
                least = gap
        if touching >= 0:
            scratch[place.adj_contacts + touching * ADJ_CONTACT_ROWS + ADJ_GAP, w] = adj_gap
        geometry_vjp(job, nc, parameters, w, adj_parameters, scratch)
    else:
        for k in range(job.scene.nloop_row + job.scene.ncoupling, ns):
            row = place.scalars + k * SCALAR_ROWS
            v = int(scratch[row + DOF, w])
            if job.scene.npair + v == what and is_limit(rows_from(scratch, place.scalars), k, w):
                sign = scratch[row + SIGN, w]
                scratch[place.adj_q + job.scene.dof_coordinate[v], w] = sign * adj_gap
                if adj_parameters:
                    end = job.parameters.limits + 2 * v
                    if sign < zero:
                        end += 1
                    adj_parameters[end, w] = adj_parameters[end, w] - sign * adj_gap


@wp.func
def moment_vjp(
    job: Job, k: int, adj_left: Any, nc: int, ns: int, parameters: wp.array2d(dtype=Any), w: int,
    events: wp.array2d(dtype=Any), adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add to the cotangents of the state at a touch what they and the time left ask of its moment, eq. (10).

    They stand in next_adj_q and next_adj_qd; nc and ns are the rows of the impact.
    """
    place = job.scratch
    scene = job.scene
    row = event_row(job, k)
    time = events[row + TIME, w]
    span = events[row + SPAN, w]
    what = int(events[row + WHAT, w])
    q = rows_from(events, row + EVENT_NUMBERS)
    qd = rows_from(events, row + EVENT_NUMBERS + scene.nq)
    velocity = rows_from(events, row + EVENT_NUMBERS + scene.nq + scene.topology.nv)
    one = scratch.dtype(1.0)
    share, by_time = way_share(job, time, span)
    way_vjp(job, time, span, q, qd, velocity, w, scratch)
    adj_time = events[row + WORK, w] - adj_left
    for v in range(scene.topology.nv):
        adj_time += scratch[place.zeta + v, w] * way_rate(by_time, qd[v, w], velocity[v, w])
        adj_time += scratch[place.gamma + v, w] * (velocity[v, w] - qd[v, w]) / span
    # how fast the gap closes on this path
    gap_vjp(job, what, one, nc, ns, parameters, w, nowhere, scratch)
    way = rows_from(scratch, place.rates)
    write_way(job, time, span, qd, velocity, w, way)
    integrate_vjp(
        scene, one, q, way, rows_from(scratch, place.adj_q), w, rows_from(scratch, place.trial_q),
        rows_from(scratch, place.zeta),
    )  # fmt: skip
    rate = scratch.dtype(0.0)
    for v in range(scene.topology.nv):
        rate += scratch[place.zeta + v, w] * way_rate(by_time, qd[v, w], velocity[v, w])
    adj_gap = -adj_time / rate
    for r in range(scene.nq):
        scratch[place.next_adj_q + r, w] = scratch[place.next_adj_q + r, w] + adj_gap * scratch[place.adj_q + r, w]
    if adj_parameters:
        gap_vjp(job, what, adj_gap, nc, ns, parameters, w, adj_parameters, scratch)
