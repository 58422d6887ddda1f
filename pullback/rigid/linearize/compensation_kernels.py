"""How forces of gravity compensation change with coordinates (docs/derivations/compensation.md)."""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import POSE_ROWS
from pullback.rigid.linearize.dynamics_kernels import AXIS, AXIS_ROWS, BODY_ROWS, ORIGIN, LinearJob
from pullback.rigid.step.compensation_kernels import CARRIED_ROWS, carried_mass, upward
from pullback.spatial.arrays import accumulate, load3, load6, load33, rows_from, store
from pullback.spatial.vectors import angular, linear


@wp.func
def carried_change(
    linear_job: LinearJob, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
    work: wp.array2d(dtype=Any), change: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add dt times the change of the forces by coordinates: eq. (6). Motions are those of `write_motions`."""
    job = linear_job.job
    scene = job.scene
    topology = scene.topology
    columns = linear_job.columns
    dt = scratch.dtype(job.settings.dt)
    axes = rows_from(work, linear_job.place.axes)
    origins = rows_from(work, linear_job.place.bodies)
    sums = rows_from(scratch, job.scratch.carried)
    a = upward(job, parameters, w)
    # mass and first moment, in world axes and from the root body's place, of all outboard
    for i in range(topology.nbody):
        m, h = carried_mass(job, i, parameters, w)
        R = load33(scratch, job.scratch.poses + POSE_ROWS * i, w)
        p = load3(scratch, job.scratch.poses + POSE_ROWS * i + 9, w)
        sums[i * CARRIED_ROWS, w] = m
        store(sums, i * CARRIED_ROWS + 1, w, R * h + m * (p - load3(origins, i * BODY_ROWS + ORIGIN, w)))
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        if topology.parent[i] >= 0:
            above = topology.parent[i] * CARRIED_ROWS
            sums[above, w] = sums[above, w] + sums[i * CARRIED_ROWS, w]
            accumulate(sums, above + 1, w, load3(sums, i * CARRIED_ROWS + 1, w))
    for i in range(topology.nv):
        body = scene.dof_body[i]
        S = load6(axes, i * AXIS_ROWS + AXIS, w)
        c = load3(sums, body * CARRIED_ROWS + 1, w)
        momentum = sums[body * CARRIED_ROWS, w] * linear(S) + wp.cross(angular(S), c)
        for j in range(topology.nv):
            other = scene.dof_body[j]
            inboard = int(body)
            while inboard >= 0 and inboard != other:
                inboard = topology.parent[inboard]
            if inboard == other:
                by_q = dt * wp.dot(momentum, wp.cross(a, angular(load6(axes, j * AXIS_ROWS + AXIS, w))))
                change[i * columns + j, w] = change[i * columns + j, w] + by_q
                if other != body:
                    change[j * columns + i, w] = change[j * columns + i, w] + by_q
