"""An implicit step: its balance, its linear operator, and the parts of its adjoint that an explicit step has not.

docs/derivations/thermal.md, section 6. Unknowns are Kirchhoff potentials, in which the balance is the gradient of a
convex function. `part` is theta dt. Other arrays are those of `step_kernels.py`; there is one material.
"""

from types import SimpleNamespace
from typing import Any

import warp as wp

from pullback.core.modules import kernel_module, made_once
from pullback.thermal.accumulate_kernels import add_air, add_enthalpy, add_potential
from pullback.thermal.conduction_kernels import vectors
from pullback.thermal.step_kernels import (
    LEDGER_CONVECTION,
    LEDGER_HELD,
    LEDGER_RADIATION,
    air_slope,
    from_air,
    gathered,
    row_types,
)
from pullback.thermal.table_kernels import (
    ANCHOR,
    BIRTH,
    DENSITY,
    K_SLOPE,
    LOWER,
    POTENTIAL,
    UPPER,
    K,
    capacity,
    conductivity,
    enthalpy_rise,
    find_segment,
    heat_of,
    heated,
    potential,
)


@wp.func
def temperature_of(rows: wp.array(dtype=Any), hint: int, u: Any):
    """Return the temperature at which the potential is u, and the segment it is in."""
    s = int(hint)
    # the last segment has no upper end, the first no lower one
    while rows[s][UPPER] < type(u)(1.0e30) and u >= potential(rows[s], rows[s][UPPER]):
        s += 1
    while rows[s][LOWER] > type(u)(-1.0e30) and u < potential(rows[s], rows[s][LOWER]):
        s -= 1
    row = rows[s]
    d = u - row[POTENTIAL]
    square = row[K] * row[K] + type(u)(2.0) * row[K_SLOPE] * d
    return row[ANCHOR] + type(u)(2.0) * d / (row[K] + wp.sqrt(wp.max(square, type(u)(0.0)))), s


@made_once
def implicit_kernels(real: type) -> SimpleNamespace:
    """Return the kernels of an implicit step."""
    row, phase_type = row_types(real)
    vec8i = vectors(real)[0]
    module = kernel_module("thermal_implicit", real)

    @wp.kernel(module=module)
    def start(
        first: int,
        alive: int,
        part: real,
        # model
        slots: wp.array(dtype=vec8i),
        more_starts: wp.array(dtype=wp.int32),
        more: wp.array(dtype=wp.int32),
        held: wp.array(dtype=wp.int32),
        air: wp.array(dtype=real),
        # in
        area: wp.array(dtype=real),
        flows: wp.array(dtype=real),
        T: wp.array(dtype=real),
        # out
        given: wp.array(dtype=real),
        ledger: wp.array2d(dtype=wp.float64),
    ):
        """Write the heat that the temperatures at the beginning of a step bring, (1 - theta) dt q."""
        i = first + wp.tid()
        convection, radiation = from_air(air, area[i], T[i])
        given[i] = part * (gathered(slots, more_starts, more, alive, held, -1, flows, i) + convection + radiation)
        if ledger:
            ledger[LEDGER_CONVECTION, i] += wp.float64(part * convection)
            ledger[LEDGER_RADIATION, i] += wp.float64(part * radiation)

    @wp.kernel(module=module)
    def shine(
        first: int,
        dt: real,
        node: wp.array(dtype=wp.int32),
        power: wp.array(dtype=real),
        given: wp.array(dtype=real),
    ):
        # a step names a node once
        j = first + wp.tid()
        given[node[j]] = given[node[j]] + dt * power[j]

    @wp.kernel(module=module)
    def balance(
        first: int,
        alive: int,
        part: real,
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
        given: wp.array(dtype=real),
        T_start: wp.array(dtype=real),
        T: wp.array(dtype=real),
        # out
        hints: wp.array2d(dtype=wp.int32),
        missing: wp.array(dtype=real),
        diagonal: wp.array(dtype=real),
    ):
        """Write what is missing in each node's balance [J], eq. (20), and the diagonal of (22) without conduction."""
        i = first + wp.tid()
        t = T[i]
        s = find_segment(rows, hints[0, i], t)
        hints[0, i] = s
        if held[i] != 0:
            missing[i] = real(0.0)
            diagonal[i] = real(1.0)
        else:
            convection, radiation = from_air(air, area[i], t)
            flow = gathered(slots, more_starts, more, alive, held, -1, flows, i) + convection + radiation
            mass = phases[0][DENSITY] * volume[0, i]
            taken = mass * enthalpy_rise(rows, phases[0], s, T_start[i], t)
            missing[i] = part * flow + given[i] - taken
            C = mass * capacity(rows[s], phases[0], t)
            diagonal[i] = (C + part * air_slope(air, area[i], t)) / conductivity(rows[s], t)

    @wp.kernel(module=module)
    def book(
        first: int,
        alive: int,
        part: real,
        # model
        slots: wp.array(dtype=vec8i),
        more_starts: wp.array(dtype=wp.int32),
        more: wp.array(dtype=wp.int32),
        held: wp.array(dtype=wp.int32),
        air: wp.array(dtype=real),
        # in
        area: wp.array(dtype=real),
        flows: wp.array(dtype=real),
        given: wp.array(dtype=real),
        T: wp.array(dtype=real),
        # in, out
        ledger: wp.array2d(dtype=wp.float64),
    ):
        """Enter into the ledger what came in at the temperatures of the end of a step."""
        i = first + wp.tid()
        convection, radiation = from_air(air, area[i], T[i])
        ledger[LEDGER_CONVECTION, i] += wp.float64(part * convection)
        ledger[LEDGER_RADIATION, i] += wp.float64(part * radiation)
        if held[i] != 0:
            flow = gathered(slots, more_starts, more, alive, held, -1, flows, i) + convection + radiation
            ledger[LEDGER_HELD, i] -= wp.float64(part * flow + given[i])

    @wp.kernel(module=module)
    def walk(
        first: int,
        rows: wp.array(dtype=row),
        held: wp.array(dtype=wp.int32),
        scale: wp.array(dtype=real),
        u_start: wp.array(dtype=real),
        direction: wp.array(dtype=real),
        # out
        hints: wp.array2d(dtype=wp.int32),
        T: wp.array(dtype=real),
        u: wp.array2d(dtype=real),
    ):
        """Go from u_start along a direction, and find the temperatures there."""
        i = first + wp.tid()
        if held[i] == 0:
            new = u_start[i] + scale[0] * direction[i]
            t, s = temperature_of(rows, hints[0, i], new)
            hints[0, i] = s
            T[i] = t
            u[0, i] = new

    @wp.kernel(module=module)
    def apply(
        first: int,
        alive: int,
        part: real,
        # model
        slots: wp.array(dtype=vec8i),
        more_starts: wp.array(dtype=wp.int32),
        more: wp.array(dtype=wp.int32),
        held: wp.array(dtype=wp.int32),
        # in
        diagonal: wp.array(dtype=real),
        x: wp.array2d(dtype=real),
        flows: wp.array(dtype=real),
        # out
        y: wp.array(dtype=real),
    ):
        """Write y = S x, eq. (22), given the flows that x drives."""
        i = first + wp.tid()
        if held[i] != 0:
            y[i] = real(0.0)
        else:
            flow = gathered(slots, more_starts, more, alive, held, -1, flows, i)
            y[i] = diagonal[i] * x[0, i] - part * flow

    @wp.kernel(module=module)
    def before_birth(
        first: int,
        tolerance: real,
        # model
        node: wp.array(dtype=wp.int32),
        volume_before: wp.array2d(dtype=real),
        gain: wp.array2d(dtype=real),
        held: wp.array(dtype=wp.int32),
        rows: wp.array(dtype=row),
        phases: wp.array(dtype=phase_type),
        air: wp.array(dtype=real),
        # in, out
        hints: wp.array2d(dtype=wp.int32),
        spare: wp.array2d(dtype=real),
        T: wp.array(dtype=real),
    ):
        """Take the heat of what came in at a birth out of a node again: eq. (8) backwards."""
        j = first + wp.tid()
        i = node[j]
        if held[i] == 0 and volume_before[0, j] > real(0.0) and gain[0, j] > real(0.0):
            t = T[i]
            spare[0, i] = gain[0, j]
            heat = heat_of(rows, phases, hints, spare, i, air[BIRTH], t)
            spare[0, i] = volume_before[0, j]
            T[i] = heated(rows, phases, hints, spare, i, t, heat, tolerance)

    @wp.kernel(module=module)
    def prepare_vjp(
        first: int,
        part: real,
        # model
        held: wp.array(dtype=wp.int32),
        rows: wp.array(dtype=row),
        phases: wp.array(dtype=phase_type),
        air: wp.array(dtype=real),
        # in
        volume: wp.array2d(dtype=real),
        area: wp.array(dtype=real),
        T: wp.array(dtype=real),
        lam: wp.array(dtype=real),
        # out
        hints: wp.array2d(dtype=wp.int32),
        right: wp.array(dtype=real),
        diagonal: wp.array(dtype=real),
    ):
        """Write the right side and the diagonal of eq. (23)."""
        i = first + wp.tid()
        t = T[i]
        s = find_segment(rows, hints[0, i], t)
        hints[0, i] = s
        if held[i] != 0:
            right[i] = real(0.0)
            diagonal[i] = real(1.0)
        else:
            C = phases[0][DENSITY] * volume[0, i] * capacity(rows[s], phases[0], t)
            k = conductivity(rows[s], t)
            diagonal[i] = (C + part * air_slope(air, area[i], t)) / k
            right[i] = C * lam[i] / k

    @wp.kernel(module=module)
    def end_vjp(
        first: int,
        alive: int,
        part: real,
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
        T: wp.array(dtype=real),
        lam: wp.array(dtype=real),
        mu: wp.array2d(dtype=real),
        # in, out
        hints: wp.array2d(dtype=wp.int32),
        sums: wp.array2d(dtype=wp.float64),
    ):
        """Add the cotangents of shared numbers at the temperatures of the end of a step, eq. (24)."""
        i = first + wp.tid()
        t = T[i]
        s = find_segment(rows, hints[0, i], t)
        hints[0, i] = s
        segments = rows.shape[0]
        flow = gathered(slots, more_starts, more, alive, held, -1, flows, i)
        add_potential(rows[s], t, wp.float64(part * flow), segments, 0, s, i, sums)
        if held[i] == 0:
            add_air(air, area[i], t, part * mu[0, i], i, sums)
            factor = wp.float64(lam[i] - mu[0, i])
            add_enthalpy(rows[s], phases[0], volume[0, i], t, factor, segments, 0, s, i, sums)

    return SimpleNamespace(
        start=start,
        shine=shine,
        balance=balance,
        book=book,
        walk=walk,
        apply=apply,
        before_birth=before_birth,
        prepare_vjp=prepare_vjp,
        end_vjp=end_vjp,
    )
