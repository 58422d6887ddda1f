"""A four-bar linkage in the plane y = 0, and where its links must be."""

import numpy as np
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Link, Loop, Pose, Tree

F64 = torch.float64
BARS = {"crank": 0.3, "coupler": 0.8, "rocker": 0.6}
GROUND = 0.7
AXIS = np.array([0.0, 1.0, 0.0])


def bar(name: str, length: float) -> Link:
    """Return a thin bar along x."""
    mass = 2.0 * length
    return Link(name, mass, np.array([length / 2, 0, 0]), mass * length**2 / 12 * np.diag([0.02, 1.0, 1.0]))


def four_bar_tree(loops: list[Loop] | None = None) -> Tree:
    """Return ground - crank - coupler and ground - rocker; all angles are zero along x."""
    links = [Link("ground", 1.0), *(bar(name, length) for name, length in BARS.items())]
    places = {"crank": ("ground", 0.0), "coupler": ("crank", BARS["crank"]), "rocker": ("ground", GROUND)}
    joints = [
        Joint(f"{name}_joint", "continuous", parent, name, Pose(np.array([x, 0.0, 0.0])), AXIS)
        for name, (parent, x) in places.items()
    ]
    return Tree("four_bar", links, joints, source="four_bar", loops=loops or [])


def closed_angles(crank: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return coupler and rocker angles, measured from x towards z, for the crank's: Freudenstein's equation, open."""
    r2, r3, r4 = BARS.values()
    x, z = GROUND - r2 * np.cos(crank), -r2 * np.sin(crank)
    d = np.hypot(x, z)
    # the triangle of coupler, rocker and the diagonal from the crank's end to the rocker's pivot
    coupler = np.arctan2(z, x) + np.arccos((d**2 + r3**2 - r4**2) / (2 * d * r3))
    end = np.array([r2 * np.cos(crank) + r3 * np.cos(coupler) - GROUND, r2 * np.sin(crank) + r3 * np.sin(coupler)])
    return coupler, np.arctan2(end[1], end[0])


def closed_q(crank: float) -> torch.Tensor:
    """Return coordinates (3,) that close the linkage; a turn about y goes from x towards -z."""
    coupler, rocker = closed_angles(crank)
    return torch.tensor([-crank, crank - coupler, -rocker], dtype=F64)


def four_bar(contact: pb.PGS | None = None, crank: float = 1.0, dtype=F64, **options) -> pb.World:
    """Return a world with the linkage, closed by a point unless `kind` says otherwise."""
    world = pb.World(contact=contact or pb.PGS())
    robot = pb.RobotModel(compile_tree(four_bar_tree()), dtype=dtype)
    world.add(robot, name="bars", q=closed_q(crank), actuators=options.pop("actuators", None))
    kind = options.pop("kind", "connect")
    options.setdefault("position_a", (BARS["coupler"], 0.0, 0.0))
    if kind == "hinge":
        options["axis"] = AXIS
    getattr(world, kind)("bars/coupler", "bars/rocker", **options)
    return world


def gap(q: torch.Tensor) -> torch.Tensor:
    """Return how far [m] the coupler's end is from the rocker's, of coordinates (..., 3)."""
    crank, coupler, rocker = -q[..., 0], -q[..., 0] - q[..., 1], -q[..., 2]
    r2, r3, r4 = BARS.values()
    x = r2 * crank.cos() + r3 * coupler.cos() - r4 * rocker.cos() - GROUND
    z = r2 * crank.sin() + r3 * coupler.sin() - r4 * rocker.sin()
    return (x**2 + z**2).sqrt()
