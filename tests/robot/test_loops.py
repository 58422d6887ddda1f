"""Closing the loops of a robot: near coordinates, in all kinds of loops, with the gradient of the projection."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.core.errors import PullbackError
from pullback.description.compile import compile_tree
from pullback.description.tree import Loop, Pose
from tests.rigid.loop_scenes import AXIS, BARS, closed_q, four_bar_tree

F64 = torch.float64
ALONG_Y = np.array([[1.0, 0, 0], [0, 0, -1.0], [0, 1.0, 0]]).T


def linkage(kind="connect", base="fixed", dtype=F64):
    """Return the four-bar linkage, its coupler and rocker held together."""
    loop = Loop("close", kind, "coupler", "rocker")
    loop.frame_a, loop.frame_b = Pose(np.array([BARS["coupler"], 0, 0])), Pose(np.array([BARS["rocker"], 0, 0]))
    if kind == "hinge":
        assert np.allclose(ALONG_Y[:, 2], AXIS) or np.allclose(ALONG_Y[:, 2], -AXIS)
        loop.frame_a.rotation = loop.frame_b.rotation = ALONG_Y
    if kind == "weld":
        # the angle between the bars at a crank of 1 rad
        q = closed_q(1.0)
        angle = float(q[0] + q[1] - q[2])
        c, s = np.cos(angle), np.sin(angle)
        loop.frame_b = Pose(loop.frame_b.translation, np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]))
    return pb.RobotModel(compile_tree(four_bar_tree([loop]), base), dtype=dtype)


@pytest.mark.parametrize("kind", ["connect", "hinge", "weld"])
def test_loops_close_and_little_moves(kind):
    robot = linkage(kind)
    exact = closed_q(1.0)
    q = exact + torch.tensor([[0.01, -0.02, 0.015], [0.0, 0.0, 0.0]], dtype=F64)
    closed = robot.close_loops(q)
    torch.testing.assert_close(closed[1], exact, rtol=0, atol=1e-9)
    assert float((closed[0] - q[0]).abs().max()) < (0.03 if kind != "weld" else 0.05)
    world = pb.World()
    world.add(robot, q=closed[0])
    world.compile(dt=1e-3, dtype=F64)
    if kind == "weld":
        torch.testing.assert_close(closed[0], exact, rtol=0, atol=1e-9)


def test_a_world_says_how_to_close_a_loop():
    robot = linkage()
    world = pb.World()
    world.add(robot, q=closed_q(1.0) + 0.01)
    with pytest.raises(PullbackError, match=r"robot.close_loops\(q\)"):
        world.compile(dt=1e-3, dtype=F64)


def test_a_floating_base_stays():
    robot = linkage(base="floating")
    base = torch.tensor([1.0, 2.0, 3.0, 0.5, 0.5, 0.5, 0.5], dtype=F64)
    q = torch.cat([base, closed_q(1.0) + 0.01])
    closed = robot.close_loops(q)
    torch.testing.assert_close(closed[:7], base)
    assert float((closed - q).abs().max()) > 1e-3


def test_gradients_are_those_of_the_projection():
    robot = linkage()
    q = closed_q(1.0).requires_grad_()
    weights = torch.tensor([1.0, -0.7, 0.4], dtype=F64)
    (robot.close_loops(q) * weights).sum().backward()
    h = 1e-6
    for k in range(3):
        up, down = (
            float(robot.close_loops(closed_q(1.0) + s * h * torch.eye(3, dtype=F64)[k]) @ weights) for s in (1, -1)
        )
        assert float(q.grad[k]) == pytest.approx((up - down) / (2 * h), rel=1e-6)


def test_gradients_by_lengths():
    """A longer crank moves the joints: central differences by where the coupler hangs on it."""
    robot = linkage()
    robot.make_link_param_learnable("coupler", "trans", pb.UnconstrainedTensor())
    (length,) = robot.parameters()
    weights = torch.tensor([1.0, -0.7, 0.4], dtype=F64)
    start = closed_q(1.0)
    (robot.close_loops(start) * weights).sum().backward()
    h, found = 1e-6, []
    with torch.no_grad():
        for s in (1, -2):
            length[..., 0] += s * h
            found.append(float(robot.close_loops(start) @ weights))
    assert float(length.grad.reshape(-1)[0]) == pytest.approx((found[0] - found[1]) / (2 * h), rel=1e-6)


def test_what_cannot_close_is_an_error():
    robot = linkage()
    loop = robot.model.tree.loops[0]
    loop.frame_a = Pose(np.array([9.0, 0, 0]))
    with pytest.raises(PullbackError, match="the loops of four_bar stay open by"):
        robot.close_loops(closed_q(1.0))


def test_float32_and_robots_without_loops():
    single = linkage(dtype=torch.float32)
    closed = single.close_loops(closed_q(1.0).float() + 0.01)
    torch.testing.assert_close(closed.double(), linkage().close_loops(closed_q(1.0) + 0.01), rtol=0, atol=1e-5)
    q = torch.zeros(7)
    assert pb.load("panda", dtype=torch.float32).close_loops(q) is q
