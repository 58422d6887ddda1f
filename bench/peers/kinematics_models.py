"""pytorch_kinematics on the robot benchmark's arm: no dynamics."""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

from pathlib import Path

import pytorch_kinematics
import torch

from bench.peers.library import Operations, Task, run
from bench.peers.torch_operations import operations_of


def prepare(task: Task) -> tuple[Operations, float]:
    """Return the operations."""
    torch.set_num_threads(1)
    chain = pytorch_kinematics.build_serial_chain_from_urdf(Path(task.urdf).read_bytes(), task.link)
    chain = chain.to(dtype=torch.float64)

    def pose(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        matrix = chain.forward_kinematics(q).get_matrix()
        return matrix[:, :3, 3], matrix[:, :3, :3]

    return operations_of(task, {"FK": pose, "Jacobian": chain.jacobian}), 0.0


if __name__ == "__main__":
    run(prepare, ("pytorch-kinematics", "torch"))
