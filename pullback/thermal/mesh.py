"""Meshes of eight-node hexahedra: a part and the plate it is printed on.

Nodes of an element stand in the order of VTK_HEXAHEDRON: 0 to 3 around the bottom, counter-clockwise seen from above,
4 to 7 above them. Faces list their four nodes counter-clockwise seen from outside, so that their normals point out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pullback.core.errors import PullbackError, unknown_name

# corners of the reference element [-1, 1]³
CORNERS = np.array(
    [[-1, -1, -1], [1, -1, -1], [1, 1, -1], [-1, 1, -1], [-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]],
    dtype=np.float64,
)
FACES = np.array([[0, 3, 2, 1], [4, 5, 6, 7], [0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7]])
EDGES = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [4, 5], [5, 6], [6, 7], [7, 4], [0, 4], [1, 5], [2, 6], [3, 7]])

# two nodes nearer than this share of the shortest edge are one
SAME_NODE = 1e-4
# elements handled at once where an intermediate result is large
CHUNK = 100_000


class Faces(NamedTuple):
    """The distinct faces of a mesh.

    nodes (f, 4): counter-clockwise seen from outside the first owner; owners (f, 2): the elements on both sides, the
    second one -1 on the boundary of the mesh.
    """

    nodes: np.ndarray
    owners: np.ndarray


@dataclass(frozen=True, eq=False)
class Mesh:
    """Hexahedra that share their nodes; checked when made, so a Mesh is always valid.

    Args:
        nodes: (n, 3) positions [m].
        elements: (m, 8) nodes of each element, in the order of VTK_HEXAHEDRON.
        element_sets: name -> elements. "build" is what is printed, "plate" what it is printed on.
        node_sets: name -> nodes. "bottom" is the underside.
    """

    nodes: np.ndarray
    elements: np.ndarray
    element_sets: Mapping[str, np.ndarray] = field(default_factory=dict)
    node_sets: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes, elements = _checked_arrays(self.nodes, self.elements)
        _frozen(self, "nodes", nodes)
        _frozen(self, "elements", elements)
        for name, count, what in (("element_sets", len(elements), "elements"), ("node_sets", len(nodes), "nodes")):
            sets = {key: _checked_set(key, value, count, what) for key, value in dict(getattr(self, name)).items()}
            object.__setattr__(self, name, sets)
        _check_repeats(elements)
        _check_used(nodes, elements)
        _check_duplicates(nodes, elements)
        _frozen(self, "volumes", _checked_volumes(nodes, elements))

    # set by __post_init__: (m,) volume of each element [m³]
    volumes: np.ndarray = field(init=False, repr=False)

    @cached_property
    def centers(self) -> np.ndarray:
        """Return the mean of each element's nodes, (m, 3) [m]."""
        return self.nodes[self.elements].mean(axis=1)

    @cached_property
    def heights(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and the highest z of each element, (m,) each [m]."""
        z = self.nodes[:, 2][self.elements]
        return z.min(axis=1), z.max(axis=1)

    @cached_property
    def edge_lengths(self) -> np.ndarray:
        """Return the lengths of each element's twelve edges, (m, 12) [m]."""
        return _edge_lengths(self.nodes, self.elements)

    @cached_property
    def faces(self) -> Faces:
        """Return every face once, with the elements on its sides."""
        return _distinct_faces(self.elements)

    @cached_property
    def neighbours(self) -> np.ndarray:
        """Return the pairs of elements that share a face, (p, 2)."""
        owners = self.faces.owners
        return owners[owners[:, 1] >= 0]

    def element_set(self, name: str) -> np.ndarray:
        """Return the elements of a set; an unknown name is an error that lists the known ones."""
        if name not in self.element_sets:
            raise unknown_name("element set", name, self.element_sets, "the mesh")
        return self.element_sets[name]

    def node_set(self, name: str) -> np.ndarray:
        """Return the nodes of a set; an unknown name is an error that lists the known ones."""
        if name not in self.node_sets:
            raise unknown_name("node set", name, self.node_sets, "the mesh")
        return self.node_sets[name]

    def with_sets(
        self,
        elements: Mapping[str, np.ndarray | Callable[[np.ndarray], np.ndarray]] | None = None,
        nodes: Mapping[str, np.ndarray | Callable[[np.ndarray], np.ndarray]] | None = None,
    ) -> Mesh:
        """Return the mesh with sets added or replaced.

        A set is a list of indices, or a function that takes points (n, 3) [m] (centres of elements, or nodes) and
        returns (n,) booleans:

            mesh.with_sets(elements={"build": lambda x: x[:, 2] > 0}, nodes={"bottom": lambda x: x[:, 2] < -0.0099})
        """
        element_sets = {**self.element_sets, **{k: _indices(v, self.centers) for k, v in (elements or {}).items()}}
        node_sets = {**self.node_sets, **{k: _indices(v, self.nodes) for k, v in (nodes or {}).items()}}
        return replace(self, element_sets=element_sets, node_sets=node_sets)

    def summary(self) -> str:
        """Return a few lines of text: counts, size, volumes, edges, sets."""
        low, high = self.nodes.min(axis=0) * 1e3, self.nodes.max(axis=0) * 1e3
        lines = [
            f"{len(self.elements):,} hexahedra, {len(self.nodes):,} nodes",
            "size " + " × ".join(f"{a:.4g}..{b:.4g}" for a, b in zip(low, high)) + " mm",
            f"edges {self.edge_lengths.min() * 1e3:.3g} to {self.edge_lengths.max() * 1e3:.3g} mm",
        ]
        for name, index in self.element_sets.items():
            lines.append(f"elements {name!r}: {len(index):,}, {self.volumes[index].sum() * 1e9:,.5g} mm³")
        lines += [f"nodes {name!r}: {len(index):,}" for name, index in self.node_sets.items()]
        return "\n".join(lines)


def shape_gradients(point: np.ndarray) -> np.ndarray:
    """Return the derivatives (8, 3) of the trilinear shape functions at a point of the reference element."""
    factors = 1 + CORNERS * point
    products = np.stack(
        [factors[:, 1] * factors[:, 2], factors[:, 0] * factors[:, 2], factors[:, 0] * factors[:, 1]], 1
    )
    return CORNERS * products / 8


def jacobian_determinants(nodes: np.ndarray, elements: np.ndarray) -> np.ndarray:
    """Return det ∂x/∂ξ at the 2×2×2 Gauss points, (m, 8); each has weight one."""
    gradients = np.stack([shape_gradients(corner / np.sqrt(3)) for corner in CORNERS])
    out = np.empty((len(elements), 8))
    for start in range(0, len(elements), CHUNK):
        corners = nodes[elements[start : start + CHUNK]]
        # columns of the Jacobian: ∂x/∂ξ, ∂x/∂η, ∂x/∂ζ at every Gauss point, (g, e, 3)
        a, b, c = (np.einsum("gn,enk->gek", gradients[:, :, axis], corners, optimize=True) for axis in range(3))
        out[start : start + CHUNK] = np.einsum("gek,gek->ge", a, np.cross(b, c)).T
    return out


def compacted(nodes: np.ndarray, elements: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return nodes and elements without the unused nodes, and the new number (or -1) of each old node."""
    used = np.zeros(len(nodes), dtype=bool)
    used[elements] = True
    number = np.where(used, np.cumsum(used) - 1, -1)
    return nodes[used], number[elements], number


def _frozen(mesh: Mesh, name: str, array: np.ndarray) -> None:
    array.flags.writeable = False
    object.__setattr__(mesh, name, array)


def _indices(choice: np.ndarray | Callable[[np.ndarray], np.ndarray], points: np.ndarray) -> np.ndarray:
    return np.flatnonzero(choice(points)) if callable(choice) else np.asarray(choice)


def _edge_lengths(nodes: np.ndarray, elements: np.ndarray) -> np.ndarray:
    ends = elements[:, EDGES]
    return np.linalg.norm(nodes[ends[:, :, 1]] - nodes[ends[:, :, 0]], axis=2)


def _checked_arrays(nodes: np.ndarray, elements: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return copies of the right type; raise for an invalid entry."""
    nodes = np.array(nodes, dtype=np.float64)
    elements = np.array(elements)
    if nodes.ndim != 2 or nodes.shape[1] != 3:
        raise PullbackError(f"nodes have shape {nodes.shape}; expected (n, 3)")
    if elements.ndim != 2 or elements.shape[1] != 8 or not len(elements):
        raise PullbackError(f"elements have shape {elements.shape}; expected (m, 8), m > 0: hexahedra only")
    if not np.issubdtype(elements.dtype, np.integer):
        raise PullbackError(f"elements are of type {elements.dtype}; expected node numbers (integers)")
    bad = np.flatnonzero(~np.isfinite(nodes).all(axis=1))
    if len(bad):
        raise PullbackError(f"node {bad[0]} stands at {nodes[bad[0]]}: not a finite position{_others(bad)}")
    bad = np.flatnonzero(((elements < 0) | (elements >= len(nodes))).any(axis=1))
    if len(bad):
        raise PullbackError(
            f"element {bad[0]} has nodes {elements[bad[0]].tolist()}; there are {len(nodes)} nodes, numbered from 0"
            + _others(bad)
        )
    return nodes, elements.astype(np.int32)


def _checked_set(name: str, index: np.ndarray, count: int, what: str) -> np.ndarray:
    index = np.asarray(index)
    if not index.size:
        index = index.astype(np.int64)
    if index.ndim != 1 or not np.issubdtype(index.dtype, np.integer):
        raise PullbackError(f"the set {name!r} of {what} is no list of indices: {index.dtype}, shape {index.shape}")
    if index.size and (index.min() < 0 or index.max() >= count):
        worst = index.max() if index.max() >= count else index.min()
        raise PullbackError(f"the set {name!r} names {what[:-1]} {worst}; there are {count} {what}, numbered from 0")
    index = np.unique(index).astype(np.int32)
    index.flags.writeable = False
    return index


def _check_used(nodes: np.ndarray, elements: np.ndarray) -> None:
    used = np.zeros(len(nodes), dtype=bool)
    used[elements] = True
    bad = np.flatnonzero(~used)
    if len(bad):
        raise PullbackError(f"node {bad[0]} belongs to no element{_others(bad)}; remove what is not used")


def _check_repeats(elements: np.ndarray) -> None:
    ordered = np.sort(elements, axis=1)
    bad = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if len(bad):
        raise PullbackError(
            f"element {bad[0]} has nodes {elements[bad[0]].tolist()}, one of them twice{_others(bad)}; "
            "collapsed hexahedra (wedges, tetrahedra) are not supported"
        )


def _check_duplicates(nodes: np.ndarray, elements: np.ndarray) -> None:
    """Raise for two nodes at one place: heat would not pass between the elements on their sides."""
    tolerance = max(SAME_NODE * _edge_lengths(nodes, elements).min(), 1e-12 * np.ptp(nodes, axis=0).max())
    # the shift keeps round coordinates off the borders of the lattice
    lattice = np.floor((nodes - nodes.min(axis=0)) / tolerance + 0.381966).astype(np.int64)
    order = np.lexsort(lattice.T)
    same = np.flatnonzero((lattice[order][1:] == lattice[order][:-1]).all(axis=1))
    if len(same):
        first, second = sorted(order[[same[0], same[0] + 1]])
        raise PullbackError(
            f"nodes {first} and {second} stand at the same place {nodes[first].tolist()}"
            + _others(same)
            + "; merge them, or heat does not pass between the elements on their sides"
        )


def _checked_volumes(nodes: np.ndarray, elements: np.ndarray) -> np.ndarray:
    determinants = jacobian_determinants(nodes, elements)
    bad = np.flatnonzero((determinants <= 0).any(axis=1))
    if len(bad):
        hint = "the bottom four nodes must turn counter-clockwise seen from the top four (order of VTK_HEXAHEDRON)"
        raise PullbackError(f"element {bad[0]} is inverted or badly distorted{_others(bad)}; {hint}")
    return determinants.sum(axis=1)


def _others(bad: np.ndarray) -> str:
    return f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""


def _distinct_faces(elements: np.ndarray) -> Faces:
    corners = elements[:, FACES].reshape(-1, 4)
    keys = np.sort(corners, axis=1)
    order = np.lexsort(keys.T[::-1])
    keys = keys[order]
    fresh = np.ones(len(keys), dtype=bool)
    fresh[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    first = np.flatnonzero(fresh)
    counts = np.diff(np.append(first, len(keys)))
    if counts.max() > 2:
        start = first[counts.argmax()]
        owners = (order[start : start + counts.max()] // 6).tolist()
        raise PullbackError(f"elements {owners} share one face; a face has at most two sides")
    owners = np.full((len(first), 2), -1, dtype=np.int32)
    owners[:, 0] = order[first] // 6
    shared = counts == 2
    owners[shared, 1] = order[first[shared] + 1] // 6
    # lexsort is stable: the first owner has the lower number
    return Faces(corners[order[first]], owners)
