"""Material tables at one temperature: enthalpy, capacity, conductivity and its integral (docs/derivations/thermal.md).

Notation: a material is rows of segments, sorted, the first and the last of them half-infinite. Inside a segment cp and
k are linear in T, so that the sensible enthalpy and the Kirchhoff potential u are quadratic. `phase` is the material's
(latent heat, solidus, liquidus, density, 1 / (liquidus - solidus)). A row's index is found from a hint, which is a
guess and never a result.
"""

from typing import Any

import warp as wp

# entries of a segment's row
LOWER = wp.constant(0)
UPPER = wp.constant(1)
ANCHOR = wp.constant(2)
CP = wp.constant(3)
CP_SLOPE = wp.constant(4)
K = wp.constant(5)
K_SLOPE = wp.constant(6)
POTENTIAL = wp.constant(7)
ENTHALPY = wp.constant(8)
WIDTH = wp.constant(9)
SEGMENT_ROW = 10

# entries of a phase
LATENT = wp.constant(0)
SOLIDUS = wp.constant(1)
LIQUIDUS = wp.constant(2)
DENSITY = wp.constant(3)
STEEPNESS = wp.constant(4)  # one over liquidus minus solidus
PHASE = 5

# entries of `air`
CONVECTION = wp.constant(0)
RADIATION = wp.constant(1)  # emissivity times the Stefan-Boltzmann constant
AMBIENT = wp.constant(2)
BIRTH = wp.constant(3)


@wp.func
def find_segment(rows: wp.array(dtype=Any), hint: int, T: Any):
    """Return the row that T is in, searching from a row of the same material."""
    s = int(hint)
    # a temperature that overflowed stays in the last segment, which has no upper end
    while T >= rows[s][UPPER] and wp.isfinite(rows[s][UPPER]):
        s += 1
    while T < rows[s][LOWER]:
        s -= 1
    return s


@wp.func
def melt_position(phase: Any, T: Any):
    """Return x, from 0 at the solidus to 1 at the liquidus, eq. (4)."""
    return wp.clamp((T - phase[SOLIDUS]) * phase[STEEPNESS], type(T)(0.0), type(T)(1.0))


@wp.func
def liquid(x: Any):
    """Return the share of the latent heat taken up at x, eq. (4)."""
    return x * x * (type(x)(3.0) - type(x)(2.0) * x)


@wp.func
def liquid_rate(x: Any):
    """Return the derivative of `liquid`."""
    return type(x)(6.0) * x * (type(x)(1.0) - x)


@wp.func
def enthalpy(row: Any, phase: Any, T: Any):
    """Return the enthalpy [J/kg] above the table's first temperature, eq. (3)."""
    d = T - row[ANCHOR]
    sensible = row[ENTHALPY] + d * (row[CP] + type(T)(0.5) * row[CP_SLOPE] * d)
    return sensible + phase[LATENT] * liquid(melt_position(phase, T))


@wp.func
def capacity(row: Any, phase: Any, T: Any):
    """Return dh/dT [J/(kg K)], latent heat included."""
    latent = phase[LATENT] * liquid_rate(melt_position(phase, T)) * phase[STEEPNESS]
    return row[CP] + row[CP_SLOPE] * (T - row[ANCHOR]) + latent


@wp.func
def conductivity(row: Any, T: Any):
    """Return k [W/(m K)]."""
    return row[K] + row[K_SLOPE] * (T - row[ANCHOR])


@wp.func
def potential(row: Any, T: Any):
    """Return the Kirchhoff potential u [W/m], the integral of k, eq. (2)."""
    d = T - row[ANCHOR]
    return row[POTENTIAL] + d * (row[K] + type(T)(0.5) * row[K_SLOPE] * d)


@wp.func
def sensible_rise(row: Any, a: Any, b: Any):
    """Return the integral of cp from a to b, both in one segment."""
    return (b - a) * (row[CP] + row[CP_SLOPE] * (type(a)(0.5) * (a + b) - row[ANCHOR]))


@wp.func
def enthalpy_rise(rows: wp.array(dtype=Any), phase: Any, hint: int, T: Any, new: Any):
    """Return h(new) - h(T), summed over the segments between: zero for equal temperatures, and no cancellation."""
    s = find_segment(rows, hint, T)
    t = type(T)(T)
    rise = phase[LATENT] * (liquid(melt_position(phase, new)) - liquid(melt_position(phase, T)))
    while new >= rows[s][UPPER] and wp.isfinite(rows[s][UPPER]):
        rise += sensible_rise(rows[s], t, rows[s][UPPER])
        t = rows[s][UPPER]
        s += 1
    while new < rows[s][LOWER]:
        rise += sensible_rise(rows[s], t, rows[s][LOWER])
        t = rows[s][LOWER]
        s -= 1
    return rise + sensible_rise(rows[s], t, new)
