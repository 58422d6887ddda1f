"""The adjoint of an explicit step, a thread a node (docs/derivations/thermal.md, sections 4 and 5).

It carries `lam`, the cotangent of a node's heat [J], which passes through births unchanged, eq. (12). `sums` is absent
unless a gradient by numbers that the nodes share is wanted. Other arrays are those of `step_kernels.py`.
"""

from types import SimpleNamespace
from typing import Any

import warp as wp

from pullback.core.modules import kernel_module, made_once
from pullback.thermal.accumulate_kernels import add_air, add_enthalpy, add_potential
from pullback.thermal.conduction_kernels import vectors
from pullback.thermal.step_kernels import air_slope, gathered, row_types
from pullback.thermal.table_kernels import (
    BIRTH,
    DENSITY,
    capacity,
    conductivity,
    find_segment,
    heat_capacity_of,
)


@wp.func
def add_heat_content(rows: wp.array(dtype=Any), phases: wp.array(dtype=Any), hints: wp.array2d(dtype=wp.int32),
                     volume: wp.array2d(dtype=Any), i: int, T: Any, factor: wp.float64,
                     sums: wp.array2d(dtype=wp.float64)):  # fmt: skip
    """Add factor times the derivative of node i's heat at T by the numbers of all materials; hints must be right."""
    segments = rows.shape[0] // phases.shape[0]
    for m in range(phases.shape[0]):
        s = hints[m, i]
        add_enthalpy(rows[s], phases[m], volume[m, i], T, factor, segments, m, s - m * segments, i, sums)


@wp.func
def add_cotangent(rows: wp.array(dtype=Any), phases: wp.array(dtype=Any), hints: wp.array2d(dtype=wp.int32),
                  volume: wp.array2d(dtype=Any), held: wp.array(dtype=wp.int32), i: int, T: Any, adj_T: Any,
                  lam: wp.array(dtype=Any), sums: wp.array2d(dtype=wp.float64)):  # fmt: skip
    """Add the cotangent of an observed temperature to that of the node's heat, eq. (10)."""
    if held[i] == 0:
        C = heat_capacity_of(rows, phases, hints, volume, i, T)
        if C > type(T)(0.0):
            old = lam[i]
            new = old + adj_T / C
            lam[i] = new
            if sums:
                add_heat_content(rows, phases, hints, volume, i, T, wp.float64(old - new), sums)
        elif sums:
            # not there yet: what is seen is the temperature it will enter with
            sums[BIRTH, i] += wp.float64(adj_T)


@made_once
def adjoint_kernels(real: type) -> SimpleNamespace:
    """Return the kernels of a step backward, and of observations."""
    row, phase_type = row_types(real)
    vec8i = vectors(real)[0]
    module = kernel_module("thermal_adjoint", real)

    @wp.kernel(module=module)
    def pull(
        first: int,
        alive: int,
        dt: real,
        # model
        slots: wp.array(dtype=vec8i),
        more_starts: wp.array(dtype=wp.int32),
        more: wp.array(dtype=wp.int32),
        material: wp.array(dtype=wp.int32),
        held: wp.array(dtype=wp.int32),
        rows: wp.array(dtype=row),
        phases: wp.array(dtype=phase_type),
        air: wp.array(dtype=real),
        # in
        volume: wp.array2d(dtype=real),
        area: wp.array(dtype=real),
        flows: wp.array(dtype=real),
        T: wp.array(dtype=real),
        # in, out
        hints: wp.array2d(dtype=wp.int32),
        lam: wp.array(dtype=real),
        sums: wp.array2d(dtype=wp.float64),
    ):
        i = first + wp.tid()
        t = T[i]
        old = lam[i]
        C = real(0.0)
        rate = real(0.0)
        for m in range(phases.shape[0]):
            s = find_segment(rows, hints[m, i], t)
            hints[m, i] = s
            which = int(-1)
            if phases.shape[0] > 1:
                which = m
            flow = gathered(slots, more_starts, more, alive, material, which, flows, i)
            C += phases[m][DENSITY] * volume[m, i] * capacity(rows[s], phases[m], t)
            rate += conductivity(rows[s], t) * flow
            if sums:
                segments = rows.shape[0] // phases.shape[0]
                add_potential(rows[s], t, wp.float64(dt * flow), segments, m, s - m * segments, i, sums)
        if held[i] == 0:
            # eq. (11)
            rate -= air_slope(air, area[i], t) * old
            new = old + dt * rate / C
            lam[i] = new
            if sums:
                add_air(air, area[i], t, dt * old, i, sums)
                add_heat_content(rows, phases, hints, volume, i, t, wp.float64(old - new), sums)

    @wp.kernel(module=module)
    def shine_vjp(
        first: int, dt: real, node: wp.array(dtype=wp.int32), lam: wp.array(dtype=real), adj_power: wp.array(dtype=real)
    ):
        j = first + wp.tid()
        adj_power[j] = dt * lam[node[j]]

    @wp.kernel(module=module)
    def enter_vjp(
        first: int,
        # model
        node: wp.array(dtype=wp.int32),
        gain: wp.array2d(dtype=real),
        held: wp.array(dtype=wp.int32),
        rows: wp.array(dtype=row),
        phases: wp.array(dtype=phase_type),
        air: wp.array(dtype=real),
        lam: wp.array(dtype=real),
        # out
        sums: wp.array2d(dtype=wp.float64),
    ):
        """Add the share of what comes in at a birth, eq. (13)."""
        j = first + wp.tid()
        i = node[j]
        birth = air[BIRTH]
        segments = rows.shape[0] // phases.shape[0]
        if held[i] == 0:
            for m in range(phases.shape[0]):
                s = find_segment(rows, m * segments, birth)
                C = phases[m][DENSITY] * gain[m, j] * capacity(rows[s], phases[m], birth)
                sums[BIRTH, i] += wp.float64(lam[i] * C)
                add_enthalpy(
                    rows[s], phases[m], gain[m, j], birth, wp.float64(lam[i]), segments, m, s - m * segments, i, sums
                )

    @wp.kernel(module=module)
    def look_vjp(
        first: int,
        line: int,
        # model
        node: wp.array(dtype=wp.int32),
        starts: wp.array(dtype=wp.int32),
        probe: wp.array(dtype=wp.int32),
        weight: wp.array(dtype=real),
        held: wp.array(dtype=wp.int32),
        rows: wp.array(dtype=row),
        phases: wp.array(dtype=phase_type),
        # in
        volume: wp.array2d(dtype=real),
        T: wp.array(dtype=real),
        adj_seen: wp.array2d(dtype=real),
        # in, out
        hints: wp.array2d(dtype=wp.int32),
        lam: wp.array(dtype=real),
        sums: wp.array2d(dtype=wp.float64),
    ):
        j = first + wp.tid()
        i = node[j]
        adj_T = real(0.0)
        for k in range(starts[j], starts[j + 1]):
            adj_T += weight[k] * adj_seen[line, probe[k]]
        add_cotangent(rows, phases, hints, volume, held, i, T[i], adj_T, lam, sums)

    @wp.kernel(module=module)
    def look_all_vjp(
        first: int,
        # model
        held: wp.array(dtype=wp.int32),
        rows: wp.array(dtype=row),
        phases: wp.array(dtype=phase_type),
        # in
        volume: wp.array2d(dtype=real),
        T: wp.array(dtype=real),
        adj_T: wp.array(dtype=real),
        # in, out
        hints: wp.array2d(dtype=wp.int32),
        lam: wp.array(dtype=real),
        sums: wp.array2d(dtype=wp.float64),
    ):
        i = first + wp.tid()
        add_cotangent(rows, phases, hints, volume, held, i, T[i], adj_T[i], lam, sums)

    @wp.kernel(module=module)
    def begin_vjp(
        first: int,
        # model
        held: wp.array(dtype=wp.int32),
        rows: wp.array(dtype=row),
        phases: wp.array(dtype=phase_type),
        # in
        volume: wp.array2d(dtype=real),
        T: wp.array(dtype=real),
        lam: wp.array(dtype=real),
        # out
        hints: wp.array2d(dtype=wp.int32),
        adj_T: wp.array(dtype=real),
        sums: wp.array2d(dtype=wp.float64),
    ):
        """Write the cotangent of the initial temperatures, and add that of the heat they stand for, eq. (13)."""
        i = first + wp.tid()
        if held[i] == 0:
            adj_T[i] = lam[i] * heat_capacity_of(rows, phases, hints, volume, i, T[i])
            if sums:
                add_heat_content(rows, phases, hints, volume, i, T[i], wp.float64(lam[i]), sums)

    return SimpleNamespace(
        pull=pull,
        shine_vjp=shine_vjp,
        enter_vjp=enter_vjp,
        look_vjp=look_vjp,
        look_all_vjp=look_all_vjp,
        begin_vjp=begin_vjp,
    )
