"""Friction of robots that move in a plane: one of a contact's two tangents is a way they cannot go."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Link, Pose, Shape, Tree
from tests.rigid.worlds import F64


@pytest.mark.parametrize(("dtype", "gradient"), [(F64, "implicit"), (F64, "unrolled"), (torch.float32, "implicit")])
def test_what_moves_in_a_plane_sticks(dtype, gradient):
    """A finger on two rails: it cannot move along one of its contact's two tangents."""
    rails = [Joint("x", "prismatic", "base", "cart", axis=np.eye(3)[0]), Joint("z", "prismatic", "cart", "tip")]
    tip = Link("tip", 1.0, inertia=0.1 * np.eye(3), shapes=[Shape("sphere", (0.1,), Pose())])
    links = [Link("base", 1.0), Link("cart", 1.0, inertia=0.1 * np.eye(3)), tip]
    finger = pb.RobotModel(compile_tree(Tree("finger", links, rails, source="finger")), dtype=dtype)
    world = pb.World(contact=pb.PGS(gradient=gradient))
    world.add(finger, name="finger", position=(0, 0, 0.1), actuators=pb.Torque(limit=1e3))
    world.add_ground(friction=0.5)
    sim = world.compile(dt=0.01, dtype=dtype)
    motion = sim.rollout(sim.initial_state(), torch.tensor([1.0, -3.0], dtype=dtype).repeat(50, 1, 1))
    assert motion.status.unconverged.item() == 0
    assert motion.qd[-1, 0, 0].abs() < 1e-4
    (touching,) = sim.contacts(motion[-1], torch.tensor([[1.0, -3.0]], dtype=dtype))[0]
    assert touching.force[0] == pytest.approx(-1.0, rel=1e-2)
