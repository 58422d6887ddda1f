"""The four robots of the differentiable-robot-model paper against PyBullet, which reads the public originals."""

from functools import cache

import numpy as np
import pytest
import torch

import pullback as pb
from tests.description.test_assets import ORIGINALS, locate

bullet = pytest.importorskip("pybullet")

STATES = 20
# relative to the largest entry of a state's result; Bullet reports poses after a trip through single precision
POSES = 1e-5
DYNAMICS = 1e-9


class BulletOracle:
    """A robot in a world of its own; joints are mapped by name."""

    def __init__(self, name: str, robot: pb.RobotModel) -> None:
        self.client = bullet.connect(bullet.DIRECT)
        # without the flag Bullet makes up inertias from the collision shapes
        flags = bullet.URDF_USE_INERTIA_FROM_FILE
        self.body = self._call("loadURDF", str(locate(*ORIGINALS[name])), useFixedBase=True, flags=flags)
        self._call("setGravity", 0.0, 0.0, -9.81)
        joints = [self._call("getJointInfo", self.body, k) for k in range(self._call("getNumJoints", self.body))]
        self.link = {info[12].decode(): info[0] for info in joints}
        moving = [info for info in joints if info[2] != bullet.JOINT_FIXED]
        self.joint = [info[0] for info in moving]
        # Bullet's order of degrees of freedom as places in ours
        self.order = [robot.joint_names.index(info[1].decode()) for info in moving]
        for k in range(-1, len(joints)):
            self._call("changeDynamics", self.body, k, linearDamping=0.0, angularDamping=0.0, jointDamping=0.0)

    def _call(self, name: str, *args, **options):
        return getattr(bullet, name)(*args, **options, physicsClientId=self.client)

    def _reset(self, q: np.ndarray) -> None:
        for joint, value in zip(self.joint, q[self.order]):
            self._call("resetJointState", self.body, joint, value)

    def _ours(self, values, *, axis: int = -1) -> np.ndarray:
        """Put rows or columns in our order of degrees of freedom."""
        values = np.asarray(values)
        out = np.zeros_like(values)
        np.moveaxis(out, axis, 0)[self.order] = np.moveaxis(values, axis, 0)
        return out

    def pose(self, q: np.ndarray, link: str) -> tuple[np.ndarray, np.ndarray]:
        self._reset(q)
        state = self._call("getLinkState", self.body, self.link[link], computeForwardKinematics=True)
        return np.array(state[4]), np.array(state[5])

    def jacobian(self, q: np.ndarray, link: str) -> np.ndarray:
        """Return linear then angular Jacobian of the link's origin."""
        still = [0.0] * len(self.joint)
        found = self._call(
            "calculateJacobian", self.body, self.link[link], [0.0, 0.0, 0.0], list(q[self.order]), still, still
        )
        return self._ours(np.concatenate(found))

    def inverse_dynamics(self, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        given = (list(x[self.order]) for x in (q, qd, qdd))
        return self._ours(self._call("calculateInverseDynamics", self.body, *given))

    def mass_matrix(self, q: np.ndarray) -> np.ndarray:
        found = self._call("calculateMassMatrix", self.body, list(q[self.order]))
        return self._ours(self._ours(found, axis=0))


@cache
def load_both(name: str) -> tuple[pb.RobotModel, BulletOracle, torch.Tensor, torch.Tensor, torch.Tensor]:
    robot = pb.load(name, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    q = robot.random_q(STATES, generator=generator)
    qd, qdd = (torch.randn(STATES, robot.nv, dtype=torch.float64, generator=generator) for _ in range(2))
    return robot, BulletOracle(name, robot), q, qd, qdd


@pytest.fixture(params=["iiwa7", "panda", "fetch_arm", "allegro"])
def case(request):
    return load_both(request.param)


def relative_error(found: torch.Tensor, expected: np.ndarray) -> float:
    found = found.numpy()
    assert found.shape == expected.shape
    error, scale = (np.abs(x).reshape(len(x), -1).max(1) for x in (found - expected, expected))
    return float((error / np.where(scale > 0.0, scale, 1.0)).max())


def test_forward_kinematics(case):
    robot, oracle, q, *_ = case
    poses = robot.compute_forward_kinematics_all_links(q)
    for link in oracle.link:
        found = [oracle.pose(x, link) for x in q.numpy()]
        position, quat = (np.stack(x) for x in zip(*found))
        assert relative_error(poses[link][0], position) < POSES
        # q and -q are the same rotation
        assert relative_error(poses[link][1], quat * np.where(quat[:, 3:] < 0, -1.0, 1.0)) < POSES


def test_jacobian(case):
    robot, oracle, q, *_ = case
    links = list(oracle.link)
    for link in (links[-1], links[len(links) // 2]):
        expected = np.stack([oracle.jacobian(x, link) for x in q.numpy()])
        found = torch.cat(robot.compute_endeffector_jacobian(q, link), -2)
        assert relative_error(found, expected) < DYNAMICS


def test_inverse_dynamics(case):
    robot, oracle, *state = case
    expected = np.stack([oracle.inverse_dynamics(*x) for x in zip(*(s.numpy() for s in state))])
    assert relative_error(robot.compute_inverse_dynamics(*state), expected) < DYNAMICS


def test_mass_matrix(case):
    robot, oracle, q, *_ = case
    expected = np.stack([oracle.mass_matrix(x) for x in q.numpy()])
    assert relative_error(robot.compute_lagrangian_inertia_matrix(q), expected) < DYNAMICS
