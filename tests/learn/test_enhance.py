"""Sample and policy enhancement: Jacobians against differences of a step, with contact too; what is made of them."""

from statistics import median

import pytest
import torch

from pullback.core.errors import GradientError, PullbackError
from pullback.learn import make
from pullback.learn.enhance import Extra, _rows, action_slope, extra_samples, relevance, step_with_jacobian
from pullback.learn.sac import SAC, SACConfig
from pullback.rigid.state import State
from tests.learn.scenes import Dragged

F64 = torch.float64
STEP = 1e-5
"""Of central differences, in actions: their own error is some 1e-9 here."""


def dragged():
    """Return limp hoppers that lie on the ground, and are dragged along it."""
    env = Dragged(3, dtype=F64, seed=2)
    for _ in range(45):
        env.step(torch.full((3, 1), 0.3, dtype=F64))
    env.detach()
    return env


def swinging():
    env = make("swing-up", 3, links=3, dtype=F64)
    for k in range(5):
        env.step(torch.full((3, 3), 0.2 * k - 0.5, dtype=F64))
    return env


def outcome(env, saved, action):
    """Return observation and reward of a step from a saved state (B, n + 1)."""
    env.load_state(saved)
    step = env.step(action)
    return torch.cat([step.info["final_observation"], step.reward[:, None]], 1)


def differences(env, saved, action):
    columns = []
    for k in range(action.shape[1]):
        change = torch.zeros_like(action)
        change[:, k] = STEP
        columns.append((outcome(env, saved, action + change) - outcome(env, saved, action - change)) / (2 * STEP))
    return torch.stack(columns, 2)


@pytest.mark.parametrize("made", [swinging, dragged], ids=["swing-up", "contact"])
def test_jacobians_are_those_of_differences(made):
    env = made()
    saved = env.save_state()
    action = torch.linspace(-0.4, 0.6, env.worlds * env.action_size, dtype=F64).view(env.worlds, -1)
    expected = differences(env, saved, action)
    env.load_state(saved)
    step, jacobian = step_with_jacobian(env, action)
    assert jacobian.good.all()
    assert not step.reward.requires_grad
    found = torch.cat([jacobian.next, jacobian.reward[:, None]], 1)
    assert expected.abs().amax() > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    if made is dragged:
        # something does touch
        assert any(len(touching) for touching in env.sim.contacts(env.state))


def transitions(env, action):
    observation = env.detach()
    step, jacobian = step_with_jacobian(env, action)
    rows = {
        "observation": observation, "action": action, "reward": step.reward, "next": step.info["final_observation"],
        "terminated": step.terminated.to(F64), "next_by_action": jacobian.next, "reward_by_action": jacobian.reward,
    }  # fmt: skip
    return {name: x[None] for name, x in rows.items()}


def test_single_precision_has_the_slopes_of_double():
    """Of an ant whose joints lean against their limits: four feet are then more than carry it.

    With a softness of 1e-6 instead of the environment's, 17 of these 1,920 are wrong by more than a tenth.
    """
    single, double = (make("ant-walk", 160, seed=3, dtype=dtype) for dtype in (torch.float32, F64))
    random, wrong = torch.Generator().manual_seed(1), 0
    noise = torch.zeros(160, 8)
    for _ in range(12):
        noise = 0.8 * noise + 0.6 * torch.randn(160, 8, generator=random)
        action = (torch.linspace(0.1, 1.0, 160)[:, None] * noise).clamp(-1.0, 1.0)
        double.state = State(single.state.q.double(), single.state.qd.double(), None)
        (_, found), (_, true) = step_with_jacobian(single, action), step_with_jacobian(double, action.double())
        off = (found.next - true.next).flatten(1).norm(dim=1) / true.next.flatten(1).norm(dim=1)
        wrong += int((off > 0.1).sum())
    assert wrong <= 2


def test_extra_samples_are_off_by_the_square_of_the_change():
    env = swinging()
    saved = env.save_state()
    rows = transitions(env, torch.full((3, 3), 0.9, dtype=F64))
    errors = []
    for radius in (0.2, 0.1):
        extra = extra_samples(rows, Extra(4, radius), torch.Generator().manual_seed(1))
        assert extra["action"].shape == (1, 12, 3)
        assert extra["action"].max() <= 1.0
        assert (extra["action"] - 0.9).abs().max() <= radius
        # the first of the samples around each transition
        true = outcome(env, saved, extra["action"][0, ::4])
        errors.append((extra["next"][0, ::4] - true[:, :-1]).abs().max().item())
        assert (extra["reward"][0, ::4] - true[:, -1]).abs().max() < 1e-2
    assert errors[0] > 1e-9
    assert errors[1] < 0.4 * errors[0]


def test_a_step_without_a_jacobian_is_repeated():
    rows = transitions(swinging(), torch.full((3, 3), 0.1, dtype=F64))
    for name in ("next_by_action", "reward_by_action"):
        rows[name][:, 1] = 0.0
    extra = extra_samples(rows, Extra(2, 0.1), torch.Generator().manual_seed(1))
    moved = (extra["action"] != 0.1).any(-1)[0]
    assert moved.tolist() == [True, True, False, False, True, True]


def test_the_released_variant_moves_one_entry_of_the_observation():
    rows = transitions(swinging(), torch.full((3, 3), 0.1, dtype=F64))
    extra = extra_samples(rows, Extra(2, 0.1, "one"), torch.Generator().manual_seed(1))
    moved = (extra["next"] - rows["next"].repeat_interleave(2, 1)).abs() > 1e-12
    assert (moved.sum(-1) <= 1).all()
    # the same around a transition
    assert torch.equal(moved[:, ::2].any(1), moved[:, 1::2].any(1))
    with pytest.raises(PullbackError, match='rows "all" or "one"'):
        Extra(rows="few")  # type: ignore[arg-type]


def test_the_slope_of_an_action_is_that_through_the_simulation():
    env = swinging()
    saved, action = env.save_state(), torch.full((3, 3), 0.3, dtype=F64)
    weights = torch.randn(env.observation_size, dtype=F64)
    rows = transitions(env, action)
    slope = action_slope(rows, (2.0 * rows["next"] @ weights)[..., None] * weights, 0.9)
    env.load_state(saved)
    given = action.clone().requires_grad_()
    step = env.step(given)
    total = step.reward + 0.9 * (step.info["final_observation"] @ weights).square()
    torch.testing.assert_close(slope[0], torch.autograd.grad(total.sum(), given)[0], rtol=1e-9, atol=1e-9)
    ended = action_slope({**rows, "terminated": torch.ones(1, 3, dtype=F64)}, rows["next"], 0.9)
    torch.testing.assert_close(ended, rows["reward_by_action"])


def test_the_weight_is_that_of_the_distance():
    stored = torch.zeros(1, 1, 2)
    assert relevance(torch.tensor([[[3.0, 4.0]]]), stored).item() == pytest.approx(2.718281828**-5.0)


def test_worlds_without_a_gradient_are_left_out(monkeypatch):
    plain, asked = torch.autograd.grad, []

    def grad(outputs, inputs, cotangents, **options):
        asked.append(cotangents)
        # rows are folded into the worlds: element 4 of three worlds is row 1 of world 1
        if cotangents[1, 1].any():
            raise GradientError("not finite", [4])
        return plain(outputs, inputs, cotangents, **options)

    monkeypatch.setattr(torch.autograd, "grad", grad)
    action = torch.zeros(3, 2, requires_grad=True)
    slopes, good = _rows(action * torch.tensor([[1.0], [2.0], [3.0]]), action)
    assert good.tolist() == [True, False, True]
    assert len(asked) == 2
    assert torch.equal(slopes[2], 3.0 * torch.eye(2))
    assert not slopes[1].any()


def test_policies_are_improved_through_the_simulation():
    # without a critic yet, the reward's own slope brings the tip up
    env, trial = make("swing-up", 64, links=1, dtype=F64), make("swing-up", 32, links=1, dtype=F64)
    config = SACConfig(
        seeds=16, epochs=1, epoch_steps=360, random_steps=20, first_update=20, batch=32, hidden=(16,), rate=1e-2,
        discount=0.0, temperature=1e-3, actor="simulation",
    )  # fmt: skip
    run = SAC(env, trial, config)
    run.iterate()
    assert run.lost == 0
    # hanging is worth -1.5; single seeds are a matter of luck
    assert median(run.history[-1].returns) > 0.2
