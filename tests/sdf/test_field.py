"""Values, gradients and adjoints of signed distances: against closed forms, differences, and in both types."""

import numpy as np
import pytest
import torch
import trimesh

from pullback import sdf
from pullback.core.errors import PullbackError
from pullback.spatial.rotations_torch import rotate
from tests.reference import sdf as reference
from tests.sdf.scenes import NAMES, Shapes

POINTS = 200
STEP = 1e-6
# central differences with a step of 1e-6 in float64 of functions of size one: 1e-10 of rounding, times curvature
GRADIENT = 2e-7


@pytest.fixture(scope="module")
def shapes():
    return Shapes()


def points(seed, n=POINTS, size=0.7):
    return torch.from_numpy(np.random.default_rng(seed).uniform(-size, size, (n, 3)))


def test_primitives_have_the_distance_of_their_closed_form():
    x = points(0, size=1.0)
    px, py, pz = x.T.abs()
    rho = (px**2 + py**2).sqrt()

    def rectangle(*q):
        q = torch.stack(q, -1)
        return q.clamp(min=0.0).norm(dim=-1) + q.max(-1).values.clamp(max=0.0)

    expected = {
        sdf.sphere(0.3): x.norm(dim=-1) - 0.3,
        sdf.box((0.2, 0.3, 0.4)): rectangle(px - 0.2, py - 0.3, pz - 0.4),
        sdf.box((0.2, 0.3, 0.4)).rounded(0.1): rectangle(px - 0.2, py - 0.3, pz - 0.4) - 0.1,
        sdf.capsule(0.2, 0.6): torch.stack([px, py, (pz - 0.3).clamp(min=0.0)], -1).norm(dim=-1) - 0.2,
        sdf.cylinder(0.3, 0.8): rectangle(rho - 0.3, pz - 0.4),
        sdf.torus(0.5, 0.1): ((rho - 0.5) ** 2 + pz**2).sqrt() - 0.1,
        sdf.plane(): x[:, 2],
    }
    for shape, value in expected.items():
        found, gradient = sdf.Field(shape)(x)
        torch.testing.assert_close(found, value, rtol=0.0, atol=1e-14)
        torch.testing.assert_close(gradient.norm(dim=-1), torch.ones(len(x), dtype=x.dtype), rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_that_of_the_value(shapes, name):
    x = points(1)
    field = sdf.Field(shapes.make(name, torch.from_numpy(shapes.numbers(name))))
    _, gradient = field(x)
    steps = STEP * torch.eye(3, dtype=x.dtype)
    found = torch.stack([(field(x + e)[0] - field(x - e)[0]) / (2.0 * STEP) for e in steps], -1)
    error = (found - gradient).abs().amax(-1)
    # a point within a step of a kink of a shape's distance tells nothing
    assert error.sort().values[:-2].max() < GRADIENT


@pytest.mark.parametrize("name", NAMES)
def test_vjp_of_value_and_gradient(shapes, name):
    """Against central differences, in the point and in every number of the shape, for each point its own."""
    rng = np.random.default_rng(2)
    x = points(3)
    numbers = torch.from_numpy(shapes.numbers(name)).expand(POINTS, -1).clone()
    weights = torch.from_numpy(rng.normal(size=(POINTS, 4)))

    def loss(x, numbers):
        value, gradient = sdf.Field(shapes.make(name, numbers))(x)
        return weights[:, 0] * value + (weights[:, 1:] * gradient).sum(-1)

    for k, given in enumerate((x, numbers)):
        asked = given.clone().requires_grad_()
        at = [x, numbers]
        at[k] = asked
        (adjoint,) = torch.autograd.grad(loss(*at).sum(), asked)
        worst = torch.zeros(POINTS, dtype=x.dtype)
        for j in range(given.shape[1]):
            ends = []
            for sign in (1.0, -1.0):
                at[k] = given.clone()
                at[k][:, j] += sign * STEP
                ends.append(loss(*at))
            worst = torch.maximum(worst, ((ends[0] - ends[1]) / (2.0 * STEP) - adjoint[:, j]).abs())
        scale = adjoint.abs().amax(-1) + 1.0
        assert (worst / scale).sort().values[:-3].max() < GRADIENT


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shared", [False, True])
def test_adjoint_is_that_of_the_reference(shapes, name, shared):
    """Against torch's second derivative of the same shape written in torch; shared: one shape for all points."""
    numbers = torch.from_numpy(shapes.numbers(name))
    if not shared:
        numbers = numbers * (1.0 + 0.1 * torch.rand(POINTS, 1, generator=torch.Generator().manual_seed(8)).double())
    weights = torch.from_numpy(np.random.default_rng(9).normal(size=(POINTS, 4)))
    results = []
    for evaluate in (lambda shape, x: sdf.Field(shape)(x), reference.value_gradient):
        # some of the points are far outside
        x = (points(10) * torch.linspace(0.5, 4.0, POINTS).double()[:, None]).requires_grad_()
        asked = numbers.clone().requires_grad_()
        phi, gradient = evaluate(shapes.make(name, asked), x)
        loss = (weights[:, 0] * phi).sum() + (weights[:, 1:] * gradient).sum()
        results.append([phi, gradient, *torch.autograd.grad(loss, (x, asked))])
    for found, expected in zip(*results):
        # second derivatives near edges are large, and so is what rounding leaves of them
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_float32_follows_float64(shapes, name):
    # rounding may take the other side of a kink: in few points
    results = []
    for dtype in (torch.float64, torch.float32):
        x = points(4).to(dtype).requires_grad_()
        numbers = torch.from_numpy(shapes.numbers(name)).to(dtype).requires_grad_()
        value, gradient = sdf.Field(shapes.make(name, numbers))(x)
        adj_x, adj = torch.autograd.grad((value + gradient.sum(-1)).sum(), (x, numbers))
        results.append([t.double() for t in (value, gradient, adj_x, adj)])
    (value, gradient, adj_x, adj), (value32, gradient32, adj_x32, adj32) = results
    assert (value - value32).abs().max() < 1e-6
    assert (gradient - gradient32).abs().amax(-1).sort().values[:-2].max() < 2e-5
    assert ((adj_x - adj_x32).abs() / (1.0 + adj_x.abs())).amax(-1).sort().values[:-4].max() < 1e-3
    assert torch.isfinite(adj32).all()


def test_points_on_kinks_and_centres_are_finite():
    x = torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.1, 0.1, 0.1], [0.0, 0.0, 0.3]], dtype=torch.float64)
    ball = sdf.sphere(0.1)
    shapes = (
        sdf.sphere(0.2),
        sdf.box((0.1, 0.1, 0.1)),
        sdf.capsule(0.1, 0.2),
        sdf.cylinder(0.1, 0.2),
        sdf.torus(0.1, 0.02),
        (ball | ball).blend(0.1),
        ball - ball,
    )
    for shape in shapes:
        asked = x.clone().requires_grad_()
        value, gradient = sdf.Field(shape)(asked)
        (value.sum() + gradient.sum()).backward()
        assert torch.isfinite(value).all()
        assert torch.isfinite(gradient).all()
        assert torch.isfinite(asked.grad).all()


def test_a_hole_is_one_difference():
    """A peg's points in a hole have the clearance as their gap, and the hole's wall pushes inwards."""
    plate = sdf.box((0.1, 0.1, 0.02)) - sdf.cylinder(0.011, 0.1)
    angle = torch.linspace(0.0, 6.0, 20, dtype=torch.float64)
    rim = torch.stack([0.010 * angle.cos(), 0.010 * angle.sin(), torch.linspace(-0.02, 0.01, 20).double()], -1)
    gap, normal = sdf.Field(plate)(rim)
    torch.testing.assert_close(gap, torch.full_like(gap, 0.001), rtol=0.0, atol=1e-15)
    torch.testing.assert_close(normal[:, :2], -rim[:, :2] / 0.010, rtol=0.0, atol=1e-12)


def test_a_difference_against_trimesh():
    """A pipe as the difference of two cylinders, against the mesh of a pipe: outside, in its hole, and in its wall."""
    sides = 128
    pipe = trimesh.creation.annulus(r_min=0.2, r_max=0.5, height=0.4, sections=sides)
    x = points(11, n=150, size=0.6)
    value, gradient = sdf.Field(sdf.cylinder(0.5, 0.4) - sdf.cylinder(0.2, 2.0))(x)
    expected = torch.from_numpy(-trimesh.proximity.signed_distance(pipe, x.numpy()))
    # the mesh has flat sides
    assert (value / gradient.norm(dim=-1) - expected).abs().max() < 1.1 * 0.5 * (1.0 - np.cos(np.pi / sides))


def test_bounds_hold_the_shape(shapes):
    x = points(12, n=4000, size=1.0)
    for name in NAMES:
        field = sdf.Field(shapes.make(name, torch.from_numpy(shapes.numbers(name))))
        low, high = field.program.bounds()
        inside = x[field(x)[0] < 0.0]
        assert len(inside) > 10
        assert ((inside > low) & (inside < high)).all()
        assert (inside.norm(dim=-1) < field.program.reach(x)).all()
        if name in ("plane", "heights"):
            assert torch.isinf(field.program.reach(x)).all()
        else:
            assert (high - low).max() < 3.0
    assert sdf.Field(sdf.sphere(torch.tensor([1.0, 2.0])).at((1.0, 0.0, 0.0))).program.reach(x).shape == (2,)
    shape = (sdf.sphere(1.0) - sdf.box((1.0, 1.0, 1.0)).at((0.0, 0.0, 1.0))).rounded(0.1)
    assert len(sdf.Field(shape).program.tensors()) == 4 + 4 + 2 + 1 + 1


def test_a_box_of_planes_is_a_box():
    """Faces at right angles make the exact distance outside, also of edges and corners."""
    h = 2**-0.5
    up = [
        (0.0, 0.0, 0.0, 1.0),
        (1.0, 0.0, 0.0, 0.0),
        (h, 0.0, 0.0, h),
        (-h, 0.0, 0.0, h),
        (0.0, h, 0.0, h),
        (0.0, -h, 0.0, h),
    ]
    x = points(5)
    R = torch.eye(3, dtype=x.dtype)
    for radius in (0.0, 0.05):
        shape = None
        for quat in up:
            q = torch.tensor(quat, dtype=x.dtype)
            normal = rotate(q, R[2])
            side = sdf.plane().at(normal * torch.tensor([0.2, 0.3, 0.4], dtype=x.dtype), quat)
            shape = side if shape is None else (shape & side).blend(radius)
        expected = sdf.box((0.2 - radius, 0.3 - radius, 0.4 - radius)).rounded(radius)
        (value, gradient), (wanted, slope) = sdf.Field(shape)(x), sdf.Field(expected)(x)
        outside = wanted > -0.5 * radius if radius else wanted > 0.0
        assert outside.sum() > 50
        if radius == 0.0:
            torch.testing.assert_close(value[outside], wanted[outside], rtol=0.0, atol=1e-12)
            torch.testing.assert_close(gradient[outside], slope[outside], rtol=0.0, atol=1e-12)
        else:
            # where three faces meet, blends of blends are not quite a ball
            assert (value - wanted)[outside].abs().max() < 0.2 * radius


@pytest.mark.parametrize("degrees", [60.0, 90.0, 120.0, 150.0])
def test_first_order_gap_of_an_edge(degrees):
    """phi / |grad phi| outside a wedge: exact at right angles, and as far from one face as from the other."""
    inner = np.radians(degrees)
    n = np.array([[np.sin(inner / 2), np.cos(inner / 2)], [-np.sin(inner / 2), np.cos(inner / 2)]])
    turned = [
        sdf.plane().at(orientation=(0.0, np.sin(t / 2), 0.0, np.cos(t / 2)))
        for t in (np.pi / 2 - inner / 2, inner / 2 - np.pi / 2)
    ]
    field = sdf.Field(turned[0] & turned[1])
    angle = np.linspace(-np.pi / 2 + inner / 2, np.pi / 2 - inner / 2, 41)[1:-1]
    # n0 looks to +x: between the two normals the edge itself is nearest, at a distance of one
    x = np.stack([np.sin(angle), 0.0 * angle, np.cos(angle)], -1)
    assert (x[:, ::2] @ n.T > -1e-12).all() or degrees < 90.0
    value, gradient = field(torch.from_numpy(x))
    found = (value / gradient.norm(dim=-1)).numpy()
    assert abs(found[19] - 1.0) < 1e-12
    assert np.abs(found - 1.0).max() < {60.0: 0.14, 90.0: 1e-12, 120.0: 0.06, 150.0: 0.03}[degrees]


def test_long_programs_and_wrong_numbers_are_refused():
    with pytest.raises(PullbackError, match="radius of a sphere is -1; give more than 0"):
        sdf.sphere(-1.0)
    with pytest.raises(PullbackError, match=r"half extents of a box has shape \(2,\)"):
        sdf.box((1.0, 2.0))
    with pytest.raises(PullbackError, match="quaternion of length zero"):
        sdf.sphere(1.0).at((0, 0, 0), (0, 0, 0, 0))
    with pytest.raises(PullbackError, match="can be combined with a shape, got 3"):
        sdf.sphere(1.0) | 3
    many = sdf.sphere(1.0)
    for _ in range(40):
        many = many | sdf.sphere(1.0)
    with pytest.raises(PullbackError, match="81 instructions, at most 64"):
        sdf.Field(many)
    with pytest.raises(PullbackError, match="sizes for 2 and for 3 worlds"):
        sdf.Field(sdf.sphere(torch.ones(3)) | sdf.sphere(torch.ones(2)))(torch.zeros(2, 3))
    with pytest.raises(PullbackError, match="sizes for 3 worlds and 2 points"):
        sdf.Field(sdf.sphere(torch.ones(3)))(torch.zeros(2, 3))


def test_a_balanced_tree_uses_the_stack_to_its_depth():
    """The deeper operand comes first, whichever side it stands on, and nothing is mixed up."""
    level = [sdf.sphere(0.05).at((0.1 * k, 0.0, 0.0)) for k in range(32)]
    while len(level) > 1:
        level = [a | b for a, b in zip(level[::2], level[1::2])]
    x = points(7, size=1.0) + 1.0
    value, _ = sdf.Field(level[0])(x)
    centres = torch.tensor([[0.1 * k, 0.0, 0.0] for k in range(32)], dtype=x.dtype)
    torch.testing.assert_close(value, torch.cdist(x, centres).min(-1).values - 0.05, rtol=0.0, atol=1e-12)
