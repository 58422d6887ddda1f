"""MuJoCo Warp on the engine benchmark's scene, on a CPU: one world, step by step; it has no gradients."""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import mujoco
import mujoco_warp
import numpy as np
import warp as wp

from bench.peers.contestant import time_of
from bench.peers.engine import Engine, Scene, run


def prepare(scene: Scene) -> Engine:
    """Return the loss."""
    wp.config.quiet = True
    model = mujoco.MjModel.from_xml_string(scene.xml)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = scene.qpos, scene.qvel
    mujoco.mj_forward(model, data)
    with wp.ScopedDevice("cpu"):
        device_model = mujoco_warp.put_model(model)
        device_data = mujoco_warp.put_data(model, data, nworld=1, nconmax=16, njmax=64)
        start = wp.clone(device_data.qpos), wp.clone(device_data.qvel)

    def loss(controls: np.ndarray) -> float:
        wp.copy(device_data.qpos, start[0])
        wp.copy(device_data.qvel, start[1])
        for u in controls.astype(np.float32):
            device_data.ctrl.assign(u[None])
            mujoco_warp.step(device_model, device_data)
        return float((device_data.qpos.numpy() ** 2).sum() + (device_data.qvel.numpy() ** 2).sum())

    _, seconds = time_of(lambda: loss(scene.controls[:1]))
    return Engine(loss, None, "has no gradients", seconds)


if __name__ == "__main__":
    run(prepare, ("mujoco-warp", "warp-lang"))
