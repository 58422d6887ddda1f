"""The rows of collision shapes and of the pairs of them: sizes, places, friction and restitution, in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from pullback.rigid.world.items import CollisionShape
from pullback.rigid.world.shapes import SHAPE_KINDS
from pullback.rigid.world.values import Tensor, Value, are_same, as_constant, batched
from pullback.robot.parameters import common_batch
from pullback.sdf.program import Program
from pullback.spatial.rotations_torch import rotate

FRICTION = 1.0
RESTITUTION = 0.0
"""Of two shapes neither of which says."""


class Column:
    """One value of every shape as rows (b, nshape, *size): of constants made once, of tensors whenever it is called."""

    def __init__(
        self,
        shapes: Sequence[CollisionShape],
        values: list[Any],
        blank: Tensor,
        rows_of: Callable[[CollisionShape, Any], Tensor],
    ) -> None:
        self.values = values
        self.rows_of = rows_of
        self.changing = [(shape, x) for shape, x in zip(shapes, values) if isinstance(x, Tensor)]

        def make_constants() -> Tensor:
            return torch.stack([blank if isinstance(x, Tensor) else rows_of(s, x) for s, x in zip(shapes, values)], 1)

        self.constants = as_constant(make_constants)
        places = [k for k, value in enumerate(values) if isinstance(value, Tensor)]
        self.index = torch.tensor(places, device=self.constants.device)

    def __call__(self) -> Tensor:
        """Return the rows of the present values."""
        if not self.changing:
            return self.constants
        rows = [self.rows_of(shape, value) for shape, value in self.changing]
        batch, size = common_batch(*rows), self.constants.shape[2:]
        stacked = torch.stack([row.expand(batch, *size) for row in rows], 1)
        return self.constants.expand(batch, *self.constants.shape[1:]).index_copy(1, self.index, stacked)


class ShapeRows:
    """The rows of some shapes and of the pairs `first`, `second` (npair,) of them."""

    def __init__(self, shapes: Sequence[CollisionShape], first: np.ndarray, second: np.ndarray, like: Tensor) -> None:
        self.shapes = list(shapes)
        self.first, self.second = first, second
        self.like = like
        self._columns: dict[str, Column] = {}
        self._partners: dict[str, tuple[Tensor, Tensor]] = {}
        self._constant_surfaces: dict[str, Tensor] = {}

    def renew(self) -> None:
        """Look again at which values the shapes have; to be called when one was replaced."""
        turns = [shape.rotation if shape.orientation is None else shape.orientation for shape in self.shapes]
        self._renew("size", [shape.size for shape in self.shapes], (4,), self._extents)
        places = [shape.position for shape in self.shapes]
        self._renew("position", places, (3,), lambda _, x: batched(x, (3,), self.like))
        self._renew("orientation", turns, (3, 3), self._rotation)
        for name, default in (("friction", FRICTION), ("restitution", RESTITUTION)):
            self._renew_surface(name, np.asarray(default))

    def geometry(self, R_BL: Tensor, p_BL: Tensor) -> Tensor:
        """Return half extents, radius, R_BS = R_BL R_LS and p_BS of each shape, (b, 16 n).

        R_BL (b, n, 3, 3), p_BL (b, n, 3): the place on its body of the link that a shape belongs to.
        """
        if not self.shapes:
            return self.like.new_zeros(1, 0)
        extents, p_LS, R_LS = (self._columns[name]() for name in ("size", "position", "orientation"))
        R_BS = R_BL @ R_LS
        p_BS = p_BL + (R_BL @ p_LS[..., None])[..., 0]
        columns = [extents, R_BS.flatten(2), p_BS]
        batch = common_batch(*columns)
        return torch.cat([column.expand(batch, -1, -1) for column in columns], -1).flatten(1)

    def fields(self) -> Tensor:
        """Return the parameters of all fields, (b, n)."""
        rows = [shape.source.parameters(self.like) for shape in self.shapes if isinstance(shape.source, Program)]
        if not rows:
            return self.like.new_zeros(1, 0)
        batch = common_batch(*rows)
        return torch.cat([row.expand(batch, -1) for row in rows], 1)

    def surfaces(self) -> Tensor:
        """Return friction and restitution of each pair, (b, 2 npair)."""
        if not len(self.first):
            return self.like.new_zeros(1, 0)
        slides = [shape.frictionless for shape in self.shapes]
        rough = self.like.new_tensor([float(not (slides[a] and slides[b])) for a, b in zip(self.first, self.second)])
        columns = [rough * self._combined("friction"), self._combined("restitution")]
        batch = common_batch(*columns)
        return torch.stack([column.expand(batch, -1) for column in columns], -1).flatten(1)

    def _combined(self, name: str) -> Tensor:
        if name in self._constant_surfaces:
            return self._constant_surfaces[name]
        a, b = self._partners[name]
        table = self._columns[name]()
        return combine(table[:, a], table[:, b])

    def _renew(
        self,
        name: str,
        values: list[Any],
        size: tuple[int, ...],
        rows_of: Callable[[CollisionShape, Any], Tensor],
    ) -> bool:
        """Make a column anew if a value was replaced, and tell whether one was."""
        known = self._columns.get(name)
        if not self.shapes or (known is not None and are_same(known.values, values)):
            return False
        self._columns[name] = Column(self.shapes, values, self.like.new_zeros(1, *size), rows_of)
        return True

    def _renew_surface(self, name: str, default: np.ndarray) -> None:
        """Find whose value each shape of a pair has: its own, or the other's where it has none."""
        values = [getattr(shape, name) for shape in self.shapes]
        renewed = self._renew(name, values, (), lambda _, x: batched(default if x is None else x, (), self.like))
        if not renewed or not len(self.first):
            return
        given = np.array([value is not None for value in values])
        a = np.where(given[self.first], self.first, self.second)
        b = np.where(given[self.second], self.second, self.first)
        device = self.like.device
        self._partners[name] = torch.as_tensor(a, device=device).long(), torch.as_tensor(b, device=device).long()
        self._constant_surfaces.pop(name, None)
        if not self._columns[name].changing:
            self._constant_surfaces[name] = as_constant(lambda: self._combined(name))

    def _extents(self, shape: CollisionShape, size: Value) -> Tensor:
        if isinstance(shape.source, Program):
            # a field has no core; its radius is how far it reaches
            reach = shape.source.reach(self.like).detach()
            return torch.nn.functional.pad(reach[:, None], (3, 0))
        matrix = self.like.new_tensor(SHAPE_KINDS[shape.kind].extents).reshape(-1, 4)
        return batched(size, (len(matrix),), self.like) @ matrix if len(matrix) else self.like.new_zeros(1, 4)

    def _rotation(self, shape: CollisionShape, turn: Value) -> Tensor:
        """Return rotation matrices (b, 3, 3) of one that is given as a matrix or as quaternions."""
        if turn is shape.rotation:
            return batched(turn, (3, 3), self.like)
        quat = batched(turn, (4,), self.like)
        quat = quat / torch.linalg.vector_norm(quat, dim=-1, keepdim=True)
        axes = torch.eye(3).to(self.like).expand(len(quat), 3, 3)
        return rotate(quat[:, None].expand(-1, 3, 4), axes).mT


def combine(a: Tensor, b: Tensor) -> Tensor:
    """Return the friction or restitution of two surfaces: the harmonic mean, zero where one is zero."""
    total = a + b
    is_positive = total > 0.0
    return torch.where(is_positive, 2.0 * a * b / torch.where(is_positive, total, 1.0), 0.5 * total)
