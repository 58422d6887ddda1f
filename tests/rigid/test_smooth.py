"""Ellipsoids: closed forms, spheres, the definition of distance, MuJoCo, autograd of a reference, and differences."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import pullback as pb
from checks.pair_oracles import Poses, defined_distances
from checks.pair_scene import HALF, LENGTH, RADII, RADIUS, Pair
from checks.pairs import MARGIN, differentiate, place, rotations
from pullback.rigid.collide.convex.tables import FACE, FEATURE_KINDS, HULL_CODES, RIM, SIDE
from tests.reference import smooth

CONVEX = ("sphere", "ellipsoid", "capsule", "box", "cylinder", "mesh")
EXACT = 1e-12
"""[m], of gaps and of the separation along a normal: rounding of numbers near 1."""
POSES = 120


def contacts_of(a: str, b: str, poses: Poses, margin: float = MARGIN):
    pair = Pair(a, b)
    counts, contacts = pair.find(poses, margin)
    return pair, counts, contacts


def test_over_a_plane_it_is_a_formula():
    rng = np.random.default_rng(0)
    R = rotations(rng, POSES)
    reach = np.linalg.norm(RADII * R[:, 2], axis=1)
    p = np.column_stack([rng.normal(size=(POSES, 2)), reach + rng.uniform(-0.05, 0.015, POSES)])
    up = np.broadcast_to(np.eye(3), (POSES, 3, 3))
    _, counts, contacts = contacts_of("ellipsoid", "plane", [R, p, up, np.zeros((POSES, 3))])
    assert (counts == 1).all()
    gap = p[:, 2] - reach
    lowest = p - np.einsum("nij,nj->ni", R, RADII**2 * R[:, 2]) / reach[:, None]
    np.testing.assert_allclose(contacts[:, 0, 3], gap, atol=EXACT)
    np.testing.assert_allclose(contacts[:, 0, 4:7], lowest - 0.5 * gap[:, None] * [0, 0, 1], atol=EXACT)
    np.testing.assert_allclose(contacts[:, 0, 7:], np.broadcast_to([0, 0, 1.0], (POSES, 3)), atol=0)


@pytest.mark.parametrize("b", ["sphere", "capsule", "box", "cylinder", "plane", "heights"])
def test_with_equal_radii_it_is_a_sphere(b):
    # shallow enough that the nearest feature is one
    poses = [x[:60] for x in place("sphere", b, 60, np.random.default_rng(1))]
    _, counts, expected = contacts_of("sphere", b, poses)
    pair = Pair("ellipsoid", b)
    shapes = pair.shapes.copy()
    shapes[:, :4] = RADIUS, RADIUS, RADIUS, 0.0
    found, contacts = pair.find(poses, MARGIN, shapes)
    # a sphere's sample is its centre, where the distance to hills is of first order
    tolerance = 2e-3 if b == "heights" else 1e-9
    assert (found == counts).all()
    has = counts == 1
    np.testing.assert_allclose(contacts[has, 0, 3], expected[has, 0, 3], atol=tolerance)
    if b != "heights":
        np.testing.assert_allclose(contacts[has, 0, 4:], expected[has, 0, 4:], atol=tolerance)


@pytest.mark.parametrize("b", CONVEX)
def test_distance_is_the_largest_separation(b):
    poses = place("ellipsoid", b, POSES, np.random.default_rng(2))
    _, counts, contacts = contacts_of("ellipsoid", b, poses)
    expected, direction = defined_distances("ellipsoid", b, poses, [c[:1, 7:] for c in contacts])
    assert (counts[expected < MARGIN - EXACT] == 1).all()
    assert (counts <= 1).all()
    has = counts == 1
    np.testing.assert_allclose(contacts[has, 0, 3], expected[has], atol=EXACT)
    # a search by values knows the direction to the root of rounding
    np.testing.assert_allclose(contacts[has, 0, 7:], direction[has], atol=1e-6)


@pytest.mark.parametrize("b", ["sphere", "capsule", "box", "cylinder", "ellipsoid"])
def test_mujoco_agrees(b):
    mujoco = pytest.importorskip("mujoco")
    sizes = {
        "sphere": (RADIUS,),
        "ellipsoid": RADII,
        "capsule": (RADIUS, LENGTH / 2),
        "cylinder": (RADIUS, LENGTH / 2),
        "box": HALF,
    }
    geoms = "".join(
        f'<body mocap="true"><geom type="{name}" size="{" ".join(map(str, sizes[name]))}"/></body>'
        for name in ("ellipsoid", b)
    )
    option = '<option ccd_iterations="200" ccd_tolerance="1e-10"/>'
    model = mujoco.MjModel.from_xml_string(f"<mujoco>{option}<worldbody>{geoms}</worldbody></mujoco>")
    data = mujoco.MjData(model)
    poses = place("ellipsoid", b, 60, np.random.default_rng(3))
    _, counts, contacts = contacts_of("ellipsoid", b, poses)
    expected, quat, segment = np.empty(60), np.empty(4), np.empty(6)
    for w in range(60):
        for k in range(2):
            mujoco.mju_mat2Quat(quat, poses[2 * k][w].ravel())
            data.mocap_pos[k], data.mocap_quat[k] = poses[2 * k + 1][w], quat
        mujoco.mj_kinematics(model, data)
        expected[w] = mujoco.mj_geomDistance(model, data, 0, 1, 10.0, segment)
    # its search ends at a tolerance, and overlapping at a polytope
    apart = (expected > 1e-3) & (counts == 1)
    assert apart.sum() > 20
    np.testing.assert_allclose(contacts[apart, 0, 3], expected[apart], atol=1e-6)


def test_end_side_and_rim_of_a_cylinder():
    rng = np.random.default_rng(6)
    n = 40
    R_a, up = rotations(rng, n), np.broadcast_to(np.eye(3), (n, 3, 3))
    # from above the end outwards, down along the side
    angle = np.linspace(0.0, np.pi / 2, n)
    out = np.stack([np.sin(angle), np.zeros(n), np.cos(angle)], 1)
    p_a = out * np.array([RADIUS + 0.13, 0.0, LENGTH / 2 + 0.13])
    poses = [R_a, p_a, up, np.zeros((n, 3))]
    _, _, contacts = contacts_of("ellipsoid", "cylinder", poses, margin=1.0)
    expected, _ = defined_distances("ellipsoid", "cylinder", poses, [c[:1, 7:] for c in contacts])
    np.testing.assert_allclose(contacts[:, 0, 3], expected, atol=EXACT)
    kinds = (contacts[:, 0, 2].astype(int) - int(HULL_CODES)) // 2 % int(FEATURE_KINDS)
    assert set(kinds) == {int(FACE), int(RIM), int(SIDE)}


@pytest.mark.parametrize("b", ["sphere", "ellipsoid", "plane"])
def test_adjoint_is_that_of_the_reference(b):
    rng = np.random.default_rng(4)
    poses = place("ellipsoid", b, 20, rng)
    pair, counts, contacts = contacts_of("ellipsoid", b, poses)
    has = counts == 1
    poses, chosen = [x[has] for x in poses], contacts[has, 0]
    adj = rng.normal(size=chosen.shape)
    wrench, adj_shapes = pair.pull_back(poses, chosen, adj)
    for w in range(len(chosen)):
        R_a, p_a, R_b, p_b = (torch.from_numpy(np.array(x[w])) for x in poses)
        radii, size_b = torch.from_numpy(RADII.copy()), torch.tensor([RADIUS], dtype=torch.float64)
        if b == "ellipsoid":
            size_b = torch.from_numpy(RADII.copy())
        # a small motion of each body about the world's origin, angular part first
        motion = torch.zeros(4, 3, dtype=torch.float64)
        leaves = [x.requires_grad_() for x in (motion, radii, size_b)]
        moved = []
        for R, p, (turn, shift) in ((R_a, p_a, motion[:2]), (R_b, p_b, motion[2:])):
            cross = torch.linalg.cross(turn.expand(3, 3), R.T.contiguous()).T
            moved.append((R + cross, p + torch.linalg.cross(turn, p) + shift))
        (Ra, pa), (Rb, pb_) = moved
        partners = {
            "sphere": ("point", pb_, None, None),
            "plane": ("plane", pb_, Rb[:, 2], None),
            "ellipsoid": ("ellipsoid", pb_, None, (Rb, size_b)),
        }
        gap, point, n = smooth.contact((Ra, pa, radii), partners[b], torch.from_numpy(chosen[w, 7:].copy()))
        if b == "sphere":
            # the sphere's radius around its centre
            point = point + 0.5 * size_b[0] * n
            gap = gap - size_b[0]
        loss = gap * adj[w, 3] + point @ torch.from_numpy(adj[w, 4:7]) + n @ torch.from_numpy(adj[w, 7:])
        by_motion, by_radii, by_size = torch.autograd.grad(loss, leaves, allow_unused=True)
        bodies = 2 if pair.is_free else 1
        np.testing.assert_allclose(gap.item(), chosen[w, 3], atol=EXACT)
        np.testing.assert_allclose(wrench[w, : 6 * bodies], by_motion.numpy().ravel()[: 6 * bodies], atol=1e-9)
        np.testing.assert_allclose(adj_shapes[w, :3], by_radii.numpy(), atol=1e-9)
        if b == "sphere":
            np.testing.assert_allclose(adj_shapes[w, 19], by_size.numpy()[0], atol=1e-9)
        elif b == "ellipsoid":
            np.testing.assert_allclose(adj_shapes[w, 16:19], by_size.numpy(), atol=1e-9)


@pytest.mark.parametrize("b", [*CONVEX, "plane", "heights", "field"])
def test_adjoint_against_differences(b):
    rng = np.random.default_rng(5)
    poses = place("ellipsoid", b, 80, rng)
    compared, error, changed = differentiate(Pair("ellipsoid", b), poses, rng)
    # a field's own slopes are differences of a box's kinks here and there
    assert error < (1e-5 if b == "field" else 2e-8)
    assert compared > 500
    assert changed <= 2


def world_of(dtype, radii=(0.1, 0.06, 0.15)):
    world = pb.World()
    world.add_ground(friction=0.6)
    world.add_ellipsoid("egg", radii=radii, mass=0.8, position=(0.0, 0.0, 0.12), orientation=(0.5, 0.1, 0.2, 0.8))
    world.add_box("step", size=(0.3, 0.3, 0.1), static=True, position=(0.2, 0.0, 0.0))
    return world, world.compile(dt=2e-3, dtype=dtype)


def test_rocking_has_the_frequency_of_its_curvature():
    # rolling by φ lifts the centre by ½ (ρ - c) φ², ρ = a²/c the radius of curvature below
    a, b, c, mass = 0.1, 0.08, 0.04, 0.5
    world = pb.World()
    world.add_ground(friction=1.0)
    tilt = 0.02
    rocking = (0.0, np.sin(tilt / 2), 0.0, np.cos(tilt / 2))
    height = np.hypot(c * np.cos(tilt), a * np.sin(tilt))
    world.add_ellipsoid("pebble", radii=(a, b, c), mass=mass, position=(0, 0, height), orientation=rocking)
    sim = world.compile(dt=1e-4, dtype=torch.float64)
    states = sim.rollout(sim.initial_state(1), torch.zeros(3000, 1, 0).double())
    angle = 2.0 * states.q[:, 0, 4]
    crossings = torch.nonzero(angle[1:] * angle[:-1] < 0.0)[:, 0].numpy() * 1e-4
    frequency = np.sqrt(9.81 * (a * a / c - c) / ((a * a + c * c) / 5 + c * c))
    assert len(crossings) == 2
    assert np.pi / np.diff(crossings)[0] == pytest.approx(frequency, rel=5e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_gradient_of_a_rollout_by_radii_and_state(dtype):
    world, sim = world_of(dtype)
    radii = torch.tensor([0.1, 0.06, 0.15], dtype=dtype, requires_grad=True)
    world.set_shape("egg", size=radii)
    state = sim.initial_state(1)
    qd = state.qd.clone()
    qd[:, 3] = 0.4
    qd.requires_grad_()
    weights = torch.linspace(-1.0, 1.0, 7, dtype=dtype)

    def loss(size, velocity):
        world.set_shape("egg", size=size)
        start = sim.initial_state(1)
        end = sim.rollout(replace(start, qd=velocity), torch.zeros(60, 1, 0, dtype=dtype))
        return (end.q[-1] * weights).sum()

    by_radii, by_qd = torch.autograd.grad(loss(radii, qd), [radii, qd])
    assert by_radii.isfinite().all()
    if dtype == torch.float32:
        return
    h = 1e-7
    for x, found in ((radii, by_radii), (qd, by_qd)):
        flat = x.detach().reshape(-1)
        for k in range(len(flat)):
            ends = []
            for sign in (1.0, -1.0):
                moved = flat.clone()
                moved[k] += sign * h
                given = (
                    [moved.reshape(x.shape), qd.detach()] if x is radii else [radii.detach(), moved.reshape(x.shape)]
                )
                with torch.no_grad():
                    ends.append(loss(*given).item())
            difference = (ends[0] - ends[1]) / (2 * h)
            assert found.reshape(-1)[k].item() == pytest.approx(difference, abs=1e-5, rel=1e-5)


def test_float32_finds_the_same_contact():
    results = {}
    for dtype in (torch.float64, torch.float32):
        _, sim = world_of(dtype)
        state = sim.initial_state(1)
        state.q[:, :3] = torch.tensor([0.06, 0.01, 0.125], dtype=dtype)
        results[dtype] = sorted(sim.contacts(state)[0], key=lambda contact: contact.gap)
    assert len(results[torch.float64]) == len(results[torch.float32]) > 0
    for ours, exact in zip(results[torch.float32], results[torch.float64]):
        assert ours.gap == pytest.approx(exact.gap, abs=1e-5)


def test_mass_is_spread_evenly():
    world, _ = world_of(torch.float64)
    robot = world.robots["egg"]
    link = robot.model.links[robot.link_number("egg")]
    a, b, c = 0.1, 0.06, 0.15
    np.testing.assert_allclose(np.diag(link.inertia), 0.8 / 5 * np.array([b * b + c * c, a * a + c * c, a * a + b * b]))


def test_radii_are_checked():
    with pytest.raises(pb.PullbackError, match="radii of 'egg'"):
        pb.World().add_ellipsoid("egg", radii=(0.1, 0.0, 0.1), mass=1.0)
