"""Steps of material points against the reference, and against themselves by other ways."""

import numpy as np
import pytest
import torch

import pullback.soft as soft
from tests.reference import mpm
from tests.soft.scenes import (
    CELL,
    MATERIALS,
    actuation_of,
    in_reference,
    numbers_of,
    parts_of,
    reference_state,
    scene,
    start,
)

ROUNDING = {torch.float64: 1e-12, torch.float32: 3e-4}
"""Over 20 steps; of each part by its norm."""


def expected(sim, state, steps, actuation=None):
    wide = [x.double() for x in parts_of(state).values()]
    reference = in_reference(sim, numbers_of(sim).double(), sim.gravity.double())
    return mpm.rollout(reference, mpm.State(*wide), steps, actuation)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("kinds", [(k,) for k in MATERIALS] + [tuple(MATERIALS)], ids=[*MATERIALS, "all"])
def test_steps_agree_with_the_reference(kinds, dim, dtype):
    sim = scene(kinds, dim, dtype)
    state, actuation = start(sim), actuation_of(sim, 20)
    last = expected(sim, state, 20, actuation)[-1]
    found = sim.rollout(state, 20, actuation=actuation.to(dtype)).final
    for (name, ours), theirs in zip(parts_of(found).items(), last.tensors()):
        scale = float(theirs.norm()) if name != "history" else max(float(theirs.norm()), 0.1)
        assert float((ours.double() - theirs).norm()) < ROUNDING[dtype] * scale, name


def test_materials_and_walls_take_part():
    """See what the gate above would miss if nothing flowed, tore or touched a wall."""
    sim = scene()
    states = expected(sim, start(sim), 20, actuation_of(sim, 20))
    flowed = states[-1].history - states[0].history
    assert (flowed[sim.of("von_mises")] > 0).sum() > 5
    assert (states[-1].history[sim.of("drucker_prager")] > 0).any()
    node = reference_state(states[-1]).x - torch.tensor(sim.domain.low)
    assert (node[:, 0] < 1.5 * CELL).any()
    assert (node[:, 1] < 1.5 * CELL).any()


def test_frames_are_the_states():
    sim = scene(("neo_hookean",))
    state, actuation = start(sim), actuation_of(sim, 12)
    run = sim.rollout(state, 12, frames=[0, 5, 12], actuation=actuation)
    assert torch.equal(run.x[0], state.x)
    assert torch.equal(run.v[2], run.final.v)
    assert run.times.tolist() == pytest.approx([0.0, 0.01, 0.024])
    half = sim.rollout(state, 5, actuation=actuation[:5]).final
    assert torch.equal(run.x[1], half.x)
    # a state goes on where it was left
    assert torch.equal(sim.rollout(half, 7, actuation=actuation[5:]).final.F, run.final.F)


def test_kernels_of_few_materials_do_what_those_of_all_do():
    few, every = (scene(("neo_hookean",), specialised=special) for special in (True, False))
    assert few.variant != every.variant
    ours, theirs = (sim.rollout(start(sim), 5).final.F for sim in (few, every))
    assert torch.allclose(ours, theirs, rtol=0.0, atol=1e-14)


def test_two_threads_give_the_bits_of_one(monkeypatch):
    monkeypatch.setattr("pullback.core.passes.Pass.ITEMS_PER_THREAD", 8)
    one, two = (scene(threads=threads, size=5) for threads in (1, 2))
    final = [sim.rollout(start(sim), 10).final for sim in (one, two)]
    for name, part in parts_of(final[0]).items():
        assert torch.equal(part, getattr(final[1], name)), name


def test_worlds_of_a_batch_do_not_know_each_other():
    sim = scene(("neo_hookean", "fluid"))
    states = [start(sim, seed) for seed in range(3)]
    actuation = torch.stack([actuation_of(sim, 10, seed) for seed in range(3)], 1)
    together = soft.SoftState(*[torch.stack(parts) for parts in zip(*[parts_of(s).values() for s in states])])
    gravity = torch.tensor([[0.0, -9.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 3.0]]).double()
    run = sim.rollout(together, 10, actuation=actuation, gravity=gravity)
    for world, state in enumerate(states):
        alone = sim.rollout(state, 10, actuation=actuation[:, world], gravity=gravity[world]).final
        for name, part in parts_of(alone).items():
            assert torch.equal(part, getattr(run.final, name)[world]), (world, name)


def test_particles_that_spread_over_many_blocks_get_room():
    """Particles fly apart, into more blocks than there was room for at the start."""
    rng = np.random.default_rng(0)
    points = 0.5 + 0.02 * rng.random((60, 3))
    velocity = 8.0 * (points - 0.51) / 0.02
    material = soft.Elastic(youngs=1e-3, poisson=0.0)
    body = soft.Body("dust", points, 1e-6, material, velocity=velocity)
    domain = soft.Domain((-4.0,) * 3, (5.0,) * 3, 0.01, sides="open")
    sim = soft.SoftSim(domain, [body], dt=1e-3, dtype=torch.float64)
    x = sim.state().x.requires_grad_()
    run = sim.rollout(sim.state().replace(x=x), 200)
    blocks = ((run.final.x.detach() - 0.5) / 0.04).floor().unique(dim=0)
    assert len(blocks) > 50
    assert torch.allclose(run.final.x.mean(0), x.mean(0) + 0.2 * torch.tensor(velocity).mean(0), atol=1e-12)
    assert torch.isfinite(torch.autograd.grad(run.final.x.sum(), x)[0]).all()


def test_the_size_of_the_domain_changes_nothing():
    sims = []
    for reach in (0.0, 12.8):
        domain = soft.Domain((0.2 - reach,) * 3, (1.0 + reach,) * 3, CELL, sides="open")
        sims.append(scene(("neo_hookean",), domain=domain, muscles=False))
    small, large = (sim.rollout(start(sim, speed=0.1), 5).final.x for sim in sims)
    assert torch.allclose(small, large, rtol=0.0, atol=1e-13)
