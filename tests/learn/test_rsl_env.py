"""rsl_rl: its PPO trains on our ant."""

import pytest
import torch

pytest.importorskip("rsl_rl")

from rsl_rl.runners import OnPolicyRunner

from pullback.learn import make
from pullback.learn.rsl_env import RslEnv, ppo_settings


def test_ppo_trains_on_the_ant():
    env = make("ant", 8, seed=1)
    env.episode = 30
    wrapped = RslEnv(env)
    runner = OnPolicyRunner(wrapped, ppo_settings(steps=16, hidden=(32,)), log_dir=None, device="cpu")
    before = [p.detach().clone() for p in runner.alg.actor.parameters()]
    runner.learn(2)
    after = list(runner.alg.actor.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, after))
    assert all(p.isfinite().all() for p in after)
    # 32 steps: every episode was truncated once and began again
    assert (wrapped.episode_length_buf <= 30).all()


def test_a_step_has_what_rsl_rl_reads():
    env = make("cart-pole", 3)
    env.episode = 2
    wrapped = RslEnv(env)
    assert (wrapped.num_envs, wrapped.num_actions, wrapped.max_episode_length) == (3, 1, 2)
    with torch.inference_mode():
        wrapped.step(torch.zeros(3, 1))
        observations, reward, done, extras = wrapped.step(torch.full((3, 1), 7.0))
    assert observations["policy"].shape == (3, 5)
    assert reward.shape == done.shape == (3,)
    assert done.tolist() == extras["time_outs"].long().tolist() == [1, 1, 1]
    assert wrapped.episode_length_buf.tolist() == [0, 0, 0]
    wrapped.episode_length_buf = torch.tensor([1, 0, 1])
    assert env.steps.tolist() == [1, 0, 1]
    # what is stepped in inference mode is still differentiable afterwards
    action = torch.zeros(3, 1, requires_grad=True)
    assert env.step(action).reward.requires_grad
