"""Write a robot into a copy of the URDF file it came from: numbers that changed are replaced, all else stays."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from pullback.core.errors import PullbackError
from pullback.core.files import write_whole
from pullback.description.check import resolve_mimics
from pullback.description.compile import split_planar_joints
from pullback.description.packages import find_mesh
from pullback.description.tree import Joint, Link, Pose, Tree
from pullback.description.urdf import numbers_of, read_urdf, rotation_of
from pullback.description.urdf_writer import number_text, roll_pitch_yaw
from pullback.description.xml_file import parse_xml

# elements that name a file beside the robot's
WITH_FILES = ("mesh", "texture", "cdf")
JOINT_NUMBERS = ("damping", "friction", "armature")


class CannotEdit(Exception):
    """The original file cannot hold the tree; the text says why."""


def edit_urdf(tree: Tree, path: str | Path) -> Path:
    """Write the tree's masses, inertias, joint frames and joint dynamics into a copy of `tree.file`; return the path.

    Visuals, materials, comments and what other programs read stay as they are. Names of mesh files are changed only
    where they would not be found from the new place. Raises CannotEdit where the tree is not that of the file.
    """
    if tree.file is None:
        raise CannotEdit("it was not read from a URDF file")
    path = Path(path)
    original = _read_again(tree.file, tree)
    root = parse_xml(tree.file, keep_comments=True, text=tree.expanded)
    links = {element.get("name"): element for element in root.findall("link")}
    joints = {element.get("name"): element for element in root.findall("joint")}
    for before, after in _pairs(original, tree):
        if isinstance(after, Link) and isinstance(before, Link):
            _edit_link(links[after.name], before, after)
        elif isinstance(after, Joint) and isinstance(before, Joint):
            _edit_joint(joints.get(after.name), before, after)
    for element in root.iter(*WITH_FILES):
        _move_reference(element, tree, path)
    # with the comments in front of the root, a line each, as lxml would not
    nodes = [*reversed(list(root.itersiblings(preceding=True))), root]
    lines = [b'<?xml version="1.0" encoding="utf-8"?>']
    lines += [etree.tostring(node, encoding="utf-8", xml_declaration=False, with_tail=False) for node in nodes]
    write_whole(path, lambda file: file.write(b"\n".join(lines) + b"\n"))
    return path


def _read_again(file: Path, tree: Tree) -> Tree:
    """Return the tree of the file as it is now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = read_urdf(file, text=tree.expanded, packages=tree.packages)
        except PullbackError as error:
            raise CannotEdit(str(error)) from None
    # as compile_tree does
    return split_planar_joints(replace(tree, joints=resolve_mimics(tree.joints, tree.source)))


def _pairs(original: Tree, tree: Tree) -> Iterator[tuple[Link | Joint, Link | Joint]]:
    """Yield the links and joints of the file with those of the tree; raise if they are not the same robot's."""
    for kind in ("links", "joints", "loops"):
        before, after = getattr(original, kind), getattr(tree, kind)
        if {item.name for item in before} != {item.name for item in after}:
            raise CannotEdit(f"its {kind} are not those of {tree.source} any more")
    old = {link.name: link for link in original.links}
    for link in tree.links:
        # parts of one mesh count once
        now, then = (dict.fromkeys(map(_shape_numbers, x.shapes)) for x in (link, old[link.name]))
        if list(now) != list(then):
            raise CannotEdit(f"the shapes of link {link.name!r} have changed")
        yield old[link.name], link
    joints = {joint.name: joint for joint in original.joints}
    for joint in tree.joints:
        before = joints[joint.name]
        same = ("type", "parent", "child", "limits", "mimic")
        if any(getattr(before, name) != getattr(joint, name) for name in same) or (before.axis != joint.axis).any():
            raise CannotEdit(f"joint {joint.name!r} has changed in what is not learned")
        yield before, joint


def _shape_numbers(shape: Any) -> tuple[Any, ...]:
    return shape.type, shape.size, shape.friction, shape.mesh, *shape.origin.translation, *shape.origin.rotation.ravel()


def _edit_link(element: Any, before: Link, after: Link) -> None:
    changed = [name for name in ("mass", "com", "inertia") if np.any(getattr(before, name) != getattr(after, name))]
    if not changed:
        return
    inertial = _child(element, "inertial")
    if "com" in changed:
        _child(inertial, "origin").set("xyz", number_text(after.com))
    if "mass" in changed:
        _child(inertial, "mass").set("value", number_text(after.mass))
    if "inertia" in changed:
        origin = inertial.find("origin")
        # the file's numbers are in the axes of <origin>
        turn = np.eye(3) if origin is None else rotation_of(*numbers_of(origin, "rpy", "0 0 0")[:3])
        xx, xy, xz, _, yy, yz, _, _, zz = (turn.T @ (0.5 * (after.inertia + after.inertia.T)) @ turn).ravel()
        numbers = {"ixx": xx, "ixy": xy, "ixz": xz, "iyy": yy, "iyz": yz, "izz": zz}
        for name, number in numbers.items():
            _child(inertial, "inertia").set(name, number_text(number))
    # a reader wants both
    if inertial.find("mass") is None:
        _child(inertial, "mass").set("value", number_text(after.mass))


def _edit_joint(element: Any, before: Joint, after: Joint) -> None:
    moved = _frame_changed(before.origin, after.origin)
    changed = [name for name in JOINT_NUMBERS if getattr(before, name) != getattr(after, name)]
    if not moved and not changed:
        return
    if element is None:
        raise CannotEdit(f"joint {after.name!r} is a part of a planar joint")
    if "translation" in moved:
        _child(element, "origin").set("xyz", number_text(after.origin.translation))
    if "rotation" in moved:
        _child(element, "origin").set("rpy", number_text(roll_pitch_yaw(after.origin.rotation)))
    for name in changed:
        _child(element, "dynamics").set(name, number_text(getattr(after, name)))


def _frame_changed(before: Pose, after: Pose) -> list[str]:
    return [name for name in ("translation", "rotation") if np.any(getattr(before, name) != getattr(after, name))]


def _child(element: Any, tag: str) -> Any:
    """Return the child of that name, a new one if there is none."""
    found = element.find(tag)
    return etree.SubElement(element, tag) if found is None else found


def _move_reference(element: Any, tree: Tree, new: Path) -> None:
    """Let an element name its file from the new place, if its name does not lead there by itself."""
    filename = element.get("filename")
    if not filename or tree.file is None:
        return
    file = find_mesh(filename, tree.file, tree.packages)
    if file.is_file() and find_mesh(filename, new).resolve() != file.resolve():
        element.set("filename", Path(os.path.relpath(file.resolve(), new.resolve().parent)).as_posix())
