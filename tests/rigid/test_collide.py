"""Collision of every pair of shapes: against MuJoCo, against geometry done by hand, and how many contacts there are."""

import numpy as np
import pytest
import torch
import warp as wp

import pullback as pb
from tests.rigid import collision_scene as cs
from tests.rigid.collision_scene import BOX, CAPSULE, PLANE, SPHERE

mujoco = pytest.importorskip("mujoco")

NAMES = {SPHERE: "sphere", CAPSULE: "capsule", BOX: "box", PLANE: "plane"}
PAIRS = [(a, b) for a in (SPHERE, CAPSULE, BOX) for b in NAMES if a <= b]
HALF_A = {SPHERE: (0, 0, 0), CAPSULE: (0, 0, 0.3), BOX: (0.2, 0.3, 0.25)}
HALF_B = {SPHERE: (0, 0, 0), CAPSULE: (0, 0, 0.2), BOX: (0.15, 0.2, 0.4), PLANE: (0, 0, 0)}
RADIUS = {SPHERE: 0.2, CAPSULE: 0.1, BOX: 0, PLANE: 0}
WORLDS = 400
MARGIN = 0.05
UPRIGHT = np.eye(3)
LYING = cs.rotation((0, 1, 0), np.pi / 2)


def pair_name(pair):
    return "-".join(NAMES[kind] for kind in pair)


class Placements:
    """Two shapes, each on a body of its own, in many random poses."""

    def __init__(self, kind_a, kind_b, seed=0, reach=0.7):
        rng = np.random.default_rng(seed)
        self.kinds = kind_a, kind_b
        self.R_a = cs.rotations(rng, WORLDS)
        self.R_b = cs.rotations(rng, WORLDS)
        direction = rng.normal(size=(WORLDS, 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        self.p_b = rng.normal(size=(WORLDS, 3))
        self.p_a = self.p_b + rng.uniform(0.05, reach, size=(WORLDS, 1)) * direction
        self.scene = cs.make_scene([kind_a, kind_b], [0, 1], [(0, 1)])
        self.poses = np.concatenate(
            [cs.pose_rows(self.R_a, self.p_a, WORLDS), cs.pose_rows(self.R_b, self.p_b, WORLDS)], 1
        )
        self.shapes = np.concatenate(
            [
                cs.shape_rows(HALF_A[kind_a], RADIUS[kind_a], worlds=WORLDS),
                cs.shape_rows(HALF_B[kind_b], RADIUS[kind_b], worlds=WORLDS),
            ],
            1,
        )

    def deepest(self, real=wp.float64):
        """Return gap and normal of the deepest contact of each world, NaN where there is none."""
        counts, contacts = cs.find_contacts(self.scene, self.poses, self.shapes, MARGIN, real)
        gaps = np.where(np.arange(contacts.shape[1]) < counts[:, None], contacts[:, :, 3], np.inf)
        deepest = contacts[np.arange(WORLDS), np.argmin(gaps, 1)]
        return deepest[:, 3], deepest[:, 7:]

    def mujoco_distances(self):
        """Return signed distance and the direction from b to a as MuJoCo has them."""
        model, data = self._mujoco()
        distances, normals = np.empty(WORLDS), np.empty((WORLDS, 3))
        segment, quat = np.empty(6), np.empty(4)
        for w in range(WORLDS):
            for k, (R, p) in enumerate(((self.R_a[w], self.p_a[w]), (self.R_b[w], self.p_b[w]))):
                mujoco.mju_mat2Quat(quat, R.ravel())
                data.mocap_pos[k], data.mocap_quat[k] = p, quat
            mujoco.mj_kinematics(model, data)
            distances[w] = mujoco.mj_geomDistance(model, data, 0, 1, 10.0, segment)
            normals[w] = (segment[:3] - segment[3:]) / distances[w]
        return distances, normals

    def _mujoco(self):
        geoms = ""
        for kind, half in zip(self.kinds, (HALF_A[self.kinds[0]], HALF_B[self.kinds[1]])):
            size = {SPHERE: [RADIUS[kind]], CAPSULE: [RADIUS[kind], half[2]], BOX: half, PLANE: (0, 0, 1)}[kind]
            size = " ".join(map(str, size))
            geoms += f'<body mocap="true"><geom type="{NAMES[kind]}" size="{size}"/></body>'
        model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{geoms}</worldbody></mujoco>")
        return model, mujoco.MjData(model)

    def capsule_in_box(self):
        """Return centre and direction of the capsule a in the frame of the box b."""
        x = np.einsum("wi,wij->wj", self.p_a - self.p_b, self.R_b)
        return x, np.einsum("wi,wij->wj", self.R_a[:, :, 2], self.R_b)


def capsule_separation(x, d):
    """Return the largest separation of a segment and a box over faces and pairs of edges."""
    half, l = np.array(HALF_B[BOX]), HALF_A[CAPSULE][2]
    best = (np.abs(x) - l * np.abs(d) - half).max(1)
    for axis in np.eye(3):
        n = np.cross(d, axis)
        n /= np.linalg.norm(n, axis=1, keepdims=True)
        best = np.maximum(best, np.abs((n * x).sum(1)) - np.abs(n) @ half)
    return best


@pytest.mark.parametrize("pair", PAIRS, ids=pair_name)
def test_gap_and_normal_agree_with_mujoco(pair):
    placements = Placements(*pair)
    gap, normal = placements.deepest()
    expected, direction = placements.mujoco_distances()
    compared = expected < MARGIN - 1e-9
    if pair == (CAPSULE, BOX):
        # where the box reaches the capsule's very core MuJoCo's distance is not one
        compared &= capsule_separation(*placements.capsule_in_box()) > 0
    if pair == (BOX, BOX):
        # apart, a vertex or an edge beyond the other box's face is no contact; deep inside, faces go before edges
        compared &= (expected > -0.1) & ((expected < 0) | np.isfinite(gap))
        near = (expected > 0) & (expected < MARGIN)
        assert np.isfinite(gap[near]).sum() >= 5
    assert compared.sum() > 40
    np.testing.assert_allclose(gap[compared], expected[compared], atol=1e-12)
    clear = compared & (np.abs(expected) > 1e-3)
    np.testing.assert_allclose(normal[clear], direction[clear], atol=1e-10)
    assert not np.isfinite(gap[expected > MARGIN + 1e-9]).any()


def test_a_box_that_reaches_a_capsules_core_pushes_it_out_the_short_way():
    placements = Placements(CAPSULE, BOX)
    separation = capsule_separation(*placements.capsule_in_box())
    pierced = separation < 0
    assert pierced.sum() > 40
    core_gap = placements.deepest()[0] + RADIUS[CAPSULE]
    # a face is taken rather than an edge that is a little less deep
    ratio = core_gap[pierced] / separation[pierced]
    assert ratio.min() > 1 - 1e-9
    assert ratio.max() < 1 / 0.95 + 1e-9


@pytest.mark.parametrize("pair", PAIRS, ids=pair_name)
def test_float32_finds_the_same(pair):
    placements = Placements(*pair, seed=1)
    double, _ = placements.deepest()
    single, _ = placements.deepest(wp.float32)
    assert (np.isfinite(single) == np.isfinite(double)).mean() > 0.99
    both = np.isfinite(single) & np.isfinite(double)
    np.testing.assert_allclose(single[both], double[both], atol=1e-5)


def two_shapes(a, b, p_a, R_a=UPRIGHT, R_b=UPRIGHT, margin=0.01, real=wp.float64):
    """Return the contacts of two shapes (kind, half extents, radius), b at the origin."""
    poses = np.concatenate([cs.pose_rows(R_a, p_a), cs.pose_rows(R_b, (0, 0, 0))], 1)
    shapes = np.concatenate([cs.shape_rows(*a[1:]), cs.shape_rows(*b[1:])], 1)
    counts, contacts = cs.find_contacts(cs.make_scene([a[0], b[0]], [0, 1], [(0, 1)]), poses, shapes, margin, real)
    return contacts[0, : counts[0]]


CUBE = (BOX, (0.1, 0.1, 0.1), 0)
SLAB = (BOX, (1, 1, 0.1), 0)
BEAM_X, BEAM_Y = (BOX, (0.5, 0.05, 0.1), 0), (BOX, (0.05, 0.5, 0.1), 0)
GROUND = (PLANE, (0, 0, 0), 0)
BALL = (SPHERE, (0, 0, 0), 0.05)
ROD = (CAPSULE, (0, 0, 0.2), 0.05)
LONG_ROD = (CAPSULE, (0, 0, 1.5), 0.05)
DIAGONAL = cs.rotation((0, 0, 1), np.pi / 4)

RESTING = {
    "ball on ground": (BALL, GROUND, (0, 0, 0.05), UPRIGHT, UPRIGHT, 1),
    "ball on box": (BALL, CUBE, (0, 0, 0.15), UPRIGHT, UPRIGHT, 1),
    "standing rod": (ROD, GROUND, (0, 0, 0.25), UPRIGHT, UPRIGHT, 1),
    "lying rod": (ROD, GROUND, (0, 0, 0.05), LYING, UPRIGHT, 2),
    "rod on slab": (ROD, SLAB, (0, 0, 0.15), LYING, UPRIGHT, 2),
    "rod over both ends of a slab": (LONG_ROD, SLAB, (0, 0, 0.15), LYING, UPRIGHT, 2),
    "rod over one end of a slab": (ROD, SLAB, (0.95, 0, 0.15), LYING, UPRIGHT, 2),
    "rod across the edge of a slab": (
        ROD, SLAB, (1 + 0.05 / 2**0.5, 0, 0.1 + 0.05 / 2**0.5), cs.rotation((0, 1, 0), 0.75 * np.pi), UPRIGHT, 1,
    ),
    "rod along the edge of a slab": (
        ROD, SLAB, (1 + 0.05 / 2**0.5, 0, 0.1 + 0.05 / 2**0.5), cs.rotation((1, 0, 0), np.pi / 2), UPRIGHT, 2,
    ),
    "rods on each other": (ROD, ROD, (0.1, 0, 0.1), LYING, LYING, 2),
    "rods of opposite sense": (ROD, ROD, (0.1, 0, 0.1), LYING, LYING.T, 2),
    "equal rods": (ROD, ROD, (0, 0, 0.1), LYING, LYING, 2),
    "rods in a line": (ROD, ROD, (0.5, 0, 0), LYING, LYING, 1),
    "crossed rods": (ROD, ROD, (0, 0, 0.1), LYING, DIAGONAL @ LYING, 1),
    "box on ground": (CUBE, GROUND, (0, 0, 0.1), UPRIGHT, UPRIGHT, 4),
    "equal boxes": (CUBE, CUBE, (0, 0, 0.2), UPRIGHT, UPRIGHT, 4),
    "small box on big": (CUBE, SLAB, (0.3, 0.2, 0.2), UPRIGHT, UPRIGHT, 4),
    "big box on small": (SLAB, CUBE, (0.3, 0.2, 0.2), UPRIGHT, UPRIGHT, 4),
    "boxes side by side": (CUBE, CUBE, (0.2, 0, 0.05), UPRIGHT, UPRIGHT, 4),
    "crossed beams": (BEAM_X, BEAM_Y, (0, 0, 0.2), UPRIGHT, UPRIGHT, 4),
    "turned by 45 degrees": (CUBE, CUBE, (0, 0, 0.2), DIAGONAL, UPRIGHT, 8),
    "a little tilted": (CUBE, CUBE, (0, 0, 0.2), cs.rotation((1, 0.3, 0), 1e-4), UPRIGHT, 4),
    "edge on edge": (
        CUBE, CUBE, (0, 0, 0.2 * 2**0.5), cs.rotation((1, 0, 0), np.pi / 4), cs.rotation((0, 1, 0), np.pi / 4), 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("real", [wp.float64, wp.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("shift", [0.0, 2e-3, -1e-3])
@pytest.mark.parametrize("case", RESTING)
def test_shapes_at_rest_have_as_many_contacts_as_they_need(case, shift, real):
    a, b, p_a, R_a, R_b, count = RESTING[case]
    contacts = two_shapes(a, b, np.add(p_a, (0, 0, shift)), R_a, R_b, real=real)
    assert len(contacts) == count
    assert len(np.unique(contacts[:, 4:7].round(4), axis=0)) == count
    if shift == 0:
        np.testing.assert_allclose(contacts[:, 3], 0, atol=5e-5)


@pytest.mark.parametrize("seed", range(5))
def test_contacts_of_stacked_boxes_span_their_common_area(seed):
    rng = np.random.default_rng(seed)
    for _ in range(40):
        shift = 10 ** rng.uniform(-6, -1.2, 2) * rng.choice([-1, 0, 1], 2)
        contacts = two_shapes(CUBE, CUBE, (*shift, 0.2))
        assert len(contacts) >= 4
        np.testing.assert_allclose(np.ptp(contacts[:, 4:6], axis=0), 0.2 - np.abs(shift), atol=2.1e-4)


def test_every_vertex_near_a_plane_is_a_contact():
    R = cs.rotation((1, 0.2, 0), 0.02)
    corners = np.array([(x, y, z) for x in (-0.1, 0.1) for y in (-0.1, 0.1) for z in (-0.1, 0.1)])
    heights = (corners @ R.T)[:, 2] + 0.101
    contacts = two_shapes(CUBE, GROUND, (0, 0, 0.101), R)
    np.testing.assert_allclose(np.sort(contacts[:, 3]), np.sort(heights[heights < 0.01]), atol=1e-15)
    np.testing.assert_array_equal(contacts[:, 7:], [[0, 0, 1]] * len(contacts))


def test_contacts_beyond_the_capacity_are_counted_and_not_written():
    poses = cs.pose_rows(UPRIGHT, (0, 0, 0.1))
    shapes = np.concatenate([cs.shape_rows(*CUBE[1:]), cs.shape_rows(*GROUND[1:])], 1)
    everything = cs.find_contacts(cs.make_scene([BOX, PLANE], [0, -1], [(0, 1)]), poses, shapes, 0.01)[1]
    for capacity in (0, 2, 3):
        scene = cs.make_scene([BOX, PLANE], [0, -1], [(0, 1)], capacity)
        counts, contacts = cs.find_contacts(scene, poses, shapes, 0.01)
        assert counts == [4]
        np.testing.assert_array_equal(contacts[0, :capacity], everything[0, :capacity])
        assert np.isnan(contacts[0, capacity:]).all()


def test_contacts_name_their_pair_and_far_pairs_have_none():
    kinds = [SPHERE, SPHERE, BOX, PLANE]
    poses = np.concatenate([cs.pose_rows(UPRIGHT, p) for p in ((0, 0, 0.05), (3, 0, 1), (3, 0, 1.15))], 1)
    rows = [BALL, BALL, CUBE, GROUND]
    shapes = np.concatenate([cs.shape_rows(*row[1:]) for row in rows], 1)
    pairs = [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]
    counts, contacts = cs.find_contacts(cs.make_scene(kinds, [0, 1, 2, -1], pairs), poses, shapes, 0.01)
    assert counts == [2]
    np.testing.assert_array_equal(contacts[0, :2, 0], [2, 3])


def test_a_shape_may_be_turned_and_shifted_on_its_body():
    rng = np.random.default_rng(2)
    R_WB, R_BS = cs.rotations(rng, 2)
    p_WB, p_BS = rng.normal(size=(2, 3))
    ground = cs.shape_rows(*GROUND[1:])
    R, p = R_WB @ R_BS, p_WB + R_WB @ p_BS
    p[2], p_WB[2] = 0.1, p_WB[2] + 0.1 - p[2]
    scene = cs.make_scene([BOX, PLANE], [0, -1], [(0, 1)])
    on_body = np.concatenate([cs.shape_rows(*CUBE[1:], R_BS, p_BS), ground], 1)
    plain = np.concatenate([cs.shape_rows(*CUBE[1:]), ground], 1)
    counts, contacts = cs.find_contacts(scene, cs.pose_rows(R_WB, p_WB), on_body, 0.01)
    expected_counts, expected = cs.find_contacts(scene, cs.pose_rows(R, p), plain, 0.01)
    assert counts == expected_counts
    np.testing.assert_allclose(contacts, expected, atol=1e-12)


@pytest.mark.parametrize("pair", PAIRS, ids=pair_name)
def test_shapes_that_coincide_give_finite_contacts(pair):
    a, b = ((kind, half[kind], RADIUS[kind]) for kind, half in zip(pair, (HALF_A, HALF_B)))
    contacts = two_shapes(a, b, (0, 0, 0))
    assert len(contacts) >= 1
    assert np.isfinite(contacts).all()
    np.testing.assert_allclose(np.linalg.norm(contacts[:, 7:], axis=1), 1, atol=1e-12)


def test_the_adjoint_of_all_contacts_of_two_boxes():
    rng = np.random.default_rng(7)
    poses = np.concatenate(
        [cs.pose_rows(cs.rotation((0.3, 1, 8), 0.6), (0.01, 0.02, 0.199)), cs.pose_rows(UPRIGHT, (0, 0, 0))], 1
    )
    shapes = np.concatenate([cs.shape_rows(*CUBE[1:]), cs.shape_rows(*CUBE[1:])], 1)
    scene = cs.make_scene([BOX, BOX], [0, 1], [(0, 1)])
    counts, contacts = cs.find_contacts(scene, poses, shapes, 0.05)
    count = counts[0]
    assert count >= 6
    contacts = contacts[:, :count].reshape(1, -1)
    adj = rng.normal(size=contacts.shape)
    adj.reshape(-1, cs.ROWS)[:, :3] = 0
    wrench, _ = cs.contact_cotangents(scene, poses, shapes, contacts, adj)

    def loss(k, step):
        moved = poses.copy()
        moved[0, 9 + k] += step
        found, after = cs.find_contacts(scene, moved, shapes, 0.05)
        assert found == [count]
        return (after[:, :count].reshape(1, -1) * adj).sum()

    slopes = [(loss(k, 1e-6) - loss(k, -1e-6)) / 2e-6 for k in range(3)]
    np.testing.assert_allclose(wrench[0, 3:6], slopes, rtol=1e-6)


@pytest.mark.parametrize(
    ("half", "radius", "ends"),
    [
        ((0.0329, 0.0803, 0.0333), 0.1645, ((0.1914, 0.0759, 0.0627), (0.1891, 0.1001, -0.0118))),
        ((0.0293, 0.0304, 0.0056), 0.2389, ((-0.0381, 0.0234, 0.1372), (-0.057, 0.0505, 0.1359))),
    ],
)
def test_a_capsule_beside_the_corner_of_a_box_is_seen(half, radius, ends):
    """Its core is over an edge and nearly parallel to a face, but no part of it is over that face."""
    first, last = np.array(ends)
    along = (last - first) / np.linalg.norm(last - first)
    axis = np.cross((0, 0, 1), along)
    turn = np.append(axis, 1 + along[2]) / np.linalg.norm(np.append(axis, 1 + along[2]))
    world = pb.World()
    world.add_box("box", size=tuple(2 * np.array(half)), static=True)
    world.add_capsule(
        "rod", radius=radius, length=float(np.linalg.norm(last - first)), mass=1.0,
        position=tuple((first + last) / 2), orientation=tuple(turn),
    )  # fmt: skip
    sim = world.compile(dt=1e-3, dtype=torch.float64)
    points = first + np.linspace(0, 1, 20001)[:, None] * (last - first)
    distance = np.linalg.norm(np.maximum(np.abs(points) - half, 0), axis=1).min() - radius
    with pytest.warns(UserWarning, match="overlap"):
        (contacts,) = sim.contacts(sim.initial_state())
    assert min(contact.gap for contact in contacts) == pytest.approx(distance, abs=1e-8)
