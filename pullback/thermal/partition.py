"""Which rank computes which node of a growing part: columns of equal work, by recursive bisection.

Ranks work side by side at every step, so at every step each should have the same number of living elements. A part
grows upwards: halves that are cut upright grow together, where lower and upper halves would wait for each other. Cuts
are therefore upright, at the weighted median of columns along x or y, whichever the piece is longer in (docs/scale.md
has the figures of this, of space-filling curves and of METIS).
"""

from __future__ import annotations

import numpy as np

from pullback.thermal.growth import Growth
from pullback.thermal.mesh import Mesh


def node_owners(mesh: Mesh, growth: Growth, parts: int) -> np.ndarray:
    """Return the part (n,) that each node belongs to, nodes in the order of birth: that of its first element."""
    steps = len(growth.elements_alive) - 1
    # the work of an element: the steps that it lives for
    born = np.searchsorted(growth.elements_alive, np.arange(len(growth.elements)), side="right")
    owner = bisect(mesh.centers[growth.elements], (steps + 1.0) - born, parts)
    nodes = np.zeros(len(growth.user), dtype=np.int32)
    # written from the last to the first: the first element of a node stays
    nodes[growth.corners[::-1].ravel()] = np.repeat(owner[::-1], 8)
    return nodes


def bisect(centers: np.ndarray, work: np.ndarray, parts: int) -> np.ndarray:
    """Return the part (e,) of each element with centre (e, 3) and work (e,); parts have about equal work."""
    owner = np.zeros(len(centers), dtype=np.int32)
    _bisect(centers, work, np.arange(len(centers)), owner, 0, parts)
    return owner


def _bisect(
    centers: np.ndarray, work: np.ndarray, elements: np.ndarray, owner: np.ndarray, first: int, parts: int
) -> None:
    if parts == 1 or not len(elements):
        owner[elements] = first
        return
    lower = parts // 2
    here = centers[elements, :2]
    # columns stay whole: rounding of centres must not split them
    place = np.round(here / max(float(np.ptp(here, axis=0).max()), 1e-30) * 1e6).astype(np.int64)
    axis = int(np.ptp(place, axis=0).argmax())
    columns, column = np.unique(place[:, [axis, 1 - axis]], axis=0, return_inverse=True)
    column = column.ravel()
    total = np.cumsum(np.bincount(column, work[elements], len(columns)))
    cut = int(np.argmin(np.abs(total - total[-1] * lower / parts)))
    below = column <= cut
    _bisect(centers, work, elements[below], owner, first, lower)
    _bisect(centers, work, elements[~below], owner, first + lower, parts - lower)
