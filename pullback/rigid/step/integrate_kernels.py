"""Moving coordinates, and its adjoint (docs/derivations/integration.md).

A free joint's velocity is in the body's frame: p' = p + R v dt, quaternion' = quaternion * exp(w dt / 2)   (1)
Quaternions are made unit on the way, so their length carries no gradient.

A step finds the new velocity in the axes that the body has before it, where the linear velocity v of a free joint
changes by a + w x v, a being the joint's acceleration, and then turns it into the axes after it: v' = exp(-w' dt) v (2)
Left in turning axes, Euler's step would add energy to whatever spins.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import Scene
from pullback.robot.joint_kernels import (
    joint_add_axes_rate,
    joint_add_axes_rate_vjp,
    joint_integrate,
    joint_integrate_vjp,
    joint_turn_axes,
    joint_turn_axes_vjp,
)


@wp.func
def integrate(scene: Scene, dt: Any, v: wp.array2d(dtype=Any), w: int, q: wp.array2d(dtype=Any)):
    """Move q by dt v, in place: eq. (1)."""
    for i in range(scene.topology.nbody):
        joint_integrate(scene.topology, i, dt, v, w, q)


@wp.func
def integrate_vjp(
    scene: Scene, dt: Any, q: wp.array2d(dtype=Any), v: wp.array2d(dtype=Any), adj_next: wp.array2d(dtype=Any), w: int,
    adj_q: wp.array2d(dtype=Any), adj_v: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of q and v for that of the coordinates after `integrate`."""
    for i in range(scene.topology.nbody):
        joint_integrate_vjp(scene.topology, i, dt, q, v, adj_next, w, adj_q, adj_v)


@wp.func
def add_axes_rate(scene: Scene, dt: Any, qd: wp.array2d(dtype=Any), w: int, velocity: wp.array2d(dtype=Any)):
    """Add dt w x v of free joints to the velocity: what their linear acceleration lacks in fixed axes, eq. (2)."""
    for i in range(scene.topology.nbody):
        joint_add_axes_rate(scene.topology, i, dt, qd, w, velocity)


@wp.func
def add_axes_rate_vjp(
    scene: Scene, dt: Any, qd: wp.array2d(dtype=Any), adj_velocity: wp.array2d(dtype=Any), w: int,
    adj_qd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangent of qd for that of the velocity after `add_axes_rate`."""
    for i in range(scene.topology.nbody):
        joint_add_axes_rate_vjp(scene.topology, i, dt, qd, adj_velocity, w, adj_qd)


@wp.func
def turn_axes(scene: Scene, dt: Any, v: wp.array2d(dtype=Any), w: int, qd: wp.array2d(dtype=Any)):
    """Express the linear velocities of free joints, in qd, in the axes after moving by dt v, eq. (2)."""
    for i in range(scene.topology.nbody):
        joint_turn_axes(scene.topology, i, dt, v, w, qd)


@wp.func
def turn_axes_vjp(
    scene: Scene, dt: Any, v: wp.array2d(dtype=Any), before: wp.array2d(dtype=Any), w: int,
    adj_v: wp.array2d(dtype=Any), adj_qd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Replace the cotangent of qd after `turn_axes` by that of it before, and add that of v."""
    for i in range(scene.topology.nbody):
        joint_turn_axes_vjp(scene.topology, i, dt, v, before, w, adj_v, adj_qd)
