"""The direction in which two hulls overlap least: an expanding polytope in A - B (docs/derivations/convex.md).

Distances of faces from 0 have a sign, so that 0 may lie outside of the first polytopes, or of A - B itself. In scratch:
EPA_POINTS points as in `gjk_kernels`, then faces (three points, normal, distance), then the edges of the horizon.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.gjk_kernels import POINT_ROWS, store_point
from pullback.rigid.collide.convex.support_kernels import difference_support, rounding
from pullback.rigid.collide.convex.tables import Hulls
from pullback.spatial.arrays import load3, store

EPA_POINTS = wp.constant(36)
EPA_FACES = wp.constant(68)  # 2 points - 4
FACE_ROWS = wp.constant(7)
FACES = wp.constant(180)  # POINT_ROWS EPA_POINTS
HORIZON = wp.constant(656)  # FACES + FACE_ROWS EPA_FACES
HORIZON_EDGES = wp.constant(68)
EPA_ROWS = wp.constant(792)  # HORIZON + 2 HORIZON_EDGES
SEEDS = wp.constant(6)


@wp.func
def add_face(work: wp.array2d(dtype=Any), w: int, count: int, i: int, j: int, k: int, size: Any):
    """Write face `count` with the corners i, j, k; one without area is put so far away that it is never the nearest."""
    a = load3(work, i * POINT_ROWS, w)
    n = wp.cross(load3(work, j * POINT_ROWS, w) - a, load3(work, k * POINT_ROWS, w) - a)
    area = wp.length(n)
    distance = size.dtype(1.0e6) * size[0]
    if area > rounding(a) * rounding(a) * size[0] * size[0]:
        n = n / area
        distance = wp.dot(n, a)
    else:
        n = n - n
    row = FACES + count * FACE_ROWS
    store(work, row, w, wp.vector(work.dtype(i), work.dtype(j), work.dtype(k)))
    store(work, row + 3, w, n)
    work[row + 6, w] = distance
    return count + 1


@wp.func
def seed_faces(work: wp.array2d(dtype=Any), w: int, size: Any):
    """Write the four faces of the first tetrahedron, each with its normal outwards."""
    a = load3(work, 0, w)
    n = wp.cross(load3(work, POINT_ROWS, w) - a, load3(work, 2 * POINT_ROWS, w) - a)
    first = int(1)
    second = int(2)
    if wp.dot(n, load3(work, 3 * POINT_ROWS, w) - a) > n.dtype(0.0):
        first = 2
        second = 1
    count = int(0)
    four = int(4)
    for k in range(four):
        i = int(0)
        j = int(first)
        l = int(second)
        if k == 1:
            j = int(3)
            l = int(first)
        elif k == 2:
            j = int(second)
            l = int(3)
        elif k == 3:
            i = int(3)
            j = int(second)
            l = int(first)
        count = add_face(work, w, count, i, j, l, size)
    return count


@wp.func
def nearest_face(work: wp.array2d(dtype=Any), w: int, count: int):
    """Return the face with the least distance from 0."""
    best = int(0)
    for k in range(1, count):
        if work[FACES + k * FACE_ROWS + 6, w] < work[FACES + best * FACE_ROWS + 6, w]:
            best = k
    return best


@wp.func
def toggle_edge(work: wp.array2d(dtype=Any), w: int, count: int, i: Any, j: Any):
    """Add an edge to the horizon, or remove it if the other face added it; return the new count."""
    twin = int(-1)
    for k in range(count):
        if work[HORIZON + 2 * k, w] == j and work[HORIZON + 2 * k + 1, w] == i:
            twin = k
    result = int(count)
    if twin >= 0:
        result = count - 1
        work[HORIZON + 2 * twin, w] = work[HORIZON + 2 * result, w]
        work[HORIZON + 2 * twin + 1, w] = work[HORIZON + 2 * result + 1, w]
    elif count < HORIZON_EDGES:
        work[HORIZON + 2 * count, w] = i
        work[HORIZON + 2 * count + 1, w] = j
        result = count + 1
    return result


@wp.func
def remove_visible(work: wp.array2d(dtype=Any), w: int, count: int, p: Any, tolerance: Any):
    """Remove the faces visible from p; return how many are left, and how many edges the horizon has."""
    left = int(count)
    edges = int(0)
    three = int(3)
    for step in range(count):
        k = count - 1 - step
        row = FACES + k * FACE_ROWS
        if wp.dot(load3(work, row + 3, w), p) - work[row + 6, w] > tolerance:
            for i in range(three):
                edges = toggle_edge(work, w, edges, work[row + i, w], work[row + (i + 1) % 3, w])
            left -= 1
            for i in range(FACE_ROWS):
                work[row + i, w] = work[FACES + left * FACE_ROWS + i, w]
    return left, edges


@wp.func
def seed_direction(work: wp.array2d(dtype=Any), w: int, seed: int, d: Any):
    """Return the direction of search for a point of the first tetrahedron; points 2 and 3 are sought both ways."""
    one = d.dtype(1.0)
    zero = d.dtype(0.0)
    result = d
    if seed > 1:
        a = load3(work, 0, w)
        along = load3(work, POINT_ROWS, w) - a
        if seed < 4:
            axis = wp.vector(one, zero, zero)
            if wp.abs(along[1]) <= wp.min(wp.abs(along[0]), wp.abs(along[2])):
                axis = wp.vector(zero, one, zero)
            elif wp.abs(along[2]) <= wp.abs(along[0]):
                axis = wp.vector(zero, zero, one)
            result = wp.cross(along, axis)
        else:
            result = wp.cross(along, load3(work, 2 * POINT_ROWS, w) - a)
    if seed % 2 == 1:
        result = -result
    return wp.normalize(result)


@wp.func
def epa(
    hulls: Hulls, A: Any, B: Any, start_a: int, start_b: int, guess: Any, size: Any, work: wp.array2d(dtype=Any), w: int
):
    """Return the unit vector from B to A along which the hulls overlap least, eq. (7)."""
    r = A.p
    tolerance = r.dtype(4.0) * rounding(r) * size
    scale = wp.vector(size, size, size)
    n = guess
    ia = int(start_a)
    ib = int(start_b)
    points = int(0)
    faces = int(0)
    searching = int(1)
    nearest = int(0)
    for turn in range(SEEDS + EPA_POINTS - 4):
        if searching == 1:
            if turn < SEEDS:
                n = seed_direction(work, w, turn, guess)
            else:
                nearest = nearest_face(work, w, faces)
                n = load3(work, FACES + nearest * FACE_ROWS + 3, w)
            p, ia, ib = difference_support(hulls, A, B, n, ia, ib)
            if turn < SEEDS:
                slot = turn
                if turn > 1:
                    slot = 1 + turn // 2
                # of the two ways keep the point further from those before
                better = bool(True)
                if turn == 3 or turn == 5:
                    a = load3(work, 0, w)
                    better = wp.dot(n, p - a) > -wp.dot(n, load3(work, slot * POINT_ROWS, w) - a)
                if better:
                    store_point(work, slot, w, p, ia, ib)
                if turn == SEEDS - 1:
                    points = 4
                    faces = seed_faces(work, w, scale)
            else:
                distance = work[FACES + nearest * FACE_ROWS + 6, w]
                if wp.dot(n, p) - distance <= tolerance:
                    searching = 0
                else:
                    faces, edges = remove_visible(work, w, faces, p, r.dtype(0.25) * tolerance)
                    if faces + edges > EPA_FACES or edges < 3:
                        searching = 0
                    else:
                        store_point(work, points, w, p, ia, ib)
                        for k in range(edges):
                            i = int(work[HORIZON + 2 * k, w])
                            j = int(work[HORIZON + 2 * k + 1, w])
                            faces = add_face(work, w, faces, i, j, points, scale)
                        points += 1
    return -n
