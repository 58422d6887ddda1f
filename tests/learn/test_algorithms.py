"""AHAC and SAPO: what they adapt, by hand; that they learn; that they resume bit for bit. And the parts all share."""

import pytest
import torch

from pullback.core.errors import PullbackError
from pullback.core.search_loop import Checkpoint
from pullback.learn import AHAC, SAPO, SHAC, AHACConfig, Config, SAPOConfig, evaluate, find_algorithm, make, train
from pullback.learn.ahac import growth
from pullback.learn.gradients import clip
from pullback.learn.guard import guard
from pullback.learn.networks import Policy

F64 = torch.float64
SMALL = {"actor_hidden": (8,), "critic_hidden": (8,), "critic_passes": 2}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AHAC, SAPO])
def test_it_learns_to_swing_up(kind):
    env, unseen = make("cart-pole", 16, seed=1), make("cart-pole", 32, seed=9)
    given = {"critic_hidden": (64, 64), "discount": 0.95, "critic_passes": 4, "critic_rate": 5e-3, "iterations": 70}
    horizon = {"horizon": 48, "shortest": 32} if kind is AHAC else {"horizon": 48, "temperature": 0.01}
    run = kind(env, kind.Config.of(env, **given, **horizon))
    before = evaluate(unseen, run.policy, 9).mean()
    for _ in range(run.config.iterations):
        run.iterate()
    after = evaluate(unseen, run.policy, 9).mean()
    assert before < -1500.0
    # SAPO acts at random for longer
    assert after > (-1000.0 if kind is AHAC else -1300.0)
    assert all(r.first_variance > 0.0 and r.zeroth_variance > 0.0 for r in run.history)


@pytest.mark.parametrize("kind", [AHAC, SAPO])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(kind, tmp_path):
    def fresh():
        env = make("cart-pole", 4, seed=2)
        env.episode = 7
        changes = {"horizon": 9, "horizon_rate": 1.0, "stiffness": 1.0} if kind is AHAC else {"horizon": 4}
        return kind(env, kind.Config.of(env, **SMALL, **changes, iterations=6))

    whole, half, resumed = fresh(), fresh(), fresh()
    for _ in range(6):
        whole.iterate()
    for _ in range(3):
        half.iterate()
    Checkpoint(half, tmp_path / "run.pt", half.settings).save()
    Checkpoint(resumed, tmp_path / "run.pt", resumed.settings).resume()
    for _ in range(3):
        resumed.iterate()
    for a, b in zip(whole.policy.state_dict().values(), resumed.policy.state_dict().values()):
        assert torch.equal(a, b)
    assert [r.extra for r in whole.history] == [r.extra for r in resumed.history]
    assert [r.gradient_norm for r in whole.history] == [r.gradient_norm for r in resumed.history]


def test_stiffness_is_the_factor_by_which_a_step_lengthens_the_gradient():
    lengths = torch.tensor([[8.0, 9.0], [4.0, 1.0], [2.0, 0.0]])
    found = growth(lengths)
    # the mean of logarithms; a world without gradient does not count
    torch.testing.assert_close(found, torch.tensor([(2.0 * 9.0) ** 0.5, 2.0], dtype=F64))
    assert growth(None) is None


@pytest.mark.parametrize(("grown", "way"), [(2.0, -1), (0.5, 1)])
def test_the_horizon_shrinks_where_contact_is_stiff_and_grows_where_it_is_not(grown, way, monkeypatch):
    env = make("cart-pole", 2)
    run = AHAC(env, AHACConfig.of(env, **SMALL, horizon=16, horizon_rate=0.2, stiffness=1.1))
    monkeypatch.setattr("pullback.learn.ahac.growth", lambda _: torch.full((15,), grown, dtype=F64))
    lengths = [run.length]
    for _ in range(40):
        run.adapt(None, type("Slopes", (), {"by_state": None}))
        lengths.append(run.length)
    assert (lengths[1] - lengths[0]) * way > 0.0
    assert lengths[-1] == (run.config.longest if way > 0 else run.config.shortest)
    # by hand: phi = rate (s - C) for each of 15 steps, H changes by rate times their sum
    assert lengths[1] - lengths[0] == pytest.approx(-0.2 * 15 * 0.2 * (grown - 1.1))


def test_the_temperature_falls_where_entropy_is_above_its_goal():
    env = make("cart-pole", 4, dtype=F64)
    run = SAPO(env, SAPOConfig.of(env, **SMALL, horizon=4, log_std=0.0))
    run.iterate()
    extra = run.history[-1].extra
    assert extra["entropy"] > run.goal
    assert extra["temperature"] < 1.0


@pytest.mark.parametrize("state_std", [False, True])
def test_the_density_of_actions_is_that_of_tanh_of_a_normal_distribution(state_std):
    policy = Policy(3, 2, (8,), state_std=state_std, dtype=F64)
    x = torch.randn(5, 3, dtype=F64)
    action, noise, density = policy.sample_with_noise(x, torch.Generator().manual_seed(0))
    std = policy.std(policy.normalize(x))
    normal = torch.distributions.Normal(torch.atanh(action) - std * noise, std)
    squashed = torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform())
    torch.testing.assert_close(density, squashed.log_prob(action).sum(1), rtol=1e-6, atol=1e-6)
    assert policy(x).shape == (5, 2)


def test_a_guard_cuts_worlds_whose_cotangents_are_not_finite():
    x = torch.ones(3, 2, dtype=F64, requires_grad=True)
    y = torch.ones(3, 1, dtype=F64, requires_grad=True)
    lost = torch.zeros(3, dtype=torch.bool)
    a, b = guard(lost, x, y)
    weights = torch.tensor([[1.0, 2.0], [torch.nan, 1.0], [3.0, 4.0]], dtype=F64)
    ((a * weights).sum() + b.sum()).backward()
    assert lost.tolist() == [False, True, False]
    assert x.grad.tolist() == [[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]
    assert y.grad.tolist() == [[1.0], [0.0], [1.0]]


def test_a_guard_of_many_cotangents_at_once():
    lost = torch.zeros(3, dtype=torch.bool)
    x, y = torch.ones(3, 2, requires_grad=True), torch.ones(3, 1, requires_grad=True)
    a, b = guard(lost, x, y)
    # two rows of a Jacobian; of world 1 the second is not finite
    rows = torch.stack([torch.ones(3, 2), 2.0 * torch.ones(3, 2)])
    rows[1, 1, 0] = torch.inf
    slopes, others = torch.autograd.grad((a, b), (x, y), (rows, torch.ones(2, 3, 1)), is_grads_batched=True)
    assert lost.tolist() == [False, True, False]
    assert torch.equal(slopes[:, 0], rows[:, 0])
    assert torch.equal(slopes[:, 1], torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    assert others[1].flatten().tolist() == [1.0, 0.0, 1.0]
    # a cotangent that is not one of many
    (plain,) = torch.autograd.grad(guard(lost, x, y)[0] + y, x, rows, is_grads_batched=True)
    assert torch.equal(plain[0], rows[0])


def test_a_gradient_is_clipped_and_left_out_where_it_is_not_finite():
    slopes, norm = clip([torch.tensor([3.0]), torch.tensor([4.0])], 1.0)
    assert norm == 5.0
    torch.testing.assert_close(torch.cat(slopes), torch.tensor([0.6, 0.8]))
    slopes, norm = clip([torch.tensor([torch.inf]), torch.tensor([4.0])], 1.0)
    assert torch.cat(slopes).tolist() == [0.0, 0.0]


def test_algorithms_are_found_by_name_and_take_their_own_settings():
    env = make("cart-pole", 2)
    assert find_algorithm("ahac") is AHAC
    with pytest.raises(PullbackError, match=r"no algorithm named 'shak'; did you mean 'shac'"):
        find_algorithm("shak")
    with pytest.raises(PullbackError, match="AHAC takes settings of AHACConfig, got a Config"):
        AHAC(env, Config.of(env))
    with pytest.raises(PullbackError, match=r"no option of sapo.Config named 'temprature'"):
        SAPOConfig.of(env, temprature=1.0)
    with pytest.raises(PullbackError, match="shortest is 8, horizon 4, longest 64; give 2 or more steps, in this"):
        AHACConfig.of(env, horizon=4)
    run = train(env, SAPOConfig.of(env, **SMALL, horizon=2, iterations=1), progress=False)
    assert isinstance(run, SAPO)
    assert isinstance(SHAC(env).config, Config)


def test_a_log_is_written_for_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    env = make("cart-pole", 2)
    run = train(env, AHACConfig.of(env, **SMALL, horizon=8, iterations=2), log=tmp_path, progress=False)
    events = EventAccumulator(str(tmp_path)).Reload()
    rewards = events.Scalars("train/step_reward")
    assert [x.step for x in rewards] == [r.steps for r in run.history]
    assert rewards[-1].value == pytest.approx(run.history[-1].step_reward)
    assert "adapted/horizon" in events.Tags()["scalars"]


def test_a_checkpoint_of_another_algorithm_is_refused(tmp_path):
    env, path = make("cart-pole", 2), tmp_path / "run.pt"
    train(env, SAPOConfig.of(env, **SMALL, horizon=2, iterations=1), checkpoint=path, progress=False)
    with pytest.raises(PullbackError, match="was written with algorithm = 'SAPO', now it is 'SHAC'"):
        train(env, Config.of(env, **SMALL, horizon=2), checkpoint=path, resume=True, progress=False)
