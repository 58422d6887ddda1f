"""Moments of inertia that are zero are named at load, and repaired if asked."""

import warnings

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.core.errors import DescriptionWarning
from pullback.description.check import check_tree
from pullback.description.inertia import inertia_fault, repaired_inertia, zero_moment
from pullback.description.tree import Joint, Link, Pose, Shape, Tree

# three products of 3x3 matrices
EXACT = 1e-14


def turned(moments, seed: int) -> np.ndarray:
    axes = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    return axes @ np.diag(np.array(moments, dtype=float)) @ axes.T


def single(link: Link) -> Tree:
    return Tree("stone", [link], [], source="stone.urdf")


@pytest.mark.parametrize("moments", [(0, 1, 1), (1, 1, 3), (-1, 2, 2), (0, 0, 1)])
def test_repaired_inertias_are_those_of_solid_bodies(moments):
    for seed in range(5):
        link = Link("a", 2.0, inertia=turned(moments, seed))
        link.inertia = repaired_inertia(link)
        assert inertia_fault(link) is None
        assert zero_moment(link) is None
        second = 0.5 * np.trace(link.inertia) - np.linalg.eigvalsh(link.inertia)
        assert second.min() >= 0.9e-3 * second.max()


def test_a_physical_inertia_is_left_as_it_was():
    inertia = turned((1, 2, 2.5), 0)
    np.testing.assert_allclose(repaired_inertia(Link("a", 1.0, inertia=inertia)), inertia, rtol=0, atol=EXACT)


def test_a_point_becomes_a_ball_of_its_shapes():
    link = Link("a", 5.0, shapes=[Shape("sphere", (0.1,))])
    # m r² 2/5
    np.testing.assert_allclose(repaired_inertia(link), 0.02 * np.eye(3), rtol=0, atol=EXACT)
    np.testing.assert_allclose(repaired_inertia(Link("a", 1.0)), 4e-5 * np.eye(3), rtol=0, atol=EXACT)


def test_a_zero_moment_is_named_and_repaired():
    for axis, moments in (("z", (1, 1, 0)), ("x", (0, 1, 1))):
        text = rf"link 'a' in stone.urdf: the moment of inertia about {axis} is zero.*; .*load with repair=True"
        with pytest.warns(DescriptionWarning, match=text):
            check_tree(single(Link("a", 1.0, inertia=np.diag(np.array(moments, dtype=float)))))
    tree = single(Link("a", 1.0, inertia=np.diag([1.0, 1.0, 0.0])))
    with pytest.warns(DescriptionWarning, match=r"; repaired to 0.002, 1.001, 1.001 kg·m²"):
        check_tree(tree, repair=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_tree(tree)


def test_points_are_named_only_where_they_turn_freely():
    with pytest.warns(DescriptionWarning, match="the moment of inertia is zero"):
        check_tree(single(Link("a", 1.0)))
    links = [Link("base"), Link("a", 1.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_tree(Tree("x", links, [Joint("j", "revolute", "base", "a")], source="x"))
    with pytest.warns(DescriptionWarning, match="link 'a' in x: the moment of inertia is zero"):
        check_tree(Tree("x", links, [Joint("j", "ball", "base", "a", Pose())], source="x"))


def test_a_repaired_body_falls_and_turns(tmp_path):
    path = tmp_path / "stone.urdf"
    inertial = '<inertial><mass value="0.1"/><inertia ixx="1" iyy="1" izz="0"/></inertial>'
    path.write_text(f'<robot name="stone"><link name="a">{inertial}</link></robot>')
    with pytest.warns(DescriptionWarning):
        robot = pb.load(path, "floating", dtype=torch.float64, repair=True)
    q = torch.tensor([0.0, 0, 0, 0, 0, 0, 1], dtype=torch.float64)
    torque = torch.tensor([0.0, 0, 1, 0, 0, 0], dtype=torch.float64)
    qdd = robot.compute_forward_dynamics(q, torch.zeros(6, dtype=torch.float64), torque)
    assert torch.isfinite(qdd).all()
    assert qdd[2] == pytest.approx(1 / 0.002)
