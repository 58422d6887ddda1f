"""The adjoint of an explicit step, one thread a node (docs/derivations/thermal.md, sections 4 and 5).

It carries `lam`, the cotangent of a node's heat [J], which passes through births unchanged, eq. (12). `sums` is absent
unless the gradient by numbers that all nodes share is needed. Other arrays are those of `step_kernels.py`.
"""

from types import SimpleNamespace
from typing import Any

import warp as wp

from pullback.core.modules import kernel_module, made_once
from pullback.thermal.accumulate_kernels import add_air, add_enthalpy, add_potential
from pullback.thermal.node_kernels import air_slope, gather_flows, heat_capacity, part_type
from pullback.thermal.table_kernels import BIRTH, DENSITY, capacity, conductivity, find_segment


@wp.func
def add_heat_content(part: Any, i: int, T: Any, factor: wp.float64, sums: wp.array2d(dtype=wp.float64)):
    """Add factor times the derivative of node i's heat at T by the numbers of all materials; hints must be right."""
    segments = part.rows.shape[0] // part.phases.shape[0]
    for m in range(part.phases.shape[0]):
        s = part.hints[m, i]
        add_enthalpy(part.rows[s], part.phases[m], part.volume[m, i], T, factor, segments, m, s - m * segments, i, sums)


@wp.func
def add_cotangent(part: Any, i: int, T: Any, adj_T: Any, lam: wp.array(dtype=Any), sums: wp.array2d(dtype=wp.float64)):
    """Add the cotangent of an observed temperature to that of the node's heat, eq. (10)."""
    if part.held[i] == 0:
        C = heat_capacity(part, part.volume, i, T)
        if C > type(T)(0.0):
            old = lam[i]
            new = old + adj_T / C
            lam[i] = new
            if sums:
                add_heat_content(part, i, T, wp.float64(old - new), sums)
        elif sums:
            # not there yet: what is seen is the temperature it will enter with
            sums[BIRTH, i] += wp.float64(adj_T)


@made_once
def step_vjp_kernels(real: type) -> SimpleNamespace:
    """Return the kernels that pull cotangents back through a step, births, observations and the initial state."""
    Part = part_type(real)
    module = kernel_module("thermal_step_vjp", real)

    @wp.kernel(module=module)
    def step_vjp(
        first: int,
        alive: int,
        dt: real,
        part: Part,
        # in
        flows: wp.array(dtype=real),
        T: wp.array(dtype=real),
        # in, out
        lam: wp.array(dtype=real),
        sums: wp.array2d(dtype=wp.float64),
    ):
        i = first + wp.tid()
        t = T[i]
        old = lam[i]
        C = real(0.0)
        rate = real(0.0)
        for m in range(part.phases.shape[0]):
            s = find_segment(part.rows, part.hints[m, i], t)
            part.hints[m, i] = s
            which = int(-1)
            if part.phases.shape[0] > 1:
                which = m
            flow = gather_flows(part, alive, which, flows, i)
            C += part.phases[m][DENSITY] * part.volume[m, i] * capacity(part.rows[s], part.phases[m], t)
            rate += conductivity(part.rows[s], t) * flow
            if sums:
                segments = part.rows.shape[0] // part.phases.shape[0]
                add_potential(part.rows[s], t, wp.float64(dt * flow), segments, m, s - m * segments, i, sums)
        if part.held[i] == 0:
            # eq. (11)
            rate -= air_slope(part.air, part.area[i], t) * old
            new = old + dt * rate / C
            lam[i] = new
            if sums:
                add_air(part.air, part.area[i], t, dt * old, i, sums)
                add_heat_content(part, i, t, wp.float64(old - new), sums)

    @wp.kernel(module=module)
    def add_beam_vjp(
        first: int, dt: real, node: wp.array(dtype=wp.int32), lam: wp.array(dtype=real), adj_power: wp.array(dtype=real)
    ):
        j = first + wp.tid()
        adj_power[j] = dt * lam[node[j]]

    @wp.kernel(module=module)
    def birth_vjp(
        first: int,
        part: Part,
        # in
        node: wp.array(dtype=wp.int32),
        gain: wp.array2d(dtype=real),
        lam: wp.array(dtype=real),
        # out
        sums: wp.array2d(dtype=wp.float64),
    ):
        """Add the cotangents of the heat that comes in at a birth, eq. (13)."""
        j = first + wp.tid()
        i = node[j]
        birth = part.air[BIRTH]
        segments = part.rows.shape[0] // part.phases.shape[0]
        if part.held[i] == 0:
            for m in range(part.phases.shape[0]):
                s = find_segment(part.rows, m * segments, birth)
                phase = part.phases[m]
                C = phase[DENSITY] * gain[m, j] * capacity(part.rows[s], phase, birth)
                sums[BIRTH, i] += wp.float64(lam[i] * C)
                add_enthalpy(
                    part.rows[s], phase, gain[m, j], birth, wp.float64(lam[i]), segments, m, s - m * segments, i, sums
                )

    @wp.kernel(module=module)
    def probe_vjp(
        first: int,
        line: int,
        part: Part,
        # in
        node: wp.array(dtype=wp.int32),
        starts: wp.array(dtype=wp.int32),
        probe: wp.array(dtype=wp.int32),
        weight: wp.array(dtype=real),
        T: wp.array(dtype=real),
        adj_seen: wp.array2d(dtype=real),
        # in, out
        lam: wp.array(dtype=real),
        sums: wp.array2d(dtype=wp.float64),
    ):
        j = first + wp.tid()
        i = node[j]
        adj_T = real(0.0)
        for k in range(starts[j], starts[j + 1]):
            adj_T += weight[k] * adj_seen[line, probe[k]]
        add_cotangent(part, i, T[i], adj_T, lam, sums)

    @wp.kernel(module=module)
    def snapshot_vjp(
        first: int,
        part: Part,
        # in
        T: wp.array(dtype=real),
        adj_T: wp.array(dtype=real),
        # in, out
        lam: wp.array(dtype=real),
        sums: wp.array2d(dtype=wp.float64),
    ):
        i = first + wp.tid()
        add_cotangent(part, i, T[i], adj_T[i], lam, sums)

    @wp.kernel(module=module)
    def initial_vjp(
        first: int,
        part: Part,
        # in
        T: wp.array(dtype=real),
        lam: wp.array(dtype=real),
        # out
        adj_T: wp.array(dtype=real),
        sums: wp.array2d(dtype=wp.float64),
    ):
        """Write the cotangent of the initial temperatures, and add that of the heat they stand for, eq. (13)."""
        i = first + wp.tid()
        if part.held[i] == 0:
            adj_T[i] = lam[i] * heat_capacity(part, part.volume, i, T[i])
            if sums:
                add_heat_content(part, i, T[i], wp.float64(lam[i]), sums)

    return SimpleNamespace(
        step_vjp=step_vjp,
        add_beam_vjp=add_beam_vjp,
        birth_vjp=birth_vjp,
        probe_vjp=probe_vjp,
        snapshot_vjp=snapshot_vjp,
        initial_vjp=initial_vjp,
    )
