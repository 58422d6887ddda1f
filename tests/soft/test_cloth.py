"""Sheets and ropes: one step against the reference, rollouts against differences, checkpoints, batches."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.rollout.checkpoint import Binomial, Every
from tests.soft.cloth_scenes import CORD, DT, FABRIC, OurStep, leaves_of, random, reference_step, scene

soft = pb.soft


def relative(a, b):
    return float(((a - b).abs().max() / b.abs().max()).detach())


@pytest.mark.parametrize("shapes", [False, True])
def test_a_step_is_that_of_the_reference(shapes):
    """Positions, velocities, forces of pins, impulses on shapes, and every gradient of a random mixture of them."""
    sim = scene()
    leaves = leaves_of(sim, shapes)
    ours = OurStep(sim, shapes)(leaves)
    near = ours[0].detach() + 1e-3 * random(29, sim.vertices, 3)
    theirs = reference_step(sim, shapes)(leaves, near)
    weights = [random(30 + k, *y.shape) for k, y in enumerate(theirs)]
    for y, z in zip(ours, theirs):
        assert relative(y, z) < 1e-12
    gradients = []
    for found in (ours, theirs):
        loss = sum((w * y).sum() for w, y in zip(weights, found))
        gradients.append(torch.autograd.grad(loss, list(leaves.values())))
    for name, y, z in zip(leaves, *gradients):
        assert float(z.abs().max()) > 0.0, name
        if name in ("before", "after"):
            # nine numbers of a rotation: their derivatives are those by `turned`
            y, z = (torch.cat([g[:, :3], g[:, 12:]], 1) for g in (y, z))
        assert relative(y, z) < (1e-8 if shapes else 1e-9), name


def test_dot_product():
    """Along random changes of everything at once: (J d) · w by differences is d · (Jᵀ w)."""
    sim = scene()
    leaves = leaves_of(sim, True)
    names = [name for name in leaves if name not in ("after",)]
    step = OurStep(sim, True)
    directions = {name: random(50 + k, *leaves[name].shape) for k, name in enumerate(names)}
    directions["before"][:, 3:12] = 0.0
    # friction of 0 has one side only
    directions["before"][1, 22] = 0.0
    for name in ("masses", "triangle", "segment", "hinge", "bend"):
        directions[name] *= 0.1 * leaves[name].detach()
    weights = [random(70 + k, *y.shape) for k, y in enumerate(step(leaves))]

    def along(t):
        moved = {name: leaves[name].detach() + t * directions.get(name, torch.zeros(())) for name in leaves}
        return float(sum((w * y).sum() for w, y in zip(weights, step(moved))))

    # far below the slip at which friction turns, 4e-4
    h = 2e-6
    tangent = (8.0 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12.0 * h)
    loss = sum((w * y).sum() for w, y in zip(weights, step(leaves)))
    gradients = dict(zip(names, torch.autograd.grad(loss, [leaves[name] for name in names])))
    product = float(sum((directions[name] * gradients[name]).sum() for name in names))
    assert product == pytest.approx(tangent, rel=1e-6)


def rollout_loss(sim, values, steps, **options):
    fabric = soft.Fabric(
        youngs=values["youngs"], youngs_across=values["across"], poisson=values["poisson"], shear=values["shear"],
        bending=values["bending"], density=values["density"], damping=values["damping"], bending_damping=0.03,
    )  # fmt: skip
    cord = soft.Cord(stretch=values["stretch"], bending=values["cord"], density=0.2, damping=0.01, bending_damping=0.02)
    run = sim.rollout(
        soft.ClothState(values["x"], values["v"]),
        steps,
        pins=values["pins"],
        forces=values["forces"],
        gravity=values["gravity"],
        materials={"sheet": fabric, "rope": cord},
        frames=10,
        **options,
    )
    w = random(90, *run.x.shape)
    return (
        (w * run.x).sum() + (0.1 * w * run.v).sum() + 0.05 * run.reactions.square().sum() + run.final.x.square().sum()
    )


def rollout_values(sim, steps):
    state = sim.state()
    numbers = {"youngs": 30.0, "across": 18.0, "poisson": 0.25, "shear": 9.0, "bending": 2e-3, "density": 0.4}
    numbers |= {"damping": 0.02, "stretch": 25.0, "cord": 4e-3}
    t = torch.arange(1, steps + 1)[:, None, None] * DT
    pins = state.x[torch.as_tensor(sim.pins)] + 0.05 * torch.sin(3.0 * t + random(3, 1, len(sim.pins), 3))
    values = {"x": state.x + 0.01 * random(1, sim.vertices, 3), "v": 0.3 * random(2, sim.vertices, 3), "pins": pins}
    values |= {"forces": 0.02 * random(4, sim.vertices, 3), "gravity": sim.gravity}
    values |= {name: torch.tensor(x) for name, x in numbers.items()}
    return {name: x.detach().double().clone().requires_grad_() for name, x in values.items()}


def test_gradients_over_100_steps_are_differences():
    """By state and forces, by the path of pins, by all numbers of the materials: 1e-6."""
    sim, steps = scene(), 100
    values = rollout_values(sim, steps)
    loss = rollout_loss(sim, values, steps)
    gradients = dict(zip(values, torch.autograd.grad(loss, list(values.values()))))
    numbers = [name for name in values if values[name].ndim == 0]
    for group in (["x", "v", "forces"], ["pins"], ["gravity", *numbers]):
        directions = {name: random(100, *values[name].shape or (1,)).reshape(values[name].shape) for name in group}
        directions |= {name: values[name].detach() for name in numbers if name in group}
        h = 1e-4

        def along(t, directions=directions):
            moved = {name: x.detach() + t * directions.get(name, torch.zeros(())) for name, x in values.items()}
            return float(rollout_loss(sim, moved, steps))

        difference = (8.0 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12.0 * h)
        found = float(sum((gradients[name] * d).sum() for name, d in directions.items()))
        assert found == pytest.approx(difference, rel=1e-6), group


def test_checkpoints_and_batches_change_no_bits():
    sim, steps = scene(), 12
    found = []
    for schedule in (1, 5, Every(3), Binomial(3)):
        values = rollout_values(sim, steps)
        rollout_loss(sim, values, steps, checkpoint=schedule).backward()
        found.append([x.grad for x in values.values()])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other))
    state = sim.state(5)
    v = state.v + torch.tensor([0.3, -0.4, 0.1, 0.5, 0.0])[:, None, None]
    together = v.clone().requires_grad_()
    run = sim.rollout(state.replace(v=together), 10)
    run.final.x.square().sum().backward()
    for world in range(5):
        one = v[world].clone().requires_grad_()
        alone = sim.rollout(soft.ClothState(state.x[world], one), 10)
        alone.final.x.square().sum().backward()
        assert torch.equal(alone.final.x, run.final.x[world])
        assert alone.newton.tolist() == run.newton[:, world].tolist()
        assert torch.equal(one.grad, together.grad[world])


def test_float32_states_and_worlds_that_differ():
    """Numbers by world, and gradients in float32, near to those of float64."""
    found = []
    for dtype in (torch.float32, torch.float64):
        sim = scene(dtype=dtype)
        youngs = torch.tensor([[30.0], [60.0]], dtype=dtype, requires_grad=True)
        fabric = soft.Fabric(youngs=youngs, bending=2e-3, density=0.4)
        run = sim.rollout(sim.state(2), 20, materials={"sheet": fabric})
        run.final.x.square().sum().backward()
        found.append((run.final.x.detach().double(), youngs.grad.double()))
    assert relative(found[0][0], found[1][0]) < 1e-5
    assert relative(found[0][1], found[1][1]) < 1e-3
    assert not torch.equal(found[1][0][0], found[1][0][1])


BAD = {
    "dt is": lambda: scene(dt=0.0),
    "self_contact": lambda: scene(self_contact=True),
    "youngs is -1": lambda: soft.Fabric(youngs=-1.0, density=0.1),
    "poisson": lambda: soft.Fabric(youngs=1.0, youngs_across=9.0, poisson=0.5, density=0.1),
    "not a manifold": lambda: _mesh([[0, 1, 2], [1, 0, 3], [0, 1, 4]]),
    "opposite ways": lambda: _mesh([[0, 1, 2], [0, 1, 3], [1, 4, 2]]),
    "degenerate": lambda: _mesh([[0, 1, 2], [1, 0, 3], [0, 1, 4]], points=np.linspace(0, 1, 5)[:, None] * np.ones(3)),
    "names a vertex twice": lambda: _mesh([[0, 1, 1], [1, 0, 3], [0, 2, 4]]),
    "is there twice": lambda: _mesh([[0, 1, 2], [1, 2, 0], [1, 0, 3], [1, 4, 2]]),
    "not among": lambda: _mesh([[0, 1, 9]]),
    "in no triangle": lambda: _mesh([[0, 1, 2]]),
    "inverted": lambda: _mesh([[0, 2, 1], [0, 1, 3], [1, 2, 4]], rest=np.array(POINTS)[:, :2]),
    "point 2 is": lambda: _mesh([[0, 1, 2], [1, 0, 3], [1, 4, 2]], points=[*POINTS[:2], [np.nan, 0, 0], *POINTS[3:]]),
    "rest has shape": lambda: _mesh([[0, 1, 2], [1, 0, 3], [1, 4, 2]], rest=np.zeros((4, 3))),
    "stands across the warp": lambda: _mesh([[0, 1, 2], [1, 0, 3], [1, 4, 2]], warp=(0.0, 0.0, 1.0)),
    "hinge_weights have shape": lambda: _mesh([[0, 1, 2], [1, 0, 3], [1, 4, 2]], hinge_weights=np.ones(3)),
    "not finite": lambda: scene().rollout(scene().state().replace(v=np.nan * scene().state().v), 1),
    "masses are": lambda: scene().rollout(scene().state(), 1, masses=torch.zeros(scene().vertices)),
    "gravity has shape": lambda: scene().rollout(scene().state(), 1, gravity=torch.zeros(2)),
    "without pieces": lambda: soft.ClothSim([], dt=0.01),
    "two pieces": lambda: soft.ClothSim(2 * [soft.rope((0, 0, 0), (1, 0, 0), segments=2, material=CORD)], dt=0.1),
    "pins are": lambda: _mesh([[0, 1, 2], [1, 0, 3], [1, 4, 2]], pins=[7]),
    "no length": lambda: soft.Rope("rope", np.zeros((3, 3)), CORD),
    "a rope a Cord": lambda: soft.ClothSim([soft.rope((0, 0, 0), (1, 0, 0), segments=2, material=FABRIC)], dt=0.1),
    "pins have shape": lambda: scene().rollout(scene().state(), 3, pins=torch.zeros(2, 3, 3)),
    "forces have shape": lambda: scene().rollout(scene().state(), 3, forces=torch.zeros(4, 3)),
    "steps is": lambda: scene().rollout(scene().state(), -1),
}
POINTS = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0], [1.0, 1.0, 0.0]]


def _mesh(triangles, points=POINTS, **options):
    sheet = soft.Sheet("sheet", np.array(points), np.array(triangles), FABRIC, **options)
    return soft.ClothSim([sheet], dt=0.01)


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused(message):
    with pytest.raises(pb.PullbackError, match=message):
        BAD[message]()


def test_a_step_that_cannot_be_solved_is_told():
    """A rope folded flat has no curvature: an error, or NaN in that world alone."""
    rope = soft.rope((0, 0, 0), (1, 0, 0), segments=2, material=CORD, pins=[0])
    sim = soft.ClothSim([rope], dt=0.01, dtype=torch.float64)
    state = sim.state(2)
    x = state.x.clone()
    x[1, 2] = torch.tensor([-0.5, 0.0, 0.0])
    with pytest.raises(pb.PullbackError, match="could not be solved in world 1"):
        sim.rollout(state.replace(x=x), 2)
    run = sim.rollout(state.replace(x=x), 2, check=False)
    assert run.failed.tolist() == [False, True]
    assert torch.isfinite(run.final.x[0]).all()
    assert torch.isnan(run.final.x[1]).all()
