"""Costs of a motion: small objects that add up, with derivatives in the tangent space of the state.

    cost = 10.0 * FramePose("arm/hand", (0.4, 0.0, 0.5)) + StateCost(weights=1e-3) + ControlCost(1e-4)

A cost is described without a simulation and bound to one when a problem is made: names are looked up, shapes checked,
constant parts computed. Nodes are q (..., N, B, nq), qd (..., N, B, nv) and u (..., N, B, nu): N time steps of B
problems, with leading dimensions for the trials of a line search. At the end of the horizon u is None. All quadratic
costs are half the weighted sum of squares, so that a weight is a second derivative.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim
from pullback.rigid.state import State

Tensor = torch.Tensor
Number = float | Tensor
Values = float | Sequence[float] | Tensor
Torch = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""A function of q, qd and u; u is None at the end of the horizon."""


def numbers(values: object, sim: Sim) -> Tensor:
    """Return numbers as a tensor of a simulation's type and device, rounded once."""
    x = values if isinstance(values, Tensor) else torch.as_tensor(values, dtype=torch.float64)
    return x.detach().to(device=sim.device, dtype=sim.dtype)


class Blocks(NamedTuple):
    """Accumulators of derivatives: x (N, B, n), u (N, B, m), xx (N, B, n, n), uu (N, B, m, m), ux (N, B, m, n)."""

    x: Tensor
    u: Tensor | None
    xx: Tensor
    uu: Tensor | None
    ux: Tensor | None


class Place(NamedTuple):
    """What a cost is bound to: a simulation, the number of nodes and problems, and whether it is the terminal node."""

    sim: Sim
    nodes: int
    batch: int
    is_end: bool

    def tensor(self, what: str, values: object, size: int | tuple[int, ...]) -> Tensor:
        """Return numbers as a tensor that broadcasts against (N, B, size); raise if they do not fit."""
        sizes = (size,) if isinstance(size, int) else size
        try:
            x = numbers(values, self.sim)
        except (TypeError, ValueError, RuntimeError) as error:
            raise PullbackError(f"{what} is {values!r}; expected numbers") from error
        shape = (*(1,) * (3 - x.ndim), *x.shape)
        fits = len(shape) == 3 and shape[2] in sizes and shape[1] in (1, self.batch) and shape[0] in (1, self.nodes)
        if not fits:
            few = " or ".join(map(str, sizes))
            raise PullbackError(
                f"{what} has shape {tuple(x.shape)}; expected ({few},), ({self.batch}, {few}) or "
                f"({self.nodes}, {self.batch}, {few}): nodes, problems, numbers"
            )
        if not bool(x.isfinite().all()):
            raise PullbackError(f"{what} is not finite: {x[~x.isfinite()].flatten()[:3].tolist()}")
        return x

    def weights(self, what: str, values: object, size: int) -> Tensor:
        """Return weights for `size` numbers; a single one is expanded."""
        x = self.tensor(what, values, (1, size))
        return x.expand(*x.shape[:-1], size)


class BoundCost(ABC):
    """A cost bound to a simulation."""

    def renew(self) -> None:
        """Read parameters of the simulation that may have changed since the last search."""
        return

    @abstractmethod
    def values(self, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        """Return the cost of each node, (..., N, B)."""

    def add_constant(self, into: Blocks) -> None:
        """Add the constant second derivatives."""
        return

    @abstractmethod
    def add(self, q: Tensor, qd: Tensor, u: Tensor | None, into: Blocks) -> None:
        """Add the first derivatives and the second derivatives that are not constant, at nodes (N, B)."""


class Cost(ABC):
    """A cost; costs can be added, and multiplied by numbers or tensors () or (B,)."""

    @abstractmethod
    def bind(self, place: Place, scale: Tensor) -> BoundCost:
        """Return the cost for a simulation, multiplied by `scale` () or (B, 1)."""

    def __add__(self, other: Cost) -> Cost:
        """Return the sum of two costs."""
        if not isinstance(other, Cost):
            return NotImplemented
        return Sum([*_terms(self), *_terms(other)])

    def __mul__(self, factor: Number) -> Cost:
        """Return the cost multiplied by a number, or by one per problem."""
        if not isinstance(factor, int | float | Tensor):
            return NotImplemented
        return Sum([(_product(weight, factor), cost) for weight, cost in _terms(self)])

    __rmul__ = __mul__


def _product(a: Number, b: Number) -> Number:
    return a * b


def _terms(cost: Cost) -> list[tuple[Number, Cost]]:
    return cost.terms if isinstance(cost, Sum) else [(1.0, cost)]


class Sum(Cost):
    """A weighted sum of costs."""

    def __init__(self, terms: Sequence[tuple[Number, Cost]]) -> None:
        self.terms = list(terms)

    def bind(self, place: Place, scale: Tensor) -> BoundSum:
        """Bind every term."""
        bound = []
        for weight, cost in self.terms:
            factor = numbers(weight, place.sim)
            if factor.shape not in ((), (1,), (place.batch,)):
                raise PullbackError(
                    f"a cost is multiplied by {tuple(factor.shape)} numbers; give 1 or ({place.batch},), a problem each"
                )
            if not bool(factor.isfinite().all()):
                raise PullbackError(f"a {type(cost).__name__} is multiplied by {factor.tolist()}, which is not finite")
            bound.append(cost.bind(place, scale * (factor[:, None] if factor.ndim else factor)))
        return BoundSum(bound)


class BoundSum(BoundCost):
    """A sum of bound costs."""

    def __init__(self, terms: Sequence[BoundCost]) -> None:
        self.terms = list(terms)

    def renew(self) -> None:
        """Renew the terms."""
        for term in self.terms:
            term.renew()

    def values(self, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        """Return the sum of the terms."""
        total = self.terms[0].values(q, qd, u) if self.terms else q.new_zeros(q.shape[:-1])
        for term in self.terms[1:]:
            total = total + term.values(q, qd, u)
        return total

    def add_constant(self, into: Blocks) -> None:
        """Add the derivatives of the terms."""
        for term in self.terms:
            term.add_constant(into)

    def add(self, q: Tensor, qd: Tensor, u: Tensor | None, into: Blocks) -> None:
        """Add the derivatives of the terms."""
        for term in self.terms:
            term.add(q, qd, u, into)


def bind(cost: Cost | None, place: Place) -> BoundSum:
    """Return a cost, which may be None, bound to its place."""
    if cost is not None and not isinstance(cost, Cost):
        kind = "running" if not place.is_end else "terminal"
        raise PullbackError(f"the {kind} cost is a {type(cost).__name__}; expected costs of pb.control, added up")
    one = torch.ones((), dtype=place.sim.dtype, device=place.sim.device)
    return Sum(_terms(cost) if cost is not None else []).bind(place, one)


# -- states and controls -------------------------------------------------------------------------------------------


class StateCost(Cost):
    """Half the weighted squared difference (2 nv numbers) of the state from a target, by default the initial state.

    The target is a State with q (nq,) or (B, nq) or (N, B, nq), qd alike; `weights` is a number or (2 nv,),
    or (B, 2 nv) for each problem, or (N, B, 2 nv) for each node.
    """

    def __init__(self, target: State | None = None, weights: Values = 1.0) -> None:
        self.target, self.weights = target, weights

    def bind(self, place: Place, scale: Tensor) -> BoundCost:
        """Look up the target and check the weights."""
        sim = place.sim
        if self.target is not None and not isinstance(self.target, State):
            raise PullbackError(f"the target of a StateCost is a {type(self.target).__name__}; expected a pb.State")
        target = sim.initial_state() if self.target is None else self.target
        q = place.tensor("q of a StateCost's target", target.q, sim.nq)
        qd = place.tensor("qd of a StateCost's target", target.qd, sim.nv)
        weights = scale * place.weights("the weights of a StateCost", self.weights, 2 * sim.nv)
        return _BoundState(sim, q, qd, weights)


class _BoundState(BoundCost):
    def __init__(self, sim: Sim, q: Tensor, qd: Tensor, weights: Tensor) -> None:
        self.manifold, self.nv = sim.manifold, sim.nv
        self.q, self.qd, self.weights = q, qd, weights

    def _change(self, q: Tensor, qd: Tensor) -> Tensor:
        return torch.cat([self.manifold.difference(self.q, q), qd - self.qd], -1)

    def values(self, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        change = self._change(q, qd)
        return 0.5 * (self.weights * change * change).sum(-1)

    def add_constant(self, into: Blocks) -> None:
        if self.manifold.is_flat:
            into.xx.diagonal(dim1=-2, dim2=-1).add_(self.weights)
        else:
            into.xx[..., self.nv :, self.nv :].diagonal(dim1=-2, dim2=-1).add_(self.weights[..., self.nv :])

    def add(self, q: Tensor, qd: Tensor, u: Tensor | None, into: Blocks) -> None:
        pull = self.weights * self._change(q, qd)
        if self.manifold.is_flat:
            into.x.add_(pull)
            return
        nv = self.nv
        J = self.manifold.difference_jacobian(self.q, q)
        into.x[..., :nv] += _transposed_times(J, pull[..., :nv])
        into.x[..., nv:] += pull[..., nv:]
        into.xx[..., :nv, :nv] += J.mT @ (self.weights[..., :nv, None] * J)


class ControlCost(Cost):
    """Half the weighted squared difference of the controls from a target; `weights` a number or (nu,)."""

    def __init__(self, weights: Values = 1.0, target: Values = 0.0) -> None:
        self.weights, self.target = weights, target

    def bind(self, place: Place, scale: Tensor) -> BoundCost:
        """Check weights and target."""
        if place.is_end:
            raise PullbackError("a ControlCost is in the terminal cost, where there is no control; make it running")
        weights = place.weights("the weights of a ControlCost", self.weights, place.sim.nu)
        target = place.weights("the target of a ControlCost", self.target, place.sim.nu)
        return _BoundControl(scale * weights, target)


class _BoundControl(BoundCost):
    def __init__(self, weights: Tensor, target: Tensor) -> None:
        self.weights, self.target = weights, target

    def values(self, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        assert u is not None
        way = u - self.target
        return 0.5 * (self.weights * way * way).sum(-1)

    def add_constant(self, into: Blocks) -> None:
        assert into.uu is not None
        into.uu.diagonal(dim1=-2, dim2=-1).add_(self.weights)

    def add(self, q: Tensor, qd: Tensor, u: Tensor | None, into: Blocks) -> None:
        assert u is not None
        assert into.u is not None
        into.u.add_(self.weights * (u - self.target))


def _transposed_times(matrix: Tensor, vector: Tensor) -> Tensor:
    return (vector[..., None, :] @ matrix)[..., 0, :]
