"""On a GPU: steps and gradients are those of a CPU, algorithms iterate, recorded updates are those not recorded."""

from copy import deepcopy

import pytest
import torch

from pullback.learn import MBPO, SAC, EnsembleConfig, MBPOConfig, SACConfig, find_algorithm, make
from pullback.learn.window import collect

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
# float32, through contact
AGREE = 2e-2


@pytest.mark.parametrize("name", ["cart-pole", "hopper", "ant"])
def test_steps_and_gradients_are_those_of_a_cpu(name):
    found = []
    envs = [make(name, 8, seed=0, device=device) for device in ("cpu", "cuda")]
    saved = envs[0].save_state()
    controls = 0.3 * torch.randn(4, 8, envs[0].action_size, generator=torch.Generator().manual_seed(0))
    for env in envs:
        state = {**saved, "random": env.random.get_state()}
        env.load_state(state)
        actions = [u.to(env.device).requires_grad_() for u in controls]
        total = sum(env.step(u).reward for u in actions)
        slopes = torch.autograd.grad(total.sum(), actions)
        found.append((total.detach().cpu(), torch.stack(slopes).cpu()))
    (value, slope), (other, another) = found
    torch.testing.assert_close(other, value, rtol=AGREE, atol=1e-2)
    assert (another - slope).norm() < AGREE * slope.norm()


@pytest.mark.parametrize("algorithm", ["shac", "ahac", "sapo"])
def test_algorithms_iterate(algorithm, tmp_path):
    env = make("ant", 64, seed=0, device="cuda")
    kind = find_algorithm(algorithm)
    run = kind(env, kind.Config.of(env, critic_passes=2, horizon=8))
    for _ in range(3):
        run.iterate()
    assert all(torch.tensor(report.gradient_norm).isfinite() for report in run.history)
    assert run.history[-1].lost == 0.0
    other = kind(make("ant", 64, seed=1, device="cuda"), run.config)
    other.load_state(run.state())
    other.iterate()
    assert other.done == 4


def test_nothing_waits_between_the_steps_of_a_window():
    env = make("ant", 64, seed=0, device="cuda")
    run = find_algorithm("shac")(env)
    run.iterate()
    torch.cuda.set_sync_debug_mode("error")
    try:
        window = collect(env, run, 4, 0.99)
        run._improve_policy(window)
        run._fit_critics(window)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def off_policy(kind, **settings):
    env, trial = (make("swing-up", 4, links=2, seed=0, device="cuda") for _ in range(2))
    shared = {"seeds": 2, "epochs": 2, "epoch_steps": 20, "random_steps": 4, "first_update": 0, "updates": 3}
    shared |= {"batch": 16, "hidden": (16, 16)}
    return kind[0](env, trial, kind[1](**shared, **settings))


@pytest.mark.parametrize("name", ["SAC", "enhanced", "MBPO"])
def test_recorded_updates_are_those_not_recorded(name, monkeypatch):
    kinds = {"SAC": (SAC, SACConfig), "enhanced": (SAC, SACConfig), "MBPO": (MBPO, MBPOConfig)}
    settings = {"actor": "simulation"} if name == "enhanced" else {}
    if name == "MBPO":
        # rollouts grow in the second epoch, into another buffer
        model = EnsembleConfig(hidden=(16,), batch=8, most_passes=3)
        settings = {"rollouts": 10, "fit_every": 5, "lengths": (1, 2, 1, 2), "ensemble": model}
    found = []
    for first in (3, 10**9):
        monkeypatch.setattr("pullback.learn.recorded.FIRST", first)
        run = off_policy(kinds[name], **settings)
        for _ in range(2):
            run.iterate()
        found.append(run)
    recorded, plain = found
    assert recorded.improve._graph is not None
    assert plain.improve._graph is None
    for a, b in zip(recorded.critics.parameters(), plain.critics.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(recorded.log_temperature, plain.log_temperature, rtol=1e-4, atol=1e-5)
    other = off_policy(kinds[name], **settings)
    other.load_state(deepcopy(recorded.state()))
    for run in (recorded, other):
        run.iterate()
    torch.testing.assert_close(other.critic_loss, recorded.critic_loss, rtol=1e-4, atol=1e-5)
