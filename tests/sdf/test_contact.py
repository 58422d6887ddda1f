"""Samples against fields: gaps of known pairs, contacts that are few and spread, and their gradients."""

import numpy as np
import pytest
import torch
import warp as wp

from pullback import sdf
from pullback.rigid.collide.convex.hulls import box_hull, cylinder_hull
from pullback.sdf.program import compile_shape
from pullback.sdf.samples import (
    box_samples,
    capsule_samples,
    clustered,
    field_samples,
    mesh_samples,
    sphere_samples,
)
from tests.sdf.contact_scene import Pair
from tests.sdf.scenes import Shapes

UPRIGHT = np.concatenate([np.eye(3).ravel(), np.zeros(3)])
MARGIN = 0.02
STEP = 1e-6


def rotation(vector):
    """Return the matrix of a rotation vector."""
    angle = np.linalg.norm(vector)
    if angle == 0.0:
        return np.eye(3)
    x, y, z = vector / angle
    K = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + np.sin(angle) * K + (1.0 - np.cos(angle)) * K @ K


def pose(position=(0.0, 0.0, 0.0), turn=(0.0, 0.0, 0.0)):
    return np.concatenate([rotation(np.asarray(turn, float)).ravel(), position])


def rows_of(shape):
    program = compile_shape(shape)
    return program, program.parameters(torch.zeros(0, dtype=torch.float64)).detach().numpy()


def contacts_of(shape, samples, x_pose, size, margin=MARGIN, y_pose=UPRIGHT, real=wp.float64):
    program, rows = rows_of(shape)
    poses = np.concatenate([x_pose, y_pose])[None]
    return Pair(program, samples, real).collide(poses, size, rows, margin)[0]


def test_box_flat_on_a_plane_has_its_corners():
    found = contacts_of(sdf.plane(), box_samples(), pose((0.3, 0.2, 0.049)), [0.2, 0.1, 0.05, 0.0])
    assert len(found) == 4
    np.testing.assert_allclose(found[:, 1], -0.001, atol=1e-15)
    np.testing.assert_allclose(np.sort(found[:, 2]), [0.1, 0.1, 0.5, 0.5], atol=1e-12)
    np.testing.assert_allclose(found[:, 5:], np.broadcast_to([0.0, 0.0, 1.0], (4, 3)), atol=1e-15)


def test_sphere_in_a_socket():
    """A ball in a round hole: the gap is the difference of the radii less the offset of the centres."""
    socket = sdf.box((0.2, 0.2, 0.2)) - sdf.sphere(0.1)
    for offset in (0.0, 0.004, 0.02):
        (contact,) = contacts_of(socket, sphere_samples(), pose((offset, 0.0, 0.0)), [0, 0, 0, 0.085])
        np.testing.assert_allclose(contact[1], 0.015 - offset, atol=1e-15)
    np.testing.assert_allclose(contact[5:], [-1.0, 0.0, 0.0], atol=1e-12)
    # midway between the surfaces
    np.testing.assert_allclose(contact[2:5], [0.5 * (0.1 + 0.105), 0.0, 0.0], atol=1e-12)


def test_peg_in_a_hole_has_the_clearance():
    """A capsule sliding into a hole: the clearance along its wall, and above it the distance from the hole's rim."""
    plate = sdf.box((0.1, 0.1, 0.05)) - sdf.cylinder(0.011, 0.2)
    samples = capsule_samples()
    for depth in (0.09, 0.05, 0.02, 0.0):
        for shift in (0.0, 0.0007):
            centre = np.array([shift, 0.0, depth])
            found = contacts_of(plate, samples, pose(centre), [0, 0, 0.04, 0.010], margin=0.005)
            z = depth + 0.04 * samples.points[found[:, 0].astype(int), 2]
            expected = np.hypot(0.011 - shift, np.maximum(z - 0.05, 0.0)) - 0.010
            np.testing.assert_allclose(found[:, 1], expected, atol=1e-14)
            assert len(found) == {0.09: 1, 0.05: 5, 0.02: 8, 0.0: 8}[depth]


def test_a_field_samples_itself():
    """A torus lying on the ground touches it around its ring."""
    field = sdf.Field(sdf.torus(0.2, 0.05))
    samples = field_samples(field)
    assert len(samples.points) == 256
    value, _ = field(torch.from_numpy(samples.points))
    assert value.abs().max() < 1e-7
    found = contacts_of(sdf.plane(), samples, pose((0.0, 0.0, 0.05)), [1, 1, 1, 0], margin=0.01)
    # one in each quarter, none deeper than the lowest point nor much higher
    assert {(x > 0.0, y > 0.0) for x, y in found[:, 2:4]} == {(a, b) for a in (False, True) for b in (False, True)}
    assert found[:, 1].min() > -1e-7
    assert found[:, 1].max() < 3e-3


def test_sharp_corners_are_among_a_fields_samples():
    samples = field_samples(sdf.Field(sdf.box((0.1, 0.2, 0.3)) - sdf.sphere(0.05)))
    corners = np.array([[x, y, z] for x in (-0.1, 0.1) for y in (-0.2, 0.2) for z in (-0.3, 0.3)])
    nearest = np.linalg.norm(corners[:, None] - samples.points[None], axis=-1).min(1)
    assert nearest.max() < 1e-6


def test_mesh_vertices_come_first():
    import trimesh

    mesh = trimesh.creation.box((0.2, 0.4, 0.6))
    samples = mesh_samples(mesh.vertices, mesh.faces, 60)
    assert len(samples.points) == 60
    found = contacts_of(sdf.plane(), samples, pose((0.0, 0.0, 0.3)), [1, 1, 1, 0])
    assert {tuple(np.round(row[2:5], 9)) for row in found} == {(x, y, 0.0) for x in (-0.1, 0.1) for y in (-0.2, 0.2)}


def test_clusters_that_are_skipped_hold_nothing():
    """Against the plain minimum over all points of each cluster, over poses near and far."""
    rng = np.random.default_rng(5)
    shape = (sdf.box((0.3, 0.2, 0.1)) | sdf.torus(0.25, 0.05).at((0.1, 0.0, 0.1))).blend(0.05)
    program, rows = rows_of(shape)
    samples = clustered(box_samples().points)
    size = np.array([0.1, 0.15, 0.05, 0.0])
    poses = np.stack([
        np.concatenate([pose(rng.uniform(-0.4, 0.4, 3), rng.normal(size=3)), UPRIGHT]) for _ in range(300)
    ])  # fmt: skip
    all_found = Pair(program, samples).collide(poses, size, rows, MARGIN)
    field = sdf.Field(shape)
    some = 0
    for world, found in zip(poses, all_found):
        x = world[9:12] + (samples.points * size[:3]) @ world[:9].reshape(3, 3).T
        value, g = field(torch.from_numpy(x))
        distance = (value / g.norm(dim=-1).clamp(min=0.9)).numpy()
        deepest = [distance[a:b].min() for a, b in zip(samples.cluster_first, samples.cluster_first[1:])]
        expected = [d for d in deepest if d < MARGIN]
        assert len(found) == len(expected)
        np.testing.assert_allclose(found[:, 1], expected, atol=1e-3 * MARGIN + 1e-12)
        some += len(expected)
    assert some > 200


@pytest.mark.parametrize("cylinder", [False, True])
def test_edges_that_cross_are_found_where_they_are_nearest(cylinder):
    """Against a thousand points of every edge: what is found is less than half a millimetre late."""
    rng = np.random.default_rng(9)
    shape = sdf.box((0.15, 0.1, 0.06))
    hull = cylinder_hull() if cylinder else box_hull()
    triangles = np.array([loop[:3] for loop in hull.loops])
    samples = mesh_samples(hull.vertices, triangles, edges=hull.edges) if cylinder else box_samples()
    size = np.array([0.08, 0.08, 0.15, 0.0]) if cylinder else np.array([0.08, 0.05, 0.15, 0.0])
    start, end = (hull.vertices[hull.edges[:, k]] for k in (0, 1))
    dense = (start + np.linspace(0.0, 1.0, 1000)[:, None, None] * (end - start)).reshape(-1, 3) * size[:3]
    program, rows = rows_of(shape)
    poses, nearest = [], []
    while len(poses) < 60:
        ahead, turn = rng.normal(size=3), rotation(rng.normal(size=3))
        ahead = 0.4 * ahead / np.linalg.norm(ahead)
        for _ in range(3):
            value, g = sdf.Field(shape)(torch.from_numpy(ahead + dense @ turn.T))
            k = int(value.argmin())
            ahead = ahead + (rng.uniform(0.0, 0.01) - float(value[k])) * g[k].numpy()
        value, _ = sdf.Field(shape)(torch.from_numpy(ahead + dense @ turn.T))
        poses.append(np.concatenate([turn.ravel(), ahead, UPRIGHT]))
        nearest.append(float(value.min()))
    assert np.min(nearest) > -0.005
    found = Pair(program, samples).collide(np.array(poses), size, rows, MARGIN)
    gaps = np.array([contacts[:, 1].min() for contacts in found])
    assert (gaps - nearest).max() < 5e-4
    assert sum(contacts[contacts[:, 1].argmin(), 0] >= len(samples.points) for contacts in found) > 15


@pytest.mark.parametrize("name", ["blended difference", "deep", "grid", "heights", "cylinder"])
def test_contact_gradients(name):
    """Gap, point and normal by both poses, the sampled shape's sizes and the field's parameters: differences."""
    rng = np.random.default_rng(7)
    shapes = Shapes()
    program, rows = rows_of(shapes.make(name, torch.from_numpy(shapes.numbers(name))))
    worlds = 60
    first, second = (
        np.stack([pose(rng.uniform(-0.7, 0.7, 3), rng.normal(size=3)) for _ in range(worlds)]) for _ in range(2)
    )
    poses = np.concatenate([first, second], 1)
    # the sampled shape near the field
    poses[:, 9:12] = poses[:, 21:24] + np.einsum("wij,wj->wi", poses[:, 12:21].reshape(-1, 3, 3), poses[:, 9:12])
    size = np.broadcast_to([0.2, 0.3, 0.25, 0.1], (worlds, 4)).copy()
    parameters = np.broadcast_to(rows, (worlds, rows.shape[1])).copy()
    # one cluster of one sample, so that nothing changes hands, and a margin that keeps it
    pair = Pair(program, clustered(np.array([[0.4, -0.3, 0.9]])))
    weights = rng.normal(size=(worlds, 7))

    def loss(poses, size, parameters):
        found = np.stack([c[0] for c in pair.collide(poses, size, parameters, 10.0)])
        return (weights * found[:, 1:]).sum(1), found

    _, found = loss(poses, size, parameters)
    wrenches, adj_size, adj_parameters = pair.vjp(poses, size, parameters, found[:, 0], weights, found[:, 5:])

    def compare(adjoint, change, count):
        worst = np.zeros(worlds)
        for k in range(count):
            ahead, behind = (loss(*change(k, s * STEP))[0] for s in (1.0, -1.0))
            worst = np.maximum(worst, np.abs((ahead - behind) / (2.0 * STEP) - adjoint[:, k]))
        error = np.sort(worst / (1.0 + np.abs(adjoint).max(1)))
        assert error[:-2].max() < 2e-6

    def moved(first):
        def change(k, step):
            new = poses.copy()
            R, p = poses[:, first : first + 9].reshape(-1, 3, 3), poses[:, first + 9 : first + 12]
            if k < 3:
                turn = rotation(step * np.eye(3)[k])
                new[:, first : first + 9] = (turn @ R).reshape(-1, 9)
                new[:, first + 9 : first + 12] = p @ turn.T
            else:
                new[:, first + 9 + k - 3] += step
            return new, size, parameters

        return change

    def resized(k, step):
        return poses, size + step * np.eye(4)[k], parameters

    def respecified(k, step):
        return poses, size, parameters + step * np.eye(parameters.shape[1])[k]

    compare(wrenches[:, :6], moved(0), 6)
    compare(wrenches[:, 6:], moved(12), 6)
    compare(adj_size, resized, 4)
    compare(adj_parameters, respecified, parameters.shape[1])


@pytest.mark.parametrize("real", [wp.float64, wp.float32], ids=["float64", "float32"])
def test_degenerate_poses_give_finite_contacts_and_gradients(real):
    """Coincident centres, zero gap, an edge on an edge, deep inside, needle-thin: numbers, and unit normals."""
    cube = sdf.box((0.1, 0.1, 0.1))
    needle = sdf.box((0.1, 1e-4, 1e-4))
    shapes = (sdf.sphere(0.1), cube, needle, cube - sdf.cylinder(0.05, 1.0), sdf.torus(0.1, 0.03), sdf.plane())
    places = [(0, 0, 0), (0.1, 0, 0), (0.2, 0, 0), (0.1, 0.1, 0), (0.2, 0.2, 0.2), (0, 0, -0.15), (0, 0, 0.1)]
    poses = np.stack([np.concatenate([pose(p, (0, 0, t)), UPRIGHT]) for p in places for t in (0.0, np.pi / 4)])
    seen = 0
    for shape in shapes:
        program, rows = rows_of(shape)
        for samples, size in (
            (sphere_samples(), [0, 0, 0, 0.1]),
            (capsule_samples(), [0, 0, 0.1, 0.0]),
            (box_samples(), [0.1, 0.1, 0.1, 0.0]),
            (box_samples(), [0.1, 1e-6, 1e-6, 0.0]),
        ):
            pair = Pair(program, samples, real)
            for world, found in zip(poses, pair.collide(poses, size, rows, MARGIN)):
                assert len(found) <= 8
                assert np.isfinite(found).all()
                np.testing.assert_allclose(np.linalg.norm(found[:, 5:], axis=1), 1.0, atol=1e-5)
                if len(found):
                    worlds = np.repeat(world[None], len(found), 0)
                    ones = np.ones((len(found), 7))
                    results = pair.vjp(worlds, size, rows, found[:, 0], ones, found[:, 5:])
                    assert all(np.isfinite(x).all() for x in results)
                    seen += len(found)
    assert seen > 300


def test_float32_contacts():
    shape = sdf.box((0.3, 0.2, 0.1)) - sdf.cylinder(0.05, 1.0)
    x = pose((0.1, 0.02, 0.14), (0.01, 0.02, 0.3))
    double, single = (
        contacts_of(shape, box_samples(), x, [0.1, 0.05, 0.04, 0.0], real=real) for real in (wp.float64, wp.float32)
    )
    assert len(double) == len(single) == 4
    np.testing.assert_allclose(single, double, atol=2e-6)
