"""How a step's new velocity changes with state and controls, as one matrix (docs/derivations/linearize.md, section 4).

Matrices stand row by row: `columns` numbers for each dof or unknown, coordinates first, then velocities, then controls.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import CONTACT_ROWS, COUPLING_ROWS, PAIR
from pullback.rigid.linearize.contact_kernels import add_contact_change, write_plane_rows
from pullback.rigid.linearize.dynamics_kernels import (
    LinearJob,
    gather,
    is_vertex_on_plane,
    write_dynamics,
    write_impulses,
    write_motions,
)
from pullback.rigid.linearize.rows_kernels import (
    add_rows_of_dofs,
    add_to_rows_of_dofs,
    eliminate_transposed,
    fill,
    solve_columns,
)
from pullback.rigid.linearize.tree_kernels import add_correction_change
from pullback.rigid.solvers.implicit_kernels import (
    ROW,
    TEST_SECOND,
    TRIAL,
    UNKNOWN_ROWS,
    add_unknowns,
    assemble,
)
from pullback.rigid.solvers.rows_kernels import add_multiple
from pullback.rigid.step.actuator_kernels import actuator, rate_of
from pullback.rigid.step.constraint_kernels import DOF, SCALAR_ROWS, SCALAR_SLOPE, SIGN
from pullback.rigid.step.gyroscopic_kernels import is_lone, lone_force_vjp
from pullback.robot.joint_kernels import joint_axis, joint_nv, joint_travels
from pullback.robot.topology import DAMPING, DOF_ROWS
from pullback.spatial.arrays import accumulate, load3, load6, rows_from, store
from pullback.spatial.vectors import spatial


@wp.func
def add_lone_change(
    linear_job: LinearJob, i: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
    nowhere: wp.array2d(dtype=Any), change: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add dt times the change of what the bias force of lone body i lacks, a row for each of its dofs."""
    job = linear_job.job
    topology = job.scene.topology
    dt = scratch.dtype(job.settings.dt)
    first = topology.v_start[i]
    for k in range(joint_nv(topology, i)):
        by_rate = lone_force_vjp(
            topology, i, dt, rows_from(scratch, job.scratch.qd), rows_from(parameters, job.parameters.inertias),
            rows_from(parameters, job.parameters.dofs), joint_axis(topology, i, k, -dt), w, nowhere, nowhere,
        )  # fmt: skip
        accumulate(change, (first + k) * linear_job.columns + topology.nv + first, w, by_rate)


@wp.func
def add_forces(
    linear_job: LinearJob, u: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any), nowhere: wp.array2d(dtype=Any), change: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add dt times the change of damping, of lone bodies' turning, and of actuators' forces within limits: eq. (11)."""
    job = linear_job.job
    scene = job.scene
    columns = linear_job.columns
    nv = scene.topology.nv
    dt = scratch.dtype(job.settings.dt)
    q = rows_from(scratch, job.scratch.q)
    qd = rows_from(scratch, job.scratch.qd)
    for v in range(nv):
        at = v * columns + nv + v
        change[at, w] = change[at, w] - dt * parameters[job.parameters.dofs + DOF_ROWS * v + DAMPING, w]
    for i in range(scene.topology.nbody):
        if is_lone(scene.topology, i):
            add_lone_change(linear_job, i, parameters, w, scratch, nowhere, change)
    for a in range(scene.nactuator):
        force, slopes, by_numbers = actuator(job, a, q, rate_of(scene, a, qd, w), u, parameters, w, scratch)
        for k in range(scene.actuator_start[a], scene.actuator_start[a + 1]):
            at = scene.actuator_dof[k] * columns
            share = dt * scratch.dtype(scene.actuator_share[k])
            for other in range(scene.actuator_start[a], scene.actuator_start[a + 1]):
                v = scene.actuator_dof[other]
                both = share * scratch.dtype(scene.actuator_share[other])
                change[at + v, w] = change[at + v, w] + both * slopes[1]
                change[at + nv + v, w] = change[at + nv + v, w] + both * slopes[2]
            if a < scene.nu:
                change[at + 2 * nv + a, w] = share * slopes[0]


@wp.func
def add_carried_change(
    linear_job: LinearJob, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any),
    work: wp.array2d(dtype=Any), change: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add nothing: in worlds with gravity compensation `carried_change` takes its place (step/variants.py)."""
    return


@wp.func
def add_factor(linear_job: LinearJob, w: int, scratch: wp.array2d(dtype=Any), change: wp.array2d(dtype=Any)):
    """Add L (1 + dt dc/dqd) to the columns of velocities: eq. (17)."""
    scene = linear_job.job.scene
    topology = scene.topology
    columns = linear_job.columns
    nv = topology.nv
    L = rows_from(scratch, linear_job.job.scratch.L)
    qd = rows_from(scratch, linear_job.job.scratch.qd)
    dt = scratch.dtype(linear_job.job.settings.dt)
    one = scratch.dtype(1.0)
    zero = scratch.dtype(0.0)
    for v in range(nv):
        at = v * columns + nv
        change[at + v, w] = change[at + v, w] + one / L[v * nv + v, w]
        u = int(scene.dof_parent[v])
        while u >= 0:
            change[at + u, w] = change[at + u, w] + L[v * nv + u, w]
            u = scene.dof_parent[u]
    for i in range(topology.nbody):
        if joint_travels(topology, i):
            first = topology.v_start[i]
            for v in range(first + 3, nv):
                last = int(v)
                while last > first + 5:
                    last = scene.dof_parent[last]
                if last > first + 2:
                    # the columns of L under the joint's velocity; those after the diagonal are none
                    e = load3(L, v * nv + first + 3, w)
                    if v < first + 6:
                        e = wp.vector(
                            wp.where(v == first + 3, one / e[0], e[0]),
                            wp.where(v == first + 3, zero, wp.where(v == first + 4, one / e[1], e[1])),
                            wp.where(v == first + 5, one / e[2], zero),
                        )
                    e = dt * e
                    turning = spatial(-wp.cross(e, load3(qd, first + 3, w)), wp.cross(e, load3(qd, first, w)))
                    at = v * columns + nv + first
                    store(change, at, w, load6(change, at, w) + turning)


@wp.func
def write_right(
    linear_job: LinearJob, nc: int, ns: int, count: int, parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any), work: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write R^T (Y ds + dJ v + dbias), a row for each unknown: eq. (18); no loop is closed."""
    job = linear_job.job
    scene = job.scene
    columns = linear_job.columns
    nv = scene.topology.nv
    m = 3 * nc + ns
    solver = rows_from(scratch, job.scratch.work)
    scalars = rows_from(scratch, job.scratch.scalars)
    change = rows_from(work, linear_job.place.change)
    right = rows_from(work, linear_job.place.right)
    rows = rows_from(work, linear_job.place.rows)
    zero = scratch.dtype(0.0)
    for c in range(nc):
        if scratch[job.scratch.lam + 3 * c, w] > zero:
            pair = int(scratch[job.scratch.contacts + c * CONTACT_ROWS + PAIR, w])
            add_rows_of_dofs(
                scene.pair_dof, scene.pair_dof_start[pair], scene.pair_dof_start[pair + 1], scratch,
                job.scratch.Y + 3 * c * nv, change, 0, columns, w, rows, 3 * c * columns,
            )  # fmt: skip
    for k in range(count):
        at = m * m + k * UNKNOWN_ROWS
        row = int(solver[at + ROW, w])
        to = k * columns
        fill(right, to, columns, w)
        if row < 3 * nc:
            second = solver[at + TEST_SECOND, w]
            add_multiple(right, to, solver[at + TRIAL, w], rows, row * columns, columns, w)
            if second != zero:
                add_multiple(right, to, second, rows, (row + 1) * columns, columns, w)
        else:
            s = row - 3 * nc
            start = int(scalars[s * SCALAR_ROWS + DOF, w])
            v = start % nv
            if s < scene.ncoupling:
                slope = scratch.dtype(job.settings.loop_erp / job.settings.dt)
                multiplier = parameters[job.parameters.couplings + COUPLING_ROWS * s, w]
                right[to + scene.coupling_follower[s], w] = slope
                right[to + scene.coupling_leader[s], w] = -multiplier * slope
            else:
                right[to + v, w] = scalars[s * SCALAR_ROWS + SCALAR_SLOPE, w] * scalars[s * SCALAR_ROWS + SIGN, w]
            u = int(v)
            while u >= 0:
                factor = scratch[job.scratch.Y_scalar + s * nv + u, w]
                add_multiple(right, to, factor, change, u * columns, columns, w)
                u = scene.dof_parent[start - v + u]


@wp.func
def subtract_impulses(
    linear_job: LinearJob, nc: int, ns: int, count: int, w: int, scratch: wp.array2d(dtype=Any),
    work: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add Y^T dlam, dlam = -E times the solution, to the change of s: eq. (19)."""
    job = linear_job.job
    scene = job.scene
    columns = linear_job.columns
    nv = scene.topology.nv
    m = 3 * nc + ns
    solver = rows_from(scratch, job.scratch.work)
    change = rows_from(work, linear_job.place.change)
    right = rows_from(work, linear_job.place.right)
    impulses = rows_from(work, linear_job.place.rows)
    zero = scratch.dtype(0.0)
    fill(impulses, 0, 3 * nc * columns, w)
    for k in range(count):
        at = m * m + k * UNKNOWN_ROWS
        row = int(solver[at + ROW, w])
        if row < 3 * nc:
            for t in range(3):
                factor = -solver[at + TRIAL + t, w]
                if factor != zero:
                    add_multiple(impulses, (row + t) * columns, factor, right, k * columns, columns, w)
        else:
            s = row - 3 * nc
            start = int(scratch[job.scratch.scalars + s * SCALAR_ROWS + DOF, w])
            u = start % nv
            way = start - u
            while u >= 0:
                factor = -scratch[job.scratch.Y_scalar + s * nv + u, w]
                add_multiple(change, u * columns, factor, right, k * columns, columns, w)
                u = scene.dof_parent[way + u]
    for c in range(nc):
        if scratch[job.scratch.lam + 3 * c, w] > zero:
            pair = int(scratch[job.scratch.contacts + c * CONTACT_ROWS + PAIR, w])
            add_to_rows_of_dofs(
                scene.pair_dof, scene.pair_dof_start[pair], scene.pair_dof_start[pair + 1], scratch,
                job.scratch.Y + 3 * c * nv, impulses, 3 * c * columns, columns, w, change, 0,
            )  # fmt: skip


@wp.func
def velocity_jacobian(
    linear_job: LinearJob, nc: int, ns: int, u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any), nowhere: wp.array2d(dtype=Any),
    work: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the change of the new velocity, nv by columns; the velocity and the acceleration are there already."""
    job = linear_job.job
    scene = job.scene
    place = linear_job.place
    columns = linear_job.columns
    bodies = rows_from(work, place.bodies)
    axes = rows_from(work, place.axes)
    change = rows_from(work, place.change)
    L = rows_from(scratch, job.scratch.L)
    solver = rows_from(scratch, job.scratch.work)
    lam = rows_from(scratch, job.scratch.lam)
    # the change of forces at fixed acceleration and impulses
    write_motions(job, parameters, w, scratch, bodies, axes)
    write_impulses(job, nc, parameters, w, scratch, bodies)
    gather(scene, scratch.dtype(job.settings.dt), w, bodies, axes)
    fill(change, 0, scene.topology.nv * columns, w)
    write_dynamics(scene, columns, scratch.dtype(job.settings.dt), w, axes, change)
    for c in range(nc):
        if lam[3 * c, w] > scratch.dtype(0.0):
            if is_vertex_on_plane(scene, int(scratch[job.scratch.contacts + c * CONTACT_ROWS + PAIR, w])):
                write_plane_rows(linear_job, c, parameters, w, scratch, work)
            else:
                add_contact_change(linear_job, c, parameters, w, scratch, nowhere, work)
    add_forces(linear_job, u, parameters, w, scratch, nowhere, change)
    add_carried_change(linear_job, parameters, w, scratch, work, change)
    # the change of s at fixed impulses, then of the impulses
    solve_columns(scene.topology.nv, columns, True, scene.dof_parent, w, L, change)
    add_factor(linear_job, w, scratch, change)
    add_correction_change(linear_job, parameters, w, scratch, nowhere, rows_from(work, place.right), change)
    if nc + ns > 0:
        A = rows_from(scratch, job.scratch.A)
        count = add_unknowns(
            nc, ns, job.settings.cone, A, rows_from(scratch, job.scratch.b), rows_from(scratch, job.scratch.mu),
            rows_from(scratch, job.scratch.lower), rows_from(scratch, job.scratch.upper), lam, lam, w, solver,
        )  # fmt: skip
        m = 3 * nc + ns
        assemble(0, count, m, True, A, w, solver)
        write_right(linear_job, nc, ns, count, parameters, w, scratch, work)
        eliminate_transposed(count, columns, m * (m + UNKNOWN_ROWS + 1), w, solver, rows_from(work, place.right))
        subtract_impulses(linear_job, nc, ns, count, w, scratch, work)
    solve_columns(scene.topology.nv, columns, False, scene.dof_parent, w, L, change)
