"""An implicit step: its residual, its linear operator, and the parts of its adjoint that an explicit step has not.

docs/derivations/thermal.md, section 6. Unknowns are Kirchhoff potentials, in which the residual is the gradient of a
convex function. `theta_dt` is theta dt. Other arrays are those of `step_kernels.py`; there is one material.
"""

from types import SimpleNamespace
from typing import Any

import warp as wp

from pullback.core.modules import kernel_module, made_once
from pullback.thermal.accumulate_kernels import add_air, add_enthalpy, add_potential
from pullback.thermal.node_kernels import (
    LEDGER_CONVECTION,
    LEDGER_HELD,
    LEDGER_RADIATION,
    air_flow,
    air_slope,
    gather_flows,
    heat_between,
    part_type,
    temperature_after,
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
    Part = part_type(real)
    module = kernel_module("thermal_implicit", real)

    @wp.kernel(module=module)
    def explicit_part(
        first: int,
        alive: int,
        rest_dt: real,
        part: Part,
        # in
        flows: wp.array(dtype=real),
        T: wp.array(dtype=real),
        # out
        given: wp.array(dtype=real),
        ledger: wp.array2d(dtype=wp.float64),
    ):
        """Write the heat that flows at the temperatures before the step, rest_dt = (1 - theta) dt."""
        i = first + wp.tid()
        convection, radiation = air_flow(part.air, part.area[i], T[i])
        given[i] = rest_dt * (gather_flows(part, alive, -1, flows, i) + convection + radiation)
        if ledger:
            ledger[LEDGER_CONVECTION, i] += wp.float64(rest_dt * convection)
            ledger[LEDGER_RADIATION, i] += wp.float64(rest_dt * radiation)

    @wp.kernel(module=module)
    def add_beam(
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
    def residual(
        first: int,
        alive: int,
        theta_dt: real,
        part: Part,
        # in
        flows: wp.array(dtype=real),
        given: wp.array(dtype=real),
        T_start: wp.array(dtype=real),
        T: wp.array(dtype=real),
        # out
        missing: wp.array(dtype=real),
        diagonal: wp.array(dtype=real),
    ):
        """Write the heat missing in each node's balance [J], eq. (20), and the diagonal of (22) without conduction."""
        i = first + wp.tid()
        t = T[i]
        s = find_segment(part.rows, part.hints[0, i], t)
        part.hints[0, i] = s
        if part.held[i] != 0:
            missing[i] = real(0.0)
            diagonal[i] = real(1.0)
        else:
            convection, radiation = air_flow(part.air, part.area[i], t)
            flow = gather_flows(part, alive, -1, flows, i) + convection + radiation
            mass = part.phases[0][DENSITY] * part.volume[0, i]
            taken = mass * enthalpy_rise(part.rows, part.phases[0], s, T_start[i], t)
            missing[i] = theta_dt * flow + given[i] - taken
            C = mass * capacity(part.rows[s], part.phases[0], t)
            diagonal[i] = (C + theta_dt * air_slope(part.air, part.area[i], t)) / conductivity(part.rows[s], t)

    @wp.kernel(module=module)
    def update_ledger(
        first: int,
        alive: int,
        theta_dt: real,
        part: Part,
        # in
        flows: wp.array(dtype=real),
        given: wp.array(dtype=real),
        T: wp.array(dtype=real),
        # in, out
        ledger: wp.array2d(dtype=wp.float64),
    ):
        """Enter into the ledger the heat that flowed at the temperatures after the step."""
        i = first + wp.tid()
        convection, radiation = air_flow(part.air, part.area[i], T[i])
        ledger[LEDGER_CONVECTION, i] += wp.float64(theta_dt * convection)
        ledger[LEDGER_RADIATION, i] += wp.float64(theta_dt * radiation)
        if part.held[i] != 0:
            flow = gather_flows(part, alive, -1, flows, i) + convection + radiation
            ledger[LEDGER_HELD, i] -= wp.float64(theta_dt * flow + given[i])

    @wp.kernel(module=module)
    def move(
        first: int,
        part: Part,
        scale: wp.array(dtype=real),
        u_start: wp.array(dtype=real),
        direction: wp.array(dtype=real),
        # out
        T: wp.array(dtype=real),
        u: wp.array2d(dtype=real),
    ):
        """Set u = u_start + scale direction, and find the temperatures there."""
        i = first + wp.tid()
        if part.held[i] == 0:
            new = u_start[i] + scale[0] * direction[i]
            t, s = temperature_of(part.rows, part.hints[0, i], new)
            part.hints[0, i] = s
            T[i] = t
            u[0, i] = new

    @wp.kernel(module=module)
    def apply(
        first: int,
        alive: int,
        theta_dt: real,
        part: Part,
        # in
        diagonal: wp.array(dtype=real),
        x: wp.array2d(dtype=real),
        flows: wp.array(dtype=real),
        # out
        y: wp.array(dtype=real),
    ):
        """Write y = S x, eq. (22), given the flows that x drives."""
        i = first + wp.tid()
        if part.held[i] != 0:
            y[i] = real(0.0)
        else:
            flow = gather_flows(part, alive, -1, flows, i)
            y[i] = diagonal[i] * x[0, i] - theta_dt * flow

    @wp.kernel(module=module)
    def undo_birth(
        first: int,
        tolerance: real,
        part: Part,
        # in
        node: wp.array(dtype=wp.int32),
        volume_before: wp.array2d(dtype=real),
        gain: wp.array2d(dtype=real),
        # in, out
        spare: wp.array2d(dtype=real),
        T: wp.array(dtype=real),
    ):
        """Take the heat of what came in at a birth out of a node again: eq. (8) backwards."""
        j = first + wp.tid()
        i = node[j]
        if part.held[i] == 0 and volume_before[0, j] > real(0.0) and gain[0, j] > real(0.0):
            t = T[i]
            spare[0, i] = gain[0, j]
            heat = heat_between(part, spare, i, part.air[BIRTH], t)
            spare[0, i] = volume_before[0, j]
            T[i] = temperature_after(part, spare, i, t, heat, tolerance)

    @wp.kernel(module=module)
    def adjoint_system(
        first: int,
        theta_dt: real,
        part: Part,
        # in
        T: wp.array(dtype=real),
        lam: wp.array(dtype=real),
        # out
        right: wp.array(dtype=real),
        diagonal: wp.array(dtype=real),
    ):
        """Write the right side and the diagonal of eq. (23)."""
        i = first + wp.tid()
        t = T[i]
        s = find_segment(part.rows, part.hints[0, i], t)
        part.hints[0, i] = s
        if part.held[i] != 0:
            right[i] = real(0.0)
            diagonal[i] = real(1.0)
        else:
            C = part.phases[0][DENSITY] * part.volume[0, i] * capacity(part.rows[s], part.phases[0], t)
            k = conductivity(part.rows[s], t)
            diagonal[i] = (C + theta_dt * air_slope(part.air, part.area[i], t)) / k
            right[i] = C * lam[i] / k

    @wp.kernel(module=module)
    def parameters_vjp(
        first: int,
        alive: int,
        theta_dt: real,
        part: Part,
        # in
        flows: wp.array(dtype=real),
        T: wp.array(dtype=real),
        lam: wp.array(dtype=real),
        mu: wp.array2d(dtype=real),
        # in, out
        sums: wp.array2d(dtype=wp.float64),
    ):
        """Add the cotangents of shared numbers at the temperatures after the step, eq. (24)."""
        i = first + wp.tid()
        t = T[i]
        s = find_segment(part.rows, part.hints[0, i], t)
        part.hints[0, i] = s
        segments = part.rows.shape[0]
        flow = gather_flows(part, alive, -1, flows, i)
        add_potential(part.rows[s], t, wp.float64(theta_dt * flow), segments, 0, s, i, sums)
        if part.held[i] == 0:
            add_air(part.air, part.area[i], t, theta_dt * mu[0, i], i, sums)
            factor = wp.float64(lam[i] - mu[0, i])
            add_enthalpy(part.rows[s], part.phases[0], part.volume[0, i], t, factor, segments, 0, s, i, sums)

    return SimpleNamespace(
        explicit_part=explicit_part,
        add_beam=add_beam,
        residual=residual,
        update_ledger=update_ledger,
        move=move,
        apply=apply,
        undo_birth=undo_birth,
        adjoint_system=adjoint_system,
        parameters_vjp=parameters_vjp,
    )
