"""Hulls of cylinders and meshes, fields and samples of shapes: what a scene holds of their geometry."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import warp as wp

from pullback.core.errors import PullbackError
from pullback.rigid.collide.convex.hulls import (
    Hull,
    box_hull,
    cylinder_hull,
    hull_of_file,
    plane_hull,
    point_hull,
    segment_hull,
)
from pullback.rigid.collide.convex.tables import hull_tables
from pullback.rigid.compile.scene import SHAPE_ROWS
from pullback.rigid.world.items import CollisionShape
from pullback.sdf import sphere
from pullback.sdf.field import Field
from pullback.sdf.operators import make_fields
from pullback.sdf.program import Program, compile_shape
from pullback.sdf.samples import (
    Samples,
    box_samples,
    capsule_samples,
    field_samples,
    mesh_samples,
    sphere_samples,
)
from pullback.sdf.shapes import plane

PRIMITIVES = ("sphere", "capsule", "box", "plane")
HULLS = ("cylinder", "mesh")

_hull_of_file = lru_cache(64)(hull_of_file)


def hull_of_shape(shape: CollisionShape) -> Hull:
    """Return the hull of a mesh, read from its file once."""
    if isinstance(shape.source, Hull):
        return shape.source
    assert isinstance(shape.source, Path)
    return _hull_of_file(shape.source, scale=tuple(np.broadcast_to(shape.scale, 3).tolist()))


class Geometry:
    """The hulls, fields and samples that the pairs of some shapes need; none where all are primitives."""

    def __init__(self, shapes: Sequence[CollisionShape], pairs: Sequence[tuple[int, int]]) -> None:
        self.shapes = list(shapes)
        kinds = [shape.kind for shape in shapes]
        touching = {k for pair in pairs for k in pair}
        self.has_hulls = any(kinds[k] in HULLS for k in touching)
        self.fields = [k for k, kind in enumerate(kinds) if kind == "field"]
        self.programs = {k: x for k in self.fields if isinstance(x := shapes[k].source, Program)}
        self.is_sampled = [int("field" in (kinds[a], kinds[b])) for a, b in pairs]
        self.sampled = {a for (a, _), is_sampled in zip(pairs, self.is_sampled) if is_sampled}
        self.hulls = {k: hull_of_shape(shapes[k]) for k in touching if kinds[k] == "mesh"}
        offsets = np.cumsum([0, *(program.rows for program in self.programs.values())])
        self.rows = int(offsets[-1])
        first = int(SHAPE_ROWS) * len(shapes)
        self._row = {k: first + int(offset) for k, offset in zip(self.fields, offsets)}

    @property
    def is_plain(self) -> bool:
        """Whether there are primitives only."""
        return not self.has_hulls and not self.fields

    def write(self, scene: Any, device: str) -> None:
        """Write the tables of hulls and fields to a scene."""

        def integers(values: Sequence[int]) -> Any:
            return wp.array(np.asarray(values, np.int32), dtype=wp.int32, device=device)

        scene.pair_sampled = integers(self.is_sampled)
        if self.has_hulls:
            self._write_hulls(scene, device)
        if self.fields:
            self._write_fields(scene, device, integers)

    def _write_hulls(self, scene: Any, device: str) -> None:
        hulls = [point_hull(), segment_hull(), box_hull(), plane_hull(), cylinder_hull()]
        known: dict[str, int] = dict(zip((*PRIMITIVES, "cylinder"), range(len(hulls))))
        numbers = []
        for k, shape in enumerate(self.shapes):
            number = known.get(shape.kind, 0)
            if k in self.hulls:
                hull = self.hulls[k]
                if not any(hull is other for other in hulls):
                    hulls.append(hull)
                number = next(i for i, other in enumerate(hulls) if other is hull)
            numbers.append(number)
        scene.hulls = hull_tables(hulls, numbers, device)

    def _write_fields(self, scene: Any, device: str, integers: Any) -> None:
        # primitives are fields too: their own rows are the parameters of a box of points with a radius around it
        programs: list[Program] = [compile_shape(sphere(1.0)), compile_shape(plane())]
        sets: list[Samples] = [sphere_samples(), capsule_samples(), box_samples()]
        field, row, samples = [], [], []
        for k, shape in enumerate(self.shapes):
            field.append(int(shape.kind == "plane"))
            row.append(self._row.get(k, int(SHAPE_ROWS) * k))
            samples.append(PRIMITIVES.index(shape.kind) if shape.kind in PRIMITIVES[:3] else 0)
            if shape.kind == "field":
                field[-1] = len(programs)
                programs.append(self.programs[k])
            if k in self.sampled and shape.kind in ("field", *HULLS):
                samples[-1] = len(sets)
                sets.append(self._samples(k, shape))
        scene.fields = make_fields(programs, sets, device)
        scene.shape_field, scene.shape_row, scene.shape_samples = integers(field), integers(row), integers(samples)

    def _samples(self, k: int, shape: CollisionShape) -> Samples:
        if shape.kind == "field":
            try:
                return field_samples(Field(self.programs[k].shape))
            except PullbackError as error:
                raise PullbackError(f"{shape.name!r}: {error}") from error
        hull = cylinder_hull() if shape.kind == "cylinder" else self.hulls.get(k, box_hull())
        fans = [(loop[0], loop[i], loop[i + 1]) for loop in hull.loops for i in range(1, len(loop) - 1)]
        return mesh_samples(hull.vertices, np.array(fans), edges=hull.edges)
