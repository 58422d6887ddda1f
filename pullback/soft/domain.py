"""Where soft bodies live: a box of cells, and walls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, isfinite, sqrt

from pullback.core.errors import PullbackError, unknown_name
from pullback.soft.variant_kernels import SEPARATE, SLIP, STICK

KINDS = {"stick": STICK, "slip": SLIP, "separate": SEPARATE}

MARGIN = 3
"""Cells of the grid beyond each side, for the nodes about particles at a wall."""


@dataclass(frozen=True)
class Wall:
    """A half-space that material does not enter: it stays where normal · x ≥ offset [m].

    kind: "stick" holds what touches it, "slip" removes the velocity along the normal, "separate" only the one into it,
    and slows what slides by Coulomb's friction.
    """

    normal: tuple[float, ...]
    offset: float
    kind: str = "separate"
    friction: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name("kind of wall", self.kind, KINDS)
        if not (isfinite(self.friction) and self.friction >= 0.0):
            raise PullbackError(f"friction of a wall is {self.friction}; expected 0 or more")
        if not sqrt(sum(c * c for c in self.normal)) > 0.0:
            raise PullbackError(f"normal of a wall is {self.normal}; expected a direction")

    def row(self) -> list[float]:
        """Return normal, offset, friction and kind as the kernels read them."""
        length = sqrt(sum(c * c for c in self.normal))
        return [*[c / length for c in self.normal], self.offset / length, self.friction, float(KINDS[self.kind])]


@dataclass(frozen=True)
class Domain:
    """A box from `low` to `high` [m] in two or three dimensions, with cells of one size.

    sides: the kind of wall of all sides, or side -> kind, sides "x-", "x+", "y-" and so on; "open": no wall, and a
    particle that goes there is an error. friction: that of sides that separate. walls: others, such as a ramp.
    """

    low: Sequence[float]
    high: Sequence[float]
    cell: float
    sides: str | Mapping[str, str] = "slip"
    friction: float = 0.0
    walls: Sequence[Wall] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        if len(self.low) not in (2, 3) or len(self.high) != len(self.low):
            raise PullbackError(f"a domain from {self.low} to {self.high}; expected two or three coordinates each")
        if not (isfinite(self.cell) and self.cell > 0.0):
            raise PullbackError(f"cell of a domain is {self.cell}; expected a length above 0 [m]")
        for axis, (low, high) in enumerate(zip(self.low, self.high)):
            if not high - low >= 2.0 * self.cell:
                raise PullbackError(
                    f"a domain from {low} to {high} along {'xyz'[axis]} has less than two cells of {self.cell}; "
                    f"make it larger or cells smaller"
                )
        if isinstance(self.sides, Mapping):
            for side in self.sides:
                if side not in self.names():
                    raise unknown_name("side", side, self.names(), "the domain")
        for wall in self.walls:
            if len(wall.normal) != self.dim:
                raise PullbackError(f"normal of a wall is {wall.normal} in a domain of {self.dim} dimensions")

    @property
    def dim(self) -> int:
        """Return the number of dimensions."""
        return len(self.low)

    @property
    def origin(self) -> tuple[float, ...]:
        """Return the position of the grid's first node."""
        return tuple(float(low) - MARGIN * self.cell for low in self.low)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Return the number of nodes along each axis."""
        return tuple(ceil((high - low) / self.cell - 1e-9) + 2 * MARGIN + 1 for low, high in zip(self.low, self.high))

    def names(self) -> list[str]:
        """Return the names of the sides."""
        return [f"{'xyz'[axis]}{sign}" for axis in range(self.dim) for sign in "-+"]

    def rows(self) -> list[list[float]]:
        """Return all walls as the kernels read them."""
        walls = list(self.walls)
        for side in self.names():
            kind = self.sides if isinstance(self.sides, str) else self.sides.get(side, "slip")
            if kind == "open":
                continue
            if kind not in KINDS:
                raise unknown_name("kind of side", kind, [*KINDS, "open"], f"side {side}")
            axis = "xyz".index(side[0])
            sign = 1.0 if side[1] == "-" else -1.0
            normal = tuple(sign if a == axis else 0.0 for a in range(self.dim))
            edge = self.low[axis] if sign > 0 else self.high[axis]
            walls.append(Wall(normal, sign * float(edge), kind, self.friction if kind == "separate" else 0.0))
        return [wall.row() for wall in walls]
