"""Implicit steps: against the reference, their ledger, their order, their gradient."""

import numpy as np
import pytest
import torch

import pullback as pb
import pullback.thermal as th
from pullback.rollout.checkpoint import Binomial, Every
from tests.thermal.cases import OTHER, PARAMETERS, TOY, leaves, reference_states, wall


@pytest.mark.parametrize(("theta", "dt"), [(1.0, 0.1), (0.5, 0.05)])
def test_states_and_gradients_agree_with_the_reference(theta, dt):
    # 0.1 s is more than an explicit step could be
    process = wall(method=th.Implicit(theta), dt=dt)
    power, parameters = leaves(process)
    inputs = [power, *parameters.values()]
    states = reference_states(process, power, parameters, theta=theta)
    history = process.run(power, snapshots=range(process.steps + 1), **parameters)
    assert torch.allclose(history.snapshots, states, rtol=0, atol=1e-8)
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = torch.autograd.grad((history.snapshots * weights).sum(), inputs)
    for name, ours, theirs in zip(["power", *PARAMETERS], found, torch.autograd.grad((states * weights).sum(), inputs)):
        assert float((ours - theirs).norm() / theirs.norm()) < 1e-9, name


@pytest.mark.parametrize("theta", [0.5, 1.0])
def test_the_ledger_closes(theta):
    process = wall(method=th.Implicit(theta), dt=0.1)
    ledger = process.run(300.0).ledger
    assert ledger.laser > 0
    assert ledger.births > 0
    assert ledger.fixed < 0
    assert abs(ledger.error) < 1e-12


def test_every_schedule_gives_the_same_bits():
    process = wall(method=th.Implicit(0.6), dt=0.05)

    def gradient(schedule):
        power, parameters = leaves(process)
        final = process.run(power, checkpoint=schedule, **parameters).final
        return torch.autograd.grad((final**2).sum(), [power, *parameters.values()])

    expected = gradient(Every(1))
    for schedule in (5, Every(100), Binomial(3)):
        assert all(torch.equal(a, b) for a, b in zip(gradient(schedule), expected)), schedule


def test_central_differences_of_power():
    process = wall(method=th.Implicit(), dt=0.1)
    power = 300.0 + torch.arange(process.steps, dtype=torch.float64)
    power.requires_grad_()
    (g,) = torch.autograd.grad((process.run(power).final ** 2).sum(), power)
    direction = torch.randn(power.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    with torch.no_grad():
        plus, minus = ((process.run(power + s * 1e-3 * direction).final ** 2).sum() for s in (1, -1))
    assert float(g @ direction) == pytest.approx(float(plus - minus) / 2e-3, rel=1e-6)


def test_float32_is_close():
    wide, narrow = (
        wall(dtype, method=th.Implicit(), dt=0.1).run(300.0).final.double() for dtype in (torch.float64, torch.float32)
    )
    assert float((wide - narrow).abs().max()) < 0.2


@pytest.mark.parametrize(("theta", "order"), [(1.0, 1), (0.5, 2)])
def test_order_in_time(theta, order):
    mesh = th.box((0.004, 0.003, 0.003), 0.001)
    start = torch.as_tensor(400.0 + 300.0 * np.cos(300.0 * mesh.nodes).sum(1))
    material = TOY.with_(latent_heat=0.0, solidus=None, liquidus=None)

    def final(steps):
        options = {"material": material, "initial": start, "convection": 2000.0, "emissivity": 0.5, "ambient": 300.0}
        return th.Process(mesh, dt=0.8 / steps, duration=0.8, method=th.Implicit(theta), **options).run().final

    exact = final(512)
    errors = [float((final(n) - exact).norm()) for n in (8, 16, 32)]
    assert np.log2(np.array(errors[:-1]) / np.array(errors[1:])) == pytest.approx(order, abs=0.2)


def test_melting_in_one_long_step_keeps_the_heat():
    # the whole part melts and more in a single step: Newton's method alone would not get there
    mesh = th.box((0.002, 0.002, 0.002), 0.001)
    material = th.material("316l")
    process = th.Process(
        mesh, dt=50.0, duration=100.0, material=material, convection=3000.0, ambient=2500.0, initial=300.0,
        method=th.Implicit(),
    )  # fmt: skip
    history = process.run()
    assert float(history.final.min()) > material.liquidus
    assert abs(history.ledger.error) < 1e-10


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_part_that_has_come_to_rest_goes_on(dtype):
    # what flows in the last steps is less than rounding
    mesh = th.box((0.004, 0.003, 0.003), 0.001).with_sets(nodes={"end": lambda x: x[:, 0] < 1e-9})
    process = th.Process(
        mesh, dt=50.0, duration=2000.0, material=TOY, convection=200.0, emissivity=0.5, ambient=310.0, initial=900.0,
        fixed={"end": 700.0}, method=th.Implicit(), dtype=dtype,
    )  # fmt: skip
    history = process.run(snapshots=range(41))
    gap = (history.snapshots - history.final).abs().amax(1)
    assert float(gap[0]) > 50.0
    assert float(gap[20:].max()) < (1e-10 if dtype == torch.float64 else 2e-3)


def test_refusals():
    with pytest.raises(pb.PullbackError, match=r"theta is 0.2; expected 0.5"):
        th.Implicit(0.2)
    with pytest.raises(pb.PullbackError, match="one material only"):
        wall(method=th.Implicit(), material={"plate": OTHER, "build": TOY})
