"""Costs that are any torch function of coordinates, velocities and controls, differentiated by autograd."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pullback.control.costs.costs import Blocks, BoundCost, Cost, Place, Torch, Values
from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim

Tensor = torch.Tensor
Outer = Callable[[Tensor], tuple[Tensor, Tensor]]


class Function(Cost):
    """A cost given by a torch function.

    It is called with q (..., N, B, nq), qd and u (None at the end of the horizon) and returns (..., N, B), the cost
    of each node from that node alone. It is differentiated twice; with `convex`, the default, negative eigenvalues of
    its Hessian are set to zero. A function of quantities that have first derivatives only, such as poses of links, is
    written as a `Residual` instead.
    """

    def __init__(self, function: Torch, *, convex: bool = True) -> None:
        self.function, self.convex = function, convex

    def bind(self, place: Place, scale: Tensor) -> BoundCost:
        """Evaluate the function at the initial state."""
        try_function(self.function, place, residual=False)
        return _BoundFunction(place.sim, self.function, scale[..., 0] if scale.ndim else scale, self.convex)


class Residual(Cost):
    """Half the weighted squares of the residuals (..., N, B, k) of a torch function, with Gauss–Newton derivatives.

    It is called like a `Function`, and differentiated once. `weights` is a number or (k,).
    """

    def __init__(self, function: Torch, weights: Values = 1.0) -> None:
        self.function, self.weights = function, weights

    def bind(self, place: Place, scale: Tensor) -> BoundCost:
        """Evaluate the function at the initial state."""
        rows = try_function(self.function, place, residual=True).shape[-1]
        weights = scale * place.weights("the weights of a Residual", self.weights, rows)
        return BoundResidual(place.sim, self.function, weights)


def try_function(function: Torch, place: Place, *, residual: bool) -> Tensor:
    """Return the function's values for the initial state at every node; raise if they are not as expected."""
    sim, nodes = place.sim, (place.nodes, place.batch)
    state = sim.initial_state()
    u = None if place.is_end else torch.zeros(*nodes, sim.nu, dtype=sim.dtype, device=sim.device)
    name = getattr(function, "__name__", type(function).__name__)
    with torch.no_grad():
        found = function(state.q.expand(*nodes, -1), state.qd.expand(*nodes, -1), u)
    kind = "residuals (N, B, k)" if residual else "costs (N, B)"
    shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    if not isinstance(found, Tensor) or found.ndim != 2 + residual or found.shape[:2] != nodes:
        raise PullbackError(f"{name} returned {shape} for {nodes[0]} moments of {nodes[1]} problems; expected {kind}")
    if not bool(found.isfinite().all()):
        raise PullbackError(f"{name} is not finite where the world starts, with zero controls")
    return found


class _Variables:
    """Nodes as functions of small changes z = (dx, du), so that autograd gives derivatives in the tangent space."""

    def __init__(self, sim: Sim, q: Tensor, qd: Tensor, u: Tensor | None) -> None:
        self.nv = sim.nv
        self.z = q.new_zeros(*q.shape[:-1], 2 * sim.nv + (0 if u is None else sim.nu)).requires_grad_()
        dq, dqd, du = self.z.split([sim.nv, sim.nv, self.z.shape[-1] - 2 * sim.nv], -1)
        self.nodes = sim.manifold.retract(q.detach(), dq), qd.detach() + dqd, None if u is None else u.detach() + du

    def add(self, gradient: Tensor, hessian: Tensor, into: Blocks) -> None:
        """Add first and second derivatives by z to those by x and by u."""
        n = 2 * self.nv
        into.x.add_(gradient[..., :n])
        into.xx.add_(hessian[..., :n, :n])
        if into.u is not None and into.uu is not None and into.ux is not None:
            into.u.add_(gradient[..., n:])
            into.uu.add_(hessian[..., n:, n:])
            into.ux.add_(hessian[..., n:, :n])


def _rows(outputs: Tensor, z: Tensor) -> Tensor:
    """Return the derivatives (..., k, n) of outputs (..., k) by z (..., n), node by node."""
    k = outputs.shape[-1]
    if not outputs.requires_grad or k == 0:
        return z.new_zeros(*z.shape[:-1], k, z.shape[-1])
    pick = torch.eye(k, dtype=z.dtype, device=z.device).view(k, *(1,) * (z.ndim - 1), k).expand(k, *outputs.shape)
    options = {"allow_unused": True, "materialize_grads": True, "retain_graph": True}
    try:
        (rows,) = torch.autograd.grad(outputs, z, pick, is_grads_batched=True, **options)
    except RuntimeError:
        # functions that call kernels: one vjp per output
        rows = torch.stack([torch.autograd.grad(outputs, z, row, **options)[0] for row in pick])
    return rows.movedim(0, -2)


class _BoundFunction(BoundCost):
    def __init__(self, sim: Sim, function: Torch, scale: Tensor, convex: bool) -> None:
        self.sim, self.function, self.scale, self.convex = sim, function, scale, convex

    def values(self, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        with torch.no_grad():
            return self.scale * self.function(q, qd, u)

    def add(self, q: Tensor, qd: Tensor, u: Tensor | None, into: Blocks) -> None:
        with torch.enable_grad():
            x = _Variables(self.sim, q, qd, u)
            total = (self.scale * self.function(*x.nodes)).sum()
            if not total.requires_grad:
                return
            (gradient,) = torch.autograd.grad(total, x.z, create_graph=True)
            hessian = _rows(gradient, x.z)
        hessian = 0.5 * (hessian + hessian.mT)
        x.add(gradient.detach(), _without_negative(hessian) if self.convex else hessian, into)


def _without_negative(hessian: Tensor) -> Tensor:
    """Return symmetric matrices with negative eigenvalues set to zero; one that is not finite is returned as is."""
    if not bool(hessian.isfinite().all()):
        return hessian
    values, vectors = torch.linalg.eigh(hessian)
    return (vectors * values.clamp(min=0.0)[..., None, :]) @ vectors.mT


class BoundResidual(BoundCost):
    """Half the weighted squares of a torch function's residuals."""

    def __init__(self, sim: Sim, function: Torch, weights: Tensor) -> None:
        self.sim, self.function, self.weights = sim, function, weights

    def residual(self, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        """Return the residuals (..., N, B, k)."""
        with torch.no_grad():
            return self.function(q, qd, u)

    def values(self, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        """Return the cost of each node."""
        r = self.residual(q, qd, u)
        return 0.5 * (self.weights * r * r).sum(-1)

    def add(self, q: Tensor, qd: Tensor, u: Tensor | None, into: Blocks) -> None:
        """Add Jᵀ W r and Jᵀ W J."""
        self.add_weighted(q, qd, u, into, lambda r: (self.weights * r, self.weights))

    def add_weighted(self, q: Tensor, qd: Tensor, u: Tensor | None, into: Blocks, outer: Outer) -> None:
        """Add Jᵀ p and Jᵀ P J, where `outer` returns gradient p and curvature P by the residuals."""
        with torch.enable_grad():
            x = _Variables(self.sim, q, qd, u)
            r = self.function(*x.nodes)
            J = _rows(r, x.z)
        slope, curvature = outer(r.detach())
        gradient = (slope[..., None, :] @ J)[..., 0, :]
        x.add(gradient, J.mT @ (curvature[..., None] * J), into)
