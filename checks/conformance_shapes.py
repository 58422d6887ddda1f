"""Shapes of the bodies in the conformance matrix: their sizes, and how they are put into a world."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import pullback as pb

Tensor = torch.Tensor

PRIMITIVES = ("sphere", "capsule", "box")
SIZES = {
    "sphere": (0.1,),
    "ellipsoid": (0.1, 0.07, 0.08),
    "capsule": (0.06, 0.2),
    "box": (0.3, 0.2, 0.16),
    "cylinder": (0.1, 0.16),
    "mesh": (1.0,),
    "block": (),
    "dish": (0.3,),
    "hills": (1.0,),
}
HEIGHT = {
    "sphere": 0.1,
    "ellipsoid": 0.08,
    "capsule": 0.06,
    "box": 0.08,
    "cylinder": 0.08,
    "mesh": 0.06,
    "block": 0.06,
}
LYING = np.array([0.0, np.sqrt(0.5), 0.0, np.sqrt(0.5)])
"""A capsule, or a cylinder that rolls, lies along x, and others stay as they are."""
CORNERS = np.array(
    [(-0.08, -0.06, -0.06), (0.09, -0.05, -0.06), (0.01, 0.08, -0.06), (0.05, 0.02, 0.06), (-0.05, 0, 0.05)]
)
"""Of a mesh, three of them on the ground."""
HILL = 0.05
"""The height [m] of hills."""
ARGUMENTS = {
    "sphere": ("radius",),
    "ellipsoid": ("radii",),
    "capsule": ("radius", "length"),
    "cylinder": ("radius", "length"),
    "box": ("size",),
}


def add_shape(world: pb.World, name: str, shape: str, size: Tensor | None = None, **options: Any) -> None:
    """Add a free or static body of a shape; `size` (b, n) is that of what is a field."""
    if shape == "mesh":
        world.add_mesh(name, CORNERS, **options)
    elif shape in ARGUMENTS:
        given = (SIZES[shape],) if len(ARGUMENTS[shape]) == 1 and len(SIZES[shape]) > 1 else SIZES[shape]
        getattr(world, f"add_{shape}")(name, **dict(zip(ARGUMENTS[shape], given)), **options)
    else:
        inertia = {"inertia": np.eye(3)} if "mass" in options else {}
        world.add_field(name, field(shape, None if size is None else size.reshape(-1)), **inertia, **options)
    if size is not None and (shape in ARGUMENTS or shape == "mesh"):
        world.set_shape(name, size=size)


def field(shape: str, size: Tensor | None) -> pb.sdf.Shape:
    """Return a block, a block with a spherical dish of a radius in it, or hills with a gain."""
    if shape == "block":
        return pb.sdf.box((0.14, 0.12, 0.05)).rounded(0.01)
    if shape == "dish":
        return pb.sdf.box((0.5, 0.5, 0.3)) - pb.sdf.sphere(0.3 if size is None else size).at((0.0, 0.0, 0.3))
    x, y = np.meshgrid(np.linspace(-0.5, 0.5, 21), np.linspace(-0.5, 0.5, 21), indexing="ij")
    return pb.sdf.heights(HILL * np.sin(4 * x) * np.cos(3 * y), (1.0, 1.0), gain=1.0 if size is None else size)
