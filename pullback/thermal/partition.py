"""Which rank computes which node of a growing part: columns of equal work, by recursive bisection.

Ranks work side by side at every step, so at every step each should have the same number of living elements. A part
grows upwards: halves that are cut upright grow together, where lower and upper halves would wait for each other. Cuts
are therefore upright, at the weighted median of columns along x or y, whichever the piece is longer in (docs/scale.md
has the figures of this, of space-filling curves and of METIS).
"""

from __future__ import annotations

import numpy as np

from pullback.core.bisect import bisect
from pullback.thermal.growth import Growth
from pullback.thermal.mesh import Mesh


def node_owners(mesh: Mesh, growth: Growth, parts: int) -> np.ndarray:
    """Return the part (n,) that each node belongs to, nodes in the order of birth: that of its first element."""
    steps = len(growth.elements_alive) - 1
    # the work of an element: the steps that it lives for
    born = np.searchsorted(growth.elements_alive, np.arange(len(growth.elements)), side="right")
    owner = bisect(mesh.centers[growth.elements, :2], (steps + 1.0) - born, parts)
    nodes = np.zeros(len(growth.user), dtype=np.int32)
    # written from the last to the first: the first element of a node stays
    nodes[growth.corners[::-1].ravel()] = np.repeat(owner[::-1], 8)
    return nodes
