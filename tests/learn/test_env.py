"""Environments: gradients against central differences, resets that stop them, worlds that do not touch each other."""

import pytest
import torch

import pullback as pb
from pullback.core.errors import PullbackError
from pullback.learn import env_names, make
from tests.learn.scenes import Dragged, Heavy, Runaway

F64 = torch.float64
# central differences of a few steps in float64, without and with contact
SMOOTH, CONTACT = 1e-7, 1e-5


def run(env, actions, seed=3):
    """Return rewards (T, B) of actions (T, B, nu) from the start of a seed."""
    env.reset(seed)
    return torch.stack([env.step(action).reward for action in actions])


def actions_for(env, steps, seed=0):
    shape = (steps, env.worlds, env.action_size)
    return 0.8 * (2 * torch.rand(*shape, dtype=env.dtype, generator=torch.Generator().manual_seed(seed)) - 1)


@pytest.mark.parametrize(
    ("make_env", "tolerance"),
    [
        (lambda: make("cart-pole", 2, dtype=F64), SMOOTH),
        (lambda: make("pendulum", 2, dtype=F64), SMOOTH),
        (lambda: Dragged(2, dtype=F64), CONTACT),
    ],
    ids=["cart-pole", "pendulum", "dragged"],
)
def test_gradients_are_central_differences(make_env, tolerance):
    env = make_env()
    actions = actions_for(env, 5).requires_grad_()
    (slope,) = torch.autograd.grad(run(env, actions).sum(), actions)
    direction = actions_for(env, 5, seed=1)
    with torch.no_grad():
        h = 1e-6
        up, down = (run(env, actions + sign * h * direction).sum() for sign in (1, -1))
    expected = (up - down) / (2 * h)
    assert abs((slope * direction).sum() - expected) < tolerance * abs(expected)
    assert abs(expected) > 1e-3


def test_no_gradient_passes_a_reset():
    env = make("cart-pole", 2, dtype=F64)
    env.episode = 3
    actions = actions_for(env, 5).requires_grad_()
    rewards = run(env, actions)
    (slope,) = torch.autograd.grad(rewards[3:].sum(), actions)
    assert (slope[:3] == 0.0).all()
    assert (slope[3] != 0.0).all()
    # the same loss in an episode that goes on
    env.episode = 100
    (slope,) = torch.autograd.grad(run(env, actions)[3:].sum(), actions)
    assert (slope[:3] != 0.0).all()


def test_the_final_observation_is_the_one_before_the_reset():
    env = make("cart-pole", 2, dtype=F64)
    env.episode = 2
    env.reset(0)
    action = torch.full((2, 1), 0.5, dtype=F64, requires_grad=True)
    first = env.step(action)
    assert torch.equal(first.info["final_observation"], first.observation)
    second = env.step(action)
    assert second.truncated.all()
    assert not second.terminated.any()
    assert second.info["final_observation"].requires_grad
    assert not torch.allclose(second.info["final_observation"], second.observation)
    torch.testing.assert_close(second.info["episode_return"], (first.reward + second.reward).detach())
    assert (env.steps == 0).all()
    assert (env.returns == 0.0).all()


def test_a_world_does_not_depend_on_the_others():
    env = make("cart-pole", 3, dtype=F64)
    env.episode = 4
    actions = actions_for(env, 6).requires_grad_()
    rewards = run(env, actions)
    changed = actions.detach().clone()
    changed[:, 1] *= -1.0
    other = run(env, changed)
    assert torch.equal(rewards[:, [0, 2]], other[:, [0, 2]])
    assert not torch.allclose(rewards[:, 1], other[:, 1])
    (slope,) = torch.autograd.grad(rewards[:, 1].sum(), actions)
    assert (slope[:, [0, 2]] == 0.0).all()


def test_seeds_repeat():
    env, other = make("cart-pole", 2, seed=4), make("cart-pole", 2, seed=4)
    assert torch.equal(env.detach(), other.detach())
    assert not torch.equal(env.detach(), make("cart-pole", 2, seed=5).detach())
    first = env.reset(7)
    assert not torch.equal(first, env.reset())
    assert torch.equal(first, env.reset(7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parameters_differ_from_world_to_world_and_are_drawn_when_an_episode_begins(dtype):
    env = Heavy(3, dtype=dtype)
    env.episode = 2
    env.reset(1)
    before = env.mass.clone()
    assert before.unique().numel() == 3
    actions = actions_for(env, 3)
    first = env.step(actions[0])
    assert torch.equal(env.mass, before)
    # the same motion in a world of its own, with this world's mass and motor
    world, robot = pb.World(gravity=(0.0, 0.0, -9.81)), pb.load("cart_pole", dtype=dtype)
    robot.set_link_param("pole", "mass", before[1].item())
    world.add(robot, actuators={"cart": pb.Torque(gain=env.gain[1].item())})
    sim = world.compile(dt=env.dt, substeps=env.substeps, dtype=dtype, without=["contacts"])
    env.reset(1)
    alone = sim.step(pb.State(env.state.q[1:2], env.state.qd[1:2]), actions[0, 1:2])
    torch.testing.assert_close(first.observation[1, 0], alone.q[0, 0])
    torch.testing.assert_close(first.observation[1, 4], alone.qd[0, 1])
    before = env.mass.clone()
    for action in actions[:2]:
        env.step(action)
    assert (env.mass != before).all()


def test_a_world_that_is_not_finite_is_reset_and_counted():
    env = Runaway(3, dtype=F64)
    env.reset(2)
    actions = torch.full((4, 3, 1), 0.5, dtype=F64)
    actions[1, 1] = 1.0
    actions.requires_grad_()
    rewards = []
    for t, action in enumerate(actions):
        step = env.step(action)
        rewards.append(step.reward)
        assert step.info["broken"].tolist() == [False, t == 1, False]
        assert step.terminated.tolist() == [False, t == 1, False]
        assert step.observation.isfinite().all()
    assert int(env.broken) == 1
    total = torch.stack(rewards)
    assert total.isfinite().all()
    assert total[1, 1] == 0.0
    (slope,) = torch.autograd.grad(total.sum(), actions)
    assert slope.isfinite().all()
    assert (slope[:, [0, 2]] != 0.0).all()
    # what came before still learns from its own reward, and the step that went wrong from nothing
    assert slope[0, 1] != 0.0
    assert slope[1, 1] == 0.0


@pytest.mark.parametrize("what", ["reward", "observe"])
def test_a_reward_or_an_observation_that_is_not_finite_ends_the_episode(what):
    class Undefined(Dragged):
        bad = False

        def reward(self, before, action, after):
            return self.spoil("reward", super().reward(before, action, after))

        def observe(self, state, action):
            return self.spoil("observe", super().observe(state, action))

        def spoil(self, name, x):
            if self.bad and name == what:
                # what the next episode begins with is fine
                self.bad, x = False, x.clone()
                x[1] = x[1] / 0.0 - x[1] / 0.0
            return x

    env = Undefined(3, dtype=F64)
    env.reset(2)
    actions = torch.full((3, 3, 1), 0.5, dtype=F64, requires_grad=True)
    rewards = []
    for t, action in enumerate(actions):
        env.bad = t == 1
        step = env.step(action)
        rewards.append(step.reward)
        assert step.terminated.tolist() == step.info["broken"].tolist() == [False, t == 1, False]
        assert step.reward.isfinite().all()
        assert step.observation.isfinite().all()
        assert step.info["final_observation"].isfinite().all()
    assert int(env.broken) == 1
    (slope,) = torch.autograd.grad(torch.stack(rewards).sum(), actions)
    assert slope[:, [0, 2]].isfinite().all()


def test_a_start_that_cannot_be_seen_is_said():
    class Blind(Dragged):
        def observe(self, state, action):
            return super().observe(state, action) / 0.0

    with pytest.raises(PullbackError, match="observe of Blind is not finite at the start of world 0, entry 0; look"):
        Blind(2)


def test_a_state_can_be_saved_and_continued():
    env, other = Heavy(2), Heavy(2, seed=9)
    actions = actions_for(env, 6)
    env.episode = other.episode = 4
    for action in actions[:3]:
        env.step(action)
    other.load_state(env.save_state())
    for action in actions[3:]:
        for a, b in zip(env.step(action)[:4], other.step(action)[:4]):
            assert torch.equal(a, b)


def test_mistakes_of_authors_and_users_are_said():
    class Flat(Dragged):
        def observe(self, state, action):
            return state.q[:, 0]

    class Changing(Dragged):
        def observe(self, state, action):
            return state.q if (action == 0.0).all() else state.qd[:, :2]

    class Scalar(Dragged):
        def reward(self, before, action, after):
            return after.qd.sum()

    class Single(Dragged):
        def start(self):
            return self._rest.q[0], self._rest.qd[0]

    with pytest.raises(PullbackError, match=r"observe of Flat returned \(2,\); return \(B, n\), a row for each of the"):
        Flat(2)
    action = torch.full((2, 1), 0.5)
    with pytest.raises(PullbackError, match=r"observe of Changing returned .*\(2, 2\); expected .*\(2, 6\)"):
        Changing(2).step(action)
    with pytest.raises(PullbackError, match=r"reward of Scalar returned torch.float32 \(\); expected .*\(2,\)"):
        Scalar(2).step(action)
    with pytest.raises(PullbackError, match=r"start of Single returned q \(6,\).*expected \(2, 6\)"):
        Single(2)
    env = make("cart-pole", 2)
    with pytest.raises(PullbackError, match=r"the action is \(2, 3\); expected a tensor \(2, 1\).*cart/cart"):
        env.step(torch.zeros(2, 3))
    with pytest.raises(PullbackError, match=r"the action is torch.float64.*pass action.to\(env.sim.device, env.dtype"):
        env.step(torch.zeros(2, 1, dtype=F64))
    with pytest.raises(PullbackError, match="no environment named 'cartpole'; did you mean 'cart-pole'"):
        make("cartpole")
    with pytest.raises(PullbackError, match="no option of the environment 'cart-pole' named 'pole_masses'; did you"):
        make("cart-pole", pole_masses=(1.0, 2.0))
    with pytest.raises(PullbackError, match="worlds is 0; give the number of worlds"):
        make("cart-pole", 0)


def test_the_names_of_environments_are_those_of_their_files():
    assert {"ant", "cart-pole", "hopper", "pendulum"} <= set(env_names())
