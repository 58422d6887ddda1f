"""Compare a robot read from MJCF with MuJoCo: poses, gravity, springs and dampers, actuators.

What the reader leaves out (fluids, filters of actuators, spatial tendons) is left out of MuJoCo's side too.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import pullback as pb
from pullback.core.errors import PullbackError
from pullback.description.compile import compile_tree
from pullback.description.joints import KINDS

mujoco: Any = import_module("mujoco")

STATES = 10
DT = 1e-3

Array = np.ndarray


class Errors(NamedTuple):
    """The largest errors, relative to the largest entry; NaN where there is nothing to compare."""

    poses: float
    passive: float
    """Of gravity, velocity products, springs and dampers."""
    actuators: float
    """Of the forces that actuators have in a World, found from the acceleration of a step."""


class Oracle:
    """MuJoCo's own reading of a file, with what a robot leaves out switched off."""

    def __init__(self, robot: pb.RobotModel, file: Path) -> None:
        self.robot = robot
        self.model: Any = mujoco.MjModel.from_xml_path(str(file))
        self.data: Any = mujoco.MjData(self.model)
        model = self.model
        model.opt.density = model.opt.viscosity = 0.0
        model.opt.wind[:] = 0.0
        for t in range(model.ntendon):
            if model.wrap_type[model.tendon_adr[t]] != mujoco.mjtWrap.mjWRAP_JOINT:
                model.tendon_stiffness[t] = model.tendon_damping[t] = 0.0
        for v, _ in self._free():
            model.dof_armature[v : v + 6] = 0.0
            if robot.model.base == "floating" and v == 0:
                model.dof_damping[:6] = 0.0
        self.numbers = [drive.number for drive in robot.model.tree.drives]

    def set(self, qpos: Array, qvel: Array, ctrl: Array) -> None:
        """Compute everything at a state; filters of actuators are at rest."""
        model, data = self.model, self.data
        data.qpos[:], data.qvel[:], data.ctrl[:] = qpos, qvel, ctrl
        clamped = np.where(model.actuator_ctrllimited.astype(bool), np.clip(ctrl, *model.actuator_ctrlrange.T), ctrl)
        for a in range(model.nu):
            if model.actuator_actadr[a] >= 0:
                data.act[model.actuator_actadr[a]] = clamped[a]
        mujoco.mj_forward(model, data)

    def poses(self) -> dict[str, tuple[Array, Array]]:
        """Return position and rotation of bodies and sites that have names."""
        found = {}
        for objects, xpos, xmat in (("site", "site_xpos", "site_xmat"), ("body", "xpos", "xmat")):
            for k in range(getattr(self.model, f"n{objects}")):
                name = getattr(self.model, objects)(k).name
                if name:
                    found[name] = getattr(self.data, xpos)[k].copy(), getattr(self.data, xmat)[k].reshape(3, 3).copy()
        return found

    def passive_forces(self) -> Array:
        """Return gravity, velocity products, springs and dampers as joint forces of ours (nv,)."""
        drift = np.zeros(self.model.nv)
        for v, R in self._free():
            # d/dt of the velocity in the world, where that in the body's axes is constant
            w, linear = self.data.qvel[v + 3 : v + 6], R.T @ self.data.qvel[v : v + 3]
            drift[v : v + 3] = R @ np.cross(w, linear)
        product = np.zeros(self.model.nv)
        mujoco.mj_mulM(self.model, self.data, product, drift)
        return self._ours(self.data.qfrc_bias + product - self.data.qfrc_passive)

    def actuator_forces(self) -> Array:
        """Return the forces of the actuators that were read (nv,)."""
        if len(self.numbers) == self.model.nu:
            return self._ours(self.data.qfrc_actuator)
        moment = np.zeros((self.model.nu, self.model.nv))
        mujoco.mju_sparse2dense(
            moment,
            self.data.actuator_moment,
            self.data.moment_rownnz,
            self.data.moment_rowadr,
            self.data.moment_colind,
        )
        return self._ours(moment[self.numbers].T @ self.data.actuator_force[self.numbers])

    def _free(self) -> list[tuple[int, Array]]:
        """Return the first dof and the rotation of each free joint."""
        found = []
        for j in np.flatnonzero(self.model.jnt_type == mujoco.mjtJoint.mjJNT_FREE):
            R = np.zeros(9)
            mujoco.mju_quat2Mat(R, self.data.qpos[self.model.jnt_qposadr[j] + 3 :][:4])
            found.append((int(self.model.jnt_dofadr[j]), R.reshape(3, 3)))
        return found

    def _ours(self, force: Array) -> Array:
        force = force.copy()
        for v, R in self._free():
            force[v : v + 6] = np.concatenate([force[v + 3 : v + 6], R.T @ force[v : v + 3]])
        coupling = self.robot.model.coupling
        return force if coupling is None else coupling.velocity.T @ force


def compare(robot: pb.RobotModel, file: Path, states: int = STATES) -> tuple[Errors, str]:
    """Return the errors at random states, and why actuators were not compared."""
    oracle = Oracle(robot, file)
    generator = torch.Generator().manual_seed(0)
    q = robot.random_q(states, generator=generator)
    qd = torch.randn(states, robot.nv, dtype=q.dtype, generator=generator)
    # free bodies do not turn where accelerations are compared: their axes stay as they are during the step
    still = qd.clone()
    for body in robot.model.independent_bodies():
        if KINDS[body.kind].travels:
            start = robot.model.v_start[body.joint.name]
            still[:, start : start + 3] = 0.0
    qpos, qvel = (x.numpy() for x in robot.to_mujoco(q, qd))
    slow = robot.to_mujoco(q, still)[1].numpy()
    # actuators act on joints that follow others too
    loose = without_mimics(robot)
    motors = Oracle(loose, file)
    rest = loose.from_mujoco(torch.from_numpy(qpos), torch.from_numpy(slow))
    # beyond the ranges as well
    ranges = np.where(oracle.model.actuator_ctrllimited[:, None] != 0, oracle.model.actuator_ctrlrange, (-1.0, 1.0))
    drawn = torch.rand(states, oracle.model.nu, dtype=q.dtype, generator=generator).numpy()
    ctrl = ranges.mean(1) + 1.5 * (2.0 * drawn - 1.0) * np.ptp(ranges, axis=1) / 2
    found = robot.compute_forward_kinematics_all_links(q)
    passive = robot.compute_non_linear_effects(q, qd, use_damping=True).numpy()
    driven, said = _world_forces(loose, *rest, torch.as_tensor(ctrl[:, oracle.numbers]))
    pose, force, motor, size, lift = 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(states):
        oracle.set(qpos[k], qvel[k], ctrl[k])
        for name, (position, rotation) in oracle.poses().items():
            if name in found:
                pose = max(pose, np.abs(found[name][0][k].numpy() - position).max())
                pose = max(pose, np.abs(_matrix(found[name][1][k].numpy()) - rotation).max())
        expected = oracle.passive_forces()
        size, force = max(size, np.abs(expected).max()), max(force, np.abs(passive[k] - expected).max())
        if driven is not None:
            motors.set(qpos[k], slow[k], ctrl[k])
            wanted = motors.actuator_forces()
            lift, motor = max(lift, np.abs(wanted).max()), max(motor, np.abs(driven[k] - wanted).max())
    scale = max(size, 1e-30)
    return Errors(pose, force / scale, motor / max(scale, lift) if driven is not None else np.nan), said


def without_mimics(robot: pb.RobotModel) -> pb.RobotModel:
    """Return a robot whose joints all move by themselves."""
    tree, base = robot.model.tree, robot.model.base
    if robot.model.coupling is None:
        return robot
    # a floating base, and the link it hangs on, were added when the tree was compiled
    joints = [replace(joint, mimic=None) for joint in tree.joints if joint.name != "floating_base"]
    links = tree.links[1:] if base == "floating" else tree.links
    return pb.RobotModel(compile_tree(replace(tree, joints=joints, links=links), base), dtype=robot.dtype)


def _world_forces(robot: pb.RobotModel, q: torch.Tensor, qd: torch.Tensor, u: torch.Tensor) -> tuple[Array | None, str]:
    """Return the joint forces (B, nv) that a world's actuators have, or why there are none."""
    if not u.shape[1]:
        return None, "no actuators"
    world = pb.World(gravity=robot.gravity)
    try:
        world.add(robot, name="robot", collision_links=[])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sim = world.compile(dt=DT, dtype=torch.float64, integrator="explicit", without=["limits", "friction"])
        after = sim.step(pb.State(q, qd), u)
    except PullbackError as error:
        return None, str(error)
    qdd = (after.qd - qd) / DT
    return robot.compute_inverse_dynamics(q, qd, qdd, use_damping=True).numpy(), ""


def _matrix(quat: Array) -> Array:
    R = np.zeros(9)
    mujoco.mju_quat2Mat(R, quat[[3, 0, 1, 2]])
    return R.reshape(3, 3)
