"""The worlds of the conformance matrix whose loops are closed: by a point, a hinge, a weld, and on the ground."""

from __future__ import annotations

import numpy as np
import torch

import pullback as pb
from checks.conformance_cases import (
    DEPTH,
    TIP,
    Case,
    Tensor,
    Values,
    controls,
    mechanism,
    robot_of,
    servos,
    solid,
    start,
    tensor,
    tip_centre,
    tip_pose,
)
from pullback.description.tree import Tree
from pullback.rigid.world.items import rotation_matrix

STEPS = 50
HOLD = (0.2, -0.05, 0.1)
"""The point of the tip [m] that is held."""
TURN = (0.1, -0.2, 0.3, 0.9)
AXIS = (0.2, 0.9, -0.3)


def hold(values: Values, point: np.ndarray, turn: Tensor | None = None) -> Values:
    """Add the frames of a loop: `point` is where the other one is, `turn` how it is turned."""
    more = {"frame": tensor(*HOLD), "frame below": torch.from_numpy(point)}
    if turn is not None:
        more |= {"turn": tensor(*TURN), "turn below": turn}
    return values | more


def held_point(tree: Tree, values: Values, link: str = "tip") -> np.ndarray:
    """Return the held point of a link in the world at the start."""
    p, R = tip_pose(tree, values, link)
    return p + R @ np.array(HOLD)


def to_the_world(kind: str, mode: str) -> Case:
    """Return a mechanism whose tip is held to the world by a point or a hinge."""
    tree = mechanism(kind)
    values = controls(start(tree, 1.0, 3), tree, STEPS, 4)
    at = values["q"].clone()
    values = hold(values, held_point(tree, values))

    def make(x: Values, contact: pb.PGS, dtype: torch.dtype) -> pb.World:
        world = pb.World(gravity=x["gravity"], contact=contact)
        world.add(robot_of(tree, x, dtype), name="robot", q=at, actuators=servos(x), collision_links=[])
        axis = {"axis": AXIS} if mode == "hinge" else {}
        getattr(world, mode)("robot/tip", position_a=x["frame"], position_b=x["frame below"], **axis)
        return world

    return Case(kind, f"{mode} to the world", values, make, STEPS, 2e-3, 1e-5)


def welded_load() -> Case:
    """Return a chain that carries a free body welded to its tip."""
    tree = mechanism("chain")
    values = controls(start(tree, 1.0, 3), tree, STEPS, 4)
    at = values["q"].clone()
    point, (_, R) = held_point(tree, values), tip_pose(tree, values)
    turned = R @ rotation_matrix(np.array(TURN))
    # the load's frame stands upright in the middle of its own axes
    place = point - turned @ np.array([0.03, 0.02, -0.04])
    values = hold(values, np.array([0.03, 0.02, -0.04]), tensor(0.0, 0.0, 0.0, 1.0))
    quat = quaternion(turned)
    values["q"] = torch.cat([values["q"], torch.from_numpy(place), quat])
    values["qd"] = torch.cat([values["qd"], tensor(0.3, -0.2, 0.4, 0.5, 0.1, -0.1)])

    def make(x: Values, contact: pb.PGS, dtype: torch.dtype) -> pb.World:
        world = pb.World(gravity=x["gravity"], contact=contact)
        world.add(robot_of(tree, x, dtype), name="robot", q=at, actuators=servos(x), collision_links=[])
        world.add_sphere("load", radius=0.1, mass=2.0, position=place.tolist(), orientation=quat.tolist())
        frames = {"position_a": x["frame"], "orientation_a": x["turn"]}
        frames |= {"position_b": x["frame below"], "orientation_b": x["turn below"]}
        world.weld("robot/tip", "load", **frames)
        return world

    return Case("chain", "weld to a free body", values, make, STEPS, 2e-3, 1e-5)


def on_the_ground() -> Case:
    """Return a chain that slides on the ground with its base held by a point."""
    tree = mechanism("chain")
    values = solid(controls(start(tree, 0.0, 5), tree, STEPS, 6, press=20.0), tree, 0.1)
    at = values["q"].clone()
    values["qd"] = sliding_velocity(tree, values)
    height = float(tip_centre(tree, values)[2] - TIP + DEPTH)
    values = hold(values, held_point(tree, values, "base"))

    def make(x: Values, contact: pb.PGS, dtype: torch.dtype) -> pb.World:
        world = pb.World(gravity=x["gravity"], contact=contact)
        world.add(robot_of(tree, x, dtype), name="robot", q=at, actuators=servos(x), collision_links=["tip"])
        world.add_ground(height=height, friction=x["friction"])
        world.set_shape("robot", size=x["size"], position=x["placement"])
        world.connect("robot/base", position_a=x["frame"], position_b=x["frame below"])
        return world

    return Case("chain", "connect, sliding", values, make, STEPS, 1e-3, 1e-4, "sliding")


def sliding_velocity(tree: Tree, values: Values) -> Tensor:
    """Return velocities that keep the held point of the base where it is and move the tip along the ground."""
    robot, rows = robot_of(tree, {}, torch.float64), []
    for link, point in (("base", held_point(tree, values, "base")), ("tip", tip_centre(tree, values))):
        linear, angular = robot.compute_endeffector_jacobian(values["q"], link)
        arm = torch.from_numpy(point - tip_pose(tree, values, link)[0])
        arm = arm - tensor(0.0, 0.0, TIP if link == "tip" else 0.0)
        rows.append(linear + torch.linalg.cross(angular, arm[:, None].expand_as(angular), dim=0))
    return torch.linalg.pinv(torch.cat(rows)) @ tensor(0.0, 0.0, 0.0, 0.6, 0.4, 0.0)


def quaternion(R: np.ndarray) -> Tensor:
    """Return the quaternion xyzw of a rotation that is not half a turn."""
    w = 0.5 * np.sqrt(1.0 + np.trace(R))
    return tensor(R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1], 4 * w * w) / (4 * w)


def loop_cases() -> list[Case]:
    """Return the rows of the matrix."""
    return [to_the_world("chain", "connect"), to_the_world("ball", "hinge"), welded_load(), on_the_ground()]
