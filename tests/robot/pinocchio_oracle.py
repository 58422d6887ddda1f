"""What Pinocchio says about a robot, in Pullback's conventions.

Pinocchio builds its own model from the public original of the robot, so that nothing here depends on our readers. Its
coordinates are mapped joint by joint, by name: a free-flyer has its linear velocity first, an unbounded joint has
cosine and sine for coordinates, and a joint that mimics another moves by itself. All of that is one matrix,
v_pin = P v, so forces are P^T tau_pin, the mass matrix is P^T M_pin P, and for a robot with mimic joints the
accelerations solve the reduced equation; where P is square Pinocchio's own ABA and its derivatives are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import pullback as pb
from tests.description.test_assets import ERD, ORIGINALS, ROBOTS_OF_ERD, ant_file, locate

pin = pytest.importorskip("pinocchio")

PUBLIC = {
    "anymal": (ERD, f"{ROBOTS_OF_ERD}/anymal_b_simple_description/robots/anymal.urdf"),
    "hyq": (ERD, f"{ROBOTS_OF_ERD}/hyq_description/robots/hyq_no_sensors.urdf"),
    "icub": (ERD, f"{ROBOTS_OF_ERD}/icub_description/robots/icub_reduced.urdf"),
    "talos": (ERD, f"{ROBOTS_OF_ERD}/talos_data/robots/talos_full_v2.urdf"),
}
"""Robots that do not ship with Pullback and are read from their files."""
FLOATING = ("ant", "anymal", "hyq", "icub", "laikago", "racecar", "talos")
ROBOTS = (*sorted(ORIGINALS), "ant", "pendulum3", "pendulum5", "pendulum7", *sorted(PUBLIC))


def pendulum_urdf(n: int) -> str:
    """Return the n-link pendulum of Qiao et al. as URDF: links of 0.5 m along y, masses at their ends."""

    def link(name: str, mass: float, y: float, ixx: float, iyy: float, izz: float) -> str:
        inertia = f'<inertia ixx="{ixx}" iyy="{iyy}" izz="{izz}" ixy="0" ixz="0" iyz="0"/>'
        body = f'<inertial><origin xyz="0 {y} 0"/><mass value="{mass}"/>{inertia}</inertial>'
        return f'<link name="{name}">{body}</link>'

    def joint(name: str, kind: str, parent: str, child: str, y: float) -> str:
        ends = f'<parent link="{parent}"/><child link="{child}"/><origin xyz="0 {y} 0"/><axis xyz="1 0 0"/>'
        return f'<joint name="{name}" type="{kind}">{ends}</joint>'

    text = '<link name="world"/>' + link("link0", 1.0, 0.5, 0.00494875, 0.00494174, 0.002219)
    text += joint("joint0", "continuous", "world", "link0", 0.0)
    for i in range(1, n):
        text += link(f"link{i}", 2.16, 0.5, 0.00539427, 0.0048979, 0.00311573)
        text += joint(f"joint{i}", "continuous", f"link{i - 1}", f"link{i}", 0.5)
    text += link("link-1", 0.01, 0.0, 1e-4, 1e-4, 1e-4) + joint("jointfix", "fixed", f"link{n - 1}", "link-1", 0.5)
    return f'<robot name="pendulum{n}">{text}</robot>'


def mimics_in(file: Path) -> dict[str, tuple[str, float, float]]:
    """Return which joint follows which, with its ratio and offset, as the file has it."""
    found = {}
    for joint in ElementTree.parse(file).getroot().findall("joint"):
        mimic = joint.find("mimic")
        if mimic is not None:
            ratio, offset = float(mimic.get("multiplier", 1.0)), float(mimic.get("offset", 0.0))
            found[joint.get("name")] = (mimic.get("joint"), ratio, offset)
    return found


def load_both(name: str) -> tuple[pb.RobotModel, PinocchioOracle]:
    """Load a robot twice: ours by its name (or our reader), Pinocchio's from the public original."""
    mimics = {}
    if name == "ant":
        model = pin.buildModelFromMJCF(str(ant_file()))
    elif name.startswith("pendulum"):
        model = pin.buildModelFromXML(pendulum_urdf(int(name.removeprefix("pendulum"))))
    else:
        file = locate(*(ORIGINALS | PUBLIC)[name])
        root = [pin.JointModelFreeFlyer()] if name in FLOATING else []
        model, mimics = pin.buildModelFromUrdf(str(file), *root), mimics_in(file)
    source: str | Path = locate(*PUBLIC[name]) if name in PUBLIC else name
    base = "floating" if name in FLOATING else "fixed"
    robot = pb.load(source, base=base, dtype=torch.float64)
    return robot, PinocchioOracle(robot, model, mimics)


class PinocchioOracle:
    """Pinocchio's answers for batches of states (B, n) of a robot, as numpy arrays."""

    def __init__(self, robot: pb.RobotModel, model, mimics: dict[str, tuple[str, float, float]]) -> None:
        self.robot = robot
        self.model = model
        self.data = model.createData()
        self.mimics = mimics
        self.P = np.zeros((model.nv, robot.nv))
        for index, ours in self._joints():
            ratio = mimics.get(model.names[index], (None, 1.0, 0.0))[1]
            v, columns = model.idx_vs[index], self._columns(ours)
            order = [3, 4, 5, 0, 1, 2] if len(columns) == 6 else range(len(columns))
            for row, k in enumerate(order):
                self.P[v + row, columns[k]] = ratio

    def _joints(self) -> list[tuple[int, str]]:
        """Return Pinocchio's joints by number, each with the name of ours that drives it."""
        pairs = []
        for index, name in enumerate(self.model.names):
            if index == 0:
                continue
            free = self.model.joints[index].shortname() == "JointModelFreeFlyer"
            pairs.append((index, "floating_base" if free else self.mimics.get(name, (name,))[0]))
        return pairs

    def _columns(self, joint: str) -> list[int]:
        starts = self.robot.model.v_start
        start = starts[joint]
        end = min([v for v in starts.values() if v > start], default=self.robot.nv)
        return list(range(start, end))

    # -- conversions ---------------------------------------------------------------------------------------------

    def q(self, q: np.ndarray) -> np.ndarray:
        """Return Pinocchio's coordinates of one state."""
        out = np.zeros(self.model.nq)
        for index, ours in self._joints():
            here, start, nq = self.model.idx_qs[index], self.robot.model.q_start[ours], self.model.nqs[index]
            nv = self.model.nvs[index]
            if nv == 6:
                out[here : here + 7] = q[start : start + 7]
                continue
            _, ratio, offset = self.mimics.get(self.model.names[index], (ours, 1.0, 0.0))
            value = ratio * q[start] + offset
            out[here : here + nq] = value if nq == 1 else (np.cos(value), np.sin(value))
        return out

    def tangent(self, q: np.ndarray) -> np.ndarray:
        """Return dq/d(displacement) of our coordinates, (nq, nv): body-fixed displacements, angular first."""
        model = self.robot.model
        out = np.zeros((self.robot.nq, self.robot.nv))
        for name, start in model.q_start.items():
            columns = self._columns(name)
            if len(columns) == 1:
                out[start, columns[0]] = 1.0
                continue
            x, y, z, w = q[start + 3 : start + 7]
            out[start : start + 3, columns[3:]] = pin.Quaternion(w, x, y, z).matrix()
            half = 0.5 * np.array([[w, -z, y], [z, w, -x], [-y, x, w], [-x, -y, -z]])
            out[start + 3 : start + 7, columns[:3]] = half
        return out

    def frame(self, link: str) -> int:
        """Return the frame of a link; bodies without a name in the file are found by the joint above them."""
        if self.model.existFrame(link, pin.FrameType.BODY):
            return self.model.getFrameId(link, pin.FrameType.BODY)
        joint = self.robot.model.link_joint[self.robot.model.link_index[link]]
        return self.model.getFrameId(joint.name, pin.FrameType.JOINT)

    def links(self) -> list[str]:
        """Return the links that Pinocchio knows, which leaves out the world we put above a floating base."""
        names = self.robot.get_link_names()
        return names[1:] if self.robot.model.base == "floating" else names

    def _map(self, function: Callable, *inputs: torch.Tensor) -> np.ndarray:
        q, *rates = (x.detach().numpy() for x in inputs)
        return np.stack([function(self.q(q[k]), *(self.P @ x[k] for x in rates)) for k in range(len(q))])

    # -- answers -------------------------------------------------------------------------------------------------

    def poses(self, q: torch.Tensor) -> dict[str, np.ndarray]:
        """Return position and rotation matrix of every link, (B, 3, 4)."""
        frames = {link: self.frame(link) for link in self.links()}

        def all_frames(q: np.ndarray) -> np.ndarray:
            pin.framesForwardKinematics(self.model, self.data, q)
            return np.stack([self.data.oMf[k].homogeneous[:3] for k in frames.values()])

        found = self._map(all_frames, q)
        return {link: found[:, k] for k, link in enumerate(frames)}

    def jacobian(self, q: torch.Tensor, link: str) -> np.ndarray:
        """Return the Jacobian (B, 6, nv) of a link, linear first, in world axes at its origin."""
        frame, axes = self.frame(link), pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
        return self._map(lambda q: pin.computeFrameJacobian(self.model, self.data, q, frame, axes) @ self.P, q)

    def inverse_dynamics(self, q: torch.Tensor, qd: torch.Tensor, qdd: torch.Tensor) -> np.ndarray:
        return self._map(lambda q, v, a: self.P.T @ pin.rnea(self.model, self.data, q, v, a), q, qd, qdd)

    def non_linear_effects(self, q: torch.Tensor, qd: torch.Tensor) -> np.ndarray:
        return self._map(lambda q, v: self.P.T @ pin.nonLinearEffects(self.model, self.data, q, v), q, qd)

    def friction(self, qd: torch.Tensor) -> np.ndarray:
        """Return what the dampers and dry friction of the original file take, (B, nv)."""
        v = qd.numpy() @ self.P.T
        return (self.model.damping * v + self.model.upperDryFrictionLimit * np.sign(v)) @ self.P

    def mass_matrix(self, q: torch.Tensor) -> np.ndarray:
        return self._map(lambda q: self.P.T @ self._full_mass(q) @ self.P, q)

    def _full_mass(self, q: np.ndarray) -> np.ndarray:
        M = pin.crba(self.model, self.data, q)
        return np.triu(M) + np.triu(M, 1).T

    def forward_dynamics(self, q: torch.Tensor, qd: torch.Tensor, tau: torch.Tensor) -> np.ndarray:
        """Return the accelerations: Pinocchio's ABA, or the reduced equation where joints mimic others."""
        forces = iter(tau.numpy())

        def accelerate(q: np.ndarray, v: np.ndarray) -> np.ndarray:
            tau = next(forces)
            if not self.mimics:
                # P is a permutation
                return self.P.T @ pin.aba(self.model, self.data, q, v, self.P @ tau)
            bias = self.P.T @ pin.nonLinearEffects(self.model, self.data, q, v)
            return np.linalg.solve(self.P.T @ self._full_mass(q) @ self.P, tau - bias)

        return self._map(accelerate, q, qd)

    def forward_dynamics_derivatives(self, q: torch.Tensor, qd: torch.Tensor, tau: torch.Tensor) -> np.ndarray:
        """Return d qdd by (displacement, qd, tau), (B, 3, nv, nv)."""
        forces = iter(tau.numpy())
        P = self.P

        def derive(q: np.ndarray, v: np.ndarray) -> np.ndarray:
            tau = next(forces)
            if not self.mimics:
                parts = pin.computeABADerivatives(self.model, self.data, q, v, P @ tau)
                upper = np.triu(parts[2])
                return np.stack([P.T @ part @ P for part in (*parts[:2], upper + np.triu(upper, 1).T)])
            # differentiate P^T ID(q, P qd, P qdd) = tau
            M = P.T @ self._full_mass(q) @ P
            qdd = np.linalg.solve(M, tau - P.T @ pin.nonLinearEffects(self.model, self.data, q, v))
            by_q, by_v, _ = pin.computeRNEADerivatives(self.model, self.data, q, v, P @ qdd)
            inverse = np.linalg.inv(M)
            return np.stack([-inverse @ P.T @ by_q @ P, -inverse @ P.T @ by_v @ P, inverse])

        return self._map(derive, q, qd)

    def inverse_dynamics_derivatives(self, q: torch.Tensor, qd: torch.Tensor, qdd: torch.Tensor) -> np.ndarray:
        """Return d tau by (displacement, qd), (B, 2, nv, nv)."""

        def derive(q: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
            by_q, by_v, _ = pin.computeRNEADerivatives(self.model, self.data, q, v, a)
            return np.stack([self.P.T @ by_q @ self.P, self.P.T @ by_v @ self.P])

        return self._map(derive, q, qd, qdd)

    def inertial_gradient(
        self, q: torch.Tensor, qd: torch.Tensor, qdd: torch.Tensor, mu: torch.Tensor, links: list[str]
    ) -> dict[str, np.ndarray]:
        """Return the derivative of sum(mu * tau) by the ten inertial numbers of links, each about its own origin.

        The ten are m, m c (3), Ixx, Ixy, Iyy, Ixz, Iyz, Izz; tau is linear in them, by Pinocchio's torque regressor.
        """
        cotangents = iter(mu.numpy() @ self.P.T)
        regressor = pin.computeJointTorqueRegressor
        summed = self._map(lambda q, v, a: next(cotangents) @ regressor(self.model, self.data, q, v, a), q, qd, qdd)
        by_joint = summed.sum(0).reshape(-1, 10)
        found = {}
        for link in links:
            frame = self.model.frames[self.frame(link)]
            # Pinocchio's numbers are about the joint's frame: shift each unit of the link's
            place = frame.placement
            units = np.stack([shift_inertial(place.rotation, place.translation, unit) for unit in np.eye(10)])
            found[link] = units @ by_joint[frame.parentJoint - 1]
        return found

    def center_of_mass(self, q: torch.Tensor) -> np.ndarray:
        return self._map(lambda q: pin.centerOfMass(self.model, self.data, q).copy(), q)

    def centroidal_momentum(self, q: torch.Tensor, qd: torch.Tensor) -> np.ndarray:
        """Return angular then linear momentum about the centre of mass, (B, 6)."""

        def momentum(q: np.ndarray, v: np.ndarray) -> np.ndarray:
            h = pin.computeCentroidalMomentum(self.model, self.data, q, v)
            return np.concatenate([h.angular, h.linear])

        return self._map(momentum, q, qd)

    def kinetic_energy(self, q: torch.Tensor, qd: torch.Tensor) -> np.ndarray:
        """Return the kinetic energy of bodies and, added here, of rotors: Pinocchio counts only some of those."""
        bare = pin.Model(self.model)
        bare.armature[:] = 0.0

        def energy(q: np.ndarray, v: np.ndarray) -> float:
            return pin.computeKineticEnergy(bare, self.data, q, v) + 0.5 * self.model.armature @ v**2

        return self._map(energy, q, qd)

    def potential_energy(self, q: torch.Tensor) -> np.ndarray:
        return self._map(lambda q: pin.computePotentialEnergy(self.model, self.data, q), q)

    def total_mass(self) -> float:
        return sum(self.model.inertias[k].mass for k in range(1, self.model.njoints))

    def integrate(self, q: torch.Tensor, step: torch.Tensor) -> np.ndarray:
        """Return Pinocchio's coordinates after a displacement, see `q`; quaternions have a positive w."""
        return self.positive(self._map(lambda q, v: pin.integrate(self.model, q, v), q, step))

    def positive(self, q: np.ndarray) -> np.ndarray:
        """Return Pinocchio's coordinates (B, nq) with the quaternion of q and -q that has a positive w."""
        q = q.copy()
        for k in range(1, self.model.njoints):
            if self.model.nvs[k] == 6:
                quat = slice(self.model.idx_qs[k] + 3, self.model.idx_qs[k] + 7)
                q[:, quat] *= np.sign(q[:, quat][:, 3:])
        return q


def shift_inertial(R: np.ndarray, p: np.ndarray, ten: np.ndarray) -> np.ndarray:
    """Return the ten inertial numbers about a frame in which the link's sits at R, p."""
    m, h = ten[0], ten[1:4]
    I = np.array([[ten[4], ten[5], ten[7]], [ten[5], ten[6], ten[8]], [ten[7], ten[8], ten[9]]])
    # the second moment of mass about the origin shifts as integral (R x + p)(R x + p)^T dm
    second = R @ (0.5 * np.trace(I) * np.eye(3) - I) @ R.T
    second = second + np.outer(R @ h, p) + np.outer(p, R @ h) + m * np.outer(p, p)
    I = np.trace(second) * np.eye(3) - second
    h = R @ h + m * p
    return np.array([m, *h, I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]])
