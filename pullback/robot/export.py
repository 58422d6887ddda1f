"""Write a robot with the values it has learned back to a file."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pullback.core.errors import DescriptionWarning, PullbackError
from pullback.description.tree import Joint, Link, Pose, Tree
from pullback.description.urdf_editor import CannotEdit, edit_urdf
from pullback.description.urdf_writer import warn_of_springs, write_urdf
from pullback.robot.model import RobotModel
from pullback.robot.parameters import INERTIAL, SHAPES
from pullback.robot.parametrizations import split_pseudo_inertia
from pullback.spatial.rotations_torch import rotation_from_rpy


def export_urdf(robot: RobotModel, path: str | Path) -> Path:
    """Write the robot with its present parameters to a URDF file and return the path; `pb.load(path)` moves alike.

    A robot that was read from a URDF file is written into a copy of that file: visuals, materials, comments and all
    else in it stay, and only the numbers that changed are replaced. Other robots are written anew, planar joints as
    the two sliders and the hinge they are made of. A floating base is not written: load the file with base="floating".
    Parameters that differ between robots or depend on the state are an error: give them one value with `set_link_param`
    first.
    """
    tree = learned_tree(robot)
    try:
        edited = edit_urdf(tree, path)
        warn_of_springs(tree)
        return edited
    except CannotEdit as reason:
        if tree.file is not None:
            text = f"{tree.source} is written anew, without visuals and materials: {reason}"
            warnings.warn(text, DescriptionWarning, stacklevel=2)
    return write_urdf(tree, path)


def learned_tree(robot: RobotModel) -> Tree:
    """Return the description of the robot with its present parameters, without the floating base."""
    tree = robot.model.tree
    if robot.model.base == "floating":
        # compile put the world and the floating joint in front
        tree = replace(tree, links=tree.links[1:], joints=tree.joints[1:])
    links = {link.name: link for link in tree.links}
    joints = {joint.child: joint for joint in tree.joints}
    # a pseudo-inertia prevails over mass, com and inertia of the same link, so it comes last
    changes = sorted(_changes(robot), key=lambda change: change[1] == "inertial")
    for link, parameter, value in changes:
        if link in links and parameter in INERTIAL:
            links[link] = _change_link(links[link], parameter, value)
        elif link in joints:
            joints[link] = _change_joint(joints[link], parameter, value)
        else:
            raise PullbackError(
                f"{parameter} of {link!r} cannot be written: the root link of a URDF has no joint above it; "
                f"leave this parameter as it was"
            )
    return replace(tree, links=list(links.values()), joints=list(joints.values()))


def _changes(robot: RobotModel) -> list[tuple[str, str, np.ndarray]]:
    """Return link, parameter and value of everything that stands in the place of the description's numbers."""
    changes = []
    for key in robot.learned:
        link, parameter = robot._split_key(key)
        value = _constant(robot, link, parameter)
        changes.append((link, parameter, value.detach().cpu().double().numpy()))
    return changes


def _constant(robot: RobotModel, link: str, parameter: str) -> torch.Tensor:
    remedy = f"give it one value first, with robot.set_link_param({link!r}, {parameter!r}, ...)"
    try:
        value = robot.get_link_param(link, parameter)
    except PullbackError as error:
        raise PullbackError(f"{parameter} of {link!r} cannot be written as a number: {error}; or {remedy}") from error
    if value.ndim > len(SHAPES[parameter]):
        raise PullbackError(f"{parameter} of {link!r} differs between {len(value)} robots, and a URDF is one; {remedy}")
    return value


def _change_link(link: Link, parameter: str, value: np.ndarray) -> Link:
    if parameter == "inertial":
        mass, com, inertia = (x.numpy() for x in split_pseudo_inertia(torch.from_numpy(value)))
        return replace(link, mass=float(mass), com=com, inertia=inertia)
    if parameter == "mass":
        return replace(link, mass=float(value))
    return replace(link, **{"com": value} if parameter == "com" else {"inertia": value})


def _change_joint(joint: Joint, parameter: str, value: Any) -> Joint:
    if parameter == "trans":
        return replace(joint, origin=Pose(value, joint.origin.rotation))
    if parameter == "rot_angles":
        return replace(joint, origin=Pose(joint.origin.translation, rotation_from_rpy(torch.from_numpy(value)).numpy()))
    return replace(joint, **{parameter.removeprefix("joint_"): float(value)})
