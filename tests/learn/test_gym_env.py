"""Environments as Gymnasium's: its own checker passes, and its wrappers count what we count."""

import warnings

import numpy as np
import pytest

from pullback.core.errors import PullbackError
from pullback.learn import make

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from pullback.learn.gym_env import GymEnv, GymVectorEnv  # noqa: E402


def test_gymnasium_checks_one_world():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # it has no spec to be made from again, and observations without bounds
        warnings.filterwarnings("ignore", message=".*(spec|infinity).*")
        check_env(GymEnv(make("cart-pole", 1)), skip_render_check=True)


def test_many_worlds_are_a_vector_env():
    env = GymVectorEnv(make("cart-pole", 3))
    env.env.episode = 4
    counted = gymnasium.wrappers.vector.RecordEpisodeStatistics(env)
    first, _ = counted.reset(seed=5)
    assert first in env.observation_space
    for t in range(1, 9):
        actions = env.action_space.sample()
        observation, reward, terminated, truncated, infos = counted.step(actions)
        assert observation in env.observation_space
        assert (reward.shape, reward.dtype) == ((3,), np.float64)
        assert not terminated.any()
        assert truncated.all() == truncated.any() == (t % 4 == 0)
        if t % 4 == 0:
            assert infos["final_obs"][1] in env.single_observation_space
            assert not np.allclose(infos["final_obs"][1], observation[1])
            assert infos["episode"]["l"].tolist() == [4, 4, 4]
    again, _ = env.reset(seed=5)
    np.testing.assert_array_equal(first, again)


def test_what_does_not_fit_is_said():
    with pytest.raises(PullbackError, match="the environment has 2 worlds; make it with worlds=1"):
        GymEnv(make("cart-pole", 2))
    with pytest.raises(PullbackError, match="a seed for each world was given; give one number"):
        GymVectorEnv(make("cart-pole", 2)).reset(seed=[1, 2])
    with pytest.raises(PullbackError, match="reset_mask"):
        GymVectorEnv(make("cart-pole", 2)).reset(options={"reset_mask": np.ones(2, dtype=bool)})
