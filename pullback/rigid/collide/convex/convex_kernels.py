"""Which features of two convex shapes touch, apart or overlapping (docs/derivations/convex.md)."""

from typing import Any

import warp as wp

from pullback.rigid.collide.convex.axis_kernels import FACE_OF_A, FLAT, FLAT_ADVANTAGE, PARALLEL_EDGES, best_axis
from pullback.rigid.collide.convex.epa_kernels import epa
from pullback.rigid.collide.convex.features_kernels import hull_code
from pullback.rigid.collide.convex.gjk_kernels import APART, FAR, POINT_ROWS, TOUCHING, gjk
from pullback.rigid.collide.convex.manifold_kernels import add_face_contacts
from pullback.rigid.collide.convex.round_kernels import nearest_to_point, round_candidates
from pullback.rigid.collide.convex.support_kernels import edge_direction, place_hull, placed, rounding
from pullback.rigid.collide.convex.tables import Hulls
from pullback.rigid.collide.features_kernels import EDGE, VERTEX, column, half_extents, shape_pose, shape_position
from pullback.rigid.collide.geometry_kernels import add_candidate
from pullback.rigid.compile.scene import RADIUS, SHAPE_ROWS, Scene
from pullback.spatial.vectors import unit_or_up

PRISM_SLACK = wp.constant(0.00482)  # 1 - cos(pi / PRISM_SIDES)
CONVEX_ROWS = wp.constant(792)  # EPA_ROWS: rows of scratch that a pair needs


@wp.func
def hull_size(hulls: Hulls, h: Any, hull: int):
    """Return about how far a scaled hull reaches from its origin."""
    return wp.max(h) * h.dtype(hulls.hull_reach[hull])


@wp.func
def is_plane(hulls: Hulls, shape: int):
    """Return whether a shape is a plane, the only hull without vertices."""
    hull = hulls.shape_hull[shape]
    return hulls.hull_vertex[hull + 1] == hulls.hull_vertex[hull]


@wp.func
def bounding_radius(hulls: Hulls, shapes: wp.array2d(dtype=Any), shape: int, w: int):
    """Return the radius of a sphere about a shape's origin that holds all of it."""
    h = half_extents(shapes, shape, w)
    hull = hulls.shape_hull[shape]
    reach = wp.min(hull_size(hulls, h, hull), wp.length(h) * h.dtype(hulls.hull_widest[hull]))
    return reach + shapes[shape * SHAPE_ROWS + RADIUS, w]


@wp.func
def hulls_are_near(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int, pair: int
):
    """Return whether the bounding spheres of a pair, b perhaps a plane, are closer than the margin."""
    hulls = scene.hulls
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    reach = margin + bounding_radius(hulls, shapes, a, w)
    R, p = shape_pose(scene, poses, shapes, b, w)
    r = shape_position(scene, poses, shapes, a, w) - p
    distance = wp.dot(column(R, 2), r)
    if not is_plane(hulls, b):
        distance = wp.length(r)
        reach += bounding_radius(hulls, shapes, b, w)
    return distance < reach


@wp.func
def place_pair(scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), pair: int, w: int):
    """Return the hulls A and B of a pair, placed relative to B's origin."""
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    Ra, pa = shape_pose(scene, poses, shapes, a, w)
    Rb, pb = shape_pose(scene, poses, shapes, b, w)
    r = pa - pb
    A = place_hull(scene.hulls.shape_hull[a], Ra, half_extents(shapes, a, w), r)
    B = place_hull(scene.hulls.shape_hull[b], Rb, half_extents(shapes, b, w), r - r)
    return A, B


@wp.func
def edge_between(hulls: Hulls, i: int, j: int):
    """Return the edge from vertex i to j, -1: none."""
    found = int(-1)
    for k in range(hulls.neighbour_start[i], hulls.neighbour_start[i + 1]):
        if hulls.neighbour[k] == j:
            found = hulls.neighbour_edge[k]
    return found


@wp.func
def spanned_edge(hulls: Hulls, work: wp.array2d(dtype=Any), w: int, row: int, count: int):
    """Return a vertex of a hull that spans a simplex, and the edge to the other; -1: there is none, -2: no other.

    `row` is 3 for A and 4 for B.
    """
    i = int(work[row, w])
    j = int(i)
    edge = int(-2)
    for k in range(1, count):
        m = int(work[k * POINT_ROWS + row, w])
        if m != i and m != j:
            if j == i:
                j = m
                edge = edge_between(hulls, i, j)
            else:
                edge = -1
    return i, edge


@wp.func
def parallel_edges(hulls: Hulls, A: Any, B: Any, axis: Any, a0: int, edge_a: int, b0: int, edge_b: int):
    """Return an edge of A and one of B that are parallel and level with the contact, -1: none.

    They are the edges given, or any of those at the vertices a0, b0 where none is.
    """
    found_a = int(-1)
    found_b = int(-1)
    first_a = hulls.neighbour_start[a0]
    first_b = hulls.neighbour_start[b0]
    count_a = hulls.neighbour_start[a0 + 1] - first_a
    count_b = hulls.neighbour_start[b0 + 1] - first_b
    if edge_a >= 0:
        count_a = 1
    if edge_b >= 0:
        count_b = 1
    for k in range(count_a * count_b):
        ea = int(edge_a)
        eb = int(edge_b)
        if edge_a < 0:
            ea = hulls.neighbour_edge[first_a + k // count_b]
        if edge_b < 0:
            eb = hulls.neighbour_edge[first_b + k % count_b]
        da = A.R * edge_direction(hulls, ea, axis)
        m = wp.cross(da, B.R * edge_direction(hulls, eb, axis))
        level = wp.dot(da, axis) * wp.dot(da, axis) < axis.dtype(PARALLEL_EDGES)
        if level and wp.dot(m, m) < axis.dtype(PARALLEL_EDGES):
            found_a = ea
            found_b = eb
    return found_a, found_b


@wp.func
def add_parallel_edges(
    hulls: Hulls, A: Any, B: Any, edge_a: int, edge_b: int, axis: Any, w: int, candidates: wp.array2d(dtype=Any)
):
    """Add both ends of the interval that two parallel edges share, if any: an end of one, and the other."""
    ends_a = hulls.edge_vertices[edge_a]
    ends_b = hulls.edge_vertices[edge_b]
    d = A.R * edge_direction(hulls, edge_a, A.p)
    first = wp.dot(d, A.p + placed(hulls, A, ends_a[0]))
    last = wp.dot(d, A.p + placed(hulls, A, ends_a[1]))
    low = wp.dot(d, placed(hulls, B, ends_b[0]))
    high = wp.dot(d, placed(hulls, B, ends_b[1]))
    low_b = ends_b[0]
    high_b = ends_b[1]
    if high < low:
        low, high = high, low
        low_b, high_b = high_b, low_b
    low_codes = wp.vec2i(hull_code(VERTEX, ends_a[0]), hull_code(EDGE, edge_b))
    if low > first:
        low_codes = wp.vec2i(hull_code(EDGE, edge_a), hull_code(VERTEX, low_b))
    high_codes = wp.vec2i(hull_code(VERTEX, ends_a[1]), hull_code(EDGE, edge_b))
    if high < last:
        high_codes = wp.vec2i(hull_code(EDGE, edge_a), hull_code(VERTEX, high_b))
    count = int(0)
    if wp.min(high, last) > wp.max(low, first):
        count = add_candidate(low_codes[0], low_codes[1], axis, w, candidates, 0)
        count = add_candidate(high_codes[0], high_codes[1], axis, w, candidates, 1)
    return count


@wp.func
def add_sharp_contacts(
    hulls: Hulls, A: Any, B: Any, axis: Any, points: int, work: wp.array2d(dtype=Any), w: int,
    candidates: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the vertices and edges that the nearest points of two hulls lie on; none if they lie on a face."""
    a0, edge_a = spanned_edge(hulls, work, w, 3, points)
    b0, edge_b = spanned_edge(hulls, work, w, 4, points)
    count = int(0)
    if edge_a != -1 and edge_b != -1:
        parallel_a, parallel_b = parallel_edges(hulls, A, B, axis, a0, edge_a, b0, edge_b)
        if parallel_a >= 0:
            count = add_parallel_edges(hulls, A, B, parallel_a, parallel_b, axis, w, candidates)
        if count == 0:
            code_a = hull_code(VERTEX, a0)
            code_b = hull_code(VERTEX, b0)
            if edge_a >= 0:
                code_a = hull_code(EDGE, edge_a)
            if edge_b >= 0:
                code_b = hull_code(EDGE, edge_b)
            if parallel_a < 0 or edge_a < 0 or edge_b < 0:
                count = add_candidate(code_a, code_b, axis, w, candidates, 0)
    return count


@wp.func(inline=False)
def collide_hulls(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    candidates: wp.array2d(dtype=Any), pair: int, work: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the features of two convex shapes, b perhaps a plane, that may touch; return the count.

    `work` is scratch of CONVEX_ROWS rows.
    """
    hulls = scene.hulls
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    A, B = place_pair(scene, poses, shapes, pair, w)
    r = A.p
    ia = hulls.hull_vertex[A.hull]
    ib = hulls.hull_vertex[B.hull]
    size_a = hull_size(hulls, A.h, A.hull)
    size_b = hull_size(hulls, B.h, B.hull)
    size = wp.max(size_a, size_b)
    smaller = wp.min(size_a, size_b)
    if smaller == r.dtype(0.0):
        smaller = size
    reach = margin + shapes[a * SHAPE_ROWS + RADIUS, w] + shapes[b * SHAPE_ROWS + RADIUS, w]
    # a prism lies inside the cylinder it stands for
    a_is_round = hulls.hull_is_round[A.hull] == 1
    b_is_round = hulls.hull_is_round[B.hull] == 1
    if a_is_round:
        reach += r.dtype(PRISM_SLACK) * A.h[0]
    if b_is_round:
        reach += r.dtype(PRISM_SLACK) * B.h[0]
    count = int(0)
    side = int(1)
    face = hulls.hull_face[B.hull]
    edges = wp.vec2i(-1, -1)
    floor = r.dtype(-1.0e30)
    # a sphere and a cylinder need no search
    is_ball = b_is_round and hulls.hull_vertex[A.hull + 1] == ia + 1
    if is_ball:
        count = add_candidate(hull_code(VERTEX, ia), nearest_to_point(hulls, B, r * B.R), r, w, candidates, 0)
        face = -1
    elif not is_plane(hulls, b):
        status, v, points = gjk(hulls, A, B, ia, ib, reach, size, work, w)
        face = -1
        if status != FAR:
            axis = unit_or_up(v)
            if status == TOUCHING:
                axis = epa(hulls, A, B, ia, ib, -axis, size, work, w)
            side, face, face_axis, face_separated, edge_a, edge_b, best, separated, ia, ib = best_axis(
                hulls, A, B, ia, ib, axis, smaller
            )  # fmt: skip
            distance = wp.length(v)
            # nearer along no face and no pair of edges: between vertices, or a vertex and an edge
            if status == APART and distance - separated > r.dtype(20.0) * rounding(r) * (distance + size):
                count = add_sharp_contacts(hulls, A, B, axis, points, work, w, candidates)
            if count == 0 and edge_a >= 0:
                edges = wp.vec2i(hull_code(EDGE, edge_a), hull_code(EDGE, edge_b))
                floor = separated - r.dtype(FLAT_ADVANTAGE) * smaller
                if wp.dot(best, face_axis) < r.dtype(FLAT) or face_separated < floor:
                    count = add_candidate(edges[0], edges[1], best, w, candidates, 0)
            if count > 0:
                face = -1
    if face >= 0:
        x_is_a = side == FACE_OF_A
        X, Y, corner_y = B, A, ia
        if x_is_a:
            X, Y, corner_y = A, B, ib
        count = add_face_contacts(
            hulls, x_is_a, X, face, Y, corner_y, edges, wp.vector(floor, reach), smaller, w, candidates, work
        )  # fmt: skip
    if (a_is_round or b_is_round) and not is_ball:
        count = round_candidates(hulls, A, B, w, candidates, count)
    return count
