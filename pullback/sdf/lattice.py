"""Samples on a regular lattice as coefficients of cubic B-splines: the distance from a mesh, heights over a plane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pullback.core.errors import PullbackError
from pullback.sdf.mesh_file import read_surface

PADDING = 3
"""Cells between a mesh and the border of its grid."""

MAX_SAMPLES = 64_000_000
"""Samples of a grid: 256 MB of coefficients."""

WEIGHTS = ((1 / 6, 4 / 6, 1 / 6, 0.0), (1 / 48, 23 / 48, 23 / 48, 1 / 48))
SLOPES = ((-0.5, 0.0, 0.5, 0.0), (-0.125, -0.625, 0.625, 0.125))
"""Of the four B-splines at the start and in the middle of a cell."""


@dataclass(frozen=True, eq=False)
class Lattice:
    """Coefficients of a spline through samples on a lattice.

    coefficients (nx + 2, ny + 2, nz + 2), or (nx + 2, ny + 2, 1) for heights; slope: a bound of the length of the
    gradient, 0 for heights; solid: lower and upper corner of the mesh.
    """

    coefficients: np.ndarray
    origin: np.ndarray
    spacing: np.ndarray
    slope: float
    solid: tuple[np.ndarray, np.ndarray]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Number of samples along x, y and z."""
        nx, ny, nz = self.coefficients.shape
        return nx - 2, ny - 2, max(nz - 2, 1)


def spline_coefficients(samples: np.ndarray, axis: int) -> np.ndarray:
    """Return the coefficients, two more along an axis, of the cubic spline through samples that ends without bend.

    docs/derivations/sdf.md, eq. (9).
    """
    f = np.moveaxis(np.asarray(samples, dtype=np.float64), axis, 0)
    n = len(f)
    c = np.empty((n + 2, *f.shape[1:]))
    # a bend of zero leaves c = f at both ends; elimination forward, then back
    inner = 6.0 * f[1:-1]
    if n > 2:
        inner[0] -= f[0]
        inner[-1] -= f[-1]
    pivot = np.full(max(n - 2, 0), 4.0)
    for k in range(1, n - 2):
        pivot[k] = 4.0 - 1.0 / pivot[k - 1]
        inner[k] -= inner[k - 1] / pivot[k - 1]
    for k in range(n - 3, -1, -1):
        inner[k] = (inner[k] - (inner[k + 1] if k < n - 3 else 0.0)) / pivot[k]
    c[1], c[n], c[2:n] = f[0], f[-1], inner
    c[0] = 2.0 * c[1] - c[2]
    c[n + 1] = 2.0 * c[n] - c[n - 1]
    return np.moveaxis(c, 0, axis)


def height_lattice(values: object, lengths: np.ndarray) -> Lattice:
    """Return heights (nx, ny) over a rectangle centred in the origin."""
    try:
        h = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PullbackError(f"heights are {type(values).__name__}; expected numbers of shape (nx, ny)") from error
    if h.ndim != 2 or min(h.shape) < 2:
        raise PullbackError(f"heights have shape {h.shape}; expected (nx, ny), at least 2 of each")
    if not np.isfinite(h).all():
        bad = np.argwhere(~np.isfinite(h))[0].tolist()
        raise PullbackError(f"heights are not finite: entry {bad} is {h[tuple(bad)]}; fill holes before")
    coefficients = spline_coefficients(spline_coefficients(h, 0), 1)[..., None]
    spacing = np.append(lengths / (np.array(h.shape) - 1), 1.0)
    origin = np.append(-lengths / 2.0, 0.0)
    corners = (np.append(-lengths / 2.0, -np.inf), np.append(lengths / 2.0, h.max()))
    return Lattice(coefficients.astype(np.float32), origin, spacing, 0.0, corners)


def mesh_lattice(mesh: object, resolution: int) -> Lattice:
    """Return the signed distance from a watertight mesh, `resolution` cells along its longest side."""
    vertices, triangles = watertight_mesh(mesh)
    if resolution < 4:
        raise PullbackError(f"a grid of resolution {resolution}; give at least 4 cells along the longest side")
    low, high = vertices.min(0), vertices.max(0)
    cell = float((high - low).max()) / resolution
    cells = np.ceil((high - low) / cell).astype(int) + 2 * PADDING
    if np.prod(cells + 1.0) > MAX_SAMPLES:
        raise PullbackError(f"a grid of resolution {resolution} has {np.prod(cells + 1.0):.3g} samples; give less")
    origin = 0.5 * (low + high) - 0.5 * cell * cells
    axes = [origin[k] + cell * np.arange(cells[k] + 1) for k in range(3)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    distance = _mesh_distance(vertices, triangles, points.reshape(-1, 3)).reshape(points.shape[:3])
    coefficients = distance
    for axis in range(3):
        coefficients = spline_coefficients(coefficients, axis)
    return Lattice(coefficients.astype(np.float32), origin, np.full(3, cell), _slope(coefficients, cell), (low, high))


def watertight_mesh(mesh: object) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices (n, 3) and triangles (m, 3), looking outwards, of a mesh without holes."""
    try:
        import trimesh
    except ImportError as error:
        raise PullbackError("meshes are read by trimesh, which is missing; install it: pip install trimesh") from error
    name = "the mesh"
    if isinstance(mesh, tuple | list) and len(mesh) == 2:
        mesh = trimesh.Trimesh(np.asarray(mesh[0], dtype=np.float64), np.asarray(mesh[1]))
    elif not isinstance(mesh, trimesh.Trimesh):
        name = f"mesh {str(mesh)!r}"
        mesh = read_surface(str(mesh))
    assert isinstance(mesh, trimesh.Trimesh)
    # files without topology, such as STL, repeat each vertex
    mesh = mesh.copy()
    mesh.merge_vertices(merge_norm=True, merge_tex=True)
    if not len(mesh.faces):
        raise PullbackError(f"{name} has no triangles; give a closed surface")
    if not mesh.is_watertight:
        edges = mesh.edges_sorted
        _, counts = np.unique(edges, axis=0, return_counts=True)
        raise PullbackError(
            f"{name} is not watertight: {int((counts != 2).sum())} of its {len(counts)} edges do not belong to exactly "
            f"two triangles, so inside and outside are not defined; close it (trimesh.repair.fill_holes, a mesh "
            f"editor) or take its convex hull"
        )
    if not mesh.is_winding_consistent:
        mesh.fix_normals()
    if mesh.volume < 0.0:
        mesh.invert()
    return np.asarray(mesh.vertices, dtype=np.float64), np.asarray(mesh.faces, dtype=np.int32)


def _mesh_distance(vertices: np.ndarray, triangles: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the signed distance of points (n, 3) from a closed mesh."""
    from pullback.sdf.mesh_kernels import signed_distance

    # the query works in float32: bring the mesh to unit size about the origin
    middle = 0.5 * (vertices.min(0) + vertices.max(0))
    size = float(np.abs(vertices - middle).max())
    return size * signed_distance((vertices - middle) / size, triangles, (points - middle) / size)


def _slope(coefficients: np.ndarray, cell: float) -> float:
    """Return the longest gradient in the corners, middles of sides and centres of all cells, and a tenth more."""
    longest = 0.0
    for halves in np.ndindex(2, 2, 2):
        squares = 0.0
        for axis in range(3):
            part = coefficients
            for k in range(3):
                part = _weighted(part, (WEIGHTS, SLOPES)[k == axis][halves[k]], k)
            squares = squares + (part / cell) ** 2
        longest = max(longest, float(np.sqrt(np.max(squares))))
    return 1.1 * longest


def _weighted(coefficients: np.ndarray, weights: tuple[float, ...], axis: int) -> np.ndarray:
    """Return the sums over four neighbours along an axis."""
    c = np.moveaxis(coefficients, axis, 0)
    n = len(c) - 3
    total = sum(weight * c[k : k + n] for k, weight in enumerate(weights))
    return np.moveaxis(np.asarray(total), 0, axis)
