"""Forces and inertia of a part of a step that is split at touches (docs/derivations/impacts.md, sections 3 and 4)."""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import POSE_ROWS
from pullback.rigid.step.dynamics_kernels import (
    COMPOSITE,
    DYNAMICS_ROWS,
    LOCAL,
    add_to_parent,
    factorize,
    mass_matrix_rows,
)
from pullback.rigid.step.force_kernels import free_forces, subtract_damping_ahead
from pullback.rigid.step.problem_kernels import Job
from pullback.robot.joint_kernels import joint_pose
from pullback.robot.topology import INERTIA_ROWS
from pullback.spatial.arrays import load3, load6, load33, rows_from, store, store33


@wp.func
def begin_part(job: Job, span: Any, w: int, scratch: wp.array2d(dtype=Any)):
    """Let the stages of a step take a part of it, an impact if it takes no time.

    Velocities that actuators and damping act at are the step ahead in a whole one, half of that and of the part in a
    part, and nothing in an impact: eq. (11).
    """
    ahead = scratch.dtype(0.0)
    if span > ahead:
        share = scratch.dtype(0.5) * (scratch.dtype(1.0) + span / scratch.dtype(job.settings.dt))
        ahead = scratch.dtype(job.settings.ahead) * share
    scratch[job.scratch.span, w] = span
    scratch[job.scratch.ahead, w] = ahead


@wp.func
def time_ahead_in_part(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Return how far ahead [s] the velocities are that actuators and damping act at in a part of a step."""
    return scratch[job.scratch.ahead, w]


@wp.func
def tree_work_of_part(job: Job):
    """Return the row of scratch of trees' own: the velocities of bodies are asked for after the equations of motion."""
    return job.scratch.tree_work


@wp.func(inline=False)
def inertia_alone(
    job: Job, q: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int, L: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write poses and the factor of the mass matrix, which are all that an impact asks of the equations of motion."""
    scene = job.scene
    topology = scene.topology
    poses = rows_from(scratch, job.scratch.poses)
    dynamics = rows_from(scratch, job.scratch.dynamics)
    placements = rows_from(parameters, job.parameters.placements)
    inertias = rows_from(parameters, job.parameters.inertias)
    zero = scratch.dtype(0.0)
    nothing = wp.vector(zero, zero, zero, zero, zero, zero)
    for i in range(topology.nbody):
        parent = topology.parent[i]
        row = i * DYNAMICS_ROWS
        R, p = joint_pose(topology, i, placements, q, w)
        store33(dynamics, row + LOCAL, w, R)
        store(dynamics, row + LOCAL + 9, w, p)
        if parent >= 0:
            R_P = load33(poses, parent * POSE_ROWS, w)
            p = load3(poses, parent * POSE_ROWS + 9, w) + R_P * p
            R = R_P * R
        store33(poses, i * POSE_ROWS, w, R)
        store(poses, i * POSE_ROWS + 9, w, p)
        dynamics[row + COMPOSITE, w] = inertias[i * INERTIA_ROWS, w]
        store(dynamics, row + COMPOSITE + 1, w, load3(inertias, i * INERTIA_ROWS + 1, w))
        store(dynamics, row + COMPOSITE + 4, w, load6(inertias, i * INERTIA_ROWS + 4, w))
    for k in range(topology.nbody):
        i = topology.nbody - 1 - k
        mass_matrix_rows(scene, i, rows_from(parameters, job.parameters.dofs), w, L, dynamics)
        if topology.parent[i] >= 0:
            add_to_parent(i, topology.parent[i], nothing, w, dynamics)
    subtract_damping_ahead(job, parameters, w, L, scratch)
    factorize(scene, w, L)


@wp.func
def part_forces(
    job: Job, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), u: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any), w: int, force: wp.array2d(dtype=Any), L: wp.array2d(dtype=Any),
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Do what `free_forces` does, for an impact without forces and without the inertias of actuators."""
    if scratch[job.scratch.span, w] > scratch.dtype(0.0):
        free_forces(job, q, qd, u, parameters, w, force, L, scratch)
    else:
        inertia_alone(job, q, parameters, w, L, scratch)
        for v in range(job.scene.topology.nv):
            force[v, w] = scratch.dtype(0.0)
