"""Integrals over elements and faces: conductances between corners, and the shares of corners in volume and area."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pullback.thermal.mesh import CORNERS, shape_gradients

GAUSS = np.array([-1.0, 1.0]) / np.sqrt(3.0)
POINTS = np.array([(x, y, z) for x in GAUSS for y in GAUSS for z in GAUSS])
SAME_SHAPE = 1e-9
"""Elements whose edges differ by less than this share of their size have the same conductances."""
CHUNK = 50_000


def _pairs() -> np.ndarray:
    """Return the two corners of each of an element's 28 pairs, (28, 2), in the order of `conduction_kernels.py`."""
    pairs = []
    for d in range(1, 8):
        highest = 1 << (d.bit_length() - 1)
        pairs += [(i, i ^ d) for i in range(8) if not i & highest]
    return np.array(pairs)


PAIRS = _pairs()


def trilinear(points: np.ndarray) -> np.ndarray:
    """Return the shape functions of the eight corners (q, 8) at points of the reference element (q, 3)."""
    return np.prod(1.0 + points[:, None, :] * CORNERS[None], axis=2) / 8.0


def bilinear(points: np.ndarray) -> np.ndarray:
    """Return the shape functions of a face's four corners (q, 4) at points of the reference square (q, 2)."""
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=np.float64)
    return np.prod(1.0 + points[:, None, :] * corners[None], axis=2) / 4.0


def bilinear_gradients(points: np.ndarray) -> np.ndarray:
    """Return the derivatives of the four shape functions (q, 4, 2)."""
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=np.float64)
    along = 1.0 + points[:, None, :] * corners[None]
    return np.stack([corners[:, 0] * along[:, :, 1], corners[:, 1] * along[:, :, 0]], axis=2) / 4.0


def distinct_shapes(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return one element of each shape, and the shape of each element, for corners (e, 8, 3) [m]."""
    edges = (corners - corners[:, :1]).reshape(len(corners), 24)
    size = np.abs(edges).max()
    lattice = np.round(edges / (size * SAME_SHAPE) * 0.5 + 0.31).astype(np.int64)
    # equal rows have equal hashes; rows of equal hash are equal but for one chance in 10^13 with a million elements
    weights = np.random.default_rng(7).integers(1, 2**62, 24, dtype=np.int64) | 1
    with np.errstate(over="ignore"):
        _, first, shape = np.unique((lattice * weights).sum(axis=1), return_index=True, return_inverse=True)
    return first, shape.astype(np.int32)


def conductances(corners: np.ndarray) -> np.ndarray:
    """Return G_ij = -∫ ∇N_i · ∇N_j (e, 8, 8) [m], zero on the diagonal, of elements with corners (e, 8, 3)."""
    G = np.zeros((len(corners), 8, 8))
    for point in POINTS:
        reference = shape_gradients(point)
        J = np.einsum("eck,cl->ekl", corners, reference)
        gradients = np.einsum("cl,elk->eck", reference, np.linalg.inv(J))
        G -= np.einsum("eik,ejk,e->eij", gradients, gradients, np.linalg.det(J))
    G = 0.5 * (G + G.transpose(0, 2, 1))
    G[:, np.arange(8), np.arange(8)] = 0.0
    return G


def corner_volumes(corners: np.ndarray) -> np.ndarray:
    """Return ∫ N_i (e, 8) [m³] of elements with corners (e, 8, 3)."""
    volumes = np.zeros((len(corners), 8))
    for point, shares in zip(POINTS, trilinear(POINTS)):
        J = np.einsum("eck,cl->ekl", corners, shape_gradients(point))
        volumes += np.linalg.det(J)[:, None] * shares
    return volumes


def face_points(corners: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions (f, q, 3), area vectors (f, q, 3) [m²] of Gauss points of faces (f, 4, 3), and shapes (q, 4)."""
    x, w = np.polynomial.legendre.leggauss(points)
    square = np.array([(a, b) for a in x for b in x])
    weights = np.array([a * b for a in w for b in w])
    shapes, gradients = bilinear(square), bilinear_gradients(square)
    tangents = np.einsum("fck,qcl->fqlk", corners, gradients)
    areas = np.cross(tangents[:, :, 0], tangents[:, :, 1]) * weights[None, :, None]
    return np.einsum("qc,fck->fqk", shapes, corners), areas, shapes


def element_points(corners: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions (e, q, 3), volumes (e, q) [m³] of Gauss points of elements (e, 8, 3), and shapes (q, 8)."""
    x, w = np.polynomial.legendre.leggauss(points)
    cube = np.array([(a, b, c) for a in x for b in x for c in x])
    weights = np.array([a * b * c for a in w for b in w for c in w])
    shapes = trilinear(cube)
    volumes = np.empty((len(corners), len(cube)))
    for q, point in enumerate(cube):
        volumes[:, q] = weights[q] * np.linalg.det(np.einsum("eck,cl->ekl", corners, shape_gradients(point)))
    return np.einsum("qc,eck->eqk", shapes, corners), volumes, shapes


def corner_areas(corners: np.ndarray) -> np.ndarray:
    """Return ∫ N_a dA (f, 4) [m²] of faces with corners (f, 4, 3)."""
    _, areas, shapes = face_points(corners, 2)
    return np.linalg.norm(areas, axis=2) @ shapes


def in_chunks(function, corners: np.ndarray) -> np.ndarray:
    """Return a function of many elements, computed in chunks."""
    bounds = [*range(0, len(corners), CHUNK), len(corners)]
    return (
        np.concatenate([function(corners[a:b]) for a, b in pairwise(bounds)]) if len(bounds) > 1 else function(corners)
    )


def fastest_rates(corners: np.ndarray, G: np.ndarray) -> np.ndarray:
    """Return each element's largest eigenvalue of D⁻¹K (e,) [1/m²], D its corners' volumes: eq. (9).

    No mode of the whole mesh decays faster than the fastest of its elements alone, times the diffusivity.
    """
    root = 1.0 / np.sqrt(corner_volumes(corners))
    K = -G
    K[:, np.arange(8), np.arange(8)] = G.sum(axis=2)
    return np.linalg.eigvalsh(K * root[:, :, None] * root[:, None, :])[:, -1]
