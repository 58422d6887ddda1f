"""SAC: its update against one written with torch's own modules, seeds side by side, resume, and that it learns."""

import pytest
import torch
from torch import nn

from pullback.core.errors import PullbackError
from pullback.core.metrics import last_numbers
from pullback.core.search_loop import Checkpoint
from pullback.learn import make
from pullback.learn.enhance import Extra
from pullback.learn.mbpo import MBPO, EnsembleConfig, MBPOConfig
from pullback.learn.recorded import adam, descend
from pullback.learn.replay import Replay
from pullback.learn.sac import SAC, SACConfig, train_seeds
from pullback.learn.seeded import Perceptrons, generators
from pullback.tasks.common.learning_curves import Curves
from tests.learn.test_ppo import Guess

F64 = torch.float64
SAME = {"rtol": 1e-9, "atol": 1e-11}
"""Of the same arithmetic in another order, float64."""


def small(**changes):
    given = {"epochs": 2, "epoch_steps": 6, "random_steps": 4, "first_update": 0, "batch": 8, "hidden": (16, 16)}
    given |= changes
    return (MBPOConfig if "rollouts" in given else SACConfig)(**given)


def run_of(config, links=1):
    kind = MBPO if isinstance(config, MBPOConfig) else SAC
    dtype = F64 if kind is SAC else torch.float32
    env, trial = (make("swing-up", config.seeds, links=links, dtype=dtype) for _ in range(2))
    return kind(env, trial, config)


def linear(network, k):
    """Return network k of several as torch's own modules."""
    layers = []
    for weight, bias in zip(network.weights, network.biases):
        layer = nn.Linear(*weight.shape[1:], dtype=weight.dtype)
        layer.weight.data, layer.bias.data = weight[k].detach().T.clone(), bias[k, 0].detach().clone()
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def random_batch(run, rows=8):
    random = torch.Generator().manual_seed(3)
    return {
        name: torch.rand(run.config.seeds, rows, *shape, dtype=F64, generator=random).round() if name == "terminated"
        else torch.randn(run.config.seeds, rows, *shape, dtype=F64, generator=random)
        for name, shape in run.shapes().items()
    }  # fmt: skip


def test_an_update_is_that_of_textbook_sac():
    run = run_of(small(seeds=2, discount=0.9, mixing=0.1))
    batch, k = random_batch(run), 1
    actor, twins = linear(run.policy.network, k), [linear(run.critics.network, i) for i in (k, 2 + k)]
    targets = [linear(run.targets.network, i) for i in (k, 2 + k)]
    noise = torch.randn(2, *batch["action"].shape, dtype=F64)
    run.noise = lambda *shape: noise
    one = {name: x[k] for name, x in batch.items()}

    def act(seen, xi):
        mean, log_std = actor(seen).chunk(2, -1)
        base = torch.distributions.Normal(mean, log_std.exp())
        squashed = torch.distributions.TransformedDistribution(base, torch.distributions.TanhTransform(cache_size=1))
        action = (mean + log_std.exp() * xi).tanh()
        return action, squashed.log_prob(action).sum(-1)

    with torch.no_grad():
        after, density = act(one["next"], noise[0, k])
        least = torch.stack([q(torch.cat([one["next"], after], -1)) for q in targets]).amin(0)[:, 0]
        goal = one["reward"] + 0.9 * (1 - one["terminated"]) * (least - density)
    critic_adam = torch.optim.Adam([p for q in twins for p in q.parameters()], run.config.rate)
    pair = torch.cat([one["observation"], one["action"]], -1)
    sum(0.5 * (q(pair)[:, 0] - goal).square().mean() for q in twins).backward()
    critic_adam.step()
    actor_adam = torch.optim.Adam(actor.parameters(), run.config.rate)
    action, density = act(one["observation"], noise[1, k])
    value = torch.stack([q(torch.cat([one["observation"], action], -1)) for q in twins]).amin(0)[:, 0]
    (density - value).mean().backward()
    actor_adam.step()

    run.update(batch)
    x = torch.randn(5, run.env.observation_size, dtype=F64)
    y = torch.randn(5, run.env.observation_size + 1, dtype=F64)
    torch.testing.assert_close(linear(run.policy.network, k)(x), actor(x), **SAME)
    for i, twin, target in zip((k, 2 + k), twins, targets):
        torch.testing.assert_close(linear(run.critics.network, i)(y), twin(y), **SAME)
        mixed = [0.9 * a + 0.1 * b for a, b in zip(target.parameters(), twin.parameters())]
        torch.testing.assert_close(list(linear(run.targets.network, i).parameters()), mixed, **SAME)
    # Adam's first step is as long as the rate, against the excess of entropy
    sign = torch.sign(density.mean().detach() - 1.0)
    torch.testing.assert_close(run.log_temperature[k].detach(), run.config.rate * sign, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("actor", ["critic", "weighted"])
def test_seeds_side_by_side_learn_as_they_would_alone(actor):
    both, alone = run_of(small(seeds=2, actor=actor)), run_of(small(seeds=1, seed=1, actor=actor))
    batch = random_batch(both)
    noise = torch.randn(2, *batch["action"].shape, dtype=F64)
    both.noise, alone.noise = lambda *shape: noise, lambda *shape: noise[:, 1:]
    for _ in range(3):
        both.update(batch)
        alone.update({name: x[1:] for name, x in batch.items()})
    x = torch.randn(2, 5, both.env.observation_size, dtype=F64)
    torch.testing.assert_close(both.policy(x)[1:], alone.policy(x[1:]), **SAME)
    torch.testing.assert_close(both.log_temperature[1:], alone.log_temperature, **SAME)


@pytest.mark.parametrize(
    "config",
    [
        small(seeds=2, actor="simulation"),
        small(rollouts=10, fit_every=3, updates=1, ensemble=EnsembleConfig(hidden=(8,), most_passes=2)),
    ],
    ids=["SAC", "MBPO"],
)
def test_a_run_resumes_bit_for_bit(config, tmp_path):
    through, stopped, resumed = (run_of(config) for _ in range(3))
    file = tmp_path / "run.pt"
    for _ in range(2):
        through.iterate()
    stopped.iterate()
    Checkpoint(stopped, file, stopped.settings).save()
    Checkpoint(resumed, file, resumed.settings).resume()
    resumed.iterate()
    assert resumed.history[-1].returns == through.history[-1].returns
    assert resumed.history[-1].temperature == through.history[-1].temperature
    for a, b in zip(resumed.critics.parameters(), through.critics.parameters()):
        assert torch.equal(a, b)


def test_many_predictions_are_not_kept_but_made_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("pullback.learn.mbpo.KEPT", 100)
    config = small(rollouts=10, fit_every=3, updates=1, ensemble=EnsembleConfig(hidden=(8,), most_passes=2))
    stopped, resumed = run_of(config), run_of(config)
    stopped.iterate()
    file = tmp_path / "run.pt"
    Checkpoint(stopped, file, stopped.settings).save()
    Checkpoint(resumed, file, resumed.settings).resume()
    assert resumed.predicted.count == 0
    resumed.iterate()
    assert resumed.predicted.count > 0
    assert resumed.history[0].returns == stopped.history[0].returns
    assert len(resumed.history) == 2


def test_wild_predictions_give_way_to_stored_transitions():
    run = run_of(small(rollouts=10, lengths=(1, 2, 3, 3), updates=0, ensemble=EnsembleConfig(hidden=(8,))))
    run.replay.add(run._act())
    run.replay.add(run._act())
    run.ensemble.fit(run.replay.all(), run.random)
    with torch.no_grad():
        run.ensemble.network.biases[-1] += 1e6
    run._roll_out(3)
    stored = run.replay.all()["reward"]
    predicted = run.predicted.all()["reward"]
    assert predicted.shape == (1, 10)
    assert (predicted[..., None] == stored[:, None]).any(-1).all()


def test_policies_are_tried_every_few_epochs_and_after_the_last():
    run = run_of(small(epochs=3, trial_every=2))
    for _ in range(3):
        run.iterate()
    tried = [report.returns[0] == report.returns[0] for report in run.history]
    assert tried == [False, True, True]
    curve = Curves.of(run, "sac", "swing-up")
    assert curve.steps == [12, 18]
    assert f"{curve.last[0]:.3g}" in run.summary()
    assert last_numbers(run)["objective"] == -curve.last[0]


def test_a_run_that_is_stopped_between_trials_is_tried():
    run = run_of(small(epochs=3, trial_every=3))
    plain = run.iterate

    def iterate():
        plain()
        run.ended = "stopped"

    run.iterate = iterate
    train_seeds(run, progress=False)
    assert run.done == 1
    assert Curves.of(run, "sac", "swing-up").steps == [6]


def test_extra_samples_follow_their_transition():
    run = run_of(small(extra=Extra(3, 0.01), capacity=50))
    run.replay.add(run._act())
    run.replay.add(run._act())
    # groups of four, whole ones
    assert run.replay.capacity == 48
    rows = run.replay.all()
    action, observation = (rows[name].view(2, 4, -1) for name in ("action", "observation"))
    assert torch.equal(observation, observation[:, :1].expand_as(observation))
    assert 0.0 < (action - action[:, :1]).abs().max() <= 0.01


def test_a_step_takes_gradients_laid_out_otherwise():
    scale = torch.arange(1.0, 7.0).view(2, 3)
    plain, turned = (torch.zeros(3, 2, requires_grad=True) for _ in range(2))
    descend(adam([plain], 0.1), [plain], (plain * scale.T.contiguous()).sum())
    descend(adam([turned], 0.1), [turned], (turned * scale.T).sum())
    assert turned.grad.stride() == turned.stride()
    assert torch.equal(turned, plain)


def test_sac_learns_to_repeat_what_it_sees():
    env, trial = Guess(32, dtype=F64, seed=0), Guess(64, dtype=F64, seed=1)
    settings = {"epochs": 1, "epoch_steps": 300, "random_steps": 10, "first_update": 0, "batch": 64, "hidden": (32, 32)}
    run = SAC(env, trial, SACConfig(seeds=2, rate=3e-3, discount=0.0, **settings))
    run.iterate()
    # an action at random is off by 2/3 + 1/12 + ... in the mean square
    assert max(run.history[-1].returns) < 0.0
    assert min(run.history[-1].returns) > -0.05


def test_a_buffer_overwrites_the_oldest_and_grows():
    buffer = Replay(2, 5, {"x": ()})
    for k in range(4):
        buffer.add({"x": torch.tensor([[2.0 * k, 2.0 * k + 1], [100.0, 100.0]])})
    assert sorted(buffer.all()["x"][0].tolist()) == [3.0, 4.0, 5.0, 6.0, 7.0]
    larger = buffer.resized(8)
    larger.add({"x": torch.tensor([[8.0], [100.0]])})
    assert larger.all()["x"][0].tolist() == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    again = Replay(2, 5, {"x": ()})
    again.load_state(buffer.state())
    assert torch.equal(again.packed, buffer.packed)
    again.add({"x": torch.tensor([[9.0], [100.0]])})
    assert 3.0 not in again.all()["x"][0].tolist()
    drawn = buffer.sample(500, torch.Generator().manual_seed(0))["x"]
    assert set(drawn[0].tolist()) == {3.0, 4.0, 5.0, 6.0, 7.0}
    assert set(drawn[1].tolist()) == {100.0}


def test_networks_of_several_seeds_are_linear_layers():
    network = Perceptrons(generators(0, 3), (4, 8, 2), dtype=F64)
    x = torch.randn(3, 5, 4, dtype=F64)
    for k in range(3):
        torch.testing.assert_close(network(x)[k], linear(network, k)(x[k]))
    torch.testing.assert_close(network(x[[2, 0]], torch.tensor([2, 0])), network(x)[[2, 0]])


def test_what_does_not_fit_is_said():
    env = make("swing-up", 3, links=1, dtype=F64)
    with pytest.raises(PullbackError, match="3 worlds for 2 seeds; give a multiple"):
        SAC(env, env, small(seeds=2))
    with pytest.raises(PullbackError, match="choose extra or policy enhancement"):
        small(extra=Extra(), actor="weighted")
    with pytest.raises(PullbackError, match=r"temperature is 0\.0; give a number above 0"):
        small(temperature=0.0)
    with pytest.raises(PullbackError, match="multiple of the 5 elites"):
        MBPOConfig(rollouts=7)
    with pytest.raises(PullbackError, match="Guess has no method ends_at"):
        MBPO(Guess(1, dtype=F64), Guess(1, dtype=F64), MBPOConfig())
    with pytest.raises(PullbackError, match=r"fitted to 1 transition.*take more random_steps"):
        run_of(small(rollouts=10, random_steps=1)).iterate()
