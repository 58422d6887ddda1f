"""A replay: one file that needs nothing else, holds every frame, and shows something in a browser."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.core.errors import PullbackError
from pullback.viewer.motion import contact_forces, film, link_poses
from pullback.viewer.shapes import field_mesh, link_meshes

viser = pytest.importorskip("viser")

DT = 5e-3
STEPS = 100


@pytest.fixture(scope="module")
def motion() -> tuple[pb.Sim, pb.Trajectory]:
    """A ball that falls from a height of 0.5 m in the second of two worlds, and a box that stands."""
    world = pb.World()
    world.add_ground()
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0.5, 0.0, 0.3))
    world.add_box("crate", size=(0.3, 0.2, 0.2), mass=2.0, position=(0.0, 0.0, 0.1))
    sim = world.compile(dt=DT, dtype=torch.float64)
    state = sim.initial_state(batch=2)
    state.q[1, 2] = 0.5
    return sim, sim.rollout(state, STEPS)


def recorded(page: str) -> tuple[float, list[tuple[float, dict]]]:
    """Return the duration and the messages that a page plays."""
    import msgspec
    import zstandard

    (data,) = re.findall(r'__VISER_EMBED_DATA__="([^"]+)"', page)
    inner = zstandard.ZstdDecompressor().decompressobj().decompress(base64.b64decode(data)[8:])
    size = int.from_bytes(inner[:8], "little")
    content = msgspec.msgpack.decode(inner[8 : 8 + size])
    return content["durationSeconds"], content["messages"]


def test_one_file_that_needs_nothing_else(motion, tmp_path, capsys) -> None:
    sim, trajectory = motion
    path = pb.viewer.save_replay(sim, trajectory, tmp_path / "new" / "fall.html", title="a <fall>", world=1)
    page = path.read_text(encoding="utf-8")
    assert path == tmp_path / "new" / "fall.html"
    assert "<title>a &lt;fall&gt;</title>" in page
    assert not re.findall(r"""(?:src|href|url|from|import)\s*[=(]?\s*["']?https?://""", page)
    assert not re.findall(r"<(?:script|link)[^>]*(?:src|href)=(?!.?data:)", page)
    assert path.stat().st_size < 2e6
    assert capsys.readouterr().out == ""


def test_every_frame_is_recorded(motion, tmp_path) -> None:
    sim, trajectory = motion
    page = pb.viewer.save_replay(sim, trajectory, tmp_path / "fall.html", fps=20, world=1).read_text(encoding="utf-8")
    duration, messages = recorded(page)
    times = sorted({time for time, _ in messages})
    np.testing.assert_allclose(times, np.arange(11) / 20, atol=1e-9)
    assert duration == pytest.approx(0.5 + 0.8)
    # where the ball is: the last of all positions sent up to a moment
    falling = [(t, m["position"]) for t, m in messages if m["type"] == "SetPositionMessage" and "/ball" in m["name"]]
    last_before = [[p for t, p in falling if t <= time + 1e-9][-1] for time in times]
    np.testing.assert_allclose(last_before, trajectory.q[:: STEPS // 10, 1, :3], atol=1e-6)
    clock = [(t, m["updates"]["text"].splitlines()[0]) for t, m in messages if "text" in m.get("updates", {})]
    assert clock == [(time, f"{time:.2f} s") for time in times]


def test_the_ground_moves_below_what_is_followed(tmp_path) -> None:
    world = pb.World()
    world.add_ground(friction=0.0)
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0.0, 0.0, 0.1))
    sim = world.compile(dt=DT, dtype=torch.float64)
    state = sim.initial_state()
    state.qd[0, 3] = 3.0
    path = pb.viewer.save_replay(sim, sim.rollout(state, 40), tmp_path / "run.html", follow="ball")
    _, messages = recorded(path.read_text(encoding="utf-8"))
    places = {"/ball/ball": [], "/static/ground": []}
    for _, message in messages:
        if message["type"] == "SetPositionMessage" and message["name"] in places:
            places[message["name"]].append(message["position"])
    ball, ground = (np.array(x) for x in places.values())
    np.testing.assert_allclose(ball, ball[:1].repeat(len(ball), 0), atol=0.01)
    # 0.1 m a frame to the left, and whole sections of five cells of 0.05 m back
    steps = np.diff(ground[:, 0])
    assert len(steps) >= 4
    np.testing.assert_allclose(steps % 0.25, 0.15, atol=0.02)


def test_contact_forces_balance_weight(motion) -> None:
    sim, trajectory = motion
    moments = film(sim, trajectory, 20)
    forces = contact_forces(sim, moments, None, 0)
    crate = [m.forces[np.abs(m.points[:, 0]) < 0.2] for m in forces]
    np.testing.assert_allclose([f.sum(0) for f in crate], np.tile([0.0, 0.0, 2.0 * 9.81], (11, 1)), atol=1e-4)
    # the ball of the first world is down at the end, that of the second in the air at first
    assert forces[-1].forces[forces[-1].points[:, 0] > 0.3].sum(0)[2] == pytest.approx(9.81, rel=1e-3)
    assert (contact_forces(sim, moments, None, 1)[0].points[:, 0] < 0.2).all()


def test_links_are_drawn_where_kinematics_has_them() -> None:
    world = pb.World()
    name = world.add(pb.load("panda"), position=(1.0, 2.0, 0.3), orientation=(0.0, 0.0, 1.0, 1.0))
    world.add_sphere("ball", radius=0.05, mass=0.1, position=(0.0, 0.0, 2.0))
    sim = world.compile(dt=DT, dtype=torch.float64, without=["contacts"])
    q = torch.rand(3, 1, sim.nq, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    robot = world.robots[name]
    link = robot.link_number("panda_link7")
    position, wxyz = (x[:, 0] for x in link_poses(world.items, world.items[0], q, [0])[link])
    p, quat = robot.compute_forward_kinematics(q[:, 0, : robot.nq].to(robot.dtype), "panda_link7")
    turned = torch.stack([1.0 - p[:, 1], 2.0 + p[:, 0], 0.3 + p[:, 2]], -1)
    np.testing.assert_allclose(position, turned, atol=1e-5)
    # about z by a quarter turn: w' = (w - z) / sqrt(2)
    np.testing.assert_allclose(np.abs(wxyz[:, 0]), ((quat[:, 3] - quat[:, 2]) / 2**0.5).abs(), atol=1e-5)
    np.testing.assert_allclose(link_poses(world.items, world.items[1], q, [0])[1][0][:, 0], q[:, 0, -7:-4], atol=1e-6)


def test_meshes_have_the_sizes_of_shapes() -> None:
    world = pb.World()
    world.add_capsule("log", radius=0.1, length=0.4, mass=1.0)
    world.add_cylinder("can", radius=0.1, length=0.4, mass=1.0)
    world.add_ellipsoid("egg", radii=(0.1, 0.2, 0.3), mass=1.0)
    world.add_box("wall", size=(0.2, 0.4, 0.6), static=True, position=(1.0, 0.0, 0.0))
    world.set_shape("wall", size=torch.tensor([[0.2, 0.4, 0.6], [0.4, 0.8, 1.2]]))
    world.add(pb.load("pendulum2"))
    found = {(m.item.name, m.link): m.mesh for m in link_meshes(world.items, 1)}
    spans = {name: np.ptp(mesh.vertices, axis=0) for (name, _), mesh in found.items()}
    np.testing.assert_allclose(spans["log"], (0.2, 0.2, 0.6), atol=2e-3)
    np.testing.assert_allclose(spans["can"], (0.2, 0.2, 0.4), atol=2e-3)
    np.testing.assert_allclose(spans["egg"], (0.2, 0.4, 0.6), atol=2e-3)
    np.testing.assert_allclose(spans["wall"], (0.4, 0.8, 1.2), atol=1e-6)
    longest = max(np.ptp(mesh.vertices, axis=0).max() for (name, _), mesh in found.items() if name == "pendulum2")
    assert longest > 0.5, "sticks join the pendulum's balls"


URDF = """<robot name="cart">
  <link name="base">
    <visual><origin xyz="0 0 1" rpy="0 1.5707963 0"/><geometry><cylinder radius="0.1" length="2"/></geometry></visual>
    <collision><geometry><sphere radius="0.3"/></geometry></collision>
  </link>
  <link name="wheel">
    <visual><geometry><mesh filename="lost.stl"/></geometry></visual>
    <collision><geometry><sphere radius="0.2"/></geometry></collision>
  </link>
  <link name="lamp"><visual><geometry><mesh filename="lamp.stl" scale="2 2 2"/></geometry></visual></link>
  <joint name="axle" type="continuous"><parent link="base"/><child link="wheel"/><axis xyz="0 1 0"/></joint>
  <joint name="glue" type="fixed"><parent link="base"/><child link="lamp"/></joint>
</robot>"""


def test_robots_of_files_are_drawn_by_their_visuals(tmp_path) -> None:
    import trimesh

    trimesh.creation.box(extents=(0.1, 0.2, 0.3)).export(tmp_path / "lamp.stl")
    (tmp_path / "cart.urdf").write_text(URDF)
    robot = pb.load(tmp_path / "cart.urdf", base="floating")
    world = pb.World()
    world.add(robot)
    found = {robot.get_link_names()[m.link]: m.mesh.vertices for m in link_meshes(world.items, 0)}
    np.testing.assert_allclose(np.ptp(found["base"], axis=0), (2.0, 0.2, 0.2), atol=2e-3)
    np.testing.assert_allclose(found["base"].mean(0), (0.0, 0.0, 1.0), atol=1e-3)
    np.testing.assert_allclose(np.ptp(found["wheel"], axis=0), (0.4, 0.4, 0.4), atol=2e-3)
    np.testing.assert_allclose(np.ptp(found["lamp"], axis=0), (0.2, 0.4, 0.6), atol=1e-6)


def test_a_field_is_drawn_closed_with_its_outside_out() -> None:
    import trimesh

    from pullback.sdf.program import compile_shape

    drawn = field_mesh(compile_shape(pb.sdf.torus(0.3, 0.1)))
    assert drawn is not None
    mesh = trimesh.Trimesh(*drawn)
    assert mesh.is_watertight
    assert mesh.volume == pytest.approx(2 * np.pi**2 * 0.3 * 0.1**2, rel=0.02)
    assert field_mesh(compile_shape(pb.sdf.plane())) is None


def test_what_cannot_be_drawn_is_said(motion, tmp_path, monkeypatch) -> None:
    sim, trajectory = motion
    path = tmp_path / "no.html"
    with pytest.raises(PullbackError, match="world is 2; the states have 2"):
        pb.viewer.save_replay(sim, trajectory, path, world=2)
    with pytest.raises(PullbackError, match="no states to draw"):
        pb.viewer.save_replay(sim, [], path)
    with pytest.raises(PullbackError, match="no robot or free body named 'bal'"):
        pb.viewer.save_replay(sim, trajectory, path, paths=["bal"])
    with pytest.raises(PullbackError, match=r"path has shape \(4,\)"):
        pb.viewer.save_replay(sim, trajectory, path, paths=[np.zeros(4)])
    broken = [trajectory[k] for k in range(9)]
    broken[6] = pb.State(torch.full_like(broken[6].q, torch.nan), broken[6].qd)
    with pytest.warns(UserWarning, match=r"not finite from 0.03 s on"):
        pb.viewer.save_replay(sim, broken, path, fps=200)
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(PullbackError, match=r"pip install 'pullback\[viz\]'"):
        pb.viewer.save_replay(sim, trajectory, path)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_without_network_shows_it(motion, tmp_path) -> None:
    from matplotlib.image import imread

    sim, trajectory = motion
    page = pb.viewer.save_replay(sim, trajectory, tmp_path / "fall.html", world=1)
    picture = tmp_path / "fall.png"
    flags = ["--no-sandbox", "--headless=new", "--use-gl=angle", "--use-angle=swiftshader"]
    flags += ["--enable-unsafe-swiftshader", "--ignore-gpu-blocklist", "--host-resolver-rules=MAP * ~NOTFOUND"]
    flags += [f"--user-data-dir={tmp_path}/profile", "--window-size=640,480", "--virtual-time-budget=4000"]
    command = ["chromium", *flags, f"--screenshot={picture}", page.as_uri()]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    rgb = imread(picture)[..., :3]
    # the ball is orange, the crate red: pixels of either hue, whatever the light
    red, green, blue = np.moveaxis(rgb, -1, 0)
    orange = (red > green + 0.1) & (green > blue + 0.1)
    crimson = (red > green + 0.2) & (abs(green - blue) < 0.15)
    assert orange.sum() > 200
    assert crimson.sum() > 200


def test_installed_meshes_stand_in_the_frames_of_shipped_robots() -> None:
    from pullback.description.visuals import INSTALLED, visual_file

    for name in INSTALLED:
        robot = pb.load(name, dtype=torch.float64)
        file = visual_file(robot.model.tree)
        if file is None:
            pytest.skip("needs example-robot-data")
        other = pb.load(file, dtype=torch.float64)
        angles = {joint: 0.1 + 0.01 * k for k, joint in enumerate(robot.joint_names)}
        ours, theirs = (
            {link: torch.cat(pose, -1) for link, pose in model.compute_forward_kinematics_all_links(q).items()}
            for model in (robot, other)
            for q in [torch.tensor([[angles.get(joint, 0.0) for joint in model.joint_names]], dtype=torch.float64)]
        )
        shared = [link for link in ours if link in theirs]
        assert len(shared) >= len(ours) - 1
        for link in shared:
            torch.testing.assert_close(ours[link], theirs[link], rtol=0.0, atol=1e-9)


def test_colours_of_files_and_decimated_meshes(tmp_path) -> None:
    import trimesh

    from pullback.viewer.shapes import MANY_FACES

    pytest.importorskip("fast_simplification")
    fine = trimesh.creation.icosphere(subdivisions=6, radius=0.5)
    assert len(fine.faces) > 4 * MANY_FACES
    fine.export(tmp_path / "ball.stl")
    text = """<robot name="r"><material name="sea"><color rgba="0 0.5 1 1"/></material>
      <link name="a"><visual><geometry><mesh filename="ball.stl"/></geometry><material name="sea"/></visual>
      <visual><geometry><box size="1 1 1"/></geometry><material><color rgba="1 0 0 1"/></material></visual></link>
      </robot>"""
    (tmp_path / "r.urdf").write_text(text)
    world = pb.World()
    world.add(pb.load(tmp_path / "r.urdf"))
    parts = {part.color: part.mesh for part in link_meshes(world.items, 0)}
    assert set(parts) == {(0, 128, 255), (255, 0, 0)}
    ball = trimesh.Trimesh(*parts[0, 128, 255])
    assert 0.9 * MANY_FACES < len(ball.faces) <= 1.1 * MANY_FACES
    assert ball.volume == pytest.approx(fine.volume, rel=0.01)


def test_particles_are_drawn_where_they_are(motion, tmp_path) -> None:
    sim, trajectory = motion
    times = DT * np.arange(0, STEPS + 1, 50)
    points = np.random.default_rng(0).random((1, 40, 3)) + np.array([0.0, 0.0, 1.0]) * times[:, None, None]
    replay = pb.viewer.save_replay(
        sim, trajectory, tmp_path / "dust.html", fps=20, particles=(times, torch.tensor(points))
    )
    _, messages = recorded(replay.read_text(encoding="utf-8"))
    clouds = [m for _, m in messages if m.get("type") == "PointCloudMessage"]
    assert [m["name"] for m in clouds] == ["/particles"]
    moved = [m for _, m in messages if m.get("name") == "/particles" and "points" in m.get("updates", {})]
    assert len(moved) >= 2
    with pytest.raises(PullbackError, match=r"particles are times \(3,\) and places \(40, 3\)"):
        pb.viewer.save_replay(sim, trajectory, tmp_path / "dust.html", particles=(times, points[0]))
