"""The turning of lone bodies by the implicit midpoint rule, in plain float64 torch (docs/derivations/gyroscopic.md)."""

from __future__ import annotations

import torch

from pullback.description.compile import COORDINATES, WORLD, Model
from tests.reference.dynamics import cross_matrix

Tensor = torch.Tensor


def lone_bodies(model: Model) -> list[tuple[int, int]]:
    """Return first dof and number of dofs of the free and ball joints on the world that carry one body alone."""
    parents = {body.parent for body in model.bodies}
    found = [b for k, b in enumerate(model.bodies) if b.parent == WORLD and k not in parents]
    return [
        (model.v_start[body.joint.name], COORDINATES[body.kind][1]) for body in found if body.kind in ("free", "ball")
    ]


def midpoint_rate(inertia: Tensor, mass: Tensor, rate: Tensor, dt: float) -> Tensor:
    """Return x with mass (x - rate) + dt/2 x × inertia x = 0; the last of Newton's steps carries its derivative."""

    def residual(x: Tensor) -> Tensor:
        return mass @ (x - rate) + 0.5 * dt * torch.linalg.cross(x, inertia @ x)

    x = rate.detach()
    for _ in range(30):
        slope = mass + 0.5 * dt * (cross_matrix(x) @ inertia - cross_matrix(inertia @ x))
        x = x.detach() - torch.linalg.solve(slope.detach(), residual(x.detach()))
    return x


def lone_bias(M: Tensor, armature: Tensor, qd: Tensor, dt: float) -> Tensor:
    """Return what the bias force of a lone body lacks, from its own block of the mass matrix."""
    rate, mass, offset = qd[:3], M[:3, :3], None
    if len(qd) == 6:
        total, h = M[3, 3] - armature[3], torch.stack([M[2, 4], M[0, 5], M[1, 3]])
        offset = h / total
        mass = mass + cross_matrix(h) @ cross_matrix(h) / total
    inertia = mass - torch.diag(armature[:3])
    x = midpoint_rate(inertia, mass, rate, dt)
    couple = torch.linalg.cross(x, inertia @ x) - torch.linalg.cross(rate, inertia @ rate)
    if offset is None:
        return couple
    after = 2.0 * x - rate
    turned = torch.linalg.matrix_exp(dt * cross_matrix(after)) @ offset
    push = torch.linalg.cross(after, turned - offset) / dt - torch.linalg.cross(rate, torch.linalg.cross(rate, offset))
    return torch.cat([couple + total * torch.linalg.cross(offset, push), total * push])
