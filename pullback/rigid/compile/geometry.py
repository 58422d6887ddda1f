"""Hulls, fields and samples of shapes: what a scene holds of their geometry."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import warp as wp

from pullback.core.errors import PullbackError
from pullback.rigid.collide.convex.hulls import Hull, hull_of_file, point_hull
from pullback.rigid.collide.convex.tables import hull_tables
from pullback.rigid.compile.scene import BY_HULLS, BY_SUPPORT, SHAPE_ROWS
from pullback.rigid.world.items import CollisionShape
from pullback.rigid.world.shapes import SHAPE_KINDS, hull_samples
from pullback.sdf import sphere
from pullback.sdf.field import Field
from pullback.sdf.operators import make_fields
from pullback.sdf.program import Program, compile_shape
from pullback.sdf.samples import Samples, field_samples
from pullback.sdf.shapes import plane

_hull_of_file = lru_cache(64)(hull_of_file)


def hull_of_shape(shape: CollisionShape) -> Hull:
    """Return the hull of a mesh, read from its file once."""
    if isinstance(shape.source, Hull):
        return shape.source
    assert isinstance(shape.source, Path)
    return _hull_of_file(shape.source, scale=tuple(np.broadcast_to(shape.scale, 3).tolist()))


class Geometry:
    """The hulls, fields and samples that the pairs of some shapes need; none where features are enough."""

    def __init__(self, shapes: Sequence[CollisionShape], pairs: Sequence[tuple[int, int]]) -> None:
        self.shapes = list(shapes)
        kinds = [shape.kind for shape in shapes]
        families = [int(SHAPE_KINDS[kind].family) for kind in kinds]
        touching = {k for pair in pairs for k in pair}
        self.has_smooth = any(families[k] == BY_SUPPORT for k in touching)
        self.has_hulls = self.has_smooth or any(families[k] == BY_HULLS for k in touching)
        self.fields = [k for k, kind in enumerate(kinds) if kind == "field"]
        self.programs = {k: x for k in self.fields if isinstance(x := shapes[k].source, Program)}
        self.pair_family = [max(families[a], families[b]) for a, b in pairs]
        self.sampled = {a for a, b in pairs if "field" in (kinds[a], kinds[b])}
        self.hulls = {k: hull_of_shape(shapes[k]) for k in touching if kinds[k] == "mesh"}
        offsets = np.cumsum([0, *(program.rows for program in self.programs.values())])
        self.rows = int(offsets[-1])
        first = int(SHAPE_ROWS) * len(shapes)
        self._row = {k: first + int(offset) for k, offset in zip(self.fields, offsets)}

    @property
    def is_plain(self) -> bool:
        """Whether all contacts are found by features."""
        return not self.has_hulls and not self.fields

    def write(self, scene: Any, device: str) -> None:
        """Write the tables of hulls and fields to a scene."""

        def integers(values: Sequence[int]) -> Any:
            return wp.array(np.asarray(values, np.int32), dtype=wp.int32, device=device)

        scene.pair_family = integers(self.pair_family)
        if self.has_hulls:
            self._write_hulls(scene, device)
        if self.fields:
            self._write_fields(scene, device, integers)

    def _write_hulls(self, scene: Any, device: str) -> None:
        hulls: list[Hull] = []
        number: dict[Any, int] = {}
        of_shape = []
        for k, shape in enumerate(self.shapes):
            # shapes of a kind have one hull, meshes their own; what has none is never asked for it
            make = SHAPE_KINDS[shape.kind].hull
            key = shape.kind if make is not None else id(self.hulls.get(k))
            if key not in number:
                number[key] = len(hulls)
                hulls.append(self.hulls.get(k, point_hull()) if make is None else make())
            of_shape.append(number[key])
        scene.hulls = hull_tables(hulls, of_shape, device)

    def _write_fields(self, scene: Any, device: str, integers: Any) -> None:
        # every core is a field too: its own rows are the parameters of a box of points with a radius around it
        programs: list[Program] = [compile_shape(sphere(1.0)), compile_shape(plane())]
        sets: list[Samples] = []
        number: dict[Any, int] = {}
        field, row, of_shape = [], [], []
        for k, shape in enumerate(self.shapes):
            field.append(int(shape.kind == "plane"))
            row.append(self._row.get(k, int(SHAPE_ROWS) * k))
            if shape.kind == "field":
                field[-1] = len(programs)
                programs.append(self.programs[k])
            key = k if shape.kind in ("field", "mesh") else shape.kind
            if k in self.sampled and key not in number:
                number[key] = len(sets)
                sets.append(self._samples(k, shape))
            of_shape.append(number.get(key, 0))
        scene.fields = make_fields(programs, sets, device)
        scene.shape_field, scene.shape_row, scene.shape_samples = integers(field), integers(row), integers(of_shape)

    def _samples(self, k: int, shape: CollisionShape) -> Samples:
        kind = SHAPE_KINDS[shape.kind]
        if kind.samples is not None:
            return kind.samples()
        if shape.kind != "field":
            return hull_samples(self.hulls[k] if kind.hull is None else kind.hull())
        try:
            return field_samples(Field(self.programs[k].shape))
        except PullbackError as error:
            raise PullbackError(f"{shape.name!r}: {error}") from error
