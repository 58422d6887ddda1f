"""From a shape to a program: its instructions, the rows of its parameters, the box it lies in."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.sdf.lattice import Lattice
from pullback.sdf.shapes import Combined, Leaf, Offset, Placed, Shape, Turned
from pullback.spatial.rotations_torch import rotate

Tensor = torch.Tensor

OPERATIONS = (
    "rounded", "revolved", "halfspace", "grid", "heights", "union", "intersection", "negate", "offset",
)  # fmt: skip
"""In the order of the constants of `fields`."""

MAX_INSTRUCTIONS = 64

SIZES = 4
PLACEMENT = 12


@dataclass(frozen=True)
class Placement:
    """Where something stands in the field's frame: R (b, 3, 3), p (b, 3)."""

    R: Tensor
    p: Tensor

    def times(self, position: Tensor, orientation: Tensor) -> Placement:
        """Return X_FS = X_FP X_PS."""
        position = position.to(self.p).reshape(-1, 3)
        quat = orientation.to(self.p).reshape(-1, 4)
        quat = quat / torch.linalg.vector_norm(quat, dim=-1, keepdim=True)
        axes = torch.eye(3).to(self.p).expand(len(quat), 3, 3)
        R = rotate(quat[:, None].expand(-1, 3, 4), axes).mT
        return Placement(self.R @ R, self.p + (self.R @ position[..., None])[..., 0])


@dataclass
class Program:
    """The instructions of one shape; `code` (n, 4) as `fields` describes it, grids numbered as in `lattices`."""

    shape: Shape
    code: np.ndarray
    lattices: list[Lattice]
    rows: int
    slope: float
    """A bound of the length of the gradient; 0: none."""

    def parameters(self, like: Tensor) -> Tensor:
        """Return the rows of the parameters (b, rows), b = 1 where all worlds share them."""
        parts: list[Tensor] = []
        _collect(self.shape, None, like, parts)
        worlds = sorted({len(part) for part in parts} - {1})
        if len(worlds) > 1:
            raise PullbackError(f"a shape with sizes for {worlds[0]} and for {worlds[1]} worlds; give as many of each")
        return torch.cat([part.expand(max([1, *worlds]), -1) for part in parts], -1)

    def tensors(self) -> list[Tensor]:
        """Return all numbers that the parameters are made of."""
        return _tensors(self.shape)

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Return the corners (b, 3) in float64 of a box that holds the shape; infinite where it has no end."""
        like = torch.zeros(0, dtype=torch.float64)
        start = Placement(torch.eye(3, dtype=torch.float64)[None], torch.zeros(1, 3, dtype=torch.float64))
        with torch.no_grad():
            return _bounds(self.shape, start, like)

    def reach(self, like: Tensor) -> Tensor:
        """Return the radius (b,) of a ball about the origin that holds the shape; infinite where it has no end."""
        low, high = self.bounds()
        return torch.linalg.vector_norm(torch.maximum(low.abs(), high.abs()), dim=-1).to(like)


@dataclass
class _Writer:
    code: list[tuple[int, int, int, int]] = field(default_factory=list)
    lattices: list[Lattice] = field(default_factory=list)
    rows: int = 0

    def write(self, shape: Shape, placed: bool) -> None:
        """Append the instructions of a shape; its parameters stand in the order of `_collect`."""
        if isinstance(shape, Placed):
            self.write(shape.shape, True)
        elif isinstance(shape, Leaf):
            row, place = self._rows(SIZES + placed * PLACEMENT), -1
            if placed:
                place = row + SIZES
            self._append(shape.operation, row, place, self._number_of(shape.lattice))
        elif isinstance(shape, Turned):
            self.write(shape.shape, placed)
            self._append("negate", 0, 0)
        elif isinstance(shape, Offset):
            self.write(shape.shape, placed)
            self._append("offset", self._rows(1), 0)
        elif isinstance(shape, Combined):
            first, second = _deeper_first(shape)
            self.write(first, placed)
            left = len(self.code) - 1
            self.write(second, placed)
            self._append(shape.operation, self._rows(1), left)

    def _rows(self, count: int) -> int:
        self.rows += count
        return self.rows - count

    def _append(self, operation: str, row: int, other: int, grid: int = 0) -> None:
        self.code.append((OPERATIONS.index(operation), row, other, grid))

    def _number_of(self, lattice: Lattice | None) -> int:
        if lattice is None:
            return 0
        if not any(lattice is known for known in self.lattices):
            self.lattices.append(lattice)
        return next(k for k, known in enumerate(self.lattices) if known is lattice)


def compile_shape(shape: Shape) -> Program:
    """Return the program of a shape."""
    if not isinstance(shape, Shape):
        raise PullbackError(f"expected a shape, got {shape!r}; make one with sdf.sphere, sdf.box, …")
    writer = _Writer()
    writer.write(shape, False)
    if len(writer.code) > MAX_INSTRUCTIONS:
        raise PullbackError(
            f"a shape of {len(writer.code)} instructions, at most {MAX_INSTRUCTIONS} can be computed: make a grid of a "
            f"mesh of it, or split it into several shapes"
        )
    slope = 0.0 if any(x.slope == 0.0 for x in writer.lattices) else _slope(shape)
    return Program(shape, np.array(writer.code, dtype=np.int32), writer.lattices, writer.rows, slope)


def _slope(shape: Shape) -> float:
    """Return a bound of the length of the gradient."""
    if isinstance(shape, Combined):
        # eq. (5): the derivatives by the two are the sides of a right angle
        return float(np.hypot(_slope(shape.left), _slope(shape.right)))
    if isinstance(shape, Leaf):
        return 1.0 if shape.lattice is None else shape.lattice.slope
    return _slope(shape.shape)  # pyright: ignore[reportAttributeAccessIssue]


def _depth(shape: Shape) -> int:
    """Return how many values wait at once, this one included, when deeper operands come first."""
    if isinstance(shape, Combined):
        a, b = sorted((_depth(shape.left), _depth(shape.right)))
        return max(b, a + 1)
    return 1 if isinstance(shape, Leaf) else _depth(shape.shape)  # pyright: ignore[reportAttributeAccessIssue]


def _deeper_first(shape: Combined) -> tuple[Shape, Shape]:
    if _depth(shape.right) > _depth(shape.left):
        return shape.right, shape.left
    return shape.left, shape.right


def _collect(shape: Shape, placement: Placement | None, like: Tensor, parts: list[Tensor]) -> None:
    """Append the rows of a shape's parameters, each (b, n)."""
    if isinstance(shape, Placed):
        if placement is None:
            placement = Placement(torch.eye(3).to(like)[None], like.new_zeros(1, 3))
        _collect(shape.shape, placement.times(shape.position, shape.orientation), like, parts)
    elif isinstance(shape, Leaf):
        parts += [size.to(like).reshape(-1, 1) for size in shape.sizes]
        if placement is not None:
            parts += [placement.R.flatten(1), placement.p]
    elif isinstance(shape, Turned | Offset):
        _collect(shape.shape, placement, like, parts)
        if isinstance(shape, Offset):
            parts.append(shape.radius.to(like).reshape(-1, 1))
    elif isinstance(shape, Combined):
        for operand in _deeper_first(shape):
            _collect(operand, placement, like, parts)
        parts.append(shape.radius.to(like).reshape(-1, 1))


def _tensors(shape: Shape) -> list[Tensor]:
    if isinstance(shape, Leaf):
        return list(shape.sizes)
    if isinstance(shape, Combined):
        return [*_tensors(shape.left), *_tensors(shape.right), shape.radius]
    own = [shape.position, shape.orientation] if isinstance(shape, Placed) else []
    own += [shape.radius] if isinstance(shape, Offset) else []
    return [*_tensors(shape.shape), *own]  # pyright: ignore[reportAttributeAccessIssue]


def _bounds(shape: Shape, placement: Placement, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lower and upper corner (b, 3) of a box around a shape."""
    if isinstance(shape, Placed):
        return _bounds(shape.shape, placement.times(shape.position, shape.orientation), like)
    if isinstance(shape, Leaf):
        centre, half = _leaf_box(shape, like)
        middle = placement.p + (placement.R @ centre[..., None])[..., 0]
        # an infinite side that does not lean into an axis must not make it infinite: 0 · inf is nothing here
        spread = torch.nan_to_num(placement.R.abs() * half[:, None, :], nan=0.0, posinf=torch.inf).sum(-1)
        return middle - spread, middle + spread
    if isinstance(shape, Turned):
        everywhere = like.new_full((1, 3), torch.inf)
        return -everywhere, everywhere
    if isinstance(shape, Offset):
        low, high = _bounds(shape.shape, placement, like)
        radius = shape.radius.to(like).reshape(-1, 1)
        return low - radius, high + radius
    assert isinstance(shape, Combined)
    (low_a, high_a), (low_b, high_b) = (_bounds(x, placement, like) for x in (shape.left, shape.right))
    if shape.operation == "union":
        # at most, where both have the same surface
        bulge = shape.radius.to(like).reshape(-1, 1) * (2.0**0.5 - 1.0)
        return torch.minimum(low_a, low_b) - bulge, torch.maximum(high_a, high_b) + bulge
    return torch.maximum(low_a, low_b), torch.minimum(high_a, high_b)


def _leaf_box(shape: Leaf, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return centre and half extents (b, 3) of a primitive's box."""
    a, b, c, radius = (size.to(like).reshape(-1, 1) for size in shape.sizes)
    if shape.operation in ("halfspace", "heights"):
        return like.new_zeros(1, 3), like.new_full((1, 3), torch.inf)
    if shape.operation == "grid":
        assert shape.lattice is not None
        low, high = (torch.from_numpy(x).to(like) for x in shape.lattice.solid)
        return a * (low + high)[None] / 2.0, a * (high - low)[None] / 2.0
    x, y, z = (a, b, c) if shape.operation == "rounded" else (a + b, a + b, c)
    batch = max(len(size) for size in (x, y, z, radius))
    return like.new_zeros(1, 3), torch.cat([(size + radius).expand(batch, 1) for size in (x, y, z)], -1)
