"""adam on the robot benchmark's arm, by its JAX interface.

Its robots have a floating base, here at rest: RNEA is M qdd + h, and forward dynamics solve the joints' block of M,
since its ABA would let the base fall.
"""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import jax
import jax.numpy as jnp
from adam import Representations
from adam.jax import KinDynComputations

from bench.peers.jax_operations import operations_of
from bench.peers.library import Operations, Task, run


def prepare(task: Task) -> tuple[Operations, float]:
    """Return the operations."""
    n = task.q.shape[1]
    names = [f"iiwa_joint_{k + 1}" for k in range(n)]
    arm = KinDynComputations(task.urdf, names, gravity=jnp.array([0, 0, -9.81, 0, 0, 0.0]))
    arm.set_frame_velocity_representation(Representations.MIXED_REPRESENTATION)
    base, rest = jnp.eye(4), jnp.zeros(6)

    def pose(q: jax.Array) -> tuple[jax.Array, jax.Array]:
        X = arm.forward_kinematics(task.link, base, q)
        return X[:3, 3], X[:3, :3]

    def mass(q: jax.Array) -> jax.Array:
        return arm.mass_matrix(base, q)[6:, 6:]

    def bias(q: jax.Array, qd: jax.Array) -> jax.Array:
        return arm.bias_force(base, q, rest, qd)[6:]

    return operations_of(task, {
        "FK": pose,
        "Jacobian": lambda q: arm.jacobian(task.link, base, q)[:, 6:],
        "RNEA": lambda q, qd, qdd: mass(q) @ qdd + bias(q, qd),
        "CRBA": mass,
        "ABA": lambda q, qd, tau: jax.scipy.linalg.solve(mass(q), tau - bias(q, qd), assume_a="pos"),
    })  # fmt: skip


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    run(prepare, ("adam-robotics", "jax"))
