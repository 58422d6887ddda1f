"""Births of elements and of their free faces."""

import numpy as np
import pytest

from pullback import thermal as th
from pullback.core.errors import PullbackError


def wall():
    return th.box_on_plate((0.02, 0.003, 0.003), 0.001, (0.03, 0.01, 0.004))


def slow_births(mesh, path, radius, layer, fine=20001):
    """Walk along the path in small steps and note who is near."""
    times = np.linspace(0, path.duration, fine)
    position, on, _ = path.at(times)
    low, high = mesh.heights
    out = np.full(len(mesh.elements), -np.inf)
    for e in mesh.element_set("build"):
        near = np.hypot(*(position[:, :2] - mesh.centers[e, :2]).T) <= radius
        middle = 0.5 * (low[e] + high[e])
        window = (position[:, 2] >= middle) & (position[:, 2] < middle + layer)
        hits = np.flatnonzero(near & window & on)
        out[e] = times[hits[0]] if len(hits) else np.inf
    return out


@pytest.mark.parametrize("radius", [0.8e-3, 1.6e-3, 6e-3])
def test_births_agree_with_a_walk_along_the_path(radius):
    mesh = wall()
    path = th.layers(mesh, speed=0.01, hatch=1.5e-3, turn=40.0, travel_speed=0.05)
    found = th.births(mesh, path, radius=radius, unreached="never", unsupported="ignore")
    slow = slow_births(mesh, path, radius, 1e-3)
    both = np.isfinite(found) & np.isfinite(slow)
    step = path.duration / 20000
    assert both.sum() > 150
    assert (np.isinf(found) == np.isinf(slow)).mean() > 0.995
    late = slow[both] - found[both]
    # the walk may skip a graze of the circle
    assert (late > -1e-9).all()
    assert (late < 1.01 * step).mean() > 0.99


def test_a_spiral_without_layers():
    # one long climb: pieces of path that are not level
    mesh = th.solid(lambda p: p[:, 0] < 1, (0.004, 0.004, 0.006), 0.001)
    turns = np.linspace(0, 6, 200)
    x, y = 1.2e-3 * np.cos(2 * np.pi * turns), 1.2e-3 * np.sin(2 * np.pi * turns)
    path = th.Toolpath(turns, x, y, 0.5e-3 + 1e-3 * turns, np.ones(200))
    found = th.births(mesh, path, radius=2e-3, unsupported="ignore")
    slow = slow_births(mesh, path, 2e-3, 1e-3, fine=60001)
    assert np.allclose(found, slow, atol=2e-3)


def test_one_steep_move_is_cut_by_height():
    mesh = th.solid(lambda p: p[:, 0] < 1, (0.001, 0.001, 0.02), 0.001)
    path = th.Toolpath([0, 1], [0, 0], [0, 0], [0, 0.03], [0, 1])
    expected = (np.arange(20) + 0.5) / 30
    assert np.allclose(th.births(mesh, path), expected, atol=1e-6)
    found = th.births(mesh, path, radius=8e-3, layer=1e-3, outside="ignore")
    assert np.allclose(found, expected, atol=1e-6)


def test_layers_finer_than_the_deposit_are_born_with_it():
    mesh = th.box_on_plate((0.004, 0.001, 0.002), (0.001, 0.001, 0.0005), (0.01, 0.01, 0.002))
    path = th.layers(mesh, speed=0.01, hatch=0.002, layer=0.001)
    births = th.births(mesh, path, radius=0.6e-3)[mesh.element_set("build")].reshape(4, 4)
    assert np.allclose(births[0], births[1])
    assert np.allclose(births[2], births[3])
    assert births[2].min() > births[1].max()


def test_default_radius_reaches_everything():
    mesh = wall()
    births = th.births(mesh, th.layers(mesh, speed=0.01, hatch=3e-3))
    build = mesh.element_set("build")
    assert np.isfinite(births[build]).all()
    assert np.isneginf(np.delete(births, build)).all()
    # born in the order of the layers
    tops = mesh.heights[1][build].round(9)
    assert births[build][tops == 0.001].max() < births[build][tops == 0.002].min()


def test_elements_out_of_reach():
    mesh = wall()
    full = th.layers(mesh, speed=0.01, hatch=1e-3)
    short = th.Toolpath(full.t, np.minimum(full.x, 0.0), full.y, full.z, full.on)
    with pytest.raises(PullbackError, match=r"\d+ of 180 elements are never reached .* within 1 mm: \d+, .*radius of"):
        th.births(mesh, short, radius=1e-3)
    never = th.births(mesh, short, radius=1e-3, unreached="never")
    assert 60 < np.isposinf(never).sum() < 90
    nearest = th.births(mesh, short, radius=1e-3, unreached="nearest", unsupported="ignore")
    assert np.isfinite(nearest[mesh.element_set("build")]).all()
    below = full.shifted((0, 0, -0.003))
    with pytest.raises(
        PullbackError, match=r"toolpath leaves the part: on the way to row 1 the lit beam is at .* \(9 such rows\)"
    ):
        th.births(mesh, below)
    with pytest.raises(PullbackError, match="never lit at the height"):
        th.births(mesh, below, outside="ignore")
    with pytest.raises(PullbackError, match="never lit at the height"):
        th.births(mesh, full.shifted((0, 0, 0.0025)), outside="ignore")


def test_path_outside_the_part_names_the_row():
    mesh = wall()
    path = th.layers(mesh, speed=0.01, hatch=1e-3)
    x = path.x.copy()
    x[5:] += 0.1
    with pytest.raises(PullbackError, match="leaves the part: on the way to row 5 the lit beam"):
        th.births(mesh, th.Toolpath(path.t, x, path.y, path.z, path.on))
    with pytest.raises(PullbackError, match="never lit"):
        th.births(mesh, th.Toolpath(path.t, path.x, path.y, path.z, np.zeros(len(path.t))))
    with pytest.raises(PullbackError, match="radius = -1"):
        th.births(mesh, path, radius=-1)
    with pytest.raises(PullbackError, match="unreached='maybe'; choose from"):
        th.births(mesh, path, unreached="maybe")


def test_birth_before_support_names_the_element():
    mesh = wall()
    births = th.births(mesh, th.layers(mesh, speed=0.01, hatch=3e-3))
    build = mesh.element_set("build")
    upper = build[np.isclose(mesh.heights[1][build], 0.002)]
    early = births.copy()
    early[upper] -= births[upper].min() - 1e-3
    first = upper[early[upper].argmin()]
    # the second layer before the first: some of it hangs in the air
    early[build[np.isclose(mesh.heights[1][build], 0.001)]] = 50.0
    with pytest.raises(PullbackError, match=rf"element {first} at .* before its support"):
        th.check_support(mesh, early)
    waited = th.after_support(mesh, early)
    th.check_support(mesh, waited)
    assert (waited[upper] == 50.0).all()


def test_elements_that_touch_nothing_never_get_support():
    mesh = th.solid(lambda p: np.abs(p[:, 0]) > 0.002, (0.01, 0.001, 0.001), 0.001)
    births = np.arange(len(mesh.elements), dtype=float)
    assert np.isinf(th.after_support(mesh, births)).sum() == 3
    with pytest.raises(PullbackError, match=r"element 3 at .* before its support.*3 such elements"):
        th.check_support(mesh, births)
    with pytest.raises(PullbackError, match="birth of element 2 is not a number"):
        th.check_support(mesh, np.where(births == 2, np.nan, births))


def surface_at(mesh, births, time):
    """Return the boundary of what is alive, the slow way: faces of living elements that no other living one shares."""
    alive = np.flatnonzero(births <= time)
    count = {}
    for e in alive:
        for face in mesh.elements[e][
            [[0, 3, 2, 1], [4, 5, 6, 7], [0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7]]
        ]:
            count.setdefault(tuple(sorted(face)), []).append(e)
    return {(face, owners[0]) for face, owners in count.items() if len(owners) == 1}


def test_free_faces_are_the_surface_at_any_time():
    mesh = th.box_on_plate((0.004, 0.002, 0.002), 0.001, (0.006, 0.004, 0.002))
    births = np.full(len(mesh.elements), -np.inf)
    build = mesh.element_set("build")
    births[build] = np.random.default_rng(3).integers(0, 6, len(build))
    births[build[0]] = np.inf
    faces = th.faces_over_time(mesh, births)
    assert (faces.start < faces.end).all()
    for time in (-1.0, 0.0, 2.0, 3.5, 10.0):
        now = (faces.start <= time) & (time < faces.end)
        found = {(tuple(sorted(face)), owner) for face, owner in zip(faces.nodes[now].tolist(), faces.owner[now])}
        assert found == surface_at(mesh, births, time)
    # normals point away from the owner
    corners = mesh.nodes[faces.nodes]
    normal = np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1])
    outward = corners.mean(axis=1) - mesh.centers[faces.owner]
    assert (np.einsum("fk,fk->f", normal, outward) > 0).all()
    with pytest.raises(PullbackError, match="births have shape"):
        th.faces_over_time(mesh, births[:-1])
