"""The distance of two hulls that are apart: the algorithm of Gilbert, Johnson and Keerthi (docs/derivations/convex.md).

The simplex, up to four points of A - B, stands in scratch, the newest point first: POINT_ROWS rows for each.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.support_kernels import difference_support, rounding
from pullback.rigid.collide.convex.tables import Hulls
from pullback.spatial.arrays import load3, store

POINT_ROWS = wp.constant(5)  # position, the vertices of A and B
GJK_LIMIT = wp.constant(48)

APART = wp.constant(0)  # the distance was found
FAR = wp.constant(1)  # further apart than was asked for
TOUCHING = wp.constant(2)  # overlapping, or too close to tell


@wp.func
def store_point(work: wp.array2d(dtype=Any), k: int, w: int, p: Any, ia: int, ib: int):
    """Write point k of a simplex."""
    store(work, k * POINT_ROWS, w, p)
    work[k * POINT_ROWS + 3, w] = work.dtype(ia)
    work[k * POINT_ROWS + 4, w] = work.dtype(ib)


@wp.func
def move_point(work: wp.array2d(dtype=Any), source: int, target: int, w: int):
    """Copy one point of a simplex over another."""
    for k in range(POINT_ROWS):
        work[target * POINT_ROWS + k, w] = work[source * POINT_ROWS + k, w]


@wp.func
def nearest_to_origin(q: Any, e1: Any, e2: Any, count: int):
    """Return the point nearest to 0 of the point, line or plane q + s e1 + t e2, and whether s, t > 0, s + t < 1."""
    zero = q.dtype(0.0)
    v = q
    inside = bool(True)
    if count == 2:
        s = -wp.dot(q, e1)
        square = wp.dot(e1, e1)
        inside = s > zero and s < square
        if inside:
            v = q + (s / square) * e1
    elif count == 3:
        n = wp.cross(e1, e2)
        square = wp.dot(n, n)
        s = wp.dot(n, wp.cross(e2, q))
        t = wp.dot(n, wp.cross(q, e1))
        inside = s > zero and t > zero and s + t < square
        if inside:
            v = (wp.dot(n, q) / square) * n
    return v, inside


@wp.func
def holds_origin(work: wp.array2d(dtype=Any), w: int, like: Any):
    """Return whether 0 is inside the tetrahedron of the four points."""
    a = load3(work, 0, w)
    b = load3(work, POINT_ROWS, w)
    c = load3(work, 2 * POINT_ROWS, w)
    d = load3(work, 3 * POINT_ROWS, w)
    zero = like.dtype(0.0)
    bc = wp.cross(b, c)
    cd = wp.cross(c, d)
    db = wp.cross(d, b)
    # the four volumes with 0 in the place of a corner have the sign of the whole
    of_a = wp.dot(b, cd)
    of_b = -wp.dot(a, cd)
    of_c = -wp.dot(a, db)
    of_d = -wp.dot(a, bc)
    least = wp.min(wp.min(of_a, of_b), wp.min(of_c, of_d))
    most = wp.max(wp.max(of_a, of_b), wp.max(of_c, of_d))
    return least > zero or most < zero


@wp.func
def nearest_of_simplex(work: wp.array2d(dtype=Any), count: int, w: int, newest: Any):
    """Return the point of a simplex nearest to 0, and the points besides the newest that span it, 0: none, eq. (5)."""
    best = newest
    best_first = int(0)
    best_second = int(0)
    choices = int(7)
    for choice in range(1, choices):
        # subsets of the newest point and one or two others
        first = int(choice)
        second = int(0)
        if choice > 3:
            first = int(choice // 6 + 1)
            second = int(wp.min(choice - 2, 3))
        if wp.max(first, second) < count:
            size = wp.where(second > 0, 3, 2)
            e1 = load3(work, first * POINT_ROWS, w) - newest
            e2 = load3(work, second * POINT_ROWS, w) - newest
            v, inside = nearest_to_origin(newest, e1, e2, size)
            if inside and wp.dot(v, v) < wp.dot(best, best):
                best = v
                best_first = first
                best_second = second
    return best, best_first, best_second


@wp.func
def keep_points(work: wp.array2d(dtype=Any), first: int, second: int, w: int):
    """Keep the newest point of a simplex and up to two others; return how many they are."""
    size = int(1)
    if first > 0:
        size = 2
        move_point(work, first, 1, w)
    if second > 0:
        size = 3
        move_point(work, second, 2, w)
    return size


@wp.func
def gjk(
    hulls: Hulls, A: Any, B: Any, start_a: int, start_b: int, reach: Any, size: Any, work: wp.array2d(dtype=Any), w: int
):
    """Return APART, FAR or TOUCHING, the vector from B to A between nearest points, and how many points span it.

    FAR: the distance is more than `reach`. `size` is the length that rounding is measured by. Eqs. (3) to (6).
    """
    r = A.p
    tiny = rounding(r)
    zero = r.dtype(0.0)
    touching = r.dtype(100.0) * tiny * size
    v = r
    if wp.dot(v, v) == zero:
        v = wp.vector(zero, zero, size)
    ia = int(start_a)
    ib = int(start_b)
    count = int(0)
    status = int(APART)
    searching = int(1)
    for turn in range(GJK_LIMIT):
        if searching == 1:
            p, ia, ib = difference_support(hulls, A, B, -v, ia, ib)
            square = wp.dot(v, v)
            ahead = wp.dot(v, p)
            known = int(0)
            for k in range(count):
                same_a = int(work[k * POINT_ROWS + 3, w]) == ia
                if same_a and int(work[k * POINT_ROWS + 4, w]) == ib:
                    known = 1
            if ahead > zero and ahead * ahead > reach * reach * square:
                status = FAR
                searching = 0
            elif count > 0 and (known == 1 or square - ahead <= tiny * square):
                searching = 0
            else:
                for k in range(count):
                    move_point(work, count - 1 - k, count - k, w)
                store_point(work, 0, w, p, ia, ib)
                nearest, first, second = nearest_of_simplex(work, count + 1, w, p)
                nearer = wp.dot(nearest, nearest)
                if count == 3 and holds_origin(work, w, r):
                    status = TOUCHING
                    searching = 0
                elif nearer <= touching * touching:
                    v = nearest
                    status = TOUCHING
                    searching = 0
                elif count > 0 and nearer >= square:
                    # no progress but for rounding: keep the points before
                    for k in range(count):
                        move_point(work, k + 1, k, w)
                    searching = 0
                else:
                    v = nearest
                    count = keep_points(work, first, second, w)
    return status, v, count
