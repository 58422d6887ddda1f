"""Points inside a mesh, at rest or moving: which element holds each, and the weights of its corners."""

from __future__ import annotations

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.thermal.geometry import trilinear
from pullback.thermal.mesh import CORNERS, Mesh
from pullback.thermal.part import Probes

INSIDE = 1e-6
"""How far outside of the reference element [-1, 1]³ a point still counts as inside."""

BESIDE = 1.0
"""How far beside the part a beam may be, in half edges of an element, for probes under it."""

BIN_ENTRIES = 4_000_000
"""Bins are made wider until they hold at most this many entries."""

CHUNK = 20_000
"""Points located at a time."""


def locate(
    mesh: Mesh, points: np.ndarray, births: np.ndarray, until: np.ndarray | None = None, reach: float = INSIDE
) -> tuple[np.ndarray, np.ndarray]:
    """Return the element that holds each point (p,), the oldest where several do, and its corners' weights (p, 8).

    until (p,): look among elements born until then only. A point that is outside by at most `reach`, in half edges of
    an element, is taken to that element's surface. Where none holds a point the element is −1.
    """
    element, weights = np.full(len(points), -1, dtype=np.int64), np.zeros((len(points), 8))
    bins = _Bins(mesh, reach)
    for start in range(0, len(points), CHUNK):
        point, near = bins.candidates(points[start : start + CHUNK])
        if until is not None:
            there = births[near] <= until[start + point]
            point, near = point[there], near[there]
        local = _local(mesh.nodes[mesh.elements[near]], points[start + point])
        outside = np.abs(local).max(axis=1, initial=0.0) - 1.0
        holds = np.flatnonzero(outside <= max(reach, INSIDE))
        outside[outside <= INSIDE] = 0.0
        # each point's nearest, and the oldest of those
        holds = holds[np.lexsort((near[holds], births[near[holds]], outside[holds], point[holds]))]
        found, first = np.unique(point[holds], return_index=True)
        element[start + found] = near[holds[first]]
        weights[start + found] = trilinear(np.clip(local[holds[first]], -1.0, 1.0))
    return element, weights


def locate_moving(mesh: Mesh, points: np.ndarray, born: np.ndarray, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Return elements (N, p) and weights (N, p, 8) of points (N, p, 3) after each step; one outside is an error.

    born (e,): the first state in which an element is there.
    """
    steps, count, _ = points.shape
    until = np.repeat(np.arange(1, steps + 1), count)
    element, weights = locate(mesh, points.reshape(-1, 3), born, until, reach)
    element, weights = element.reshape(steps, count), weights.reshape(steps, count, 8)
    refuse_not_there(mesh, points, element, born)
    return element, weights


def locate_below(mesh: Mesh, top: np.ndarray, depths: np.ndarray, born: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return elements (N, d) and weights (N, d, 8) at depths (d,) below points (N, 3) or the surface under them."""
    steps, count = len(top), len(depths)
    states = np.arange(1, steps + 1)
    points = np.repeat(top[:, None], count, axis=1)
    points[..., 2] -= depths + drop_to_surface(mesh, top, born, states)[:, None]
    element, weights = locate(mesh, points.reshape(-1, 3), born, np.repeat(states, count), BESIDE)
    element, weights = element.reshape(steps, count), weights.reshape(steps, count, 8)
    for k in range(count):
        missing = element[:, k] < 0
        if k == 0 or missing.all():
            refuse_not_there(mesh, points[:, : k + 1], np.where(missing[:, None], element[:, : k + 1], 0), born)
        if k:
            element[missing, k], weights[missing, k] = element[missing, k - 1], weights[missing, k - 1]
    return element, weights


def drop_to_surface(mesh: Mesh, points: np.ndarray, born: np.ndarray, until: np.ndarray) -> np.ndarray:
    """Return how far [m] below each point (p, 3) the part begins that is there until then; 0 where it is not found.

    Looked for within three heights of an element, in steps of a quarter of it that are then halved.
    """
    low, high = mesh.heights
    step = np.median(high - low) / 4

    def there(which: np.ndarray, depth: np.ndarray) -> np.ndarray:
        moved = points[which] - np.stack([0 * depth, 0 * depth, depth], 1)
        return locate(mesh, moved, born, until[which])[0] >= 0

    drop, left = np.zeros(len(points)), np.arange(len(points))
    for k in range(13):
        hit = there(left, np.full(len(left), k * step))
        drop[left[hit]] = k * step
        left = left[~hit]
        if not len(left):
            break
    fallen = np.flatnonzero(drop)
    for k in range(1, 13 if len(fallen) else 0):
        higher = drop[fallen] - step / 2**k
        drop[fallen] = np.where(there(fallen, higher), higher, drop[fallen])
    return drop


class _Bins:
    """A grid of boxes, each with the elements that reach into it, made larger by `reach` half edges."""

    def __init__(self, mesh: Mesh, reach: float) -> None:
        corners = mesh.nodes[mesh.elements]
        low, high = corners.min(axis=1), corners.max(axis=1)
        slack = INSIDE * (high - low).max() + 0.5 * reach * (high - low)
        self.low, self.high = low - slack, high + slack
        self.origin = self.low.min(axis=0)
        self.width = np.median(high - low, axis=0)
        while True:
            first, last = self._bin(self.low), self._bin(self.high)
            across = last - first + 1
            count = across.prod(axis=1)
            if count.sum() <= max(BIN_ENTRIES, 8 * len(count)):
                break
            self.width = 2.0 * self.width
        self.shape: np.ndarray = np.max(last, axis=0) + 1
        element = np.repeat(np.arange(len(count)), count)
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        span = across[element]
        shift = np.stack(
            [within // (span[:, 1] * span[:, 2]), within // span[:, 2] % span[:, 1], within % span[:, 2]], 1
        )
        key = np.asarray(np.ravel_multi_index(tuple((first[element] + shift).T), tuple(self.shape)))
        order = np.argsort(key, kind="stable")
        self.key, self.element = key[order], element[order]

    def _bin(self, points: np.ndarray) -> np.ndarray:
        return np.floor((points - self.origin) / self.width).astype(np.int64)

    def candidates(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs of points and elements whose box holds them."""
        bins = self._bin(points)
        inside = np.flatnonzero(((bins >= 0) & (bins < self.shape)).all(axis=1))
        key = np.ravel_multi_index(tuple(bins[inside].T), tuple(self.shape))
        first, last = (np.searchsorted(self.key, key, side=side) for side in ("left", "right"))
        count = last - first
        point = np.repeat(inside, count)
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        element = self.element[np.repeat(first, count) + within]
        ok = ((self.low[element] <= points[point]) & (points[point] <= self.high[element])).all(axis=1)
        return point[ok], element[ok]


def _local(corners: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the place (e, 3) of each point in the reference element with corners (e, 8, 3), by Newton's method."""
    local = np.zeros((len(corners), 3))
    left = np.arange(len(corners))
    for sweep in range(20):
        here, corner = local[left], corners[left]
        a, b, c = np.moveaxis(1.0 + here[:, None] * CORNERS, -1, 0)
        slopes = CORNERS * np.stack([b * c, a * c, a * b], -1) / 8.0
        J = corner.transpose(0, 2, 1) @ slopes
        gap = ((a * b * c / 8.0)[:, None] @ corner)[:, 0] - points[left]
        step = np.linalg.solve(J, gap[:, :, None])[:, :, 0]
        local[left] = np.clip(here - step, -3.0, 3.0)
        # what stays at the clip is far outside
        far = (np.abs(local[left]) == 3.0).any(axis=1) & (sweep > 4)
        left = left[(np.abs(step) > 1e-11).any(axis=1) & ~far]
        if not len(left):
            break
    return local


def refuse_outside(mesh: Mesh, points: np.ndarray, element: np.ndarray) -> None:
    """Raise an error that names the first point (p, 3) that no element holds."""
    bad = np.flatnonzero(element < 0)
    if len(bad):
        raise PullbackError(
            f"probe {bad[0]} at {_place(points[bad[0]])} is outside of the mesh; {_nearest(mesh, points[bad[0]])}"
        )


def refuse_not_there(mesh: Mesh, points: np.ndarray, element: np.ndarray, born: np.ndarray) -> None:
    """Raise an error that names the first of moving points (N, p, 3) that no element holds after that step."""
    bad = np.argwhere(element < 0)
    if not len(bad):
        return
    step, p = bad[0]
    point = points[step, p]
    holder, _ = locate(mesh, point[None], born)
    where = f"probe {p} of step {step} at {_place(point)}"
    if holder[0] < 0:
        raise PullbackError(f"{where} is outside of the mesh; {_nearest(mesh, point)}")
    raise PullbackError(
        f"{where} is in element {holder[0]}, which is not there before step {born[holder[0]]}; "
        "look elsewhere until then"
    )


def _place(point: np.ndarray) -> str:
    x, y, z = point * 1e3
    return f"({x:.6g}, {y:.6g}, {z:.6g}) mm"


def _nearest(mesh: Mesh, point: np.ndarray) -> str:
    gap = np.linalg.norm(mesh.centers - point, axis=1)
    return f"the nearest element is {int(gap.argmin())}, whose middle is {gap.min() * 1e3:.4g} mm away"


def make_probes(
    nodes: np.ndarray, weights: np.ndarray, dtype: torch.dtype, device: torch.device, states: int | None = None
) -> Probes:
    """Return probes of nodes (p, c), numbered by birth, with weights (p, c).

    states: how many states there are, for probes that move; then rows are (state, probe).
    """
    count, corners = nodes.shape
    flat = nodes.ravel()
    state = (
        np.zeros(len(flat), dtype=np.int64) if states is None else np.arange(len(flat)) // max(len(flat) // states, 1)
    )
    order = np.lexsort((flat, state))
    keys = state[order] * (flat.max(initial=0) + 1) + flat[order]
    _, first = np.unique(keys, return_index=True)

    def put(x: np.ndarray, kind: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.as_tensor(np.ascontiguousarray(x)).to(device, kind)

    return Probes(
        starts=put(np.arange(count + 1) * corners),
        node=put(flat),
        weight=put(weights.ravel(), dtype),
        nodes=put(flat[order[first]]),
        node_starts=put(np.append(first, len(flat))),
        probe=put(order // corners),
        node_weight=put(weights.ravel()[order], dtype),
        state_starts=None if states is None else np.searchsorted(state[order[first]], np.arange(states + 1)),
    )
