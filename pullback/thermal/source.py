"""Where the laser's heat goes: a Gaussian beam on free faces, or a double ellipsoid in the volume."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from pullback.core import custom_vjp
from pullback.core.errors import PullbackError
from pullback.core.passes import Pass
from pullback.core.tensors import REAL, current_stream, device_name, make_struct
from pullback.thermal.births import FreeFaces
from pullback.thermal.geometry import element_points, face_points
from pullback.thermal.growth import birth_steps
from pullback.thermal.mesh import Mesh
from pullback.thermal.source_kernels import source_kernels, spot_type

Tensor = torch.Tensor

CUTOFF = 20.7
"""Points where the intensity is below exp(-CUTOFF), one in 10⁹ of that at the beam's centre, are left out."""

CHUNK = 256
"""Steps whose cells are searched at once."""


@dataclass(frozen=True)
class Gaussian:
    """A beam of 1/e² radius `radius` [m] on the free faces that look up: exp(-2 r²/radius²).

    absorptivity: the share of the power that is absorbed. points: Gauss points along an edge of a face.
    """

    radius: float
    absorptivity: float = 1.0
    points: int = 3
    factor = 2.0

    def __post_init__(self) -> None:
        _check_positive("Gaussian", radius=self.radius, absorptivity=self.absorptivity)

    @property
    def sizes(self) -> tuple[float, ...]:
        """Return front, back, width and depth [m]."""
        return (self.radius,) * 4


@dataclass(frozen=True)
class Goldak:
    """A double ellipsoid in the volume, exp(-3 (offset/size)²) along travel, sideways and down [m].

    Continuous: the shares of the front and of the back half are as their lengths.
    """

    front: float
    back: float
    width: float
    depth: float
    absorptivity: float = 1.0
    points: int = 3
    factor = 3.0

    def __post_init__(self) -> None:
        sizes = {"front": self.front, "back": self.back, "width": self.width, "depth": self.depth}
        _check_positive("Goldak", **sizes, absorptivity=self.absorptivity)

    @property
    def sizes(self) -> tuple[float, ...]:
        """Return front, back, width and depth [m]."""
        return (self.front, self.back, self.width, self.depth)


def _check_positive(kind: str, **values: float) -> None:
    for name, value in values.items():
        if not (np.isfinite(value) and value > 0):
            raise PullbackError(f"{kind}: {name} is {value}; expected a positive number")


class Cells(NamedTuple):
    """What the beam can heat.

    nodes (c, 4 or 8) of the mesh, points (c, q, 4), shapes (q, 4 or 8); from when on until when, in steps; center
    (c, 3), and how far its points are from there at most.
    """

    nodes: np.ndarray
    points: np.ndarray
    shapes: np.ndarray
    start: np.ndarray
    end: np.ndarray
    center: np.ndarray
    spread: np.ndarray


def cells_of(
    source: Gaussian | Goldak, mesh: Mesh, births: np.ndarray, faces: FreeFaces, dt: float, steps: int
) -> Cells:
    """Return the free faces that look up, or all elements, as they come and go."""
    if isinstance(source, Gaussian):
        nodes, start, end = faces.nodes, birth_steps(faces.start, dt, steps), birth_steps(faces.end, dt, steps)
        positions, areas, shapes = face_points(mesh.nodes[nodes], source.points)
        sizes = np.maximum(areas[:, :, 2], 0.0)
        # a wall that is upright but for rounding catches nothing
        sizes[sizes < 1e-6 * np.linalg.norm(areas, axis=2)] = 0.0
    else:
        nodes, start = mesh.elements, birth_steps(births, dt, steps)
        end = np.full_like(start, steps + 1)
        positions, sizes, shapes = element_points(mesh.nodes[nodes], source.points)
    kept = (sizes > 0).any(axis=1) & (start < end)
    nodes, start, end, positions, sizes = (x[kept] for x in (nodes, start, end, positions, sizes))
    center = positions.mean(axis=1)
    spread = np.linalg.norm(positions - center[:, None], axis=2).max(axis=1, initial=0.0)
    return Cells(nodes, np.concatenate([positions, sizes[:, :, None]], axis=2), shapes, start, end, center, spread)


class Spot(NamedTuple):
    """Which cells and nodes the beam heats at each lit step.

    lit (l,): the steps; cell_starts, cells, places: each step's cells, and for each corner its place among the step's
    entries; entry_starts (l + 1,), nodes (entries,): nodes of the mesh.
    """

    lit: np.ndarray
    cell_starts: np.ndarray
    cells: np.ndarray
    places: np.ndarray
    entry_starts: np.ndarray
    nodes: np.ndarray


def find_spot(
    cells: Cells,
    reach: float,
    position: np.ndarray,
    on: np.ndarray,
    mesh: Mesh,
    where: Callable[[int], str],
) -> Spot:
    """Find the cells within reach [m] of the beam at each step; `where(step)` says in words where a step is."""
    lit = np.flatnonzero(on)
    nodes, corners = len(mesh.nodes), cells.nodes.shape[1]
    bins = _Bins(cells, reach)
    parts: list[tuple[np.ndarray, ...]] = []
    for begin in range(0, len(lit), CHUNK):
        now = lit[begin : begin + CHUNK]
        step, cell = bins.near(position[now], now)
        keys = np.repeat(step * nodes, corners) + cells.nodes[cell].ravel()
        entries, place = np.unique(keys, return_inverse=True)
        starts = np.searchsorted(entries, np.arange(len(now) + 1) * nodes)
        places = place.reshape(-1, corners) - starts[step][:, None]
        counts = np.bincount(step, minlength=len(now))
        parts.append((counts, cell.astype(np.int32), places.astype(np.int32), np.diff(starts), entries % nodes))
    if not parts:
        parts.append(
            (np.zeros(0), np.zeros(0, np.int32), np.zeros((0, corners), np.int32), np.zeros(0), np.zeros(0, int))
        )
    count, cell, places, entry_count, entry_node = (np.concatenate(column) for column in zip(*parts))
    if not count.all():
        first = int(lit[np.flatnonzero(count == 0)[0]])
        x, y, z = position[first] * 1e3
        what = "no free face that looks up" if corners == 4 else "no element"
        raise PullbackError(
            f"the toolpath leaves the part: at {where(first)} the beam is lit at ({x:.4g}, {y:.4g}, {z:.4g}) mm, and "
            f"{what} is within {reach * 1e3:.4g} mm; {int((count == 0).sum())} steps in all. Check units and births, "
            f"or turn the beam off there"
        )
    cell_starts, entry_starts = (np.append(0, np.cumsum(n)).astype(np.int32) for n in (count, entry_count))
    return Spot(lit, cell_starts, cell, places, entry_starts, entry_node)


class _Bins:
    """Cells in cubic bins as wide as the beam's reach, so that those around the beam's own bin are enough."""

    def __init__(self, cells: Cells, reach: float) -> None:
        self.cells, self.far = cells, reach + cells.spread
        self.width = self.far.max(initial=reach)
        self.origin = cells.center.min(axis=0) if len(cells.center) else np.zeros(3)
        bins = np.floor((cells.center - self.origin) / self.width).astype(np.int64)
        self.shape = bins.max(axis=0, initial=0) + 1
        key = np.ravel_multi_index(bins.T, self.shape)
        self.order = np.argsort(key, kind="stable")
        self.keys = key[self.order]
        self.shifts = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), -1).reshape(-1, 3)

    def near(self, position: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs of a step and a cell that exists then and that the beam reaches, sorted by step."""
        home = np.floor((position - self.origin) / self.width).astype(np.int64)
        near = home[:, None] + self.shifts
        inside = ((near >= 0) & (near < self.shape)).all(axis=2)
        keys = np.ravel_multi_index(np.clip(near, 0, self.shape - 1).reshape(-1, 3).T, self.shape).reshape(inside.shape)
        first = np.searchsorted(self.keys, keys)
        count = np.where(inside, np.searchsorted(self.keys, keys, side="right") - first, 0).ravel()
        step = np.repeat(np.repeat(np.arange(len(steps)), len(self.shifts)), count)
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        cell = self.order[np.repeat(first.ravel(), count) + within]
        there = (self.cells.start[cell] <= steps[step]) & (steps[step] < self.cells.end[cell])
        step, cell = step[there], cell[there]
        ok = np.linalg.norm(self.cells.center[cell] - position[step], axis=1) <= self.far[cell]
        return step[ok], cell[ok]


class BeamWeights:
    """The fraction of the absorbed power that each entry gets, by the beam's positions and sizes, and its vjp."""

    name = "the beam"

    def __init__(self, source: Any, cells: Cells, spot: Spot, along: np.ndarray, dtype: torch.dtype, device) -> None:
        self.spot, self.dtype, self.device = spot, dtype, device
        used, cell = np.unique(spot.cells, return_inverse=True)
        flat = along.copy()
        flat[:, 2] = 0.0
        length = np.linalg.norm(flat, axis=1, keepdims=True)
        flat = np.where(length > 1e-9, flat / np.maximum(length, 1e-9), [1.0, 0.0, 0.0])
        self.kernels = source_kernels(REAL[dtype])
        self.struct = make_struct(
            spot_type(REAL[dtype]),
            factor=source.factor,
            points=self._put(cells.points[used]),
            shapes=self._put(cells.shapes),
            cell_starts=self._put(spot.cell_starts),
            cells=self._put(cell.astype(np.int32)),
            places=self._put(spot.places),
            entry_starts=self._put(spot.entry_starts),
            along=self._put(flat[spot.lit]),
        )

    def _put(self, x: np.ndarray) -> Tensor:
        dtype = self.dtype if x.dtype.kind == "f" else torch.int32
        return torch.as_tensor(np.ascontiguousarray(x)).to(self.device, dtype)

    def __call__(self, position: Tensor, sizes: Tensor) -> Tensor:
        """Return the weights (entries,) for positions (lit, 3) and sizes (4,); those of each lit step sum to one."""
        return custom_vjp.call(self, position, sizes)[0]

    def _launch(self, kernel: Any, **arguments: Tensor) -> None:
        named = {"spot": self.struct, **arguments}
        Pass(kernel, named, device_name(self.device), stream=current_stream(self.device))(0, len(self.spot.lit))

    def forward(self, inputs: Sequence[Tensor], keep: bool) -> tuple[tuple[Tensor, ...], Any]:
        """Return the weights; keep them and their sums before they were normalized."""
        position, size = (x.contiguous() for x in inputs)
        weight = torch.zeros(len(self.spot.nodes), dtype=self.dtype, device=self.device)
        total = torch.zeros(len(self.spot.lit), dtype=self.dtype, device=self.device)
        if len(total):
            self._launch(self.kernels.weigh, position=position, size=size, weight=weight, total=total)
        return (weight,), (weight.detach(), total)

    def backward(
        self, kept: Any, wanted: Sequence[bool], adj_outputs: Sequence[Any], inputs: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Return the cotangents of positions and sizes."""
        position, size = (x.contiguous() for x in inputs)
        weight, total = kept
        adj_position = torch.zeros_like(position)
        adj_size = torch.zeros(len(total), 4, dtype=self.dtype, device=self.device)
        if len(total):
            self._launch(
                self.kernels.weigh_vjp,
                position=position,
                size=size,
                weight=weight,
                total=total,
                adj_weight=adj_outputs[0].contiguous(),
                adj_position=adj_position,
                adj_size=adj_size,
            )
        return adj_position if wanted[0] else None, adj_size.sum(0) if wanted[1] else None
