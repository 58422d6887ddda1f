"""Two shapes in poses given by hand, launched through the functions that find and differentiate contacts."""

from functools import cache

import numpy as np
import warp as wp

from pullback.core.modules import kernel_module
from pullback.sdf.fields import STACK_ROWS, TAPE_ROWS, Fields
from pullback.sdf.operators import make_fields
from pullback.sdf.sample_kernels import deepest_sample, sample_contact_vjp, sample_position
from pullback.spatial.arrays import load3, load4, load33, store

# rows of a contact: sample, gap, point, normal, in the world
ROWS = 8
MOST = 8


@cache
def kernels(real):
    a = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("test_sdf_contact", real))
    def collide(fields: Fields, poses: a, size: a, parameters: a, margin: real, out: a, work: a):
        """poses: R_WX, p_WX, R_WY, p_WY; size: half extents and radius of X."""
        w = wp.tid()
        R_WX = load33(poses, 0, w)
        R_WY = load33(poses, 12, w)
        p_WY = load3(poses, 21, w)
        h = load4(size, 0, w)
        R = wp.transpose(R_WY) * R_WX
        p = (load3(poses, 9, w) - p_WY) * R_WY
        count = int(0)  # noqa: RUF046, UP018
        for cluster in range(fields.set_first[1]):
            sample, x, distance, n = deepest_sample(
                fields, 0, parameters, 0, cluster, wp.vector(h[0], h[1], h[2]), h[3], R, p, margin, w, work
            )
            if sample >= 0:
                row = 1 + count * wp.static(ROWS)
                point = x - real(0.5) * (distance + h[3]) * n
                out[row, w] = real(sample)
                out[row + 1, w] = distance - h[3]
                store(out, row + 2, w, p_WY + R_WY * point)
                store(out, row + 5, w, R_WY * n)
                count += 1
        out[0, w] = real(count)

    @wp.kernel(module=kernel_module("test_sdf_contact_vjp", real))
    def vjp(
        fields: Fields, poses: a, size: a, parameters: a, sample: wp.array(dtype=wp.int32), adj: a, wrenches: a,
        adj_size: a, adj_parameters: a, work: a,
    ):  # fmt: skip
        """adj: of gap, point, normal in the world; wrenches: of X and Y about the world's origin, torque first."""
        w = wp.tid()
        R_WX = load33(poses, 0, w)
        p_WX = load3(poses, 9, w)
        R_WY = load33(poses, 12, w)
        p_WY = load3(poses, 21, w)
        h = load4(size, 0, w)
        extents = wp.vector(h[0], h[1], h[2])
        local = sample_position(fields, sample[w], extents)
        X = p_WX + R_WX * local
        g = load3(adj, 1, w)
        push, adj_n, adj_radius = sample_contact_vjp(
            fields, 0, parameters, 0, (X - p_WY) * R_WY, h[3], adj[0, w], g * R_WY, load3(adj, 4, w) * R_WY, w,
            adj_parameters, work,
        )  # fmt: skip
        # the normal in the world, again
        f = R_WY * push
        force = g + f
        turn = R_WY * adj_n
        n = load3(adj, 7, w)
        store(wrenches, 0, w, wp.cross(X, force))
        store(wrenches, 3, w, force)
        store(wrenches, 6, w, wp.cross(n, turn) - wp.cross(X, f))
        store(wrenches, 9, w, -f)
        unit = sample_position(fields, sample[w], wp.vector(real(1.0), real(1.0), real(1.0)))
        adj_h = wp.cw_mul(unit, force * R_WX)
        store(adj_size, 0, w, wp.vector(adj_h[0], adj_h[1], adj_h[2], adj_radius))

    return collide, vjp


class Pair:
    """A sampled shape and a field, of many worlds; all arrays (worlds, rows)."""

    def __init__(self, program, samples, real=wp.float64):
        self.fields = make_fields([program], [samples], "cpu")
        self.real = real
        self.dtype = np.float64 if real is wp.float64 else np.float32

    def _array(self, x, worlds):
        # rows of a world are neighbours in memory
        rows = np.ascontiguousarray(np.broadcast_to(x, (worlds, np.shape(x)[-1])).astype(self.dtype))
        return wp.array(rows, dtype=self.real, device="cpu").transpose()

    def collide(self, poses, size, parameters, margin):
        """Return a list, for each world, of contacts (n, ROWS)."""
        worlds = len(poses)
        out = self._array(np.zeros((worlds, 1 + MOST * ROWS)), worlds)
        work = self._array(np.zeros((worlds, STACK_ROWS)), worlds)
        inputs = [self.fields, *(self._array(x, worlds) for x in (poses, size, parameters)), margin, out, work]
        wp.launch(kernels(self.real)[0], dim=worlds, inputs=inputs, device="cpu")
        rows = out.numpy().T
        return [row[1:].reshape(MOST, ROWS)[: int(row[0])] for row in rows]

    def vjp(self, poses, size, parameters, sample, adj, normal):
        """Return the wrenches (worlds, 12) and the cotangents of size and parameters."""
        worlds = len(poses)
        outs = [self._array(np.zeros((worlds, n)), worlds) for n in (12, 4, np.shape(parameters)[-1], TAPE_ROWS)]
        inputs = [
            self.fields,
            *(self._array(x, worlds) for x in (poses, size, parameters)),
            wp.array(sample, dtype=wp.int32, device="cpu"),
            self._array(np.concatenate([adj, normal], 1), worlds),
            *outs,
        ]
        wp.launch(kernels(self.real)[1], dim=worlds, inputs=inputs, device="cpu")
        return [x.numpy().T for x in outs[:3]]
