"""A robot that does not exist: every joint type, odd axes, fixed links in between, a branch, friction everywhere."""

from __future__ import annotations

import numpy as np
import torch

import pullback as pb
from pullback.description.check import check_tree
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Link, Mimic, Pose, Tree

TIP = "ball_tip"  # a link fixed to the ball's, at the end of the longest chain but one

JOINTS = (
    # child, type, parent; every link but the root has a joint of that type above it
    ("hinge", "revolute", "base"),
    ("hinge_plate", "fixed", "hinge"),
    ("wheel", "continuous", "hinge_plate"),
    ("slider", "prismatic", "wheel"),
    ("ball", "ball", "slider"),
    ("ball_tip", "fixed", "ball"),
    ("puck", "planar", "ball_tip"),
    ("sensor", "fixed", "base"),
    ("branch", "revolute", "sensor"),
    ("branch_slider", "prismatic", "branch"),
    ("drone", "floating", "branch_slider"),
    ("nut", "screw", "branch"),
    ("nut_arm", "revolute", "nut"),
)


def synthetic_tree(seed: int = 0) -> Tree:
    """Return the description; the floating root is added when it is compiled with base="floating"."""
    rng = np.random.default_rng(seed)
    links = [_link("base", rng)]
    joints = []
    for name, kind, parent in JOINTS:
        links.append(_link(name, rng))
        axis = rng.normal(size=3)
        joint = Joint(f"{name}_joint", kind, parent, name, Pose(rng.uniform(-0.3, 0.3, 3), _rotation(rng)))
        joint.axis = axis / np.linalg.norm(axis)
        joint.pitch = 0.07 if kind == "screw" else 0.0
        joints.append(joint)
        if kind != "fixed":
            joint.damping, joint.friction = rng.uniform(0.1, 0.5, 2)
            # on a floating joint between moving links armature is refused
            joint.armature = 0.0 if kind == "floating" else rng.uniform(0.05, 0.2)
    return Tree("synthetic", links, joints, source="synthetic")


def synthetic_robot(
    *, base: str = "floating", dtype: torch.dtype = torch.float64, device: str | None = None, mimic: bool = False
) -> pb.RobotModel:
    tree = synthetic_tree()
    if mimic:
        follower = next(joint for joint in tree.joints if joint.name == "wheel_joint")
        follower.mimic = Mimic("branch_joint", -1.5, 0.3)
    check_tree(tree, strict=True)
    return pb.RobotModel(compile_tree(tree, base), dtype=dtype, device=device)


def _link(name: str, rng: np.random.Generator) -> Link:
    """Return a link whose inertia is that of a few random point masses, so that it is physical."""
    R = _rotation(rng)
    moments = rng.uniform(0.02, 0.1, 3)
    inertia = R @ np.diag(moments.sum() - moments) @ R.T
    return Link(name, rng.uniform(0.5, 2.0), rng.uniform(-0.2, 0.2, 3), 0.5 * (inertia + inertia.T))


def _rotation(rng: np.random.Generator) -> np.ndarray:
    Q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return Q * np.sign(np.linalg.det(Q))


def learning_robot(dtype: torch.dtype = torch.float64) -> pb.RobotModel:
    """Return the synthetic robot with parameters that are learned and one that is given."""
    robot = synthetic_robot(dtype=dtype)
    robot.make_link_param_learnable("hinge", "mass", pb.PositiveScalar())
    robot.make_link_param_learnable("ball", "inertial", pb.PhysicalInertia())
    robot.make_link_param_learnable("wheel", "com", pb.UnconstrainedTensor())
    robot.set_link_param("slider", "joint_damping", 0.7)
    return robot
