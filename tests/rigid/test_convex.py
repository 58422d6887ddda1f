"""Convex shapes: hulls, and cylinders with their rims, against coal, against the definition, and by differences."""

from itertools import pairwise

import numpy as np
import pytest
import warp as wp

from pullback.rigid.collide.convex.hulls import box_hull, convex_hull, cylinder_hull
from tests.reference.convex import separation, signed_distance
from tests.rigid import collision_scene as cs
from tests.rigid.convex_scene import Pair, deepest

MARGIN = 0.05
UPRIGHT = np.eye(3)
LYING = cs.rotation((0, 1, 0), np.pi / 2)
ROLLED = LYING @ cs.rotation((0, 0, 1), 0.3)
REALS = pytest.mark.parametrize("real", [wp.float64, wp.float32], ids=["float64", "float32"])


def blob(count, seed):
    points = np.random.default_rng(seed).normal(size=(count, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return "mesh", convex_hull(points * (0.3, 0.2, 0.25)), 1.0


def block(*half):
    return "mesh", convex_hull(box_hull().vertices * half), 1.0


SHAPES = {
    "sphere": ("sphere", (0, 0, 0), 0.15),
    "capsule": ("capsule", (0, 0, 0.2), 0.1),
    "box": ("box", (0.2, 0.3, 0.15), 0.0),
    "stone": blob(40, 0),
    "pebble": (*blob(14, 3)[:2], 1.2),
    "cylinder": ("cylinder", (0.2, 0.2, 0.25), 0.0),
    "plane": ("plane", (0, 0, 0), 0.0),
}
HULL_PAIRS = ["sphere-stone", "capsule-stone", "box-stone", "pebble-stone", "stone-plane"]
ROUND_PAIRS = [f"{name}-cylinder" for name in ("sphere", "capsule", "box", "stone", "cylinder")] + ["cylinder-plane"]
PRISM_ERROR = 0.2 * (1 - np.cos(np.pi / 32))
"""What a prism lacks of the cylinder of radius 0.2 it stands in."""


class Placements:
    """Two shapes in many random poses, and the contacts between them."""

    def __init__(self, names, worlds, seed=0, near=0.05, far=0.7):
        rng = np.random.default_rng(seed)
        self.shapes = [SHAPES[name] for name in names.split("-")]
        self.pair = Pair(*self.shapes)
        direction = rng.normal(size=(worlds, 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        p_b = rng.normal(size=(worlds, 3))
        p_a = p_b + rng.uniform(near, far, size=(worlds, 1)) * direction
        self.poses = [cs.rotations(rng, worlds), p_a, cs.rotations(rng, worlds), p_b]
        self.worlds = worlds

    def contacts_like(self, distances, real):
        """Return how many contacts there are, the deepest gap, and gap and normal of the one nearest to a distance."""
        counts, contacts = self.pair.find(*self.poses, MARGIN, real)
        is_one = np.arange(contacts.shape[1]) < counts[:, None]
        off = np.where(is_one, np.abs(contacts[:, :, 3] - distances[:, None]), np.inf)
        best = contacts[np.arange(self.worlds), off.argmin(1)]
        return counts, deepest(counts, contacts)[0], best[:, 3], best[:, 7:]

    def coal_distances(self):
        """Return signed distance and the direction from b to a as coal has them."""
        coal = pytest.importorskip("coal")
        request = coal.DistanceRequest()
        request.enable_signed_distance = True
        request.gjk_tolerance = request.epa_tolerance = 1e-10
        request.gjk_max_iterations = request.epa_max_iterations = 500
        a, b = (coal_shape(coal, *shape) for shape in self.shapes)
        distances, normals = np.empty(self.worlds), np.empty((self.worlds, 3))
        for w, (R_a, p_a, R_b, p_b) in enumerate(zip(*self.poses)):
            result = coal.DistanceResult()
            places = coal.Transform3s(R_a, p_a), coal.Transform3s(R_b, p_b)
            distances[w] = coal.distance(a, places[0], b, places[1], request, result)
            normals[w] = -result.normal
        return distances, normals


def coal_shape(coal, kind, what, number):
    if kind == "mesh":
        points, triangles = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
        points.extend(list(what.vertices * number))
        for first, *others in what.loops:
            for pair in pairwise(others):
                triangles.append(coal.Triangle(int(first), *map(int, pair)))
        return coal.Convex(points, triangles)
    makers = {
        "sphere": lambda: coal.Sphere(number),
        "capsule": lambda: coal.Capsule(number, 2 * what[2]),
        "box": lambda: coal.Box(*(2 * np.array(what))),
        "cylinder": lambda: coal.Cylinder(what[0], 2 * what[2]),
        "plane": lambda: coal.Halfspace(np.array([0.0, 0.0, 1.0]), 0.0),
    }
    return makers[kind]()


def reference_shape(kind, what, number):
    return ("vertices", what.vertices * number, 0.0) if kind == "mesh" else (kind, what, number)


@REALS
@pytest.mark.parametrize("names", HULL_PAIRS)
def test_gap_and_normal_of_hulls_agree_with_coal(names, real):
    placements = Placements(names, 1000)
    expected, direction = placements.coal_distances()
    counts, lowest, gap, normal = placements.contacts_like(expected, real)
    found = expected < MARGIN - 1e-6
    assert found.sum() > 400
    assert (expected[found] < 0).sum() > 300
    assert (counts[found] > 0).all()
    assert (counts[expected > MARGIN + 1e-6] == 0).all()
    # a face is preferred to edges that gain less than 1e-5 of the size; coal's search may end a little too deep
    tolerance = 1e-9 if real is wp.float64 else 2e-6
    np.testing.assert_array_less(-5e-6 - 3 * tolerance, (gap - expected)[found])
    assert (np.abs(gap - expected)[found] > tolerance).mean() < 0.01
    assert (np.linalg.norm(normal - direction, axis=1)[found] > 2e-3).mean() < (0.005 if real is wp.float64 else 0.02)
    # contacts beside the deepest of two edges may go a hundredth of the size further
    np.testing.assert_array_less(expected[found] - 0.006, lowest[found])


@pytest.mark.parametrize("names", ROUND_PAIRS)
def test_gap_of_cylinders_is_their_largest_separation(names):
    placements = Placements(names, 60, seed=1)
    counts, contacts = placements.pair.find(*placements.poses, MARGIN)
    a, b = (reference_shape(*shape) for shape in placements.shapes)
    expected = np.empty(60)
    for w, (R_a, p_a, R_b, p_b) in enumerate(zip(*placements.poses)):
        if b[0] == "plane":
            expected[w] = separation(a, ("core", (0, 0, 0), 0.0), (R_a, p_a), (R_b, p_b), R_b[None, :, 2])[0]
        else:
            hints = contacts[w, : counts[w], 7:]
            expected[w] = signed_distance(a, b, (R_a, p_a), (R_b, p_b), hints)[0]
    gap = placements.contacts_like(expected, wp.float64)[2]
    found = expected < MARGIN - 1e-6
    assert found.sum() > 25
    assert (counts[found] > 0).all()
    assert (counts[expected > MARGIN + PRISM_ERROR] == 0).all()
    # two rims: one of them is a prism's. Deep inside, a prism decides which feature is nearest
    tolerance = 1e-9 if names in ("sphere-cylinder", "cylinder-plane") else PRISM_ERROR
    np.testing.assert_allclose(gap[found], expected[found], atol=tolerance)


@REALS
@pytest.mark.parametrize("names", ROUND_PAIRS[:4])
def test_distance_of_cylinders_that_are_apart_agrees_with_coal(names, real):
    placements = Placements(names, 800, seed=2, near=0.3)
    expected, direction = placements.coal_distances()
    found = (expected < MARGIN - 1e-6) & (expected > 1e-3)
    assert found.sum() > 30
    _, _, gap, normal = placements.contacts_like(expected, real)
    # a few lie where the prism and the cylinder differ in what is nearest
    off = np.abs(gap - expected)[found]
    assert off.max() < PRISM_ERROR
    assert (off > (1e-8 if real is wp.float64 else 2e-5)).mean() < 0.03
    assert (np.linalg.norm(normal - direction, axis=1)[found] > 2e-3).mean() < 0.06


def moved(poses, body, axis, step):
    """Return poses with one body turned about (axis < 3) or shifted along an axis of the world."""
    poses = [x.copy() for x in poses]
    ahead = np.eye(3)[axis % 3]
    if axis < 3:
        turn = cs.rotation(ahead, step)
        poses[2 * body], poses[2 * body + 1] = turn @ poses[2 * body], poses[2 * body + 1] @ turn.T
    else:
        poses[2 * body + 1] = poses[2 * body + 1] + step * ahead
    return poses


SIZE_MOVES = {
    "sphere": [(0, 0, 0, 1)],
    "capsule": [(0, 0, 1, 0), (0, 0, 0, 1)],
    "box": [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)],
    "mesh": [(1, 1, 1, 0)],
    "cylinder": [(1, 1, 0, 0), (0, 0, 1, 0)],
    "plane": [],
}
"""How half extents and radius may change together."""


@pytest.mark.parametrize("names", HULL_PAIRS + ROUND_PAIRS)
def test_adjoint_of_gap_point_and_normal_by_differences(names):
    placements = Placements(names, 80, seed=5, near=0.25, far=0.6)
    pair, step = placements.pair, 1e-6
    rng = np.random.default_rng(0)
    counts, contacts = pair.find(*placements.poses, MARGIN)
    compared = 0
    for k in range(min(counts.max(), 4)):
        has = counts > k
        poses, chosen = [x[has] for x in placements.poses], contacts[has, k]
        adj = rng.normal(size=chosen.shape)
        adj[:, :3] = 0
        wrench, adj_shapes = pair.cotangents(*poses, chosen, adj)

        def losses(poses, shapes, chosen=chosen, adj=adj):
            found, after = pair.find(*poses, MARGIN + 1e-3, shapes=shapes)
            same = (after[:, :, 1:3] == chosen[:, None, 1:3]).all(2) & (np.arange(after.shape[1]) < found[:, None])
            values = (np.take_along_axis(after, same.argmax(1)[:, None, None], 1)[:, 0] * adj)[:, 3:].sum(1)
            return np.where(same.any(1), values, np.nan)

        shapes = pair.shape_rows(len(chosen))
        slopes, expected = [], []
        for body in range(2):
            for axis in range(6):
                ends = [losses(moved(poses, body, axis, x), shapes) for x in (step, -step)]
                slopes.append((ends[0] - ends[1]) / (2 * step))
                expected.append(wrench[:, 6 * body + axis])
            for move in SIZE_MOVES[placements.shapes[body][0]]:
                change = np.zeros(32)
                change[16 * body : 16 * body + 4] = move
                ends = [losses(poses, shapes + x * change) for x in (step, -step)]
                slopes.append((ends[0] - ends[1]) / (2 * step))
                expected.append(adj_shapes @ change)
        slopes, expected = np.array(slopes), np.array(expected)
        kept = np.isfinite(slopes).all(0)
        assert kept.mean() > 0.95
        scale = 1 + np.abs(expected).max(0)
        np.testing.assert_allclose((slopes / scale)[:, kept], (expected / scale)[:, kept], atol=1e-6)
        compared += kept.sum()
    assert compared > 30


CUBE, SLAB = block(0.1, 0.1, 0.1), block(1, 1, 0.1)
CAN, GROUND = ("cylinder", (0.1, 0.1, 0.2), 0.0), SHAPES["plane"]
ROD, BALL = ("capsule", (0, 0, 0.2), 0.05), ("sphere", (0, 0, 0), 0.05)
DIAGONAL = cs.rotation((1, 0, 0), np.pi / 4)

# name -> shapes a and b, position and rotation of a, rotation of b, number of contacts
RESTING = {
    "cube on slab": (CUBE, SLAB, (0.3, 0.2, 0.2), UPRIGHT, UPRIGHT, 4),
    "slab on cube": (SLAB, CUBE, (0.3, 0.2, 0.2), UPRIGHT, UPRIGHT, 4),
    "box on slab": (("box", (0.1, 0.1, 0.1), 0.0), SLAB, (0.3, 0.2, 0.2), UPRIGHT, UPRIGHT, 4),
    "cube on its like": (CUBE, CUBE, (0, 0, 0.2), UPRIGHT, UPRIGHT, 4),
    "turned by 45 degrees": (CUBE, CUBE, (0, 0, 0.2), cs.rotation((0, 0, 1), np.pi / 4), UPRIGHT, 8),
    "crossed beams": (block(0.5, 0.1, 0.1), block(0.1, 0.5, 0.1), (0, 0, 0.2), UPRIGHT, UPRIGHT, 4),
    "a little tilted": (CUBE, CUBE, (0, 0, 0.2), cs.rotation((1, 0.3, 0), 1e-4), UPRIGHT, 4),
    "edge on edge": (CUBE, CUBE, (0, 0, 0.02**0.5 * 2), DIAGONAL, cs.rotation((0, 1, 0), np.pi / 4), 1),
    "edge on face": (CUBE, SLAB, (0, 0, 0.1 + 0.02**0.5), DIAGONAL, UPRIGHT, 2),
    "cube on ground": (CUBE, GROUND, (0, 0, 0.1), UPRIGHT, UPRIGHT, 4),
    "rod on slab": (ROD, SLAB, (0, 0, 0.15), LYING, UPRIGHT, 2),
    "rod over the border": (ROD, SLAB, (0.95, 0, 0.15), LYING, UPRIGHT, 2),
    "rod along an edge": (ROD, CUBE, (0, 0, 0.02**0.5 + 0.05), LYING, DIAGONAL, 2),
    "ball on cube": (BALL, CUBE, (0, 0, 0.15), UPRIGHT, UPRIGHT, 1),
    "can on ground": (CAN, GROUND, (0, 0, 0.2), UPRIGHT, UPRIGHT, 4),
    "can on slab": (CAN, SLAB, (0, 0, 0.3), UPRIGHT, UPRIGHT, 4),
    "can on can": (CAN, CAN, (0, 0, 0.4), UPRIGHT, UPRIGHT, 4),
    "can beside can": (CAN, CAN, (0.05, 0, 0.4), UPRIGHT, UPRIGHT, 4),
    "lying can on ground": (CAN, GROUND, (0, 0, 0.1), ROLLED, UPRIGHT, 2),
    "lying can on slab": (CAN, SLAB, (0, 0, 0.2), ROLLED, UPRIGHT, 2),
    "lying can over the border": (CAN, SLAB, (0.95, 0, 0.2), ROLLED, UPRIGHT, 2),
    "crossed cans": (CAN, CAN, (0, 0, 0.2), LYING, cs.rotation((1, 0, 0), np.pi / 2), 1),
    "parallel cans": (CAN, CAN, (0, 0, 0.2), LYING, LYING, 2),
    "ball on can": (BALL, CAN, (0, 0, 0.25), UPRIGHT, UPRIGHT, 1),
}


@REALS
@pytest.mark.parametrize("case", RESTING)
def test_shapes_at_rest_have_as_many_contacts_as_they_need(case, real):
    a, b, p_a, R_a, R_b, count = RESTING[case]
    shifts = np.array([0.0, 2e-3, -1e-3])
    places = np.add(p_a, np.outer(shifts, (0, 0, 1)))
    counts, contacts = Pair(a, b).find(np.stack([R_a] * 3), places, np.stack([R_b] * 3), np.zeros((3, 3)), 0.01, real)
    np.testing.assert_array_equal(counts, count)
    for shift, found in zip(shifts, contacts[:, :count]):
        assert len(np.unique(found[:, 4:7].round(4), axis=0)) == count
        np.testing.assert_allclose(found[:, 3], shift, atol=5e-5)


def test_contacts_of_a_hull_of_a_box_are_those_of_the_box():
    rng = np.random.default_rng(3)
    half = (0.1, 0.15, 0.2), (0.3, 0.25, 0.1)
    R_a = np.stack([cs.rotation((0, 0, 1), x) for x in rng.uniform(0, 2 * np.pi, 100)])
    p_a = np.column_stack([rng.uniform(-0.3, 0.3, (100, 2)), rng.uniform(0.295, 0.305, 100)])
    still = np.broadcast_to(UPRIGHT, (100, 3, 3)), np.zeros((100, 3))
    counts, contacts = Pair(block(*half[0]), block(*half[1]), 16).find(R_a, p_a, *still, 0.01)
    shapes = np.concatenate([cs.shape_rows(h, 0, worlds=100) for h in half], 1)
    scene = cs.make_scene([cs.BOX, cs.BOX], [0, 1], [(0, 1)])
    expected_counts, expected = cs.find_contacts(scene, Pair.poses(R_a, p_a, *still), shapes, 0.01)
    # corners within a thousandth of a border may count on one side and not on the other
    same = counts == expected_counts
    assert same.mean() > 0.95
    for count, found, wanted in zip(counts[same], contacts[same], expected[same]):
        if count < 8:
            order, wanted_order = (np.lexsort(x[:count, 4:6].round(6).T) for x in (found, wanted))
            np.testing.assert_allclose(found[order, 3:], wanted[wanted_order, 3:], atol=1e-12)


def test_of_many_contacts_the_outermost_and_the_deepest_are_kept():
    wheel = "mesh", convex_hull(cylinder_hull().vertices * (0.3, 0.3, 0.05)), 1.0
    tilt = cs.rotation((1, 0, 0), 0.01)
    counts, contacts = Pair(wheel, GROUND).find(tilt, (0, 0, 0.052), UPRIGHT, (0, 0, 0), 0.01)
    assert 7 <= counts[0] <= 8
    found = contacts[0, : counts[0]]
    heights = (wheel[1].vertices @ tilt.T)[:, 2] + 0.052
    np.testing.assert_allclose(found[:, 3].min(), heights.min(), atol=1e-12)
    angles = np.sort(np.arctan2(found[:, 5], found[:, 4]))
    assert np.diff(angles, append=angles[0] + 2 * np.pi).max() < 1.2


def test_a_tilted_cylinder_touches_the_ground_with_a_point_of_its_rim():
    tilts = np.linspace(0.05, 1.5, 30)
    R = np.stack([cs.rotation((1, 0, 0), x) @ cs.rotation((0, 0, 1), 3 * x) for x in tilts])
    p = np.column_stack([0 * tilts, 0 * tilts, 0.2 * np.cos(tilts) + 0.1 * np.sin(tilts)])
    ground = np.broadcast_to(UPRIGHT, (30, 3, 3)), np.zeros((30, 3))
    gap, point, normal = deepest(*Pair(CAN, GROUND).find(R, p, *ground, 0.01))
    np.testing.assert_allclose(gap, 0, atol=1e-12)
    across = 0.2 * np.sin(tilts) - 0.1 * np.cos(tilts)
    np.testing.assert_allclose(point, np.column_stack([0 * tilts, across, 0 * tilts]), atol=1e-12)
    np.testing.assert_allclose(normal, np.broadcast_to((0, 0, 1), (30, 3)), atol=1e-12)


@REALS
def test_a_sphere_and_a_cylinder_have_their_exact_distance(real):
    rng = np.random.default_rng(6)
    R, y = cs.rotations(rng, 500), rng.uniform(-0.35, 0.35, (500, 3))
    y[:3] = (0, 0, 0), (0.1, 0, 0), (0, 0, -0.1)
    beyond = np.stack([np.hypot(y[:, 0], y[:, 1]) - 0.2, np.abs(y[:, 2]) - 0.25], 1)
    outside = np.linalg.norm(np.maximum(beyond, 0), axis=1)
    distance = np.where((beyond < 0).all(1), beyond.max(1), outside) - 0.15
    centres = np.einsum("wij,wj->wi", R, y)
    placements = np.broadcast_to(UPRIGHT, (500, 3, 3)), centres, R, np.zeros((500, 3))
    gap = deepest(*Pair(SHAPES["sphere"], SHAPES["cylinder"]).find(*placements, 1.0, real))[0]
    np.testing.assert_allclose(gap, distance, atol=1e-14 if real is wp.float64 else 2e-7)


THIN = {
    "needle": block(1e-4, 2e-4, 0.5),
    "plate": block(0.5, 0.4, 1e-4),
    "corner": ("mesh", convex_hull([(0, 0, 0), (0.2, 0, 0), (0, 0.2, 0), (0, 0, 0.2)]), 1.0),
    "cube": block(0.2, 0.2, 0.2),
    "stone": SHAPES["stone"],
    "cylinder": SHAPES["cylinder"],
    "disc": ("cylinder", (0.3, 0.3, 1e-4), 0.0),
    "wire": ("cylinder", (1e-4, 1e-4, 0.5), 0.0),
}
PLACES = [
    *((0, 0, 0), (1e-9, 0, 0), (0, 0, 0.4), (0, 0, 0.2), (0.2, 0.2, 0), (0.4, 0.4, 0.4), (0, 0, 0.2001), (0.5, 0, 0)),
    (0.1, 0.05, 1e-4),
]


@REALS
@pytest.mark.parametrize("name", THIN)
def test_degenerate_poses_give_finite_contacts_and_cotangents(name, real):
    turns = np.array([cs.rotation(axis, k * np.pi / 4) for axis in np.eye(3) for k in range(8)])
    R_a, R_b, p_a = (np.reshape(x, (-1, *np.shape(x)[3:])) for x in np.broadcast_arrays(
        turns[:, None, None], turns[None, ::3, None], np.array(PLACES)[None, None, :, None]
    ))  # fmt: skip
    p_a = p_a[:, 0]
    for other in [*THIN.values(), SHAPES["sphere"], SHAPES["capsule"], SHAPES["box"], GROUND]:
        pair = Pair(THIN[name], other)
        poses = R_a, p_a, R_b, np.zeros_like(p_a)
        counts, contacts = pair.find(*poses, 0.01, real)
        assert counts.max() <= 8
        assert (counts[np.abs(p_a).max(1) < 1e-8] > 0).all()
        found = contacts[np.arange(contacts.shape[1]) < counts[:, None]]
        assert np.isfinite(found).all()
        np.testing.assert_allclose(np.linalg.norm(found[:, 7:], axis=1), 1, atol=1e-4)
        assert np.abs(found[:, 4:7]).max() < 1.5
        has = counts > 0
        wrench, _ = pair.cotangents(*(x[has] for x in poses), contacts[has, 0], np.ones((has.sum(), 10)), real)
        assert np.isfinite(wrench).all()


@pytest.mark.gpu
@REALS
@pytest.mark.parametrize("names", ["pebble-stone", "stone-plane", "box-cylinder", "cylinder-cylinder"])
def test_a_gpu_finds_what_a_cpu_finds(names, real):
    placements = Placements(names, 500)
    expected_counts, expected = placements.pair.find(*placements.poses, MARGIN, real)
    pair = Pair(*placements.shapes, device="cuda")
    counts, contacts = pair.find(*placements.poses, MARGIN, real)
    assert (counts == expected_counts).mean() > 0.99
    tolerance = 1e-9 if real is wp.float64 else 1e-4
    gap, expected_gap = deepest(counts, contacts)[0], deepest(expected_counts, expected)[0]
    both = (counts > 0) & (counts == expected_counts)
    np.testing.assert_allclose(gap[both], expected_gap[both], atol=tolerance)
    has = expected_counts > 0
    poses, chosen, adj = [x[has] for x in placements.poses], expected[has, 0], np.ones((has.sum(), 10))
    wrench, expected_wrench = (x.cotangents(*poses, chosen, adj, real)[0] for x in (pair, placements.pair))
    scale = 1 + np.abs(expected_wrench).max(1, keepdims=True)
    np.testing.assert_allclose(wrench / scale, expected_wrench / scale, atol=10 * tolerance)


def test_shapes_far_from_the_origin_collide_as_near_it():
    placements = Placements("pebble-stone", 200, seed=4)
    near = placements.pair.find(*placements.poses, MARGIN, wp.float32)
    R_a, p_a, R_b, p_b = placements.poses
    away = np.round(np.array([1000.0, -2000.0, 500.0]))
    counts, contacts = placements.pair.find(R_a, p_a + away, R_b, p_b + away, MARGIN, wp.float32)
    assert (counts == near[0]).mean() > 0.95
    both = (counts > 0) & (near[0] > 0)
    np.testing.assert_allclose(deepest(counts, contacts)[0][both], deepest(*near)[0][both], atol=2e-3)
