"""A part being printed: its surface is closed and grows, its colours are those of its temperatures."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.viewer.part import PartShot
from pullback.viewer.video import draw_part

pytest.importorskip("viser")


@pytest.fixture(scope="module")
def printed() -> tuple[pb.thermal.Process, pb.thermal.History]:
    th = pb.thermal
    mesh = th.box_on_plate(size=(0.004, 0.002, 0.002), cell=(1e-3, 1e-3, 1e-3), plate=(0.006, 0.004, 0.001))
    path = th.layers(mesh, speed=7e-3, hatch=2e-3, dwell=0.2)
    process = th.Process(
        mesh, path, material=th.material("in718"), births=th.births(mesh, path), dt=0.02, duration=path.duration,
        source=th.Gaussian(radius=1.12e-3, absorptivity=0.4), fixed={"bottom": 300.0},
    )  # fmt: skip
    with torch.no_grad():
        return process, process.run(300.0, snapshots=range(0, process.steps + 1, process.steps // 4))


def test_the_surface_encloses_what_exists(printed):
    shot = PartShot(*printed)
    volumes = []
    for k, alive in enumerate(shot.alive):
        vertices, faces, _ = shot.surface(k)
        a, b, c = (vertices[faces[:, corner]] for corner in range(3))
        # the divergence theorem: a sixth of the sum of a · (b × c) over triangles seen from outside
        volume = np.einsum("ni,ni->", a, np.cross(b, c)) / 6.0
        assert volume == pytest.approx(printed[0].mesh.volumes[alive].sum(), rel=1e-9)
        volumes.append(volume)
    assert volumes[-1] > 1.2 * volumes[0]
    assert np.diff(volumes).min() >= 0.0


def test_colours_are_those_of_the_bar(printed):
    shot = PartShot(*printed, limits=(300.0, 1300.0))
    vertices, _, colors = shot.surface(len(shot.times) - 1)
    nodes = printed[0].mesh.nodes
    hottest = int(np.argmax(shot.values[-1]))
    (place,) = np.flatnonzero(np.abs(vertices - nodes[hottest]).max(1) < 1e-12)
    assert (colors[place] == shot.color(shot.values[-1][[hottest]])[0]).all()
    bar, ticks = shot.bar()
    assert (bar.colors[0] == shot.color(np.array([300.0]))[0]).all()
    assert [text for _, text in ticks] == ["300 K", "550 K", "800 K", "1050 K", "1300 K"]
    assert shot.times[-1] == pytest.approx(6.0)


def test_the_video_has_part_and_bar(printed):
    shot = PartShot(*printed, title="a wall")
    frames = list(draw_part(shot, (160, 120)))
    assert len(frames) == len(shot.times)
    bar = frames[0][24:96, 140]
    assert (bar[0] == shot.color(np.array([shot.limits[1]]))[0]).all()
    # the part is dark and cold at first, and larger and warmer at the end
    middle = [frame[20:110, 30:120].astype(int) for frame in frames]
    assert (middle[-1].sum(-1) < 500).sum() > (middle[0].sum(-1) < 500).sum() > 100
    assert middle[-1][..., 0].sum() > 0


def test_page_and_live_view(printed, tmp_path):
    page = pb.viewer.save_replay(*printed, tmp_path / "wall.html", title="a wall")
    assert "<title>a wall</title>" in page.read_text()
    viewer = pb.view(*printed, port=None, block=False)
    try:
        panel = viewer.panel
        assert "hottest" in panel.text.content or panel.playing
        assert "<iframe" in viewer._repr_html_()
    finally:
        viewer.stop()
    assert viewer.error is None


def test_what_cannot_be_drawn_is_said(printed, tmp_path):
    process, history = printed
    bare = process.run(300.0)
    with pytest.raises(pb.PullbackError, match="the history has no snapshots; ask for them"):
        pb.viewer.save_replay(process, bare, tmp_path / "x.html")
    with pytest.raises(pb.PullbackError, match="no colours named 'heat'"):
        pb.viewer.save_video(process, history, tmp_path / "x.gif", colors="heat")
    with pytest.raises(pb.PullbackError, match="limits are"):
        PartShot(process, history, limits=(500.0, 300.0))
    with pytest.raises(pb.PullbackError, match="a process is drawn with its history"):
        pb.view(process, None, port=None, block=False)
