"""Samples of one shape against the field of another: which touch, and the contact's adjoint (docs/derivations/sdf.md).

The sampled shape is X, the one with the field Y; everything here is in Y's frame. A contact is known by its sample:
gap, point and normal follow from it in closed form, eqs. (16) and (17).
"""

from typing import Any

import warp as wp

from pullback.sdf.field_kernels import field_value_gradient, field_vjp
from pullback.sdf.fields import CLUSTER, EDGE, HALVINGS, PART, PARTS, Fields
from pullback.spatial.vectors import unit_or_up

FLATTEST = wp.constant(0.9)
"""A gradient shorter than this is not used to turn a value into a distance: a longer distance would lose contacts."""

EQUAL = wp.constant(1.0e-3)
"""Gaps that differ by less than this part of the margin count as equal: the outermost sample stays."""


@wp.func
def distance_of(value: Any, gradient: Any):
    """Return the distance to first order, eq. (16)."""
    return value / wp.max(wp.length(gradient), gradient.dtype(FLATTEST))


@wp.func
def sample_position(fields: Fields, sample: int, size: Any):
    """Return a sample in the frame of its shape; size: half extents of a core, (1, 1, 1) for meshes and fields."""
    behind = 3 * sample - fields.sample.shape[0]
    position = size
    if behind < 0:
        position = wp.vector(
            size.dtype(fields.sample[3 * sample]),
            size.dtype(fields.sample[3 * sample + 1]),
            size.dtype(fields.sample[3 * sample + 2]),
        )
    else:
        edge = behind // (3 * PARTS)
        part = size.dtype(behind // 3 - edge * PARTS) * size.dtype(PART)
        at = edge * EDGE
        position = wp.vector(
            size.dtype(fields.edge[at]) + part * size.dtype(fields.edge[at + 3]),
            size.dtype(fields.edge[at + 1]) + part * size.dtype(fields.edge[at + 4]),
            size.dtype(fields.edge[at + 2]) + part * size.dtype(fields.edge[at + 5]),
        )
    return wp.cw_mul(size, position)


@wp.func
def deepest_sample(
    fields: Fields, field: int, parameters: wp.array2d(dtype=Any), base: int, cluster: int, size: Any, radius: Any,
    R: Any, p: Any, margin: Any, w: int, stack: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return of a cluster's samples the deepest: its number (-1: none is near), point, distance, normal.

    R, p: pose R_YX, p_YX of the sampled shape in the field's frame. size, radius: the sampled shape's, see
    `sample_position`. A sample is near if its distance less the radius is below the margin. Where the field has a bound
    of its slope, a look at the cluster's centre may spare the rest. Each edge is halved towards where the distance
    falls, as long as its slope there promises more than has been found, eq. (17a).
    """
    first = fields.cluster_first[cluster]
    count = fields.cluster_first[cluster + 1] - first
    first_edge = fields.edge_first[cluster]
    at = cluster * CLUSTER
    near = margin + radius
    best = near
    best_x = p
    best_g = p
    found = int(-1)
    slope = p.dtype(fields.slope[field])
    part = int(0)
    width = int(0)
    last = 1 + count + HALVINGS * (fields.edge_first[cluster + 1] - first_edge)
    # the cluster's centre first, if that may be worth while
    k = int(0)
    if last < 4 or slope == p.dtype(0.0):
        k = int(1)
    while k < last:
        sample = first + k - 1
        edge = first_edge
        local = p
        if k == 0:
            local = wp.vector(
                size[0] * p.dtype(fields.cluster[at]),
                size[1] * p.dtype(fields.cluster[at + 1]),
                size[2] * p.dtype(fields.cluster[at + 2]),
            )
        else:
            if k > count:
                halving = k - 1 - count
                edge += halving // HALVINGS
                if halving % HALVINGS == 0:
                    part = PARTS // 2
                    width = PARTS // 2
                sample = fields.sample.shape[0] // 3 + edge * PARTS + part
            local = sample_position(fields, sample, size)
        x = p + R * local
        value, g = field_value_gradient(fields, field, parameters, base, x, w, stack)
        k += 1
        if k == 1:
            reach = p.dtype(fields.cluster[at + 3]) * wp.max(wp.max(size[0], size[1]), size[2])
            if value > slope * (near + reach):
                k = last
        else:
            distance = distance_of(value, g)
            bar = best
            if found >= 0:
                bar = best - margin * p.dtype(EQUAL)
            if distance < bar:
                found = sample
                best = distance
                best_x = x
                best_g = g
            if k > count + 1:
                along = distance_of(edge_slope(fields, edge, size, R, g), g) * p.dtype(PART)
                if distance - wp.abs(along) * p.dtype(width) >= bar:
                    k = 1 + count + HALVINGS * (edge + 1 - first_edge)
                width = width // 2
                part += wp.where(along > p.dtype(0.0), -width, width)
    return found, best_x, best, unit_or_up(best_g)


@wp.func
def edge_slope(fields: Fields, edge: int, size: Any, R: Any, g: Any):
    """Return by how much a field of gradient g grows along an edge as a whole; R: axes of the edge's shape."""
    at = edge * EDGE
    way = wp.vector(
        size[0] * size.dtype(fields.edge[at + 3]),
        size[1] * size.dtype(fields.edge[at + 4]),
        size[2] * size.dtype(fields.edge[at + 5]),
    )
    return wp.dot(g, R * way)


@wp.func
def sample_contact_vjp(
    fields: Fields, field: int, parameters: wp.array2d(dtype=Any), base: int, x: Any, radius: Any, adj_gap: Any,
    adj_point: Any, adj_normal: Any, w: int, adj_parameters: wp.array2d(dtype=Any), work: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return push, adj_n and adj_radius, eqs. (18) to (20), and add the cotangents of the parameters.

    x: the sample in the field's frame. push: what x gets through the field, to which adj_point comes for the sampled
    shape, and of which the field's own shape gets the opposite. adj_n: what turns the normal.
    work: TAPE_ROWS rows of scratch.
    """
    value, g = field_value_gradient(fields, field, parameters, base, x, w, work)
    length = wp.length(g)
    n = unit_or_up(g)
    half = x.dtype(0.5)
    distance = distance_of(value, g)
    along = half * wp.dot(n, adj_point)
    adj_distance = adj_gap - along
    adj_n = adj_normal - half * (distance + radius) * adj_point
    # n = g / |g|, distance = value / |g|
    adj_g = x - x
    if length > x.dtype(0.0):
        adj_g = (adj_n - wp.dot(n, adj_n) * n) / length
    adj_value = adj_distance / wp.max(length, x.dtype(FLATTEST))
    if length > x.dtype(FLATTEST):
        adj_g -= (adj_value * distance) * n
    push = field_vjp(fields, field, parameters, base, x, adj_value, adj_g, w, adj_parameters, work)
    return push, adj_n, -adj_gap - along
