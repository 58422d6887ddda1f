"""A small part for the gates: a wall of two layers on a plate, hot enough to melt, with everything switched on."""

from __future__ import annotations

import numpy as np
import torch

import pullback.thermal as th
from tests.reference import thermal as reference

TOY = th.Material("toy", [300, 600, 1200], [10, 15, 25], [450, 520, 600], 8000.0, 2.5e5, 1350.0, 1450.0)
OTHER = th.Material("other", [280, 900], [30, 20], [500, 700], 7000.0, 2.0e5, 1400.0, 1500.0)

PARAMETERS = (
    "conductivity",
    "heat_capacity",
    "latent_heat",
    "solidus",
    "liquidus",
    "density",
    "convection",
    "emissivity",
    "ambient",
    "birth_temperature",
    "initial",
    "absorptivity",
    "radius",
    "positions",
)


def wall(dtype=torch.float64, threads=1, dt=0.02, duration=1.2, **options):
    """Return the process of the small wall."""
    mesh = th.box_on_plate(size=(0.003, 0.002, 0.002), cell=0.001, plate=(0.005, 0.004, 0.001))
    # not a box: corners move, so that no two elements are alike
    moved = mesh.nodes + 4e-5 * np.random.default_rng(3).standard_normal(mesh.nodes.shape)
    mesh = th.Mesh(moved, mesh.elements, mesh.element_sets, mesh.node_sets)
    rows = [
        (0, -0.0015, 0, 0.001, 0),
        (0.5, 0.0015, 0, 0.001, 1),
        (0.6, 0.0015, 0, 0.002, 0),
        (1.1, -0.0015, 0, 0.002, 1),
    ]
    path = th.Toolpath(*np.array(rows, dtype=float).T)
    births = th.births(mesh, path)
    settings = {
        "material": TOY,
        "births": births,
        "dt": dt,
        "duration": duration,
        "source": th.Gaussian(radius=2e-3, absorptivity=0.4),
        "convection": 500.0,
        "emissivity": 0.3,
        "ambient": 310.0,
        "initial": 350.0,
        "birth_temperature": 420.0,
        "fixed": {"bottom": 330.0},
        "dtype": dtype,
        "threads": threads,
    }
    return th.Process(mesh, path, **{**settings, **options})


def leaves(process, seed=0):
    """Return power and all parameters of a process with one material as leaf tensors."""
    rng = np.random.default_rng(seed)
    material = process.materials[0]

    def leaf(x):
        return torch.tensor(np.array(x), dtype=process.dtype).requires_grad_()

    values = {name: getattr(material, name) for name in PARAMETERS[:6]}
    values |= {name: process.values[name] for name in ("convection", "emissivity", "ambient", "birth_temperature")}
    values["initial"] = process.values["initial"] + 20.0 * rng.random(len(process.mesh.nodes))
    values |= {"absorptivity": process.laser.source.absorptivity, "radius": process.laser.source.radius}
    values["positions"] = process.positions
    power = leaf(200.0 + 150.0 * rng.random(process.steps))
    return power, {name: leaf(x) for name, x in values.items()}


def reference_states(process, power, parameters, theta=0.0):
    """Return all states of the reference for the same numbers."""
    mesh, material = process.mesh, process.materials[0]
    held = {int(node): 330.0 for node in mesh.node_set("bottom")}
    part = reference.GrowingPart(mesh.nodes, mesh.elements, process.births, process.dt, process.steps, held=held)
    p = parameters
    table = reference.Table(
        material.temperatures,
        p["conductivity"],
        p["heat_capacity"],
        p["latent_heat"],
        p["solidus"],
        p["liquidus"],
        p["density"],
    )
    rest = {name: p[name] for name in PARAMETERS[6:-1]}
    return reference.run(part, [table], power, p["positions"], process.on, theta=theta, **rest)
