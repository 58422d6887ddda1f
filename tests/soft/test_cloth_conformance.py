"""Gradients of sheets and ropes against differences: material by coupling by quantity."""

import pytest
import torch

import pullback as pb

soft = pb.soft
BARS = {"alone": 1e-6, "is hit by a ball": 1e-4, "is held by a box": 1e-4}
"""Largest relative error: over smooth steps, and through contact."""
STEPS = {"alone": 100, "is hit by a ball": 30, "is held by a box": 30}
DT = 0.005
MATERIALS = {
    "isotropic": {"youngs": 40.0, "poisson": 0.3, "bending": 1e-3, "density": 0.3, "damping": 0.01},
    "orthotropic": {"youngs": 40.0, "youngs_across": 25.0, "poisson": 0.2, "shear": 12.0, "bending": 1e-3,
                    "density": 0.3, "damping": 0.01, "bending_damping": 0.01},
    "cord": {"stretch": 30.0, "bending": 1e-3, "density": 0.2, "damping": 0.01, "bending_damping": 0.01},
}  # fmt: skip


def make(kind, coupling, numbers):
    """Return a cloth simulation; its pins are two corners, or none where it lies or is hit."""
    pins = {"alone": [0], "is held by a box": [0]}.get(coupling, [])
    if kind == "cord":
        material = soft.Cord(**numbers)
        piece = soft.rope((-0.2, 0.01, 0.0), (0.2, -0.01, 0.0), segments=8, material=material, pins=pins)
    else:
        material = soft.Fabric(**numbers)
        square = (-0.2, -0.2, 0.0), (0.4, 0, 0), (0, 0.4, 0)
        piece = soft.sheet(*square, cells=(4, 4), material=material, pins=pins)
    contact = {"contact_range": 0.01, "contact_stiffness": 60.0, "slip_speed": 0.01}
    return piece.name, soft.ClothSim([piece], dt=DT, gravity=(0.3, 0.1, -9.81), dtype=torch.float64, **contact)


def world_of(coupling, friction, radius):
    """Return bodies, whose shape `body` has the friction and, if a ball, the radius."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    if coupling == "is hit by a ball":
        world.add_sphere("body", position=(0.02, 0.01, 0.09), radius=0.06, mass=0.5, friction=0.4)
        world.set_shape("body", size=radius.reshape(1), friction=friction)
    else:
        world.add_box("body", size=(0.06, 0.06, 0.06), mass=0.3, position=(-0.3, -0.3, 0.02))
    return world.compile(dt=DT, dtype=torch.float64)


def loss_of(kind, coupling, values):
    numbers = {name: values[name] for name in MATERIALS[kind]}
    name, cloth = make(kind, coupling, numbers)
    material = soft.Cord(**numbers) if kind == "cord" else soft.Fabric(**numbers)
    start = soft.ClothState(cloth.state().x + values["x"], values["v"])
    steps = STEPS[coupling]
    weights = torch.cos(torch.arange(3.0 * cloth.vertices, dtype=torch.float64)).view(-1, 3)
    if coupling == "alone":
        t = torch.arange(1, steps + 1, dtype=torch.float64)[:, None, None] * DT
        pins = start.x[torch.as_tensor(cloth.pins)] + values["pins"] * torch.sin(5.0 * t)
        run = cloth.rollout(start, steps, pins=pins, materials={name: material})
        return (weights * run.final.x).sum() + 0.1 * run.reactions.square().sum()
    both = soft.Coupled(
        cloth,
        world_of(coupling, values["friction"], values["radius"]),
        hold={"body": [0]} if coupling == "is held by a box" else None,
    )
    rigid = both.state().rigid
    fall = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0, -1.5]], dtype=torch.float64)
    rigid = pb.State(rigid.q, fall * (coupling == "is hit by a ball") + values["qd"])
    state = soft.CoupledState(soft.ClothState(start.x[None], start.v[None]), rigid)
    run = both.rollout(state, steps, materials={name: material})
    return (weights * run.final.soft.x).sum() + run.final.rigid.qd.sum() + run.wrenches[-5:].sum()


def quantities(kind, coupling):
    vertices = 9 if kind == "cord" else 25
    generator = torch.Generator().manual_seed(3)

    def random(*size):
        return 2.0 * torch.rand(*size, dtype=torch.float64, generator=generator) - 1.0

    values = {"x": 1e-3 * random(vertices, 3), "v": 0.05 * random(vertices, 3)}
    values |= {name: torch.tensor(x, dtype=torch.float64) for name, x in MATERIALS[kind].items()}
    values |= {"friction": torch.tensor(0.4).double(), "radius": torch.tensor(0.06).double()}
    values |= {"qd": 0.1 * random(1, 6), "pins": torch.full((1, 3), 0.02).double()}
    asked = {"alone": ["pins"], "is held by a box": ["qd"]}
    asked["is hit by a ball"] = ["qd", "friction", "radius"]
    return values, ["x", "v", *MATERIALS[kind], *asked[coupling]], random


ROWS = [
    *[(kind, coupling) for kind in ("isotropic", "orthotropic") for coupling in BARS],
    *[("cord", coupling) for coupling in ("alone", "is hit by a ball")],
]


@pytest.mark.parametrize(("kind", "coupling"), ROWS)
def test_gradients_are_differences(kind, coupling):
    values, names, random = quantities(kind, coupling)
    leaves = {name: x.clone().requires_grad_(name in names) for name, x in values.items()}
    found = torch.autograd.grad(loss_of(kind, coupling, leaves), [leaves[name] for name in names])
    for name, gradient in zip(names, found):
        scale = values[name].abs().max()
        direction = scale * (random(*values[name].shape) if values[name].ndim else torch.ones((), dtype=torch.float64))
        derivative = float((gradient * direction).sum())
        errors = []
        for h in (1e-3, 1e-4, 1e-5):
            ends = [
                float(loss_of(kind, coupling, {**values, name: values[name] + k * h * direction}))
                for k in (-2, -1, 1, 2)
            ]
            slope = (8.0 * (ends[2] - ends[1]) - (ends[3] - ends[0])) / (12.0 * h)
            errors.append(abs(derivative - slope) / max(abs(slope), 1e-5))
            if min(errors) < 0.1 * BARS[coupling]:
                break
        assert min(errors) < BARS[coupling], (name, derivative, errors)
