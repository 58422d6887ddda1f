"""Shapes that move among particles: against the reference, differences and dot products, in one step and in many."""

import pytest
import torch

from pullback.soft.domain import KINDS
from pullback.soft.shape_kernels import CORE, CYLINDER, PLANE
from pullback.soft.touch import ShapeKinds, TouchSteps
from pullback.spatial.rotations_torch import quaternion_from_vector, rotation_from_quaternion
from tests.reference import mpm, touch
from tests.soft.scenes import actuation_of, in_reference, numbers_of, parts_of, scene, start

GEOMETRY = {"core": CORE, "plane": PLANE, "cylinder": CYLINDER}
MOST = [
    ("core", "separate"),
    ("core", "stick"),
    ("core", "slip"),
    ("plane", "separate"),
    ("core", "separate"),
    ("cylinder", "separate"),
]
"""A ball, a capsule, a box, the ground, another box and a cylinder, about the blocks."""


def shape_rows():
    """Return numbers (6, 23): shapes that turn and move, and reach into the blocks."""
    generator = torch.Generator().manual_seed(3)

    def random(*size):
        return 2.0 * torch.rand(*size, generator=generator, dtype=torch.float64) - 1.0

    origin = torch.tensor(
        [
            [0.33, 0.42, 0.57],
            [0.55, 0.25, 0.44],
            [0.7, 0.43, 0.62],
            [0.5, 0.4, 0.36],
            [0.22, 0.5, 0.44],
            [0.48, 0.52, 0.5],
        ]
    )
    sizes = torch.tensor(
        [
            [0.0, 0.0, 0.0, 0.12],
            [0.0, 0.0, 0.1, 0.07],
            [0.08, 0.05, 0.04, 0.05],
            [0.0] * 4,
            [0.06, 0.02, 0.1, 0.05],
            [0.06, 0.06, 0.05, 0.05],
        ]
    )
    R = rotation_from_quaternion(quaternion_from_vector(0.6 * random(6, 3)))
    friction = torch.tensor([[0.4], [0.0], [0.0], [0.2], [0.7], [0.3]])
    parts = [origin.double(), R.flatten(1), 0.7 * random(6, 3), 2.0 * random(6, 3), sizes.double(), friction.double()]
    return torch.cat(parts, 1)


def kinds_of(kinds):
    laws = [int(KINDS[law]) for _, law in kinds]
    return ShapeKinds(
        torch.tensor([int(GEOMETRY[g]) for g, _ in kinds], dtype=torch.int32), torch.tensor(laws, dtype=torch.int32)
    )


class Case:
    """A few steps among shapes in both implementations, as functions of the same leaves."""

    def __init__(self, kinds=("neo_hookean",), steps=3, shapes=MOST, **options):
        self.sim, self.steps, self.kinds = scene(kinds, **options), steps, shapes
        values = dict(parts_of(start(self.sim)))
        values |= {"numbers": numbers_of(self.sim), "gravity": self.sim.gravity[None]}
        values |= {"actuation": actuation_of(self.sim, steps), "shapes": shape_rows().to(self.sim.dtype)}
        self.leaves = {name: x.detach().clone().to(self.sim.dtype).requires_grad_() for name, x in values.items()}

    def ours(self, leaves):
        """Return the flat state after all steps, and what shapes got (steps, S, 6)."""
        constants = leaves["numbers"][None], leaves["gravity"], leaves["actuation"]
        steps = TouchSteps(self.sim._setup(1), kinds_of(self.kinds), 64, constants)
        flat = torch.cat([leaves[name].reshape(-1) for name in ("x", "v", "C", "F", "history")])
        touches = []
        for k in range(self.steps):
            flat, got = steps(k, flat, leaves["shapes"])
            touches.append(got[:, :6])
        assert not steps.run.needs_room
        return flat, torch.stack(touches)

    def reference(self, leaves):
        set_up = in_reference(self.sim, leaves["numbers"], leaves["gravity"][0])
        state = mpm.State(*[leaves[name] for name in ("x", "v", "C", "F", "history")])
        touches = []

        def collide(X, v, m):
            after, got = touch.collide(X, v, m, leaves["shapes"], self.kinds, self.sim.domain.cell)
            touches.append(got)
            return after

        for k in range(self.steps):
            state = mpm.step(set_up, state, leaves["actuation"][k], collide)
        return torch.cat([part.reshape(-1) for part in state.tensors()]), torch.stack(touches)

    def loss(self, outputs):
        generator = torch.Generator().manual_seed(5)
        weights = [torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y) for y in outputs]
        # impulses are small numbers
        return sum((y * w).sum() * scale for y, w, scale in zip(outputs, weights, (1.0, 1e3)))


def test_a_step_is_that_of_the_reference():
    case = Case(("neo_hookean", "fluid"))
    leaves = {name: x.detach() for name, x in case.leaves.items()}
    for ours, theirs in zip(case.ours(leaves), case.reference(leaves)):
        assert torch.allclose(ours, theirs, rtol=0.0, atol=1e-13 * float(theirs.abs().max()))
    touched = case.ours(leaves)[1].abs().amax((0, 2))
    assert (touched > 1e-6).all(), touched


def test_every_gradient_agrees_with_autograd_of_the_reference():
    case = Case(("neo_hookean", "fluid"))
    inputs = list(case.leaves.values())
    expected = torch.autograd.grad(case.loss(case.reference(case.leaves)), inputs, allow_unused=True)
    found = torch.autograd.grad(case.loss(case.ours(case.leaves)), inputs, allow_unused=True)
    for name, g, e in zip(case.leaves, found, expected):
        if e is None or not float(e.norm()):
            assert name == "history"
            continue
        assert float((g - e).norm()) <= 1e-10 * float(e.norm()), name
    by_shapes = expected[-1]
    # each kind of number of some shape counts
    assert (by_shapes.abs().amax(0) > 0).all()


@pytest.mark.parametrize("name", ["x", "v", "F", "numbers", "actuation", "shapes"])
def test_differences(name):
    """Central differences of fourth order, over 20 steps."""
    case = Case(steps=20)
    (found,) = torch.autograd.grad(case.loss(case.ours(case.leaves)), [case.leaves[name]])
    x = case.leaves[name].detach()
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    direction = direction * (x.abs() if name in ("numbers", "actuation") else 0.01)

    def at(size):
        changed = {key: y.detach() for key, y in case.leaves.items()} | {name: x + size * direction}
        return float(case.loss(case.ours(changed)))

    step = 5e-5 if name == "shapes" else 2e-4
    slope = (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step)
    assert float((found * direction).sum()) == pytest.approx(slope, rel=1e-4)


def test_dot_product_with_the_tangent_of_the_reference():
    case = Case()
    generator = torch.Generator().manual_seed(6)
    leaves = list(case.leaves.values())
    directions = [torch.randn(x.shape, generator=generator, dtype=torch.float64) * x.detach().abs() for x in leaves]
    outputs = case.reference(case.leaves)
    w = [torch.zeros_like(y, requires_grad=True) for y in outputs]
    pulled = torch.autograd.grad(outputs, leaves, w, create_graph=True, allow_unused=True)
    along = sum((p * v).sum() for p, v in zip(pulled, directions) if p is not None)
    Jv = torch.autograd.grad(along, w)
    weights = [torch.randn(y.shape, generator=generator, dtype=torch.float64) for y in outputs]
    back = torch.autograd.grad(case.ours(case.leaves), leaves, weights, allow_unused=True)
    forward_side = sum(float((a * b).sum()) for a, b in zip(Jv, weights))
    backward_side = sum(float((g * v).sum()) for g, v in zip(back, directions) if g is not None)
    size = sum(float(a.norm() * b.norm()) for a, b in zip(Jv, weights))
    assert abs(forward_side - backward_side) < 1e-12 * size


def test_threads_and_float32():
    """Two threads give the bits of one; float32 is close."""
    grads = []
    for options in ({}, {"threads": 2}, {"dtype": torch.float32}):
        case = Case(**options)
        grads.append(torch.autograd.grad(case.loss(case.ours(case.leaves)), [case.leaves["x"], case.leaves["shapes"]]))
    for one, two, narrow in zip(*grads):
        assert torch.equal(one, two)
        assert float((narrow.double() - one).norm()) <= 1e-3 * float(one.norm())
