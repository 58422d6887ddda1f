"""Small scenes for the gates, and the same in the reference."""

from __future__ import annotations

import numpy as np
import torch

import pullback.soft as soft
from tests.reference import mpm

CELL = 0.1

MATERIALS = {
    "neo_hookean": soft.Elastic(youngs=300.0, poisson=0.3, viscosity=0.02),
    "fixed_corotated": soft.Elastic(youngs=300.0, poisson=0.2, model="fixed_corotated"),
    "fluid": soft.Fluid(bulk=300.0, viscosity=0.05),
    "von_mises": soft.Plastic(youngs=400.0, poisson=0.3, yield_stress=6.0),
    "drucker_prager": soft.Sand(youngs=400.0, poisson=0.3, friction_angle=0.5),
}

WALLS = {"separate": 0.3, "slip": 0.0, "stick": 0.0}


def scene(
    kinds=tuple(MATERIALS), dim=3, dtype=torch.float64, muscles=True, seed=0, size=3, specialised=False, **options
):
    """Return a simulation of small blocks, one on the other's side, of these kinds, and walls of all kinds."""
    rng = np.random.default_rng(seed)
    bodies = []
    for k, kind in enumerate(kinds):
        low = np.full(dim, 0.32)
        low[0] += 0.06 * size * k
        body = soft.block(low, low + 0.06 * size, spacing=0.06, name=kind, material=MATERIALS[kind])
        points = body.points + 0.01 * rng.standard_normal(body.points.shape)
        extra = {}
        if muscles and k % 2 == 0:
            extra = {"actuator": np.arange(len(body)) % 3 - 1, "fibre": rng.standard_normal(points.shape)}
        bodies.append(soft.Body(kind, points, body.volume, body.material, **extra))
    width = 0.4 + 0.06 * size * len(kinds)
    domain = options.pop("domain", None) or soft.Domain(
        (0.2,) * dim,
        (0.2 + width, *(1.0,) * (dim - 1)),
        CELL,
        sides={"x-": "separate", "y-": "separate", "x+": "stick"},
        friction=0.3,
    )
    settings = {"dt": 2e-3, "gravity": (0.5, -2.0, 0.3)[:dim], "drag": 0.2, "dtype": dtype, "threads": 1}
    sim = soft.SoftSim(domain, bodies, **{**settings, **options})
    if not specialised:
        # one set of kernels for all tests, which takes less time to compile
        sim.variant = sim.variant._replace(kinds=tuple(range(len(MATERIALS))))
    return sim


def start(sim, seed=1, strain=0.04, speed=1.0, pressed=0.97):
    """Return a state in motion, deformed, with distinct stretches; sand is pressed together."""
    generator = torch.Generator().manual_seed(seed)

    def random(like):
        return 2.0 * torch.rand(like.shape, generator=generator, dtype=torch.float64) - 1.0

    state = sim.state()
    kind = sim._kind
    F = torch.eye(sim.dim, dtype=torch.float64) + strain * random(state.F)
    F[kind == 4] *= pressed
    fluid = torch.diag_embed(torch.cat([F[:, 0, :1], torch.ones_like(F[:, 0, 1:])], 1))
    F = torch.where((kind == 2)[:, None, None], fluid, F)
    parts = {"v": speed * random(state.v), "C": random(state.C), "F": F, "history": 0.001 * random(state.history).abs()}
    return state.replace(**{name: part.to(sim.dtype) for name, part in parts.items()})


def actuation_of(sim, steps, seed=2):
    """Return active stresses (steps, a)."""
    generator = torch.Generator().manual_seed(seed)
    return 20.0 * torch.rand(steps, sim.actuators, generator=generator, dtype=torch.float64)


def numbers_of(sim):
    """Return mass, volume, three numbers and viscosity of all particles (n, 6)."""
    return sim._numbers({}, 1)[0]


def in_reference(sim, numbers, gravity=None):
    """Return the scene of the reference with these numbers (n, 6)."""
    fibre = np.concatenate([body.per_particle("fibre") for body in sim.bodies])
    fibre = fibre / np.maximum(np.linalg.norm(fibre, axis=1, keepdims=True), 1e-30)
    kinds = ("stick", "slip", "separate")
    walls = [(torch.tensor(r[: sim.dim]).double(), r[-3], kinds[int(r[-1])], r[-2]) for r in sim.domain.rows()]
    return mpm.Scene(
        cell=sim.domain.cell,
        dt=sim.dt,
        origin=torch.tensor(sim.domain.origin, dtype=torch.float64),
        shape=sim.domain.nodes,
        kind=sim._kind,
        mass=numbers[:, 0],
        volume=numbers[:, 1],
        numbers=numbers[:, 2:5],
        viscosity=numbers[:, 5],
        gravity=sim.gravity if gravity is None else gravity,
        fibre=torch.tensor(fibre),
        actuator=torch.tensor(sim.actuator),
        walls=walls,
        drag=sim.drag,
    )


def reference_state(state):
    return mpm.State(state.x, state.v, state.C, state.F, state.history)


def parts_of(state):
    return {name: getattr(state, name) for name in ("x", "v", "C", "F", "history")}
