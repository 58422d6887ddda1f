"""Averages over perturbed worlds: against smoothed functions in closed form, plain gradients, and a ball to find."""

from math import erf, exp, pi, sqrt

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Link, Shape, Tree
from pullback.rigid.smoothing import ORDERS, Order, Smoothing, first_order_share

F64 = torch.float64
STEPS = 60


def normal_cdf(x: float) -> float:
    return 0.5 * (1.0 + erf(x / sqrt(2.0)))


def normal_density(x: float) -> float:
    return exp(-0.5 * x * x) / sqrt(2.0 * pi)


@pytest.fixture(scope="module")
def sim() -> pb.Sim:
    """A sphere on a motor along x, and a ball on the ground whose surface is 0.1 away from it."""
    links = [Link("rail", 0.0), Link("slider", 1.0, inertia=1e-3 * np.eye(3), shapes=[Shape("sphere", (0.05,))])]
    tree = Tree("carriage", links, [Joint("x", "prismatic", "rail", "slider", axis=np.array([1.0, 0, 0]))], source="x")
    world = pb.World()
    world.add_ground(friction=0.5)
    servo = pb.PositionServo(kp=100.0, kd=20.0)
    world.add(pb.RobotModel(compile_tree(tree)), position=(0, 0, 0.1), friction=0.0, actuators=servo)
    world.add_sphere("ball", radius=0.1, mass=0.5, position=(0.25, 0.0, 0.1), friction=0.5)
    return world.compile(dt=5e-3, dtype=F64)


def gradient(smooth: Smoothing, losses, x: torch.Tensor, noise: float | torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    smooth(losses, (x, noise)).backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("x", [-0.3, 0.0, 0.2])
def test_ramp_against_its_smoothed_gradient(order, x):
    # max(x, 0) becomes x Φ(x/σ) + σ φ(x/σ), with the slope Φ(x/σ)
    sigma, worlds = 0.25, 20_000
    smooth = Smoothing(worlds, order=order, seed=1)
    point = torch.full((1,), x, dtype=F64, requires_grad=True)
    loss = smooth(lambda x: x[:, 0].clamp(min=0.0), (point, sigma))
    loss.backward()
    expected = x * normal_cdf(x / sigma) + sigma * normal_density(x / sigma)
    assert loss.item() == pytest.approx(expected, abs=5 * sigma / sqrt(worlds))
    # one sample of the slope has a deviation of at most 1 in the zeroth order; five standard errors
    assert point.grad is not None
    assert point.grad.item() == pytest.approx(normal_cdf(x / sigma), abs=5 / sqrt(worlds))


def test_jump_is_seen_by_losses_only():
    # a step at 0 becomes Φ(x/σ); its slope φ(x/σ)/σ is in no world's gradient
    sigma, worlds, x = 0.25, 20_000, torch.full((1,), 0.1, dtype=F64)
    losses = lambda x: (x[:, 0] > 0).to(F64) + 0.0 * x[:, 0]  # noqa: E731
    expected = normal_density(0.4) / sigma
    found = {order: gradient(Smoothing(worlds, order=order, seed=2), losses, x, sigma).item() for order in ORDERS}
    assert found["first"] == 0.0
    assert found["zeroth"] == pytest.approx(expected, abs=5 / (sigma * sqrt(worlds)))
    assert found["mixed"] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("order", ORDERS)
def test_error_falls_with_the_number_of_worlds(order):
    # the mean of 40 draws of 100 worlds is nearer than five of its standard errors to the truth, in every component
    losses = lambda x: (x * x.new_tensor([1.0, -2.0, 0.5])).sum(-1).abs()  # noqa: E731
    x, sigma = torch.tensor([0.1, 0.2, -0.1], dtype=F64), 0.3
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=F64)
    spread = sigma * weights.norm().item()
    expected = weights * (2.0 * normal_cdf(float(weights @ x) / spread) - 1.0)
    smooth = Smoothing(100, order=order, seed=3)
    draws = torch.stack([gradient(smooth, losses, x, sigma) for _ in range(40)])
    error = (draws.mean(0) - expected).abs() / (draws.std(0) / sqrt(len(draws)))
    assert error.max() < 5.0


def test_mix_follows_the_better_of_the_two():
    # a steep wall makes both scatter, a jump makes the first order wrong, a bowl makes it exact
    bowl = lambda x: 0.5 * x.square().sum(-1)  # noqa: E731
    losses = {
        "wall": lambda x: (20.0 * x[:, 0]).tanh() + bowl(x),
        "jump": lambda x: (x[:, 0] > 0).to(F64) + bowl(x),
        "bowl": bowl,
    }
    x, sigma, worlds, draws = torch.tensor([0.1, 0.3], dtype=F64), 0.3, 64, 200
    error: dict[tuple[str, str], float] = {}
    for name, loss in losses.items():
        truth = gradient(Smoothing(400_000, order="zeroth", seed=9), loss, x, sigma)
        for order in ORDERS:
            smooth = Smoothing(worlds, order=order, seed=4)
            found = torch.stack([gradient(smooth, loss, x, sigma) for _ in range(draws)])
            error[name, order] = (found - truth).square().sum(-1).mean().sqrt().item()
    assert error["wall", "mixed"] < 0.8 * min(error["wall", "first"], error["wall", "zeroth"])
    assert error["jump", "mixed"] < 1.1 * error["jump", "zeroth"] < 0.5 * error["jump", "first"]
    assert error["bowl", "mixed"] < 0.4 * error["bowl", "zeroth"]


def test_share_by_hand():
    # the same samples: nothing to choose; first without scatter: all of it; disagreement counts against it
    one = torch.tensor([[1.0], [3.0]], dtype=F64)
    assert first_order_share(one, one) == 1.0
    assert first_order_share(torch.full_like(one, 2.0), one) == 1.0
    # v1 = 0, v0 = 1 of the mean, c = 0, means apart by 4, which is too much for chance: alpha = 1 / 16
    assert first_order_share(torch.full_like(one, 6.0), one) == pytest.approx(1 / 16)
    # both scatter alike and independently: half of each
    a, b = torch.tensor([[1.0], [1], [-1], [-1]]), torch.tensor([[1.0], [-1], [1], [-1]])
    assert first_order_share(a, b) == pytest.approx(0.5)


@pytest.mark.parametrize("order", ORDERS)
def test_seeds(order):
    losses = lambda x: x.square().sum(-1).sqrt()  # noqa: E731
    x = torch.tensor([0.3, -0.2], dtype=F64)
    smooth, again, other = (Smoothing(16, order=order, seed=s) for s in (5, 5, 6))
    first, second = gradient(smooth, losses, x, 0.1), gradient(smooth, losses, x, 0.1)
    assert torch.equal(first, gradient(again, losses, x, 0.1))
    assert torch.equal(second, gradient(again, losses, x, 0.1))
    assert not torch.equal(first, second)
    assert not torch.equal(first, gradient(other, losses, x, 0.1))


def test_zeroth_order_needs_losses_only():
    # numbers from elsewhere, which torch cannot differentiate
    losses = lambda x: torch.tensor([sum(row) for row in x.tolist()], dtype=F64)  # noqa: E731
    found = gradient(Smoothing(4000, order="zeroth", seed=13), losses, torch.tensor([0.1, 0.3], dtype=F64), 0.2)
    torch.testing.assert_close(found, torch.ones(2, dtype=F64), rtol=0.0, atol=0.1)


def test_what_is_not_perturbed_keeps_its_gradient():
    # x only in its first entry, and a weight that is no input at all
    weight = torch.tensor(2.0, dtype=F64, requires_grad=True)
    noise = torch.tensor([0.1, 0.0], dtype=F64)
    for order in ORDERS:
        weight.grad = None
        losses = lambda x: weight * x[:, 1] + x[:, 0]  # noqa: E731
        found = gradient(Smoothing(8, order=order), losses, torch.ones(2, dtype=F64), noise)
        assert found[1].item() == 2.0
        assert weight.grad is not None
        assert weight.grad.item() == pytest.approx(1.0)


def moving(sim: pb.Sim) -> pb.State:
    """The motor drives at the ball, which spins and rolls, and they meet halfway through the rollout."""
    state = sim.initial_state()
    # a little into the ground: exactly on it, noise finds both sides of a kink, however small
    state.q[0, 3] -= 1e-5
    state.q[0, 4:] = torch.nn.functional.normalize(torch.tensor([0.1, 0.2, -0.3, 0.9], dtype=F64), dim=0)
    state.qd[0] = torch.tensor([0.8, 0.2, 0.4, -0.3, 0.1, 0.05, 0.0], dtype=F64)
    return state


def leaves(sim: pb.Sim) -> list[torch.Tensor]:
    state, generator = moving(sim), torch.Generator().manual_seed(7)
    controls = 0.5 + 0.1 * torch.randn(STEPS, 1, 1, dtype=F64, generator=generator)
    return [x.clone().requires_grad_() for x in (state.q, state.qd, controls)]


def spread_loss(motion: pb.Trajectory) -> torch.Tensor:
    return (motion.q[-1] * torch.linspace(1.0, 2.0, motion.q.shape[-1], dtype=F64)).sum(-1)


def test_without_noise_it_is_the_plain_gradient(sim):
    plain, small = leaves(sim), leaves(sim)
    spread_loss(sim.rollout(pb.State(plain[0], plain[1]), plain[2])).sum().backward()
    smooth = Smoothing(4, seed=8)
    state = pb.State(small[0], small[1])
    smooth.rollout(sim, state, small[2], spread_loss, controls_noise=1e-9, q_noise=1e-9, qd_noise=1e-9).backward()
    quat = plain[0].detach()[0, 4:]
    for a, b in zip(plain, small):
        assert a.grad is not None
        assert b.grad is not None
        if a is plain[0]:
            # along a quaternion itself there is nothing to move
            a.grad[0, 4:] -= (a.grad[0, 4:] @ quat) * quat
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-5, atol=1e-6 * a.grad.abs().max().item())


@pytest.mark.parametrize("order", ORDERS)
def test_rollout_of_one_input_agrees_with_differences(sim, order):
    # the smoothed loss over the motor's start, with the same noise on both sides of a central difference
    def loss(order: Order, shift: float) -> tuple[torch.Tensor, torch.Tensor]:
        qd = moving(sim).qd
        qd[0, 0] += shift
        qd.requires_grad_()
        noise = torch.zeros(sim.nv, dtype=F64)
        noise[0] = 0.4
        state = pb.State(moving(sim).q, qd)
        smooth = Smoothing(256, order=order, seed=11)
        return smooth.rollout(sim, state, STEPS, lambda motion: motion.q[-1, :, 1], qd_noise=noise), qd

    value, qd = loss(order, 0.0)
    value.backward()
    with torch.no_grad():
        slope = (loss("first", 1e-5)[0] - loss("first", -1e-5)[0]).item() / 2e-5
    assert qd.grad is not None
    # with the first order this is the derivative of the very number; the others estimate it
    assert qd.grad[0, 0].item() == pytest.approx(slope, rel=1e-4 if order == "first" else 0.25)


def ball_from_goal(sim: pb.Sim, smooth: Smoothing | None, epochs: int = 40) -> float:
    """Return how far from 0.45 m the ball is after learning a ramp of the motor's target by its end."""
    ramp = torch.linspace(0.0, 1.0, STEPS, dtype=F64)[:, None, None]
    reach = torch.zeros(1, dtype=F64, requires_grad=True)
    start = sim.initial_state()

    def losses(reach: torch.Tensor) -> torch.Tensor:
        state = pb.State(start.q.expand(len(reach), -1), start.qd.expand(len(reach), -1))
        return (sim.rollout(state, ramp * reach)[-1].q[:, 1] - 0.45).square()

    optimizer = torch.optim.Adam([reach], lr=0.04)
    for epoch in range(epochs):
        optimizer.zero_grad()
        sigma = 0.25 * (1.0 - epoch / epochs)
        (losses(reach[None]).mean() if smooth is None else smooth(losses, (reach, sigma))).backward()
        optimizer.step()
    return losses(reach.detach()[None]).sqrt().item()


def test_ball_is_not_found_by_the_plain_gradient(sim):
    assert ball_from_goal(sim, None) == pytest.approx(0.2, abs=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_ball_is_found_by_smoothing(sim, order):
    assert ball_from_goal(sim, Smoothing(32, order=order, seed=0)) < 0.02


def test_refusals(sim):
    x, state = torch.zeros(2, dtype=F64), sim.initial_state()
    for worlds in (3, 0, True):
        with pytest.raises(pb.PullbackError, match="an even number from 2 on"):
            Smoothing(worlds)
    with pytest.raises(pb.PullbackError, match="an even number from 4 on"):
        Smoothing(2, order="mixed")
    with pytest.raises(pb.PullbackError, match="choose 'first' or 'zeroth' or 'mixed'"):
        Smoothing(order="second")  # pyright: ignore[reportArgumentType]
    smooth = Smoothing(4)
    with pytest.raises(pb.PullbackError, match="nothing to perturb"):
        smooth(lambda: x)
    with pytest.raises(pb.PullbackError, match="not negative"):
        smooth(lambda x: x[:, 0], (x, -1.0))
    with pytest.raises(pb.PullbackError, match="broadcasts"):
        smooth(lambda x: x[:, 0], (x, torch.ones(3)))
    with pytest.raises(pb.PullbackError, match=r"expected one number a world, \(4,\)"):
        smooth(lambda x: x.sum(), (x, 1.0))
    with pytest.raises(pb.PullbackError, match="4 of 4 perturbed worlds"):
        smooth(lambda x: x[:, 0] / 0.0 * 0.0, (x, 1.0))
    with pytest.raises(pb.PullbackError, match=r"state\[0\]"):
        smooth.rollout(sim, sim.initial_state(2), 3, spread_loss, qd_noise=0.1)
    with pytest.raises(pb.PullbackError, match=r"\(T, 1, 1\)"):
        smooth.rollout(sim, state, torch.zeros(3, 2, 1, dtype=F64), spread_loss, qd_noise=0.1)
