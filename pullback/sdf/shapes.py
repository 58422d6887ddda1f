"""Shapes by their signed distance, as a user writes them: primitives, where they stand, and how they are combined.

    plate = sdf.box((0.1, 0.1, 0.02)) - sdf.cylinder(0.011, 0.03)      # a plate with a hole
    handle = (sdf.capsule(0.01, 0.1) | sdf.sphere(0.02).at((0, 0, 0.06))).blend(0.005)

Every number may be a tensor with one value for each world, and may want a gradient. Lengths are in metres.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.sdf.lattice import Lattice, height_lattice, mesh_lattice

Tensor = torch.Tensor
Number: TypeAlias = "float | np.ndarray | Tensor"
Vector: TypeAlias = "Sequence[float] | np.ndarray | Tensor"


class Shape:
    """A solid: below zero inside, above zero outside."""

    def __or__(self, other: Shape) -> Combined:
        """Both together."""
        return Combined("union", self, _shape(other))

    def __and__(self, other: Shape) -> Combined:
        """What is in both."""
        return Combined("intersection", self, _shape(other))

    def __sub__(self, other: Shape) -> Combined:
        """What is in this one and not in the other."""
        return Combined("intersection", self, Turned(_shape(other)))

    def at(self, position: Vector = (0.0, 0.0, 0.0), orientation: Vector = (0.0, 0.0, 0.0, 1.0)) -> Placed:
        """Put the shape at a position (3,) or (B, 3), turned by a quaternion xyzw (4,) or (B, 4)."""
        quat = check_number("orientation", orientation, (4,))
        if (quat.detach().square().sum(-1) == 0.0).any():
            raise PullbackError("orientation is a quaternion of length zero; give xyzw, (0, 0, 0, 1) for no rotation")
        return Placed(self, check_number("position", position, (3,)), quat)

    def rounded(self, radius: Number) -> Offset:
        """Grow the shape by a radius; what was sharp outside becomes round."""
        return Offset(self, check_number("radius", radius))


@dataclass(frozen=True, eq=False)
class Leaf(Shape):
    """A primitive: four sizes, meaning by its operation, and the grid it reads, if any."""

    operation: str
    sizes: tuple[Tensor, Tensor, Tensor, Tensor]
    lattice: Lattice | None = None


@dataclass(frozen=True, eq=False)
class Combined(Shape):
    """Two shapes, united or intersected, the edge between them rounded by a radius."""

    operation: str
    left: Shape
    right: Shape
    radius: Tensor = torch.zeros((), dtype=torch.float64)  # noqa: RUF009

    def blend(self, radius: Number) -> Combined:
        """Round the edge in which the two meet by a radius: a union fills it, an intersection or difference takes off.

        The radius is exact where the two meet at right angles. Surfaces closer than it to each other are blended too.
        """
        return replace(self, radius=check_number("radius of a blend", radius, least=0.0))


@dataclass(frozen=True, eq=False)
class Turned(Shape):
    """Inside out."""

    shape: Shape


@dataclass(frozen=True, eq=False)
class Placed(Shape):
    """A shape somewhere else."""

    shape: Shape
    position: Tensor
    orientation: Tensor


@dataclass(frozen=True, eq=False)
class Offset(Shape):
    """A shape grown by a radius."""

    shape: Shape
    radius: Tensor


def sphere(radius: Number) -> Leaf:
    """Return a ball about the origin."""
    return _leaf("rounded", 0.0, 0.0, 0.0, check_number("radius of a sphere", radius, above=0.0))


def box(half: Vector) -> Leaf:
    """Return a box with half extents (3,) or (B, 3)."""
    x, y, z = check_number("half extents of a box", half, (3,), above=0.0).unbind(-1)
    return _leaf("rounded", x, y, z, 0.0)


def capsule(radius: Number, length: Number) -> Leaf:
    """Return a capsule along z; the length is that between the centres of its ends."""
    z = 0.5 * check_number("length of a capsule", length, least=0.0)
    return _leaf("rounded", 0.0, 0.0, z, check_number("radius of a capsule", radius, above=0.0))


def cylinder(radius: Number, length: Number) -> Leaf:
    """Return a cylinder along z, its middle in the origin."""
    z = 0.5 * check_number("length of a cylinder", length, above=0.0)
    return _leaf("revolved", check_number("radius of a cylinder", radius, above=0.0), 0.0, z, 0.0)


def torus(radius: Number, tube: Number) -> Leaf:
    """Return a torus about z: the radius of its ring and that of its tube."""
    ring = check_number("radius of a torus", radius, above=0.0)
    return _leaf("revolved", 0.0, ring, 0.0, check_number("tube of a torus", tube, above=0.0))


def plane() -> Leaf:
    """Return the half space below z = 0; `at` puts it elsewhere."""
    return _leaf("halfspace", 0.0, 0.0, 0.0, 0.0)


def grid(mesh: object, resolution: int = 48, *, scale: Number = 1.0) -> Leaf:
    """Return the inside of a watertight mesh, its distance sampled on a grid and interpolated by cubic splines.

    mesh: a file that trimesh reads, a trimesh.Trimesh, or (vertices (n, 3), triangles (m, 3)).
    resolution: cells along the longest side of the mesh; errors shrink with its second power, memory grows with its
    third.
    """
    return _leaf(
        "grid", check_number("scale of a grid", scale, above=0.0), 0.0, 0.0, 0.0, lattice=mesh_lattice(mesh, resolution)
    )


def heights(values: object, size: Vector, *, gain: Number = 1.0) -> Leaf:
    """Return the ground below z = gain h(x, y), h through the values (nx, ny) by cubic splines.

    size: lengths of the field along x and y; it is centred in the origin and goes on level beyond its border.
    """
    lengths = check_number("size of a height field", size, (2,), above=0.0)
    if lengths.ndim != 1:
        raise PullbackError("size of a height field is given for many worlds; give two numbers")
    return _leaf(
        "heights", check_number("gain of a height field", gain), 0.0, 0.0, 0.0,
        lattice=height_lattice(values, lengths.detach().cpu().numpy()),
    )  # fmt: skip


def check_number(
    what: str, value: object, shape: tuple[int, ...] = (), *, least: float | None = None, above: float | None = None
) -> Tensor:
    """Return a value as a tensor of the given shape, or (B, *shape) with one for each world."""
    try:
        tensor = value if isinstance(value, Tensor) else torch.from_numpy(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise PullbackError(f"{what} is {value!r}; expected numbers or a torch tensor") from error
    trailing = tuple(tensor.shape[tensor.ndim - len(shape) :])
    if not len(shape) <= tensor.ndim <= len(shape) + 1 or trailing != shape:
        raise PullbackError(
            f"{what} has shape {tuple(tensor.shape)}; expected {shape}, or {('B', *shape)} with one for each world"
        )
    numbers = tensor.detach()
    if not bool(torch.isfinite(numbers).all()):
        raise PullbackError(f"{what} is not finite: {numbers.tolist()}; give finite numbers")
    if least is not None and bool((numbers < least).any()):
        raise PullbackError(f"{what} is {numbers.min():g}; give at least {least:g}")
    if above is not None and bool((numbers <= above).any()):
        raise PullbackError(f"{what} is {numbers.min():g}; give more than {above:g}")
    return tensor


def _leaf(operation: str, *sizes: float | Tensor, lattice: Lattice | None = None) -> Leaf:
    a, b, c, d = (x if isinstance(x, Tensor) else torch.tensor(x, dtype=torch.float64) for x in sizes)
    return Leaf(operation, (a, b, c, d), lattice)


def _shape(other: object) -> Shape:
    if not isinstance(other, Shape):
        raise PullbackError(
            f"a shape can be combined with a shape, got {other!r}; make one with sdf.sphere, sdf.box, …"
        )
    return other
