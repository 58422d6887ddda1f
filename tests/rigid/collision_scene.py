"""Scenes filled by hand, and launches of the collision functions on them, for the tests of collision."""

from functools import cache

import numpy as np
import warp as wp

from pullback.core.modules import kernel_module
from pullback.rigid.collide.collide_kernels import collide, contact_vjp
from pullback.rigid.collide.geometry_kernels import add_candidate, add_contact
from pullback.rigid.compile.scene import (
    CANDIDATE_ROWS,
    CONTACT_ROWS,
    FEATURE_A,
    FEATURE_B,
    GAP,
    MAX_CANDIDATES,
    NORMAL,
    PAIR,
    POINT,
    Scene,
)
from pullback.spatial.arrays import load3

SPHERE, CAPSULE, BOX, PLANE = range(4)
ROWS = 10


def rotations(rng, n):
    """Return n random rotation matrices."""
    q = rng.normal(size=(n, 4))
    x, y, z, w = (q / np.linalg.norm(q, axis=1, keepdims=True)).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), -1, 0)


def rotation(axis, angle):
    """Return the matrix of a rotation about an axis."""
    a = np.asarray(axis, float) / np.linalg.norm(axis)
    K = np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


def rows_of(*parts, worlds=1):
    """Return arrays, each of one world or of many, flattened and joined to (worlds, rows)."""
    return np.concatenate([np.broadcast_to(np.reshape(p, (-1, n)), (worlds, n)) for p, n in parts], axis=1)


def pose_rows(R, p, worlds=1):
    return rows_of((R, 9), (p, 3), worlds=worlds)


def shape_rows(half, radius, R=None, p=(0, 0, 0), worlds=1):
    return rows_of((half, 3), (radius, 1), (np.eye(3) if R is None else R, 9), (p, 3), worlds=worlds)


def make_scene(kinds, bodies, pairs, max_contacts=16):
    scene = Scene()
    scene.shape_kind = wp.array(kinds, dtype=wp.int32, device="cpu")
    scene.shape_body = wp.array(bodies, dtype=wp.int32, device="cpu")
    scene.npair = len(pairs)
    scene.pair_a = wp.array([a for a, _ in pairs], dtype=wp.int32, device="cpu")
    scene.pair_b = wp.array([b for _, b in pairs], dtype=wp.int32, device="cpu")
    scene.max_contacts = max_contacts
    return scene


@cache
def kernels(real):
    a = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("test_collide", real))
    def find(
        scene: Scene, poses: a, shapes: a, margin: real, contacts: a, candidates: a, counts: wp.array(dtype=wp.int32)
    ):
        w = wp.tid()
        counts[w] = collide(scene, poses, shapes, margin, margin, w, contacts, candidates, candidates, candidates)

    @wp.kernel(module=kernel_module("test_collide", real))
    def place(scene: Scene, poses: a, shapes: a, selected: a, contacts: a, candidates: a):
        w = wp.tid()
        code_a = int(selected[FEATURE_A, w])
        code_b = int(selected[FEATURE_B, w])
        nowhere = wp.vector(real(0.0), real(0.0), real(0.0))
        add_candidate(code_a, code_b, nowhere, w, candidates, 0)
        add_contact(scene, poses, shapes, real(1.0e9), w, contacts, int(selected[PAIR, w]), candidates, 0, 0)

    @wp.kernel(module=kernel_module("test_collide", real))
    def vjp(scene: Scene, poses: a, shapes: a, contacts: a, adj: a, wrench: a, adj_shapes: a):
        w = wp.tid()
        for c in range(adj.shape[0] // CONTACT_ROWS):
            row = c * CONTACT_ROWS
            adj_gap = adj[row + GAP, w]
            adj_point = load3(adj, row + POINT, w)
            adj_normal = load3(adj, row + NORMAL, w)
            contact_vjp(
                scene, poses, shapes, w, contacts, c, adj_gap, adj_point, adj_normal, wrench, adj_shapes,
                contacts,
            )  # fmt: skip

    return find, place, vjp


def to_warp(x, real):
    """Return (worlds, rows) as an array indexed [row, world] with a world's rows neighbours in memory."""
    return wp.array(np.ascontiguousarray(x), dtype=real, device="cpu").transpose()


def make_candidates(worlds, real):
    """Return room for the candidates of a pair."""
    return to_warp(np.zeros((worlds, int(CANDIDATE_ROWS) * int(MAX_CANDIDATES))), real)


def _launch(kernel, worlds, inputs):
    wp.launch(kernel, dim=worlds, inputs=inputs, device="cpu", block_dim=1)


def find_contacts(scene, poses, shapes, margin, real=wp.float64):
    """Return how many contacts each world has, and the contacts, (worlds, max_contacts + 1, rows)."""
    worlds = len(poses)
    contacts = to_warp(np.full((worlds, (scene.max_contacts + 1) * ROWS), np.nan), real)
    counts = wp.zeros(worlds, dtype=wp.int32, device="cpu")
    inputs = [
        scene,
        to_warp(poses, real),
        to_warp(shapes, real),
        real(margin),
        contacts,
        make_candidates(worlds, real),
        counts,
    ]
    _launch(kernels(real)[0], worlds, inputs)
    return counts.numpy(), contacts.numpy().T.reshape(worlds, -1, ROWS)


def place_contact(scene, poses, shapes, selected, real=wp.float64):
    """Return the contact (worlds, rows) between the features that `selected` names."""
    contacts = to_warp(np.zeros((len(poses), ROWS)), real)
    inputs = [scene, to_warp(poses, real), to_warp(shapes, real), to_warp(selected, real), contacts]
    inputs.append(make_candidates(len(poses), real))
    _launch(kernels(real)[1], len(poses), inputs)
    return contacts.numpy().T


def contact_cotangents(scene, poses, shapes, contacts, adj, real=wp.float64, with_shapes=True):
    """Return the wrenches on the bodies (worlds, 6 nbody) and the cotangents of the shapes' rows."""
    wrench = to_warp(np.zeros((len(poses), 6 * max(1, poses.shape[1] // 12))), real)
    adj_shapes = to_warp(np.zeros_like(shapes, dtype=float), real) if with_shapes else None
    inputs = [scene, *(to_warp(x, real) for x in (poses, shapes, contacts, adj)), wrench, adj_shapes]
    _launch(kernels(real)[2], len(poses), inputs)
    return wrench.numpy().T, None if adj_shapes is None else adj_shapes.numpy().T
