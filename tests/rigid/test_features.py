"""Gap, point and normal of two features: what they are, and their adjoint against central differences."""

from itertools import product

import numpy as np
import pytest
import warp as wp

from tests.rigid import collision_scene as cs
from tests.rigid.collision_scene import BOX, CAPSULE, PLANE, SPHERE

VERTEX, EDGE, FACE = range(3)
FEATURES = {SPHERE: ["vertex"], CAPSULE: ["vertex", "edge"], BOX: ["vertex", "edge", "face"], PLANE: ["face"]}
KIND = {"vertex": VERTEX, "edge": EDGE, "face": FACE}
CASES = [
    (a, feature_a, b, feature_b)
    for a, b in product(FEATURES, FEATURES)
    for feature_a, feature_b in product(FEATURES[a], FEATURES[b])
    if (feature_a, feature_b) != ("face", "face") and {feature_a, feature_b} != {"edge", "face"}
]
WORLDS = 8
STEP = 1e-6


def code(kind, axis, signs):
    return kind * 81 + axis * 27 + signs[0] + 1 + 3 * (signs[1] + 1) + 9 * (signs[2] + 1)


def random_feature(rng, shape, feature):
    kind = KIND[feature]
    if shape == PLANE:
        return code(kind, 2, (0, 0, 0))
    if shape in (SPHERE, CAPSULE):
        z = rng.choice([-1, 1]) if shape == CAPSULE and kind == VERTEX else rng.choice([-1, 0]) if kind == EDGE else 0
        return code(kind, 2 if kind == EDGE else 0, (0, 0, z))
    axis = rng.integers(3)
    signs = rng.choice([-1, 1], size=3)
    if kind == EDGE:
        signs[axis] = rng.choice([-1, 0])
    if kind == FACE:
        signs = np.where(np.arange(3) == axis, signs, 0)
    return code(kind, axis, signs)


def random_half(rng, shape, worlds=WORLDS):
    extents = {SPHERE: (0, 0, 0), CAPSULE: (0, 0, 1), BOX: (1, 1, 1), PLANE: (0, 0, 0)}[shape]
    return rng.uniform(0.2, 0.6, size=(worlds, 3)) * extents


def random_placement(rng, kind_a, feature_a, kind_b, feature_b, bodies=(0, 1)):
    poses = np.concatenate(
        [cs.pose_rows(cs.rotations(rng, WORLDS), rng.normal(size=(WORLDS, 3)), WORLDS) for _ in "ab"], 1
    )
    shapes = [
        cs.shape_rows(
            random_half(rng, kind), rng.uniform(0.1, 0.3, (WORLDS, 1)), cs.rotations(rng, WORLDS),
            rng.normal(size=(WORLDS, 3)), WORLDS,
        )
        for kind in (kind_a, kind_b)
    ]  # fmt: skip
    selected = np.zeros((WORLDS, cs.ROWS))
    selected[:, 1] = [random_feature(rng, kind_a, feature_a) for _ in range(WORLDS)]
    selected[:, 2] = [random_feature(rng, kind_b, feature_b) for _ in range(WORLDS)]
    return cs.make_scene([kind_a, kind_b], bodies, [(0, 1)]), poses, np.concatenate(shapes, 1), selected


def move_body(poses, body, direction, step):
    """Return the poses after a small rigid motion of a body: a rotation about the world's origin or a shift."""
    moved = poses.copy()
    R = poses[:, 12 * body : 12 * body + 9].reshape(-1, 3, 3)
    p = poses[:, 12 * body + 9 : 12 * body + 12]
    axis = np.eye(3)[direction % 3]
    if direction < 3:
        turn = cs.rotation(axis, step)
        moved[:, 12 * body : 12 * body + 9] = (turn @ R).reshape(-1, 9)
        moved[:, 12 * body + 9 : 12 * body + 12] = p @ turn.T
    else:
        moved[:, 12 * body + 9 : 12 * body + 12] = p + step * axis
    return moved


def turn_shape(shapes, shape, direction, step):
    """Return the shapes' rows with R_BS of one of them turned by a small angle about an axis of its body."""
    moved = shapes.copy()
    row = 16 * shape + 4
    turned = cs.rotation(np.eye(3)[direction], step) @ shapes[:, row : row + 9].reshape(-1, 3, 3)
    moved[:, row : row + 9] = turned.reshape(-1, 9)
    return moved


def agree(analytic, numeric):
    scale = 1 + np.abs(numeric).max(axis=1, keepdims=True)
    np.testing.assert_allclose(analytic / scale, numeric / scale, atol=1e-7, rtol=0)


@pytest.mark.parametrize(("kind_a", "feature_a", "kind_b", "feature_b"), CASES)
@pytest.mark.parametrize("bodies", [(0, 1), (1, -1)])
def test_adjoint_agrees_with_central_differences(kind_a, feature_a, kind_b, feature_b, bodies):
    rng = np.random.default_rng(3)
    scene, poses, shapes, selected = random_placement(rng, kind_a, feature_a, kind_b, feature_b, bodies)
    adj = rng.normal(size=(WORLDS, cs.ROWS))
    wrench, adj_shapes = cs.contact_cotangents(scene, poses, shapes, selected, adj)

    def loss(poses, shapes):
        return (cs.place_contact(scene, poses, shapes, selected)[:, 3:] * adj[:, 3:]).sum(1)

    def difference(change):
        return (loss(*change(STEP)) - loss(*change(-STEP))) / (2 * STEP)

    by_bodies = [
        difference(lambda e, b=body, k=k: (move_body(poses, b, k, e), shapes)) for body in range(2) for k in range(6)
    ]
    agree(wrench, np.stack(by_bodies, 1))
    unit = np.eye(32)
    plain = [row for row in range(32) if not 4 <= row % 16 < 13]
    by_rows = [difference(lambda e, r=row: (poses, shapes + e * unit[r])) for row in plain]
    agree(adj_shapes[:, plain], np.stack(by_rows, 1))
    by_turns, turned = [], []
    for shape, k in product(range(2), range(3)):
        by_turns.append(difference(lambda e, s=shape, k=k: (poses, turn_shape(shapes, s, k, e))))
        # the matrix that pairs with a small turn of R_BS
        rows = slice(16 * shape + 4, 16 * shape + 13)
        R = shapes[:, rows].reshape(-1, 3, 3)
        generator = np.cross(np.eye(3)[k], np.eye(3), axisb=0, axisc=0)
        turned.append((adj_shapes[:, rows].reshape(-1, 3, 3) * (generator @ R)).sum((1, 2)))
    agree(np.stack(turned, 1), np.stack(by_turns, 1))


@pytest.mark.parametrize(("kind_a", "feature_a", "kind_b", "feature_b"), CASES)
def test_the_two_surfaces_meet_in_the_point(kind_a, feature_a, kind_b, feature_b):
    """Exchanging a and b turns the normal round and leaves gap and point where they are."""
    rng = np.random.default_rng(4)
    scene, poses, shapes, selected = random_placement(rng, kind_a, feature_a, kind_b, feature_b)
    contact = cs.place_contact(scene, poses, shapes, selected)
    exchanged = selected.copy()
    exchanged[:, [1, 2]] = selected[:, [2, 1]]
    swapped = cs.make_scene([kind_a, kind_b], (0, 1), [(1, 0)])
    other = cs.place_contact(swapped, poses, shapes, exchanged)
    # the normal of two edges has the sense of the first one's direction: a x b
    np.testing.assert_allclose(other[:, 7:], -contact[:, 7:], atol=1e-12)
    np.testing.assert_allclose(other[:, 3:7], contact[:, 3:7], atol=1e-12)


def test_float32_agrees_with_float64():
    rng = np.random.default_rng(5)
    scene, poses, shapes, selected = random_placement(rng, BOX, "edge", BOX, "edge")
    adj = rng.normal(size=(WORLDS, cs.ROWS))
    for single, double in zip(
        (cs.place_contact(scene, poses, shapes, selected, wp.float32),
         *cs.contact_cotangents(scene, poses, shapes, selected, adj, wp.float32)),
        (cs.place_contact(scene, poses, shapes, selected), *cs.contact_cotangents(scene, poses, shapes, selected, adj)),
    ):  # fmt: skip
        assert np.abs(single - double).max() < 1e-4 * (1 + np.abs(double).max())


def test_without_cotangents_of_the_shapes_the_wrenches_are_the_same():
    rng = np.random.default_rng(6)
    scene, poses, shapes, selected = random_placement(rng, CAPSULE, "edge", BOX, "vertex")
    adj = rng.normal(size=(WORLDS, cs.ROWS))
    with_shapes, _ = cs.contact_cotangents(scene, poses, shapes, selected, adj)
    without, _ = cs.contact_cotangents(scene, poses, shapes, selected, adj, with_shapes=False)
    np.testing.assert_array_equal(with_shapes, without)
