"""Forces of actuators, and their adjoint (docs/derivations/actuators.md).

Each actuator follows a law, force = f(numbers; u, q, qd) of its joint, or of a sum of joints, which returns the force
and its derivatives by (u, q, qd) and by its numbers: one source for the step, its adjoint and its Jacobian. `law` is
the affine one here; in worlds with other actuators a chain of laws takes its place (variants.py).
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import ACTUATOR_ROWS, Scene
from pullback.rigid.step.affine_law_kernels import law as affine_law
from pullback.spatial.arrays import load10

SECOND = wp.constant(1)


@wp.func
def law(kind: int, numbers: Any, u: Any, q: Any, qd: Any):
    """Return the force of an actuator, its derivatives by (u, q, qd), and those by its numbers."""
    return affine_law(numbers, u, q, qd)


@wp.func
def second_law(numbers: Any, u: Any, q: Any, qd: Any):
    """Stand for the law that `law_or_second` adds to a chain."""
    return affine_law(numbers, u, q, qd)


@wp.func
def law_or_second(kind: int, numbers: Any, u: Any, q: Any, qd: Any):
    """Return what `law` does, or the second law if the actuator's kind is SECOND: a link of a chain of laws."""
    force, slopes, by_numbers = law(kind, numbers, u, q, qd)
    if kind == SECOND:
        force, slopes, by_numbers = second_law(numbers, u, q, qd)
    return force, slopes, by_numbers


@wp.func
def length_of(scene: Scene, a: int, q: wp.array2d(dtype=Any), w: int):
    """Return the sum of an actuator's coordinates, each times its share."""
    length = q.dtype(0.0)
    for k in range(scene.actuator_start[a], scene.actuator_start[a + 1]):
        length += q.dtype(scene.actuator_share[k]) * q[scene.dof_coordinate[scene.actuator_dof[k]], w]
    return length


@wp.func
def rate_of(scene: Scene, a: int, qd: wp.array2d(dtype=Any), w: int):
    """Return the sum of velocities, or of cotangents of forces, of an actuator's dofs, each times its share."""
    rate = qd.dtype(0.0)
    for k in range(scene.actuator_start[a], scene.actuator_start[a + 1]):
        rate += qd.dtype(scene.actuator_share[k]) * qd[scene.actuator_dof[k], w]
    return rate


@wp.func
def actuator(
    scene: Scene, a: int, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), u: wp.array2d(dtype=Any),
    actuators: wp.array2d(dtype=Any), w: int,
):  # fmt: skip
    """Return the force of actuator a and its derivatives; a spring has no control."""
    control = q.dtype(0.0)
    if a < scene.nu:
        control = u[a, w]
    force, slopes, by_numbers = law(
        scene.actuator_law[a], load10(actuators, a * ACTUATOR_ROWS, w), control, length_of(scene, a, q, w),
        rate_of(scene, a, qd, w),
    )  # fmt: skip
    return force, slopes, by_numbers


@wp.func
def add_actuator_forces(
    scene: Scene, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), u: wp.array2d(dtype=Any),
    actuators: wp.array2d(dtype=Any), w: int, tau: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the forces of actuators and springs to tau."""
    for a in range(scene.nactuator):
        force, slopes, by_numbers = actuator(scene, a, q, qd, u, actuators, w)
        for k in range(scene.actuator_start[a], scene.actuator_start[a + 1]):
            v = scene.actuator_dof[k]
            tau[v, w] = tau[v, w] + q.dtype(scene.actuator_share[k]) * force


@wp.func
def actuator_forces_vjp(
    scene: Scene, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), u: wp.array2d(dtype=Any),
    actuators: wp.array2d(dtype=Any), adj_tau: wp.array2d(dtype=Any), w: int,
    adj_q: wp.array2d(dtype=Any), adj_qd: wp.array2d(dtype=Any), adj_u: wp.array2d(dtype=Any),
    adj_actuators: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of everything `add_actuator_forces` reads."""
    for a in range(scene.nactuator):
        adj = rate_of(scene, a, adj_tau, w)
        force, slopes, by_numbers = actuator(scene, a, q, qd, u, actuators, w)
        for k in range(scene.actuator_start[a], scene.actuator_start[a + 1]):
            v = scene.actuator_dof[k]
            c = scene.dof_coordinate[v]
            share = q.dtype(scene.actuator_share[k]) * adj
            adj_q[c, w] = adj_q[c, w] + slopes[1] * share
            adj_qd[v, w] = adj_qd[v, w] + slopes[2] * share
        if adj_u:
            if a < scene.nu:
                adj_u[a, w] = adj_u[a, w] + slopes[0] * adj
        if adj_actuators:
            for k in range(ACTUATOR_ROWS):
                row = a * ACTUATOR_ROWS + k
                adj_actuators[row, w] = adj_actuators[row, w] + by_numbers[k] * adj
