"""The gradient of a rollout: against the reference, differences, dot products, and itself by other ways."""

import pytest
import torch

import pullback as pb
import pullback.soft as soft
from pullback.rollout.checkpoint import Binomial, Every
from tests.reference import mpm
from tests.soft.scenes import MATERIALS, actuation_of, in_reference, numbers_of, parts_of, scene, start

PARTS = ("x", "v", "C", "F", "history")
NAMES = (*PARTS, "numbers", "gravity", "actuation")

DIFFERENCES = 1e-6
"""Relative, of a directional derivative over 100 smooth steps in float64."""


def leaves_of(sim, steps, **options):
    """Return everything that has a gradient, by name."""
    values = dict(parts_of(start(sim, **options)))
    values |= {"numbers": numbers_of(sim), "gravity": sim.gravity, "actuation": actuation_of(sim, steps)}
    return {name: x.detach().clone().requires_grad_() for name, x in values.items()}


def final_of(sim, steps, leaves, monkeypatch, checkpoint=None):
    """Return the parts of the final state and frames."""
    monkeypatch.setattr(sim, "_numbers", lambda materials, worlds: leaves["numbers"][None])
    state = soft.SoftState(*[leaves[name] for name in PARTS])
    run = sim.rollout(
        state,
        steps,
        actuation=leaves["actuation"] if sim.actuators else None,
        gravity=leaves["gravity"],
        frames=[0, steps // 2],
        checkpoint=checkpoint,
    )
    return [*parts_of(run.final).values(), run.x, run.v]


def weights_for(outputs):
    generator = torch.Generator().manual_seed(4)
    scale = {0: 10.0, 3: 1.0}
    return [
        scale.get(k, 1.0) * torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype)
        for k, x in enumerate(outputs)
    ]


def loss_of(outputs):
    return sum((x * w).sum() for x, w in zip(outputs, weights_for(outputs)))


def gradients(sim, steps, monkeypatch, **options):
    leaves = leaves_of(sim, steps)
    loss = loss_of(final_of(sim, steps, leaves, monkeypatch, **options))
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return {name: g for name, g in zip(leaves, grads) if g is not None}


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("kinds", [(k,) for k in MATERIALS] + [tuple(MATERIALS)], ids=[*MATERIALS, "all"])
def test_every_gradient_agrees_with_autograd_of_the_reference(kinds, dim, monkeypatch):
    sim, steps = scene(kinds, dim), 10
    # sand that is torn apart has equal stretches, of which autograd makes no number
    leaves = leaves_of(sim, steps, pressed=0.9)
    reference = in_reference(sim, leaves["numbers"], leaves["gravity"])
    states = mpm.rollout(reference, mpm.State(*[leaves[name] for name in PARTS]), steps, leaves["actuation"])
    theirs = [*states[-1].tensors(), *(torch.stack([getattr(states[k], n) for k in (0, steps // 2)]) for n in "xv")]
    inputs = list(leaves.values())
    expected = torch.autograd.grad(loss_of(theirs), inputs)
    found = torch.autograd.grad(loss_of(final_of(sim, steps, leaves, monkeypatch)), inputs)
    for name, g, e in zip(leaves, found, expected):
        assert float(e.norm()) > 0 or (name == "history" and not {"von_mises", "drucker_prager"} & set(kinds)), name
        assert float((g - e).norm()) <= 1e-9 * max(float(e.norm()), 1e-12), name


def tangent(sim, steps, leaves, directions):
    """Return J v of the reference by the trick of two transposes: d/dw of (Jᵀ w) · v."""
    reference = in_reference(sim, leaves["numbers"], leaves["gravity"])
    states = mpm.rollout(reference, mpm.State(*[leaves[name] for name in PARTS]), steps, leaves["actuation"])
    outputs = states[-1].tensors()
    w = [torch.zeros_like(x, requires_grad=True) for x in outputs]
    pulled = torch.autograd.grad(outputs, list(leaves.values()), w, create_graph=True)
    return torch.autograd.grad(sum((p * v).sum() for p, v in zip(pulled, directions)), w)


def test_dot_product_with_the_tangent_of_the_reference(monkeypatch):
    sim, steps = scene(("neo_hookean", "fixed_corotated", "fluid", "von_mises")), 10
    leaves = leaves_of(sim, steps)
    generator = torch.Generator().manual_seed(6)
    directions = [
        torch.randn(x.shape, generator=generator, dtype=torch.float64) * (1e-3 + x.detach().abs())
        for x in leaves.values()
    ]
    Jv = tangent(sim, steps, leaves, directions)
    outputs = final_of(sim, steps, leaves, monkeypatch)[:5]
    w = weights_for(outputs)
    back = torch.autograd.grad(outputs, list(leaves.values()), w)
    forward_side = sum(float((a * b).sum()) for a, b in zip(Jv, w))
    backward_side = sum(float((g * v).sum()) for g, v in zip(back, directions))
    size = sum(float(a.norm() * b.norm()) for a, b in zip(Jv, w))
    assert abs(forward_side - backward_side) < 1e-12 * size


SMOOTH = soft.Domain((0.0,) * 3, (2.5, 1.2, 1.2), 0.1, sides="open")

SIZES = {"x": 0.01, "v": 0.02, "history": 0.01, "F": 0.05}
"""Of directions, so that particles stay on their side of the yield surface."""


def compare_with_differences(sim, steps, leaves, name, monkeypatch, tolerance=DIFFERENCES):
    """Compare the gradient along a random direction with central differences of fourth order."""
    found = torch.autograd.grad(loss_of(final_of(sim, steps, leaves, monkeypatch)), leaves[name])[0]
    x = leaves[name].detach()
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    direction = direction * SIZES.get(name, 1.0)
    if name in ("numbers", "actuation", "gravity"):
        direction = direction * x.abs()
    if name == "F":
        # of a fluid's deformation one entry counts
        direction[sim._kind == 2, :, 1:] = direction[sim._kind == 2, 1:] = 0.0

    def at(size):
        changed = {key: y.detach() for key, y in leaves.items()} | {name: x + size * direction}
        with torch.no_grad():
            return float(loss_of(final_of(sim, steps, changed, monkeypatch)))

    step = 2e-4
    slope = (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step)
    assert float((found * direction).sum()) == pytest.approx(slope, rel=tolerance)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", MATERIALS)
def test_central_differences_over_100_steps(kind, name, monkeypatch):
    if name == "history" and kind not in ("von_mises", "drucker_prager"):
        pytest.skip("has no history")
    sim, steps = scene((kind,), domain=SMOOTH), 100
    leaves = leaves_of(sim, steps, speed=0.05, pressed=0.9)
    with torch.no_grad():
        # yielding is a kink: half of the clay never does; sand stays under pressure for as long as it is strong
        if kind == "von_mises":
            leaves["numbers"][::2, 4] *= 100.0
        if kind == "drucker_prager":
            leaves["C"] *= 0.05
    compare_with_differences(sim, steps, leaves, name, monkeypatch)


@pytest.mark.parametrize("name", ["x", "F", "numbers", "history"])
@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("kind", ["fixed_corotated", "von_mises", "drucker_prager"])
def test_equal_stretches_are_no_singularity(kind, dim, name, monkeypatch):
    """Undeformed, and pressed alike from all sides: where eigenvectors are any, and autograd gives nothing."""
    if name == "history" and kind == "fixed_corotated":
        pytest.skip("has no history")
    sim, steps = scene((kind,), dim, domain=soft.Domain((0.0,) * dim, (1.2,) * dim, 0.1, sides="open")), 10
    leaves = leaves_of(sim, steps, strain=0.0, speed=0.2, pressed=0.95)
    with torch.no_grad():
        leaves["C"].zero_()
        if kind == "von_mises":
            leaves["numbers"][:, 4] *= 1e-3
    compare_with_differences(sim, steps, leaves, name, monkeypatch, 1e-5)


@pytest.mark.parametrize("name", ["x", "v", "F", "numbers", "actuation"])
def test_central_differences_through_contact(name, monkeypatch):
    """Blocks thrown at walls with friction: 1e-4, as long as no node changes between sticking and sliding."""
    sim, steps = scene(("neo_hookean", "fixed_corotated", "fluid")), 60
    leaves = leaves_of(sim, steps, speed=0.3)
    with torch.no_grad():
        leaves["v"] -= torch.tensor([1.0, 1.5, 0.0])
    reached = final_of(sim, steps, leaves, monkeypatch)[0].detach() - torch.tensor(sim.domain.low)
    assert (reached[:, :2] < 0.05).any()
    compare_with_differences(sim, steps, leaves, name, monkeypatch, 1e-4)


def test_every_schedule_gives_the_same_bits(monkeypatch):
    sim = scene()
    expected = gradients(sim, 20, monkeypatch, checkpoint=Every(1))
    assert set(expected) == set(NAMES)
    for schedule in (None, 3, Every(7), Every(1000), Binomial(2), Binomial(5)):
        for name, g in gradients(sim, 20, monkeypatch, checkpoint=schedule).items():
            assert torch.equal(g, expected[name]), (schedule, name)


def test_two_threads_give_the_bits_of_one(monkeypatch):
    monkeypatch.setattr("pullback.core.passes.Pass.ITEMS_PER_THREAD", 8)
    one, two = (gradients(scene(threads=threads, size=5), 8, monkeypatch) for threads in (1, 2))
    for name, g in one.items():
        assert torch.equal(g, two[name]), name


def test_a_thread_a_particle_gives_what_sorted_blocks_give(monkeypatch):
    """The way of a GPU, on a CPU, one thread: slots are claimed, and nothing is sorted."""
    expected = gradients(scene(), 8, monkeypatch)
    monkeypatch.setattr("pullback.soft.forward.sorts_on", lambda device: False)
    for name, g in gradients(scene(), 8, monkeypatch).items():
        assert float((g - expected[name]).norm()) <= 1e-12 * float(g.norm()), name


def test_float32_gradient_is_close(monkeypatch):
    kinds = ("neo_hookean", "fixed_corotated", "fluid")
    wide = gradients(scene(kinds), 10, monkeypatch)
    narrow = gradients(scene(kinds, dtype=torch.float32), 10, monkeypatch)
    for name, g in wide.items():
        assert float((narrow[name].double() - g).norm()) <= 2e-4 * float(g.norm()), name


def test_gradients_of_a_batch_are_those_of_its_worlds():
    sim, steps = scene(("neo_hookean", "von_mises")), 8
    states = [start(sim, seed) for seed in range(3)]
    actuation = torch.stack([actuation_of(sim, steps, seed) for seed in range(3)], 1)
    together = soft.SoftState(*[torch.stack(parts) for parts in zip(*[parts_of(s).values() for s in states])])
    youngs = torch.tensor([[300.0], [400.0], [500.0]], dtype=torch.float64)

    def found(state, actuation, youngs):
        leaves = [x.detach().clone().requires_grad_() for x in (state.x, actuation, youngs, sim.gravity)]
        material = soft.Elastic(youngs=leaves[2], poisson=0.3)
        run = sim.rollout(
            state.replace(x=leaves[0]),
            steps,
            actuation=leaves[1],
            gravity=leaves[3],
            materials={"neo_hookean": material},
        )
        return torch.autograd.grad((run.final.x**2).sum() + run.final.F.sum(), leaves)

    all_x, all_actuation, all_youngs, all_gravity = found(together, actuation, youngs)
    total = torch.zeros(3).double()
    for world, state in enumerate(states):
        x, muscles, E, gravity = found(state, actuation[:, world], youngs[world])
        assert torch.allclose(all_x[world], x, rtol=0.0, atol=1e-13)
        assert torch.allclose(all_actuation[:, world], muscles, rtol=1e-12, atol=1e-16)
        assert torch.allclose(all_youngs[world], E, rtol=1e-11)
        total += gravity
    assert torch.allclose(all_gravity, total, rtol=1e-12)


def test_a_number_of_a_material_has_a_gradient_and_may_differ_by_particle():
    sim = scene(("neo_hookean",), muscles=False)
    count = sim.particles
    each = torch.full((count,), 300.0, dtype=torch.float64, requires_grad=True)
    one = torch.tensor(300.0, dtype=torch.float64, requires_grad=True)

    def loss(youngs):
        material = soft.Elastic(youngs=youngs, poisson=0.3, viscosity=0.02)
        return sim.rollout(start(sim), 10, materials={"neo_hookean": material}).final.x.square().sum()

    (by_each,), (by_one,) = torch.autograd.grad(loss(each), each), torch.autograd.grad(loss(one), one)
    assert by_each.abs().min() > 0
    assert float(by_each.sum()) == pytest.approx(float(by_one), rel=1e-10)


def test_a_second_derivative_is_refused():
    sim = scene(("neo_hookean",))
    x = sim.state().x.requires_grad_()
    (g,) = torch.autograd.grad(sim.rollout(sim.state().replace(x=x), 3).final.x.square().sum(), x, create_graph=True)
    with pytest.raises(pb.SecondDerivativeError, match="first derivative only"):
        g.sum().backward()


def test_a_graph_can_be_walked_twice():
    sim = scene(("neo_hookean",))
    x = sim.state().x.requires_grad_()
    loss = sim.rollout(sim.state().replace(x=x), 5).final.x.square().sum()
    one, two = (torch.autograd.grad(loss, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(one, two)
