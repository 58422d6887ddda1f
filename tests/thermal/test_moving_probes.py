"""Probes that move: against states, against probes at rest, their gradient, and what they refuse."""

import numpy as np
import pytest
import torch

import pullback as pb
import pullback.thermal as th
from pullback.thermal.probes import locate
from tests.thermal.cases import leaves, wall

DEPTHS = (0.0, 0.3e-3, 0.7e-3, 1.2e-3)


@pytest.fixture(scope="module")
def process():
    return wall(duration=1.2)


def weave(process, seed=0):
    """Return points (N, 3, 3) that wander about in the plate, and so are always inside."""
    rng = np.random.default_rng(seed)
    low, high = [-0.002, -0.0015, -0.0008], [0.002, 0.0015, -0.0002]
    ends = rng.uniform(low, high, (2, 3, 3))
    along = np.linspace(0.0, 1.0, process.steps)[:, None, None]
    return ends[0] + along * (ends[1] - ends[0])


def test_points_that_stand_still_see_what_probes_at_rest_see(process):
    points = weave(process)[0]
    still = process.run(300.0, probes=process.probes(points)).probes
    moving = process.run(300.0, probes=process.probes(np.tile(points, (process.steps, 1, 1)))).probes
    assert torch.equal(still, moving)


def test_what_moving_points_see_is_the_state_between_the_corners(process):
    points = weave(process)
    history = process.run(300.0, probes=process.probes(points), snapshots=range(process.steps + 1))
    for step in (0, 1, 17, process.steps - 1):
        element, weights = locate(process.mesh, points[step], process.births)
        corners = history.snapshots[step + 1].numpy()[process.mesh.elements[element]]
        assert history.probes[step + 1].numpy() == pytest.approx((corners * weights).sum(1), rel=1e-14)


def test_points_under_the_beam_follow_it_and_stay_where_it_went_out(process):
    probes, laser = process.under_beam(DEPTHS), process.laser
    history = process.run(300.0, probes=probes)
    assert history.probes.shape == (process.steps + 1, len(DEPTHS))
    lit = np.flatnonzero(laser.on)
    places = np.repeat(laser.positions[lit[10]][None], len(DEPTHS), axis=0)
    places[:, 2] -= DEPTHS
    expected = process.run(300.0, probes=process.probes(places)).probes[lit[10] + 1]
    # the surface is bumpy, and depths count from it where it is below the beam
    assert torch.allclose(history.probes[lit[10] + 1], expected, rtol=0.05)
    dark = np.flatnonzero(~laser.on[: lit[-1]])
    places[:, :2] = laser.positions[dark[0] - 1, :2]
    expected = process.run(300.0, probes=process.probes(places)).probes[dark + 1]
    assert torch.allclose(history.probes[dark + 1], expected, rtol=0.05)
    assert float(history.probes[lit[20] + 1, 0]) > float(history.probes[lit[20] + 1, -1]) + 100.0


@pytest.mark.parametrize("method", ["explicit", th.Implicit(theta=0.5)])
def test_gradient_agrees_with_differences_and_schedules_with_each_other(method):
    process = wall(duration=0.8, method=method)
    probes = process.under_beam(DEPTHS)
    power, parameters = leaves(process)
    names = ("conductivity", "heat_capacity", "convection", "birth_temperature", "initial", "absorptivity")
    inputs = {"power": power} | {name: parameters[name] for name in names}
    weights = torch.randn(process.steps + 1, len(DEPTHS), generator=torch.Generator().manual_seed(1)).double()

    def loss(checkpoint=None, **values):
        return (weights * (process.run(probes=probes, checkpoint=checkpoint, **values).probes / 500.0).square()).sum()

    grads = torch.autograd.grad(loss(**inputs), list(inputs.values()))
    again = torch.autograd.grad(loss(checkpoint=1, **inputs), list(inputs.values()))
    for name, x, gradient, other in zip(inputs, inputs.values(), grads, again):
        assert torch.equal(gradient, other), name
        direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(2)).double() * x.detach().abs().max()
        fixed = {key: y.detach() for key, y in inputs.items()}
        with torch.no_grad():
            ends = [float(loss(**{**fixed, name: x.detach() + size * direction})) for size in (1e-6, -1e-6)]
        tolerance = 1e-5 if method == "explicit" else 1e-4
        assert float((gradient * direction).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=tolerance), name


def test_depths_count_from_the_surface_where_a_layer_comes_late():
    mesh = th.box_on_plate(size=(0.004, 0.001, 0.002), cell=0.001, plate=(0.006, 0.003, 0.002))
    rows = [(0, -0.0015, 0, 0.001, 0), (0.5, 0.0015, 0, 0.001, 1)]
    path = th.Toolpath(*np.array(rows, dtype=float).T)
    births = np.where(np.arange(len(mesh.elements)) < len(mesh.element_set("plate")), -np.inf, 0.25)
    births[mesh.centers[:, 2] > 0.001] = np.inf
    options = {"material": th.material("in718"), "source": th.Gaussian(1e-3), "births": births, "dt": 0.01}
    process = th.Process(mesh, path, **options)
    seen = process.run(100.0, probes=process.under_beam([0.0, 0.5e-3]), snapshots=range(process.steps + 1))
    places = process.positions[:, None] - np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.5e-3]])
    # the layer is there from state 25 on, after step 24
    places[:24, :, 2] -= 0.001
    expected = process.run(100.0, probes=process.probes(places)).probes
    assert torch.allclose(seen.probes, expected, rtol=1e-3)
    # where the part ends above a depth its lowest point is seen
    deep = process.run(100.0, probes=process.under_beam([0.0, 2e-3, 2.9e-3])).probes
    assert torch.allclose(deep[:25, 2], deep[:25, 1], rtol=1e-12)
    assert not torch.allclose(deep[30:, 2], deep[30:, 1], rtol=1e-3)


def test_single_precision_sees_the_same(process):
    double = process.run(300.0, probes=process.under_beam(DEPTHS)).probes
    other = wall(duration=1.2, dtype=torch.float32)
    single = other.run(300.0, probes=other.under_beam(DEPTHS)).probes
    assert single.dtype == torch.float32
    assert float((single.double() - double).abs().max()) < 0.1


def test_melt_pool_depth_of_a_run_grows_with_power(process):
    probes, lit = process.under_beam(DEPTHS), np.flatnonzero(process.laser.on)[15:]
    power = torch.full((process.steps,), 400.0, dtype=torch.float64, requires_grad=True)
    profile = process.run(power, probes=probes).probes[1:][lit]
    depth = th.melt_pool_depth(profile, DEPTHS, 1400.0).mean()
    (gradient,) = torch.autograd.grad(depth, power)
    assert 0.0 < float(depth.detach()) < DEPTHS[-1]
    assert float(gradient.sum()) > 0.0


def test_many_points_are_found_as_by_looking_everywhere():
    mesh = wall().mesh
    rng = np.random.default_rng(5)
    points = rng.uniform(mesh.nodes.min(0), mesh.nodes.max(0), (500, 3))
    births = rng.integers(0, 5, len(mesh.elements))
    element, weights = locate(mesh, points, births)
    inside = element >= 0
    assert 0.3 < inside.mean() < 1.0
    corners = mesh.nodes[mesh.elements[element[inside]]]
    assert np.einsum("pc,pck->pk", weights[inside], corners) == pytest.approx(points[inside], abs=1e-12)
    assert (weights[inside] >= -1e-5).all()
    middle, _ = locate(mesh, mesh.centers, births)
    assert (middle == np.arange(len(mesh.elements))).all()
    # a node belongs to the oldest of its elements
    oldest, _ = locate(mesh, mesh.nodes, births)
    for node in range(0, len(mesh.nodes), 7):
        mine = np.flatnonzero((mesh.elements == node).any(1))
        assert births[oldest[node]] == births[mine].min()


def test_bad_points(process):
    points = weave(process)
    with pytest.raises(pb.PullbackError, match="no points to observe"):
        process.probes(np.zeros((0, 3)))
    with pytest.raises(pb.PullbackError, match="no points to observe"):
        process.probes()
    with pytest.raises(pb.PullbackError, match=r"points have shape \(7, 3, 3\); expected \(p, 3\), or \(60, p, 3\)"):
        process.probes(points[:7])
    points[20, 1] = (0.0, 0.0, 0.09)
    with pytest.raises(
        pb.PullbackError, match=r"probe 1 of step 20 at \(0, 0, 90\) mm is outside of the mesh; the near"
    ):
        process.probes(points)
    points[20, 1] = (0.001, 0.0005, 0.0015)
    with pytest.raises(pb.PullbackError, match=r"probe 1 of step 20 .* is in element \d+, which is not there before"):
        process.probes(points)
    with pytest.raises(pb.PullbackError, match=r"probe 1 of step \d+ at .* mm is outside of the mesh"):
        process.under_beam([0.0, 0.1])
    for depths in ([], [0.001, 0.0], [-0.001]):
        with pytest.raises(pb.PullbackError, match="none below the one before"):
            process.under_beam(depths)
    dark = th.Process(process.mesh, material=th.material("in718"), dt=1e-3, duration=1e-3)
    with pytest.raises(pb.PullbackError, match="never lit"):
        dark.under_beam([0.0])
