"""Objectives of temperature histories: exact cases, differences, and what they refuse."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import pullback as pb
import pullback.thermal as th

LOW, HIGH = 823.0, 993.0


def cooling(steps=4000, end=20.0, ambient=300.0, start=1900.0, tau=4.0):
    """Return times and temperatures of exponential cooling."""
    t = torch.linspace(0.0, end, steps + 1, dtype=torch.float64)
    return t, (ambient + (start - ambient) * torch.exp(-t / tau))[:, None]


def random_history(steps=40, points=3, seed=0, low=600.0, high=1900.0):
    """Return times and wild temperatures that cross everything."""
    generator = torch.Generator().manual_seed(seed)
    t = torch.cumsum(0.05 + 0.1 * torch.rand(steps + 1, generator=generator, dtype=torch.float64), 0)
    return t, low + (high - low) * torch.rand(steps + 1, points, generator=generator, dtype=torch.float64)


def test_history_error_is_the_mean_square():
    T = torch.tensor([[300.0, 310.0], [320.0, 330.0]])
    assert float(th.history_error(T, T + 2.0)) == 4.0


def test_heat_treatment_time_tends_to_the_dwell_time():
    t, T = cooling()
    exact = 4.0 * np.log((HIGH - 300.0) / (LOW - 300.0))
    errors = [abs(float(th.heat_treatment_time(T, t, LOW, HIGH, width)) - exact) for width in (20.0, 10.0, 5.0, 2.5)]
    assert errors[-1] < 1e-3 * exact
    # an error of second order in the width
    assert all(3.0 < a / b < 5.0 for a, b in pairwise(errors))


def test_heat_treatment_time_of_a_hold_is_its_length():
    T = torch.full((11, 2), 900.0)
    T[:, 1] = 300.0
    found = th.heat_treatment_time(T, np.linspace(0.0, 5.0, 11), LOW, HIGH, width=5.0)
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx([5.0, 0.0], abs=1e-5)


def test_melt_pool_depth_of_straight_profiles():
    depths = [0.0, 0.5e-3, 1.0e-3, 2.0e-3]
    slope = torch.tensor([1.0e6, 4.0e5, 1.0e5], dtype=torch.float64)
    profile = 2000.0 - slope[:, None] * torch.tensor(depths, dtype=torch.float64)
    exact = torch.minimum((2000.0 - 1550.0) / slope, torch.tensor(2.0e-3))
    assert torch.allclose(th.melt_pool_depth(profile, depths, 1550.0), exact, rtol=1e-12)


def test_melt_pool_depth_counts_what_is_molten_below_a_cold_surface():
    profile = torch.tensor([[1000.0, 2000.0, 1000.0]], dtype=torch.float64)
    assert float(th.melt_pool_depth(profile, [0.0, 1.0, 2.0], 1500.0)) == pytest.approx(1.0)


def test_melt_pool_depth_has_a_gradient_where_nothing_or_everything_melts():
    profile = torch.tensor([[900.0, 800.0, 700.0], [2000.0, 1900.0, 1800.0]], dtype=torch.float64, requires_grad=True)
    depth = th.melt_pool_depth(profile, [0.0, 0.5e-3, 1e-3], 1500.0)
    assert depth.tolist() == [0.0, 1e-3]
    (gradient,) = torch.autograd.grad(depth.sum(), profile)
    # the hottest where nothing melts, the coldest where all is molten
    rate = 1e-3 / 1500.0
    assert torch.allclose(gradient, torch.tensor([[rate, 0.0, 0.0], [0.0, 0.0, rate]], dtype=torch.float64))
    signed = th.melt_pool_depth(profile, [0.0, 0.5e-3, 1e-3], 1500.0, signed=True)
    assert signed.tolist() == pytest.approx([-600.0 * rate, 1e-3 + 300.0 * rate])


def test_melt_pool_depth_is_continuous():
    profile = torch.stack([torch.linspace(1400.0, 2600.0, 20001), torch.linspace(1200.0, 2000.0, 20001)], 1).double()
    profile = torch.cat([profile, profile[:, 1:] - 100.0], 1)
    depth = th.melt_pool_depth(profile, [0.0, 1.0, 2.0], 1500.0, signed=True)
    assert float(depth.diff().abs().max()) < 1e-3
    assert bool((depth.diff() > 0).all())


def test_cooling_rate_of_a_constant_rate_and_of_an_exponential():
    t = torch.linspace(0.0, 2.0, 41, dtype=torch.float64)
    ramps = 1900.0 - t[:, None] * torch.tensor([400.0, 250.0, 10.0], dtype=torch.float64)
    rates = th.cooling_rate_at_solidification(ramps, t, 1533.0, 1609.0)
    assert rates[:2].tolist() == pytest.approx([400.0, 250.0], rel=1e-6)
    assert float(rates[2]) < 1e-6
    t, T = cooling()
    rate = th.cooling_rate_at_solidification(T, t, 1533.0, 1609.0)
    assert float(rate) == pytest.approx((0.5 * (1533.0 + 1609.0) - 300.0) / 4.0, rel=1e-3)


def test_cooling_rate_does_not_count_heating():
    t = torch.linspace(0.0, 3.0, 31, dtype=torch.float64)
    up_and_down = torch.where(t < 1.0, 1000.0 + 900.0 * t, 1900.0 - 300.0 * (t - 1.0))[:, None]
    assert float(th.cooling_rate_at_solidification(up_and_down, t, 1533.0, 1609.0)) == pytest.approx(300.0, rel=1e-6)


def test_spent_energy():
    power = torch.tensor([100.0, 200.0, 300.0])
    assert float(th.spent_energy(power, 0.5)) == 300.0
    assert float(th.spent_energy(power, 0.5, on=[True, False, True])) == 200.0


def test_gradients_agree_with_differences():
    t, T = random_history(steps=20)
    T.requires_grad_()
    checks = [
        lambda x: th.history_error(x, torch.full_like(x, 900.0)),
        lambda x: th.heat_treatment_time(x, t, LOW, HIGH, 20.0),
        lambda x: th.cooling_rate_at_solidification(x, t, 1533.0, 1609.0),
        lambda x: th.melt_pool_depth(x, [0.0, 1e-3, 3e-3], 1500.0, signed=True),
        lambda x: th.spent_energy(x[:, 0], 0.1, on=np.arange(len(x)) % 3 > 0),
        lambda x: th.weighted_sum({"a": x.square().mean(), "b": x.sum()}, {"a": 2.0, "b": -3.0}),
    ]
    for check in checks:
        scale = float(check(T).detach().abs().max())
        assert gradcheck(check, (T,), eps=1e-4, atol=1e-9 * scale, rtol=1e-5)


def test_weighted_sum_and_sweep_find_the_front_of_two_parabolas():
    def objectives(x):
        return {"left": (x + 1.0).square().sum(), "right": (x - 1.0).square().sum()}

    def minimise(loss, start):
        x = start.clone().requires_grad_()
        optimizer = torch.optim.LBFGS([x], line_search_fn="strong_wolfe")

        def closure():
            optimizer.zero_grad()
            value = loss(x)
            value.backward()
            return value

        optimizer.step(closure)
        return x.detach()

    shares = [0.1, 0.3, 0.5, 0.7, 0.9]
    weights = [{"left": share, "right": 1.0 - share} for share in shares]
    front = th.pareto_sweep(objectives, weights, minimise, torch.zeros(1, dtype=torch.float64))
    for share, point in zip(shares, front):
        assert float(point.design) == pytest.approx(1.0 - 2.0 * share, abs=1e-6)
        assert point.objectives["left"] == pytest.approx((2.0 - 2.0 * share) ** 2, abs=1e-5)
    assert not any(point.dominated for point in front)


def test_a_point_that_another_beats_is_dominated():
    points = [{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 2.0}, {"a": 2.0, "b": 3.0}, {"a": 3.0, "b": 1.0}]
    assert th.dominated(points).tolist() == [False, False, True, False]


T_ONE = torch.full((3, 1), 900.0)
TIMES = [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: th.heat_treatment_time(T_ONE, TIMES, 993.0, 823.0), "low is 993 K and high 823 K; low must be below"),
        (lambda: th.heat_treatment_time(T_ONE, TIMES, 823.0, 993.0, 0.0), "width is 0; expected a positive"),
        (lambda: th.heat_treatment_time(T_ONE[:, :0], TIMES, 1.0, 2.0), r"shape \(3, 0\).*give the run probes"),
        (lambda: th.heat_treatment_time(T_ONE, [0.0, 1.0], 1.0, 2.0), r"times have shape \(2,\)"),
        (lambda: th.heat_treatment_time(T_ONE, [0.0, 1.0, 1.0], 1.0, 2.0), r"times\[2\] = 1 s after 1 s"),
        (lambda: th.cooling_rate_at_solidification(T_ONE, TIMES, 1609.0, 1533.0), "solidus must be below liquidus"),
        (lambda: th.melt_pool_depth(T_ONE, [0.0], 1500.0), "expected two or more"),
        (lambda: th.melt_pool_depth(T_ONE, [1e-3, 0.0], 1500.0), "increasing"),
        (lambda: th.melt_pool_depth(T_ONE, [0.0, 1e-3], 1500.0), r"expected \(N, 2\), a column a depth"),
        (lambda: th.history_error(T_ONE, T_ONE[:2]), r"the target has shape \(2, 1\)"),
        (lambda: th.history_error(T_ONE[:0], T_ONE[:0]), "no temperatures to compare"),
        (lambda: th.spent_energy(T_ONE[:, 0], 0.1, on=[True]), r"on has shape \(1,\)"),
        (lambda: th.weighted_sum({"time": T_ONE[0]}, {"tme": 1.0}), "no objective named 'tme'; did you mean 'time'"),
        (lambda: th.weighted_sum({"time": T_ONE}, {"time": 1.0}), r"shape \(3, 1\); expected one number"),
        (lambda: th.weighted_sum({"time": T_ONE}, {}), "no weights"),
        (lambda: th.pareto_sweep(dict, [], lambda loss, x: x, None), "no weights"),
    ],
)
def test_bad_input(call, text):
    with pytest.raises(pb.PullbackError, match=text):
        call()
