"""Velocity products of trees that turn fast, and their energy (docs/derivations/gyroscopic.md, section "Trees").

Velocity products at the start of a step, e = qd + dt c(qd) - dt N^-1 h(q, qd), change the kinetic energy of a tree by
the square of the angle a step. So they are taken once more at the velocity x half a step on,

    x = (qd + e) / 2,    f = qd + dt c(x) - dt N^-1 h(q, x),    e' = e + second (f - e)                    (7), (16)

which leaves an error of third order. Where a tree turns so fast that this is no longer small, what is left of e' beside
the motion of the centre of mass is scaled back to the energy K- before the last move, at q- = q (-) dt qd,

    v* = c- + s (e' - c_e),    s^2 = min(1, K- / K),    correction = e' - e + weight (v* - e')             (9) to (11)

K without the centre of mass, whose velocity c- goes on as it was. Contact, actuators and gravity come on top: they are
passive in the metric of M(q), in which the energy of v* is K-. Trees that turn slowly have the weights zero, and cost a
sum of squares.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import TREE_ROWS
from pullback.rigid.step.dynamics_kernels import (
    factorize,
    products_of_bias,
    solve_factor,
    solve_transposed,
    velocity_products,
)
from pullback.rigid.step.integrate_kernels import add_axes_rate, integrate, turn_axes
from pullback.rigid.step.problem_kernels import Job
from pullback.robot.joint_kernels import joint_axis, joint_nv, joint_travels
from pullback.robot.rnea_kernels import RobotRows32, RobotRows64, inverse_dynamics
from pullback.robot.topology import DAMPING, DOF_ROWS, INERTIA_ROWS, Topology
from pullback.spatial.arrays import accumulate, load3, rows_from
from pullback.spatial.rotations import quaternion_from_vector
from pullback.spatial.vectors import angular, rotation_from_quaternion

SECOND_FROM = wp.constant(0.02)
"""Root of the sum of squares of a tree's turns [rad] in a step, below which it is left as it is."""
SECOND_FULL = wp.constant(0.04)
"""The same, above which velocity products are those half a step on."""
SLOW = wp.constant(0.25)
"""The same, below which energy is left as it is."""
FAST = wp.constant(0.5)
"""The same, above which it is kept."""

# rows of a tree, at its root: weight and its slope by the squared angle, s (0: not scaled), energies, mass, and weight
# and slope of the products half a step on
WEIGHT = wp.constant(0)
SLOPE = wp.constant(1)
SCALE = wp.constant(2)
ENERGY = wp.constant(3)
ENERGY_BEFORE = wp.constant(4)
MASS = wp.constant(5)
SECOND = wp.constant(6)
SECOND_SLOPE = wp.constant(7)

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
    return dt * dt * total > type(dt)(SECOND_FROM) * type(dt)(SECOND_FROM)


@wp.func
def keeps_some(job: Job, w: int, scratch: wp.array2d(dtype=Any)):
    """Tell whether the energy of some tree is kept."""
    found = bool(False)
    for i in range(job.scene.topology.nbody):
        if job.scene.topology.parent[i] < 0 and is_kept(rows_from(scratch, job.scratch.trees), i, w):
            found = True
    return found


@wp.func
def write_weight(trees: wp.array2d(dtype=Any), row: int, angle: Any, low: Any, high: Any, w: int):
    """Write a weight that rises from 0 to 1 between two squared angles, and its slope; return it: eq. (11)."""
    t = wp.clamp((angle - low * low) / (high * high - low * low), type(angle)(0.0), type(angle)(1.0))
    weight = t * t * (type(angle)(3.0) - t - t)
    trees[row, w] = weight
    trees[row + 1, w] = type(angle)(6.0) * t * (type(angle)(1.0) - t) / (high * high - low * low)
    return weight


@wp.func(inline=False)
def write_weights(job: Job, dt: Any, qd: wp.array2d(dtype=Any), w: int, trees: wp.array2d(dtype=Any)):
    """Write the weights of each tree and their slopes, and zero as its mass and scale.

    Return whether velocity products change, and whether some energy may be kept.
    """
    topology = job.scene.topology
    zero = type(dt)(0.0)
    one = type(dt)(1.0)
    for i in range(topology.nbody):
        row = i * TREE_ROWS
        for r in range(TREE_ROWS):
            trees[row + r, w] = zero
        if topology.parent[i] >= 0 or topology.is_leaf[i] == 0:
            angle = zero
            for k in range(joint_nv(topology, i)):
                rate = dt * qd[topology.v_start[i] + k, w]
                angle += turn_share(topology, i, k, one) * rate * rate
            at = root_of(topology, i) * TREE_ROWS + WEIGHT
            trees[at, w] = trees[at, w] + angle
    changes = bool(False)
    keeps = bool(False)
    for i in range(topology.nbody):
        if topology.parent[i] < 0:
            row = i * TREE_ROWS
            angle = trees[row + WEIGHT, w]
            if write_weight(trees, row + SECOND, angle, type(dt)(SECOND_FROM), type(dt)(SECOND_FULL), w) > zero:
                changes = True
            if write_weight(trees, row + WEIGHT, angle, type(dt)(SLOW), type(dt)(FAST), w) > zero:
                keeps = True
    return changes, keeps


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


@wp.func
def write_factor(
    job: Job, parameters: wp.array2d(dtype=Any), w: int, M: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any)
):
    """Write the factor of N, the mass matrix without the inertia that stands for joint damping."""
    nv = job.scene.topology.nv
    N = rows_from(scratch, job.scratch.tree_factor)
    ahead = scratch.dtype(job.settings.ahead)
    for r in range(nv * nv):
        N[r, w] = M[r, w]
    for v in range(nv):
        damping = parameters[job.parameters.dofs + DOF_ROWS * v + DAMPING, w]
        N[v * nv + v, w] = N[v * nv + v, w] - ahead * damping
    factorize(job.scene, w, N)


@wp.func
def tree_work(job: Job):
    """Return the row of scratch for motions of bodies: that of the equations of motion, which are done."""
    return job.scratch.dynamics


@wp.func(inline=False)
def fall_by_products(
    job: Job, qd: wp.array2d(dtype=Any), x: wp.array2d(dtype=Any), w: int, fall: wp.array2d(dtype=Any),
    velocity: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Replace h(q, x) by -N^-1 h(q, x), and write the velocity qd + dt c(x) - dt N^-1 h(q, x): eq. (7)."""
    scene = job.scene
    dt = scratch.dtype(job.settings.dt)
    N = rows_from(scratch, job.scratch.tree_factor)
    for v in range(scene.topology.nv):
        fall[v, w] = -fall[v, w]
        velocity[v, w] = qd[v, w]
    solve_transposed(scene, N, w, fall)
    solve_factor(scene, N, w, fall)
    add_axes_rate(scene, dt, x, w, velocity)
    for v in range(scene.topology.nv):
        velocity[v, w] = velocity[v, w] + dt * fall[v, w]


@wp.func(inline=False)
def find_products(
    job: Job, qd: wp.array2d(dtype=Any), bias: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    M: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write N's factor, x, f - e, e' and the correction e' - e: eqs. (7) and (16)."""
    topology = job.scene.topology
    place = job.scratch
    half = rows_from(scratch, place.tree_half)
    gain = rows_from(scratch, place.tree_gain)
    fall = rows_from(scratch, place.tree_fall)
    half_fall = rows_from(scratch, place.tree_half_fall)
    e = rows_from(scratch, place.tree_ahead)
    for v in range(wp.max(topology.nv, 3)):
        scratch[place.tree_zeros + v, w] = scratch.dtype(0.0)
    write_factor(job, parameters, w, M, scratch)
    products_of_bias(
        job.scene, qd, rows_from(parameters, job.parameters.gravity), rows_from(parameters, job.parameters.dofs), bias,
        rows_from(scratch, place.poses), w, fall, rows_from(scratch, place.dynamics),
    )  # fmt: skip
    fall_by_products(job, qd, qd, w, fall, e, scratch)
    for v in range(topology.nv):
        half[v, w] = scratch.dtype(0.5) * (qd[v, w] + e[v, w])
    velocity_products(
        job.scene, half, rows_from(parameters, job.parameters.inertias), rows_from(scratch, place.dynamics), w,
        half_fall, rows_from(scratch, tree_work(job)),
    )  # fmt: skip
    fall_by_products(job, qd, half, w, half_fall, gain, scratch)
    for i in range(topology.nbody):
        second = scratch[place.trees + root_of(topology, i) * TREE_ROWS + SECOND, w]
        for k in range(joint_nv(topology, i)):
            v = topology.v_start[i] + k
            gain[v, w] = gain[v, w] - e[v, w]
            scratch[place.correction + v, w] = second * gain[v, w]
            e[v, w] = e[v, w] + second * gain[v, w]


@wp.func(inline=False)
def find_momenta(
    job: Job, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write velocities and momenta after the velocity products and before the last move: eq. (8)."""
    scene = job.scene
    place = job.scratch
    dt = scratch.dtype(job.settings.dt)
    trees = rows_from(scratch, place.trees)
    zeros = rows_from(scratch, place.tree_zeros)
    e = rows_from(scratch, place.tree_velocity)
    p = rows_from(scratch, place.tree_momentum)
    q_before = rows_from(scratch, place.tree_q)
    before = rows_from(scratch, place.tree_before)
    p_before = rows_from(scratch, place.tree_momentum_before)
    work = rows_from(scratch, tree_work(job))
    robot = weightless_rows(
        zeros, rows_from(parameters, job.parameters.placements), rows_from(parameters, job.parameters.inertias),
        rows_from(parameters, job.parameters.dofs),
    )  # fmt: skip
    for v in range(scene.topology.nv):
        e[v, w] = scratch[place.tree_ahead + v, w]
        before[v, w] = qd[v, w]
    keep_chosen(job, trees, w, e)
    inverse_dynamics(scene.topology, q, zeros, e, robot, w, p, work)
    damped_back(job, parameters, e, w, p)
    # where the tree came from
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


@wp.func
def scaled_travel(job: Job, i: int, qd: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Return v* - e' on the linear dofs of free root i, eq. (11)."""
    place = job.scratch
    first = job.scene.topology.v_start[i] + 3
    tree = place.trees + i * TREE_ROWS
    carried, Q = carried_velocity(job, i, w, scratch)
    of_e = load3(scratch, place.tree_momentum + first, w) / scratch[tree + MASS, w]
    gained = load3(qd, first, w) - load3(scratch, place.tree_ahead + first, w)
    return gained + carried - scratch[tree + SCALE, w] * of_e


@wp.func(inline=False)
def add_kept_energy(
    job: Job, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), parameters: wp.array2d(dtype=Any), w: int,
    scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add weight (v* - e') to the correction, eqs. (10) and (11)."""
    topology = job.scene.topology
    place = job.scratch
    trees = rows_from(scratch, place.trees)
    find_momenta(job, q, qd, parameters, w, scratch)
    write_scales(job, parameters, w, scratch)
    for i in range(topology.nbody):
        root = root_of(topology, i)
        if is_kept(trees, root, w):
            weight = trees[root * TREE_ROWS + WEIGHT, w]
            lost = trees[root * TREE_ROWS + SCALE, w] - scratch.dtype(1.0)
            for k in range(joint_nv(topology, i)):
                v = topology.v_start[i] + k
                if not is_travel(topology, i, k):
                    kept = weight * lost * scratch[place.tree_ahead + v, w]
                    scratch[place.correction + v, w] = scratch[place.correction + v, w] + kept
            if i == root and joint_travels(topology, i):
                kept3 = weight * scaled_travel(job, i, qd, w, scratch)
                accumulate(scratch, place.correction + topology.v_start[i] + 3, w, kept3)


@wp.func
def correct_trees(
    job: Job, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), bias: wp.array2d(dtype=Any),
    parameters: wp.array2d(dtype=Any), w: int, M: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the correction of the velocity of trees that turn fast, and whether there are any.

    Bias forces, M and what `equations_of_motion` left in scratch are read.
    """
    place = job.scratch
    if job.has_trees == 1:
        dt = scratch.dtype(job.settings.dt)
        scratch[place.corrects, w] = scratch.dtype(0.0)
        if may_turn_fast(job, dt, qd, w):
            changes, keeps = write_weights(job, dt, qd, w, rows_from(scratch, place.trees))
            if changes:
                scratch[place.corrects, w] = scratch.dtype(1.0)
                find_products(job, qd, bias, parameters, w, M, scratch)
            if keeps:
                add_kept_energy(job, q, qd, parameters, w, scratch)


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
    if is_corrected(job, w, scratch):
        share = factor * scratch[job.scratch.span, w] / scratch.dtype(job.settings.dt)
        for v in range(job.scene.topology.nv):
            velocity[v, w] = velocity[v, w] + share * scratch[job.scratch.correction + v, w]
