"""The backward pass: the kernel against the plain one and a quadratic program, and what it does with bad models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import pullback as pb
from pullback.control.ilqr.riccati import Policy, Quadratic, backward_pass
from tests.reference import riccati as reference

STEPS, PROBLEMS, N, M = 12, 5, 9, 4
BOUND = 0.3


def random_model(
    dtype: torch.dtype = torch.float64, *, gaps: float = 0.1, problems: int = PROBLEMS, n: int = N, m: int = M
) -> list:
    """Return A, B, gaps, cost and controls; A and B are views of one tensor, as `sim.linearize` gives them."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    A = torch.eye(n, dtype=torch.float64) + 0.1 * random(STEPS, problems, n, n)
    both = torch.cat([A, random(STEPS, problems, n, m)], -1).to(dtype)
    half = random(STEPS + 1, problems, n + m, n + m)
    H = (half @ half.mT + 0.1 * torch.eye(n + m, dtype=torch.float64)).to(dtype)
    cost = Quadratic(
        random(STEPS + 1, problems, n).to(dtype), random(STEPS, problems, m).to(dtype),
        H[..., :n, :n], H[:-1, ..., n:, n:], H[:-1, ..., n:, :n],
    )  # fmt: skip
    controls = random(STEPS, problems, m).clamp(-BOUND, BOUND).to(dtype)
    return [both[..., :n], both[..., n:], (gaps * random(STEPS, problems, n)).to(dtype), cost, controls]


def bounds(dtype: torch.dtype, m: int = M) -> tuple[torch.Tensor, torch.Tensor]:
    """Return bounds of the controls; one control is not free at all, one is bounded on one side."""
    upper = torch.full((m,), BOUND, dtype=dtype)
    lower = -upper
    lower[0] = upper[0]
    lower[1] = -torch.inf
    return lower, upper


def assert_close(found: Policy, expected: Policy, tolerance: float) -> None:
    """Compare two policies."""
    assert found.ok.tolist() == expected.ok.tolist()
    for name in ("k", "K", "linear", "quadratic", "gradient"):
        ours, theirs = (getattr(policy, name).double().cpu() for policy in (found, expected))
        assert torch.allclose(
            ours, theirs, rtol=tolerance, atol=tolerance * float(theirs[theirs.isfinite()].abs().max())
        )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-4)])
@pytest.mark.parametrize("bounded", [False, True])
def test_the_kernel_does_what_the_plain_one_does(dtype, tolerance, bounded):
    model = random_model(dtype)
    lower, upper = bounds(dtype) if bounded else (None, None)
    damping = torch.linspace(0.0, 1.0, PROBLEMS, dtype=dtype)
    found = backward_pass(*model, lower, upper, damping)
    double = [Quadratic(*[y.double() for y in x]) if isinstance(x, Quadratic) else x.double() for x in model]
    wide = [None if x is None else x.double() for x in (lower, upper)]
    assert_close(found, reference.backward_pass(*double, *wide, damping.double()), tolerance)
    held = (found.K == 0.0).all(-1)
    assert bool(held.any()) == bounded
    if bounded:
        moved = model[4] + found.k
        assert bool((moved <= upper + 1e-6).all())
        assert bool((moved >= lower - 1e-6).all())


def test_bounds_for_each_step_and_controls_outside_of_them():
    model = random_model()
    lower, upper = model[4] + 0.02, model[4] + 0.2
    damping = torch.zeros(PROBLEMS, dtype=torch.float64)
    found = backward_pass(*model, lower, upper, damping)
    assert_close(found, reference.backward_pass(*model, lower, upper, damping), 1e-12)
    assert bool((found.k >= 0.02 - 1e-12).all())


def change_of_cost(model: list, du: torch.Tensor, problem: int) -> torch.Tensor:
    """Return by how much a change of the controls (T, m) changes the model's cost, gaps closed."""
    A, B, gaps, cost, _ = model
    dx, total = torch.zeros(N, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for t in range(STEPS):
        x, u, xx, uu, ux = (y[t, problem] for y in cost)
        total = total + x @ dx + u @ du[t] + 0.5 * (dx @ xx @ dx + du[t] @ uu @ du[t]) + du[t] @ ux @ dx
        dx = A[t, problem] @ dx + B[t, problem] @ du[t] + gaps[t, problem]
    return total + cost.x[-1, problem] @ dx + 0.5 * dx @ cost.xx[-1, problem] @ dx


def test_the_expected_change_is_the_least_of_the_whole_quadratic():
    model = random_model()
    policy = backward_pass(*model, None, None, torch.zeros(PROBLEMS, dtype=torch.float64))

    def both(x: np.ndarray) -> tuple[float, np.ndarray]:
        du = torch.from_numpy(x.reshape(STEPS, M)).requires_grad_()
        total = change_of_cost(model, du, 2)
        (slope,) = torch.autograd.grad(total, du)
        return total.item(), slope.numpy().ravel()

    least = minimize(both, np.zeros(STEPS * M), jac=True, method="BFGS", options={"gtol": 1e-9}).fun
    assert abs(float(policy.linear[2] + 0.5 * policy.quadratic[2]) - least) < 1e-8 * abs(least)


def test_the_box_qp_is_the_least_point_of_the_box():
    model = random_model(gaps=0.0)
    last = [x[-1:] if not isinstance(x, Quadratic) else None for x in model]
    cost = model[3]
    tail = Quadratic(cost.x[-2:], cost.u[-1:], cost.xx[-2:], cost.uu[-1:], cost.ux[-1:])
    lower, upper = bounds(torch.float64)
    policy = backward_pass(last[0], last[1], last[2], tail, last[4], lower, upper, torch.zeros(PROBLEMS).double())
    for w in range(PROBLEMS):
        B, V = last[1][0, w], tail.xx[1, w]
        Q, q = (tail.uu[0, w] + B.T @ V @ B).numpy(), (tail.u[0, w] + B.T @ tail.x[1, w]).numpy()
        box = list(zip((lower - last[4][0, w]).tolist(), (upper - last[4][0, w]).tolist()))
        start = np.array([high for _, high in box])
        best = minimize(
            lambda x, Q=Q, q=q: (0.5 * x @ Q @ x + q @ x, Q @ x + q), start, jac=True, bounds=box,
            method="L-BFGS-B", options={"ftol": 1e-16, "gtol": 1e-12},
        )  # fmt: skip
        assert np.abs(policy.k[0, w].numpy() - best.x).max() < 1e-6


def test_what_is_not_convex_or_not_finite_is_not_ok_and_the_others_are():
    model = random_model()
    damping = torch.zeros(PROBLEMS, dtype=torch.float64)
    fine = backward_pass(*model, None, None, damping)
    cost = Quadratic(*[x.clone() for x in model[3]])
    cost.uu[5, 1] *= -100.0
    cost.x[3, 3, 0] = torch.nan
    found = backward_pass(*model[:3], cost, model[4], None, None, damping)
    assert found.ok.tolist() == [True, False, True, False, True]
    assert torch.equal(found.K[:, ::2], fine.K[:, ::2])
    assert not found.K[:, 1::2].any()
    assert not found.linear[1::2].any()
    cost.x[3, 3, 0] = 0.0
    assert backward_pass(*model[:3], cost, model[4], None, None, damping + 1e5).ok.all()


def test_what_does_not_fit_is_named():
    model = random_model()
    damping = torch.zeros(PROBLEMS, dtype=torch.float64)
    with pytest.raises(pb.PullbackError, match="gaps"):
        backward_pass(model[0], model[1], model[2][..., 1:], *model[3:], None, None, damping)
    with pytest.raises(pb.PullbackError, match="regularization"):
        backward_pass(*model, None, None, damping.float())
    with pytest.raises(pb.PullbackError, match="lower"):
        backward_pass(*model, damping, None, damping)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-3)])
@pytest.mark.parametrize(("n", "m"), [(N, M), (36, 12)])
def test_a_gpu_gives_what_the_plain_one_gives(dtype, tolerance, n, m):
    model = random_model(problems=70, n=n, m=m)
    damping = torch.linspace(0.0, 1.0, 70, dtype=torch.float64)
    for lower, upper in (bounds(torch.float64, m), (None, None)):
        expected = reference.backward_pass(*model, lower, upper, damping)
        there = [
            Quadratic(*[y.to("cuda", dtype) for y in x]) if isinstance(x, Quadratic) else x.to("cuda", dtype)
            for x in model
        ]
        box = [None if x is None else x.to("cuda", dtype) for x in (lower, upper)]
        assert_close(backward_pass(*there, *box, damping.to("cuda", dtype)), expected, tolerance)
