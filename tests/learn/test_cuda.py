"""On a GPU: steps and gradients are those of a CPU, and all algorithms iterate."""

import pytest
import torch

from pullback.learn import find_algorithm, make
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
