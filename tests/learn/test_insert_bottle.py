"""The insertion: what it measures against numbers worked out by hand, and that gradients of episodes teach it."""

from math import pi

import pytest
import torch

from pullback.core.errors import PullbackError
from pullback.learn import Env, Policy, Watch, make
from pullback.learn.envs.insert_bottle import (
    CLEARANCE,
    DEPTH,
    MIDDLE,
    RADIUS,
    InsertBottle,
    arm,
)  # fmt: skip
from pullback.learn.episodes import EpisodeConfig, EpisodeSearch, train_episodes
from pullback.rigid.state import State
from pullback.robot.ik import inverse_kinematics
from pullback.robot.load import load

F64 = torch.float64


def free_env(worlds: int, **options) -> InsertBottle:
    """Return worlds without contact in float64, whose kernels other tests have as well."""
    return InsertBottle(worlds, dtype=F64, contacts=False, **options)


@pytest.fixture(scope="module")
def env():
    return free_env(2, seed=1)


@pytest.fixture(scope="module")
def goal(env):
    """Return a state in which the bottle stands in the socket, at rest."""
    q0 = env.home.clone()
    place = torch.tensor(MIDDLE, dtype=F64)
    found = inverse_kinematics(
        load(arm(), dtype=F64), "bottle", place, env.down, q0=q0, restarts=1, position_tolerance=1e-9,
        rotation_tolerance=1e-9,
    )  # fmt: skip
    q = torch.cat([found.q, place]).expand(2, 9).clone()
    return State(q, torch.zeros(2, 9, dtype=F64))


def test_sizes_and_what_is_seen(env):
    assert (env.observation_size, env.action_size) == (19, 6)
    seen = env.observe(env.state, None)
    torch.testing.assert_close(seen[:, :6], env.state.q[:, :6])
    torch.testing.assert_close(seen[:, 12:15], env.state.q[:, 6:9])
    assert (seen[:, 18] == 0.0).all()


def test_errors_are_zero_at_the_goal_and_measured_from_it(env, goal):
    distance, angle, speed = env.errors(goal)
    assert (distance < 1e-7).all()
    assert (angle < 1e-6).all()
    assert (speed < 1e-6).all()
    moved = State(goal.q.clone(), goal.qd.clone())
    moved.q[:, 6] += 3e-3
    moved.q[:, 8] -= 4e-3
    moved.q[:, 5] += 0.02  # the last joint turns the bottle about its axis
    moved.qd[:, 7] = 0.1
    distance, angle, speed = env.errors(moved)
    torch.testing.assert_close(distance, torch.full((2,), 5e-3, dtype=F64), atol=1e-7, rtol=0)
    torch.testing.assert_close(angle, torch.full((2,), 0.02, dtype=F64), atol=1e-7, rtol=0)
    torch.testing.assert_close(speed, torch.full((2,), 0.1, dtype=F64), atol=1e-7, rtol=0)


def test_walls_are_felt_by_their_margin(env, goal):
    assert (env.encroachment(goal) == 0.0).all()
    # 1.2 mm aside of 1.5 mm: 0.2 mm within the margin of 0.5 mm, at the five rings' points nearest to the wall
    aside = State(goal.q.clone(), goal.qd)
    aside.q[:, 6] -= 1.2e-3
    wanted = 5 * (1.2e-3 - (CLEARANCE - 0.5e-3))
    torch.testing.assert_close(env.encroachment(aside), torch.full((2,), wanted, dtype=F64), atol=1e-6, rtol=0)
    # well above the mouth nothing is in the way
    above = State(goal.q.clone(), goal.qd)
    above.q[:, 6] -= 5 * RADIUS
    above.q[:, 8] -= DEPTH + 9e-3
    assert (env.encroachment(above) == 0.0).all()


def test_the_conveyor_ends_within_reach():
    env = free_env(50, seed=3, moving=True)
    end = env.state.q[:, 6:9] + 0.3 * env.state.qd[:, 6:9]
    assert ((end - env.home.new_tensor(MIDDLE)).abs() <= env.home.new_tensor((0.0501, 0.0501, 0.0201))).all()
    assert env.state.qd[:, 7].abs().max() > 0.1
    for _ in range(3):
        env.step(torch.zeros(50, 6, dtype=F64))
    # it is heavy and balanced: it goes on as it began
    torch.testing.assert_close(env.state.qd[:, 6], torch.zeros(50, dtype=F64), atol=1e-6, rtol=0)
    assert (env.state.qd[:, 8].abs() < 1e-6).all()


def test_shaped_rewards_add_up_to_the_same():
    total = {}
    for shaped in (False, True):
        env = free_env(3, seed=5, shaped=shaped, steps=4)
        first = env.goal_error(env.state)
        steps = [env.step(torch.full((3, 6), 0.1, dtype=F64)).reward for _ in range(4)]
        total[shaped] = sum(steps) - (first if shaped else 0.0)
    torch.testing.assert_close(total[True], total[False])


def test_gradients_of_episodes_bring_the_bottle_closer():
    def fresh(worlds, seed):
        return free_env(worlds, seed=seed, shaped=False, substeps=2)

    def loss(policy):
        """Return the loss on targets that are always the same."""
        with torch.no_grad():
            return -EpisodeSearch(fresh(16, 7), EpisodeConfig(), policy).unroll()[0].mean()

    env = fresh(8, 0)
    policy = Policy(19, 6, (64,), dtype=F64)
    assert policy.normalizer is not None
    policy.normalizer.update(env.typical())
    before = loss(policy)
    search = train_episodes(env, EpisodeConfig(15, rate=1e-3, last_rate=3e-4), policy=policy, progress=False)
    assert loss(policy) < 0.7 * before
    assert search.history[-1].steps == 15 * 8 * 30


def test_the_reference_alone_ends_within_millimetres_of_a_moving_socket():
    env = free_env(20, seed=4, moving=True, substeps=2)
    for _ in range(29):
        env.step(torch.zeros(20, 6, dtype=F64))
    last = env.sim.step(env.state, env.control(torch.zeros(20, 6, dtype=F64)))
    distance, angle, speed = env.errors(last)
    assert distance.max() < 8e-3
    assert torch.rad2deg(angle).max() < 0.5
    assert speed.max() < 0.1


def test_a_world_that_jams_pulls_no_more_than_a_multiple_of_the_median(env):
    search = EpisodeSearch(env, EpisodeConfig(outlier=2.0))
    given = torch.tensor([[3.0, 4.0], [0.0, 5.0], [5.0, 0.0], [0.0, -500.0], [torch.nan, 1.0]], dtype=F64)
    wanted = torch.tensor([[3.0, 4.0], [0.0, 5.0], [5.0, 0.0], [0.0, -10.0], [0.0, 0.0]], dtype=F64)
    torch.testing.assert_close(search._even(given), wanted)


def test_scores_are_looked_at_now_and_then():
    env, seen = free_env(2, steps=2), []
    watch = Watch(lambda policy: float(len(seen.append(policy) or seen)), every=2)
    search = train_episodes(env, EpisodeConfig(3, hidden=(8,)), watch=watch, progress=False)
    assert [r.score for r in search.history if r.score == r.score] == [1.0, 2.0]
    assert seen == [search.policy] * 2


def test_a_resumed_training_is_the_uninterrupted_one(tmp_path):
    def train(iterations, resume=False):
        env = free_env(2, seed=0, shaped=False, steps=3, noise=1e-3)
        config = EpisodeConfig(4, hidden=(8,))
        search = EpisodeSearch(env, config)
        if resume:
            search.load_state(torch.load(tmp_path / "half.pt", weights_only=True))
        while search.done < iterations:
            search.iterate()
        return search

    whole = train(4)
    torch.save(train(2).state(), tmp_path / "half.pt")
    again = train(4, resume=True)
    assert [r.loss for r in again.history] == [r.loss for r in whole.history]


class Deaf(Env):
    """An environment whose reward does not hear the action."""

    episode = 2

    def build(self):
        world = make("pendulum", 1, dtype=F64).world
        return world

    def start(self):
        return self.uniform(-1.0, 1.0, 2), self.uniform(-1.0, 1.0, 2)

    def observe(self, state, action):
        return torch.cat([state.q, state.qd], 1)

    def reward(self, before, action, after):
        return torch.zeros(self.worlds, dtype=self.dtype)


class Stepped(Deaf):
    """A reward that comes from the state, but in steps."""

    def reward(self, before, action, after):
        return after.q.sum(1).sign()


def test_bad_input_is_said(env):
    with pytest.raises(PullbackError, match="give False, True, or the fraction of sockets that move"):
        InsertBottle(2, moving=2.0)
    with pytest.raises(PullbackError, match="give the number of steps of 10 ms"):
        InsertBottle(2, steps=0)
    with pytest.raises(PullbackError, match="give a standard deviation"):
        InsertBottle(2, noise=-1.0)
    with pytest.raises(PullbackError, match="give a policy of this environment"):
        EpisodeSearch(env, EpisodeConfig(), Policy(5, 1, dtype=F64))
    with pytest.raises(PullbackError, match="rates above 0 that do not rise"):
        EpisodeSearch(env, EpisodeConfig(rate=1e-6, last_rate=1e-3))
    with pytest.raises(PullbackError, match="resume=True needs the checkpoint"):
        train_episodes(env, EpisodeConfig(1), resume=True)
    for kind, found in ((Deaf, "they carry no gradient"), (Stepped, "their gradient is zero")):
        with pytest.raises(PullbackError, match=f"do not depend on the actions: {found}. Compute them by torch"):
            EpisodeSearch(kind(2, dtype=F64), EpisodeConfig(1)).iterate()


def test_the_bottle_stands_upright_at_home(env):
    position, quat = load(arm(), dtype=F64).compute_forward_kinematics(env.home[None], "bottle")
    assert abs((quat[0] @ env.down).item()) == pytest.approx(1.0, abs=1e-6)
    assert position[0, 2] > MIDDLE[2] + DEPTH
    assert env.home[4].item() == pytest.approx(-pi / 2)
