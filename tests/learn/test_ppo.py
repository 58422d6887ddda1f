"""PPO: advantages by hand, and that it learns a task that takes one step."""

import pytest
import torch

from pullback.core.errors import PullbackError
from pullback.learn import Env, make
from pullback.learn.ppo import PPO, PPOConfig, train_ppo

F64 = torch.float64


class Guess(Env):
    """Push a pendulum as hard as an observation says: learned in a moment, if at all."""

    episode = 1
    substeps = 1

    def build(self):
        return make("pendulum", 1, dtype=F64).world

    def start(self):
        return self.uniform(-1.0, 1.0, 2), self.uniform(0.0, 0.0, 2)

    def observe(self, state, action):
        return state.q

    def reward(self, before, action, after):
        return -(action - 0.5 * before.q).square().sum(1)


def test_it_learns_to_repeat_what_it_sees():
    env = Guess(128, dtype=F64, seed=0)
    search = train_ppo(env, PPOConfig(25, horizon=1, hidden=(32,), rate=5e-3, log_std=-1.5), progress=False)
    rewards = [report.reward for report in search.history]
    assert sum(rewards[-5:]) / 5 > 0.5 * sum(rewards[:5]) / 5
    assert search.history[-1].steps == 25 * 128


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path):
    file, config = tmp_path / "ppo.pt", PPOConfig(6, horizon=2, hidden=(8,))
    whole = train_ppo(Guess(16, dtype=F64), config, checkpoint=file, progress=False)
    half, rest = PPO(Guess(16, dtype=F64), config), PPO(Guess(16, dtype=F64, seed=5), config)
    for _ in range(3):
        half.iterate()
    torch.save(half.state(), tmp_path / "half.pt")
    rest.load_state(torch.load(tmp_path / "half.pt", weights_only=True))
    while rest.done < 6:
        rest.iterate()
    assert [r.reward for r in rest.history] == [r.reward for r in whole.history]
    assert all(torch.equal(a, b) for a, b in zip(rest.policy.parameters(), whole.policy.parameters()))
    # a finished run is read back
    again = train_ppo(Guess(16, dtype=F64), config, checkpoint=file, resume=True, progress=False)
    assert [r.seconds for r in again.history] == [r.seconds for r in whole.history]
    with pytest.raises(PullbackError, match="was written with horizon = 2, now it is 3"):
        train_ppo(Guess(16, dtype=F64), PPOConfig(6, horizon=3, hidden=(8,)), checkpoint=file, resume=True)
    with pytest.raises(PullbackError, match=r"give checkpoint='file\.pt'"):
        train_ppo(Guess(16, dtype=F64), resume=True)


def test_bad_input_is_said():
    env = Guess(2, dtype=F64)
    with pytest.raises(PullbackError, match="numbers from 1 on"):
        PPO(env, PPOConfig(0))
    with pytest.raises(PullbackError, match="less than 4 batches"):
        PPO(env, PPOConfig(1, horizon=1))
