"""Sheets and ropes as a user gives them, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.core.errors import PullbackError
from pullback.soft.cloth.materials import Cord, Fabric

SMALLEST = 1e-6
"""A triangle is degenerate if its height is less than this share of its longest edge."""

PLATE = 9.0 / 8.0
"""Plate stiffness over that of a strip, 1/(1 - ν²): hinges have Poisson's ratio ν = -1/3; docs/derivations/cloth.md."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """A sheet of triangles.

    points (n, 3) [m]; triangles (m, 3), whose neighbours go round the same way; rest: where its points are unstrained,
    (n, 2) flat or (n, 3), None: `points`; warp: direction of the threads at rest; velocity (3,) or (n, 3) [m/s]; pins:
    vertices that are held, or led by a rollout; hinge_weights (h,): stiffness of inner edges, in the order of
    `inner_edges`, over the material's `bending`, None: those of eq. (27) of docs/derivations/cloth.md.
    """

    name: str
    points: np.ndarray
    triangles: np.ndarray
    material: Fabric
    rest: np.ndarray | None = None
    warp: Sequence[float] = (1.0, 0.0, 0.0)
    velocity: Sequence[float] | np.ndarray | None = None
    pins: Sequence[int] = ()
    hinge_weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        _check_points(self, "sheet")
        triangles = np.asarray(self.triangles)
        if triangles.ndim != 2 or triangles.shape[1] != 3 or not len(triangles) or triangles.dtype.kind not in "iu":
            raise PullbackError(f"sheet {self.name!r}: triangles are {triangles.shape}; expected integers (m, 3)")
        triangles = triangles.astype(np.int64)
        n = len(self.points)
        _refuse(self, (triangles < 0) | (triangles >= n), f"has a vertex that is not among the {n} points")
        same = triangles == np.roll(triangles, 1, axis=1)
        _refuse(self, same, "names a vertex twice")
        _, first, whose = np.unique(np.sort(triangles, axis=1), axis=0, return_index=True, return_inverse=True)
        twin = first[whose.reshape(-1)] != np.arange(len(triangles))
        _refuse(self, twin[:, None], "is there twice: another triangle has the same vertices; leave one out")
        unused = np.setdiff1d(np.arange(n), triangles)
        if len(unused):
            raise PullbackError(f"sheet {self.name!r}: vertex {unused[0]} is in no triangle; leave it out")
        object.__setattr__(self, "triangles", triangles)
        for name in ("rest", "points"):
            corners = np.asarray(getattr(self, name))[triangles]
            e, f = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
            area = np.linalg.norm(np.cross(_in_space(e), _in_space(f)), axis=1)
            longest = np.maximum((e**2).sum(1), np.maximum((f**2).sum(1), ((f - e) ** 2).sum(1)))
            what = "at rest" if name == "rest" else "at the start"
            _refuse(self, ~(area > SMALLEST * longest)[:, None], f"is degenerate {what}: it has no area")
        if np.asarray(self.rest).shape[1] == 2:
            _refuse(self, (_turns(self) < 0.0)[:, None], "is inverted in the plane of `rest`; swap two vertices")
        if self.hinge_weights is not None:
            weights, count = np.asarray(self.hinge_weights, dtype=np.float64), len(inner_edges(triangles))
            if weights.shape != (count,) or not (weights >= 0.0).all():
                raise PullbackError(
                    f"sheet {self.name!r}: hinge_weights have shape {weights.shape}; expected ({count},), one for each "
                    f"inner edge, of 0 or more"
                )
            object.__setattr__(self, "hinge_weights", weights)

    def __len__(self) -> int:
        return len(self.points)


@dataclass(frozen=True, eq=False)
class Rope:
    """A chain of segments from point to point, (n, 3) [m]; rest: where it is unstrained, None: `points`.

    It is straight where it is unbent; velocity and pins are those of `Sheet`.
    """

    name: str
    points: np.ndarray
    material: Cord
    rest: np.ndarray | None = None
    velocity: Sequence[float] | np.ndarray | None = None
    pins: Sequence[int] = ()

    def __post_init__(self) -> None:
        _check_points(self, "rope")
        if len(self.points) < 2:
            raise PullbackError(f"rope {self.name!r} has {len(self.points)} point; expected two or more")
        lengths = np.linalg.norm(np.diff(np.asarray(self.rest), axis=0), axis=1)
        if not (lengths > SMALLEST * lengths.max()).all():
            bad = int(lengths.argmin())
            raise PullbackError(f"rope {self.name!r}: segment {bad} has no length; leave out one of its points")

    def __len__(self) -> int:
        return len(self.points)


def sheet(
    corner: Sequence[float],
    along: Sequence[float],
    across: Sequence[float],
    *,
    cells: tuple[int, int],
    **options: Any,
) -> Sheet:
    """Return a rectangle from a corner [m] along two edges, of cells (a, b) of two triangles each.

    Vertex i (b + 1) + j is i cells along and j across; diagonals alternate. The warp is `along`.
    Its hinges bend as a plate that is the same in all directions: eq. (30) of docs/derivations/cloth.md.
    options: name, material, velocity, pins.
    """
    a, b = cells
    if min(a, b) < 1:
        raise PullbackError(f"cells of a sheet are {cells}; expected one or more each way")
    first, u, v = (np.asarray(x, dtype=np.float64) for x in (corner, along, across))
    i, j = np.meshgrid(np.arange(a + 1), np.arange(b + 1), indexing="ij")
    points = first + (i.ravel() / a)[:, None] * u + (j.ravel() / b)[:, None] * v
    number = np.arange((a + 1) * (b + 1)).reshape(a + 1, b + 1)
    p, q, r, s = (x.ravel() for x in (number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]))
    even = ((i + j)[:-1, :-1].ravel() % 2 == 0)[:, None]
    one = np.where(even, np.stack([p, q, r], 1), np.stack([p, q, s], 1))
    two = np.where(even, np.stack([p, r, s], 1), np.stack([q, r, s], 1))
    triangles = np.stack([one, two], 1).reshape(-1, 3)
    if abs(u @ v) < 1e-9 * np.linalg.norm(u) * np.linalg.norm(v):
        ratio = float(np.linalg.norm(u) / a / (np.linalg.norm(v) / b))
        edges = inner_edges(triangles)
        (i, j), (k, l) = (np.divmod(edges[:, end], b + 1) for end in (0, 1))
        options = {"hinge_weights": np.choose((i == k) + 2 * (j == l), lattice_weights(ratio)), **options}
    return Sheet(**{"name": "sheet", "points": points, "triangles": triangles, "warp": u, **options})


def inner_edges(triangles: np.ndarray) -> np.ndarray:
    """Return the edges (h, 2) that two triangles share, lower vertex first, sorted."""
    edges = np.sort(np.stack([triangles, np.roll(triangles, -1, axis=1)], -1).reshape(-1, 2), axis=1)
    found, count = np.unique(edges, axis=0, return_counts=True)
    return found[count == 2]


def lattice_weights(ratio: float) -> tuple[float, float, float]:
    """Return the weights of diagonals, edges across and edges along, for cells `ratio` times as long as wide.

    Eq. (30), (31) of docs/derivations/cloth.md.
    """
    square = ratio**2
    w = min(1.0 / 3.0, 0.5 * square, 0.5 / square)
    bent = w * (1.0 - square * w) / (square - w)
    diagonal = (1.0 - w**2) / w / (ratio + 1.0 / ratio)
    return PLATE * diagonal, PLATE * (1.0 + bent) / ratio, PLATE * (1.0 + w**2 / bent) * ratio


def rope(start: Sequence[float], end: Sequence[float], *, segments: int, **options: Any) -> Rope:
    """Return a straight rope from start to end [m]; options: name, material, velocity, pins."""
    if segments < 1:
        raise PullbackError(f"segments of a rope are {segments}; expected one or more")
    t = np.linspace(0.0, 1.0, segments + 1)[:, None]
    points = (1.0 - t) * np.asarray(start, dtype=np.float64) + t * np.asarray(end, dtype=np.float64)
    return Rope(**{"name": "rope", "points": points, **options})


def velocities(piece: Sheet | Rope) -> np.ndarray:
    """Return the velocities of a piece at the start (n, 3)."""
    given = np.zeros(3) if piece.velocity is None else np.asarray(piece.velocity, dtype=np.float64)
    if given.shape not in ((3,), piece.points.shape):
        raise PullbackError(f"{piece.name!r}: velocity has shape {given.shape}; expected (3,) or {piece.points.shape}")
    return np.broadcast_to(given, piece.points.shape)


def _check_points(piece: Sheet | Rope, kind: str) -> None:
    points = np.asarray(piece.points, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 3 or not len(points):
        raise PullbackError(f"{kind} {piece.name!r}: points have shape {points.shape}; expected (n, 3)")
    rest = points if piece.rest is None else np.asarray(piece.rest, dtype=np.float64)
    flat = kind == "sheet" and rest.shape == (len(points), 2)
    if rest.shape != points.shape and not flat:
        raise PullbackError(f"{kind} {piece.name!r}: rest has shape {rest.shape}; expected {points.shape}, as points")
    for name, x in (("point", points), ("point at rest", rest)):
        bad = np.flatnonzero(~np.isfinite(x).all(1))
        if len(bad):
            raise PullbackError(f"{kind} {piece.name!r}: {name} {bad[0]} is {x[bad[0]].tolist()}")
    pins = np.asarray(piece.pins, dtype=np.int64).reshape(-1)
    if len(np.unique(pins)) < len(pins) or ((pins < 0) | (pins >= len(points))).any():
        raise PullbackError(
            f"{kind} {piece.name!r}: pins are {pins.tolist()}; expected different vertices below {len(points)}"
        )
    object.__setattr__(piece, "points", points)
    object.__setattr__(piece, "rest", rest)
    object.__setattr__(piece, "pins", pins)


def _refuse(sheet: Sheet, bad: np.ndarray, what: str) -> None:
    """Raise if a triangle is bad (m, k)."""
    rows = np.flatnonzero(bad.any(1))
    if len(rows):
        corners = np.asarray(sheet.triangles)[rows[0]].tolist()
        raise PullbackError(f"sheet {sheet.name!r}: triangle {rows[0]}, vertices {corners}, {what}")


def _in_space(x: np.ndarray) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, 3 - x.shape[1])))


def _turns(sheet: Sheet) -> np.ndarray:
    """Return twice the areas of triangles in the plane of `rest`, negative for those that go round the other way."""
    corners = np.asarray(sheet.rest)[sheet.triangles]
    e, f = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    return e[:, 0] * f[:, 1] - e[:, 1] * f[:, 0]
