"""The benchmark of an actor's slopes: states are found again in observations, one step is policy enhancement's."""

import torch

from bench.learn_slopes import compare, roll_out, states_of
from pullback.learn import SAC, SACConfig, make
from pullback.learn.enhance import action_slope


def trained():
    settings = {"epochs": 1, "epoch_steps": 12, "random_steps": 8, "first_update": 0, "batch": 8, "hidden": (8, 8)}
    env, trial = (make("swing-up", 2, links=2, dtype=torch.float64) for _ in range(2))
    run = SAC(env, trial, SACConfig(seeds=2, actor="simulation", discount=1.0, **settings))
    run.iterate()
    return run


def test_states_are_found_again_in_observations():
    env = make("swing-up", 2, links=3, dtype=torch.float64)
    env.reset(0)
    for k in range(7):
        env.step(torch.full((2, 3), 0.3 * k - 0.9, dtype=torch.float64))
    q, qd, steps = states_of(env.detach(), 3, env.episode)
    torch.testing.assert_close((q, qd), (env.state.q, env.state.qd))
    assert steps.tolist() == [7, 7]


def test_one_step_is_the_slope_of_policy_enhancement():
    run = trained()
    rows = {name: x[:, :10] for name, x in run.replay.all().items()}
    noise = torch.randn(*rows["action"].shape, dtype=torch.float64)
    run.noise = lambda *shape: noise
    model = make("swing-up", 20, links=2, dtype=torch.float64)
    slope, _ = roll_out(run, model, rows, 2, 1)
    after = rows["next"].clone().requires_grad_()
    value = run.value(after, run.log_temperature.detach().exp()[:, None], noise)
    expected = action_slope(rows, torch.autograd.grad(value.sum(), after)[0], run.config.discount)
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-9)


def test_rollouts_to_the_end_agree_with_themselves(capsys):
    compare(trained(), 2, states=4, rollouts=8)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 18
    assert lines[8].startswith("  rest, other noise  cosine")
