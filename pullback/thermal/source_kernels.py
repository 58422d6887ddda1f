"""The fraction of the beam's power that each node gets, one thread a step, and its adjoint.

docs/derivations/thermal.md, section 3.

A cell is a free face or an element, with points (x, y, z, size) and the shape functions of its corners at them. The
intensity at a point is exp(-E) with E = factor · sum of (offset / size)² along the beam's three axes; only its ratios
matter, because the weights of a step are normalized to sum to one.
"""

from functools import cache
from types import SimpleNamespace
from typing import Any

import warp as wp

from pullback.core.modules import kernel_module, made_once

# entries of `size`
FRONT = wp.constant(0)
BACK = wp.constant(1)
WIDTH = wp.constant(2)
DEPTH = wp.constant(3)


@wp.func
def sideways(along: Any):
    """Return the horizontal unit vector to the left of a horizontal direction of travel."""
    return type(along)(-along[1], along[0], along.dtype(0.0))


@wp.func
def beam_offset(point: Any, position: Any, along: Any):
    """Return the offset from the beam along its axes: travel, left, up."""
    x = point[0] - position[0]
    y = point[1] - position[1]
    z = point[2] - position[2]
    left = sideways(along)
    return type(position)(along[0] * x + along[1] * y, left[0] * x + left[1] * y, z)


@wp.func
def length_ahead(offset: Any, size: wp.array(dtype=Any)):
    """Return which entry of `size` counts along the travel."""
    entry = int(BACK)
    if offset[0] >= size.dtype(0.0):
        entry = int(FRONT)
    return entry


@wp.func
def exponent(offset: Any, size: wp.array(dtype=Any), factor: Any):
    """Return E, eq. (17)."""
    a = offset[0] / size[length_ahead(offset, size)]
    b = offset[1] / size[WIDTH]
    c = offset[2] / size[DEPTH]
    return factor * (a * a + b * b + c * c)


@cache
def spot_type(real: type) -> Any:
    """Return the struct of all that the beam heats, step by step, for one floating-point type."""
    vec3, vec4 = wp.types.vector(3, real), wp.types.vector(4, real)

    @wp.struct
    class Spot:
        factor: real
        points: wp.array2d(dtype=vec4)  # [cell, point]
        shapes: wp.array2d(dtype=real)  # [point, corner]
        cell_starts: wp.array(dtype=wp.int32)  # step -> its first cell; one more
        cells: wp.array(dtype=wp.int32)
        places: wp.array2d(dtype=wp.int32)  # [cell of a step, corner] -> entry of the step
        entry_starts: wp.array(dtype=wp.int32)  # step -> its first entry; one more
        along: wp.array(dtype=vec3)  # step -> horizontal direction of travel

    return Spot


@wp.func
def least_exponent(spot: Any, j: int, position: Any, along: Any, size: wp.array(dtype=Any)):
    """Return the smallest exponent of the points of step j: subtracted from all, so that not all intensities vanish."""
    lowest = size.dtype(1.0e30)
    for k in range(spot.cell_starts[j], spot.cell_starts[j + 1]):
        for q in range(spot.points.shape[1]):
            point = spot.points[spot.cells[k], q]
            if point[3] > size.dtype(0.0):
                lowest = wp.min(lowest, exponent(beam_offset(point, position, along), size, spot.factor))
    return lowest


@made_once
def source_kernels(real: type) -> SimpleNamespace:
    """Return the kernels from positions and sizes of the beam to weights, and back."""
    Spot = spot_type(real)
    vec3, vec4 = wp.types.vector(3, real), wp.types.vector(4, real)
    module = kernel_module("thermal_source", real)

    @wp.kernel(module=module)
    def weigh(
        first: int,
        spot: Spot,
        # in
        position: wp.array(dtype=vec3),
        size: wp.array(dtype=real),
        # out
        weight: wp.array(dtype=real),
        total: wp.array(dtype=real),
    ):
        j = first + wp.tid()
        start = spot.entry_starts[j]
        for entry in range(start, spot.entry_starts[j + 1]):
            weight[entry] = real(0.0)
        lowest = least_exponent(spot, j, position[j], spot.along[j], size)
        sum = real(0.0)
        for k in range(spot.cell_starts[j], spot.cell_starts[j + 1]):
            for q in range(spot.points.shape[1]):
                point = spot.points[spot.cells[k], q]
                E = exponent(beam_offset(point, position[j], spot.along[j]), size, spot.factor)
                intensity = point[3] * wp.exp(lowest - E)
                sum += intensity
                for corner in range(spot.shapes.shape[1]):
                    entry = start + spot.places[k, corner]
                    weight[entry] = weight[entry] + spot.shapes[q, corner] * intensity
        for entry in range(start, spot.entry_starts[j + 1]):
            weight[entry] = weight[entry] / sum
        total[j] = sum

    @wp.kernel(module=module)
    def weigh_vjp(
        first: int,
        spot: Spot,
        # in
        position: wp.array(dtype=vec3),
        size: wp.array(dtype=real),
        weight: wp.array(dtype=real),
        total: wp.array(dtype=real),
        adj_weight: wp.array(dtype=real),
        # out
        adj_position: wp.array(dtype=vec3),
        adj_size: wp.array(dtype=vec4),
    ):
        j = first + wp.tid()
        start = spot.entry_starts[j]
        mean = real(0.0)
        for entry in range(start, spot.entry_starts[j + 1]):
            mean += weight[entry] * adj_weight[entry]
        lowest = least_exponent(spot, j, position[j], spot.along[j], size)
        along = spot.along[j]
        left = sideways(along)
        adj_p = vec3()
        adj_s = vec4()
        two = real(2.0) * spot.factor
        for k in range(spot.cell_starts[j], spot.cell_starts[j + 1]):
            for q in range(spot.points.shape[1]):
                point = spot.points[spot.cells[k], q]
                offset = beam_offset(point, position[j], along)
                E = exponent(offset, size, spot.factor)
                pull = -mean
                for corner in range(spot.shapes.shape[1]):
                    pull += spot.shapes[q, corner] * adj_weight[start + spot.places[k, corner]]
                # eq. (19)
                adj_E = -pull * point[3] * wp.exp(lowest - E) / total[j]
                ahead = length_ahead(offset, size)
                length = size[ahead]
                a = two * adj_E * offset[0] / (length * length)
                b = two * adj_E * offset[1] / (size[WIDTH] * size[WIDTH])
                c = two * adj_E * offset[2] / (size[DEPTH] * size[DEPTH])
                adj_p -= vec3(a * along[0] + b * left[0], a * along[1] + b * left[1], c)
                front = real(0.0)
                back = a * offset[0] / length
                if ahead == FRONT:
                    front = back
                    back = real(0.0)
                adj_s -= vec4(front, back, b * offset[1] / size[WIDTH], c * offset[2] / size[DEPTH])
        adj_position[j] = adj_p
        adj_size[j] = adj_s

    return SimpleNamespace(weigh=weigh, weigh_vjp=weigh_vjp)
