"""The distance of points from a closed mesh by Warp's tree of triangles, for grids (docs/derivations/sdf.md)."""

from typing import Any

import numpy as np
import warp as wp

from pullback.core.host import warp_silenced


@wp.kernel(module="unique", enable_backward=False)
def _distance(
    mesh: wp.uint64, points: wp.array(dtype=wp.vec3), reach: float, out: wp.array(dtype=wp.float32)
):  # fmt: skip
    i = wp.tid()
    x = points[i]
    query = wp.mesh_query_point_sign_winding_number(mesh, x, reach)
    nearest = wp.mesh_eval_position(mesh, query.face, query.u, query.v)
    out[i] = query.sign * wp.length(x - nearest)


def signed_distance(vertices: np.ndarray, triangles: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the distance (n,) of points (n, 3) from a closed mesh looking outwards, below zero inside."""
    with warp_silenced:
        mesh: Any = wp.Mesh(
            points=wp.array(vertices.astype(np.float32), dtype=wp.vec3, device="cpu"),
            indices=wp.array(triangles.astype(np.int32).reshape(-1), dtype=wp.int32, device="cpu"),
            support_winding_number=True,
        )
        out = wp.empty(len(points), dtype=wp.float32, device="cpu")
        at = wp.array(points.astype(np.float32), dtype=wp.vec3, device="cpu")
        wp.launch(_distance, dim=len(points), inputs=[mesh.id, at, 1.0e6], outputs=[out], device="cpu")
    return out.numpy().astype(np.float64)
