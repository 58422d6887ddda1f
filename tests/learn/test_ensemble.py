"""The ensemble learns a noisy linear system and its noise; first-order errors grow with the action's change."""

import pytest
import torch

from pullback.core.errors import PullbackError
from pullback.learn import make
from pullback.learn.ensemble import Ensemble, EnsembleConfig
from pullback.learn.first_order import FirstOrderErrors, first_order_errors

NOISE = 0.1
"""Standard deviation of the reward."""


def linear_rows(seeds, count, random):
    observation, action = (torch.randn(seeds, count, n, generator=random) for n in (2, 1))
    after = observation + 0.5 * action + torch.tensor([0.1, -0.2])
    reward = observation.sum(-1) + NOISE * torch.randn(seeds, count, generator=random)
    return {"observation": observation, "action": action, "next": after, "reward": reward}


def test_it_learns_mean_and_noise_of_each_seed():
    random = torch.Generator().manual_seed(0)
    config = EnsembleConfig(hidden=(32, 32), members=4, elites=2, batch=64, rate=5e-3, most_passes=25)
    model = Ensemble(2, (2, 1), config)
    rows = linear_rows(2, 800, random)
    # the second seed's system is another one
    rows["reward"][1] = -rows["reward"][1]
    before = model._error(torch.zeros(8, 1, 6)).clone()
    error, passes = model.fit(rows, random)
    assert 1 <= passes <= 25
    assert error < 0.02
    assert not torch.equal(before, model._error(torch.zeros(8, 1, 6)))
    assert model.elites.shape == (2, 2)
    fresh = linear_rows(2, 400, random)
    reward, after = model.predict(fresh["observation"], fresh["action"], random)
    assert (after - fresh["next"]).abs().mean() < 0.1
    sign = torch.tensor([[1.0], [-1.0]])
    off = reward - sign * fresh["observation"].sum(-1)
    assert off.mean(1).abs().max() < 0.05
    # the noise that it predicts is that of the system
    assert 0.6 * NOISE < off[0].std() < 2.0 * NOISE


def test_predictions_far_from_what_was_seen_are_not_believed():
    model = Ensemble(2, (2, 1), EnsembleConfig(hidden=(8,), members=3, elites=1, most_passes=1))
    model.mean[1], model.std[1] = 50.0, 0.1
    after = torch.tensor([[0.0, 0.0], [99.0, -99.0], [0.0, 101.0], [torch.nan, 0.0]]).expand(2, 4, 2).clone()
    reward = torch.zeros(2, 4)
    assert model.believes(reward, after).tolist() == [[True, True, False, False], [False] * 4]
    reward[0, 0] = torch.inf
    assert model.believes(reward, after)[0].tolist() == [False, True, False, False]


def test_the_best_weights_are_kept():
    random = torch.Generator().manual_seed(1)
    config = EnsembleConfig(hidden=(8,), members=3, elites=1, batch=64, rate=0.3, most_passes=6)
    model, rows = Ensemble(1, (2, 1), config), linear_rows(1, 200, random)
    errors, plain = [], model._error
    model._error = lambda pairs: errors.append(plain(pairs)) or errors[-1]  # type: ignore[method-assign]
    error, _ = model.fit(rows, random)
    # with this rate errors go up and down; a gain of less than a hundredth does not count
    assert error <= 1.02 * torch.stack(errors).amin().item()


def test_a_transition_is_held_out_with_all_samples_around_it():
    random, copies = torch.Generator().manual_seed(3), 4
    model = Ensemble(2, (2, 1), EnsembleConfig(hidden=(8,), members=3, elites=1, batch=16, most_passes=3))
    picked, plain = [], model._pick
    model._pick = lambda x, rows: picked.append(rows) or plain(x, rows)  # type: ignore[method-assign]
    model.fit(linear_rows(2, 50 * copies, random), random, copies)
    test, train = picked[0], torch.cat(picked[1:], 1)
    # true ones come first of their group
    assert test.shape == (6, 10)
    assert bool((test % copies == 0).all())
    # a pass takes one in `copies`
    assert train.shape == (6, 3 * 40)
    for held, seen in zip(test // copies, train // copies):
        assert not set(held.tolist()) & set(seen.tolist())
    assert set((train % copies).flatten().tolist()) == set(range(copies))


def test_errors_of_first_order_samples_grow_with_the_radius():
    env = make("swing-up", 4, links=2, dtype=torch.float64)
    for _ in range(3):
        env.step(torch.full((4, 2), 0.7, dtype=torch.float64))
    state = env.state.q.clone()
    random = torch.Generator().manual_seed(0)
    found = first_order_errors(env, torch.zeros(4, 2, dtype=torch.float64), random, (1e-3, 1e-2, 1e-1))
    assert torch.equal(env.state.q, state)
    middle = found.observation.median(1).values
    assert (middle.diff() > 0.0).all()
    # the error over the change is linear in the change
    assert 3.0 < (middle[2] / middle[1]).item() < 30.0


def test_the_radius_is_the_largest_that_is_good_all_the_way():
    errors = torch.tensor([[0.01, 0.02], [0.05, 0.06], [0.3, 0.4], [0.01, 0.01]])
    found = FirstOrderErrors((1e-3, 1e-2, 0.1, 1.0), errors, errors)
    assert found.radius(0.1) == 1e-2
    # rewards count as well: a squared action is not linear
    assert found._replace(reward=2.0 * errors).radius(0.1) == 1e-3
    assert found._replace(observation=2.0 * errors).radius(0.1) == 1e-3
    with pytest.raises(PullbackError, match="give smaller radii"):
        found.radius(0.001)
