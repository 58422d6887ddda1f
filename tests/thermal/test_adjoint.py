"""The gradient of a run: against the reference, differences, dot products, and itself by other ways."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.rollout.checkpoint import Binomial, Every
from tests.thermal.cases import PARAMETERS, leaves, reference_states, wall


def seen(process, power, parameters, **options):
    """Return something of every output: probes inside elements, snapshots, the final state."""
    probes = process.probes(process.mesh.nodes[process.mesh.elements[::5]].mean(1))
    history = process.run(power, probes=probes, snapshots=range(0, process.steps, 7), **options, **parameters)
    return torch.cat([history.probes.flatten(), history.snapshots.flatten(), history.final])


def loss(y):
    """Return a number that depends on all of y in its own way."""
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64).to(y.dtype)
    return (weights * (y / 500.0) ** 2).sum()


def gradient(process, **options):
    power, parameters = leaves(process)
    grads = torch.autograd.grad(loss(seen(process, power, parameters, **options)), [power, *parameters.values()])
    return dict(zip(["power", *parameters], grads))


@pytest.fixture(scope="module")
def at_reference():
    process = wall()
    power, parameters = leaves(process)
    states = reference_states(process, power, parameters)
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    inputs = [power, *parameters.values()]
    return process, inputs, weights, states


def test_every_gradient_agrees_with_autograd_of_the_reference(at_reference):
    process, inputs, weights, states = at_reference
    expected = torch.autograd.grad((states * weights).sum(), inputs, retain_graph=True)
    names = ["power", *PARAMETERS]
    history = process.run(inputs[0], snapshots=range(process.steps + 1), **dict(zip(PARAMETERS, inputs[1:])))
    found = torch.autograd.grad((history.snapshots * weights).sum(), inputs)
    for name, ours, theirs in zip(names, found, expected):
        assert float(theirs.norm()) > 0, name
        assert float((ours - theirs).norm() / theirs.norm()) < 1e-11, name


def test_dot_product_with_the_tangent_of_the_reference(at_reference):
    process, inputs, weights, states = at_reference
    generator = torch.Generator().manual_seed(6)
    tangents = [
        torch.randn(x.shape, generator=generator, dtype=torch.float64) * (1e-3 + x.detach().abs()) for x in inputs
    ]
    # J v by the trick of two transposes: d/dw of (Jᵀ w) · v
    w = torch.zeros_like(states, requires_grad=True)
    pulled = torch.autograd.grad(states, inputs, w, create_graph=True)
    (Jv,) = torch.autograd.grad(sum((p * v).sum() for p, v in zip(pulled, tangents)), w)
    history = process.run(inputs[0], snapshots=range(process.steps + 1), **dict(zip(PARAMETERS, inputs[1:])))
    back = torch.autograd.grad((history.snapshots * weights).sum(), inputs)
    forward_side = float((Jv * weights).sum())
    backward_side = float(sum((g * v).sum() for g, v in zip(back, tangents)))
    assert abs(forward_side - backward_side) < 1e-12 * float(Jv.norm() * weights.norm())


@pytest.mark.parametrize("name", ["power", *PARAMETERS])
def test_central_differences(name):
    process = wall(duration=0.8)
    power, parameters = leaves(process)
    inputs = {"power": power, **parameters}
    found = torch.autograd.grad(loss(seen(process, power, parameters)), inputs[name])[0]
    x = inputs[name].detach()
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    direction = direction * x.abs().max() if name != "positions" else direction * 1e-3
    step = 1e-6

    def at(size):
        changed = {key: y.detach() for key, y in inputs.items()} | {name: x + size * direction}
        with torch.no_grad():
            return float(loss(seen(process, changed.pop("power"), changed)))

    slope = (at(step) - at(-step)) / (2 * step)
    assert float((found * direction).sum()) == pytest.approx(slope, rel=2e-6)


def test_taylor_remainder_falls_with_the_square():
    process = wall(duration=0.8)
    power, parameters = leaves(process)
    inputs = [power, *parameters.values()]
    start = loss(seen(process, power, parameters))
    grads = torch.autograd.grad(start, inputs)
    generator = torch.Generator().manual_seed(9)
    steps = [torch.randn(x.shape, generator=generator, dtype=torch.float64) * x.detach().abs() for x in inputs]
    slope = sum(float((g * v).sum()) for g, v in zip(grads, steps))
    sizes, left = [2e-4, 1e-4, 5e-5, 2.5e-5], []
    for size in sizes:
        moved = [x.detach() + size * v for x, v in zip(inputs, steps)]
        with torch.no_grad():
            left.append(
                abs(float(loss(seen(process, moved[0], dict(zip(PARAMETERS, moved[1:])))) - start) - size * slope)
            )
    orders = np.log2(np.array(left[:-1]) / np.array(left[1:]))
    assert (np.abs(orders - 2.0) < 0.1).all(), orders


def test_every_schedule_gives_the_same_bits():
    process = wall()
    expected = gradient(process, checkpoint=Every(1))
    for schedule in (None, 5, Every(13), Every(1000), Binomial(3), Binomial(8)):
        for name, g in gradient(process, checkpoint=schedule).items():
            assert torch.equal(g, expected[name]), (schedule, name)


def test_two_threads_give_the_bits_of_one(monkeypatch):
    monkeypatch.setattr("pullback.core.passes.Pass.ITEMS_PER_THREAD", 8)
    one, two = gradient(wall(threads=1)), gradient(wall(threads=2))
    for name, g in one.items():
        assert torch.equal(g, two[name]), name


def test_float32_gradient_is_close():
    wide, narrow = gradient(wall()), gradient(wall(torch.float32))
    for name, g in wide.items():
        assert float((narrow[name].double() - g).norm() / g.norm()) < 2e-3, name


def test_only_power_is_asked_for():
    process = wall()
    power = torch.full((process.steps,), 300.0, dtype=torch.float64, requires_grad=True)
    every = torch.autograd.grad(loss(seen(process, power, {})), power)[0]
    fixed = {"convection": torch.tensor(process.values["convection"]).double().requires_grad_()}
    again = torch.autograd.grad(loss(seen(process, power, fixed)), power)[0]
    assert torch.equal(every, again)
    assert (every[torch.as_tensor(~process.on)] == 0).all()


def test_goldak_gradients_by_differences():
    process = wall(
        source=pb.thermal.Goldak(front=1e-3, back=2e-3, width=8e-4, depth=7e-4, absorptivity=0.5), duration=0.5
    )
    names = ("front", "back", "width", "depth", "absorptivity")
    values = {n: torch.tensor(getattr(process.laser.source, n), dtype=torch.float64, requires_grad=True) for n in names}
    values["positions"] = torch.tensor(process.positions, requires_grad=True)

    def at(values):
        return loss(process.run(200.0, **values).final)

    grads = torch.autograd.grad(at(values), list(values.values()))
    generator = torch.Generator().manual_seed(2)
    for (name, x), g in zip(values.items(), grads):
        direction = torch.randn(x.shape, generator=generator, dtype=torch.float64) * 1e-3
        plus, minus = (at({**values, name: x.detach() + s * 1e-4 * direction}).item() for s in (1, -1))
        assert float((g * direction).sum()) == pytest.approx((plus - minus) / 2e-4, rel=1e-5), name


def test_a_second_derivative_is_refused():
    process = wall(duration=0.1)
    power = torch.full((process.steps,), 300.0, dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(process.run(power).final.sum(), power, create_graph=True)
    with pytest.raises(pb.SecondDerivativeError, match="first derivative only"):
        g.sum().backward()


def test_a_graph_can_be_walked_twice():
    process = wall(duration=0.3)
    power, parameters = leaves(process)
    final = process.run(power, **parameters).final
    one, two = (torch.autograd.grad(final.sum(), power, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(one, two)
