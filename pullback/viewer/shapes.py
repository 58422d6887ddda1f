"""Triangles to draw: of collision shapes, of fields, and of the sticks between a robot's joints."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.core.extras import need_extra
from pullback.description.compile import WORLD
from pullback.description.visuals import Color, Visual, read_visuals, visual_file
from pullback.rigid.collide.convex.hulls import Hull
from pullback.rigid.world.items import CollisionShape, Placed, rotation_matrix, shape_of_link
from pullback.rigid.world.shapes import SHAPE_KINDS
from pullback.rigid.world.values import Value
from pullback.robot.model import RobotModel
from pullback.sdf.field import Field
from pullback.sdf.mesh_file import read_parts
from pullback.sdf.program import Program

SHARP = 0.6
"""Angle [rad] between two faces from which on the edge between them is drawn sharp."""
CELLS = 40
"""Cells along the longest side of a field."""
MANY_FACES = 10_000
"""A mesh file with more is decimated to this, to keep replays small."""
FEWEST_FACES = 50
"""A part of a mesh file is not decimated below this."""


class Mesh(NamedTuple):
    """Triangles: vertices (n, 3) [m], faces (m, 3)."""

    vertices: np.ndarray
    faces: np.ndarray


class LinkMesh(NamedTuple):
    """What is drawn of a link in one colour, in the link's frame; of a static shape (`link` WORLD) in the world's.

    `color` is the one its file gives, None where it gives none.
    """

    item: Placed
    link: int
    mesh: Mesh
    color: Color | None = None


def link_meshes(items: Sequence[Placed], world: int) -> list[LinkMesh]:
    """Return the triangles of all links and static shapes that have some, by colours; planes are left out."""
    drawn = []
    for item in items:
        tree = item.robot.model.tree if item.robot else None
        file = visual_file(tree) if tree else None
        visuals = read_visuals(file, tree.expanded, tree.packages) if tree and file else {}
        for link in range(len(item.robot.model.links)) if item.robot else [WORLD]:
            parts = _visual_parts(item, link, visuals, world)
            if not parts:
                shapes = [shape_mesh(shape, world) for shape in _shapes_of(item, link)]
                parts = [(mesh, None) for mesh in shapes if mesh is not None]
            if item.robot is not None and not visuals:
                sticks = _sticks(item.robot, link, [mesh for mesh, _ in parts])
                parts += [(stick, parts[0][1] if parts else None) for stick in sticks]
            for color in dict.fromkeys(color for _, color in parts):
                drawn.append(LinkMesh(item, link, join([mesh for mesh, own in parts if own == color]), color))
    return drawn


def _visual_parts(
    item: Placed, link: int, visuals: dict[str, list[Visual]], world: int
) -> list[tuple[Mesh, Color | None]]:
    """Return what a link is drawn by according to its file; nothing if one of its meshes cannot be read."""
    parts: list[tuple[Mesh, Color | None]] = []
    if item.robot is None:
        return parts
    for visual, color in visuals.get(item.robot.model.links[link].name, []):
        shape = shape_of_link(item.name, visual, item.robot, link)
        own = [(mesh, color) for mesh in [_own_mesh(shape, of_world(shape.size, 1, world))] if mesh is not None]
        if isinstance(shape.source, Path):
            own = [(mesh, color or given) for mesh, given in _parts_of_file(shape.source, tuple(shape.scale))]
            if not own:
                return []
        R, p = shape.rotation, of_world(shape.position, 1, world)
        parts += [(Mesh(mesh.vertices @ R.T + p, mesh.faces), tint) for mesh, tint in own]
    return parts


def _shapes_of(item: Placed, link: int) -> list[CollisionShape]:
    """Return the shapes of a link: those that take part in contact, else those that the description has."""
    touching = [shape for shape in item.shapes if shape.link == link]
    if touching or item.robot is None:
        return touching
    described = item.robot.model.links[link].shapes
    return [shape_of_link(item.name, shape, item.robot, link) for shape in described]


def shape_mesh(shape: CollisionShape, world: int) -> Mesh | None:
    """Return the triangles of a shape as one of the worlds has it, on its link; None where there is nothing to draw."""
    mesh = _own_mesh(shape, of_world(shape.size, 1, world))
    if mesh is None:
        return None
    R = shape.rotation if shape.orientation is None else rotation_matrix(of_world(shape.orientation, 1, world))
    return Mesh(mesh.vertices @ R.T + of_world(shape.position, 1, world), mesh.faces)


def of_world(value: Value, dims: int, world: int) -> np.ndarray:
    """Return a value as one of the worlds has it; one of `dims` dimensions is for all."""
    numbers = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    return numbers[world if len(numbers) > 1 else 0] if numbers.ndim > dims else numbers


def _own_mesh(shape: CollisionShape, size: np.ndarray) -> Mesh | None:
    """Return the triangles of a shape in its own frame."""
    triangles = SHAPE_KINDS[shape.kind].triangles
    if triangles is not None:
        return _shaded(triangles(size))
    if shape.kind == "mesh":
        mesh = _mesh_of(shape.source, tuple(shape.scale))
        return mesh and Mesh(float(size[0]) * mesh.vertices, mesh.faces)
    return field_mesh(shape.source) if isinstance(shape.source, Program) else None


def _mesh_of(source: Path | Hull | Program | None, scale: tuple[float, ...]) -> Mesh | None:
    """Return the triangles of a hull or of a mesh file."""
    import trimesh

    if isinstance(source, Hull):
        fans = [(loop[0], loop[i], loop[i + 1]) for loop in source.loops for i in range(1, len(loop) - 1)]
        return _shaded(trimesh.Trimesh(source.vertices, np.array(fans), process=False))
    parts = _parts_of_file(source, scale) if isinstance(source, Path) and source.is_file() else ()
    return join([mesh for mesh, _ in parts]) if parts else None


@lru_cache(256)
def _parts_of_file(source: Path, scale: tuple[float, ...]) -> tuple[tuple[Mesh, Color | None], ...]:
    """Return the triangles of a mesh file by colours, decimated where they are many; nothing if it cannot be read."""
    try:
        parts = read_parts(source)
    except PullbackError:
        return ()
    faces = sum(len(part.faces) for part, _ in parts)
    found = []
    for part, color in parts:
        mesh: Any = decimated(part, len(part.faces) * MANY_FACES // faces) if faces > MANY_FACES else part
        mesh.apply_scale(np.broadcast_to(scale, 3))
        found.append((_shaded(mesh), color))
    return tuple(found)


def decimated(mesh: Any, faces: int) -> Any:
    """Return a mesh with about so many triangles, by collapsing the edges that change its surface least."""
    faces = max(faces, FEWEST_FACES)
    if len(mesh.faces) <= faces:
        return mesh
    need_extra("fast_simplification", "viz", "large meshes are decimated")
    # triangles that do not share their corners would shrink one by one
    mesh = mesh.copy()
    mesh.merge_vertices(merge_tex=True, merge_norm=True)
    fewer = mesh.simplify_quadric_decimation(face_count=faces)
    return fewer if len(fewer.faces) else mesh


def _shaded(mesh: Any) -> Mesh:
    """Return a mesh that has the vertices of sharp edges once for each side, so that they are not shaded round."""
    import trimesh

    smooth = trimesh.graph.smooth_shade(mesh, angle=SHARP)
    return Mesh(np.asarray(smooth.vertices), np.asarray(smooth.faces))


def join(meshes: Sequence[Mesh]) -> Mesh:
    """Return several meshes as one."""
    starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    faces = [mesh.faces + start for mesh, start in zip(meshes, starts)]
    return Mesh(np.concatenate([mesh.vertices for mesh in meshes]), np.concatenate(faces))


def _sticks(robot: RobotModel, link: int, meshes: Sequence[Mesh]) -> list[Mesh]:
    """Return sticks from a link's origin to the joints of the next links, as far as its shapes do not reach there."""
    import trimesh

    name = robot.model.links[link].name
    ends = [joint.origin.translation for joint in robot.model.tree.joints if joint.parent == name]
    points = np.concatenate([np.zeros((0, 3)), *(mesh.vertices for mesh in meshes)])
    low, high = points.min(0, initial=np.inf), points.max(0, initial=-np.inf)
    room = 0.1 * np.linalg.norm(high - low) if meshes else 0.0
    create: Any = trimesh.creation
    sticks: list[Mesh] = []
    for end in ends:
        both, length = np.stack([np.zeros(3), end]), float(np.linalg.norm(end))
        if length > 1e-6 and not ((both > low - room) & (both < high + room)).all():
            sticks.append(_shaded(create.cylinder(radius=0.03 * length, segment=both, sections=16)))
    return sticks


def field_mesh(program: Program) -> Mesh | None:
    """Return triangles of a field's surface: one vertex in each cell of a lattice that the surface passes.

    A square joins the four cells around each edge of the lattice with its ends on both sides; Newton's steps then
    bring the vertices onto the surface. Sizes are those of the first world. None for a shape without end.
    """
    low, high = (corner[0].numpy() for corner in program.bounds())
    if not np.isfinite(low).all() or not np.isfinite(high).all() or (low >= high).any():
        return None
    step = float((high - low).max()) / CELLS
    axes = [np.arange(a - 1.5 * step, b + 2.5 * step, step) for a, b in zip(low, high)]
    lattice = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    field = Field(program.shape)
    inside = field.values(lattice.reshape(-1, 3)).reshape(lattice.shape[:3]) < 0.0
    corners = [inside[_part(i, -1), _part(j, -1), _part(k, -1)] for i in (0, 1) for j in (0, 1) for k in (0, 1)]
    mixed = np.any(corners, 0) & ~np.all(corners, 0)
    if not mixed.any():
        return None
    number = np.cumsum(mixed.ravel()).reshape(mixed.shape) - 1
    centres = lattice[:-1, :-1, :-1][mixed] + 0.5 * step
    moved, missed = field.nearest(centres)
    astray = (missed > 0.1 * step) | (np.linalg.norm(moved - centres, axis=1) > 2.0 * step)
    vertices = np.where(astray[:, None], centres, moved)
    return _shaded_faces(vertices, np.concatenate([_squares(inside, number, axis) for axis in range(3)]))


def _part(offset: int, end: int) -> slice:
    return slice(offset, end + offset or None)


def _squares(inside: np.ndarray, number: np.ndarray, axis: int) -> np.ndarray:
    """Return the triangles (n, 3) around the lattice's edges along an axis that the surface crosses."""
    inside, number = np.moveaxis(inside, axis, 0), np.moveaxis(number, axis, 0)
    first, second = inside[:-1, 1:-1, 1:-1], inside[1:, 1:-1, 1:-1]
    around = [number[:, :-1, :-1], number[:, 1:, :-1], number[:, 1:, 1:], number[:, :-1, 1:]]
    leaving, entering = (np.stack([n[x] for n in around], -1) for x in (first & ~second, ~first & second))
    # moving an axis to the front turns the handedness round for the second one
    if axis == 1:
        leaving, entering = entering, leaving
    squares = np.concatenate([leaving, entering[:, ::-1]])
    return np.concatenate([squares[:, :3], squares[:, [0, 2, 3]]])


def _shaded_faces(vertices: np.ndarray, faces: np.ndarray) -> Mesh:
    import trimesh

    return _shaded(trimesh.Trimesh(vertices, faces, process=False))
