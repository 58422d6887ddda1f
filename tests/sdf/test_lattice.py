"""Grids of meshes and height fields: against trimesh, scipy and MuJoCo, and what they refuse."""

import mujoco
import numpy as np
import pytest
import scipy.interpolate
import torch
import trimesh

from pullback import sdf
from pullback.core.errors import PullbackError
from pullback.sdf.lattice import spline_coefficients
from tests.sdf.scenes import rough_ground


def tensor(x):
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64))


def natural_spline(x, y, values, dx=0, dy=0):
    """Return scipy's function through values (nx, ny), without bend at its ends, or a derivative of it, at points."""

    def evaluate(points):
        rows = scipy.interpolate.CubicSpline(y, values, axis=1, bc_type="natural")(points[:, 1], nu=dy)
        return np.array([
            scipy.interpolate.CubicSpline(x, rows[:, k], bc_type="natural")(points[k, 0], nu=dx)
            for k in range(len(points))
        ])  # fmt: skip

    return evaluate


def test_coefficients_give_the_samples_back():
    f = np.random.default_rng(0).normal(size=(9, 2, 5))
    for axis in range(3):
        c = np.moveaxis(spline_coefficients(f, axis), axis, 0)
        back = (c[:-2] + 4.0 * c[1:-1] + c[2:]) / 6.0
        np.testing.assert_allclose(np.moveaxis(back, 0, axis), f, atol=1e-13)


def test_heights_are_scipys_spline():
    h = rough_ground(9)
    x = np.linspace(-1.0, 1.0, 9)
    points = np.random.default_rng(1).uniform(-0.99, 0.99, (50, 3))
    value, gradient = sdf.Field(sdf.heights(h, (2.0, 2.0), gain=0.7))(tensor(points))
    # coefficients are kept in float32
    np.testing.assert_allclose(value, points[:, 2] - 0.7 * natural_spline(x, x, h)(points), atol=1e-7)
    for k, (dx, dy) in enumerate(((1, 0), (0, 1))):
        slope = natural_spline(x, x, h, dx, dy)(points)
        np.testing.assert_allclose(gradient[:, k], -0.7 * slope, atol=1e-6)
    assert (gradient[:, 2] == 1.0).all()


def test_gap_over_heights_is_right_to_first_order():
    """The error of height / sqrt(1 + slope²) against the nearest point of the surface: the square of the distance."""
    x = np.linspace(-1.0, 1.0, 41)
    h = 0.2 * np.sin(3.0 * x)[:, None] * np.cos(2.0 * x)[None]
    field = sdf.Field(sdf.heights(h, (2.0, 2.0)))
    feet = np.random.default_rng(2).uniform(-0.8, 0.8, (40, 2))
    ground = np.column_stack([feet, np.zeros(40)])
    value, gradient = field(tensor(ground))
    ground[:, 2] = -value
    normal = (gradient / gradient.norm(dim=-1, keepdim=True)).numpy()
    errors = []
    for distance in (0.04, 0.02, 0.01):
        # exact: nearer than any centre of curvature, the foot of the normal is the nearest point
        value, gradient = field(tensor(ground + distance * normal))
        errors.append(np.abs((value / gradient.norm(dim=-1)).numpy() - distance).max())
    assert errors[0] < 2e-4
    assert errors[1] < 0.3 * errors[0]
    assert errors[2] < 0.3 * errors[1]


def test_heights_touch_where_mujocos_do():
    """A ball on a fine height field: MuJoCo's is made of flat triangles, ours is smooth, both of the same samples."""
    n = 101
    x = np.linspace(-1.0, 1.0, n)
    h = 0.5 + 0.2 * np.sin(3.0 * x)[:, None] * np.cos(2.0 * x)[None]
    field = sdf.Field(sdf.heights(h, (2.0, 2.0)))
    model = mujoco.MjModel.from_xml_string(f"""
        <mujoco><asset><hfield name="h" nrow="{n}" ncol="{n}" size="1 1 1 0.1"/></asset><worldbody>
        <geom type="hfield" hfield="h"/>
        <body><freejoint/><geom type="sphere" size="0.1"/></body></worldbody></mujoco>""")
    # rows of MuJoCo's field run along y
    model.hfield_data[:] = h.T.ravel()
    data = mujoco.MjData(model)
    rng = np.random.default_rng(3)
    for _ in range(20):
        foot = np.append(rng.uniform(-0.7, 0.7, 2), 0.0)
        value, g = field(tensor(foot[None]))
        n_foot = (g[0] / g[0].norm()).numpy()
        data.qpos[:3] = foot + [0.0, 0.0, -value.item()] + 0.098 * n_foot
        data.qpos[3:] = [1.0, 0.0, 0.0, 0.0]
        mujoco.mj_forward(model, data)
        assert data.ncon > 0
        closest = min(range(data.ncon), key=lambda k: data.contact[k].dist)
        value, g = field(tensor(data.qpos[None, :3]))
        gap = (value / g.norm()).item() - 0.1
        # to first order, at a radius of 0.1 over hills of curvature 1.8 and less
        assert abs(gap - data.contact[closest].dist) < 1.5e-3
        # MuJoCo's normal points from the field to the ball
        assert np.abs(data.contact[closest].frame[:3] - n_foot).max() < 0.05


def meshes():
    ring = trimesh.creation.annulus(r_min=0.2, r_max=0.5, height=0.4)
    bent = trimesh.creation.icosphere(subdivisions=3, radius=0.5)
    bent.apply_transform(np.diag([1.0, 0.6, 0.8, 1.0]))
    return {"annulus": ring, "ellipsoid": bent, "box": trimesh.creation.box((0.4, 0.6, 1.0))}


@pytest.mark.parametrize("name", ["annulus", "ellipsoid", "box"])
def test_grid_against_trimesh(name):
    """Mostly within hundredths of a cell; a fifth of one on sharp edges, more where the distance itself has a kink."""
    mesh = meshes()[name]
    rng = np.random.default_rng(4)
    points = mesh.bounds[0] - 0.05 + rng.random((200, 3)) * (np.ptp(mesh.bounds, axis=0) + 0.1)
    expected = -trimesh.proximity.signed_distance(mesh, points)
    worst = []
    for resolution in (16, 32):
        field = sdf.Field(sdf.grid(mesh, resolution))
        value, gradient = field(tensor(points))
        cell = np.ptp(mesh.bounds, axis=0).max() / resolution
        error = np.abs(value.numpy() - expected)
        assert np.median(error) < 0.03 * cell
        assert error[np.abs(expected) < cell].max() < 0.2 * cell
        assert error.max() < 0.4 * cell
        assert gradient.norm(dim=-1).max() < field.program.slope
        worst.append(np.median(error))
    assert worst[1] < 0.6 * worst[0]


def test_grid_is_smooth_across_its_cells():
    """Value, gradient and curvature have no jump: the normal has a derivative everywhere in the grid."""
    field = sdf.Field(sdf.grid(meshes()["ellipsoid"], 12))
    lattice = field.program.lattices[0]
    rng = np.random.default_rng(5)
    low = lattice.origin + 2 * lattice.spacing
    points = low + rng.integers(0, 10, (60, 3)) * lattice.spacing + rng.random((60, 3)) * lattice.spacing
    points[:, 0] = (
        lattice.origin[0] + np.round((points[:, 0] - lattice.origin[0]) / lattice.spacing[0]) * lattice.spacing[0]
    )
    sides = []
    for step in (1e-9, -1e-9):
        x = tensor(points + np.array([step, 0.0, 0.0])).requires_grad_()
        value, gradient = field(x)
        (hessian,) = torch.autograd.grad(gradient[:, 0].sum(), x)
        sides.append([t.detach().numpy() for t in (value, gradient, hessian)])
    for a, b, tolerance in zip(*sides, (1e-8, 1e-7, 1e-5)):
        np.testing.assert_allclose(a, b, atol=tolerance)


def test_beyond_the_grid_the_distance_goes_on():
    field = sdf.Field(sdf.grid(meshes()["ellipsoid"], 12))
    x = np.array([[2.0, 0.0, 0.0], [0.0, -3.0, 0.0], [1.0, 2.0, 3.0]])
    value, gradient = field(tensor(x))
    expected = -trimesh.proximity.signed_distance(meshes()["ellipsoid"], x)
    np.testing.assert_allclose(value, expected, rtol=0.1)
    assert torch.isfinite(gradient).all()
    edge = field.program.lattices[0].origin[0]
    value, _ = field(tensor([[edge - 1e-9, 0.1, 0.1], [edge + 1e-9, 0.1, 0.1]]))
    assert abs(value[0] - value[1]) < 1e-8


def test_a_file_is_read_and_scaled(tmp_path):
    path = tmp_path / "box.stl"
    meshes()["box"].export(path)
    x = tensor(np.random.default_rng(6).uniform(-0.3, 0.3, (20, 3)))
    small, _ = sdf.Field(sdf.grid(path, 16, scale=0.5))(x)
    large, _ = sdf.Field(sdf.grid(str(path), 16))(2.0 * x)
    torch.testing.assert_close(small, 0.5 * large, rtol=0.0, atol=1e-12)


def test_what_cannot_be_a_grid_is_refused(tmp_path):
    opened = meshes()["box"]
    opened.update_faces(np.arange(len(opened.faces)) > 0)
    with pytest.raises(PullbackError, match="is not watertight: 3 of its 18 edges"):
        sdf.grid(opened)
    with pytest.raises(PullbackError, match="does not exist"):
        sdf.grid(tmp_path / "nothing.stl")
    with pytest.raises(PullbackError, match="at least 4 cells"):
        sdf.grid(meshes()["box"], 2)
    with pytest.raises(PullbackError, match=r"heights have shape \(3,\)"):
        sdf.heights([1.0, 2.0, 3.0], (1.0, 1.0))
    with pytest.raises(PullbackError, match=r"entry \[0, 1\] is nan"):
        sdf.heights([[1.0, np.nan], [0.0, 0.0]], (1.0, 1.0))


def test_a_mesh_turned_inside_out_is_the_same():
    mesh = meshes()["box"]
    turned = mesh.copy()
    turned.invert()
    x = tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    a, _ = sdf.Field(sdf.grid(mesh, 8))(x)
    b, _ = sdf.Field(sdf.grid((turned.vertices, turned.faces), 8))(x)
    assert a[0] < 0.0 < a[1]
    torch.testing.assert_close(a, b)
