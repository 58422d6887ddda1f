"""Second derivatives of the dynamics along a motion, which Gauss–Newton leaves out (docs/derivations/ilqr.md, 6)."""

from __future__ import annotations

import torch

from pullback.control.ilqr.iterate import Iterate
from pullback.control.ilqr.problem import Problem
from pullback.control.ilqr.riccati import Quadratic
from pullback.core.errors import PullbackError
from pullback.rigid.state import State

Tensor = torch.Tensor

STEP = {torch.float64: 1e-5, torch.float32: 1e-3}
"""Step of the differences of exact gradients."""


def add_dynamics_curvature(problem: Problem, here: Iterate, A: Tensor, B: Tensor, cost: Quadratic) -> None:
    """Add the second derivatives of costate · step to the cost's, by differences of gradients, all in one batch."""
    sim, (T, worlds, n, m) = problem.sim, B.shape
    if sim.parameters.packed().shape[0] != 1:
        raise PullbackError("hessian='full' needs worlds that share their parameters; use 'gauss_newton' here")
    price = costates(A, cost).flatten(0, 1)
    states = here.states
    x = State(*[None if y is None else y[:T].flatten(0, 1) for y in (states.q, states.qd, states.impulses)])  # pyright: ignore
    u = here.controls.flatten(0, 1)
    after = sim.step(x, u)
    h, size = STEP[sim.dtype], n + m
    eye = torch.eye(size, dtype=sim.dtype, device=sim.device)
    z = (h * torch.cat([eye, -eye]))[:, None].repeat(1, len(u), 1).requires_grad_()
    with torch.enable_grad():
        moved = sim.retract(State(x.q.expand(len(z), -1, -1), x.qd.expand(len(z), -1, -1)), z[..., :n])
        impulses = None if x.impulses is None else x.impulses.repeat(len(z), 1)
        there = sim.step(State(moved.q.flatten(0, 1), moved.qd.flatten(0, 1), impulses), (u + z[..., n:]).flatten(0, 1))
        there = State(there.q.unflatten(0, (len(z), -1)), there.qd.unflatten(0, (len(z), -1)))
        (gradients,) = torch.autograd.grad((price * sim.difference(after, there)).sum(), z)
    rows = (gradients[:size] - gradients[size:]) / (2.0 * h)
    hessian = rows.movedim(0, 1).unflatten(0, (T, worlds))
    hessian = 0.5 * (hessian + hessian.mT)
    cost.xx[:T].add_(hessian[..., :n, :n])
    cost.uu.add_(hessian[..., n:, n:])
    cost.ux.add_(hessian[..., n:, :n])


def costates(A: Tensor, cost: Quadratic) -> Tensor:
    """Return the costates: the derivative of the remaining cost by the state after each step, (T, B, n)."""
    found = [cost.x[-1]]
    for t in reversed(range(1, len(A))):
        found.append(cost.x[t] + (found[-1][..., None, :] @ A[t])[..., 0, :])
    return torch.stack(found[::-1])
