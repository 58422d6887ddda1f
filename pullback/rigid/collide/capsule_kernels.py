"""Which features of capsules touch each other and boxes (docs/derivations/collision.md, "Capsules").

A capsule's core is the segment c + t d, |t| <= l, along its z axis. Gap, point and normal, and their
adjoint, follow from the features: geometry_kernels.py.
"""

from typing import Any

import warp as wp

from pullback.rigid.collide.features_kernels import (
    EDGE,
    FACE,
    VERTEX,
    bordering,
    column,
    encode,
    encode_on_axis,
    feature_axis,
    feature_kind,
    feature_sign,
    half_extents,
    nearest_feature,
    shape_pose,
    side,
)
from pullback.rigid.collide.geometry_kernels import add_candidate, line_parameters
from pullback.rigid.compile.scene import Scene

PARALLEL = wp.constant(1.0e-4)  # squared sine of the angle below which two directions count as parallel
LEAN = wp.constant(0.1)  # how far a contact normal may lie outside the normal cone of an edge (sine of the angle)
EDGE_PREFERENCE = wp.constant(0.95)  # an edge is chosen over a face if it is less deep by this factor


@wp.func
def segment_end(end: int):
    """Return the code of the end -1 or 1 of a capsule's core."""
    return encode(VERTEX, 0, 0, 0, end)


@wp.func
def end_against_segment(x: Any, centre: Any, d: Any, l: Any):
    """Return the nearest feature of a segment to a point, and the squared distance."""
    r = x - centre
    u = wp.dot(d, r)
    code = encode(EDGE, 2, 0, 0, 0)
    if wp.abs(u) >= l:
        code = segment_end(side(u))
    r -= wp.clamp(u, -l, l) * d
    return code, wp.dot(r, r)


@wp.func
def collide_capsules(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    candidates: wp.array2d(dtype=Any), pair: int,
):  # fmt: skip
    """Add the nearest features of two capsules; of parallel ones, both ends of the interval where they overlap."""
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    Ra, pa = shape_pose(scene, poses, shapes, a, w)
    Rb, pb = shape_pose(scene, poses, shapes, b, w)
    da = column(Ra, 2)
    db = column(Rb, 2)
    ha = half_extents(shapes, a, w)
    hb = half_extents(shapes, b, w)
    la = ha[2]
    lb = hb[2]
    r = pa - pb
    cosine = wp.dot(da, db)
    edge = encode(EDGE, 2, 0, 0, 0)
    count = int(0)
    chosen = bool(False)
    if r.dtype(1.0) - cosine * cosine < r.dtype(PARALLEL):
        low = -wp.dot(da, r) - lb
        high = low + lb + lb
        if wp.min(la, high) > wp.max(-la, low):
            chosen = True
            turned = side(cosine)
            low_a = segment_end(-1)
            low_b = edge
            if low > -la:
                low_a = edge
                low_b = segment_end(-turned)
            high_a = segment_end(1)
            high_b = edge
            if high < la:
                high_a = edge
                high_b = segment_end(turned)
            count = add_candidate(low_a, low_b, r, w, candidates, count)
            count = add_candidate(high_a, high_b, r, w, candidates, count)
    else:
        t, u = line_parameters(r, da, db)
        if wp.abs(t) < la and wp.abs(u) < lb:
            chosen = True
            count = add_candidate(edge, edge, r, w, candidates, count)
    if not chosen:
        # an end of one is nearest: the best of the four
        code_a = segment_end(-1)
        code_b, best = end_against_segment(pa - la * da, pb, db, lb)
        code, square = end_against_segment(pa + la * da, pb, db, lb)
        if square < best:
            best = square
            code_a = segment_end(1)
            code_b = code
        code, square = end_against_segment(pb - lb * db, pa, da, la)
        if square < best:
            best = square
            code_a = code
            code_b = segment_end(-1)
        code, square = end_against_segment(pb + lb * db, pa, da, la)
        if square < best:
            code_a = code
            code_b = segment_end(1)
        count = add_candidate(code_a, code_b, r, w, candidates, count)
    return count


@wp.func
def is_free(code: int, axis: int):
    """Return whether a feature extends along an axis."""
    free = feature_axis(code) != axis
    if feature_kind(code) == EDGE:
        free = feature_axis(code) == axis
    return free


@wp.func
def inside_interval(x: Any, d: Any, l: Any, h: Any):
    """Return the first and the last t of the segment x + t d inside a box; the first is larger if there is none."""
    first = -l
    last = l
    for k in range(3):
        if d[k] == d.dtype(0.0):
            if wp.abs(x[k]) > h[k]:
                first = last + l + l
        else:
            entry = (-h[k] * wp.sign(d[k]) - x[k]) / d[k]
            leave = (h[k] * wp.sign(d[k]) - x[k]) / d[k]
            first = wp.max(first, entry)
            last = wp.min(last, leave)
    return first, last


@wp.func
def slope(x: Any, d: Any, h: Any, t: Any):
    """Return half the derivative by t of the squared distance of x + t d to a box."""
    y = x + t * d
    out = y - wp.vector(wp.clamp(y[0], -h[0], h[0]), wp.clamp(y[1], -h[1], h[1]), wp.clamp(y[2], -h[2], h[2]))
    return wp.dot(out, d)


@wp.func
def nearest_interval(x: Any, d: Any, l: Any, h: Any):
    """Return the interval, between two kinks of the slope, in which the segment is nearest to a box, eq. (11)."""
    zero = d.dtype(0.0)
    low = -l
    high = l
    if slope(x, d, h, low) >= zero:
        high = low
    elif slope(x, d, h, high) <= zero:
        low = high
    else:
        for k in range(3):
            if d[k] != zero:
                for i in range(2):
                    t = (d.dtype(2 * i - 1) * h[k] - x[k]) / d[k]
                    if t > low and t < high:
                        if slope(x, d, h, t) <= zero:
                            low = t
                        else:
                            high = t
    return low, high


@wp.func
def leans_out(d: Any, edge: int, along: int):
    """Return whether the normal of a segment d over a box edge, next to the face `along`, is outside its cone."""
    axis = feature_axis(edge)
    other = 3 - axis - along
    zero = d.dtype(0.0)
    one = d.dtype(1.0)
    e = wp.vector(wp.where(axis == 0, one, zero), wp.where(axis == 1, one, zero), wp.where(axis == 2, one, zero))
    n = wp.normalize(wp.cross(d, e))
    up = d.dtype(feature_sign(edge, along)) * n[along]
    out = d.dtype(feature_sign(edge, other)) * n[other]
    return wp.sign(up) * out < -d.dtype(LEAN)


@wp.func
def add_interval(
    x: Any, d: Any, l: Any, h: Any, R: Any, region: int, strict: bool, w: int, candidates: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add both ends of the interval of the segment that lies over a face, or along an edge, of the box."""
    low = -l
    high = l
    low_a = segment_end(-1)
    high_a = segment_end(1)
    low_b = region
    high_b = region
    edge = encode(EDGE, 2, 0, 0, 0)
    for k in range(3):
        if is_free(region, k) and d[k] != d.dtype(0.0):
            ahead = side(d[k])
            entry = (-d.dtype(ahead) * h[k] - x[k]) / d[k]
            leave = (d.dtype(ahead) * h[k] - x[k]) / d[k]
            if entry > low:
                low = entry
                low_a = edge
                low_b = bordering(region, k, -ahead)
            if leave < high:
                high = leave
                high_a = edge
                high_b = bordering(region, k, ahead)
    count = int(0)
    along = feature_axis(region)
    outwards = d.dtype(feature_sign(region, along)) * column(R, along)
    if low <= high:
        for i in range(2):
            code_a = wp.where(i == 0, low_a, high_a)
            code_b = wp.where(i == 0, low_b, high_b)
            edges = feature_kind(code_a) == EDGE and feature_kind(code_b) == EDGE
            if not (edges and strict and leans_out(d, code_b, along)):
                count = add_candidate(code_a, code_b, outwards, w, candidates, count)
    return count


@wp.func
def deepest_axis(x: Any, d: Any, l: Any, h: Any):
    """Return the face or the edge of a box through which a segment inside it comes out soonest, eq. (12)."""
    best = wp.abs(x[0]) - l * wp.abs(d[0]) - h[0]
    axis = int(0)
    for k in range(1, 3):
        depth = wp.abs(x[k]) - l * wp.abs(d[k]) - h[k]
        if depth > best:
            best = depth
            axis = k
    code = encode_on_axis(FACE, axis, side(x[axis]))
    best *= d.dtype(EDGE_PREFERENCE)
    zero = d.dtype(0.0)
    one = d.dtype(1.0)
    for k in range(3):
        e = wp.vector(wp.where(k == 0, one, zero), wp.where(k == 1, one, zero), wp.where(k == 2, one, zero))
        n = wp.cross(d, e)
        square = wp.dot(n, n)
        if square > d.dtype(PARALLEL):
            n = n * (d.dtype(side(wp.dot(n, x))) / wp.sqrt(square))
            depth = wp.dot(n, x) - wp.abs(n[0]) * h[0] - wp.abs(n[1]) * h[1] - wp.abs(n[2]) * h[2]
            if depth > best:
                best = depth
                code = encode(
                    EDGE, k, wp.where(k == 0, 0, side(n[0])), wp.where(k == 1, 0, side(n[1])),
                    wp.where(k == 2, 0, side(n[2])),
                )  # fmt: skip
    return code


@wp.func
def collide_capsule_box(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any, w: int,
    candidates: wp.array2d(dtype=Any), pair: int,
):  # fmt: skip
    """Add the features of capsule a and box b: two pairs where it lies over a face or along an edge, else one."""
    a = scene.pair_a[pair]
    b = scene.pair_b[pair]
    Ra, pa = shape_pose(scene, poses, shapes, a, w)
    Rb, pb = shape_pose(scene, poses, shapes, b, w)
    h = half_extents(shapes, b, w)
    ha = half_extents(shapes, a, w)
    l = ha[2]
    # the segment in the box's frame
    x = (pa - pb) * Rb
    d = column(Ra, 2) * Rb
    first, last = inside_interval(x, d, l, h)
    pierced = first < last
    code_a = encode(EDGE, 2, 0, 0, 0)
    code_b = code_a
    if pierced:
        code_b = deepest_axis(x, d, l, h)
    else:
        low, high = nearest_interval(x, d, l, h)
        code_b = nearest_feature(x + d.dtype(0.5) * (low + high) * d, h)
        if low == high:
            code_a = segment_end(side(low))
    kind_b = feature_kind(code_b)
    along = feature_axis(code_b)
    over_interval = kind_b == FACE
    region = code_b
    if kind_b == EDGE:
        if d.dtype(1.0) - d[along] * d[along] < d.dtype(PARALLEL):
            over_interval = True
        elif feature_kind(code_a) == EDGE and not pierced:
            # over an edge, but nearly parallel to one of its faces
            for i in range(1, 3):
                k = (along + i) % 3
                tilt = d[k] * d[k] / (d.dtype(1.0) - d[along] * d[along])
                if tilt < d.dtype(LEAN) * d.dtype(LEAN):
                    over_interval = True
                    region = encode_on_axis(FACE, k, feature_sign(code_b, k))
    count = int(0)
    if over_interval:
        count = add_interval(x, d, l, h, Rb, region, not pierced, w, candidates)
    if count == 0:
        # no interval, or one that passes beside the face
        outwards = x
        if feature_kind(code_a) == EDGE and kind_b == EDGE:
            k = (along + 1) % 3
            m = (along + 2) % 3
            outwards = d.dtype(feature_sign(code_b, k)) * column(Rb, k) + d.dtype(feature_sign(code_b, m)) * column(
                Rb, m
            )
        count = add_candidate(code_a, code_b, outwards, w, candidates, count)
    return count
