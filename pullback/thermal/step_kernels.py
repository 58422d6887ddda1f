"""An explicit step, a thread a node (docs/derivations/thermal.md).

Arrays over nodes are in the order of their birth, so that those alive are the first. `flows` holds what the elements
send to their corners; `slots` are the eight places of it where a node looks, 8 element + corner, elements in the order
of birth, and what is not needed is beyond all elements. A node of more than eight elements has the others in `more`.
Material comes to a node with its elements, and `volume` [material, node] and `area` say how much is there now.
"""

from functools import cache
from types import SimpleNamespace
from typing import Any

import warp as wp

from pullback.core.modules import kernel_module, made_once
from pullback.thermal.conduction_kernels import vectors
from pullback.thermal.table_kernels import (
    AMBIENT,
    BIRTH,
    CONVECTION,
    GLOW,
    PHASE,
    SEGMENT_ROW,
    find_segment,
    heat_of,
    heated,
    potential,
)

# rows of the ledger: heat [J] that came into a node, from the air and from what holds it
LEDGER_CONVECTION = wp.constant(0)
LEDGER_RADIATION = wp.constant(1)
LEDGER_HELD = wp.constant(2)
LEDGER_ROWS = 3


@cache
def row_types(real: type) -> tuple[type, type]:
    """Return the types of a segment of a table and of a phase."""
    return wp.types.vector(SEGMENT_ROW, real), wp.types.vector(PHASE, real)


@wp.func
def gathered(slots: wp.array(dtype=Any), more_starts: wp.array(dtype=wp.int32), more: wp.array(dtype=wp.int32),
             alive: int, material: wp.array(dtype=wp.int32), m: int, flows: wp.array(dtype=Any), i: int):  # fmt: skip
    """Sum what the living elements send to node i, those of material m only unless that is -1."""
    total = flows.dtype(0.0)
    entries = slots[i]
    if m < 0:
        for k in range(8):
            entry = entries[k]
            # without a branch: what is not alive is read and dropped
            total += wp.where(entry < alive, flows[entry], flows.dtype(0.0))
    else:
        for k in range(8):
            entry = entries[k]
            if entry < alive:
                if material[entry // 8] == m:
                    total += flows[entry]
    if more_starts:
        for k in range(more_starts[i], more_starts[i + 1]):
            entry = more[k]
            if entry < alive:
                if m < 0:
                    total += flows[entry]
                elif material[entry // 8] == m:
                    total += flows[entry]
    return total


@wp.func
def from_air(air: wp.array(dtype=Any), area: Any, T: Any):
    """Return the heat flow [W] from the air into a node, by convection and by radiation, eq. (6)."""
    square = T * T
    warm = air[AMBIENT] * air[AMBIENT]
    return area * air[CONVECTION] * (air[AMBIENT] - T), area * air[GLOW] * (warm * warm - square * square)


@wp.func
def air_slope(air: wp.array(dtype=Any), area: Any, T: Any):
    """Return how much less heat flow [W/K] the air gives as the node warms, eq. (11)."""
    return area * (air[CONVECTION] + type(T)(4.0) * air[GLOW] * T * T * T)


@wp.func
def write_potentials(rows: wp.array(dtype=Any), hints: wp.array2d(dtype=wp.int32), i: int, T: Any,
                     u: wp.array2d(dtype=Any)):  # fmt: skip
    """Write the Kirchhoff potential of node i for every material."""
    for m in range(u.shape[0]):
        s = find_segment(rows, hints[m, i], T)
        hints[m, i] = s
        u[m, i] = potential(rows[s], T)


@made_once
def step_kernels(real: type) -> SimpleNamespace:
    """Return the kernels of a step forward."""
    row, phase_type = row_types(real)
    vec8i = vectors(real)[0]
    module = kernel_module("thermal_step", real)

    @wp.kernel(module=module)
    def potentials(
        first: int,
        rows: wp.array(dtype=row),
        hints: wp.array2d(dtype=wp.int32),
        T: wp.array(dtype=real),
        u: wp.array2d(dtype=real),
    ):
        i = first + wp.tid()
        write_potentials(rows, hints, i, T[i], u)

    @wp.kernel(module=module)
    def shine(
        first: int,
        node: wp.array(dtype=wp.int32),
        slots: wp.array(dtype=vec8i),
        power: wp.array(dtype=real),
        flows: wp.array(dtype=real),
    ):
        # into the node's first element, which lives as long as the node
        j = first + wp.tid()
        entry = slots[node[j]][0]
        flows[entry] = flows[entry] + power[j]

    @wp.kernel(module=module)
    def advance(
        first: int,
        alive: int,
        dt: real,
        tolerance: real,
        # model
        slots: wp.array(dtype=vec8i),
        more_starts: wp.array(dtype=wp.int32),
        more: wp.array(dtype=wp.int32),
        held: wp.array(dtype=wp.int32),
        rows: wp.array(dtype=row),
        phases: wp.array(dtype=phase_type),
        air: wp.array(dtype=real),
        # in
        volume: wp.array2d(dtype=real),
        area: wp.array(dtype=real),
        flows: wp.array(dtype=real),
        # in, out
        hints: wp.array2d(dtype=wp.int32),
        T: wp.array(dtype=real),
        u: wp.array2d(dtype=real),
        ledger: wp.array2d(dtype=wp.float64),
    ):
        i = first + wp.tid()
        t = T[i]
        convection, radiation = from_air(air, area[i], t)
        heat = dt * (gathered(slots, more_starts, more, alive, held, -1, flows, i) + convection + radiation)
        if ledger:
            ledger[LEDGER_CONVECTION, i] += wp.float64(dt * convection)
            ledger[LEDGER_RADIATION, i] += wp.float64(dt * radiation)
        if held[i] != 0:
            if ledger:
                ledger[LEDGER_HELD, i] -= wp.float64(heat)
        else:
            new = heated(rows, phases, hints, volume, i, t, heat, tolerance)
            T[i] = new
            write_potentials(rows, hints, i, new, u)

    @wp.kernel(module=module)
    def change(
        first: int,
        enter: int,
        tolerance: real,
        # model
        node: wp.array(dtype=wp.int32),
        volume_then: wp.array2d(dtype=real),
        area_then: wp.array(dtype=real),
        held: wp.array(dtype=wp.int32),
        rows: wp.array(dtype=row),
        phases: wp.array(dtype=phase_type),
        air: wp.array(dtype=real),
        # in, out
        volume: wp.array2d(dtype=real),
        area: wp.array(dtype=real),
        hints: wp.array2d(dtype=wp.int32),
        T: wp.array(dtype=real),
        u: wp.array2d(dtype=real),
        ledger: wp.array2d(dtype=wp.float64),
    ):
        """Give nodes the volumes and areas of another time; if `enter`, material comes in hot, eq. (8)."""
        j = first + wp.tid()
        i = node[j]
        zero = real(0.0)
        before = zero
        gained = zero
        for m in range(phases.shape[0]):
            before += volume[m, i]
            gained += volume_then[m, j] - volume[m, i]
            # for now, what comes in
            volume[m, i] = volume_then[m, j] - volume[m, i]
        if enter != 0 and gained > zero:
            birth = air[BIRTH]
            t = T[i]
            if held[i] != 0 and ledger:
                ledger[LEDGER_HELD, i] += wp.float64(heat_of(rows, phases, hints, volume, i, birth, t))
            heat = heat_of(rows, phases, hints, volume, i, t, birth)
            for m in range(phases.shape[0]):
                volume[m, i] = volume_then[m, j]
            if held[i] == 0:
                if before == zero:
                    t = birth
                else:
                    t = heated(rows, phases, hints, volume, i, t, heat, tolerance)
                T[i] = t
            write_potentials(rows, hints, i, t, u)
        for m in range(phases.shape[0]):
            volume[m, i] = volume_then[m, j]
        area[i] = area_then[j]

    @wp.kernel(module=module)
    def look(
        first: int,
        line: int,
        starts: wp.array(dtype=wp.int32),
        node: wp.array(dtype=wp.int32),
        weight: wp.array(dtype=real),
        T: wp.array(dtype=real),
        seen: wp.array2d(dtype=real),
    ):
        p = first + wp.tid()
        total = real(0.0)
        for k in range(starts[p], starts[p + 1]):
            total += weight[k] * T[node[k]]
        seen[line, p] = total

    return SimpleNamespace(potentials=potentials, shine=shine, advance=advance, change=change, look=look)
