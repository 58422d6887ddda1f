"""Concave meshes as several convex ones, by the package CoACD."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pullback.core.errors import PullbackError
from pullback.description.tree import Shape, Tree
from pullback.sdf.mesh_file import read_surface

CONVEX = 0.98
"""A mesh that fills so much of its hull is left whole."""


def decompose_mesh(
    mesh: str | Path | tuple[Any, Any], *, threshold: float = 0.05, max_parts: int | None = None
) -> list[np.ndarray]:
    """Return the vertices (n, 3) of convex parts that fill a mesh: a file, or vertices (n, 3) and triangles (m, 3).

    `threshold` is how far, relative to the size of the mesh, the parts may stand out of it: 0.01 is fine, 1 coarse.
    A mesh that is nearly convex is its own only part. It takes seconds to minutes and needs the extra `coacd`.
    """
    if not 0.01 <= threshold <= 1.0:
        raise PullbackError(f"threshold is {threshold}; give a number from 0.01 (fine) to 1 (coarse)")
    if isinstance(mesh, str | Path):
        return [part.copy() for part in _parts_of_file(Path(mesh), Path(mesh).stat().st_mtime, threshold, max_parts)]
    vertices, triangles = mesh
    return _parts(np.asarray(vertices, float), np.asarray(triangles), "the mesh", threshold, max_parts)


def decompose_tree(tree: Tree) -> None:
    """Replace the meshes of all links that are not convex by their parts; those without a file stay."""
    for link in tree.links:
        shapes = []
        for shape in link.shapes:
            if shape.type != "mesh" or shape.mesh is None or not shape.mesh.is_file():
                shapes.append(shape)
                continue
            parts = decompose_mesh(shape.mesh)
            shapes += [_part(shape, part) for part in parts] if len(parts) > 1 else [shape]
        link.shapes = shapes


def _part(shape: Shape, vertices: np.ndarray) -> Shape:
    return Shape(
        "mesh",
        shape.size,
        shape.origin,
        shape.mesh,
        shape.friction,
        shape.contype,
        shape.conaffinity,
        shape.frictionless,
        vertices,
    )


@lru_cache(256)
def _parts_of_file(path: Path, changed: float, threshold: float, max_parts: int | None) -> list[np.ndarray]:
    surface = read_surface(path)
    return _parts(np.asarray(surface.vertices), np.asarray(surface.faces), path.name, threshold, max_parts)


def _parts(
    vertices: np.ndarray, triangles: np.ndarray, name: str, threshold: float, max_parts: int | None
) -> list[np.ndarray]:
    import trimesh

    surface = trimesh.Trimesh(vertices, triangles)
    if surface.is_watertight and surface.volume > CONVEX * surface.convex_hull.volume:
        return [vertices]
    try:
        import coacd
    except ImportError as error:
        raise PullbackError(
            f'{name}: concave="decompose" needs the package coacd; install it with pip install "pullback[coacd]"'
        ) from error
    coacd.set_log_level("error")
    most = -1 if max_parts is None else int(max_parts)
    parts = coacd.run_coacd(coacd.Mesh(surface.vertices, surface.faces), threshold=threshold, max_convex_hull=most)
    if not parts:
        raise PullbackError(f"{name}: CoACD found no parts; is it a closed surface?")
    return [np.asarray(part, dtype=np.float64) for part, _ in parts]
