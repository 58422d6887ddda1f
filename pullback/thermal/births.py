"""When each element is born, that is deposited, and which faces are free in between.

An element is born the first time the lit beam passes within a radius of its middle, seen from above, while the beam's
height is that of the element's layer: from the middle of the element up to one layer above it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pullback.core.errors import PullbackError
from pullback.thermal.mesh import Mesh
from pullback.thermal.toolpath import Toolpath

# pairs of a piece of path and an element examined at once
PAIRS = 500_000
# bins at most
BINS = 20_000_000
# with no radius given, the beam may pass this many half diagonals of the largest element beside a middle
REACH = 3.0


class FreeFaces(NamedTuple):
    """Faces through which heat can leave, each from `start` until `end`.

    nodes (f, 4): counter-clockwise seen from outside; owner (f,): the element behind it; start, end (f,) [s], −inf for
    what is free from the start and +inf for what stays free.
    """

    nodes: np.ndarray
    owner: np.ndarray
    start: np.ndarray
    end: np.ndarray


class _Pieces(NamedTuple):
    """Lit pieces of path: from a (p, 3) along d (p, 3), from time t during dt, of the move that ends at a row."""

    a: np.ndarray
    d: np.ndarray
    t: np.ndarray
    dt: np.ndarray
    row: np.ndarray


def births(
    mesh: Mesh,
    path: Toolpath,
    radius: float | None = None,
    build: str = "build",
    layer: float | None = None,
    unreached: str = "error",
    outside: str = "error",
    unsupported: str = "error",
) -> np.ndarray:
    """Return when each element is born, (elements,) [s]; −inf for those that are not part of the build.

    Args:
        radius: how near the beam must pass the middle of an element, seen from above [m]. None: the smallest radius
            that reaches every element, at least the median half diagonal of elements and at most three of the largest.
        build: the set of elements that are printed.
        layer: how far above the middle of an element the beam may be [m]. None: the largest step between heights at
            which the path is lit, or the height of the element where that is more.
        unreached: what to do with elements the beam never reaches: "error"; "nearest": they are born when it comes
            nearest within the layer; "never": +inf.
        outside: what to do where the lit beam is farther from every element than the radius, and than three half
            diagonals of an element: "error" or "ignore".
        unsupported: what to do with an element that shares no node with what is there when it is born: "error"; "wait":
            it is born when it does (`after_support`); "ignore".
    """
    _check_choice("unreached", unreached, ("error", "nearest", "never"))
    _check_choice("outside", outside, ("error", "ignore"))
    _check_choice("unsupported", unsupported, ("error", "wait", "ignore"))
    printed = mesh.element_set(build)
    middles = mesh.centers[printed]
    low, high = (height[printed] for height in mesh.heights)
    lit = path.lit_rows
    if not len(lit):
        raise PullbackError("the toolpath is never lit; set on = 1 in the rows that end a lit move")
    window = np.maximum(high - low, _layer_step(path, low.min()) if layer is None else layer)
    middle = 0.5 * (low + high)
    # the slack keeps beams that run exactly at the edge of the window in it
    floor, ceiling = middle - 1e-6 * window, middle + window * (1 - 1e-6)
    half_diagonal = _half_diagonals(mesh, printed)
    if radius is not None and not (np.isfinite(radius) and radius > 0):
        raise PullbackError(f"radius = {radius}; expected a positive length in metres")

    taken = float(np.median(half_diagonal)) if radius is None else float(radius)
    first, touched = _Search(path, middles, floor, ceiling, taken * (1 + 1e-9)).first()
    if np.isinf(first).any() or not touched.all():
        # look farther: the path may be outside, elements beside it, or the radius is ours to choose
        widest = max(taken, REACH * half_diagonal.max())
        search = _Search(path, middles, floor, ceiling, widest)
        nearest, touched = search.nearest()
        if outside == "error":
            _check_inside(search.pieces, touched, widest)
        missed = nearest > (widest if radius is None else taken)
        if missed.any() and unreached == "error":
            raise _unreached_error(path, printed, missed, middles, floor, ceiling, radius)
        if radius is None and np.isinf(first).any():
            taken = max(taken, nearest[~missed].max(initial=0.0))
            first, _ = _Search(path, middles, floor, ceiling, taken * (1 + 1e-9)).first()
        # rounding may lose a pass exactly at the radius
        for index in np.flatnonzero(np.isinf(first) & (~missed | (unreached == "nearest"))):
            first[index] = _nearest_time(path, lit, middles[index], floor[index], ceiling[index], printed[index])
    out = np.full(len(mesh.elements), -np.inf)
    out[printed] = first
    if unsupported == "error":
        check_support(mesh, out)
    return after_support(mesh, out) if unsupported == "wait" else out


def check_support(mesh: Mesh, births: np.ndarray) -> None:
    """Raise an error that names the first element born without support: it shares no node with older ones.

    Elements born at one time hold each other if one of them has older ones beside it. Where nothing is there from the
    start, the elements born first need no support.
    """
    births = checked_births(mesh, births)
    delayed = after_support(mesh, births)
    late = np.flatnonzero(delayed > births)
    if not len(late):
        return
    first = late[births[late].argmin()]
    x, y, z = mesh.centers[first] * 1e3
    more = f"; {len(late)} such elements" if len(late) > 1 else ""
    raise PullbackError(
        f"element {first} at ({x:.4g}, {y:.4g}, {z:.4g}) mm is born at {births[first]:.6g} s before its support: it "
        f"shares no node with what is there{more}. Check the order of the path, let them wait for their support "
        "(unsupported='wait'; after_support), or pass unsupported='ignore'"
    )


def after_support(mesh: Mesh, births: np.ndarray) -> np.ndarray:
    """Return births delayed until each element is connected, through others, to what is there from the start.

    The new birth of an element is the later of its own and of the first new birth among those it shares a node with;
    +inf for what never gets support.
    """
    births = checked_births(mesh, births)
    node_birth = np.full(len(mesh.nodes), np.inf)
    np.minimum.at(node_birth, mesh.elements.ravel(), np.repeat(births, 8))
    start = births.min()
    # where each has an older one beside it, following those leads to the start
    if ((node_birth[mesh.elements].min(axis=1) < births) | (births <= start)).all():
        return births.copy()
    node_birth[:] = np.inf
    delayed = np.where(births <= start, births, np.inf)
    changed = np.flatnonzero(delayed < np.inf)
    waiting = np.flatnonzero((delayed > births) & (births < np.inf))
    order = waiting[np.argsort(births[waiting], kind="stable")]
    while len(changed):
        np.minimum.at(node_birth, mesh.elements[changed].ravel(), np.repeat(delayed[changed], 8))
        offer = np.maximum(births[order], node_birth[mesh.elements[order]].min(axis=1))
        better = offer < delayed[order]
        changed = order[better]
        delayed[changed] = offer[better]
        # what is born when it should be stays so
        order = order[delayed[order] > births[order]]
    return delayed


def checked_births(mesh: Mesh, births: np.ndarray) -> np.ndarray:
    """Return births as float64 (elements,), checked."""
    births = np.asarray(births, dtype=np.float64)
    if births.shape != (len(mesh.elements),):
        raise PullbackError(f"births have shape {births.shape}; expected ({len(mesh.elements)},), one for each element")
    bad = np.flatnonzero(np.isnan(births))
    if len(bad):
        raise PullbackError(f"the birth of element {bad[0]} is not a number ({len(bad)} in all)")
    return births


def faces_over_time(mesh: Mesh, births: np.ndarray) -> FreeFaces:
    """Return the free faces of the growing part, each with the time it appears and the time it is covered.

    A face on the boundary of the mesh is free from the birth of its element on; one between two elements from the birth
    of the older to that of the younger, seen from the older; never if they are born together.
    """
    births = checked_births(mesh, births)
    nodes, owners = mesh.faces
    birth = np.where(owners >= 0, births[owners], np.inf)
    turned = birth[:, 1] < birth[:, 0]
    start, end = birth.min(axis=1), birth.max(axis=1)
    nodes = np.where(turned[:, None], nodes[:, ::-1], nodes)
    owner = np.where(turned, owners[:, 1], owners[:, 0])
    free = start < end
    return FreeFaces(nodes[free], owner[free], start[free], end[free])


class _Search:
    """Finds the lit pieces of a path within reach of the middles of elements, by bins."""

    def __init__(
        self, path: Toolpath, middles: np.ndarray, floor: np.ndarray, ceiling: np.ndarray, reach: float
    ) -> None:
        self.middles, self.floor, self.ceiling, self.reach = middles, floor, ceiling, reach
        window = (ceiling - floor).max()
        self.pieces = _lit_pieces(path, reach, window)
        # from the middle of a piece to an element in reach of it is less than a bin, seen from above;
        # the element's floor is at most one and a half windows lower and half a window higher
        self.width = np.array([1.5 * reach, 1.5 * reach, window])
        self.origin = np.append(middles[:, :2].min(axis=0), floor.min())
        levels = [-1, 0] if not self.pieces.d[:, 2].any() else [-2, -1, 0, 1]
        self.shifts = np.stack(np.meshgrid([-1, 0, 1], [-1, 0, 1], levels, indexing="ij"), axis=-1).reshape(-1, 3)
        points = np.column_stack([middles[:, :2], floor])
        while np.prod(self._bin(points.max(axis=0)) + 1.0) > BINS:
            self.width = 1.5 * self.width
        bins = self._bin(points)
        self.shape = bins.max(axis=0) + 1
        key = np.ravel_multi_index(tuple(bins.T), self.shape)
        self.order = np.argsort(key, kind="stable")
        # elements of bin k: order[starts[k] : starts[k + 1]]
        self.starts = np.append(0, np.cumsum(np.bincount(key, minlength=self.shape.prod())))

    def nearest(self) -> tuple[np.ndarray, np.ndarray]:
        """Return how near the beam comes to each element, inf if out of reach, and which pieces reach one."""
        pieces = self.pieces
        distance = np.full(len(self.middles), np.inf)
        touched = np.zeros(len(pieces.t), dtype=bool)
        for piece, element in self._pairs():
            s0, s1 = self._in_window(piece, element)
            ok = s0 <= s1
            piece, element, s0, s1 = piece[ok], element[ok], s0[ok], s1[ok]
            offset = self.middles[element, :2] - pieces.a[piece, :2]
            d = pieces.d[piece, :2]
            dd = np.einsum("pk,pk->p", d, d)
            s = np.clip(np.einsum("pk,pk->p", offset, d) / np.where(dd > 0, dd, 1.0), s0, s1)
            gap = np.linalg.norm(offset - s[:, None] * d, axis=1)
            ok = gap <= self.reach
            touched[piece[ok]] = True
            np.minimum.at(distance, element[ok], gap[ok])
        return distance, touched

    def first(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the first time each element is within reach of the beam, inf if never, and which pieces reach one."""
        pieces = self.pieces
        touched = np.zeros(len(pieces.t), dtype=bool)
        time = np.full(len(self.middles), np.inf)
        for piece, element in self._pairs():
            s0, s1 = self._in_window(piece, element)
            offset = self.middles[element, :2] - pieces.a[piece, :2]
            d = pieces.d[piece, :2]
            # |offset − s d|² = radius²
            dd = np.einsum("pk,pk->p", d, d)
            od = np.einsum("pk,pk->p", offset, d)
            room = self.reach**2 - np.einsum("pk,pk->p", offset, offset)
            still = dd == 0
            root = od**2 + dd * room
            meets = np.where(still, room >= 0, root >= 0)
            root = np.sqrt(np.maximum(root, 0.0))
            safe = np.where(still, 1.0, dd)
            enter = np.maximum(s0, np.where(still, 0.0, (od - root) / safe))
            leave = np.minimum(s1, np.where(still, 1.0, (od + root) / safe))
            ok = meets & (enter <= leave)
            piece, element = piece[ok], element[ok]
            touched[piece] = True
            np.minimum.at(time, element, pieces.t[piece] + enter[ok] * pieces.dt[piece])
        return time, touched

    def _bin(self, points: np.ndarray) -> np.ndarray:
        return np.floor((points - self.origin) / self.width).astype(np.int64)

    def _in_window(self, piece: np.ndarray, element: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the part [s0, s1] of each piece that runs in the window of heights of the element."""
        pieces = self.pieces
        return _window(pieces.a[piece, 2], pieces.d[piece, 2], self.floor[element], self.ceiling[element])

    def _pairs(self):
        """Yield arrays of pieces and of the elements in their own and the neighbouring bins."""
        home = self._bin(self.pieces.a + 0.5 * self.pieces.d)
        for shift in self.shifts:
            bins = home + shift
            ok = np.flatnonzero(((bins >= 0) & (bins < self.shape)).all(axis=1))
            key = np.atleast_1d(np.ravel_multi_index(tuple(bins[ok].T), self.shape))
            count = self.starts[key + 1] - self.starts[key]
            piece, key, count = ok[count > 0], key[count > 0], count[count > 0]
            total = np.cumsum(count)
            start = 0
            while start < len(piece):
                done = total[start - 1] if start else 0
                stop = max(start + 1, int(np.searchsorted(total, done + PAIRS)))
                yield _expanded(piece[start:stop], self.starts[key[start:stop]], count[start:stop], self.order)
                start = stop


def _expanded(piece: np.ndarray, start: np.ndarray, count: np.ndarray, order: np.ndarray):
    """Return each piece repeated `count` times, beside the elements order[start], order[start + 1], ..."""
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(piece, count), order[np.repeat(start, count) + within]


def _window(z: np.ndarray, dz: np.ndarray, floor: np.ndarray, ceiling: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return s0, s1 in [0, 1] such that floor ≤ z + s dz ≤ ceiling between them; s0 > s1 where it never is."""
    level = dz == 0
    safe = np.where(level, 1.0, dz)
    one, two = (floor - z) / safe, (ceiling - z) / safe
    inside = (z >= floor) & (z <= ceiling)
    s0 = np.where(level, np.where(inside, 0.0, 2.0), np.maximum(np.minimum(one, two), 0.0))
    s1 = np.where(level, 1.0, np.minimum(np.maximum(one, two), 1.0))
    return s0, s1


def _lit_pieces(path: Toolpath, length: float, height: float) -> _Pieces:
    """Return the lit moves, cut into pieces no longer than `length` and no higher than `height`."""
    lit = path.lit_rows
    a, b = path.points[lit - 1], path.points[lit]
    cuts = np.maximum(np.linalg.norm(b - a, axis=1) / length, np.abs(b - a)[:, 2] / height)
    count = np.maximum(1, np.ceil(cuts)).astype(np.int64)
    move = np.repeat(np.arange(len(lit)), count)
    part = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    d = (b - a)[move] / count[move, None]
    dt = (path.t[lit] - path.t[lit - 1])[move] / count[move]
    return _Pieces(a[move] + part[:, None] * d, d, path.t[lit - 1][move] + part * dt, dt, lit[move])


def _layer_step(path: Toolpath, bottom: float) -> float:
    """Return the largest step between the heights of lit moves.

    The step from the bottom of the build to the lowest of them counts only if it is like the others, up to twice: a
    larger one means that path and part are not at the same height.
    """
    z = np.unique(np.concatenate([path.z[path.lit_rows - 1], path.z[path.lit_rows]]))
    largest = np.diff(z).max(initial=0.0)
    below = z[0] - bottom
    return float(max(largest, below if largest == 0 or below <= 2 * largest else 0.0))


def _half_diagonals(mesh: Mesh, elements: np.ndarray) -> np.ndarray:
    """Return how far the farthest node of each element is from its middle, seen from above, (e,) [m]."""
    corners = mesh.nodes[mesh.elements[elements], :2]
    return np.linalg.norm(corners - mesh.centers[elements, None, :2], axis=2).max(axis=1)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise PullbackError(f"{name}={value!r}; choose from {', '.join(map(repr, choices))}")


def _check_inside(pieces: _Pieces, touched: np.ndarray, reach: float) -> None:
    """Raise an error that names the first row on whose move the lit beam is near no element of the build."""
    bad = np.flatnonzero(~touched)
    if not len(bad):
        return
    row = pieces.row[bad[0]]
    x, y, z = (pieces.a[bad[0]] + 0.5 * pieces.d[bad[0]]) * 1e3
    rows = len(np.unique(pieces.row[bad]))
    raise PullbackError(
        f"the toolpath leaves the part: on the way to row {row} the lit beam is at ({x:.4g}, {y:.4g}, {z:.4g}) mm, "
        f"more than {reach * 1e3:.4g} mm from every element of its layer ({rows} such rows). Check unit and origin of "
        "both, or pass outside='ignore'"
    )


def _unreached_error(path, printed, missed, middles, floor, ceiling, radius) -> PullbackError:
    """Return the error that says how many elements the beam misses, which, and what radius would reach them."""
    index = np.flatnonzero(missed)
    some = ", ".join(str(printed[k]) for k in index[:5]) + (", ..." if len(index) > 5 else "")
    x, y, z = middles[index[0]] * 1e3
    lit = path.lit_rows
    gaps = [_nearest_gap(path, lit, middles[k], floor[k], ceiling[k])[0] for k in index[:50]]
    needed = max(gaps)
    if np.isfinite(needed):
        hint = f"a radius of {needed * 1e3:.4g} mm reaches {'them' if len(index) <= 50 else 'the first 50 of them'}"
    else:
        hint = "the beam is never lit at the height of some of them: z is the top of the layer it makes"
    within = "three half diagonals" if radius is None else f"{radius * 1e3:.4g} mm"
    return PullbackError(
        f"{len(index)} of {len(printed)} elements are never reached by the lit beam within {within}: {some}; the "
        f"first at ({x:.4g}, {y:.4g}, {z:.4g}) mm. {hint[0].upper() + hint[1:]}; or pass unreached='nearest' or 'never'"
    )


def _nearest_gap(path: Toolpath, lit: np.ndarray, middle: np.ndarray, floor: float, ceiling: float):
    """Return the distance and the time of the nearest lit pass of one element at its layer; inf if there is none."""
    a, d = path.points[lit - 1], path.points[lit] - path.points[lit - 1]
    s0, s1 = _window(a[:, 2], d[:, 2], np.full(len(lit), floor), np.full(len(lit), ceiling))
    offset = middle[:2] - a[:, :2]
    dd = np.einsum("pk,pk->p", d[:, :2], d[:, :2])
    s = np.clip(np.einsum("pk,pk->p", offset, d[:, :2]) / np.where(dd > 0, dd, 1.0), s0, np.maximum(s0, s1))
    gap = np.where(s0 <= s1, np.linalg.norm(offset - s[:, None] * d[:, :2], axis=1), np.inf)
    best = gap.argmin()
    row = lit[best]
    return float(gap[best]), float(path.t[row - 1] + s[best] * (path.t[row] - path.t[row - 1]))


def _nearest_time(path: Toolpath, lit, middle, floor: float, ceiling: float, element: int) -> float:
    """Return when the beam comes nearest to one element, which no bin found."""
    gap, time = _nearest_gap(path, lit, middle, floor, ceiling)
    if not np.isfinite(gap):
        raise PullbackError(
            f"the beam is never lit at the height of element {element}: z is the top of the layer it makes"
        )
    return time
