"""JaxSim on the robot benchmark's arm; it reads SDF by itself, and URDF only beside Gazebo's tools."""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import os

os.environ["JAX_ENABLE_X64"] = "1"

import jax
import jax.numpy as jnp
import jaxsim.api as js
import jaxsim.rbda as rbda

from bench.peers.jax_operations import operations_of
from bench.peers.library import Operations, Task, run

GRAVITY = -9.81


def prepare(task: Task) -> tuple[Operations, float]:
    """Return the operations."""
    model = js.model.JaxSimModel.build_from_model_description(task.sdf, is_urdf=False)
    link = js.link.name_to_idx(model, link_name=task.link)
    zero, upright = jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0])
    base = {"base_position": zero, "base_quaternion": upright}
    rest = {"base_linear_velocity": zero, "base_angular_velocity": zero}

    def placed(q: jax.Array) -> jax.Array:
        return model.kin_dyn_parameters.joint_transforms(joint_positions=q, base_transform=jnp.eye(4))

    def pose(q: jax.Array) -> tuple[jax.Array, jax.Array]:
        poses, _ = rbda.forward_kinematics_model(
            model, **base, joint_positions=q, joint_velocities=jnp.zeros_like(q), joint_transforms=placed(q),
            base_linear_velocity_inertial=zero, base_angular_velocity_inertial=zero,
        )  # fmt: skip
        return poses[link][:3, 3], poses[link][:3, :3]

    def jacobian(q: jax.Array) -> jax.Array:
        # its rows are in the link's axes
        J = rbda.jacobian(model, link_index=link, joint_positions=q)[:, 6:]
        R = pose(q)[1]
        return jnp.concatenate([R @ J[:3], R @ J[3:]])

    def inverse(q: jax.Array, qd: jax.Array, qdd: jax.Array) -> jax.Array:
        return rbda.rnea(
            model, **base, **rest, joint_positions=q, joint_velocities=qd, joint_accelerations=qdd,
            joint_transforms=placed(q), standard_gravity=GRAVITY,
        )[1]  # fmt: skip

    def forward(q: jax.Array, qd: jax.Array, tau: jax.Array) -> jax.Array:
        return rbda.aba(
            model, **base, **rest, joint_positions=q, joint_velocities=qd, joint_forces=tau,
            joint_transforms=placed(q), standard_gravity=GRAVITY,
        )[1]  # fmt: skip

    return operations_of(task, {
        "FK": pose,
        "Jacobian": jacobian,
        "RNEA": inverse,
        "CRBA": lambda q: rbda.crba(model, joint_positions=q)[6:, 6:],
        "ABA": forward,
    })  # fmt: skip


if __name__ == "__main__":
    run(prepare, ("jaxsim", "jax"))
