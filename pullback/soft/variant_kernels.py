"""What the kernels of one scene have in common: floating-point type, dimension, materials, and types of arguments.

See docs/derivations/mpm.md.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

import warp as wp

from pullback.core.modules import kernel_module, made_once

# numbers of a particle: mass, volume, three of its material, viscosity
MASS = wp.constant(0)
VOLUME = wp.constant(1)
FIRST = wp.constant(2)
SECOND = wp.constant(3)
THIRD = wp.constant(4)
VISCOSITY = wp.constant(5)
NUMBERS = 6

# kinds of wall
STICK = wp.constant(0)
SLIP = wp.constant(1)
SEPARATE = wp.constant(2)

# why a particle was taken out, code = REASONS step + reason
LEFT = wp.constant(1)
TOO_FAST = wp.constant(2)
INVERTED = wp.constant(3)
REASONS = wp.constant(4)

EDGE = {2: 8, 3: 4}
"""Cells along a block, a power of two."""

UNROLLED = 27
"""Rounds of a loop that Warp writes out: the nodes about a particle."""


class Variant(NamedTuple):
    """A choice of kernels: floating-point type of Warp, dimension 2 or 3, kinds of material in ascending order.

    Kernels that know no materials are those of the `plain` variant, and serve all others.
    """

    real: Any
    dim: int
    kinds: tuple[int, ...]

    def module(self, name: str) -> Any:
        """Return the Warp module of the kernels called `name`."""
        letters = "_" + "".join(map(str, self.kinds)) if self.kinds else ""
        module = kernel_module(f"soft_{name}_{self.dim}d{letters}", self.real)
        module.options["max_unroll"] = UNROLLED
        return module

    @property
    def plain(self) -> "Variant":
        """Return the variant for kernels that know no materials."""
        return self._replace(kinds=())

    @property
    def types(self) -> SimpleNamespace:
        """Return vectors, matrices and structs."""
        return _types(self.real, self.dim)

    @property
    def side(self) -> int:
        """Return the number of nodes along an arena."""
        return EDGE[self.dim] + 2

    @property
    def arena(self) -> int:
        """Return the number of nodes of an arena."""
        return self.side**self.dim


@made_once
def _types(real: Any, dim: int) -> SimpleNamespace:
    module = kernel_module(f"soft_types_{dim}d", real)
    vec, mat = wp.types.vector(dim, real), wp.types.matrix((dim, dim), real)
    ints = wp.types.vector(dim, wp.int32)
    row = wp.types.vector(dim + 1, real)
    six = wp.types.vector(NUMBERS, real)
    wall = wp.types.vector(dim + 3, real)

    class Job:
        """What stays the same from step to step; lengths in metres, `nodes` and `blocks` along each axis."""

        particles: wp.int32
        dt: real
        cell: real
        inverse: real
        keep: real
        pressing: real
        origin: vec
        nodes: ints
        blocks: ints
        capacity: wp.int32
        actuators: wp.int32
        walls: wp.array(dtype=wall)
        kind: wp.array(dtype=wp.int32)
        actuator: wp.array(dtype=wp.int32)
        fibre: wp.array(dtype=vec)
        numbers: wp.array(dtype=six)
        gravity: wp.array(dtype=vec)
        actuation: wp.array2d(dtype=real)

    class Points:
        """The state of all particles, or its cotangent."""

        x: wp.array(dtype=vec)
        v: wp.array(dtype=vec)
        C: wp.array(dtype=mat)
        F: wp.array(dtype=mat)
        history: wp.array(dtype=real)

    class Sums:
        """Cotangents of what does not change, a particle each; `pull` of its actuation in this step."""

        numbers: wp.array(dtype=six)
        gravity: wp.array(dtype=vec)
        pull: wp.array(dtype=real)

    class Grid:
        """Where particles are in the blocks, and the arenas of the blocks; section 6 of the derivation."""

        base: wp.array(dtype=ints)
        key: wp.array(dtype=wp.int32)
        slot: wp.array(dtype=wp.int32)
        code: wp.array(dtype=wp.int32)
        order: wp.array(dtype=wp.int32)
        pieces: wp.array(dtype=wp.int32)
        cursor: wp.array(dtype=wp.int32)
        count: wp.array(dtype=wp.int32)
        table: wp.array(dtype=wp.int32)
        keys: wp.array(dtype=wp.int32)
        neighbours: wp.array(dtype=wp.int32)
        about: wp.array(dtype=wp.int32)
        before: wp.array(dtype=wp.int32)
        momentum: wp.array(dtype=row)
        velocity: wp.array(dtype=row)
        cotangent: wp.array(dtype=row)

    return SimpleNamespace(
        real=real,
        vec=vec,
        mat=mat,
        ints=ints,
        row=row,
        slopes=wp.types.matrix((dim, dim + 1), real),
        weights=wp.types.matrix((dim, 3), real),
        numbers=six,
        wall=wall,
        **{c.__name__: wp.struct(c, module=module) for c in (Job, Points, Sums, Grid)},
    )
