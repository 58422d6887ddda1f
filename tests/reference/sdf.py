"""Signed distances of shapes in plain torch, by recursion over the tree; autograd does the rest."""

import torch

from pullback.sdf.shapes import Combined, Leaf, Offset, Placed, Turned
from pullback.spatial.rotations_torch import conjugate, rotate


def value(shape, x):
    """Return the value (B,) of a shape at points x (B, 3)."""
    if isinstance(shape, Placed):
        quat = shape.orientation / shape.orientation.norm(dim=-1, keepdim=True)
        return value(shape.shape, rotate(conjugate(quat).expand(len(x), 4), x - shape.position))
    if isinstance(shape, Turned):
        return -value(shape.shape, x)
    if isinstance(shape, Offset):
        return value(shape.shape, x) - shape.radius
    if isinstance(shape, Combined):
        s = 1.0 if shape.operation == "intersection" else -1.0
        p, q = (s * value(part, x) + shape.radius for part in (shape.left, shape.right))
        both = (p > 0.0) & (q > 0.0)
        # autograd of the root at zero is NaN even where it is not chosen
        root = torch.where(both, p * p + q * q, 1.0).sqrt()
        return s * (torch.where(both, root, torch.where(p < q, q, p)) - shape.radius)
    return leaf(shape, x)


def leaf(shape, x):
    """Return the value of a primitive."""
    assert isinstance(shape, Leaf)
    a, b, c, radius = shape.sizes
    if shape.operation == "halfspace":
        return x[:, 2]
    if shape.operation == "grid":
        return a * spline(shape.lattice, x / a[..., None])
    if shape.operation == "heights":
        return x[:, 2] - a * spline(shape.lattice, x)
    if shape.operation == "revolved":
        ring = (x[:, 0] ** 2 + x[:, 1] ** 2).sqrt() - b
        q = torch.stack([ring.abs() - a, x[:, 2].abs() - c], -1)
    else:
        q = torch.stack([x[:, 0].abs() - a, x[:, 1].abs() - b, x[:, 2].abs() - c], -1)
    outside = (q > 0.0).any(-1)
    m = torch.where(outside[:, None], q.clamp(min=0.0), torch.ones_like(q))
    return torch.where(outside, m.norm(dim=-1), q.amax(-1)) - radius


def spline(lattice, x):
    """Return the value of a grid's spline, and the distance from its box on top where x is beyond it."""
    counts = torch.tensor(lattice.counts)
    origin, spacing = torch.from_numpy(lattice.origin), torch.from_numpy(lattice.spacing)
    high = origin + (counts - 1) * spacing
    inside = torch.minimum(torch.maximum(x, origin), high)
    at = (inside - origin) / spacing
    cell = torch.minimum(at.detach().floor().long(), counts - 2).clamp(min=0)
    t = at - cell
    r = 1.0 - t
    weights = torch.stack([r**3, 4.0 - 6.0 * t**2 + 3.0 * t**3, 4.0 - 6.0 * r**2 + 3.0 * r**3, t**3], -1) / 6.0
    table = torch.from_numpy(lattice.coefficients).double()
    layers = 4 if counts[2] > 1 else 1
    total = torch.zeros(len(x), dtype=x.dtype)
    for i in range(4):
        for j in range(4):
            for k in range(layers):
                depth = weights[:, 2, k] if layers == 4 else 1.0
                total = (
                    total
                    + table[cell[:, 0] + i, cell[:, 1] + j, cell[:, 2] + k]
                    * weights[:, 0, i]
                    * weights[:, 1, j]
                    * depth
                )
    if layers == 1:
        return total
    away = x - inside
    beyond = (away != 0.0).any(-1)
    return total + torch.where(beyond, torch.where(beyond[:, None], away, 1.0).norm(dim=-1), 0.0)


def value_gradient(shape, x):
    """Return value (B,) and gradient (B, 3), differentiable once more."""
    x = x if x.requires_grad else x.requires_grad_()
    phi = value(shape, x)
    (gradient,) = torch.autograd.grad(phi.sum(), x, create_graph=True)
    return phi, gradient
