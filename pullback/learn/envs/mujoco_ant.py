"""The ant of `ant-walk` in MuJoCo: the same task, observations and starts, with steps that MuJoCo computes.

A policy that learned in `ant-walk` can act here as it is, and learn on. There is no gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pullback.core.extras import need_extra
from pullback.learn.envs.ant_walk import AntWalk
from pullback.learn.legged import gymnasium_file
from pullback.rigid.state import State
from pullback.rigid.world.world import World

Tensor = torch.Tensor


class MujocoAnt(AntWalk):
    """The ant of gymnasium's ant.xml, an action every five of its steps of 0.01 s; actions are those of our joints."""

    def build(self) -> World:
        """Return the world of `ant-walk`, which names joints, and load MuJoCo's."""
        self._mujoco: Any = need_extra("mujoco", "mjcf", "MuJoCo's ant is simulated")
        self._model = self._mujoco.MjModel.from_xml_path(str(gymnasium_file("ant.xml")))
        self._data = self._mujoco.MjData(self._model)
        self._frames = round(self.dt / self._model.opt.timestep)
        return super().build()

    def advance(self, state: State, control: Tensor) -> State:
        """Return the states 0.05 s later, one world after the other."""
        q, qd = state.q.detach().cpu().double().numpy(), state.qd.detach().cpu().double().numpy()
        controls = control.detach().cpu().double().numpy()[:, self._drive_order()]
        after = [self._advance_one(*row) for row in zip(q, qd, controls)]
        q_after, qd_after = (torch.as_tensor(np.stack(x), dtype=self.dtype, device=self.device) for x in zip(*after))
        return State(q_after, qd_after, state.impulses)

    def _drive_order(self) -> list[int]:
        """Return the entry of our controls of each of MuJoCo's motors, by the names of joints."""
        kind, model = self._mujoco.mjtObj.mjOBJ_JOINT, self._model
        names = [self._mujoco.mj_id2name(model, kind, model.actuator_trnid[k, 0]) for k in range(model.nu)]
        ours = [name.split("/")[-1] for name in self.world.actuator_names]
        return [ours.index(name) for name in names]

    def _advance_one(self, q: np.ndarray, qd: np.ndarray, control: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates and velocities of one world after an action.

        MuJoCo's quaternion is wxyz, and its base velocity linear in the world's axes, then angular in the torso's.
        """
        data = self._data
        self._mujoco.mj_resetData(self._model, data)
        turn = _matrix(q[3:7])
        data.qpos[:] = [*q[:3], q[6], *q[3:6], *q[7:]]
        data.qvel[:] = [*(turn @ qd[3:6]), *qd[:3], *qd[6:]]
        data.ctrl[:] = control
        self._mujoco.mj_step(self._model, data, self._frames)
        position, velocity = data.qpos, data.qvel
        quat = np.array([*position[4:7], position[3]])
        found = np.concatenate([position[:3], quat, position[7:]])
        return found, np.concatenate([velocity[3:6], _matrix(quat).T @ velocity[:3], velocity[6:]])


def _matrix(quat: np.ndarray) -> np.ndarray:
    """Return the rotation matrix of a quaternion xyzw."""
    x, y, z, w = quat / np.linalg.norm(quat)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
