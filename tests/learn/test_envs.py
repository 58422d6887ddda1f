"""The environments that ship: sizes, starts, ends, and rewards against numbers worked out by hand."""

from math import pi

import pytest
import torch

from pullback.core.errors import PullbackError
from pullback.learn import make
from pullback.rigid.state import State

F64 = torch.float64
SIZES = {"ant": (37, 8), "cart-pole": (5, 1), "half-cheetah": (17, 6), "hopper": (11, 3), "pendulum": (6, 2)}


@pytest.mark.parametrize("name", SIZES)
def test_a_few_steps_stay_in_order(name):
    if name == "half-cheetah":
        pytest.importorskip("mujoco")
        pytest.importorskip("gymnasium")
    env = make(name, 3, dtype=F64, seed=1)
    assert (env.observation_size, env.action_size) == SIZES[name]
    for _ in range(3):
        action = torch.rand(3, env.action_size, dtype=F64) - 0.5
        observation, reward, terminated, truncated, info = env.step(action)
        assert observation.isfinite().all()
        assert reward.isfinite().all()
        assert not (terminated | truncated | info["broken"]).any()


def state(env, q, qd):
    return State(torch.tensor([q], dtype=F64), torch.tensor([qd], dtype=F64))


def test_cart_pole_is_rewarded_for_standing():
    env = make("cart-pole", 1, dtype=F64)
    action = torch.zeros(1, 1, dtype=F64)
    upright = state(env, [0.0, 2 * pi], [0.0, 0.0])
    assert env.reward(upright, action, upright).item() == pytest.approx(0.0, abs=1e-12)
    moving = state(env, [2.0, -3.0], [0.5, 1.0])
    assert env.reward(upright, action, moving).item() == pytest.approx(-(9.0 + 0.1 + 0.05 * 4 + 0.1 * 0.25))
    assert (env.state.q[:, 1].cos() <= 0.0).all()


def test_the_pendulum_is_rewarded_for_its_tip_at_the_top():
    env = make("pendulum", 1, dtype=F64, links=3)
    action = torch.zeros(1, 3, dtype=F64)
    top, hanging = (state(env, [angle, 0.0, 0.0], [0.0] * 3) for angle in (pi / 2, -pi / 2))
    assert env.reward(top, action, top).item() == pytest.approx(0.0, abs=1e-12)
    assert env.reward(top, action, hanging).item() == pytest.approx(-4.0)
    # the tip is where the robot's kinematics has it
    bent = state(env, [0.3, -0.8, 0.4], [0.0] * 3)
    place, _ = env.world.robots["arm"].to(dtype=F64).compute_forward_kinematics(bent.q, "link-1")
    torch.testing.assert_close(env.tip(bent), place[:, 1:])


def test_the_hopper_is_rewarded_for_speed_height_and_standing():
    env = make("hopper", 1, dtype=F64)
    action = torch.full((1, 3), 0.5, dtype=F64)
    standing = state(env, [0.0, 1.25, 0.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert env.reward(standing, action, standing).item() == pytest.approx(2.0 + 0.3 + 1.0 - 0.1 * 0.75)
    low = state(env, [0.0, 1.25 - 0.4, pi / 12, 0.0, 0.0, 0.0], [0.0] * 6)
    assert env.reward(standing, 0 * action, low).item() == pytest.approx(-200.0 * 0.01 + 1.0 - 0.25)
    assert not env.terminated(low).any()
    assert env.terminated(state(env, [0.0, 0.79, 0.0, 0.0, 0.0, 0.0], [0.0] * 6)).all()


def test_the_ant_is_rewarded_for_running_along_x():
    env = make("ant", 1, dtype=F64)
    action = torch.zeros(1, 8, dtype=F64)
    ahead = state(env, [0.0, 0.0, 0.57, 0.0, 0.0, 0.0, 1.0, *[0.0] * 8], [0.0, 0.0, 0.0, 3.0, 0.0, 0.0, *[0.0] * 8])
    assert env.reward(ahead, action, ahead).item() == pytest.approx(3.0 + 0.1 + 1.0 + 0.3)
    # a quarter turn about z: its own forward is y now, where no reward is
    s = 0.5**0.5
    aside = state(env, [0.0, 0.0, 0.57, 0.0, 0.0, s, s, *[0.0] * 8], [0.0, 0.0, 0.0, 3.0, 0.0, 0.0, *[0.0] * 8])
    assert env.reward(ahead, action, aside).item() == pytest.approx(0.1 + 0.3)
    seen = env.observe(aside, action)[0]
    torch.testing.assert_close(seen[5:8], torch.tensor([0.0, 3.0, 0.0], dtype=F64))
    torch.testing.assert_close(seen[27:29], torch.tensor([1.0, 0.0], dtype=F64))
    assert env.terminated(state(env, [0.0, 0.0, 0.26, 0.0, 0.0, 0.0, 1.0, *[0.0] * 8], [0.0] * 14)).all()


def test_the_half_cheetah_is_rewarded_for_speed_and_needs_its_file(monkeypatch):
    pytest.importorskip("mujoco")
    pytest.importorskip("gymnasium")
    env = make("half-cheetah", 1, dtype=F64)
    after = state(env, [0.0] * 9, [2.0, *[0.0] * 8])
    assert env.reward(after, torch.full((1, 6), 0.5, dtype=F64), after).item() == pytest.approx(2.0 - 0.1 * 1.5)
    monkeypatch.setattr("pullback.learn.legged.find_spec", lambda name: None)
    with pytest.raises(
        PullbackError, match=r"read from gymnasium's half_cheetah.xml: pip install 'pullback\[learn,mjcf"
    ):
        make("half-cheetah", 1)
