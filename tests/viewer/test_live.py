"""The live viewer without a browser: what it shows, how physics runs, and what it refuses."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.core.errors import PullbackError
from pullback.viewer.physics import Physics, Pull, inertia_matrix

viser = pytest.importorskip("viser")

DT = 5e-3


@pytest.fixture(scope="module")
def sim() -> pb.Sim:
    world = pb.World()
    world.add_ground()
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0.5, 0.0, 0.3))
    world.add_box("crate", size=(0.3, 0.2, 0.2), mass=2.0, position=(0.0, 0.0, 0.1))
    return world.compile(dt=DT, dtype=torch.float64)


def until(condition, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def node_position(viewer: pb.viewer.Viewer, name: str) -> np.ndarray:
    """Return where viser draws a link."""
    (node,) = [node for actor, node in viewer.panel.scene.nodes if actor.name == name]
    return np.array(node.position)


def test_sliders_move_a_robot(capsys) -> None:
    viewer = pb.view(pb.load("ur5"), port=None, block=False)
    try:
        assert capsys.readouterr().out.startswith(f"viewer: {viewer.url}")
        before = node_position(viewer, "/ur5/wrist_3_link")
        place, name, slider = viewer.panel.joints.sliders[1]
        assert name == "ur5/shoulder_lift_joint"
        slider.value = -1.0
        viewer.panel.note(lambda: viewer.panel.joints.changed.append(place))
        until(lambda: not np.allclose(node_position(viewer, "/ur5/wrist_3_link"), before))
        q = torch.zeros(6)
        q[1] = slider.value
        expected, _ = pb.load("ur5").compute_forward_kinematics(q, "wrist_3_link")
        np.testing.assert_allclose(node_position(viewer, "/ur5/wrist_3_link"), expected, atol=1e-5)
        assert viewer.error is None
    finally:
        viewer.stop()
    assert "stopped" in repr(viewer)


def test_a_floating_robot_stands_on_the_ground_within_its_limits() -> None:
    viewer = pb.view(pb.load("laikago", base="floating"), port=None, block=False)
    try:
        stage, q = viewer.panel.stage, viewer.panel.q
        poses = stage.poses(q[None])
        lowest = min(
            (rotations @ actor.mesh.vertices.T).transpose(0, 2, 1)[0, :, 2].min() + position[0, 0, 2]
            for actor in stage.actors
            for position, wxyz in [poses[actor.item.name][actor.link]]
            for rotations in [_rotations(wxyz[0])]
        )
        assert -0.05 < lowest < 0.05
    finally:
        viewer.stop()


def _rotations(wxyz: np.ndarray) -> np.ndarray:
    from pullback.viewer.stage import rotations

    return rotations(wxyz)


def test_a_simulation_runs_and_goes_back(sim) -> None:
    viewer = pb.view(sim, port=None, block=False)
    try:
        panel = viewer.panel
        panel.note(panel._toggle)
        until(lambda: node_position(viewer, "/ball/ball")[2] < 0.15)
        assert panel.toggle.label == "pause"
        panel.note(panel._reset)
        until(lambda: node_position(viewer, "/ball/ball")[2] == pytest.approx(0.3))
        assert viewer.error is None
    finally:
        viewer.stop()


def test_worlds_stand_side_by_side(sim) -> None:
    viewer = pb.view(sim, sim.initial_state(batch=9), port=None, block=False)
    try:
        ((_, node),) = [(a, n) for a, n in viewer.panel.scene.nodes if a.name == "/ball/ball"]
        places = np.array(node.batched_positions)
        assert places.shape == (9, 3)
        distances = np.linalg.norm(places[:, None] - places, axis=-1) + 9.0 * np.eye(9)
        assert distances.min() > 0.5, "no two in one place"
    finally:
        viewer.stop()


def test_a_trajectory_is_played_with_forces_and_gradients(sim) -> None:
    motion = sim.rollout(sim.initial_state(), 100)
    pull = torch.ones(101, 1, 3)
    viewer = pb.view(sim, motion, port=None, block=False, gradients={"ball": pull}, title="falls", paths=["ball"])
    try:
        panel = viewer.panel
        until(lambda: panel.shown > 3)
        assert "falls" in panel.text.content
        assert set(panel.scene.drawn) == {"paths/0", "contact forces", "gradients"}
        start, end = np.array(panel.scene.drawn["gradients"][0].points)[0]
        np.testing.assert_allclose((end - start) / np.linalg.norm(end - start), 3 * [3**-0.5], atol=1e-5)
        panel.note(panel._toggle)
        until(lambda: not panel.playing)
        panel.slider.value = 0.25
        panel.note(panel._scrub)
        until(lambda: panel.shot.times[panel.shown] == pytest.approx(0.25, abs=0.02))
        np.testing.assert_allclose(node_position(viewer, "/ball/ball"), motion.q[50, 0, :3], atol=0.05)
    finally:
        viewer.stop()


def test_a_spring_pulls_a_body_to_its_target(sim) -> None:
    physics = Physics(sim, sim.initial_state())
    pull = Pull("ball", np.zeros(3))
    pull.target = np.array([0.2, 0.4, 0.9])
    for _ in range(90):
        assert physics.advance(1.0 / 30.0, pull)
    sag = np.array([0.0, 0.0, 9.81 / 12.0**2])
    np.testing.assert_allclose(physics.state.q[0, :3], pull.target - sag, atol=0.02)
    pushed = pull.push(sim, sim.initial_state(), np.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(pushed.qd[0], [0.0, 0.0, 0.0, 1.0, 0.0, 0.0] + 6 * [0.0], atol=1e-9)


def test_the_inertia_matrix_is_the_robots(sim) -> None:
    world = pb.World()
    robot = pb.load("panda", dtype=torch.float64)
    world.add(robot, collision_links=[])
    arm = world.compile(dt=DT, dtype=torch.float64)
    state = arm.initial_state()
    expected = robot.compute_lagrangian_inertia_matrix(state.q[0])
    torch.testing.assert_close(inertia_matrix(arm, state, 0), expected, rtol=1e-9, atol=1e-12)


def test_what_cannot_be_shown_is_said(sim) -> None:
    motion = sim.rollout(sim.initial_state(), 10)
    with pytest.raises(PullbackError, match=r"give the simulation too: view\(sim, motion\)"):
        pb.view(motion)
    with pytest.raises(PullbackError, match="takes a robot or a simulation, got a dict"):
        pb.view({})
    with pytest.raises(PullbackError, match="no robot named 'pandas'; did you mean 'panda'"):
        pb.view("pandas")
    with pytest.raises(PullbackError, match=r"gradient of 'ball' has shape \(3, 3\); expected \(11, 1, 3\)"):
        pb.view(sim, motion, gradients={"ball": torch.zeros(3, 3)})
    with pytest.raises(PullbackError, match="port is 0"):
        pb.view(sim, port=0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PullbackError, match=f"port {port} is in use.*--port {port + 1}"):
            pb.view(sim, port=port)
