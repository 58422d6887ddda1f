"""Shapes against nodes in plain torch, float64: docs/derivations/soft_coupling.md, one line an equation."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def distance(x: Tensor, e: Tensor, r: Tensor, geometry: str) -> tuple[Tensor, Tensor]:
    """Return distances (m,) and normals (m, 3) of points (m, 3), both in the frame of the shape, eq. (1)."""
    if geometry == "plane":
        return x[:, 2], torch.tensor([0.0, 0.0, 1.0]).to(x).expand_as(x)
    if geometry == "cylinder":
        return to_cylinder(x, e, r)
    beyond = x.abs() - e
    y = torch.where(beyond > 0, torch.sign(x) * beyond, torch.zeros_like(x))
    is_core = (beyond <= 0).all(-1)
    length = torch.where(is_core, torch.ones_like(x[:, 0]), (y * y).sum(-1)).sqrt()
    nearest, face = beyond.max(-1)
    axis = torch.nn.functional.one_hot(face, 3).to(x) * torch.sign(x)
    normal = torch.where(is_core[:, None], axis, y / length[:, None])
    return torch.where(is_core, nearest, length) - r, normal


def to_cylinder(x: Tensor, e: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """Return distances and normals of a cylinder along z of radius e_x and half length e_z, rounded by r."""
    rho = x[:, :2].norm(dim=-1)
    radial = torch.cat([x[:, :2] / rho[:, None], torch.zeros_like(x[:, :1])], 1)
    axial = torch.sign(x[:, 2:]) * torch.tensor([0.0, 0.0, 1.0]).to(x)
    beyond = torch.stack([rho - e[0], x[:, 2].abs() - e[2]], 1)
    is_core = (beyond <= 0).all(-1)
    out = beyond.clamp(min=0.0)
    length = torch.where(is_core, torch.ones_like(rho), (out * out).sum(-1)).sqrt()
    normal = (out[:, :1] * radial + out[:, 1:] * axial) / length[:, None]
    nearest = torch.where(beyond[:, :1] > beyond[:, 1:], radial, axial)
    normal = torch.where(is_core[:, None], nearest, normal)
    return torch.where(is_core, beyond.amax(-1), length) - r, normal


def collide(X: Tensor, v: Tensor, m: Tensor, shapes: Tensor, kinds: list[tuple[str, str]], h: float):
    """Return velocities (N, 3) of nodes that the shapes (S, 23) leave, and torque and force each got (S, 6)."""
    touches = []
    for row, (geometry, law) in zip(shapes, kinds):
        p, R, vs, w = row[:3], row[3:12].view(3, 3), row[12:15], row[15:18]
        e, r, mu = row[18:21], row[21], row[22]
        d = X - p
        phi, normal = distance(d @ R, e, r, geometry)
        t = (0.5 - phi / h).clamp(0.0, 1.0)
        s = (t**3 * (10.0 - 15.0 * t + 6.0 * t**2))[:, None]
        n = normal @ R.mT
        u = v - vs - torch.linalg.cross(w.expand_as(d), d)
        un = (n * u).sum(-1, keepdim=True)
        ut = u - un * n
        if law == "stick":
            after = torch.zeros_like(u)
        elif law == "slip":
            after = ut
        else:
            length = torch.sqrt((ut * ut).sum(-1, keepdim=True) + (ut.abs().amax(-1, keepdim=True) == 0))
            kept = (1.0 + mu * un / length).clamp(min=0.0)
            after = torch.where(un < 0, kept * ut, u)
        change = s * (after - u)
        j = -m[:, None] * change
        touches.append(torch.cat([torch.linalg.cross(d, j).sum(0), j.sum(0)]))
        v = v + change
    return v, torch.stack(touches)
