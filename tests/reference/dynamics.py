"""Robot kinematics and dynamics in plain float64 torch: the yardstick for the kernels, to be read, not to be fast.

Everything follows from where the links are. Poses chain link by link in the world's frame; a link's Jacobian is read
off the joint axes in the world; accelerations are the time derivative of J(q) qd, taken by forward-mode
differentiation; forces follow from d'Alembert's principle, summed over links. Nothing is recursive over bodies, no
spatial algebra is used, and torch can differentiate all of it by state, forces, gravity and every link parameter.

Functions take one state, without a batch: q (nq,), qd (nv,), and so on; conventions are those of docs/conventions.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from pullback.description.compile import COORDINATES, Model

Tensor = torch.Tensor
Parameters = dict[str, Tensor]
Forces = Mapping[str, Tensor]


class Dof(NamedTuple):
    """A degree of freedom in the world: turning about or sliding along `axis`, through `point`, moving link `link`.

    One that turns may slide as well, by `pitch` [m/rad].
    """

    axis: Tensor
    point: Tensor
    turns: bool
    link: int
    column: int
    ratio: float
    pitch: float = 0.0


def description_parameters(model: Model) -> Parameters:
    """Return the numbers of the description, (L, *shape) each, under the names that the library gives them."""
    joints = model.link_joint
    rows: dict[str, list] = {
        "mass": [link.mass for link in model.links],
        "com": [link.com for link in model.links],
        "inertia_mat": [link.inertia for link in model.links],
        "trans": [np.zeros(3) if j is None else j.origin.translation for j in joints],
        "rot_angles": [np.zeros(3) if j is None else roll_pitch_yaw(j.origin.rotation) for j in joints],
        "joint_damping": [0.0 if j is None else j.damping for j in joints],
        "joint_friction": [0.0 if j is None else j.friction for j in joints],
        "joint_armature": [0.0 if j is None else j.armature for j in joints],
    }
    return {name: torch.tensor(np.array(values), dtype=torch.float64) for name, values in rows.items()}


def roll_pitch_yaw(R: np.ndarray) -> np.ndarray:
    return np.array([np.arctan2(R[2, 1], R[2, 2]), np.arcsin(-np.clip(R[2, 0], -1, 1)), np.arctan2(R[1, 0], R[0, 0])])


# -- rotations ---------------------------------------------------------------------------------------------------


def cross_matrix(x: Tensor) -> Tensor:
    zero = torch.zeros_like(x[0])
    return torch.stack([zero, -x[2], x[1], x[2], zero, -x[0], -x[1], x[0], zero]).reshape(3, 3)


def rotation_about(axis: Tensor, angle: Tensor) -> Tensor:
    """Return Rodrigues' rotation about a unit axis."""
    K = cross_matrix(axis)
    return torch.eye(3, dtype=axis.dtype) + angle.sin() * K + (1.0 - angle.cos()) * (K @ K)


def rotation_of_rpy(rpy: Tensor) -> Tensor:
    x, y, z = torch.eye(3, dtype=rpy.dtype)
    return rotation_about(z, rpy[2]) @ rotation_about(y, rpy[1]) @ rotation_about(x, rpy[0])


def rotation_of_quaternion(quat: Tensor) -> Tensor:
    """Return the rotation of a quaternion xyzw of any length but zero."""
    unit = quat / quat.norm()
    K = cross_matrix(unit[:3])
    return torch.eye(3, dtype=quat.dtype) + 2.0 * unit[3] * K + 2.0 * (K @ K)


def quaternion_of_rotation(R: Tensor) -> Tensor:
    """Return the quaternion xyzw with w >= 0, by way of its largest component."""
    outer = torch.stack(
        [
            torch.stack([1 + R[0, 0] - R[1, 1] - R[2, 2], R[0, 1] + R[1, 0], R[0, 2] + R[2, 0], R[2, 1] - R[1, 2]]),
            torch.stack([R[0, 1] + R[1, 0], 1 - R[0, 0] + R[1, 1] - R[2, 2], R[1, 2] + R[2, 1], R[0, 2] - R[2, 0]]),
            torch.stack([R[0, 2] + R[2, 0], R[1, 2] + R[2, 1], 1 - R[0, 0] - R[1, 1] + R[2, 2], R[1, 0] - R[0, 1]]),
            torch.stack([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1], 1 + R[0, 0] + R[1, 1] + R[2, 2]]),
        ]
    )
    row = outer[int(outer.detach().diagonal().argmax())]
    quat = row / row.norm()
    return quat if quat.detach()[3] >= 0 else -quat


# -- kinematics --------------------------------------------------------------------------------------------------


def link_poses(model: Model, parameters: Parameters, q: Tensor) -> tuple[list[Tensor], list[Tensor], list[Dof]]:
    """Return rotation and origin of every link in the world, and the world's degrees of freedom."""
    R: list[Tensor] = []
    p: list[Tensor] = []
    dofs: list[Dof] = []
    for link, (joint, parent) in enumerate(zip(model.link_joint, model.link_parent)):
        if joint is None:
            R.append(torch.eye(3, dtype=q.dtype))
            p.append(torch.zeros(3, dtype=q.dtype))
            continue
        # the joint's frame at q = 0
        R_WJ = R[parent] @ rotation_of_rpy(parameters["rot_angles"][link])
        p_WJ = p[parent] + R[parent] @ parameters["trans"][link]
        if joint.type == "fixed":
            R.append(R_WJ)
            p.append(p_WJ)
            continue
        source, ratio, offset = joint.name, 1.0, 0.0
        if joint.mimic is not None:
            source, ratio, offset = joint.mimic.joint, joint.mimic.multiplier, joint.mimic.offset
        here, column = model.q_start[source], model.v_start[source]
        axis = torch.tensor(joint.axis, dtype=q.dtype)
        if joint.type in ("revolute", "continuous"):
            R.append(R_WJ @ rotation_about(axis, ratio * q[here] + offset))
            p.append(p_WJ)
            dofs.append(Dof(R_WJ @ axis, p_WJ, True, link, column, ratio))
        elif joint.type == "screw":
            angle = ratio * q[here] + offset
            R.append(R_WJ @ rotation_about(axis, angle))
            p.append(p_WJ + R_WJ @ axis * (joint.pitch * angle))
            dofs.append(Dof(R_WJ @ axis, p_WJ, True, link, column, ratio, joint.pitch))
        elif joint.type == "prismatic":
            R.append(R_WJ)
            p.append(p_WJ + R_WJ @ axis * (ratio * q[here] + offset))
            dofs.append(Dof(R_WJ @ axis, p[-1], False, link, column, ratio))
        else:
            floating = joint.type == "floating"
            quat = q[here + 3 : here + 7] if floating else q[here : here + 4]
            R.append(R_WJ @ rotation_of_quaternion(quat))
            p.append(p_WJ + R_WJ @ q[here : here + 3] if floating else p_WJ)
            # angular velocity, and for a floating joint linear velocity, in the axes of the child
            for k in range(6 if floating else 3):
                dofs.append(Dof(R[-1][:, k % 3], p[-1], k < 3, link, column + k, 1.0))
    return R, p, dofs


def coordinate_rates(model: Model, q: Tensor, qd: Tensor) -> Tensor:
    """Return the time derivative of q."""
    rates = []
    for body in model.independent_bodies():
        here, column = model.q_start[body.joint.name], model.v_start[body.joint.name]
        if COORDINATES[body.kind][0] == 1:
            rates.append(qd[column : column + 1])
            continue
        quat = q[here + 3 : here + 7] if body.kind == "free" else q[here : here + 4]
        omega = qd[column : column + 3]
        if body.kind == "free":
            rates.append(rotation_of_quaternion(quat) @ qd[column + 3 : column + 6])
        xyz = quat[3] * omega + torch.linalg.cross(quat[:3], omega)
        rates.append(0.5 * torch.cat([xyz, -(quat[:3] @ omega)[None]]))
    return torch.cat(rates)


def is_above(model: Model, link: int, other: int) -> bool:
    """Return whether `other` is `link` or hangs from it."""
    while other > link:
        other = model.link_parent[other]
    return other == link


def point_jacobian(model: Model, dofs: list[Dof], link: int, point: Tensor) -> tuple[Tensor, Tensor]:
    """Return linear and angular Jacobian (3, nv) of a point fixed to a link, in world axes."""
    linear = [torch.zeros(3, dtype=point.dtype) for _ in range(model.nv)]
    angular = list(linear)
    for dof in dofs:
        if not is_above(model, dof.link, link):
            continue
        velocity = dof.axis
        if dof.turns:
            velocity = torch.linalg.cross(dof.axis, point - dof.point) + dof.pitch * dof.axis
        linear[dof.column] = linear[dof.column] + dof.ratio * velocity
        if dof.turns:
            angular[dof.column] = angular[dof.column] + dof.ratio * dof.axis
    return torch.stack(linear, 1), torch.stack(angular, 1)


def moving_links(model: Model) -> list[int]:
    """Return the links with a moving joint somewhere above them."""
    moving: set[int] = set()
    for link, (joint, parent) in enumerate(zip(model.link_joint, model.link_parent)):
        if joint is not None and (joint.type != "fixed" or parent in moving):
            moving.add(link)
    return sorted(moving)


def forward_kinematics(model: Model, parameters: Parameters, q: Tensor, link: int) -> tuple[Tensor, Tensor]:
    R, p, _ = link_poses(model, parameters, q)
    return p[link], quaternion_of_rotation(R[link])


def jacobian(model: Model, parameters: Parameters, q: Tensor, link: int) -> tuple[Tensor, Tensor]:
    _, p, dofs = link_poses(model, parameters, q)
    return point_jacobian(model, dofs, link, p[link])


def mass_jacobians(model: Model, parameters: Parameters, q: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return, for the moving links, centre of mass (L, 3), its Jacobians (L, 3, nv) twice, inertia in world axes."""
    R, p, dofs = link_poses(model, parameters, q)
    centres, linear, angular, inertia = [], [], [], []
    for link in moving_links(model):
        centre = p[link] + R[link] @ parameters["com"][link]
        Jv, Jw = point_jacobian(model, dofs, link, centre)
        centres.append(centre)
        linear.append(Jv)
        angular.append(Jw)
        inertia.append(R[link] @ parameters["inertia_mat"][link] @ R[link].T)
    return torch.stack(centres), torch.stack(linear), torch.stack(angular), torch.stack(inertia)


# -- dynamics ----------------------------------------------------------------------------------------------------


def dof_values(model: Model, values: Tensor, power: int = 2) -> Tensor:
    """Spread a value per link's joint over the degrees of freedom; mimic joints add theirs times |ratio|^power."""
    total = [torch.zeros((), dtype=values.dtype) for _ in range(model.nv)]
    for link, joint in enumerate(model.link_joint):
        if joint is None or joint.type == "fixed":
            continue
        source, ratio = (joint.name, 1.0) if joint.mimic is None else (joint.mimic.joint, joint.mimic.multiplier)
        for k in range({"ball": 3, "floating": 6}.get(joint.type, 1)):
            column = model.v_start[source] + k
            total[column] = total[column] + abs(ratio) ** power * values[link]
    return torch.stack(total)


def mass_matrix(model: Model, parameters: Parameters, q: Tensor) -> Tensor:
    """Return sum of m Jv^T Jv + Jw^T I Jw over the links, and the armatures on the diagonal."""
    _, Jv, Jw, inertia = mass_jacobians(model, parameters, q)
    m = parameters["mass"][moving_links(model)]
    M = torch.einsum("l,lij,lik->jk", m, Jv, Jv) + torch.einsum("lij,lim,lmk->jk", Jw, inertia, Jw)
    return M + torch.diag(dof_values(model, parameters["joint_armature"]))


def inverse_dynamics(
    model: Model,
    parameters: Parameters,
    q: Tensor,
    qd: Tensor,
    qdd: Tensor,
    *,
    gravity: Tensor,
    external_forces: Forces | None = None,
    friction: bool = False,
) -> Tensor:
    """Return the joint forces: the sum of Jv^T m (a - g) + Jw^T d/dt(I w) over links, less what outer wrenches do."""

    def momenta(q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
        _, Jv, Jw, inertia = mass_jacobians(model, parameters, q)
        return m[:, None] * (Jv @ qd), (inertia @ (Jw @ qd)[..., None])[..., 0]

    m = parameters["mass"][moving_links(model)]
    _, Jv, Jw, _ = mass_jacobians(model, parameters, q)
    rates = (coordinate_rates(model, q, qd), qdd)
    _, (force, torque) = torch.func.jvp(momenta, (q, qd), rates)
    force = force - m[:, None] * gravity
    tau = torch.einsum("lij,li->j", Jv, force) + torch.einsum("lij,li->j", Jw, torque)
    for name, wrench in (external_forces or {}).items():
        linear, angular = jacobian(model, parameters, q, model.link_index[name])
        tau = tau - angular.T @ wrench[:3] - linear.T @ wrench[3:]
    tau = tau + dof_values(model, parameters["joint_armature"]) * qdd
    if friction:
        tau = tau + dof_values(model, parameters["joint_damping"]) * qd
        tau = tau + dof_values(model, parameters["joint_friction"], power=1) * qd.sign()
    return tau


def forward_dynamics(
    model: Model,
    parameters: Parameters,
    q: Tensor,
    qd: Tensor,
    tau: Tensor,
    *,
    gravity: Tensor,
    external_forces: Forces | None = None,
    friction: bool = False,
) -> Tensor:
    """Return the accelerations that solve M qdd = tau - inverse_dynamics(qdd = 0)."""
    bias = inverse_dynamics(
        model,
        parameters,
        q,
        qd,
        torch.zeros_like(qd),
        gravity=gravity,
        external_forces=external_forces,
        friction=friction,
    )
    return torch.linalg.solve(mass_matrix(model, parameters, q), tau - bias)


# -- the robot as a whole ----------------------------------------------------------------------------------------


def center_of_mass(model: Model, parameters: Parameters, q: Tensor) -> Tensor:
    centres, *_ = mass_jacobians(model, parameters, q)
    m = parameters["mass"][moving_links(model)]
    return m @ centres / m.sum()


def centroidal_momentum(model: Model, parameters: Parameters, q: Tensor, qd: Tensor) -> Tensor:
    centres, Jv, Jw, inertia = mass_jacobians(model, parameters, q)
    m = parameters["mass"][moving_links(model)]
    linear = m[:, None] * (Jv @ qd)
    angular = (inertia @ (Jw @ qd)[..., None])[..., 0]
    arms = centres - m @ centres / m.sum()
    return torch.cat([(angular + torch.linalg.cross(arms, linear)).sum(0), linear.sum(0)])


def kinetic_energy(model: Model, parameters: Parameters, q: Tensor, qd: Tensor) -> Tensor:
    return 0.5 * qd @ mass_matrix(model, parameters, q) @ qd


def potential_energy(model: Model, parameters: Parameters, q: Tensor, *, gravity: Tensor) -> Tensor:
    centres, *_ = mass_jacobians(model, parameters, q)
    return -(parameters["mass"][moving_links(model)] @ centres) @ gravity
