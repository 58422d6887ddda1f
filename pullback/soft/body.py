"""Bodies of particles: points on a lattice inside of boxes, balls, meshes and signed-distance shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.core.errors import PullbackError
from pullback.sdf.field import Field
from pullback.sdf.shapes import Shape, grid
from pullback.soft.materials import Material


@dataclass(frozen=True, eq=False)
class Body:
    """Particles of one material.

    points (n, d) [m]; volume (n,) [m^d] or one for all; velocity (d,) or (n, d) [m/s]. actuator: the number of the
    control that each particle's muscle obeys, one or (n,), -1: none; fibre (d,) or (n, d): its direction at rest.
    """

    name: str
    points: np.ndarray
    volume: float | np.ndarray
    material: Material
    velocity: Sequence[float] | np.ndarray | None = None
    actuator: int | np.ndarray | None = None
    fibre: Sequence[float] | np.ndarray | None = None

    def __post_init__(self) -> None:
        points = np.asarray(self.points, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] not in (2, 3) or not len(points):
            raise PullbackError(f"body {self.name!r}: points have shape {points.shape}; expected (n, 2) or (n, 3)")
        if not np.isfinite(points).all():
            bad = int(np.flatnonzero(~np.isfinite(points).all(1))[0])
            raise PullbackError(f"body {self.name!r}: particle {bad} is at {points[bad].tolist()}")
        volume = np.broadcast_to(np.asarray(self.volume, dtype=np.float64), (len(points),))
        if not (volume > 0.0).all():
            bad = int(np.flatnonzero(~(volume > 0.0))[0])
            raise PullbackError(f"body {self.name!r}: the volume of particle {bad} is {volume[bad]}; expected above 0")
        if (self.actuator is None) != (self.fibre is None):
            raise PullbackError(f"body {self.name!r}: a muscle needs an actuator and a fibre, its direction")
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "volume", volume)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def dim(self) -> int:
        """Return the number of dimensions."""
        return self.points.shape[1]

    def per_particle(self, name: str) -> np.ndarray:
        """Return velocity or fibre as (n, d), zeros where there is none."""
        value: Any = getattr(self, name)
        shape = self.points.shape
        try:
            return np.broadcast_to(np.zeros(shape[1]) if value is None else np.asarray(value, dtype=np.float64), shape)
        except ValueError:
            raise PullbackError(
                f"body {self.name!r}: {name} has shape {np.asarray(value).shape}; expected ({shape[1]},) or {shape}"
            ) from None


def block(
    low: Sequence[float] | np.ndarray, high: Sequence[float] | np.ndarray, *, spacing: float, **options: Any
) -> Body:
    """Return a box of particles on a lattice from corner to corner [m]; half a cell is a good spacing.

    The lattice is stretched so that it fills the box exactly. options: name, material and others of `Body`.
    """
    _check_spacing(spacing)
    first, last = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    if first.shape != last.shape or first.shape not in ((2,), (3,)) or not (last > first).all():
        raise PullbackError(f"a block from {first.tolist()} to {last.tolist()}; expected a lower and a higher corner")
    counts = np.maximum(np.rint((last - first) / spacing), 1).astype(int)
    steps = (last - first) / counts
    points = _grid([first[a] + (np.arange(counts[a]) + 0.5) * steps[a] for a in range(len(first))])
    return Body(**{"name": "block", "points": points, "volume": float(np.prod(steps)), **options})


def ball(center: Sequence[float] | np.ndarray, radius: float, *, spacing: float, **options: Any) -> Body:
    """Return a ball, or in the plane a disc, of particles; its volume is the exact one."""
    _check_spacing(spacing)
    middle = np.asarray(center, dtype=np.float64)
    if middle.shape not in ((2,), (3,)) or not radius > 0.0:
        raise PullbackError(f"a ball about {middle.tolist()} of radius {radius}; expected two or three coordinates")
    points = _lattice(middle - radius, middle + radius, spacing)
    points = points[np.linalg.norm(points - middle, axis=1) <= radius]
    whole = np.pi * radius**2 if len(middle) == 2 else 4.0 / 3.0 * np.pi * radius**3
    return Body(**{"name": "ball", "points": points, "volume": whole / max(len(points), 1), **options})


def solid(shape: Shape | Any, *, spacing: float, dim: int = 3, **options: Any) -> Body:
    """Return particles inside of a signed-distance shape, or of a watertight mesh: a file, a Trimesh.

    dim = 2 takes the cut of the shape at z = 0.
    """
    _check_spacing(spacing)
    shape = shape if isinstance(shape, Shape) else grid(shape)
    field = Field(shape)
    low, high = (x[0].numpy() for x in field.program.bounds())
    if not (np.isfinite(low[:dim]).all() and np.isfinite(high[:dim]).all()):
        raise PullbackError("a solid needs a shape that ends on all sides; cut it with a box: shape & sdf.box(half)")
    for axis, width in enumerate((high - low)[:dim]):
        if width < spacing * (1.0 - 1e-6):
            raise PullbackError(
                f"the shape is {width:.3g} m thin along {'xyz'[axis]}, and spacing {spacing:g} m: particles would be "
                f"larger than it; use spacing={width:.3g} or less"
            )
    points = _lattice(low[:dim], high[:dim], spacing)
    inside = field.values(np.pad(points, ((0, 0), (0, 3 - dim)))) <= 0.0
    if not inside.any():
        raise PullbackError(f"no particle of a lattice of {spacing} m is inside of the shape; make spacing smaller")
    return Body(**{"name": "solid", "points": points[inside], "volume": spacing**dim, **options})


def _lattice(low: np.ndarray, high: np.ndarray, spacing: float) -> np.ndarray:
    """Return points (n, d), neighbours in memory near each other, centred between two corners."""
    counts = np.maximum(np.floor((high - low) / spacing + 1e-9), 1).astype(int)
    first = 0.5 * (low + high) - 0.5 * (counts - 1) * spacing
    return _grid([first[a] + np.arange(counts[a]) * spacing for a in range(len(low))])


def _grid(axes: Sequence[np.ndarray]) -> np.ndarray:
    """Return all points (n, d) whose coordinates are among those of the axes."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


def _check_spacing(spacing: float) -> None:
    if not (np.isfinite(spacing) and spacing > 0.0):
        raise PullbackError(f"spacing of particles is {spacing}; expected a length above 0 [m]")
