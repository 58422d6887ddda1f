"""differentiable-robot-model on the robot benchmark's arm; it has float32 only."""

from __future__ import annotations

import os
from contextlib import redirect_stdout

import torch
from differentiable_robot_model.robot_model import DifferentiableRobotModel

from bench.peers.library import Operations, Task, run
from bench.peers.torch_operations import operations_of


def prepare(task: Task) -> tuple[Operations, float]:
    """Return the operations."""
    torch.set_num_threads(1)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        arm = DifferentiableRobotModel(task.urdf)
    options = {"include_gravity": True}
    functions = {
        "FK": lambda q: arm.compute_forward_kinematics(q, task.link),
        "Jacobian": lambda q: arm.compute_endeffector_jacobian(q, task.link),
        "RNEA": lambda *x: arm.compute_inverse_dynamics(*x, **options, use_damping=False),
        "CRBA": lambda q: arm.compute_lagrangian_inertia_matrix(q, **options, use_damping=False),
        "ABA": lambda *x: arm.compute_forward_dynamics(*x, **options, use_damping=False),
    }
    return operations_of(task, functions, torch.float32), 0.0


if __name__ == "__main__":
    run(prepare, ("differentiable-robot-model", "torch"))
