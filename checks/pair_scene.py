"""Two shapes in many poses: the engine's contacts between them and the adjoint of these, as a world would find them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp

import pullback as pb
from checks.pair_kernels import kernels
from pullback import sdf
from pullback.rigid.collide.convex.convex_kernels import CONVEX_ROWS
from pullback.rigid.compile.compile import make_scene
from pullback.rigid.compile.scene import CANDIDATE_ROWS, CONTACT_ROWS, MAX_CANDIDATES, SHAPE_ROWS
from pullback.sdf.fields import TAPE_ROWS

ROWS = int(CONTACT_ROWS)
CANDIDATES = int(CANDIDATE_ROWS) * int(MAX_CANDIDATES)
CORNERS = np.random.default_rng(3).normal(size=(24, 3))
CORNERS *= np.array([0.15, 0.1, 0.12]) / np.linalg.norm(CORNERS, axis=1, keepdims=True)
"""Of a mesh [m], all of them on its hull."""
HALF = np.array([0.1, 0.15, 0.08])
"""Half extents [m] of boxes, and of the field, which is a box by its distance."""
RADIUS, LENGTH = 0.08, 0.24
RADII = np.array([0.1, 0.06, 0.15])
"""Semi-axes [m] of ellipsoids."""
HILL = 0.05
"""The height [m] of hills."""
SHAPES = ("ellipsoid", "sphere", "capsule", "box", "cylinder", "mesh", "field", "heights", "plane")
SIZE_MOVES = {
    "ellipsoid": [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)],
    "sphere": [(0, 0, 0, 1)],
    "capsule": [(0, 0, 1, 0), (0, 0, 0, 1)],
    "box": [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)],
    "cylinder": [(1, 1, 0, 0), (0, 0, 1, 0)],
    "mesh": [(1, 1, 1, 0)],
}
"""How half extents and radius may change together."""


def hills(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the height of the ground."""
    return HILL * np.sin(4 * x) * np.cos(3 * y)


def add(world: pb.World, name: str, shape: str) -> None:
    """Add a shape to a world: a free body, or ground that stays."""
    free: dict[str, Any] = {"mass": 1.0}
    if shape == "sphere":
        world.add_sphere(name, radius=RADIUS, **free)
    elif shape == "ellipsoid":
        world.add_ellipsoid(name, radii=RADII.tolist(), **free)
    elif shape == "capsule":
        world.add_capsule(name, radius=RADIUS, length=LENGTH, **free)
    elif shape == "cylinder":
        world.add_cylinder(name, radius=RADIUS, length=LENGTH, **free)
    elif shape == "box":
        world.add_box(name, size=(2 * HALF).tolist(), **free)
    elif shape == "mesh":
        world.add_mesh(name, CORNERS, **free)
    elif shape == "field":
        world.add_field(name, sdf.box(HALF), inertia=np.eye(3), **free)
    elif shape == "heights":
        x, y = np.meshgrid(np.linspace(-1, 1, 81), np.linspace(-1, 1, 81), indexing="ij")
        world.add_field(name, sdf.heights(hills(x, y), (2.0, 2.0)), static=True)
    else:
        world.add_plane(name)


class Pair:
    """Two shapes, a on a free body, b on another or on the world; poses are (R_a, p_a, R_b, p_b), (n, ...) each."""

    def __init__(self, a: str, b: str) -> None:
        world = pb.World()
        self.names = a, b
        self.is_refined = a == "ellipsoid" and b in ("field", "heights")
        for name, shape in zip("ab", (a, b)):
            add(world, name, shape)
        self.sim = world.compile(dt=1e-3, dtype=torch.float64)
        self.scene = make_scene(self.sim.arrays, "cpu")
        self.room = self.sim.arrays.max_contacts
        rows = self.sim.parameters()
        self.shapes = torch.cat([rows.shapes, rows.fields], 1).numpy()
        self.is_free = b not in ("plane", "heights")

    def find(self, poses: list[np.ndarray], margin: float, shapes: np.ndarray | None = None):
        """Return how many contacts each pose has (n,), and the contacts (n, room, rows)."""
        n = len(poses[0])
        contacts = _array(np.full((n, self.room * ROWS), np.nan))
        counts = wp.zeros(n, dtype=wp.int32, device="cpu")
        scratch = [_array(np.zeros((n, rows))) for rows in (CANDIDATES, int(CONVEX_ROWS))]
        inputs = [self.scene, *self._inputs(poses, shapes), wp.float64(margin), contacts, *scratch, counts]
        wp.launch(kernels()[0], dim=n, inputs=inputs, device="cpu", block_dim=1)
        return counts.numpy(), contacts.numpy().T.reshape(n, self.room, ROWS)

    def pull_back(self, poses: list[np.ndarray], contacts: np.ndarray, adj: np.ndarray):
        """Return the wrenches on the bodies (n, 12) and the cotangents of the shapes, of one contact (n, rows) each."""
        n = len(poses[0])
        outs = [_array(np.zeros((n, rows))) for rows in (12, self.shapes.shape[1], TAPE_ROWS)]
        inputs = [self.scene, *self._inputs(poses, None), _array(contacts), _array(adj), *outs]
        wp.launch(kernels()[1], dim=n, inputs=inputs, device="cpu", block_dim=1)
        return outs[0].numpy().T, outs[1].numpy().T

    def size_changes(self) -> list[np.ndarray]:
        """Return directions in which the shapes' rows can change: sizes, and all parameters of fields."""
        changes = []
        for k, name in enumerate(self.names):
            for move in SIZE_MOVES.get(name, []):
                change = np.zeros(self.shapes.shape[1])
                change[int(SHAPE_ROWS) * k : int(SHAPE_ROWS) * k + 4] = move
                changes.append(change)
        # parameters of fields stand behind the shapes; their samples, made once, stay
        changes += list(np.eye(self.shapes.shape[1])[2 * int(SHAPE_ROWS) :])
        return changes

    def _inputs(self, poses: list[np.ndarray], shapes: np.ndarray | None) -> list[Any]:
        R_a, p_a, R_b, p_b = poses
        n = len(R_a)
        rows = [R_a.reshape(n, 9), p_a, *([R_b.reshape(n, 9), p_b] if self.is_free else [])]
        given = self.shapes if shapes is None else shapes
        return [_array(np.concatenate(rows, 1)), _array(np.broadcast_to(given, (n, given.shape[1])))]


def _array(x: np.ndarray) -> Any:
    """Return (n, rows) as an array indexed [row, world], a world's rows neighbours in memory."""
    return wp.array(np.ascontiguousarray(x), dtype=wp.float64, device="cpu").transpose()
