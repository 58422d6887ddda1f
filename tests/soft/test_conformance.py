"""Gradients of particles against differences: material by coupling by quantity."""

from functools import cache, partial

import pytest
import torch

import pullback as pb
from pullback import soft
from pullback.description.assets.rows import X, Y, box, joint, link
from pullback.description.tree import Tree

BARS = {"alone": 1e-6, "against walls": 1e-4, "hit by a ball": 1e-4, "pushed by a robot": 1e-4}
"""Largest relative error of a directional derivative: over smooth steps, and through contact."""
STEPS = {"alone": 100, "against walls": 60, "hit by a ball": 25, "pushed by a robot": 25}
"""Of the particles; among bodies those of the world, two soft steps each."""
CELL, DT = 0.02, 1e-3
SOLID = {"youngs": 4e3, "poisson": 0.3, "density": 1000.0, "viscosity": 0.5}
MATERIALS = {
    "neo-Hookean": (soft.Elastic, SOLID),
    "fixed corotated": (partial(soft.Elastic, model="fixed_corotated"), SOLID),
    "muscle": (soft.Elastic, SOLID),
    "fluid": (soft.Fluid, {"bulk": 4e3, "exponent": 7.0, "density": 1000.0, "viscosity": 0.5}),
    "plastic": (soft.Plastic, {**SOLID, "yield_stress": 60.0}),
    "sand": (soft.Sand, {**SOLID, "friction_angle": 0.5}),
}
HISTORY = ("plastic", "sand")
WORLD = {
    "hit by a ball": ["q", "qd", "radius", "friction"],
    "pushed by a robot": ["q", "qd", "u", "mass", "size", "friction"],
}


def names_of(kind, coupling):
    """Return the quantities of a row."""
    parts = ["x", "v", "C", "F", *(["history"] if kind in HISTORY else []), *MATERIALS[kind][1]]
    more = [*(["actuation"] if kind == "muscle" else []), *WORLD.get(coupling, ["gravity"])]
    return [*parts, *more]


def particles(kind, coupling):
    """Return a cube of 64 particles about the origin, in a corner of walls if it is thrown against them."""
    make, numbers = MATERIALS[kind]
    body = soft.block((-0.03,) * 3, (0.03,) * 3, spacing=0.015, name="cube", material=make(**numbers))
    points = body.points + 1e-3 * torch.randn(64, 3, generator=torch.Generator().manual_seed(0)).double().numpy()
    muscles = {"actuator": 0, "fibre": (1.0, 0.5, 0.2)} if kind == "muscle" else {}
    body = soft.Body("cube", points, body.volume, body.material, **muscles)
    sides, low = "open", (-0.4,) * 3
    if coupling == "against walls":
        sides, low = {"x-": "separate", "y-": "stick", "z-": "separate"}, (-0.05,) * 3
    domain = soft.Domain(low, (0.4,) * 3, CELL, sides=sides, friction=0.3)
    sim = soft.SoftSim(domain, [body], dt=DT, gravity=(0.5, 0.3, -5.0), dtype=torch.float64, threads=1)
    # one set of kernels for all rows
    sim.variant = sim.variant._replace(kinds=tuple(range(5)))
    return sim


@cache
def scene(kind, coupling):
    """Return the simulation, alone or coupled, and numbers of the world by name."""
    sim = particles(kind, coupling)
    if coupling not in WORLD:
        return sim, {}
    world = pb.World(gravity=(0.0, 0.0, -5.0))
    numbers = {"friction": torch.tensor(0.4).double()}
    if coupling == "hit by a ball":
        numbers["radius"] = torch.tensor([0.03]).double()
        world.add_sphere("ball", radius=0.03, mass=0.3, position=(0.0653, 0.0104, 0.0052), friction=0.4)
        world.set_shape("ball", size=numbers["radius"], friction=numbers["friction"])
    else:
        numbers |= {"mass": torch.tensor(0.5).double(), "size": torch.tensor([0.04, 0.08, 0.06]).double()}
        thin = (1e-3, 1e-3, 1e-3)
        links = [link("rail"), link("slide", 0.3, (0.0, 0.0, 0.0), thin)]
        links += [link("paddle", 0.5, (0.0, 0.0, -0.05), thin, box((0.04, 0.08, 0.06), (0.0, 0.0, -0.1)))]
        joints = [joint("along", "prismatic", "rail", "slide", axis=X, damping=0.5)]
        joints += [joint("swing", "revolute", "slide", "paddle", axis=Y)]
        robot = pb.load(Tree("pusher", links, joints, source="pusher")).to(torch.float64)
        place = {"position": (-0.0583, 0.0047, 0.1034), "actuators": pb.Torque(limit=100.0), "friction": 0.4}
        world.add(robot, name="pusher", collision_links=["paddle"], **place)
        world.set_shape("pusher/paddle", size=numbers["size"], friction=numbers["friction"])
    return soft.Coupled(sim, world.compile(dt=2 * DT, dtype=torch.float64)), numbers


def values_of(kind, coupling):
    """Return where everything that has a gradient is, by name."""
    sim, world = scene(kind, coupling)
    generator = torch.Generator().manual_seed(3)

    def random(size, scale):
        return scale * (2.0 * torch.rand(size, dtype=torch.float64, generator=generator) - 1.0)

    state = (sim.soft if coupling in WORLD else sim).state()
    F = torch.eye(3, dtype=torch.float64) + random(state.F.shape, 0.03)
    if kind == "sand":
        F = 0.95 * F
    if kind == "fluid":
        # of its deformation one entry counts
        F = torch.diag_embed(torch.cat([F[:, 0, :1], torch.ones_like(F[:, 0, 1:])], 1))
    values = {"x": state.x, "v": random(state.v.shape, 0.05), "C": random(state.C.shape, 0.5), "F": F}
    values["history"] = random(state.history.shape, 1e-3).abs()
    if coupling == "against walls":
        values["v"] = values["v"] + torch.tensor([-0.5, -0.3, -0.6], dtype=torch.float64)
    values |= {name: torch.tensor(x, dtype=torch.float64) for name, x in MATERIALS[kind][1].items()}
    values["actuation"] = 100.0 + random((STEPS[coupling] * (2 if coupling in WORLD else 1), 1), 50.0)
    values |= {"gravity": torch.tensor([0.5, 0.3, -5.0]).double(), **{name: x.clone() for name, x in world.items()}}
    if coupling in WORLD:
        rigid = sim.state().rigid
        speed = [0.5, 2.0, 1.0, -0.8, 0.05, 0.1] if coupling == "hit by a ball" else [0.8, 0.5]
        values |= {"q": rigid.q, "qd": torch.tensor([speed], dtype=torch.float64)}
        values["u"] = 2.0 + random((STEPS[coupling], 1, sim.rigid.nu), 1.0)
    return values, random


def loss_of(kind, coupling, values):
    """Return a sum of everything that a rollout returns, with random weights, and the largest force on a body."""
    sim, world = scene(kind, coupling)
    make, numbers = MATERIALS[kind]
    options = {"materials": {"cube": make(**{name: values[name] for name in numbers})}}
    if kind == "muscle":
        options["actuation"] = values["actuation"]
    parts = {name: values[name] for name in ("x", "v", "C", "F", "history")}
    if coupling not in WORLD:
        state = sim.state().replace(**parts)
        end = sim.rollout(state, STEPS[coupling], gravity=values["gravity"], **options).final
        outputs, force = [10.0 * end.x, end.v, end.F, end.history], 0.0
    else:
        for name, x in world.items():
            x.detach_()
            x.copy_(values[name].detach()).requires_grad_(values[name].requires_grad)
        if "mass" in world:
            sim.rigid.world.robots["pusher"].set_link_param("paddle", "mass", world["mass"])
        start = sim.state()
        particles = start.soft.replace(**{name: x[None] for name, x in parts.items()})
        state = soft.CoupledState(particles, pb.State(values["q"], values["qd"], start.rigid.impulses))
        run = sim.rollout(state, values["u"], **options)
        end = run.final.soft
        outputs = [10.0 * end.x, end.v, end.F, end.history, run.q, run.qd, 0.1 * run.wrenches]
        force = float(run.wrenches.detach()[..., 3:].norm(dim=-1).max())
    generator = torch.Generator().manual_seed(4)
    weights = [torch.randn(y.shape, generator=generator, dtype=torch.float64) for y in outputs]
    return sum((y * w).sum() for y, w in zip(outputs, weights)), force


SCALES = {"x": 1e-3, "v": 0.05, "C": 0.5, "F": 0.02, "history": 1e-3, "q": 1e-3, "qd": 0.1}
"""Of the directions of differences; other numbers vary by their own size."""


@pytest.mark.parametrize("coupling", BARS)
@pytest.mark.parametrize("kind", MATERIALS)
def test_gradients_are_differences(kind, coupling):
    values, random = values_of(kind, coupling)
    names = names_of(kind, coupling)
    leaves = {name: x.detach().clone().requires_grad_(name in names) for name, x in values.items()}
    loss, force = loss_of(kind, coupling, leaves)
    world = scene(kind, coupling)[1]
    found = torch.autograd.grad(loss, [world.get(name, leaves[name]) for name in names])
    if coupling in WORLD:
        # or there would be no contact to go through
        assert force > 0.5
    for name, gradient in zip(names, found):
        size = SCALES.get(name, values[name].abs().max())
        direction = random(values[name].shape, size) if values[name].ndim else size
        if name == "F" and kind == "fluid":
            direction[:, :, 1:] = direction[:, 1:] = 0.0
        if name == "q" and coupling == "hit by a ball":
            # quaternions stay of length 1 to first order
            direction[:, 3:] = 0.0
        derivative, errors = float((gradient * direction).sum()), []
        for h in (1e-3, 1e-4, 1e-5, 1e-6):
            with torch.no_grad():
                ends = [
                    float(loss_of(kind, coupling, {**values, name: values[name] + k * h * direction})[0])
                    for k in (-2, -1, 1, 2)
                ]
            slope = (8.0 * (ends[2] - ends[1]) - (ends[3] - ends[0])) / (12.0 * h)
            errors.append(abs(derivative - slope) / abs(slope))
            if min(errors) < 0.1 * BARS[coupling]:
                break
        assert min(errors) < BARS[coupling], (name, derivative, errors)
