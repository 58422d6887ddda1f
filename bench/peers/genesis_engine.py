"""Genesis on the engine benchmark's scene, on a CPU: position control of its joints.

Its gradients are by poses, velocities and forces that are set; targets of `control_dofs_position` have none.
"""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import tempfile
from pathlib import Path

import genesis
import numpy as np
import torch

from bench.peers.contestant import time_of
from bench.peers.engine import Engine, Scene, run

SETTLING = 300


def prepare(scene: Scene) -> Engine:
    """Return the loss."""
    torch.set_num_threads(1)
    genesis.init(backend=genesis.cpu, precision="64", logging_level="error")
    world = genesis.Scene(sim_options=genesis.options.SimOptions(dt=1e-3, substeps=1), show_viewer=False)
    world.add_entity(genesis.morphs.Plane())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "robot.urdf"
        path.write_text(scene.urdf)
        robot = world.add_entity(genesis.morphs.URDF(file=str(path), pos=tuple(scene.qpos[:3]), merge_fixed_links=True))
        _, seconds = time_of(world.build)
    n = scene.controls.shape[1]
    joints = list(range(6, 6 + n))
    robot.set_dofs_kp(np.full(n, 150.0), joints)
    robot.set_dofs_kv(np.full(n, 3.0), joints)
    robot.set_dofs_force_range(np.full(n, -100.0), np.full(n, 100.0), joints)

    def step(u: np.ndarray) -> None:
        robot.control_dofs_position(u, joints)
        world.step()

    robot.set_qpos(scene.qpos)
    for _ in range(SETTLING):
        step(scene.controls.mean(0))
    start = robot.get_qpos().clone(), robot.get_dofs_velocity().clone()

    def loss(controls: np.ndarray) -> float:
        robot.set_qpos(start[0])
        robot.set_dofs_velocity(start[1])
        for u in controls:
            step(u)
        return float(robot.get_qpos().square().sum() + robot.get_dofs_velocity().square().sum())

    return Engine(loss, None, "no gradient by servo targets, only by forces, velocities and poses", seconds)


if __name__ == "__main__":
    run(prepare, ("genesis-world", "torch"))
