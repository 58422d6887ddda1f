"""Read a robot from a URDF file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from math import inf, isinf, isnan
from pathlib import Path
from typing import Any

import numpy as np

from pullback.core.errors import DescriptionError, shortened
from pullback.description.check import AXIS_JOINTS, check_tree, warn
from pullback.description.compile import align_z
from pullback.description.packages import find_mesh
from pullback.description.tree import Joint, JointType, Limits, Link, Loop, LoopKind, Mimic, Pose, Shape, Tree
from pullback.description.xml_file import parse_xml

JOINT_TYPES: dict[str, JointType] = {
    "revolute": "revolute",
    "continuous": "continuous",
    "prismatic": "prismatic",
    "fixed": "fixed",
    "floating": "floating",
    "planar": "planar",
    "spherical": "ball",
}
LOOP_KINDS: dict[str, LoopKind] = {"spherical": "connect", "revolute": "hinge", "fixed": "weld"}
# attributes of a shape that make up its size, and how many numbers each has
SIZES: dict[str, dict[str, int]] = {
    "sphere": {"radius": 1},
    "capsule": {"radius": 1, "length": 1},
    "cylinder": {"radius": 1, "length": 1},
    "box": {"size": 3},
}
SHAPES = (*SIZES, "plane", "mesh")
# shapes of other readers that have no counterpart here
UNREAD_SHAPES = ("cdf", "sdf", "octomap", "heightmap")
# a number and a point behind it, as in "-1.57."
POINT_BEHIND = re.compile(r"(?<!\S)([-+]?\d+\.\d+)\.(?!\S)")
OPTENV = re.compile(r"\$\(optenv\s+(\w+)\s*([^()]*)\)")
XACRO = "expand it: load it with xacro=True if you trust it, or run `xacro FILE > robot.urdf` and load that"


def read_urdf(
    path: Path,
    *,
    strict: bool = False,
    repair: bool = False,
    text: bytes | None = None,
    packages: Mapping[str, Path] | None = None,
) -> Tree:
    """Read a robot from a URDF file.

    Common extensions are read too: `<capsule radius length>` and `<plane normal>` as geometry, `spherical` joints,
    `armature` on `<dynamics>`, `<contact><lateral_friction value>` on a link, and `<loop_joint name type>` with `<link1
    link xyz rpy>` and `<link2 ...>`, which closes a loop: `spherical`, `revolute` about `<axis>` in link1's frame, or
    `fixed`. Mesh files are named, not opened. What can be mended or left out (a declaration of XML 0.0, swapped limits,
    a missing mesh) is a DescriptionWarning. With `strict`, a
    non-physical inertia is an error instead of a warning; `repair` replaces it. `text` is what xacro made of the file;
    `packages` are the folders of ROS packages by name.
    """
    path = Path(path)
    notes: list[str] = []
    root = parse_xml(path, notes, text=text)
    _check_root(root, path)
    tree = Tree(name=root.get("name") or path.stem, links=[], joints=[], source=path.name, file=path.resolve())
    tree.visual_file = tree.file
    tree.expanded, tree.packages = text, dict(packages or {})
    for note in notes:
        warn(tree, note)
    reader = _Reader(tree, path)
    tree.links = [reader.link(element) for element in root.findall("link")]
    tree.joints = [reader.joint(element) for element in root.findall("joint")]
    tree.loops = [reader.loop(element) for element in root.findall("loop_joint")]
    _leave_out_unknown_mimics(tree)
    check_tree(tree, strict=strict, repair=repair)
    return tree


def _check_root(root: Any, path: Path) -> None:
    if root.tag != "robot":
        hint = "this is MJCF: name it .xml or call read_mjcf" if root.tag == "mujoco" else "give a URDF file"
        raise DescriptionError(
            f"{path.name} is not a URDF: its root element is <{shortened(str(root.tag))}>, expected <robot>; {hint}"
        )
    for element in root:
        # xacro elements are in a namespace of theirs, declared or not
        tag = str(element.tag)
        if tag.startswith("{") and ("xacro}" in tag or "undeclared:xacro" in tag):
            name = tag.rpartition("}")[2]
            raise DescriptionError(f"{path.name}, line {element.sourceline}: <xacro:{name}> is xacro, no URDF; {XACRO}")


def _leave_out_unknown_mimics(tree: Tree) -> None:
    """Let joints move by themselves that mimic one that does not exist."""
    names = {joint.name for joint in tree.joints}
    lost = [joint for joint in tree.joints if joint.mimic is not None and joint.mimic.joint not in names]
    if lost:
        pairs = ", ".join(f"{joint.name!r} (of {joint.mimic.joint!r})" for joint in lost if joint.mimic)
        warn(tree, f"{tree.source}: joints that mimic an unknown joint move by themselves: {shortened(pairs, 400)}")
    for joint in lost:
        joint.mimic = None


class _Reader:
    """Turns elements into links, joints and loops; what is odd is warned of, what cannot be read is an error."""

    def __init__(self, tree: Tree, path: Path) -> None:
        self.tree, self.path = tree, path

    def link(self, element: Any) -> Link:
        where = self._where(element)
        link = Link(element.get("name"))
        inertial = element.find("inertial")
        if inertial is not None:
            self._inertial(inertial, link, where)
        contact = element.find("contact/lateral_friction")
        friction = None if contact is None else self._number(contact, "value", where, None)
        for collision in element.findall("collision"):
            shape = self._shape(collision, where)
            if shape is not None:
                shape.friction = friction
                link.shapes.append(shape)
        return link

    def _inertial(self, element: Any, link: Link, where: str) -> None:
        frame = self._pose(element, where)
        link.com = frame.translation
        mass, inertia = element.find("mass"), element.find("inertia")
        if mass is not None:
            link.mass = self._number(mass, "value", where)
        if inertia is not None:
            xx, yy, zz = (self._number(inertia, name, where) for name in ("ixx", "iyy", "izz"))
            xy, xz, yz = (self._number(inertia, name, where, 0.0) for name in ("ixy", "ixz", "iyz"))
            matrix = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
            link.inertia = frame.rotation @ matrix @ frame.rotation.T

    def _shape(self, collision: Any, where: str) -> Shape | None:
        drawn = collision.find("geometry/*")
        here = f"{where}, line {collision.sourceline}"
        if drawn is not None and drawn.tag in UNREAD_SHAPES:
            warn(self.tree, f"{here}: a <collision> of type {drawn.tag} is left out; no such shape here")
            return None
        if drawn is None or drawn.tag not in SHAPES:
            found = "no shape" if drawn is None else f"an unknown shape <{shortened(str(drawn.tag))}>"
            raise DescriptionError(
                f"{here}: <collision> has {found}; expected <geometry> with one of: {', '.join(SHAPES)}"
            )
        origin = self._pose(collision, where)
        if drawn.tag == "mesh":
            return self._mesh(drawn, origin, where)
        if drawn.tag == "plane":
            normal = _unit(np.array(self._numbers(drawn, "normal", 3, where, [0.0, 0.0, 1.0])))
            if not normal.any():
                raise DescriptionError(f"{here}: the normal of <plane> has zero length; give a direction")
            return Shape("plane", (), origin @ Pose(rotation=align_z(normal)))
        sizes = (self._numbers(drawn, name, count, where) for name, count in SIZES[drawn.tag].items())
        return Shape(drawn.tag, tuple(number for numbers in sizes for number in numbers), origin)

    def _mesh(self, element: Any, origin: Pose, where: str) -> Shape:
        filename = element.get("filename")
        if not filename:
            raise DescriptionError(f'{where}: <mesh> names no file; write <mesh filename="...">')
        scale = self._numbers(element, "scale", 3, where, [1.0], or_one=True)
        mesh = find_mesh(filename, self.path, self.tree.packages)
        if not mesh.is_file():
            text = f"mesh file {shortened(filename)!r} does not exist; expected it at {mesh}"
            warn(self.tree, f"{where}: {text}")
        return Shape("mesh", tuple(np.broadcast_to(scale, 3).tolist()), origin, mesh=mesh)

    def joint(self, element: Any) -> Joint:
        where = self._where(element)
        kind = JOINT_TYPES.get(element.get("type"))
        if kind is None:
            given = shortened(str(element.get("type")))
            raise DescriptionError(f"{where}: unknown joint type {given!r}; choose from: {', '.join(JOINT_TYPES)}")
        parent, child = (self._end(element, end, "link", where) for end in ("parent", "child"))
        joint = Joint(element.get("name"), kind, parent, child, self._pose(element, where))
        axis, limit, dynamics, mimic = (element.find(tag) for tag in ("axis", "limit", "dynamics", "mimic"))
        if axis is not None or kind in AXIS_JOINTS:
            numbers = self._numbers(axis, "xyz", 3, where, [1.0, 0.0, 0.0])
            if kind in AXIS_JOINTS:
                joint.axis = _unit(np.array(numbers))
        if limit is not None:
            joint.limits = self._limits(limit, kind, where)
        if dynamics is not None:
            numbers = {name: self._number(dynamics, name, where, 0.0) for name in ("damping", "friction", "armature")}
            if kind != "fixed":
                joint.damping, joint.friction, joint.armature = numbers.values()
        if mimic is not None:
            self._mimic(mimic, joint, where)
        return joint

    def _limits(self, element: Any, kind: str, where: str) -> Limits:
        lower, upper = self._number(element, "lower", where, -inf), self._number(element, "upper", where, inf)
        velocity, effort = (self._number(element, name, where, inf) for name in ("velocity", "effort"))
        if kind == "fixed":
            return Limits()
        if kind not in ("revolute", "prismatic"):
            return Limits(velocity=velocity, effort=effort)
        if lower > upper:
            warn(self.tree, f"{where}: lower limit {lower:g} is above upper limit {upper:g}; they are swapped")
            lower, upper = upper, lower
        return Limits(lower, upper, velocity, effort)

    def _mimic(self, element: Any, joint: Joint, where: str) -> None:
        if not element.get("joint"):
            raise DescriptionError(f'{where}: <mimic> names no joint; write <mimic joint="...">')
        multiplier, offset = (
            self._number(element, "multiplier", where, 1.0),
            self._number(element, "offset", where, 0.0),
        )
        if joint.type == "fixed":
            warn(self.tree, f"{where}: a fixed joint cannot mimic; its <mimic> is left out")
        else:
            joint.mimic = Mimic(element.get("joint"), multiplier=multiplier, offset=offset)

    def loop(self, element: Any) -> Loop:
        """Return a loop joint; a hinge acts about z of its frames, so both are turned there."""
        where = self._where(element)
        kind = LOOP_KINDS.get(element.get("type"))
        if kind is None:
            given, choices = shortened(str(element.get("type"))), ", ".join(LOOP_KINDS)
            raise DescriptionError(f"{where}: unknown type {given!r} of a loop joint; choose from: {choices}")
        turn = np.eye(3)
        axis = _unit(np.array(self._numbers(element.find("axis"), "xyz", 3, where, [1.0, 0.0, 0.0])))
        if not axis.any():
            raise DescriptionError(f"{where}: axis has zero length; give a direction or leave <axis> out")
        if kind == "hinge":
            turn = align_z(axis)
        links, frames = [], []
        for end in ("link1", "link2"):
            links.append(self._end(element, end, "link", where))
            frame = self._frame(element.find(end), where)
            frames.append(Pose(frame.translation, frame.rotation @ turn))
        return Loop(element.get("name"), kind, *links, *frames)

    def _where(self, element: Any) -> str:
        name = element.get("name")
        if not name:
            raise DescriptionError(
                f"{self.tree.source}, line {element.sourceline}: a <{element.tag}> has no name; give it name=..."
            )
        return (
            f"{'loop_joint' if element.tag == 'loop_joint' else element.tag} {shortened(name)!r} in {self.tree.source}"
        )

    def _end(self, element: Any, tag: str, attribute: str, where: str) -> str:
        found = element.find(tag)
        if found is None or not found.get(attribute):
            what = f"no {tag} link" if element.tag == "joint" else f"no {tag}"
            more = "" if element.tag == "joint" else ' xyz="0 0 0" rpy="0 0 0"/'
            raise DescriptionError(f'{where}: {what}; write <{tag} {attribute}="..."{more}>')
        return found.get(attribute)

    def _pose(self, element: Any, where: str) -> Pose:
        """Return the <origin> of an element."""
        return self._frame(element.find("origin"), where)

    def _frame(self, element: Any, where: str) -> Pose:
        if element is None:
            return Pose()
        xyz = self._numbers(element, "xyz", 3, where, [0.0] * 3)
        return Pose(np.array(xyz), rotation_of(*self._numbers(element, "rpy", 3, where, [0.0] * 3)))

    def _number(self, element: Any, attribute: str, where: str, default: Any = ...) -> Any:
        fallback = None if default is ... else [default]
        return self._numbers(element, attribute, 1, where, fallback)[0]

    def _numbers(
        self, element: Any, attribute: str, count: int, where: str, default: Any = None, *, or_one: bool = False
    ) -> list[float]:
        """Return the numbers of an attribute, so many; more are left out with a warning, `or_one` allows one alone."""
        if default is not None and (element is None or element.get(attribute) is None):
            return default
        where, text = f"{where}, line {element.sourceline}", element.get(attribute)
        if text is None:
            raise DescriptionError(f"{where}: <{element.tag}> has no {attribute}; write a number")
        given = f'<{element.tag} {attribute}="{shortened(text)}">'
        if "$" in text:
            text = self._substituted(text, where, given)
        if POINT_BEHIND.search(text):
            text = POINT_BEHIND.sub(r"\1", text)
            warn(self.tree, f"{where}: {given} is read as {text!r}")
        try:
            numbers = [float(word) for word in text.replace(",", " ").split()]
        except ValueError:
            numbers = []
        unbounded = any(map(isinf, numbers)) and element.tag != "limit"
        if (len(numbers) < count and not (or_one and len(numbers) == 1)) or any(map(isnan, numbers)) or unbounded:
            expected = "one finite number" if count == 1 else f"{'1 or ' if or_one else ''}{count} finite numbers"
            raise DescriptionError(f"{where}: {given} should be {expected}; correct it")
        if len(numbers) > count:
            warn(self.tree, f"{where}: {given} has {len(numbers)} numbers; the first {count} are read")
        return numbers[:count]

    def _substituted(self, text: str, where: str, given: str) -> str:
        """Return a text with the defaults in the place of ROS's $(optenv NAME default); xacro is an error."""
        result = OPTENV.sub(lambda found: os.environ.get(found[1], found[2]), text)
        if "$" in result:
            raise DescriptionError(f"{where}: {given} is xacro, no number; {XACRO}")
        warn(self.tree, f"{where}: {given} is read as {result!r}")
        return result


def rotation_of(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """Return Rz(yaw) Ry(pitch) Rx(roll)."""
    result = np.eye(3)
    for axis, angle in ((2, yaw), (1, pitch), (0, roll)):
        c, s = np.cos(angle), np.sin(angle)
        i, j = (axis + 1) % 3, (axis + 2) % 3
        turn = np.eye(3)
        turn[i, i], turn[i, j], turn[j, i], turn[j, j] = c, -s, s, c
        result = result @ turn
    return result


def numbers_of(element: Any, attribute: str, default: str) -> list[float]:
    """Return the numbers of an attribute."""
    return [float(word) for word in element.get(attribute, default).replace(",", " ").split()]


def _unit(axis: np.ndarray) -> np.ndarray:
    """Return the axis with length one, a zero axis unchanged for check_tree to refuse."""
    length = np.linalg.norm(axis)
    return axis / length if length > 0.0 else axis
