"""Meshes: what they measure, what they refuse, and the solids that are made of them."""

import numpy as np
import pytest

from pullback import thermal as th
from pullback.core.errors import PullbackError


def cube(n=2):
    return th.box((1.0, 1.0, 1.0), 1.0 / n)


def test_volume_of_a_skewed_mesh_is_exact():
    rng = np.random.default_rng(0)
    mesh = cube(3)
    A = np.eye(3) + 0.2 * rng.standard_normal((3, 3))
    skewed = th.Mesh(mesh.nodes @ A.T, mesh.elements)
    assert skewed.volumes.sum() == pytest.approx(abs(np.linalg.det(A)), rel=1e-12)


def test_faces_are_shared_once_and_point_out():
    mesh = cube(3)
    nodes, owners = mesh.faces
    assert len(nodes) == 3 * 3 * 3 * 4
    assert (owners[:, 1] < 0).sum() == 6 * 9
    assert len(mesh.neighbours) == len(nodes) - 54
    corners = mesh.nodes[nodes]
    normal = 0.5 * np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1])
    outward = corners.mean(axis=1) - mesh.centers[owners[:, 0]]
    assert (np.einsum("fk,fk->f", normal, outward) > 0).all()
    # a closed surface: area 6, and the divergence theorem gives the volume
    free = owners[:, 1] < 0
    assert np.linalg.norm(normal[free], axis=1).sum() == pytest.approx(6.0)
    assert np.einsum("fk,fk->", normal[free], corners[free].mean(axis=1)) / 3 == pytest.approx(1.0)


def broken(change):
    mesh = cube()
    nodes, elements = mesh.nodes.copy(), mesh.elements.copy()
    return change(nodes, elements)


def swap(nodes, elements):
    elements[5] = elements[5][[4, 5, 6, 7, 0, 1, 2, 3]]
    return nodes, elements


def twin(nodes, elements):
    new = np.append(nodes, nodes[elements[3, :1]], axis=0)
    elements[3, 0] = len(nodes)
    return new, elements


def beyond(nodes, elements):
    elements[2, 4] = 99
    return nodes, elements


def infinite(nodes, elements):
    nodes[7, 1] = np.nan
    return nodes, elements


def spare(nodes, elements):
    return np.append(nodes, [[5.0, 5.0, 5.0]], axis=0), elements


def collapsed(nodes, elements):
    elements[1, 1] = elements[1, 0]
    return nodes, elements


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (swap, "element 5 is inverted"),
        (twin, r"nodes \d+ and 27 stand at the same place"),
        (beyond, r"element 2 has nodes .*99.*there are 27 nodes"),
        (infinite, "node 7 stands at .*not a finite"),
        (spare, "node 27 belongs to no element"),
        (collapsed, "element 1 has nodes .*one of them twice"),
    ],
)
def test_bad_meshes_are_refused_by_name(change, text):
    with pytest.raises(PullbackError, match=text):
        th.Mesh(*broken(change))


def test_bad_sets_are_refused():
    mesh = cube()
    with pytest.raises(PullbackError, match="'build' names element 8; there are 8"):
        mesh.with_sets(elements={"build": [0, 8]})
    with pytest.raises(PullbackError, match=r"no element set named 'biuld'.*did you mean 'build'"):
        mesh.with_sets(elements={"build": [0]}).element_set("biuld")
    with pytest.raises(PullbackError, match=r"expected \(m, 8\)"):
        th.Mesh(mesh.nodes, mesh.elements[:, :4])


def test_a_box_on_a_plate_has_its_sizes_and_sets():
    mesh = th.box_on_plate((0.045, 0.003, 0.006), (0.001, 0.001, 0.00075), (0.06, 0.02, 0.006))
    build, plate = mesh.element_set("build"), mesh.element_set("plate")
    assert len(build) == 45 * 3 * 8
    assert len(build) + len(plate) == len(mesh.elements)
    assert mesh.volumes[build].sum() == pytest.approx(0.045 * 0.003 * 0.006, rel=1e-12)
    assert mesh.volumes[plate].sum() == pytest.approx(0.06 * 0.02 * 0.006, rel=1e-12)
    assert (mesh.nodes[mesh.node_set("bottom"), 2] == -0.006).all()
    # conforming: the surface is closed, and as large as that of the two boxes
    nodes, owners = mesh.faces
    corners = mesh.nodes[nodes[owners[:, 1] < 0]]
    area = 0.5 * np.linalg.norm(np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]), axis=1).sum()
    assert area == pytest.approx(2 * 0.06 * 0.02 + 2 * 0.08 * 0.006 + 2 * 0.048 * 0.006, rel=1e-12)


def test_the_plate_is_graded():
    mesh = th.box_on_plate((0.01, 0.01, 0.005), 0.001, (0.1, 0.1, 0.02), plate_cell=0.008, growth=1.4)
    x = np.unique(mesh.nodes[:, 0].round(9))
    steps = np.diff(x)
    ratio = np.maximum(steps[1:] / steps[:-1], steps[:-1] / steps[1:])
    assert steps.max() < 0.0085
    assert steps.min() > 0.0009
    assert ratio.max() < 1.55
    with pytest.raises(PullbackError, match=r"more than the plate of 0.01 m"):
        th.box_on_plate((0.02, 0.005, 0.005), 0.001, (0.01, 0.01, 0.01))


def test_any_solid_given_as_a_function():
    mesh = th.solid(lambda p: np.hypot(p[:, 0], p[:, 1]) < 0.005, (0.01, 0.01, 0.004), 2.5e-4, plate=(0.03, 0.005))
    volume = mesh.volumes[mesh.element_set("build")].sum()
    assert volume == pytest.approx(np.pi * 0.005**2 * 0.004, rel=0.01)
    assert mesh.volumes[mesh.element_set("plate")].sum() == pytest.approx(np.pi * 0.015**2 * 0.005, rel=0.03)
    with pytest.raises(PullbackError, match="no middle of a cell is inside"):
        th.solid(lambda p: p[:, 0] > 1, (0.01, 0.01, 0.01), 1e-3)
    with pytest.raises(PullbackError, match=r"expected .* booleans"):
        th.solid(lambda p: p[:, 0], (0.01, 0.01, 0.01), 1e-3)
    with pytest.raises(PullbackError, match="cell = -1"):
        th.box((1, 1, 1), -1)


def test_hourglass_has_the_published_size():
    mesh = th.hourglass()
    build = mesh.element_set("build")
    assert mesh.volumes[build].sum() * 1e9 == pytest.approx(3061, rel=2e-3)
    assert mesh.volumes[mesh.element_set("plate")].sum() * 1e9 == pytest.approx(78413, rel=2e-3)
    assert len(th.build_layers(mesh)) == 28
    assert mesh.heights[1].max() == pytest.approx(0.028)
    waist = mesh.nodes[np.isclose(mesh.nodes[:, 2], 0.014)]
    radii = np.hypot(waist[:, 0], waist[:, 1])
    assert radii.min() == pytest.approx(2e-3)
    assert radii.max() == pytest.approx(4e-3)
    with pytest.raises(PullbackError, match="take a larger one"):
        th.hourglass(plate=(0.015, 0.01))


def test_voxels_of_a_closed_surface(tmp_path):
    trimesh = pytest.importorskip("trimesh")
    ball = trimesh.creation.icosphere(subdivisions=3, radius=5.0)
    ball.apply_translation([3.0, -2.0, 7.0])
    ball.export(tmp_path / "ball.stl")
    mesh = th.voxelize(tmp_path / "ball.stl", cell=5e-4, unit=1e-3, plate=(0.02, 0.02, 0.004))
    # every cell inside the inscribed sphere is there, none outside the circumscribed one
    facets = np.einsum("fk,fk->f", ball.face_normals, ball.triangles_center - [3.0, -2.0, 7.0])
    line = (np.arange(20) - 9.5) * 5e-4
    distance = np.linalg.norm(np.stack(np.meshgrid(line, line, line), axis=-1), axis=-1)
    found = np.linalg.norm(mesh.centers[mesh.element_set("build")] - [0, 0, 0.005], axis=1)
    inscribed = facets.min() * 1e-3
    assert (found < inscribed).sum() == (distance < inscribed).sum()
    assert found.max() < 0.005
    # a box with a hollow in it
    body = trimesh.util.concatenate([trimesh.creation.box((4, 4, 4)), trimesh.creation.box((2, 2, 2))])
    body.faces[12:] = body.faces[12:, ::-1]
    assert len(th.voxelize(body, cell=1.0).elements) == 4**3 - 2**3


def test_open_or_missing_surfaces_are_refused(tmp_path):
    trimesh = pytest.importorskip("trimesh")
    box = trimesh.creation.box((1, 1, 1))
    box.update_faces(np.arange(11))
    with pytest.raises(PullbackError, match=r"not closed.*3 open edges"):
        th.voxelize(box, cell=0.1)
    with pytest.raises(PullbackError, match="does not exist"):
        th.voxelize(tmp_path / "none.stl", cell=0.1)
    with pytest.raises(PullbackError, match="Is unit= right"):
        th.voxelize(trimesh.creation.box((10, 10, 10)), cell=1e-3)
