"""Pullback on the robot benchmark's arm."""

from __future__ import annotations

import torch

import pullback as pb
from bench.peers.library import Operations, Task, run
from bench.peers.torch_operations import operations_of


def prepare(task: Task) -> tuple[Operations, float]:
    """Return the operations."""
    torch.set_num_threads(1)
    arm = pb.load(task.urdf, dtype=torch.float64)
    return operations_of(task, {
        "FK": lambda q: arm.compute_forward_kinematics(q, task.link),
        "Jacobian": lambda q: arm.compute_endeffector_jacobian(q, task.link),
        "RNEA": arm.compute_inverse_dynamics,
        "CRBA": arm.compute_lagrangian_inertia_matrix,
        "ABA": arm.compute_forward_dynamics,
    }), 0.0  # fmt: skip


if __name__ == "__main__":
    run(prepare, ("torch", "warp-lang"))
