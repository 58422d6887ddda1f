"""Changes of state: there and back, their Jacobians, and the axes of `linearize`."""

import pytest
import torch

import pullback as pb
from tests.control.scenes import ball_and_box, random_state, sleds

REAL = torch.float64


def central(function, size, h=1e-6):
    """Return the Jacobian (..., out, size) of a function of small changes (size,)."""
    steps = h * torch.eye(size, dtype=REAL)
    return torch.stack([(function(s) - function(-s)) / (2 * h) for s in steps], -1)


@pytest.mark.parametrize("make", [sleds, ball_and_box])
def test_there_and_back(make):
    sim = make()
    a, b = random_state(sim, 3, 4, seed=1), random_state(sim, 3, 4, seed=2)
    again = sim.retract(a, sim.difference(a, b))
    assert sim.difference(again, b).abs().max() < 1e-12
    dx = 0.8 * torch.randn(3, 4, 2 * sim.nv, dtype=REAL, generator=torch.Generator().manual_seed(3))
    assert (sim.difference(a, sim.retract(a, dx)) - dx).abs().max() < 1e-12
    assert sim.difference(sim.retract(sim.retract(a, dx), sim.manifold.reverse(dx)), a).abs().max() < 1e-12


@pytest.mark.parametrize("apart", [1.0, 0.05, 0.0])
def test_jacobian_of_a_difference(apart):
    sim = ball_and_box()
    a = random_state(sim, seed=1)
    b = sim.retract(a, apart * torch.randn(2 * sim.nv, dtype=REAL, generator=torch.Generator().manual_seed(5)))
    manifold = sim.manifold
    expected = central(lambda d: manifold.difference(a.q, manifold.retract(b.q, d)), sim.nv)
    assert (manifold.difference_jacobian(a.q, b.q) - expected).abs().max() < 1e-8


def test_axes_are_those_of_linearize():
    sim = ball_and_box()
    state = random_state(sim, 1, seed=4)
    u = torch.tensor([[0.3, -0.2]], dtype=REAL)
    after = sim.step(state, u)
    maps = sim.linearize(state, u[None])
    A = central(lambda d: sim.difference(after, sim.step(sim.retract(state, d), u))[0], 2 * sim.nv)
    assert (maps.A[0, 0] - A).abs().max() < 1e-7
    B = central(lambda d: sim.difference(after, sim.step(state, u + d))[0], 2)
    assert (maps.B[0, 0] - B).abs().max() < 1e-8


def test_second_derivatives_at_zero_are_exact():
    sim = ball_and_box()
    state = random_state(sim, seed=6)
    target = random_state(sim, seed=7)

    def cost(d):
        return sim.difference(target, sim.retract(state, d)).square().sum()

    zero = torch.zeros(2 * sim.nv, dtype=REAL)
    hessian = torch.autograd.functional.hessian(cost, zero)
    gradient = torch.func.grad(cost)
    assert (hessian - central(gradient, 2 * sim.nv, 1e-5)).abs().max() < 1e-6


def test_gradient_flows():
    sim = ball_and_box()
    a = random_state(sim, 2, seed=1)
    q = a.q.clone().requires_grad_()
    sim.difference(pb.State(q, a.qd), random_state(sim, 2, seed=2)).sum().backward()
    assert q.grad is not None
    assert bool(q.grad.isfinite().all())
