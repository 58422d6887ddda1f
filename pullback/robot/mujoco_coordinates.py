"""Coordinates and velocities as MuJoCo orders them, and ours.

Joints come in the same order, parents first. MuJoCo's quaternions are wxyz; its free joints have the linear velocity
first and in world axes, the angular one in those of the body. Joints that follow others have coordinates of their own
there.
"""

from __future__ import annotations

import torch

from pullback.core.errors import PullbackError
from pullback.description.compile import Model
from pullback.description.joints import KINDS
from pullback.spatial.rotations_torch import conjugate, rotate

Tensor = torch.Tensor


def from_mujoco(model: Model, qpos: Tensor, qvel: Tensor) -> tuple[Tensor, Tensor]:
    """Return our q (*batch, nq_all) and qd (*batch, nv_all), those of joints that follow others among them."""
    check_last(qpos, model.nq_all, "qpos")
    check_last(qvel, model.nv_all, "qvel")
    q, qd = [qpos[..., :0]], [qvel[..., :0]]
    for body in model.bodies:
        kind = KINDS[body.kind]
        x, v = qpos[..., body.q_start :][..., : kind.nq], qvel[..., body.v_start :][..., : kind.nv]
        if kind.turns:
            x = torch.cat([x[..., :-4], x[..., -3:], x[..., -4:-3]], -1)
        if kind.travels:
            v = torch.cat([v[..., 3:], rotate(conjugate(x[..., 3:]), v[..., :3])], -1)
        q.append(x)
        qd.append(v)
    return torch.cat(q, -1), torch.cat(qd, -1)


def to_mujoco(model: Model, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
    """Return MuJoCo's qpos and qvel of the coordinates (*batch, nq_all) and velocities of all joints."""
    qpos, qvel = [q[..., :0]], [qd[..., :0]]
    for body in model.bodies:
        kind = KINDS[body.kind]
        x, v = q[..., body.q_start :][..., : kind.nq], qd[..., body.v_start :][..., : kind.nv]
        if kind.travels:
            v = torch.cat([rotate(x[..., 3:], v[..., 3:]), v[..., :3]], -1)
        if kind.turns:
            x = torch.cat([x[..., :-4], x[..., -1:], x[..., -4:-1]], -1)
        qpos.append(x)
        qvel.append(v)
    return torch.cat(qpos, -1), torch.cat(qvel, -1)


def check_last(x: Tensor, n: int, name: str) -> None:
    """Refuse coordinates of another robot."""
    if x.ndim == 0 or x.shape[-1] != n:
        raise PullbackError(
            f"{name} has shape {tuple(x.shape)}; expected (*batch, {n}): the coordinates of this robot alone, in the "
            f"order of MuJoCo's joints"
        )
