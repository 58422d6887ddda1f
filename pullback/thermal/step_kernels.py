"""An explicit step, one thread a node (docs/derivations/thermal.md); what a `part` holds is in `node_kernels.py`."""

from types import SimpleNamespace

import warp as wp

from pullback.core.modules import kernel_module, made_once
from pullback.thermal.node_kernels import (
    LEDGER_CONVECTION,
    LEDGER_HELD,
    LEDGER_RADIATION,
    air_flow,
    gather_flows,
    heat_between,
    part_type,
    temperature_after,
    write_potentials,
)
from pullback.thermal.table_kernels import BIRTH


@made_once
def step_kernels(real: type) -> SimpleNamespace:
    """Return the kernels of an explicit step, of births, and of probes."""
    Part = part_type(real)
    module = kernel_module("thermal_step", real)

    @wp.kernel(module=module)
    def potentials(first: int, part: Part, T: wp.array(dtype=real), u: wp.array2d(dtype=real)):
        i = first + wp.tid()
        write_potentials(part, i, T[i], u)

    @wp.kernel(module=module)
    def add_beam(
        first: int,
        part: Part,
        node: wp.array(dtype=wp.int32),
        power: wp.array(dtype=real),
        flows: wp.array(dtype=real),
    ):
        # into the node's first element, which lives as long as the node
        j = first + wp.tid()
        entry = part.slots[node[j]][0]
        flows[entry] = flows[entry] + power[j]

    @wp.kernel(module=module)
    def step(
        first: int,
        alive: int,
        dt: real,
        tolerance: real,
        part: Part,
        # in
        flows: wp.array(dtype=real),
        # in, out
        T: wp.array(dtype=real),
        u: wp.array2d(dtype=real),
        ledger: wp.array2d(dtype=wp.float64),
    ):
        i = first + wp.tid()
        t = T[i]
        convection, radiation = air_flow(part.air, part.area[i], t)
        heat = dt * (gather_flows(part, alive, -1, flows, i) + convection + radiation)
        if ledger:
            ledger[LEDGER_CONVECTION, i] += wp.float64(dt * convection)
            ledger[LEDGER_RADIATION, i] += wp.float64(dt * radiation)
        if part.held[i] != 0:
            if ledger:
                ledger[LEDGER_HELD, i] -= wp.float64(heat)
        else:
            new = temperature_after(part, part.volume, i, t, heat, tolerance)
            T[i] = new
            write_potentials(part, i, new, u)

    @wp.kernel(module=module)
    def resize(
        first: int,
        enter: int,
        tolerance: real,
        part: Part,
        # in
        node: wp.array(dtype=wp.int32),
        volume_then: wp.array2d(dtype=real),
        area_then: wp.array(dtype=real),
        # in, out
        T: wp.array(dtype=real),
        u: wp.array2d(dtype=real),
        ledger: wp.array2d(dtype=wp.float64),
    ):
        """Give nodes the volumes and areas of another time; if `enter`, new material comes in hot, eq. (8)."""
        j = first + wp.tid()
        i = node[j]
        zero = real(0.0)
        before = zero
        gained = zero
        for m in range(part.phases.shape[0]):
            before += part.volume[m, i]
            gained += volume_then[m, j] - part.volume[m, i]
            # for now, what comes in
            part.volume[m, i] = volume_then[m, j] - part.volume[m, i]
        if enter != 0 and gained > zero:
            birth = part.air[BIRTH]
            t = T[i]
            if part.held[i] != 0 and ledger:
                ledger[LEDGER_HELD, i] += wp.float64(heat_between(part, part.volume, i, birth, t))
            heat = heat_between(part, part.volume, i, t, birth)
            for m in range(part.phases.shape[0]):
                part.volume[m, i] = volume_then[m, j]
            if part.held[i] == 0:
                if before == zero:
                    t = birth
                else:
                    t = temperature_after(part, part.volume, i, t, heat, tolerance)
                T[i] = t
            write_potentials(part, i, t, u)
        for m in range(part.phases.shape[0]):
            part.volume[m, i] = volume_then[m, j]
        part.area[i] = area_then[j]

    @wp.kernel(module=module)
    def probe(
        first: int,
        line: int,
        starts: wp.array(dtype=wp.int32),
        node: wp.array(dtype=wp.int32),
        weight: wp.array(dtype=real),
        T: wp.array(dtype=real),
        # out
        seen: wp.array2d(dtype=real),
    ):
        p = first + wp.tid()
        total = real(0.0)
        for k in range(starts[p], starts[p + 1]):
            total += weight[k] * T[node[k]]
        seen[line, p] = total

    return SimpleNamespace(potentials=potentials, add_beam=add_beam, step=step, resize=resize, probe=probe)
