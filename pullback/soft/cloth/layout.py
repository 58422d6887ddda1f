"""All pieces of a scene as one mesh: elements by kind, and where their rows go in sums and in the matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pullback.soft.cloth.mesh import Part, elements_of
from pullback.soft.cloth.pieces import Rope, Sheet
from pullback.soft.cloth.strain_kernels import KINDS


@dataclass(frozen=True, eq=False)
class Sums:
    """Which rows each sum adds: starts (k + 1,), sources (m,), both int32."""

    starts: np.ndarray
    sources: np.ndarray


@dataclass(frozen=True, eq=False)
class Matrix:
    """The pattern of the matrix of free vertices, columns by columns (CSC), and how blocks fill it.

    place (k, 2): the first entry of each block, and entries of its column.
    """

    indices: np.ndarray
    indptr: np.ndarray
    blocks: Sums
    place: np.ndarray


class Layout:
    """Elements of all pieces: `parts[kind]`, vertices numbered through; `owned[kind]`: how many each piece has.

    Rows of a world begin with one for each vertex, then come elements kind by kind.
    """

    def __init__(self, pieces: Sequence[Sheet | Rope]) -> None:
        collected: dict[str, list[Part]] = {kind: [] for kind in KINDS}
        self.first_vertex = np.cumsum([0, *map(len, pieces)])
        self.vertices = int(self.first_vertex[-1])
        self.owned: dict[str, list[int]] = {kind: [0] * len(pieces) for kind in KINDS}
        self.shares: list[tuple[np.ndarray, np.ndarray]] = []
        for number, piece in enumerate(pieces):
            first = self.first_vertex[number]
            found, sizes = elements_of(piece)
            self.shares.append((next(iter(found.values())).ends, sizes))
            for kind, part in found.items():
                collected[kind].append(part._replace(ends=part.ends + first))
                self.owned[kind][number] = len(part.ends)
        self.parts = {kind: _joined(kind, parts) for kind, parts in collected.items()}
        pins = [self.first_vertex[k] + np.asarray(piece.pins) for k, piece in enumerate(pieces)]
        self.pins = np.concatenate(pins).astype(np.int64)
        self.free = np.setdiff1d(np.arange(self.vertices), self.pins)
        self.counts = {kind: len(part.ends) for kind, part in self.parts.items()}
        self.first_vector, self.vectors = self._rows(1)
        self.first_block, self.blocks = self._rows(2)
        self.first_energy, self.energies = self._rows(0)
        owners = [np.arange(self.vertices), *[self.parts[kind].ends.ravel() for kind in KINDS]]
        self.gather = _sums(np.concatenate(owners), self.vertices)
        self.matrix = self._matrix()
        edges = [np.linalg.norm(np.diff(piece.points[part[0][:, :2]], axis=1), axis=-1).ravel()
                 for piece, part in zip(pieces, self.shares)]  # fmt: skip
        self.edge = float(np.concatenate(edges).mean())

    def _rows(self, power: int) -> tuple[dict[str, int], int]:
        """Return where rows of each kind begin, v^power for an element of v vertices, and how many there are."""
        first, at = {}, self.vertices
        for kind in KINDS:
            first[kind] = at
            at += self.counts[kind] * KINDS[kind].vertices ** power
        return first, at

    def _matrix(self) -> Matrix:
        numbers = np.full(self.vertices, -1)
        numbers[self.free] = np.arange(len(self.free))
        rows, columns = [np.arange(self.vertices)], [np.arange(self.vertices)]
        for kind in KINDS:
            ends, v = self.parts[kind].ends, KINDS[kind].vertices
            rows.append(np.repeat(ends, v, axis=1).ravel())
            columns.append(np.tile(ends, (1, v)).ravel())
        i, j = numbers[np.concatenate(rows)], numbers[np.concatenate(columns)]
        used = np.flatnonzero((i >= 0) & (j >= 0))
        n = len(self.free)
        keys, which = np.unique(j[used] * n + i[used], return_inverse=True)
        row, column = keys % n if n else keys, keys // n if n else keys
        height = np.bincount(column, minlength=n)
        starts = np.concatenate([[0], np.cumsum(height)])
        within = np.arange(len(keys)) - starts[column]
        place = np.stack([9 * starts[column] + 3 * within, 3 * height[column]], 1)
        indptr = np.concatenate([[0], np.cumsum(np.repeat(3 * height, 3))])
        indices = np.empty(9 * len(keys), np.int32)
        for b in range(3):
            for a in range(3):
                indices[place[:, 0] + b * place[:, 1] + a] = 3 * row + a
        sums = _sums(which, len(keys))
        blocks = Sums(sums.starts, used[sums.sources].astype(np.int32))
        return Matrix(indices, indptr.astype(np.int32), blocks, place.astype(np.int32))


def _joined(kind: str, parts: Sequence[Part]) -> Part:
    ends = [np.zeros((0, KINDS[kind].vertices), np.int64), *[part.ends for part in parts]]
    rest = [np.zeros((0, KINDS[kind].rest)), *[part.rest for part in parts]]
    return Part(np.concatenate(ends), np.concatenate(rest), np.concatenate([np.zeros(0), *[p.strain for p in parts]]))


def _sums(owner: np.ndarray, count: int) -> Sums:
    """Return which rows belong to each of `count` owners."""
    order = np.argsort(owner, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])
    return Sums(starts.astype(np.int32), order.astype(np.int32))
