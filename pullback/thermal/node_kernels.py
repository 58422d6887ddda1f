"""A growing part as kernels see it, and what happens in one of its nodes (docs/derivations/thermal.md).

Arrays over nodes are in the order of their birth, so that those alive are the first. `flows` holds what the elements
send to their corners; `slots` are the eight entries of it that a node sums, 8 element + corner, elements in the order
of birth; entries that are not needed are beyond all elements. A node of more than eight elements has the others in
`more`. Material comes to a node with its elements: `volume` [material, node] and `area` [node] are what is there now.
"""

from functools import cache
from typing import Any

import warp as wp

from pullback.thermal.conduction_kernels import vectors
from pullback.thermal.table_kernels import (
    AMBIENT,
    ANCHOR,
    CONVECTION,
    CP,
    CP_SLOPE,
    DENSITY,
    LATENT,
    LIQUIDUS,
    LOWER,
    PHASE,
    RADIATION,
    SEGMENT_ROW,
    SOLIDUS,
    UPPER,
    capacity,
    enthalpy_rise,
    find_segment,
    potential,
)

# rows of the ledger: heat [J] that came into a node, from the air and from what holds its temperature
LEDGER_CONVECTION = wp.constant(0)
LEDGER_RADIATION = wp.constant(1)
LEDGER_HELD = wp.constant(2)
LEDGER_ROWS = 3


@cache
def part_type(real: type) -> Any:
    """Return the struct of a growing part for one floating-point type."""
    corners = vectors(real)[0]
    row, phase = wp.types.vector(SEGMENT_ROW, real), wp.types.vector(PHASE, real)

    @wp.struct
    class Part:
        slots: wp.array(dtype=corners)
        more_starts: wp.array(dtype=wp.int32)  # absent: no node has more than eight elements
        more: wp.array(dtype=wp.int32)
        material: wp.array(dtype=wp.int32)  # of each element; absent: there is one material
        held: wp.array(dtype=wp.int32)  # 1: the node's temperature is held
        rows: wp.array(dtype=row)  # segments of the tables, materials one after the other
        phases: wp.array(dtype=phase)  # of each material
        air: wp.array(dtype=real)
        volume: wp.array2d(dtype=real)
        area: wp.array(dtype=real)
        hints: wp.array2d(dtype=wp.int32)  # the segment each node was in last: a guess, never a result

    return Part


@wp.func
def gather_flows(part: Any, alive: int, m: int, flows: wp.array(dtype=Any), i: int):
    """Sum what the living elements send to node i, those of material m only unless that is -1."""
    total = flows.dtype(0.0)
    entries = part.slots[i]
    if m < 0:
        for k in range(8):
            entry = entries[k]
            # without a branch: what is not alive is read and dropped
            total += wp.where(entry < alive, flows[entry], flows.dtype(0.0))
    else:
        for k in range(8):
            entry = entries[k]
            if entry < alive:
                if part.material[entry // 8] == m:
                    total += flows[entry]
    if part.more_starts:
        for k in range(part.more_starts[i], part.more_starts[i + 1]):
            entry = part.more[k]
            if entry < alive:
                if m < 0:
                    total += flows[entry]
                elif part.material[entry // 8] == m:
                    total += flows[entry]
    return total


@wp.func
def air_flow(air: wp.array(dtype=Any), area: Any, T: Any):
    """Return the heat flow [W] from the air into a node, by convection and by radiation, eq. (6)."""
    square = T * T
    warm = air[AMBIENT] * air[AMBIENT]
    return area * air[CONVECTION] * (air[AMBIENT] - T), area * air[RADIATION] * (warm * warm - square * square)


@wp.func
def air_slope(air: wp.array(dtype=Any), area: Any, T: Any):
    """Return how much less heat flow [W/K] the air gives as the node warms, eq. (11)."""
    return area * (air[CONVECTION] + type(T)(4.0) * air[RADIATION] * T * T * T)


@wp.func
def write_potentials(part: Any, i: int, T: Any, u: wp.array2d(dtype=Any)):
    """Write the Kirchhoff potential of node i for every material."""
    for m in range(u.shape[0]):
        s = find_segment(part.rows, part.hints[m, i], T)
        part.hints[m, i] = s
        u[m, i] = potential(part.rows[s], T)


@wp.func
def heat_between(part: Any, volume: wp.array2d(dtype=Any), i: int, T: Any, new: Any):
    """Return the heat [J] that takes node i from T to `new`, all its materials together."""
    heat = type(T)(0.0)
    for m in range(part.phases.shape[0]):
        phase = part.phases[m]
        heat += phase[DENSITY] * volume[m, i] * enthalpy_rise(part.rows, phase, part.hints[m, i], T, new)
    return heat


@wp.func
def heat_capacity(part: Any, volume: wp.array2d(dtype=Any), i: int, T: Any):
    """Return node i's heat capacity [J/K] at T, and leave the hints there."""
    total = type(T)(0.0)
    for m in range(part.phases.shape[0]):
        phase = part.phases[m]
        s = find_segment(part.rows, part.hints[m, i], T)
        part.hints[m, i] = s
        total += phase[DENSITY] * volume[m, i] * capacity(part.rows[s], phase, T)
    return total


@wp.func
def temperature_after(part: Any, volume: wp.array2d(dtype=Any), i: int, T: Any, heat: Any, tolerance: Any):
    """Return the temperature of node i once it has taken up `heat` [J] at T, eq. (7).

    Inside one segment and away from melting this is the root of a quadratic. Otherwise Newton's method with a bracket
    that shrinks; the heat is an increasing function of the temperature.
    """
    zero = type(T)(0.0)
    if part.phases.shape[0] == 1:
        phase = part.phases[0]
        s = find_segment(part.rows, part.hints[0, i], T)
        part.hints[0, i] = s
        row = part.rows[s]
        specific = heat / (phase[DENSITY] * volume[0, i])
        cp = row[CP] + row[CP_SLOPE] * (T - row[ANCHOR])
        square = cp * cp + type(T)(2.0) * row[CP_SLOPE] * specific
        if square > zero:
            mean = cp
            if row[CP_SLOPE] != zero:
                mean = type(T)(0.5) * (cp + wp.sqrt(square))
            new = T + specific / mean
            inside = new >= row[LOWER] and new < row[UPPER]
            solid = wp.max(T, new) <= phase[SOLIDUS]
            melt = wp.min(T, new) >= phase[LIQUIDUS]
            if inside and (solid or melt or phase[LATENT] == zero):
                return new
    x = T + heat / heat_capacity(part, volume, i, T)
    lower = type(T)(-1.0e30)
    upper = type(T)(1.0e30)
    if heat >= zero:
        lower = T
    else:
        upper = T
    before = type(T)(1.0e30)
    for _ in range(100):
        excess = heat_between(part, volume, i, T, x) - heat
        if excess > zero:
            upper = x
        else:
            lower = x
        slope = zero
        for m in range(part.phases.shape[0]):
            phase = part.phases[m]
            s = find_segment(part.rows, part.hints[m, i], x)
            slope += phase[DENSITY] * volume[m, i] * capacity(part.rows[s], phase, x)
        new = x - excess / slope
        step = wp.abs(new - x)
        beyond = new <= lower or new >= upper
        if beyond and step <= tolerance * wp.abs(x):
            return x
        # across melting Newton's steps may alternate between two places: bisect if one is not half as long as the last
        circles = step > type(T)(0.5) * before and step > type(T)(64.0) * tolerance * wp.abs(x)
        if beyond or (circles and upper - lower < type(T)(1.0e29)):
            new = type(T)(0.5) * (lower + upper)
        before = wp.abs(new - x)
        if wp.abs(new - x) <= tolerance * wp.abs(x):
            return new
        x = new
    return x
