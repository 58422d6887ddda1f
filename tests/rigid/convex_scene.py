"""Pairs of convex shapes in many poses, and launches of their collision functions, for the tests of convex shapes."""

from functools import cache

import numpy as np
import warp as wp

from pullback.core.modules import kernel_module
from pullback.rigid.collide.convex.contact_kernels import add_hull_contact, hull_contact_vjp
from pullback.rigid.collide.convex.convex_kernels import CONVEX_ROWS, collide_hulls, hulls_are_near
from pullback.rigid.collide.convex.hulls import box_hull, cylinder_hull, plane_hull, point_hull, segment_hull
from pullback.rigid.collide.convex.tables import hull_tables
from pullback.rigid.compile.scene import CONTACT_ROWS, GAP, NORMAL, POINT, Scene
from pullback.spatial.arrays import load3
from tests.rigid import collision_scene as cs

BUILT_IN = {"sphere": 0, "capsule": 1, "box": 2, "plane": 3, "cylinder": 4}


@cache
def kernels(real):
    a = wp.array2d(dtype=real)
    module = kernel_module("test_convex", real)

    @wp.kernel(module=module)
    def find(
        scene: Scene, poses: a, shapes: a, margin: real, contacts: a, candidates: a, work: a,
        counts: wp.array(dtype=wp.int32),
    ):  # fmt: skip
        w = wp.tid()
        count = scene.npair - scene.npair
        for pair in range(scene.npair):
            found = count - count
            if hulls_are_near(scene, poses, shapes, margin, w, pair):
                found = collide_hulls(scene, poses, shapes, margin, w, candidates, pair, work)
            for k in range(found):
                count = add_hull_contact(scene, poses, shapes, margin, w, contacts, pair, candidates, k, count)
        counts[w] = count

    @wp.kernel(module=kernel_module("test_convex_vjp", real))
    def vjp(scene: Scene, poses: a, shapes: a, contacts: a, adj: a, wrench: a, adj_shapes: a):
        w = wp.tid()
        for c in range(adj.shape[0] // CONTACT_ROWS):
            row = c * CONTACT_ROWS
            adj_gap = adj[row + GAP, w]
            adj_point = load3(adj, row + POINT, w)
            adj_normal = load3(adj, row + NORMAL, w)
            hull_contact_vjp(
                scene, poses, shapes, w, contacts, c, adj_gap, adj_point, adj_normal, wrench, adj_shapes
            )  # fmt: skip

    return find, vjp


class Pair:
    """Two shapes on a body each; a shape is (kind, half extents, radius) or ("mesh", hull, scale)."""

    def __init__(self, a, b, max_contacts=12, device="cpu"):
        hulls = [point_hull(), segment_hull(), box_hull(), plane_hull(), cylinder_hull()]
        places, self.sizes = [], []
        for kind, what, number in (a, b):
            if kind == "mesh":
                hulls.append(what)
            places.append(len(hulls) - 1 if kind == "mesh" else BUILT_IN[kind])
            self.sizes.append(((number,) * 3, 0.0) if kind == "mesh" else (what, number))
        self.device = device
        self.scene = cs.make_scene([0, 0], [0, 1], [(0, 1)], max_contacts)
        self.scene.hulls = hull_tables(hulls, places, device)
        for name in ("shape_kind", "shape_body", "pair_a", "pair_b"):
            setattr(self.scene, name, getattr(self.scene, name).to(device))

    def rows(self, x, real):
        """Return (worlds, rows) as an array of the device indexed [row, world]."""
        return cs.to_warp(x, real) if self.device == "cpu" else wp.array(x.T, dtype=real, device=self.device)

    def shape_rows(self, worlds):
        return np.concatenate([cs.shape_rows(h, radius, worlds=worlds) for h, radius in self.sizes], 1)

    def find(self, R_a, p_a, R_b, p_b, margin, real=wp.float64, shapes=None):
        """Return how many contacts each world has, and the contacts (worlds, max_contacts + 1, rows)."""
        poses = self.poses(R_a, p_a, R_b, p_b)
        worlds = len(poses)
        shapes = self.shape_rows(worlds) if shapes is None else shapes
        contacts = self.rows(np.full((worlds, (self.scene.max_contacts + 1) * cs.ROWS), np.nan), real)
        work = self.rows(np.zeros((worlds, int(CONVEX_ROWS))), real)
        counts = wp.zeros(worlds, dtype=wp.int32, device=self.device)
        inputs = [self.scene, self.rows(poses, real), self.rows(shapes, real), real(margin), contacts]
        inputs += [self.rows(np.zeros((worlds, 160)), real), work, counts]
        self.launch(kernels(real)[0], worlds, inputs)
        return counts.numpy(), contacts.numpy().T.reshape(worlds, -1, cs.ROWS)

    def cotangents(self, R_a, p_a, R_b, p_b, contacts, adj, real=wp.float64):
        """Return the wrenches on the two bodies (worlds, 12) and the cotangents of the shapes' rows."""
        poses = self.poses(R_a, p_a, R_b, p_b)
        shapes = self.shape_rows(len(poses))
        wrench = self.rows(np.zeros((len(poses), 12)), real)
        adj_shapes = self.rows(np.zeros_like(shapes), real)
        inputs = [self.scene, *(self.rows(x, real) for x in (poses, shapes, contacts, adj))]
        self.launch(kernels(real)[1], len(poses), [*inputs, wrench, adj_shapes])
        return wrench.numpy().T, adj_shapes.numpy().T

    def launch(self, kernel, worlds, inputs):
        block = 1 if self.device == "cpu" else 64
        wp.launch(kernel, dim=worlds, inputs=inputs, device=self.device, block_dim=block)

    @staticmethod
    def poses(R_a, p_a, R_b, p_b):
        worlds = max(np.size(R_a) // 9, np.size(p_a) // 3, np.size(R_b) // 9, np.size(p_b) // 3)
        return np.concatenate([cs.pose_rows(R_a, p_a, worlds), cs.pose_rows(R_b, p_b, worlds)], 1)


def deepest(counts, contacts):
    """Return gap, point and normal of the deepest contact of each world, NaN where there is none."""
    gaps = np.where(np.arange(contacts.shape[1]) < counts[:, None], contacts[:, :, 3], np.inf)
    best = contacts[np.arange(len(counts)), np.argmin(gaps, 1)]
    return best[:, 3], best[:, 4:7], best[:, 7:]
