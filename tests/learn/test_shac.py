"""SHAC: returns and losses by hand, a policy that improves, runs that resume bit for bit, mistakes that are named."""

import warnings

import pytest
import torch

from pullback.core.errors import GradientError, PullbackError
from pullback.core.search_loop import Checkpoint
from pullback.learn import SHAC, Config, evaluate, load_policy, make, save_policy, train
from pullback.learn.critics import td_returns
from pullback.learn.networks import Normalizer, Policy
from pullback.learn.window import collect
from tests.learn.scenes import NoGradient, Runaway, Sparse

F64 = torch.float64


def act(run):
    """Return the steps of an iteration."""
    return collect(run.env, run, run.horizon, run.config.discount)


def networks(run):
    """Return all weights of a run."""
    modules = (run.policy, run.critics.networks, run.critics.targets)
    return [x for module in modules for x in module.state_dict().values()]


# small networks and few passes: these tests are about what is computed, not about how well it learns
SMALL = {"actor_hidden": (8,), "critic_hidden": (8,), "critic_passes": 2, "horizon": 4}


def test_cart_pole_learns_to_swing_up():
    env, unseen = make("cart-pole", 16, seed=1), make("cart-pole", 32, seed=9)
    # a shorter memory than published, and fewer passes: it learns in seconds
    config = Config.of(env, iterations=70, horizon=48, discount=0.95, critic_passes=4, critic_rate=5e-3)
    run = SHAC(env, config)
    before = evaluate(unseen, run.policy, 9).mean()
    for _ in range(config.iterations):
        run.iterate()
    after = evaluate(unseen, run.policy, 9).mean()
    # hanging and swaying is worth about -1,900, swinging up at once and standing about -500
    assert before < -1500.0
    assert after > -900.0
    assert all(report.lost == report.broken == 0 for report in run.history)
    assert run.history[-1].steps == 70 * 48 * 16


def test_without_a_critic_it_is_back_propagation_through_time():
    env = make("pendulum", 8, links=1, seed=1)
    run = SHAC(env, Config.of(env, iterations=25, horizon=60, critic=False))
    before = evaluate(env, run.policy, 3).mean()
    for _ in range(run.config.iterations):
        run.iterate()
    after = evaluate(env, run.policy, 3).mean()
    # hanging is worth -4 a step, standing 0
    assert before < -850.0
    assert after > -400.0
    assert all(report.value_loss == 0.0 for report in run.history)


def test_td_returns_are_the_weighted_mean_of_n_step_returns():
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(2, 5, 1, dtype=F64, generator=generator)
    ends = torch.zeros(5, 1, dtype=torch.bool)
    ends[2] = True
    discount, trace = 0.9, 0.7
    found = td_returns(rewards, values, ends, discount, trace)

    def n_step(t, n):
        return sum(discount**k * rewards[t + k] for k in range(n)) + discount**n * values[t + n - 1]

    for t in range(5):
        # steps that are left in the episode, or to the horizon
        left = 3 - t if t < 3 else 5 - t
        mean = sum((1 - trace) * trace ** (n - 1) * n_step(t, n) for n in range(1, left))
        expected = mean + trace ** (left - 1) * n_step(t, left)
        torch.testing.assert_close(found[t], expected)


@pytest.mark.parametrize("critic", [True, False])
def test_the_loss_is_the_discounted_return_of_each_piece_of_an_episode(critic):
    env = make("cart-pole", 3, dtype=F64)
    env.episode = 3
    run = SHAC(env, Config.of(env, **{**SMALL, "horizon": 5, "critic": critic}))
    env.reset(1)
    window = act(run)
    rewards, values = window.rewards, window.values
    assert window.ends.nonzero()[:, 0].tolist() == [2, 2, 2]
    g = run.config.discount
    first = rewards[0] + g * rewards[1] + g**2 * rewards[2] + g**3 * values[2]
    second = rewards[3] + g * rewards[4] + g**2 * values[4]
    torch.testing.assert_close(window.loss.detach(), -(first + second) / 5)
    assert bool((values != 0.0).all()) is critic
    # and its gradient passes through the state, not only from an action to its own reward
    (slope,) = torch.autograd.grad(window.loss.sum(), window.actions[0], retain_graph=True)
    (own,) = torch.autograd.grad(window.reward_graph, window.actions[4])
    assert (slope != 0.0).all()
    assert (own != 0.0).all()


def test_the_policy_moves_down_its_loss():
    env = make("cart-pole", 4, dtype=F64)
    run = SHAC(env, Config.of(env, **SMALL, actor_rate=1e-4))
    env.reset(1)
    state, noise = env.save_state(), run.random.get_state()
    before = act(run)
    run._improve_policy(before)
    env.load_state(state)
    run.random.set_state(noise)
    assert act(run).loss.sum() < before.loss.sum()


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path):
    def fresh():
        env = make("cart-pole", 4, seed=2, pole_mass=(0.2, 0.4))
        # episodes end on both sides of the interruption
        env.episode = 7
        return SHAC(env, Config.of(env, **SMALL, iterations=6))

    whole = fresh()
    for _ in range(6):
        whole.iterate()
    half = fresh()
    for _ in range(3):
        half.iterate()
    Checkpoint(half, tmp_path / "run.pt", half.settings).save()
    resumed = fresh()
    Checkpoint(resumed, tmp_path / "run.pt", resumed.settings).resume()
    assert resumed.done == 3
    for _ in range(3):
        resumed.iterate()
    for a, b in zip(networks(whole), networks(resumed)):
        assert torch.equal(a, b)
    for a, b in zip(whole.history, resumed.history):
        for name in ("step_reward", "value_loss", "gradient_norm", "gradient_by_step"):
            assert getattr(a, name) == getattr(b, name)
    assert torch.equal(whole.env.state.q, resumed.env.state.q)


def test_a_checkpoint_of_another_environment_is_refused(tmp_path):
    path = tmp_path / "run.pt"
    env = make("cart-pole", 2)
    train(env, Config.of(env, **SMALL, iterations=1), checkpoint=path, progress=False)
    other = make("pendulum", 2)
    with pytest.raises(PullbackError, match="was written with environment = 'CartPole', now it is 'Pendulum'; give"):
        train(other, Config.of(other, **SMALL, iterations=1), checkpoint=path, resume=True, progress=False)
    longer = Config.of(env, **{**SMALL, "horizon": 5}, iterations=1)
    with pytest.raises(PullbackError, match="was written with horizon = 4, now it is 5"):
        train(env, longer, checkpoint=path, resume=True, progress=False)
    with pytest.raises(PullbackError, match="resume without a checkpoint; say which file"):
        train(env, resume=True)


@pytest.mark.parametrize("kind", [NoGradient, Sparse])
def test_a_reward_that_does_not_depend_on_actions_is_refused(kind):
    env = kind(2)
    with pytest.raises(PullbackError, match=f"the reward of {kind.__name__} does not depend on the actions: in 4"):
        SHAC(env, Config.of(env, **SMALL)).iterate()


def test_worlds_that_break_do_not_stop_the_others():
    env = Runaway(3)
    run = SHAC(env, Config.of(env, **SMALL, log_std=1.0))
    for _ in range(8):
        run.iterate()
    last = run.history[-1]
    assert last.broken > 0
    assert all(torch.tensor(report.gradient_norm).isfinite() for report in run.history)
    assert all(p.isfinite().all() for p in run.policy.parameters())
    assert run.policy.normalizer.mean.isfinite().all()


class Spoiled(torch.autograd.Function):
    """Numbers (B, n) whose gradient is not finite in world 1: an error on a CPU, NaN on a GPU, as of a simulation."""

    @staticmethod
    def forward(ctx, x, raises):
        ctx.raises = raises
        return x.clone()

    @staticmethod
    def backward(ctx, adj):
        adj = adj.clone()
        # a simulation computes nothing for a world that nothing is asked of
        if (adj[1] != 0.0).any():
            if ctx.raises:
                raise GradientError("the gradient of a step is not finite", [1])
            adj[1] = torch.nan
        return adj, None


@pytest.mark.parametrize("raises", [True, False])
def test_a_world_whose_gradient_is_not_finite_is_left_out(raises, monkeypatch):
    env = make("cart-pole", 3, dtype=F64)
    state = env.save_state()
    config = Config.of(env, **SMALL)
    expected = SHAC(env, config)
    window = act(expected)
    window.loss = window.loss * torch.tensor([1.0, 0.0, 1.0])
    expected._improve_policy(window)

    env.load_state(state)
    run = SHAC(env, config)
    monkeypatch.setattr(env, "control", lambda action: Spoiled.apply(action, raises))
    slopes, norm = run._improve_policy(act(run))
    assert slopes.lost.item() == pytest.approx(1 / 3)
    assert norm > 0.0
    for a, b in zip(run.policy.parameters(), expected.policy.parameters()):
        torch.testing.assert_close(a, b)


def test_the_policy_stays_as_it_is_where_no_world_has_a_gradient():
    env = make("cart-pole", 3, dtype=F64)
    run = SHAC(env, Config.of(env, **SMALL))
    window = act(run)
    window.loss = window.loss * torch.nan
    before = [p.detach().clone() for p in run.policy.parameters()]
    slopes, norm = run._improve_policy(window)
    assert slopes.lost == 1.0
    assert norm != norm
    assert slopes.by_action.shape == (4, 3, 1)
    assert all(torch.equal(p, q) for p, q in zip(run.policy.parameters(), before))


def test_the_normaliser_has_mean_and_variance_of_all_it_saw():
    x = 3.0 + 2.0 * torch.randn(100, 4, dtype=F64, generator=torch.Generator().manual_seed(0))
    normalizer = Normalizer(4, F64)
    for piece in x.split(17):
        normalizer.update(piece)
    normalizer.update(torch.full((1, 4), torch.nan, dtype=F64))
    torch.testing.assert_close(normalizer.mean, x.mean(0))
    torch.testing.assert_close(normalizer.var, x.var(0, unbiased=False))


def test_a_policy_is_saved_with_its_normaliser(tmp_path):
    policy = Policy(5, 2, (8,))
    with pytest.raises(PullbackError, match="the policy has no normaliser, or one that has seen no observation"):
        save_policy(policy, tmp_path / "policy.pt")
    x = 2.0 + torch.randn(20, 5)
    policy.normalizer.update(x)
    again = load_policy(save_policy(policy, tmp_path / "policy.pt"))
    assert torch.equal(again(x), policy(x))
    with pytest.raises(PullbackError, match=r"the observation is \(20, 3\); this policy was made for \(B, 5\)"):
        policy(x[:, :3])


def test_a_policy_is_exported_with_its_normaliser(tmp_path, capfd):
    for name in ("onnx", "onnxscript"):
        pytest.importorskip(name)
    onnxruntime = pytest.importorskip("onnxruntime")
    from pullback.learn import export_onnx

    policy = Policy(5, 2, (8,))
    with pytest.raises(PullbackError, match="the policy has no normaliser"):
        export_onnx(policy, tmp_path / "policy.onnx")
    policy.normalizer.update(2.0 + 3.0 * torch.randn(50, 5))
    with torch.no_grad():
        policy.mean[-1].weight.mul_(100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert export_onnx(policy, tmp_path / "policy.onnx") < 1e-5
    assert "torchvision" not in capfd.readouterr().err
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    x = torch.randn(3, 5)
    (found,) = session.run(None, {"observation": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), policy(x).detach(), atol=1e-5, rtol=0)
    assert abs(found).max() > 0.1


def test_settings_that_make_no_sense_are_refused():
    env = make("cart-pole", 2)
    with pytest.raises(PullbackError, match=r"no option of shac.Config named 'horizn'; did you mean 'horizon'"):
        Config.of(env, horizn=3)
    with pytest.raises(PullbackError, match="horizon is 0; give at least 1"):
        Config(horizon=0)
    with pytest.raises(PullbackError, match=r"discount is 1.5; give a number from 0 to 1"):
        Config(discount=1.5)
