"""Videos: the rasteriser against rays, what is seen, and the files."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.core.errors import PullbackError
from pullback.viewer.painter import Painter, Triangles
from pullback.viewer.shot import Shot
from pullback.viewer.stage import Frame, Stage, round_down
from pullback.viewer.video import draw

SIZE = (160, 120)


@pytest.fixture(scope="module")
def motion() -> tuple[pb.Sim, pb.Trajectory]:
    world = pb.World()
    world.add_ground()
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0.5, 0.0, 0.6))
    world.add_box("crate", size=(0.3, 0.2, 0.2), mass=2.0, position=(0.0, 0.0, 0.1))
    sim = world.compile(dt=5e-3, dtype=torch.float64)
    return sim, sim.rollout(sim.initial_state(batch=2), 60)


def orange(picture: np.ndarray) -> np.ndarray:
    red, green, blue = np.moveaxis(picture.astype(int), -1, 0)
    return (red > green + 25) & (green > blue + 25)


def test_triangles_are_filled_nearest_first() -> None:
    painter = Painter(Stage([]), Frame(np.zeros(3), 1.0), SIZE)
    generator = np.random.default_rng(0)
    n = 60
    corners = generator.uniform([-20.0, -20.0, 0.2], [340.0, 260.0, 1.0], (n, 3, 3)).astype(np.float32)
    bright = generator.uniform(0.0, 1.0, (n, 3)).astype(np.float32)
    number, shade = painter._fill(Triangles(corners, bright, np.zeros((n, 3))), torch.zeros(240, 320))
    # the same by barycentric coordinates of every pixel in every triangle, in float64
    x, y = np.meshgrid(np.arange(320) + 0.5, np.arange(240) + 0.5)
    nearest, expected = np.zeros((240, 320)), np.full((240, 320), -1)
    for t, (a, b, c) in enumerate(corners.astype(float)):
        shares = np.linalg.solve(
            np.array([[a[0], b[0], c[0]], [a[1], b[1], c[1]], [1.0, 1.0, 1.0]]),
            np.stack([x.ravel(), y.ravel(), np.ones(x.size)]),
        ).reshape(3, 240, 320)
        w = a[2] * shares[0] + b[2] * shares[1] + c[2] * shares[2]
        seen = (shares >= 0.0).all(0) & (w > nearest)
        nearest[seen], expected[seen] = w[seen], t
    # pixels on an edge may go either way by rounding
    assert (number != expected).mean() < 1e-3
    assert (number >= 0).mean() > 0.5
    assert shade.min() >= -1e-5
    assert shade.max() <= 1.0 + 1e-5


def test_a_ball_is_seen_where_it_is(motion) -> None:
    sim, trajectory = motion
    shot = Shot(sim, trajectory, fps=10.0, forces=False)
    painter = Painter(shot.stage, shot.frame, SIZE)
    for k in (0, len(shot.times) - 1):
        seen = orange(painter.paint(shot.poses, k))
        rows, columns = seen.nonzero()
        centre = shot.poses["ball"][1][0][k, 0]
        x, y, w = painter._project(centre[None])[0]
        np.testing.assert_allclose([columns.mean(), rows.mean()], [x / 2 - 0.5, y / 2 - 0.5], atol=1.0)
        radius = 0.1 * w * painter.focal / 2
        assert seen.sum() == pytest.approx(np.pi * radius**2, rel=0.1)


def test_the_ground_is_darker_below_what_stands_on_it(motion) -> None:
    sim, trajectory = motion
    shot = Shot(sim, trajectory, fps=10.0, forces=False)
    painter = Painter(shot.stage, shot.frame, SIZE)
    with_shadow = painter.paint(shot.poses, 0)
    empty = Painter(Stage([item for item in sim.world.items if item.robot is None]), shot.frame, SIZE)
    bare = empty.paint({"ground": shot.poses["ground"]}, 0)
    darker = bare.astype(int).sum(-1) - with_shadow.astype(int).sum(-1) > 100
    gray = np.ptp(with_shadow.astype(int), axis=-1) < 12
    assert (darker & gray).sum() > 20


def test_what_is_followed_stays_and_the_ground_moves() -> None:
    world = pb.World()
    world.add_ground(friction=0.0)
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0.0, 0.0, 0.1))
    world.add_box("crate", size=(0.3, 0.2, 0.2), mass=2.0, position=(0.0, 2.0, 0.1))
    sim = world.compile(dt=5e-3, dtype=torch.float64)
    state = sim.initial_state()
    state.qd[0, 3:5] = torch.tensor([20.0, -4.0])
    trajectory = sim.rollout(state, 100)
    far, near = (Shot(sim, trajectory, fps=10.0, follow=name) for name in ("", "ball"))
    travel = far.poses["ball"][1][0] - near.poses["ball"][1][0]
    np.testing.assert_allclose(travel[-1, 0], [10.0, -2.0, 0.0], atol=0.01)
    np.testing.assert_allclose(far.poses["crate"][1][0] - near.poses["crate"][1][0], travel)
    for k, here in enumerate(near.things[0].moments):
        np.testing.assert_allclose(
            far.things[0].moments[k].points - here.points, np.tile(travel[k], (len(here.points), 1))
        )
    # the crate is left behind
    assert far.frame.radius > 5.0
    assert near.frame.radius < 0.2
    painter = Painter(near.stage, near.frame, SIZE)
    still = painter.backdrop.copy()
    cell = round_down(0.3 * near.frame.radius)
    for moved, alike in (((cell, -2.0 * cell, 0.0), True), ((0.5 * cell, 0.0, 0.0), False)):
        painter.move_ground(np.array(moved))
        assert np.allclose(painter.backdrop, still, atol=1e-6) == alike
    with pytest.raises(PullbackError, match="follow='ball' is for one world, without paths and particles"):
        Shot(sim, trajectory, follow="ball", paths=["ball"])


def test_files(motion, tmp_path) -> None:
    imageio = pytest.importorskip("imageio.v3")
    pytest.importorskip("imageio_ffmpeg")
    sim, trajectory = motion
    film = pb.viewer.save_video(sim, trajectory, tmp_path / "new" / "fall.mp4", size=SIZE, fps=20, title="falls")
    frames = imageio.imread(film)
    assert frames.shape == (7, 120, 160, 3)
    tops = [orange(frame).nonzero()[0].mean() for frame in frames]
    assert tops[-1] > tops[0] + 10, "the ball falls"
    slow = pb.viewer.save_video(sim, trajectory, tmp_path / "slow.gif", size=SIZE, fps=20, speed=0.5, world=[0, 1])
    frames = imageio.imread(slow)
    assert len(frames) == 13
    assert slow.stat().st_size < 200_000
    assert len(list(draw(Shot(sim, trajectory, fps=5.0), SIZE))) == 3


def test_what_cannot_be_written_is_said(motion, tmp_path, monkeypatch) -> None:
    import sys

    sim, trajectory = motion
    with pytest.raises(PullbackError, match=r"'x.html' is none; call pb.viewer.save_replay"):
        pb.viewer.save_video(sim, trajectory, tmp_path / "x.html")
    with pytest.raises(PullbackError, match=r"'x.avi' is none; name it .mp4 or .gif"):
        pb.viewer.save_video(sim, trajectory, tmp_path / "x.avi")
    with pytest.raises(PullbackError, match=r"'x.mp4' is none; call pb.viewer.save_video"):
        pb.viewer.save_replay(sim, trajectory, tmp_path / "x.mp4")
    with pytest.raises(PullbackError, match=r"size is \(100, 33\)"):
        pb.viewer.save_video(sim, trajectory, tmp_path / "x.mp4", size=(100, 33))
    with pytest.raises(PullbackError, match="speed is 0"):
        pb.viewer.save_video(sim, trajectory, tmp_path / "x.gif", speed=0.0)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(PullbackError, match=r"pip install 'pullback\[viz\]'"):
        pb.viewer.save_video(sim, trajectory, tmp_path / "x.mp4")
