"""Points inside a mesh, at rest or moving: which element holds each, and the weights of its corners."""

from __future__ import annotations

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.thermal.geometry import trilinear
from pullback.thermal.mesh import CORNERS, Mesh
from pullback.thermal.walker import Probes

INSIDE = 1e-6
"""How far outside of the reference element [-1, 1]³ a point still counts as inside."""

BIN_ENTRIES = 4_000_000
"""Bins are made wider until elements stand in them at most this often."""

CHUNK = 20_000
"""So many points are looked up at a time."""


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
    for _ in range(20):
        factors = 1.0 + local[:, None] * CORNERS
        others = np.stack([factors[..., 1] * factors[..., 2], factors[..., 0] * factors[..., 2],
                           factors[..., 0] * factors[..., 1]], -1)  # fmt: skip
        J = np.einsum("eck,ecl->ekl", corners, CORNERS * others / 8.0)
        gap = np.einsum("ec,eck->ek", trilinear(local), corners) - points
        step = np.linalg.solve(J, gap[:, :, None])[:, :, 0]
        local = np.clip(local - step, -3.0, 3.0)
        if np.abs(step).max(initial=0.0) < 1e-11:
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
    """Raise an error that names the first of moving points (states, p, 3) that no element of that state holds."""
    bad = np.argwhere(element.reshape(points.shape[:2]) < 0)
    # state 0 looks where state 1 does; say it of the step
    bad = bad[bad[:, 0] > 0] if len(bad) and bad[-1, 0] > 0 else bad
    if not len(bad):
        return
    state, p = bad[0]
    point = points[state, p]
    holder, _ = locate(mesh, point[None], born)
    where = f"probe {p} of step {max(state - 1, 0)} at {_place(point)}"
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
    """Return probes that look at nodes (p, c) of a march with weights (p, c).

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
