"""Trees that turn fast keep their energy, and the adjoint (docs/derivations/gyroscopic.md, section "Trees").

Velocity products at the start of a step, e = qd + dt c - dt N^-1 h(q, qd), change the kinetic energy of a tree by the
square of the angle a step. Before the last move, at q- = q (-) dt qd, the tree had the energy K-; so what is left of e
beside the motion of the centre of mass is scaled back to it,

    v* = c- + s (e - c_e),    s^2 = min(1, K- / K),    correction = weight (v* - e)                      (9) to (11)

K without the centre of mass, whose velocity c- goes on as it was. Contact, actuators and gravity come on top: they are
passive in the metric of M(q), in which the energy of v* is K-. Trees that turn slowly have the weight zero, and cost a
sum of squares.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import TREE_ROWS
from pullback.rigid.step.dynamics_kernels import factorize, solve_factor, solve_transposed
from pullback.rigid.step.integrate_kernels import add_axes_rate, integrate, turn_axes
from pullback.rigid.step.problem_kernels import Job
from pullback.robot.joint_kernels import joint_axis, joint_nv, joint_travels
from pullback.robot.rnea_kernels import RobotRows32, RobotRows64, inverse_dynamics
from pullback.robot.topology import DAMPING, DOF_ROWS, INERTIA_ROWS, Topology
from pullback.spatial.arrays import load3, rows_from, store
from pullback.spatial.rotations import quaternion_from_vector
from pullback.spatial.vectors import angular, rotation_from_quaternion

SLOW = wp.constant(0.25)
"""Root of the sum of squares of a tree's turns [rad] in a step, below which it is left as it is."""
FAST = wp.constant(0.5)
"""The same, above which its energy is kept."""

# rows of a tree, at its root: weight and its slope by the squared angle, s (0: not scaled), energies, mass
WEIGHT = wp.constant(0)
SLOPE = wp.constant(1)
SCALE = wp.constant(2)
ENERGY = wp.constant(3)
ENERGY_BEFORE = wp.constant(4)
MASS = wp.constant(5)

Array32 = wp.array2d(dtype=wp.float32)
Array64 = wp.array2d(dtype=wp.float64)


@wp.func
def weightless_rows(gravity: Array32, placements: Array32, inertias: Array32, dofs: Array32):
    """Return what inverse dynamics read, without wrenches."""
    robot = RobotRows32()
    robot.gravity = gravity
    robot.placements = placements
    robot.inertias = inertias
    robot.dofs = dofs
    return robot


@wp.func
def weightless_rows(gravity: Array64, placements: Array64, inertias: Array64, dofs: Array64):  # noqa: F811
    """Return what inverse dynamics read, without wrenches."""
    robot = RobotRows64()
    robot.gravity = gravity
    robot.placements = placements
    robot.inertias = inertias
    robot.dofs = dofs
    return robot


# -- trees -----------------------------------------------------------------------------------------------------------


@wp.func
def root_of(topology: Topology, i: int):
    """Return the body on the world that carries body i."""
    root = int(i)
    while topology.parent[root] >= 0:
        root = topology.parent[root]
    return root


@wp.func
def turn_share(topology: Topology, i: int, k: int, one: Any):
    """Return the square of the angle by which dof k of body i turns it, for a unit of the dof."""
    axis = angular(joint_axis(topology, i, k, one))
    return wp.dot(axis, axis)


@wp.func
def is_travel(topology: Topology, i: int, k: int):
    """Tell whether dof k of body i moves its whole tree without turning it."""
    return topology.parent[i] < 0 and joint_travels(topology, i) and k >= 3


@wp.func
def is_kept(trees: wp.array2d(dtype=Any), root: int, w: int):
    """Tell whether the tree on a root has its energy scaled."""
    row = root * TREE_ROWS
    return trees[row + WEIGHT, w] > trees.dtype(0.0) and trees[row + SCALE, w] > trees.dtype(0.0)


@wp.func
def may_turn_fast(job: Job, dt: Any, qd: wp.array2d(dtype=Any), w: int):
    """Tell whether some tree may turn fast: all velocities together, at the price of a sum of squares."""
    total = type(dt)(0.0)
    for v in range(job.scene.topology.nv):
        total += qd[v, w] * qd[v, w]
    return dt * dt * total > type(dt)(SLOW) * type(dt)(SLOW)


@wp.func(inline=False)
def write_weights(job: Job, dt: Any, qd: wp.array2d(dtype=Any), w: int, trees: wp.array2d(dtype=Any)):
    """Write mass, weight and its slope of each tree; return whether one has a weight, eq. (11)."""
    topology = job.scene.topology
    zero = type(dt)(0.0)
    one = type(dt)(1.0)
    total = zero
    for i in range(topology.nbody):
        row = i * TREE_ROWS
        trees[row + WEIGHT, w] = zero
        trees[row + SLOPE, w] = zero
        trees[row + MASS, w] = zero
        if topology.parent[i] >= 0 or topology.is_leaf[i] == 0:
            angle = zero
            for k in range(joint_nv(topology, i)):
                rate = dt * qd[topology.v_start[i] + k, w]
                angle += turn_share(topology, i, k, one) * rate * rate
            at = root_of(topology, i) * TREE_ROWS + WEIGHT
            trees[at, w] = trees[at, w] + angle
            total += angle
    low = type(dt)(SLOW) * type(dt)(SLOW)
    found = bool(False)
    if total > low:
        width = type(dt)(FAST) * type(dt)(FAST) - low
        for i in range(topology.nbody):
            if topology.parent[i] < 0:
                row = i * TREE_ROWS
                t = wp.clamp((trees[row + WEIGHT, w] - low) / width, zero, one)
                trees[row + WEIGHT, w] = t * t * (type(dt)(3.0) - t - t)
                trees[row + SLOPE, w] = type(dt)(6.0) * t * (one - t) / width
                if t > zero:
                    found = True
    return found


@wp.func
def damped_back(
    job: Job, parameters: wp.array2d(dtype=Any), x: wp.array2d(dtype=Any), w: int, out: wp.array2d(dtype=Any)
):
    """Take the inertia that stands for joint damping out of a product of the mass matrix with x."""
    ahead = out.dtype(job.settings.ahead)
    for v in range(job.scene.topology.nv):
        damping = parameters[job.parameters.dofs + DOF_ROWS * v + DAMPING, w]
        out[v, w] = out[v, w] - ahead * damping * x[v, w]


@wp.func
def keep_chosen(job: Job, trees: wp.array2d(dtype=Any), w: int, x: wp.array2d(dtype=Any)):
    """Set velocities of trees without a weight, and the travel of the others, to zero."""
    topology = job.scene.topology
    for i in range(topology.nbody):
        slow = trees[root_of(topology, i) * TREE_ROWS + WEIGHT, w] == x.dtype(0.0)
        for k in range(joint_nv(topology, i)):
            if slow or is_travel(topology, i, k):
                x[topology.v_start[i] + k, w] = x.dtype(0.0)


# -- forward ---------------------------------------------------------------------------------------------------------


@wp.func(inline=False)
def find_products(
    job: Job, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    M: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write N's factor, e, and momenta after and before: eqs. (7) and (8)."""
    scene = job.scene
    place = job.scratch
    nv = scene.topology.nv
    dt = scratch.dtype(job.settings.dt)
    ahead = scratch.dtype(job.settings.ahead)
    trees = rows_from(scratch, place.trees)
    zeros = rows_from(scratch, place.tree_zeros)
    N = rows_from(scratch, place.tree_factor)
    fall = rows_from(scratch, place.tree_fall)
    ahead_velocity = rows_from(scratch, place.tree_ahead)
    e = rows_from(scratch, place.tree_velocity)
    p = rows_from(scratch, place.tree_momentum)
    q_before = rows_from(scratch, place.tree_q)
    before = rows_from(scratch, place.tree_before)
    p_before = rows_from(scratch, place.tree_momentum_before)
    work = rows_from(scratch, place.dynamics)
    robot = weightless_rows(
        zeros, rows_from(parameters, job.parameters.placements), rows_from(parameters, job.parameters.inertias),
        rows_from(parameters, job.parameters.dofs),
    )  # fmt: skip
    for v in range(wp.max(nv, 3)):
        zeros[v, w] = scratch.dtype(0.0)
    for r in range(nv * nv):
        N[r, w] = M[r, w]
    for v in range(nv):
        damping = parameters[job.parameters.dofs + DOF_ROWS * v + DAMPING, w]
        N[v * nv + v, w] = N[v * nv + v, w] - ahead * damping
    factorize(scene, w, N)
    # velocity products, eq. (7)
    inverse_dynamics(scene.topology, q, qd, zeros, robot, w, fall, work)
    for v in range(nv):
        fall[v, w] = parameters[job.parameters.dofs + DOF_ROWS * v + DAMPING, w] * qd[v, w] - fall[v, w]
        ahead_velocity[v, w] = qd[v, w]
        before[v, w] = qd[v, w]
    solve_transposed(scene, N, w, fall)
    solve_factor(scene, N, w, fall)
    add_axes_rate(scene, dt, qd, w, ahead_velocity)
    for v in range(nv):
        ahead_velocity[v, w] = ahead_velocity[v, w] + dt * fall[v, w]
        e[v, w] = ahead_velocity[v, w]
    keep_chosen(job, trees, w, e)
    inverse_dynamics(scene.topology, q, zeros, e, robot, w, p, work)
    damped_back(job, parameters, e, w, p)
    # where the tree came from, eq. (8)
    for r in range(scene.nq):
        q_before[r, w] = q[r, w]
    integrate(scene, -dt, qd, w, q_before)
    turn_axes(scene, -dt, qd, w, before)
    keep_chosen(job, trees, w, before)
    inverse_dynamics(scene.topology, q_before, zeros, before, robot, w, p_before, work)
    damped_back(job, parameters, before, w, p_before)


@wp.func
def energy_beside_centre(
    job: Job, root: int, velocity: wp.array2d(dtype=Any), p: wp.array2d(dtype=Any), w: int, mass: Any
):
    """Return the kinetic energy of the tree on a root, without that of its centre of mass: eq. (9)."""
    topology = job.scene.topology
    half = velocity.dtype(0.5)
    energy = velocity.dtype(0.0)
    for i in range(root, topology.nbody):
        if root_of(topology, i) == root:
            for k in range(joint_nv(topology, i)):
                v = topology.v_start[i] + k
                energy += half * p[v, w] * velocity[v, w]
    if joint_travels(topology, root):
        of_centre = load3(p, topology.v_start[root] + 3, w)
        energy -= half * wp.dot(of_centre, of_centre) / mass
    return energy


@wp.func
def write_scales(job: Job, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Write mass, energies beside the centre of mass and scale of each tree: eq. (9)."""
    topology = job.scene.topology
    place = job.scratch
    zero = scratch.dtype(0.0)
    trees = rows_from(scratch, place.trees)
    for i in range(topology.nbody):
        row = root_of(topology, i) * TREE_ROWS
        trees[row + MASS, w] = trees[row + MASS, w] + parameters[job.parameters.inertias + i * INERTIA_ROWS, w]
    for i in range(topology.nbody):
        row = i * TREE_ROWS
        trees[row + SCALE, w] = zero
        if topology.parent[i] < 0 and trees[row + WEIGHT, w] > zero:
            mass = trees[row + MASS, w]
            energy = energy_beside_centre(
                job, i, rows_from(scratch, place.tree_velocity), rows_from(scratch, place.tree_momentum), w, mass
            )
            before = energy_beside_centre(
                job, i, rows_from(scratch, place.tree_before), rows_from(scratch, place.tree_momentum_before), w, mass
            )
            trees[row + ENERGY, w] = energy
            trees[row + ENERGY_BEFORE, w] = before
            if energy > zero and before > zero:
                trees[row + SCALE, w] = wp.sqrt(wp.min(before / energy, scratch.dtype(1.0)))


@wp.func
def carried_velocity(job: Job, i: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Return the velocity of the centre of mass against the origin of free root i before the step, in axes after it."""
    place = job.scratch
    first = job.scene.topology.v_start[i]
    turn = scratch.dtype(job.settings.dt) * load3(scratch, place.qd + first, w)
    momentum = load3(scratch, place.tree_momentum_before + first + 3, w)
    Q = rotation_from_quaternion(quaternion_from_vector(turn))
    return (momentum * Q) / scratch[place.trees + i * TREE_ROWS + MASS, w], Q


@wp.func(inline=False)
def write_correction(
    job: Job, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    M: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write by how much the velocity after a whole step is corrected, eqs. (10) and (11)."""
    topology = job.scene.topology
    place = job.scratch
    trees = rows_from(scratch, place.trees)
    find_products(job, q, qd, parameters, w, M, scratch)
    write_scales(job, parameters, w, scratch)
    for i in range(topology.nbody):
        root = root_of(topology, i)
        scale = trees[root * TREE_ROWS + SCALE, w]
        weight = scratch.dtype(0.0)
        if is_kept(trees, root, w):
            weight = trees[root * TREE_ROWS + WEIGHT, w]
        for k in range(joint_nv(topology, i)):
            v = topology.v_start[i] + k
            correction = (scale - scratch.dtype(1.0)) * scratch[place.tree_ahead + v, w]
            scratch[place.correction + v, w] = weight * correction
        if i == root and joint_travels(topology, i):
            first = topology.v_start[i] + 3
            carried, Q = carried_velocity(job, i, w, scratch)
            of_e = load3(scratch, place.tree_momentum + first, w) / trees[i * TREE_ROWS + MASS, w]
            gained = load3(qd, first, w) - load3(scratch, place.tree_ahead + first, w)
            store(scratch, place.correction + first, w, weight * (gained + carried - scale * of_e))


@wp.func
def keep_energy_of_trees(
    job: Job, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    M: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the correction of the velocity of trees that turn fast, and whether there are any; M is kept."""
    place = job.scratch
    if job.has_trees == 1:
        dt = scratch.dtype(job.settings.dt)
        scratch[place.corrects, w] = scratch.dtype(0.0)
        if may_turn_fast(job, dt, qd, w):
            if write_weights(job, dt, qd, w, rows_from(scratch, place.trees)):
                scratch[place.corrects, w] = scratch.dtype(1.0)
                write_correction(job, q, qd, parameters, w, M, scratch)


@wp.func
def is_corrected(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Tell whether the step at hand corrects the velocity of a tree."""
    corrected = bool(False)
    if job.has_trees == 1:
        corrected = scratch[job.scratch.corrects, w] > scratch.dtype(0.0)
    return corrected


@wp.func
def add_correction(job: Job, factor: Any, w: int, velocity: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any)):
    """Add the correction of the part of the step at hand, times a factor, to a velocity."""
    place = job.scratch
    if is_corrected(job, w, scratch):
        share = factor * scratch[place.span, w] / scratch.dtype(job.settings.dt)
        for v in range(job.scene.topology.nv):
            velocity[v, w] = velocity[v, w] + share * scratch[place.correction + v, w]
