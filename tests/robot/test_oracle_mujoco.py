"""Every joint type of MuJoCo against MuJoCo: free, ball, hinge, slide; armature, damping, rotated inertias."""

from pathlib import Path

import numpy as np
import pytest
import torch

import pullback as pb
from tests.description.test_assets import ant_file

mujoco = pytest.importorskip("mujoco")

STATES = 50
# relative to the largest entry of a state's result; both are float64
VALUES = 1e-9

ROBOT = """
<mujoco model="joints">
  <option gravity="0.5 -1 -9.81"><flag constraint="disable"/></option>
  <compiler angle="radian"/>
  <worldbody>
    <body name="torso" pos="0.1 0.2 0.3" quat="0.9 0.1 -0.3 0.2">
      <freejoint name="root"/>
      <inertial mass="4" pos="0.02 -0.01 0.03" fullinertia="0.2 0.3 0.25 0.02 -0.03 0.01"/>
      <body name="arm" pos="0.2 0 0.1" quat="0.7 0.1 0.2 -0.6">
        <joint name="shoulder" type="ball" pos="0.03 -0.02 0.05" armature="0.1" damping="0.2"/>
        <inertial mass="1.5" pos="0.1 0.05 0" quat="0.5 -0.2 0.7 0.1" diaginertia="0.02 0.03 0.04"/>
        <body name="forearm" pos="0.3 0.1 0" euler="0.3 -0.2 0.5">
          <joint name="elbow" type="hinge" axis="1 2 -1" pos="-0.1 0.05 0.02" ref="0.4" armature="0.05" damping="0.3"/>
          <joint name="stretch" type="slide" axis="-1 0.5 1" ref="0.1" armature="0.2" damping="0.1"/>
          <inertial mass="0.8" pos="0 0.1 0.05" quat="0.3 0.4 -0.7 0.2" diaginertia="0.01 0.015 0.02"/>
          <body name="hand" pos="0.1 0 0.2" quat="0.6 0.3 0.1 0.5">
            <inertial mass="0.3" pos="0.02 0 0.01" quat="0.9 0.1 0.1 -0.2" diaginertia="0.002 0.003 0.004"/>
          </body>
        </body>
      </body>
      <body name="leg" pos="0 -0.1 -0.2">
        <joint name="hip" type="hinge" axis="0 1 0" armature="0.01"/>
        <inertial mass="1.1" pos="0 0 -0.2" quat="0.8 -0.1 0.5 0.3" diaginertia="0.03 0.031 0.01"/>
        <body name="foot" pos="0 0 -0.4">
          <joint name="ankle" type="ball"/>
          <inertial mass="0.4" pos="0.05 0 0" quat="0.2 0.1 0.9 -0.3" diaginertia="0.003 0.004 0.005"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
GRAVITY = torch.tensor([0.5, -1.0, -9.81], dtype=torch.float64)
BODIES = ("torso", "arm", "forearm", "hand", "leg", "foot")


class MujocoOracle:
    """MuJoCo's answers for one state at a time, in our conventions.

    MuJoCo writes quaternions wxyz, and the velocity of a free joint as linear, in world axes, then angular, in the
    body's: v_mj = T(q) v. Forces are T^T tau_mj, and the accelerations T qdd + dT/dt qd.
    """

    def __init__(self, robot: pb.RobotModel, model) -> None:
        self.model = model
        self.data = mujoco.MjData(model)
        self.robot = robot

    def set(self, q: np.ndarray, qd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Put MuJoCo into a state; return T and dT/dt qd."""
        T = np.zeros((self.model.nv, self.robot.nv))
        drift = np.zeros(self.model.nv)
        for k in range(self.model.njnt):
            joint = self.model.joint(k)
            free = joint.type[0] == mujoco.mjtJoint.mjJNT_FREE
            name = "floating_base" if free else joint.name
            here, column = self.robot.model.q_start[name], self.robot.model.v_start[name]
            start, row = joint.qposadr[0], joint.dofadr[0]
            if free:
                self.data.qpos[start : start + 3] = q[here : here + 3]
                self.data.qpos[start + 3 : start + 7] = q[[here + 6, here + 3, here + 4, here + 5]]
                matrix = np.zeros(9)
                mujoco.mju_quat2Mat(matrix, self.data.qpos[start + 3 : start + 7])
                R = matrix.reshape(3, 3)
                T[row : row + 3, column + 3 : column + 6] = R
                T[row + 3 : row + 6, column : column + 3] = np.eye(3)
                omega, velocity = qd[column : column + 3], qd[column + 3 : column + 6]
                drift[row : row + 3] = R @ np.cross(omega, velocity)
            elif joint.type[0] == mujoco.mjtJoint.mjJNT_BALL:
                self.data.qpos[start : start + 4] = q[[here + 3, here, here + 1, here + 2]]
                T[row : row + 3, column : column + 3] = np.eye(3)
            else:
                self.data.qpos[start] = q[here]
                T[row, column] = 1.0
        self.data.qvel[:] = T @ qd
        self.data.qfrc_applied[:] = 0.0
        self.data.qacc[:] = 0.0
        return T, drift

    def poses(self, q: np.ndarray) -> np.ndarray:
        """Return the rotation matrix and position of every body, (n, 3, 4)."""
        self.set(q, np.zeros(self.robot.nv))
        mujoco.mj_kinematics(self.model, self.data)
        bodies = [self.data.body(name) for name in BODIES]
        return np.stack([np.column_stack([b.xmat.reshape(3, 3), b.xpos]) for b in bodies])

    def jacobian(self, q: np.ndarray, body: str) -> np.ndarray:
        T, _ = self.set(q, np.zeros(self.robot.nv))
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        linear, angular = np.zeros((3, self.model.nv)), np.zeros((3, self.model.nv))
        mujoco.mj_jacBody(self.model, self.data, linear, angular, self.model.body(body).id)
        return np.concatenate([linear, angular]) @ T

    def mass_matrix(self, q: np.ndarray) -> np.ndarray:
        T, _ = self.set(q, np.zeros(self.robot.nv))
        mujoco.mj_forward(self.model, self.data)
        M = np.zeros((self.model.nv, self.model.nv))
        mujoco.mj_fullM(self.model, self.data, M)
        return T.T @ M @ T

    def inverse_dynamics(self, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        """Return the forces, those that dampers need included."""
        T, drift = self.set(q, qd)
        self.data.qacc[:] = T @ qdd + drift
        mujoco.mj_inverse(self.model, self.data)
        return T.T @ self.data.qfrc_inverse

    def forward_dynamics(self, q: np.ndarray, qd: np.ndarray, tau: np.ndarray) -> np.ndarray:
        T, drift = self.set(q, qd)
        self.data.qfrc_applied[:] = np.linalg.solve(T.T, tau)
        mujoco.mj_forward(self.model, self.data)
        return np.linalg.solve(T, self.data.qacc - drift)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    file: Path = tmp_path_factory.mktemp("mjcf") / "joints.xml"
    file.write_text(ROBOT)
    robot = pb.load(file, dtype=torch.float64)
    assert robot.nv == 6 + 3 + 1 + 1 + 1 + 3
    generator = torch.Generator().manual_seed(0)
    q = robot.random_q(STATES, generator=generator)
    qd, qdd = (torch.randn(STATES, robot.nv, dtype=torch.float64, generator=generator) for _ in range(2))
    return robot, MujocoOracle(robot, mujoco.MjModel.from_xml_string(ROBOT)), q, qd, qdd


def relative_error(found: torch.Tensor, function, *inputs: torch.Tensor) -> float:
    """Return the worst error against `function` of each state, relative to the state's largest entry."""
    expected = np.stack([function(*state) for state in zip(*(x.numpy() for x in inputs))])
    assert found.shape == expected.shape
    error, scale = (np.abs(x).reshape(len(x), -1).max(1) for x in (found.numpy() - expected, expected))
    return float((error / scale).max())


def test_forward_kinematics(case):
    robot, oracle, q, *_ = case
    poses = robot.compute_forward_kinematics_all_links(q)
    found = []
    for body in BODIES:
        position, quat = poses[body]
        matrices = np.stack([quaternion_matrix(x) for x in quat.numpy()])
        found.append(torch.cat([torch.from_numpy(matrices), position[..., None]], -1))
    assert relative_error(torch.stack(found, 1), oracle.poses, q) < VALUES


def quaternion_matrix(xyzw: np.ndarray) -> np.ndarray:
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, xyzw[[3, 0, 1, 2]])
    return matrix.reshape(3, 3)


@pytest.mark.parametrize("body", ["hand", "foot", "torso"])
def test_jacobian(case, body):
    robot, oracle, q, *_ = case
    found = torch.cat(robot.compute_endeffector_jacobian(q, body), -2)
    assert relative_error(found, lambda x: oracle.jacobian(x, body), q) < VALUES


def test_mass_matrix(case):
    robot, oracle, q, *_ = case
    assert relative_error(robot.compute_lagrangian_inertia_matrix(q), oracle.mass_matrix, q) < VALUES


def test_inverse_dynamics(case):
    robot, oracle, *state = case
    found = robot.compute_inverse_dynamics(*state, gravity=GRAVITY, use_damping=True)
    assert relative_error(found, oracle.inverse_dynamics, *state) < VALUES


def test_forward_dynamics(case):
    robot, oracle, *state = case
    found = robot.compute_forward_dynamics(*state, gravity=GRAVITY, use_damping=True)
    assert relative_error(found, oracle.forward_dynamics, *state) < VALUES


def test_ant_inverse_and_forward_dynamics():
    """The shipped Ant, whose own file MuJoCo reads; its ground and limits are constraints and are switched off."""
    spec = mujoco.MjSpec.from_file(str(ant_file()))
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    robot = pb.load("ant", dtype=torch.float64)
    oracle = MujocoOracle(robot, spec.compile())
    generator = torch.Generator().manual_seed(0)
    q = robot.random_q(STATES, generator=generator)
    qd, qdd = (torch.randn(STATES, robot.nv, dtype=torch.float64, generator=generator) for _ in range(2))
    found = robot.compute_inverse_dynamics(q, qd, qdd, use_damping=True)
    assert relative_error(found, oracle.inverse_dynamics, q, qd, qdd) < VALUES
    found = robot.compute_forward_dynamics(q, qd, qdd, use_damping=True)
    assert relative_error(found, oracle.forward_dynamics, q, qd, qdd) < VALUES
