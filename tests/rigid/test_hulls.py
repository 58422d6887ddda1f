"""Hulls of points and of mesh files: their faces, their budget of vertices, and what cannot be one."""

import numpy as np
import pytest
import trimesh

from pullback.core.errors import PullbackError
from pullback.rigid.collide.convex.hulls import convex_hull, hull_of_file
from tests.reference.convex import sphere_points


def test_a_hull_joins_triangles_of_one_plane():
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 5)] * 3), -1).reshape(-1, 3)
    hull = convex_hull(grid + 1e-8 * rng.normal(size=grid.shape))
    assert (len(hull.vertices), len(hull.edges), [len(loop) for loop in hull.loops]) == (8, 12, [4] * 6)
    np.testing.assert_allclose(np.abs(hull.normals).max(1), 1, atol=1e-7)
    for face, loop in enumerate(hull.loops):
        a, b, c = hull.vertices[loop[:3]]
        assert np.cross(b - a, c - b) @ hull.normals[face] > 0


def test_a_hull_keeps_to_its_budget_and_says_what_it_leaves_out():
    points = sphere_points(600) * (0.3, 0.2, 0.1)
    hull = convex_hull(points, max_vertices=40)
    assert len(hull.vertices) == 40
    offsets = [hull.vertices[loop[0]] @ n for loop, n in zip(hull.loops, hull.normals)]
    outside = (points @ hull.normals.T - offsets).max()
    np.testing.assert_allclose(hull.error, outside, rtol=1e-6)
    assert hull.error < 0.03
    assert convex_hull(points, max_vertices=600).error == 0


@pytest.mark.parametrize("suffix", ["stl", "obj"])
def test_a_mesh_file_becomes_its_hull(suffix, tmp_path):
    path = tmp_path / f"block.{suffix}"
    trimesh.creation.box((1, 2, 3)).export(path)
    hull = hull_of_file(path, scale=(1, 1, 0.5))
    assert len(hull.loops) == 6
    np.testing.assert_allclose(np.sort(hull.vertices, 0)[[0, -1]], [(-0.5, -1, -0.75), (0.5, 1, 0.75)])


def test_what_cannot_be_a_hull_is_refused(tmp_path):
    with pytest.raises(PullbackError, match="lie in a plane or on a line"):
        convex_hull([(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)])
    with pytest.raises(PullbackError, match=r"at least four points \(n, 3\), got an array of shape \(3, 3\)"):
        convex_hull(np.eye(3))
    with pytest.raises(PullbackError, match="point 2 of a convex hull is not finite"):
        convex_hull([(0, 0, 0), (1, 0, 0), (0, np.nan, 0), (1, 1, 1)])
    with pytest.raises(PullbackError, match="max_vertices is 3"):
        convex_hull(np.eye(4)[:, :3], max_vertices=3)
    with pytest.raises(PullbackError, match=r"nowhere\.stl' does not exist"):
        hull_of_file(tmp_path / "nowhere.stl")
    flat = trimesh.Trimesh([(0, 0, 0), (1, 0, 0), (0, 1, 0)], [(0, 1, 2)])
    flat.export(tmp_path / "flat.stl")
    with pytest.raises(PullbackError, match=r"mesh file 'flat\.stl': "):
        hull_of_file(tmp_path / "flat.stl")
