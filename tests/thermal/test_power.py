"""Power over time: within its bounds whatever the parameters, of the size the published network has, seeded."""

import pytest
import torch

import pullback as pb
import pullback.thermal as th

MAKERS = {
    "network": lambda steps, bounds, **o: th.NetworkPower(steps, bounds, **o),
    "knots": lambda steps, bounds, **o: th.KnotPower(steps, bounds, 7, **o),
    "free": lambda steps, bounds, **o: th.FreePower(steps, bounds, **o),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MAKERS)
def test_it_stays_within_its_bounds_wherever_the_optimiser_goes(name, dtype):
    power = MAKERS[name](101, (50.1, 250.3), dtype=dtype)
    for scale in (1.0, 1e3, -1e6):
        with torch.no_grad():
            for p in power.parameters():
                p.copy_(scale * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
        watts = power()
        assert watts.shape == (101,)
        assert watts.dtype == dtype
        assert watts.min() >= torch.tensor(50.1, dtype=dtype)
        assert watts.max() <= torch.tensor(250.3, dtype=dtype)


@pytest.mark.parametrize("name", MAKERS)
def test_its_gradient_is_that_of_differences(name):
    power = MAKERS[name](11, (10.0, 20.0))
    weights = torch.randn(11, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    first = next(power.parameters())
    (gradient,) = torch.autograd.grad(power() @ weights, first)
    step = torch.zeros_like(first)
    step.reshape(-1)[0] = 1e-6
    with torch.no_grad():
        first += step
        above = power() @ weights
        first -= 2.0 * step
        below = power() @ weights
    assert gradient.reshape(-1)[0].item() == pytest.approx((above - below).item() / 2e-6, rel=1e-6, abs=1e-9)


def test_the_network_is_the_published_one_and_seeded():
    power = th.NetworkPower(1000, (0.0, 1.0), seed=3)
    assert sum(p.numel() for p in power.parameters()) == 2801
    torch.testing.assert_close(power.inputs[[0, 500]], torch.tensor([[1, -0.5, 0.25], [1, 0, 0]], dtype=torch.float64))
    # spreads of the weights: sqrt(2 / fan-in) times 10, 5 and 2
    for weight, expected in zip(power.weights, (8.165, 1.0, 0.4)):
        assert weight.std().item() == pytest.approx(expected, rel=0.25)
    assert all(bias.abs().max() <= 0.5 for bias in power.biases)
    assert torch.equal(power(), th.NetworkPower(1000, (0.0, 1.0), seed=3)())
    assert not torch.equal(power(), th.NetworkPower(1000, (0.0, 1.0), seed=4)())


def test_knots_are_joined_by_straight_lines():
    start = torch.tensor([100.0, 200.0, 120.0])
    watts = th.KnotPower(5, (50.0, 250.0), 3, start=start)()
    torch.testing.assert_close(watts, torch.tensor([100.0, 150.0, 200.0, 160.0, 120.0], dtype=torch.float64))
    assert th.KnotPower(1, (50.0, 250.0), 3, start=start)().tolist() == pytest.approx([100.0])


def test_a_start_on_a_bound_can_still_move():
    power = th.FreePower(3, (0.0, 100.0), start=torch.tensor([0.0, 50.0, 100.0]))
    torch.testing.assert_close(power(), torch.tensor([1.0, 50.0, 99.0], dtype=torch.float64))
    power().sum().backward()
    assert (power.values.grad > 0.0).all()


def test_what_makes_no_sense_is_refused():
    with pytest.raises(pb.PullbackError, match=r"bounds of the power are 300 and 200 W; expected 0 ≤ low < high"):
        th.FreePower(3, (300.0, 200.0))
    with pytest.raises(pb.PullbackError, match="start is 300 W; the power is bounded to 0 to 250 W"):
        th.FreePower(3, (0.0, 250.0), start=300.0)
    with pytest.raises(pb.PullbackError, match=r"start has shape \(4,\); expected one number or \(3,\)"):
        th.FreePower(3, (0.0, 250.0), start=torch.ones(4))
    with pytest.raises(pb.PullbackError, match="knots is 1; a straight line needs two"):
        th.KnotPower(3, (0.0, 250.0), 1)
