"""The environments that ship: sizes, starts, ends, and rewards against numbers worked out by hand."""

from math import pi

import pytest
import torch

from pullback.core.errors import PullbackError
from pullback.learn import make
from pullback.rigid.state import State

F64 = torch.float64
SIZES = {
    "ant": (37, 8), "ant-walk": (27, 8), "cart-pole": (5, 1), "half-cheetah": (17, 6), "hopper": (11, 3),
    "humanoid": (64, 17), "laikago": (51, 12), "pendulum": (6, 2), "swing-up": (12, 2),
}  # fmt: skip
FROM_GYMNASIUM = ("half-cheetah", "humanoid")
# few kinds of kernels: those of soft contact in float32, the others' are those of other tests
SOFT = ("ant", "hopper", "humanoid")
RIGID = {"contact": "rigid", "dtype": F64}


@pytest.mark.parametrize("name", SIZES)
def test_a_few_steps_stay_in_order(name):
    if name in FROM_GYMNASIUM:
        pytest.importorskip("mujoco")
        pytest.importorskip("gymnasium")
    given = {"laikago": RIGID, "ant-walk": RIGID, **{soft: {} for soft in SOFT}}.get(name, {"dtype": F64})
    env = make(name, 3, seed=1, **given)
    assert (env.observation_size, env.action_size) == SIZES[name]
    for _ in range(3):
        action = torch.rand(3, env.action_size, dtype=env.dtype) - 0.5
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
    env = make("hopper", 1, **RIGID)
    action = torch.full((1, 3), 0.5, dtype=F64)
    standing = state(env, [0.0, 1.25, 0.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert env.reward(standing, action, standing).item() == pytest.approx(2.0 + 0.3 + 1.0 - 0.1 * 0.75)
    low = state(env, [0.0, 1.25 - 0.4, pi / 12, 0.0, 0.0, 0.0], [0.0] * 6)
    assert env.reward(standing, 0 * action, low).item() == pytest.approx(-200.0 * 0.01 + 1.0 - 0.25)
    assert not env.terminated(low).any()
    assert env.terminated(state(env, [0.0, 0.79, 0.0, 0.0, 0.0, 0.0], [0.0] * 6)).all()


def test_the_ant_is_rewarded_for_running_along_x():
    env = make("ant", 1, **RIGID)
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


@pytest.mark.parametrize("name", ["ant", "hopper"])
@pytest.mark.parametrize("contact", ["soft", "rigid"])
def test_contact_may_be_soft_or_rigid(name, contact):
    env = make(name, 2, seed=0, **({"contact": contact} if contact == "soft" else RIGID))
    action = torch.zeros(2, env.action_size, dtype=env.dtype, requires_grad=True)
    for _ in range(12):
        reward = env.step(action).reward
    (slope,) = torch.autograd.grad(reward.sum(), action)
    assert slope.isfinite().all()
    assert env.broken == 0
    assert env.settings["contact"] == contact


def test_the_published_ant_is_heavier():
    light, heavy = (make("ant", 1, body=body, **RIGID) for body in ("gymnasium", "published"))
    masses = [sum(link.mass for link in env.world.robots["ant"].model.tree.links) for env in (light, heavy)]
    assert masses[0] == pytest.approx(0.91, abs=0.01)
    assert masses[1] == pytest.approx(200.0 * masses[0])
    with pytest.raises(PullbackError, match="no body named 'heavy'; choose from: gymnasium, published"):
        make("ant", 1, body="heavy")
    with pytest.raises(PullbackError, match="no contact named 'hard'"):
        make("hopper", 1, contact="hard")


def test_the_humanoid_is_rewarded_for_running_upright():
    pytest.importorskip("mujoco")
    pytest.importorskip("gymnasium")
    env = make("humanoid", 1, **RIGID)
    action = torch.full((1, 17), 0.5, dtype=F64)
    q, qd = [0.0, 0.0, 1.3, 0.0, 0.0, 0.0, 1.0, *[0.0] * 17], [0.0, 0.0, 0.0, 2.0, 0.0, 0.0, *[0.0] * 17]
    running = state(env, q, qd)
    assert env.reward(running, action, running).item() == pytest.approx(2.0 + 0.1 + 1.0 + 1.0 - 0.002 * 17 * 0.25)
    q[2] = 0.8
    low = state(env, q, [0.0] * 23)
    assert env.reward(low, 0 * action, low).item() == pytest.approx(0.1 + 1.0 - 200.0 * 0.04**2)
    assert not env.terminated(low).any()


def test_the_laikago_is_rewarded_for_what_it_is_told():
    env = make("laikago", 2, seed=3, speed=(0.2, 0.8), **RIGID)
    assert ((env.command[:, 0] >= 0.2) & (env.command[:, 0] <= 0.8)).all()
    assert not torch.equal(env.command[0], env.command[1])
    still = State(env._rest.q, torch.zeros(2, 18, dtype=F64))
    told = torch.zeros(2, 18, dtype=F64)
    told[:, 3:5], told[:, 2] = env.command[:, :2], env.command[:, 2]
    moving, action = State(env._rest.q, told), torch.zeros(2, 12, dtype=F64)
    gain = env.reward(still, action, moving) - env.reward(still, action, still)
    asked = env.command[:, :2].square().sum(1) + 0.5 * env.command[:, 2].square()
    torch.testing.assert_close(gain, asked)
    before = env.command.clone()
    env.episode = 1
    env.step(action)
    assert not torch.equal(env.command, before)


@pytest.mark.slow
def test_a_laikago_on_soft_ground_stands():
    env = make("laikago", 2, seed=0)
    for _ in range(60):
        step = env.step(torch.zeros(2, 12))
    assert not step.terminated.any()
    assert (env.state.q[:, 2] > 0.45).all()
