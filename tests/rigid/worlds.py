"""Worlds that several tests look at."""

from itertools import pairwise

import numpy as np
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Link, Shape, Tree
from pullback.rigid.compile.compile import compile_world
from pullback.rigid.compile.parameters import WorldParameters
from pullback.rigid.world.world import World

F64 = torch.float64
TOES = ("toeFR", "toeFL", "toeRR", "toeRL")


def load(name: str, base: str | None = None) -> pb.RobotModel:
    return pb.load(name, base, dtype=F64)


def parameters(world: World, dtype: torch.dtype = F64) -> WorldParameters:
    arrays = compile_world(world)
    return WorldParameters(world, (arrays.pair_a, arrays.pair_b), dtype=dtype)


def toes_on_ground(**options) -> World:
    world = World()
    world.add(load("laikago", "floating"), name="dog", position=(0, 0, 0.45), collision_links=TOES, **options)
    world.add_ground(friction=0.8)
    return world


def chain(*, shapes: bool = True, mass: tuple[float, ...] = (1.0, 1.0, 1.0)) -> pb.RobotModel:
    """Return base - a - b - c on hinges, a sphere on each link."""
    names = ("base", "a", "b", "c")
    links = [
        Link(name, m, inertia=m * np.eye(3), shapes=[Shape("sphere", (0.1,))] if shapes else [])
        for name, m in zip(names, (1.0, *mass))
    ]
    joints = [Joint(f"to_{child}", "revolute", parent, child) for parent, child in pairwise(names)]
    return pb.RobotModel(compile_tree(Tree("chain", links, joints, source="chain")), dtype=F64)
