"""Cotangents of the numbers that all nodes share, summed over steps per node (docs/derivations/thermal.md, section 5).

Rows of `sums`, in float64: four of the air, then for each material four of its phase and six for each segment of its
table. A table's six, for cp and then for k: the factor of the integral up to the segment's lower end, and the
weights of the values at its two ends.
"""

from typing import Any

import warp as wp

from pullback.thermal.table_kernels import (
    AMBIENT,
    ANCHOR,
    CONVECTION,
    DENSITY,
    LATENT,
    LIQUIDUS,
    RADIATION,
    SOLIDUS,
    STEEPNESS,
    WIDTH,
    enthalpy,
    liquid,
    liquid_rate,
    melt_position,
)

AIR_ROWS = wp.constant(4)
PHASE_ROWS = wp.constant(4)
TABLE_ROWS = wp.constant(6)


@wp.func
def material_rows(segments: int, m: int):
    """Return the first row of material m."""
    return AIR_ROWS + m * (PHASE_ROWS + TABLE_ROWS * segments)


@wp.func
def add_segment(row: Any, T: Any, factor: wp.float64, start: int, i: int, sums: wp.array2d(dtype=wp.float64)):
    """Add factor times the derivative of a table's integral up to T, by the table's values, eq. (15)."""
    d = wp.float64(T - row[ANCHOR])
    # the half-infinite segments have no width: all of d belongs to the value at their end
    far = wp.float64(0.0)
    if row[WIDTH] > type(T)(0.0):
        far = d * d / (wp.float64(2.0) * wp.float64(row[WIDTH]))
    sums[start, i] += factor
    sums[start + 1, i] += factor * (d - far)
    sums[start + 2, i] += factor * far


@wp.func
def add_potential(row: Any, T: Any, factor: wp.float64, segments: int, m: int, s: int, i: int,
                  sums: wp.array2d(dtype=wp.float64)):  # fmt: skip
    """Add factor times the derivative of u(T) by the conductivities."""
    add_segment(row, T, factor, material_rows(segments, m) + PHASE_ROWS + TABLE_ROWS * s + 3, i, sums)


@wp.func
def add_enthalpy(row: Any, phase: Any, volume: Any, T: Any, factor: wp.float64, segments: int, m: int, s: int, i: int,
                 sums: wp.array2d(dtype=wp.float64)):  # fmt: skip
    """Add factor times the derivative of rho V h(T) by the material's numbers, eq. (14)."""
    start = material_rows(segments, m)
    bulk = factor * wp.float64(volume)
    mass = bulk * wp.float64(phase[DENSITY])
    x = melt_position(phase, T)
    steep = wp.float64(phase[LATENT] * liquid_rate(x) * phase[STEEPNESS])
    sums[start + LATENT, i] += mass * wp.float64(liquid(x))
    sums[start + SOLIDUS, i] += mass * steep * wp.float64(x - type(T)(1.0))
    sums[start + LIQUIDUS, i] -= mass * steep * wp.float64(x)
    sums[start + DENSITY, i] += bulk * wp.float64(enthalpy(row, phase, T))
    add_segment(row, T, mass, start + PHASE_ROWS + TABLE_ROWS * s, i, sums)


@wp.func
def add_air(air: wp.array(dtype=Any), area: Any, T: Any, factor: Any, i: int, sums: wp.array2d(dtype=wp.float64)):
    """Add factor times the derivative of the heat from the air by its numbers, eq. (16)."""
    ambient = air[AMBIENT]
    wide = wp.float64(factor * area)
    sums[CONVECTION, i] += wide * wp.float64(ambient - T)
    sums[RADIATION, i] += wide * wp.float64(ambient * ambient * ambient * ambient - T * T * T * T)
    sums[AMBIENT, i] += wide * wp.float64(air[CONVECTION] + type(T)(4.0) * air[RADIATION] * ambient * ambient * ambient)
