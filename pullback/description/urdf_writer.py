"""Write a robot to a URDF file, with the extensions that `read_urdf` reads."""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import isfinite, isinf
from pathlib import Path
from typing import Any

import numpy as np
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from pullback.core.errors import DescriptionError, DescriptionWarning
from pullback.description.check import check_tree
from pullback.description.tree import Joint, Link, Loop, LoopKind, Pose, Shape, Tree
from pullback.description.urdf import SIZES

# URDF has no word for "no limit", and other readers refuse "inf"
UNBOUNDED = 1e9

AXIS_JOINTS = ("revolute", "continuous", "prismatic", "planar")
NOT_IN_URDF = {
    "ball": "replace it by three revolute joints, or keep the robot in MJCF",
    "screw": "replace it by a revolute joint and a prismatic one that mimics it, with the pitch as multiplier",
}
LOOP_TYPES: dict[LoopKind, str] = {"connect": "spherical", "hinge": "revolute", "weld": "fixed"}


def write_urdf(tree: Tree, path: str | Path) -> Path:
    """Write a tree to a URDF file, making its folder if needed, and return the path.

    Numbers are written with all their digits. `<capsule>`, `armature`, `<contact><lateral_friction>` and `<loop_joint>`
    are the extensions of `read_urdf`. What a URDF cannot say is an error where it would move differently (ball joints,
    loops to the world) and a DescriptionWarning where it would not (planes, meshes without a file, gears, friction that
    differs on one link), and for springs.
    """
    path = Path(path)
    check_tree(replace(tree, problems=[]))
    root = etree.Element("robot", name=tree.name)
    for link in tree.links:
        root.append(_link(link, path, tree.source))
    for joint in tree.joints:
        root.append(_joint(joint, tree.source))
    for loop in tree.loops:
        root.append(_loop(loop, tree.source))
    geared = [joint.name for joint in tree.joints if joint.gear is not None]
    if geared:
        _warn(f"{tree.source}: the gears of {', '.join(geared)} are left out; a URDF cannot hold them")
    warn_of_springs(tree)
    etree.indent(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    etree.ElementTree(root).write(str(path), xml_declaration=True, encoding="utf-8", pretty_print=True)
    return path


def warn_of_springs(tree: Tree) -> None:
    """Warn of springs and tendons, without which the robot moves differently."""
    sprung = [joint.name for joint in tree.joints if joint.stiffness]
    sprung += [f"{drive.name} ({', '.join(drive.joints)})" for drive in tree.springs]
    carried = [link.name for link in tree.links if link.carried]
    if carried:
        _warn(f"{tree.source}: the gravity compensation of {', '.join(carried)} is left out; a URDF cannot hold it")
    if sprung:
        _warn(f"{tree.source}: the springs of {', '.join(sprung)} are left out; a URDF cannot hold them")


def _link(link: Link, path: Path, source: str) -> Any:
    element = etree.Element("link", name=link.name)
    if link.mass or link.inertia.any():
        inertial = _child(element, "inertial")
        inertial.append(_origin(Pose(link.com)))
        _child(inertial, "mass", value=link.mass)
        xx, xy, xz, _, yy, yz, _, _, zz = (0.5 * (link.inertia + link.inertia.T)).ravel()
        _child(inertial, "inertia", ixx=xx, ixy=xy, ixz=xz, iyy=yy, iyz=yz, izz=zz)
    written: set[Any] = set()
    for shape in link.shapes:
        if shape.vertices is not None and shape.mesh is not None:
            # parts of one mesh, which is written once
            if (shape.mesh, shape.size) in written:
                continue
            written.add((shape.mesh, shape.size))
        geometry = _geometry(shape, path)
        if geometry is None:
            _warn(f"link {link.name!r} in {source}: a {shape.type} is left out; a URDF cannot hold it")
            continue
        collision = _child(element, "collision")
        collision.append(_origin(shape.origin))
        _child(collision, "geometry").append(geometry)
    frictions = [shape.friction for shape in link.shapes if shape.friction is not None]
    if frictions:
        _child(_child(element, "contact"), "lateral_friction", value=frictions[0])
    if len({shape.friction for shape in link.shapes}) > 1:
        _warn(f"link {link.name!r} in {source}: a URDF has one friction for all shapes; {frictions[0]:g} is written")
    return element


def _geometry(shape: Shape, path: Path) -> Any:
    """Return the element of a shape, None where URDF has none."""
    if shape.type == "box":
        return _element("box", size=shape.size)
    if shape.type in SIZES:
        return _element(shape.type, **dict(zip(SIZES[shape.type], shape.size)))
    if shape.type == "mesh" and shape.mesh is not None:
        mesh, folder = shape.mesh.resolve(), path.resolve().parent
        filename = mesh.relative_to(folder) if mesh.is_relative_to(folder) else mesh
        return _element("mesh", filename=filename.as_posix(), scale=shape.size)
    return None


def _joint(joint: Joint, source: str) -> Any:
    if joint.type in NOT_IN_URDF:
        raise DescriptionError(
            f"joint {joint.name!r} in {source}: a URDF has no {joint.type} joint; {NOT_IN_URDF[joint.type]}"
        )
    limits = joint.limits
    # a hinge without position limits is what URDF calls continuous
    endless = joint.type == "revolute" and isinf(limits.lower) and isinf(limits.upper)
    element = etree.Element("joint", name=joint.name, type="continuous" if endless else joint.type)
    element.append(_origin(joint.origin))
    _child(element, "parent", link=joint.parent)
    _child(element, "child", link=joint.child)
    if joint.type in AXIS_JOINTS:
        _child(element, "axis", xyz=joint.axis)
    bounded = joint.type in ("revolute", "prismatic") and not endless
    if bounded or isfinite(limits.velocity) or isfinite(limits.effort):
        numbers = {"effort": limits.effort, "velocity": limits.velocity}
        if bounded:
            numbers |= {"lower": limits.lower, "upper": limits.upper}
        _child(element, "limit", **{k: min(max(v, -UNBOUNDED), UNBOUNDED) for k, v in numbers.items()})
    dynamics = {"damping": joint.damping, "friction": joint.friction}
    if joint.armature:
        dynamics["armature"] = joint.armature
    if any(dynamics.values()):
        _child(element, "dynamics", **dynamics)
    if joint.mimic is not None:
        mimic = joint.mimic
        _child(element, "mimic", joint=mimic.joint, multiplier=mimic.multiplier, offset=mimic.offset)
    return element


def _loop(loop: Loop, source: str) -> Any:
    if loop.link_b is None:
        raise DescriptionError(
            f"loop {loop.name!r} in {source} holds link {loop.link_a!r} to the world, which a URDF has no word for; "
            f"leave it out, and close it by World.{loop.kind}"
        )
    element = etree.Element("loop_joint", name=loop.name, type=LOOP_TYPES[loop.kind])
    for tag, link, frame in (("link1", loop.link_a, loop.frame_a), ("link2", loop.link_b, loop.frame_b)):
        _child(element, tag, link=link, xyz=frame.translation, rpy=roll_pitch_yaw(frame.rotation))
    if loop.kind == "hinge":
        _child(element, "axis", xyz=(0.0, 0.0, 1.0))
    return element


def _origin(pose: Pose) -> Any:
    return _element("origin", xyz=pose.translation, rpy=roll_pitch_yaw(pose.rotation))


def roll_pitch_yaw(R: np.ndarray) -> tuple[float, float, float]:
    """Return the angles of R = Rz(yaw) Ry(pitch) Rx(roll); yaw is 0 where pitch is +-90 degrees."""
    cos_pitch = np.hypot(R[0, 0], R[1, 0])
    pitch = np.arctan2(-R[2, 0], cos_pitch)
    if cos_pitch > 1e-9:
        return np.arctan2(R[2, 1], R[2, 2]), pitch, np.arctan2(R[1, 0], R[0, 0])
    return np.arctan2(-R[1, 2], R[1, 1]), pitch, 0.0


def _child(parent: Any, tag: str, **attributes: Any) -> Any:
    child = _element(tag, **attributes)
    parent.append(child)
    return child


def _element(tag: str, **attributes: Any) -> Any:
    return etree.Element(tag, **{name: number_text(value) for name, value in attributes.items()})


def number_text(value: Any) -> str:
    """Return numbers as text, with all their digits."""
    if isinstance(value, str):
        return value
    # adding zero turns -0.0 into 0.0
    return " ".join(repr(float(number) + 0.0) for number in np.atleast_1d(value))


def _warn(text: str) -> None:
    warnings.warn(text, DescriptionWarning, stacklevel=3)
