"""Kernels that find the contacts of a scene of two shapes, and pull cotangents of one contact back."""

from functools import cache
from typing import Any

import warp as wp

from pullback.core.modules import kernel_module
from pullback.rigid.collide.collide_kernels import collide
from pullback.rigid.collide.smooth.pair_kernels import any_smooth_contact_vjp
from pullback.rigid.compile.scene import GAP, NORMAL, POINT, Scene
from pullback.rigid.step.variants import shape_functions, variant
from pullback.spatial.arrays import load3


@cache
def kernels() -> tuple[Any, Any]:
    """Return the kernels that find contacts and pull cotangents back."""
    array = wp.array2d(dtype=wp.float64)
    collide_all = variant(collide, "all", shape_functions("all_smooth"))

    @wp.kernel(module=kernel_module("pairs", wp.float64))
    def find(
        scene: Scene, poses: array, shapes: array, margin: wp.float64, contacts: array, candidates: array, work: array,
        counts: wp.array(dtype=wp.int32),
    ):  # fmt: skip
        w = wp.tid()
        counts[w] = collide_all(scene, poses, shapes, margin, wp.float64(0.0), w, contacts, poses, candidates, work)

    @wp.kernel(module=kernel_module("pairs_vjp", wp.float64))
    def vjp(
        scene: Scene, poses: array, shapes: array, contacts: array, adj: array, wrench: array, adj_shapes: array,
        tape: array,
    ):  # fmt: skip
        w = wp.tid()
        any_smooth_contact_vjp(
            scene, poses, shapes, w, contacts, 0, adj[GAP, w], load3(adj, POINT, w),
            load3(adj, NORMAL, w), wrench, adj_shapes, tape,
        )  # fmt: skip

    return find, vjp
