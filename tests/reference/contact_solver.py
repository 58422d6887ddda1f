"""Contact problems and projected Gauss-Seidel in plain float64 torch: the yardstick for the solver adjoints.

One problem at a time, without a batch. Contact c has the rows 3c (normal), 3c+1 and 3c+2 (tangents); scalar rows, joint
limits and dry friction, follow. Torch differentiates through every update of every sweep.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

Tensor = torch.Tensor


class Problem(NamedTuple):
    """Find lam, r = A lam + b, with 0 <= lam_n ⊥ r_n >= 0, |lam_t| <= mu lam_n against r_t, lower <= lam_s <= upper."""

    A: Tensor  # (m, m)
    b: Tensor  # (m,)
    mu: Tensor  # (nc,)
    lower: Tensor  # (ns,)
    upper: Tensor  # (ns,)


def into_disk(x: Tensor, radius: Tensor) -> Tensor:
    """Return the point of the disk around zero that is nearest to x."""
    length = x.norm()
    return x * (radius / length) if length > radius else x


def cone_step(block: Tensor) -> Tensor:
    """Return the step of two tangent rows for their 2 by 2 block."""
    trace = block.diagonal().sum()
    is_thin = bool(torch.linalg.det(block) < 0.025 * trace * trace)
    return (1.5 if is_thin else 2.0) / trace


def into_square(x: Tensor, half_width: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(x, -half_width), half_width)


def sweep(problem: Problem, lam: Tensor, cone: bool = True) -> Tensor:
    """Update every row once, in order, each with the newest impulses of all others."""
    A, b, mu, lower, upper = problem
    rows = list(lam)

    def residual(i: int) -> Tensor:
        return A[i] @ torch.stack(rows) + b[i]

    for c in range(len(mu)):
        n, t1, t2 = 3 * c, 3 * c + 1, 3 * c + 2
        rows[n] = torch.relu(rows[n] - residual(n) / A[n, n])
        limit = mu[c] * rows[n]
        if cone:
            step = cone_step(A[t1 : t2 + 1, t1 : t2 + 1])
            r = torch.stack([residual(t1), residual(t2)])
            rows[t1], rows[t2] = into_disk(torch.stack([rows[t1], rows[t2]]) - step * r, limit)
        else:
            rows[t1] = into_square(rows[t1] - residual(t1) / A[t1, t1], limit)
            rows[t2] = into_square(rows[t2] - residual(t2) / A[t2, t2], limit)
    for s in range(len(lower)):
        i = 3 * len(mu) + s
        rows[i] = torch.minimum(torch.maximum(rows[i] - residual(i) / A[i, i], lower[s]), upper[s])
    return torch.stack(rows)


def solve(problem: Problem, start: Tensor, sweeps: int, cone: bool = True) -> Tensor:
    """Return the impulses after a number of sweeps."""
    lam = start
    for _ in range(sweeps):
        lam = sweep(problem, lam, cone)
    return lam


def sweep_jacobian(problem: Problem, lam: Tensor, cone: bool = True) -> Tensor:
    return torch.autograd.functional.jacobian(lambda x: sweep(problem, x, cone), lam)


def converge(problem: Problem, lam: Tensor, cone: bool = True, iterations: int = 8) -> Tensor:
    """Return the impulses that a sweep leaves as they are, by Newton's method from impulses close to them."""
    eye = torch.eye(len(lam), dtype=lam.dtype)
    for _ in range(iterations):
        change = sweep(problem, lam, cone) - lam
        if change.abs().max() < 1e-15:
            break
        lam = lam + torch.linalg.solve(eye - sweep_jacobian(problem, lam, cone), change)
    # the last sweep brings every impulse within its bounds to the last bit
    return sweep(problem, lam, cone)


def solution_vjp(problem: Problem, lam: Tensor, adj_lam: Tensor, cone: bool = True) -> Problem:
    """Return the cotangents of the problem for one of its solution, from lam = sweep(problem, lam)."""
    transposed = torch.eye(len(lam), dtype=lam.dtype) - sweep_jacobian(problem, lam, cone).T
    inputs = [x.clone().requires_grad_() for x in problem]
    after = sweep(Problem(*inputs), lam, cone)
    adj_after = torch.linalg.solve(transposed, adj_lam)
    return Problem(*torch.autograd.grad(after, inputs, adj_after, allow_unused=True, materialize_grads=True))


def kkt_residual(problem: Problem, lam: Tensor, cone: bool = True) -> Tensor:
    """Return the largest change of an impulse under a step against its residual and back within its bounds."""
    A, b, mu, lower, upper = problem
    nc = len(mu)
    x = lam - (A @ lam + b)
    nearest = [torch.minimum(torch.maximum(x[3 * nc :], lower), upper)]
    for c in range(nc):
        limit = mu[c] * lam[3 * c]
        tangent = x[3 * c + 1 : 3 * c + 3]
        nearest.insert(-1, torch.relu(x[3 * c : 3 * c + 1]))
        nearest.insert(-1, into_disk(tangent, limit) if cone else into_square(tangent, limit))
    return (torch.cat(nearest) - lam).abs().max()
