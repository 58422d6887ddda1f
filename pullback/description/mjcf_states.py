"""Read where an MJCF model starts, the states it names, and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pullback.description.tree import Keyframe

if TYPE_CHECKING:
    from pullback.description.mjcf import Reader

STANDARD_GRAVITY = (0.0, 0.0, -9.81)


def add_states(reader: Reader) -> None:
    """Read the initial coordinates that are not zero, and the keyframes."""
    model, tree = reader.model, reader.tree
    zero = _velocities(reader, np.zeros(model.nv), model.qpos0)
    for name, value in _coordinates(reader, model.qpos0).items():
        is_zero = np.array_equal(value, (0.0, 0.0, 0.0, 1.0)) if len(value) == 4 else not value.any()
        if not is_zero:
            tree.initial[name] = value
    for key in range(model.nkey):
        q = _coordinates(reader, model.key_qpos[key])
        qd = {**zero, **_velocities(reader, model.key_qvel[key], model.key_qpos[key])}
        controls = {drive.name: float(model.key_ctrl[key][drive.number]) for drive in tree.drives}
        tree.keyframes[model.key(key).name or f"key{key}"] = Keyframe(q, qd, controls)


def add_options(reader: Reader) -> None:
    """Read gravity and the time step."""
    option, tree = reader.model.opt, reader.tree
    tree.timestep = float(option.timestep)
    tree.gravity = (0.0, 0.0, 0.0) if reader.disables("GRAVITY") else tuple(float(g) for g in option.gravity)
    if tree.gravity != STANDARD_GRAVITY:
        reader.leave_out(
            f"gravity {tree.gravity} of worlds, which have their own: give pb.World(gravity=robot.gravity)"
        )


def _coordinates(reader: Reader, qpos: np.ndarray) -> dict[str, np.ndarray]:
    """Return the coordinates of each joint, quaternions xyzw."""
    found = {}
    for joint in range(reader.model.njnt):
        start, kind = reader.model.jnt_qposadr[joint], reader.type_of(joint)
        value = qpos[start : start + {"floating": 7, "ball": 4}.get(kind, 1)].astype(np.float64)
        if len(value) > 1:
            value = np.concatenate([value[:-4], value[-3:], value[-4:-3]])
        found[reader.tree_joint(joint)] = value
    return found


def _velocities(reader: Reader, qvel: np.ndarray, qpos: np.ndarray) -> dict[str, np.ndarray]:
    """Return the velocities of each joint; those of a free one angular first and in the body's axes."""
    from pullback.description.mjcf import rotation

    found = {}
    for joint in range(reader.model.njnt):
        start, kind = reader.model.jnt_dofadr[joint], reader.type_of(joint)
        value = qvel[start : start + {"floating": 6, "ball": 3}.get(kind, 1)].astype(np.float64)
        if kind == "floating":
            quat = qpos[reader.model.jnt_qposadr[joint] + 3 :][:4]
            value = np.concatenate([value[3:], rotation(quat).T @ value[:3]])
        found[reader.tree_joint(joint)] = value
    return found
