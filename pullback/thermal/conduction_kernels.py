"""Conduction inside elements, the one linear operator of every pass (docs/derivations/thermal.md, eq. (5))."""

from functools import cache
from typing import Any

import warp as wp

from pullback.core.modules import kernel_module, made_once


@cache
def vectors(real: type) -> tuple[type, type, type]:
    """Return the types of an element's eight nodes, of a number for each, and of one for each of their pairs."""
    return wp.types.vector(8, wp.int32), wp.types.vector(8, real), wp.types.vector(28, real)


@made_once
def flow_kernel(real: type) -> Any:
    """Return the kernel that writes the flow into each corner of each element."""
    vec8i, vec8, vec28 = vectors(real)

    @wp.kernel(module=kernel_module("thermal_flow", real))
    def flow(
        first: int,
        # model
        corners: wp.array(dtype=vec8i),
        shape: wp.array(dtype=wp.int32),
        conductances: wp.array(dtype=vec28),
        material: wp.array(dtype=wp.int32),
        # in
        u: wp.array2d(dtype=real),
        # out
        flows: wp.array(dtype=vec8),
    ):
        e = first + wp.tid()
        nodes = corners[e]
        G = conductances[shape[e]]
        m = int(0)
        if material:
            m = material[e]
        v = vec8()
        for i in range(8):
            v[i] = u[m, nodes[i]]
        f = vec8()
        # corner i has its seven partners i ^ d: eight independent sums, which a CPU does at once. All integers here are
        # known when the kernel is compiled
        for d in range(1, 8):
            highest = 1 + int(d >= 2) + 2 * int(d >= 4)
            for i in range(8):
                # of the two corners of a pair the one without the highest bit of d, and that bit left out
                corner = wp.where((i & highest) == 0, i, i ^ d)
                pair = 4 * d - 4 + ((corner & (highest - 1)) | ((corner >> 1) & (4 - highest)))
                f[i] += G[pair] * (v[i ^ d] - v[i])
        flows[e] = f

    return flow
