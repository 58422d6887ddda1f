"""Points inside a mesh: which element holds each, and the weights of its corners."""

from __future__ import annotations

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.thermal.geometry import trilinear
from pullback.thermal.mesh import Mesh, shape_gradients
from pullback.thermal.walker import Probes

INSIDE = 1e-6
"""How far outside of the reference element [-1, 1]³ a point still counts as inside."""


def locate(mesh: Mesh, points: np.ndarray, births: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the element that holds each point (p,), the oldest where several do, and its corners' weights (p, 8)."""
    corners = mesh.nodes[mesh.elements]
    low, high = corners.min(axis=1), corners.max(axis=1)
    slack = INSIDE * (high - low).max()
    element, weights = np.zeros(len(points), dtype=np.int64), np.zeros((len(points), 8))
    for p, point in enumerate(points):
        near = np.flatnonzero(((low - slack <= point) & (point <= high + slack)).all(axis=1))
        near = near[np.argsort(births[near], kind="stable")]
        local = _local(corners[near], point)
        holds = np.flatnonzero((np.abs(local) <= 1.0 + INSIDE).all(axis=1))
        if not len(holds):
            x, y, z = point * 1e3
            gap = np.linalg.norm(mesh.centers - point, axis=1)
            raise PullbackError(
                f"probe {p} at ({x:.6g}, {y:.6g}, {z:.6g}) mm is outside of the mesh; the nearest element is "
                f"{int(gap.argmin())}, whose middle is {gap.min() * 1e3:.4g} mm away"
            )
        element[p] = near[holds[0]]
        weights[p] = trilinear(local[holds[:1]])[0]
    return element, weights


def _local(corners: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Return the place (e, 3) of a point in the reference element of each of some elements, by Newton's method."""
    local = np.zeros((len(corners), 3))
    for _ in range(20):
        gap = np.einsum("ec,eck->ek", trilinear(local), corners) - point
        J = (
            np.stack([corners[e].T @ shape_gradients(local[e]) for e in range(len(corners))])
            if len(corners)
            else corners
        )
        if not len(corners):
            break
        local = np.clip(local - np.linalg.solve(J, gap[:, :, None])[:, :, 0], -3.0, 3.0)
    return local


def make_probes(nodes: np.ndarray, weights: np.ndarray, dtype: torch.dtype, device: torch.device) -> Probes:
    """Return probes that look at nodes (p, c) of a march with weights (p, c)."""
    count, corners = nodes.shape
    flat = nodes.ravel()
    order = np.argsort(flat, kind="stable")
    distinct, first = np.unique(flat[order], return_index=True)

    def put(x: np.ndarray, kind: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.as_tensor(np.ascontiguousarray(x)).to(device, kind)

    return Probes(
        starts=put(np.arange(count + 1) * corners),
        node=put(flat),
        weight=put(weights.ravel(), dtype),
        nodes=put(distinct),
        node_starts=put(np.append(first, len(flat))),
        probe=put(order // corners),
        node_weight=put(weights.ravel()[order], dtype),
    )
