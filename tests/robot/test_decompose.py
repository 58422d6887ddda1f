"""Concave meshes as convex parts: a channel that a ball falls into, loaded from URDF; errors."""

import sys

import numpy as np
import pytest
import torch
import trimesh

import pullback as pb

# the profile of a channel, x and z [m], as three rectangles, and its border
PROFILE = np.array([(-3, 0), (3, 0), (3, 3), (2, 3), (2, 1), (-2, 1), (-2, 3), (-3, 3)]) * 0.1
WALLS = [(0, 1, 4), (0, 4, 5), (1, 2, 3), (1, 3, 4), (0, 5, 6), (0, 6, 7)]
URDF = """<robot name="channel"><link name="channel"><inertial><mass value="1"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><origin xyz="0 0 0.1"/><geometry><mesh filename="channel.stl" scale="1 2 1"/></geometry></collision>
</link></robot>"""


@pytest.fixture
def channel(tmp_path) -> trimesh.Trimesh:
    n = len(PROFILE)
    vertices = np.array([(x, y, z) for y in (-0.25, 0.25) for x, z in PROFILE])
    faces = [(a, b, c) for a, b, c in WALLS] + [(n + a, n + c, n + b) for a, b, c in WALLS]
    for a in range(n):
        b = (a + 1) % n
        faces += [(a, n + a, n + b), (a, n + b, b)]
    mesh = trimesh.Trimesh(vertices, faces)
    mesh.fix_normals()
    assert mesh.is_watertight
    mesh.export(tmp_path / "channel.stl")
    (tmp_path / "channel.urdf").write_text(URDF)
    return mesh


def resting_height(robot: pb.RobotModel) -> float:
    world = pb.World()
    world.add(robot, name="channel")
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0, 0, 0.7), friction=0.5)
    sim = world.compile(dt=5e-3, dtype=torch.float64)
    end = sim.rollout(sim.initial_state(), 200)[-1]
    assert end.qd.abs().max() < 1e-3
    return float(end.q[0, 2])


def test_a_ball_falls_into_a_channel(channel, tmp_path):
    pytest.importorskip("coacd")
    parts = pb.decompose_mesh((channel.vertices, channel.faces))
    assert len(parts) == 3
    volume = sum(trimesh.convex.convex_hull(part).volume for part in parts)
    assert volume == pytest.approx(channel.volume, rel=0.02)
    file = tmp_path / "channel.urdf"
    whole, decomposed = pb.load(file), pb.load(file, concave="decompose")
    assert [len(robot.model.links[0].shapes) for robot in (whole, decomposed)] == [1, 3]
    assert resting_height(whole) == pytest.approx(0.5, abs=2e-3)
    assert resting_height(decomposed) == pytest.approx(0.3, abs=2e-3)
    # written once, as it was
    written = pb.export_urdf(decomposed, tmp_path / "again.urdf")
    assert written.read_text().count("channel.stl") == 1


def test_convex_meshes_stay_whole(monkeypatch):
    monkeypatch.setitem(sys.modules, "coacd", None)
    box = trimesh.creation.box()
    assert len(pb.decompose_mesh((box.vertices, box.faces))) == 1


def test_refusals(channel, tmp_path, monkeypatch):
    with pytest.raises(pb.PullbackError, match="threshold is 2"):
        pb.decompose_mesh(tmp_path / "channel.stl", threshold=2)
    with pytest.raises(pb.PullbackError, match="concave is 'split'; choose 'hull' or 'decompose'"):
        pb.load(tmp_path / "channel.urdf", concave="split")
    monkeypatch.setitem(sys.modules, "coacd", None)
    with pytest.raises(pb.PullbackError, match=r'pip install "pullback\[coacd\]"'):
        pb.decompose_mesh((channel.vertices, channel.faces), threshold=0.11)
