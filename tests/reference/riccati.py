"""The backward pass in plain torch, and the box-QP by projected Newton: what the kernels are held against."""

from __future__ import annotations

import torch

from pullback.control.ilqr.riccati import Policy, Quadratic

Tensor = torch.Tensor


def backward_pass(
    A: Tensor,
    B: Tensor,
    gaps: Tensor,
    cost: Quadratic,
    controls: Tensor,
    lower: Tensor | None,
    upper: Tensor | None,
    regularization: Tensor,
) -> Policy:
    """Return the policy for dynamics A (T, B, n, n), B (T, B, n, m) and gaps (T, B, n), with `regularization` (B,).

    `lower` and `upper`, (m,) or (T, B, m) or None, bound the controls (T, B, m).
    """
    steps, worlds, n, m = B.shape
    low = (torch.full_like(controls, -torch.inf) if lower is None else lower) - controls
    high = (torch.full_like(controls, torch.inf) if upper is None else upper) - controls
    unbounded = lower is None and upper is None
    k, K = torch.zeros_like(controls), B.new_zeros(steps, worlds, m, n)
    ok = regularization.isfinite()
    gradient = torch.zeros_like(regularization)
    shift = regularization[:, None, None]
    eye_x, eye_u = torch.eye(n, dtype=B.dtype, device=B.device), torch.eye(m, dtype=B.dtype, device=B.device)
    V, v = cost.xx[-1] + shift * eye_x, cost.x[-1]
    for t in reversed(range(steps)):
        v = v + _times(V, gaps[t])
        At, Bt = A[t].mT, B[t].mT
        Qx, Qu = cost.x[t] + _times(At, v), cost.u[t] + _times(Bt, v)
        Qxx = cost.xx[t] + At @ V @ A[t]
        Qux = cost.ux[t] + Bt @ V @ A[t]
        Quu = cost.uu[t] + Bt @ V @ B[t] + shift * eye_u
        if unbounded:
            factor, info = torch.linalg.cholesky_ex(Quu)
            both = -torch.cholesky_solve(torch.cat([Qu[..., None], Qux], -1), factor)
            k[t], K[t], fine = both[..., 0], both[..., 1:], info == 0
        else:
            k[t], K[t], fine = box_qp(Quu, Qu, Qux, low[t], high[t])
        held = ((low[t] >= 0.0) & (Qu > 0.0)) | ((high[t] <= 0.0) & (Qu < 0.0))
        gradient = gradient.maximum(Qu.abs().where(~held, 0.0).amax(-1))
        v = Qx + _times(Qux.mT, k[t])
        V = Qxx + Qux.mT @ K[t]
        V = 0.5 * (V + V.mT) + shift * eye_x
        ok = ok & fine & V.isfinite().flatten(1).all(1) & v.isfinite().all(1)
    k, K = k.where(ok[:, None], 0.0), K.where(ok[:, None, None], 0.0)
    linear, quadratic = _expected(A, B, gaps, cost, k, K)
    zero = torch.zeros_like(linear)
    return Policy(k, K, linear.where(ok, zero), quadratic.where(ok, zero), gradient.where(ok, torch.inf), ok)


def _expected(A: Tensor, B: Tensor, gaps: Tensor, cost: Quadratic, k: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
    """Return the linear and quadratic parts of the change of cost along the policy's linear trajectory."""
    dx = torch.zeros_like(gaps[0])
    linear = quadratic = dx.new_zeros(dx.shape[0])
    for t in range(len(k)):
        du = k[t] + _times(K[t], dx)
        linear = linear + _dot(cost.x[t], dx) + _dot(cost.u[t], du)
        curved = _times(cost.uu[t], du) + 2.0 * _times(cost.ux[t], dx)
        quadratic = quadratic + _dot(dx, _times(cost.xx[t], dx)) + _dot(du, curved)
        dx = _times(A[t], dx) + _times(B[t], du) + gaps[t]
    return linear + _dot(cost.x[-1], dx), quadratic + _dot(dx, _times(cost.xx[-1], dx))


BOX_STEPS = 50
"""Projected Newton's steps, at most."""


def box_qp(Q: Tensor, q: Tensor, R: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Minimise x^T Q x / 2 + q^T x over low <= x <= high by projected Newton, for each of B problems.

    Return x (B, m), its slope -Q^-1 R (B, m, n) over the free part of x, and whether that part of Q is positive
    definite. Each step solves for the variables that are free, those not pressed against a bound, and is halved, and
    clamped to the box, until the quadratic falls enough.
    """
    x = torch.zeros_like(q).maximum(low).minimum(high)
    eye = torch.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    ok = torch.ones(len(q), dtype=torch.bool, device=q.device)
    done = ~ok
    before = torch.zeros_like(q, dtype=torch.bool)
    solved = done
    factor = eye.expand_as(Q)
    for step in range(BOX_STEPS + 1):
        g = q + _times(Q, x)
        held = ((x <= low) & (g > 0.0)) | ((x >= high) & (g < 0.0)) | (low >= high)
        if step > 0:
            done = done | (solved & (held == before).all(1))
        if bool(done.all()) or step == BOX_STEPS:
            break
        before = torch.where(done[:, None], before, held)
        free = ~before
        both = free[:, :, None] & free[:, None, :]
        new, info = torch.linalg.cholesky_ex(torch.where(both, Q, eye))
        factor = torch.where(done[:, None, None], factor, new)
        ok = ok & (done | (info == 0))
        done = done | ~ok
        d = -torch.cholesky_solve(torch.where(free, g, 0.0)[..., None], factor)[..., 0]
        best, solved = x, ~ok
        length, open_ = 1.0, ~done
        for _ in range(BOX_HALVINGS):
            tried = (x + length * d).maximum(low).minimum(high)
            move = tried - x
            falls = _dot(g, move) + 0.5 * _dot(move, _times(Q, move)) <= 0.1 * _dot(g, move)
            best = torch.where((open_ & falls)[:, None], tried, best)
            solved = solved | (open_ & falls & (tried == x + d).all(1))
            open_ = open_ & ~falls
            if not bool(open_.any()):
                break
            length *= 0.5
        done = done | open_
        x = best
    slope = -torch.cholesky_solve(torch.where(before[..., None], 0.0, R), factor)
    return x, slope, ok


BOX_HALVINGS = 20
"""How often a step of projected Newton's is halved, at most."""


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector[..., None])[..., 0]


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1)
