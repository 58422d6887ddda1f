"""Value and gradient of one field at one point of each world, and their adjoint (docs/derivations/sdf.md)."""

import warp as wp

from pullback.core.modules import kernel_module, made_once
from pullback.sdf.field_kernels import field_value_gradient, field_vjp
from pullback.sdf.fields import Fields
from pullback.spatial.arrays import accumulate, load3, load4, store


@made_once
def kernels(real: type):
    """Return the kernels of value and gradient (4 rows) and of their vjp."""
    a = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("sdf", real))
    def forward(fields: Fields, points: a, parameters: a, out: a, stack: a):
        w = wp.tid()
        value, g = field_value_gradient(fields, 0, parameters, 0, load3(points, 0, w), w, stack)
        store(out, 0, w, wp.vector(value, g[0], g[1], g[2]))

    @wp.kernel(module=kernel_module("sdf_vjp", real))
    def vjp(fields: Fields, points: a, parameters: a, out: a, adj_out: a, adj_points: a, adj_parameters: a, tape: a):
        w = wp.tid()
        adj = load4(adj_out, 0, w)
        adj_x = field_vjp(
            fields, 0, parameters, 0, load3(points, 0, w), adj[0], wp.vector(adj[1], adj[2], adj[3]), w,
            adj_parameters, tape,
        )  # fmt: skip
        if adj_points:
            accumulate(adj_points, 0, w, adj_x)

    return forward, vjp
