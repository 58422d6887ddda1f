"""Between particles and the nodes about them: spread an affine function, collect a field.

See docs/derivations/mpm.md.

A node of the stencil has an index -1, 0 or 1 along each axis; f is the position of the particle from the middle one, in
cells. Affine functions are rows of numbers: `middle` at the middle node, `slopes[axis]` a cell.
"""

from types import SimpleNamespace

import warp as wp

from pullback.core.modules import made_once
from pullback.soft.variant_kernels import EDGE, Variant


@made_once
def stencil(variant: Variant) -> SimpleNamespace:
    """Return the functions that go over the nodes about a particle."""
    types, module = variant.types, variant.module("stencil")
    real, vec, row = variant.real, types.vec, types.row
    dim, side = variant.dim, variant.side
    in_space = dim == 3
    layers = 3 if in_space else 1
    line, sheet = dim - 1, dim - 2
    inside = EDGE[dim] - 1
    arena_size = variant.arena

    @wp.func(module=module)
    def place(job: types.Job, grid: types.Grid, p: int, x: vec):
        """Return the arena's row of the lowest node about a particle, and f."""
        base = grid.base[p]
        f = vec()
        at = int(0)
        for a in range(dim):
            f[a] = (x[a] - job.origin[a]) * job.inverse - real(base[a]) - real(1.0)
            at = at * side + (base[a] & inside)
        return grid.slot[p] * arena_size + at, f

    @wp.func(module=module)
    def weights_at(f: vec):
        w = types.weights()
        for a in range(dim):
            below = real(0.5) - f[a]
            above = real(0.5) + f[a]
            w[a, 0] = real(0.5) * below * below
            w[a, 1] = real(0.75) - f[a] * f[a]
            w[a, 2] = real(0.5) * above * above
        return w

    @wp.func(module=module)
    def slopes_of_weights(f: vec):
        """Return the derivatives of the weights by f."""
        w = types.weights()
        for a in range(dim):
            w[a, 0] = f[a] - real(0.5)
            w[a, 1] = real(-2.0) * f[a]
            w[a, 2] = f[a] + real(0.5)
        return w

    @wp.func(module=module)
    def spread(arena: wp.array(dtype=row), at: int, w: types.weights, middle: row, slopes: types.slopes):
        """Add the affine function, times the weights, to the nodes: eq. (2)."""
        along = slopes[line]
        down = slopes[sheet]
        c_layer = middle
        if in_space:
            c_layer = middle - slopes[0]
        for i in range(layers):
            c = c_layer - down
            for j in range(3):
                scale = w[sheet, j]
                if in_space:
                    scale = scale * w[0, i]
                node = at + (i * side + j) * side
                arena[node] += (scale * w[line, 0]) * (c - along)
                arena[node + 1] += (scale * w[line, 1]) * c
                arena[node + 2] += (scale * w[line, 2]) * (c + along)
                c = c + down
            if in_space:
                c_layer = c_layer + slopes[0]

    @wp.func(module=module)
    def about(total: row, moments: types.slopes, f: vec):
        """Return moments about the particle from those about the middle node."""
        for a in range(dim):
            moments[a] = moments[a] - f[a] * total
        return moments

    @wp.func(module=module)
    def collect(arena: wp.array(dtype=row), at: int, w: types.weights, f: vec):
        """Return the weighted sum of the nodes' rows, and their moments in cells, eq. (3)."""
        total = row()
        moments = types.slopes()
        for i in range(layers):
            layer = row()
            layer_line = row()
            layer_sheet = row()
            for j in range(3):
                node = at + (i * side + j) * side
                g0 = w[line, 0] * arena[node]
                g2 = w[line, 2] * arena[node + 2]
                g = g0 + w[line, 1] * arena[node + 1] + g2
                scale = w[sheet, j]
                layer += scale * g
                layer_line += scale * (g2 - g0)
                if j == 0:
                    layer_sheet = -scale * g
                if j == 2:
                    layer_sheet += scale * g
            if in_space:
                scale = w[0, i]
                total += scale * layer
                moments[line] = moments[line] + scale * layer_line
                moments[sheet] = moments[sheet] + scale * layer_sheet
                if i == 0:
                    moments[0] = -scale * layer
                if i == 2:
                    moments[0] = moments[0] + scale * layer
            else:
                total = layer
                moments[line] = layer_line
                moments[sheet] = layer_sheet
        return total, about(total, moments, f)

    @wp.func(module=module)
    def collect_gradient(
        arena: wp.array(dtype=row), at: int, w: types.weights, f: vec, middle: row, slopes: types.slopes
    ):
        """Return what `collect` does, and the derivative by the position in cells, eq. (4)."""
        dw = slopes_of_weights(f)
        total = row()
        moments = types.slopes()
        gradient = vec()
        along = slopes[line]
        down = slopes[sheet]
        c_layer = middle
        if in_space:
            c_layer = middle - slopes[0]
        for i in range(layers):
            layer = row()
            layer_line = row()
            layer_sheet = row()
            value = real(0.0)
            by_line = real(0.0)
            by_sheet = real(0.0)
            c = c_layer - down
            for j in range(3):
                node = at + (i * side + j) * side
                n0 = arena[node]
                n1 = arena[node + 1]
                n2 = arena[node + 2]
                y0 = wp.dot(c - along, n0)
                y1 = wp.dot(c, n1)
                y2 = wp.dot(c + along, n2)
                y = w[line, 0] * y0 + w[line, 1] * y1 + w[line, 2] * y2
                dy = dw[line, 0] * y0 + dw[line, 1] * y1 + dw[line, 2] * y2
                g0 = w[line, 0] * n0
                g2 = w[line, 2] * n2
                g = g0 + w[line, 1] * n1 + g2
                scale = w[sheet, j]
                layer += scale * g
                layer_line += scale * (g2 - g0)
                value += scale * y
                by_line += scale * dy
                by_sheet += dw[sheet, j] * y
                if j == 0:
                    layer_sheet = -scale * g
                if j == 2:
                    layer_sheet += scale * g
                c = c + down
            if in_space:
                scale = w[0, i]
                total += scale * layer
                moments[line] = moments[line] + scale * layer_line
                moments[sheet] = moments[sheet] + scale * layer_sheet
                gradient[line] = gradient[line] + scale * by_line
                gradient[sheet] = gradient[sheet] + scale * by_sheet
                gradient[0] = gradient[0] + dw[0, i] * value
                if i == 0:
                    moments[0] = -scale * layer
                if i == 2:
                    moments[0] = moments[0] + scale * layer
                c_layer = c_layer + slopes[0]
            else:
                total = layer
                moments[line] = layer_line
                moments[sheet] = layer_sheet
                gradient[line] = by_line
                gradient[sheet] = by_sheet
        for a in range(dim):
            gradient[a] = gradient[a] - wp.dot(slopes[a], total)
        return total, about(total, moments, f), gradient

    return SimpleNamespace(
        place=place, weights_at=weights_at, spread=spread, collect=collect, collect_gradient=collect_gradient
    )
