"""Read a robot from a URDF file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BytesIO
from math import inf, isinf, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from pullback.core.errors import DescriptionError
from pullback.description.check import check_tree, parse_xml, warn
from pullback.description.compile import align_z
from pullback.description.tree import (
    Joint,
    JointType,
    Limits,
    Link,
    Loop,
    LoopKind,
    Mimic,
    Pose,
    Shape,
    ShapeType,
    Tree,
    Vector,
)

if TYPE_CHECKING:
    import yourdfpy

JOINT_TYPES = ("revolute", "continuous", "prismatic", "fixed", "floating", "planar")

# attributes of a shape that make up its size, and how many numbers each has
SIZES: dict[str, dict[str, int]] = {
    "sphere": {"radius": 1},
    "capsule": {"radius": 1, "length": 1},
    "cylinder": {"radius": 1, "length": 1},
    "box": {"size": 3},
}

# numbers per attribute: (element, attribute, counts allowed, required)
NUMBERS = (
    ("origin", "xyz", (3,), False),
    ("origin", "rpy", (3,), False),
    ("axis", "xyz", (3,), False),
    ("mass", "value", (1,), True),
    ("inertia", "ixx", (1,), True),
    ("inertia", "iyy", (1,), True),
    ("inertia", "izz", (1,), True),
    ("inertia", "ixy", (1,), False),
    ("inertia", "ixz", (1,), False),
    ("inertia", "iyz", (1,), False),
    ("limit", "lower", (1,), False),
    ("limit", "upper", (1,), False),
    ("limit", "effort", (1,), False),
    ("limit", "velocity", (1,), False),
    ("dynamics", "damping", (1,), False),
    ("dynamics", "friction", (1,), False),
    ("dynamics", "armature", (1,), False),
    ("mimic", "multiplier", (1,), False),
    ("mimic", "offset", (1,), False),
    *((shape, name, (count,), True) for shape, sizes in SIZES.items() for name, count in sizes.items()),
    ("mesh", "scale", (1, 3), False),
    ("lateral_friction", "value", (1,), False),
    ("link1", "xyz", (3,), False),
    ("link1", "rpy", (3,), False),
    ("link2", "xyz", (3,), False),
    ("link2", "rpy", (3,), False),
)
LOOP_KINDS: dict[str, LoopKind] = {"spherical": "connect", "revolute": "hinge", "fixed": "weld"}
SHAPES = (*SIZES, "mesh")


def read_urdf(path: Path, *, strict: bool = False) -> Tree:
    """Read a robot from a URDF file.

    Four common extensions are read too: `<capsule radius length>` as geometry, `armature` on `<dynamics>`,
    `<contact><lateral_friction value>` on a link, and `<loop_joint name type>` with `<link1 link xyz rpy>` and
    `<link2 ...>`, which closes a loop: `spherical`, `revolute` about `<axis>` in link1's frame, or `fixed`. Mesh files
    are named, not opened: a missing one is a DescriptionWarning. With `strict`, a non-physical inertia is an error
    instead of a warning.
    """
    path = Path(path)
    root = _parse(path)
    _check_elements(root, path.name)
    loops = [_loop(element) for element in root.findall("loop_joint")]
    etree.strip_elements(root, "loop_joint")
    robot = _parse_robot(root)
    tree = Tree(name=root.get("name") or path.stem, links=[], joints=[], source=path.name, file=path.resolve())
    for element, link in zip(root.findall("link"), robot.links):
        tree.links.append(_link(element, link, path, tree))
    for element, joint in zip(root.findall("joint"), robot.joints):
        tree.joints.append(_joint(element, joint))
        if joint.type == "fixed" and joint.mimic is not None:
            warn(tree, f"joint {joint.name!r} in {path.name}: a fixed joint cannot mimic; its <mimic> is left out")
    tree.loops = loops
    check_tree(tree, strict=strict)
    return tree


def _parse(path: Path) -> Any:
    """Return the root element of the file with its links and joints, without what only concerns drawing."""
    root = parse_xml(path)
    if root.tag != "robot":
        hint = "this is MJCF: name it .xml or call read_mjcf" if root.tag == "mujoco" else "give a URDF file"
        raise DescriptionError(f"{path.name} is not a URDF: its root element is <{root.tag}>, expected <robot>; {hint}")
    for element in list(root):
        if element.tag not in ("link", "joint", "loop_joint"):
            root.remove(element)
    for visual in root.findall("link/visual"):
        visual.getparent().remove(visual)
    return root


def _check_elements(root: Any, source: str) -> None:
    for element in root:
        name = element.get("name")
        if not name:
            raise DescriptionError(
                f"{source}, line {element.sourceline}: a <{element.tag}> has no name; give it name=..."
            )
        where = f"{element.tag} {name!r} in {source}"
        if element.tag == "joint":
            _check_joint_element(element, where)
        if element.tag == "loop_joint":
            _check_loop_element(element, where)
        for geometry in element.findall("collision"):
            _check_geometry(geometry, where)
        for tag, attribute, counts, required in NUMBERS:
            for owner in element.iter(tag):
                _check_numbers(owner, attribute, counts, required, where)


def _check_joint_element(element: Any, where: str) -> None:
    if element.get("type") not in JOINT_TYPES:
        raise DescriptionError(
            f"{where}: unknown joint type {element.get('type')!r}; choose from: {', '.join(JOINT_TYPES)}"
        )
    for end in ("parent", "child"):
        found = element.find(end)
        if found is None or not found.get("link"):
            raise DescriptionError(f'{where}: no {end} link; write <{end} link="...">')
    mimic = element.find("mimic")
    if mimic is not None and not mimic.get("joint"):
        raise DescriptionError(f'{where}: <mimic> names no joint; write <mimic joint="...">')


def _check_loop_element(element: Any, where: str) -> None:
    if element.get("type") not in LOOP_KINDS:
        raise DescriptionError(
            f"{where}: unknown type {element.get('type')!r} of a loop joint; choose from: {', '.join(LOOP_KINDS)}"
        )
    for end in ("link1", "link2"):
        found = element.find(end)
        if found is None or not found.get("link"):
            raise DescriptionError(f'{where}: no {end}; write <{end} link="..." xyz="0 0 0" rpy="0 0 0"/>')
    axis = element.find("axis")
    if axis is not None and not any(numbers_of(axis, "xyz", "1 0 0")):
        raise DescriptionError(f"{where}: axis has zero length; give a direction or leave <axis> out")


def _check_geometry(collision: Any, where: str) -> None:
    shape = collision.find("geometry/*")
    if shape is None or shape.tag not in SHAPES:
        found = "no shape" if shape is None else f"an unknown shape <{shape.tag}>"
        raise DescriptionError(
            f"{where}, line {collision.sourceline}: <collision> has {found}; expected <geometry> with one of: "
            f"{', '.join(SHAPES)}"
        )
    if shape.tag == "mesh" and not shape.get("filename"):
        raise DescriptionError(f'{where}: <mesh> names no file; write <mesh filename="...">')


def _check_numbers(element: Any, attribute: str, counts: tuple[int, ...], required: bool, where: str) -> None:
    text = element.get(attribute)
    where = f"{where}, line {element.sourceline}"
    if text is None:
        if required:
            raise DescriptionError(f"{where}: <{element.tag}> has no {attribute}; write a number")
        return
    try:
        numbers = [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        numbers = []
    expected = "one finite number" if counts == (1,) else f"{' or '.join(map(str, counts))} finite numbers"
    unbounded = any(map(isinf, numbers)) and element.tag != "limit"
    if len(numbers) not in counts or any(map(isnan, numbers)) or unbounded:
        raise DescriptionError(f'{where}: <{element.tag} {attribute}="{text}"> should be {expected}; correct it')


def _parse_robot(root: Any) -> yourdfpy.Robot:
    """Let yourdfpy turn the checked elements into numbers."""
    import yourdfpy

    document = etree.fromstring(etree.tostring(root))
    document.set("name", root.get("name") or "robot")
    # yourdfpy knows no capsule: its numbers are those of a cylinder
    for capsule in document.iter("capsule"):
        capsule.tag = "cylinder"
    for origin in document.iter("origin", "axis"):
        for attribute, text in origin.attrib.items():
            origin.set(attribute, text.replace(",", " "))
    urdf = yourdfpy.URDF.load(BytesIO(etree.tostring(document)), build_scene_graph=False, load_meshes=False)
    return cast("yourdfpy.Robot", urdf.robot)


def _link(element: Any, source: yourdfpy.Link, path: Path, tree: Tree) -> Link:
    link = Link(source.name)
    if source.inertial is not None:
        frame = _pose(source.inertial.origin)
        link.mass = source.inertial.mass or 0.0
        link.com = frame.translation
        if source.inertial.inertia is not None:
            link.inertia = frame.rotation @ source.inertial.inertia @ frame.rotation.T
    contact = element.find("contact/lateral_friction")
    friction = None if contact is None else _number(contact.get("value"), None)
    for collision, described in zip(element.findall("collision"), source.collisions):
        drawn = collision.find("geometry/*")
        shape = _shape(drawn.tag, described, path)
        shape.friction = friction
        link.shapes.append(shape)
        if shape.mesh is not None and not shape.mesh.is_file():
            warn(
                tree,
                f"link {link.name!r} in {tree.source}: mesh file {drawn.get('filename')!r} does not exist; "
                f"expected it at {shape.mesh}",
            )
    return link


def _shape(kind: ShapeType, collision: yourdfpy.Collision, path: Path) -> Shape:
    geometry = collision.geometry
    origin = _pose(collision.origin)
    if geometry.sphere is not None:
        return Shape("sphere", (geometry.sphere.radius,), origin)
    if geometry.cylinder is not None:
        return Shape(kind, (geometry.cylinder.radius, geometry.cylinder.length), origin)
    if geometry.box is not None:
        return Shape("box", _vector(geometry.box.size), origin)
    assert geometry.mesh is not None
    scale = np.broadcast_to(1.0 if geometry.mesh.scale is None else geometry.mesh.scale, 3)
    return Shape("mesh", _vector(scale), origin, mesh=find_mesh(geometry.mesh.filename, path))


def _joint(element: Any, source: yourdfpy.Joint) -> Joint:
    kind = cast(JointType, source.type)
    dynamics = element.find("dynamics")
    numbers = {} if dynamics is None else dynamics.attrib
    joint = Joint(source.name, kind, source.parent, source.child, _pose(source.origin))
    if kind in ("revolute", "continuous", "prismatic", "planar"):
        joint.axis = _unit(source.axis)
    joint.limits = _limits(source)
    if kind != "fixed":
        joint.damping = _number(numbers.get("damping"), 0.0)
        joint.friction = _number(numbers.get("friction"), 0.0)
        joint.armature = _number(numbers.get("armature"), 0.0)
    if source.mimic is not None and kind != "fixed":
        multiplier, offset = source.mimic.multiplier, source.mimic.offset
        joint.mimic = Mimic(
            source.mimic.joint,
            multiplier=1.0 if multiplier is None else multiplier,
            offset=0.0 if offset is None else offset,
        )
    return joint


def _loop(element: Any) -> Loop:
    """Return a loop joint; a hinge acts about z of its frames, so both are turned there."""
    kind = LOOP_KINDS[element.get("type")]
    turn = np.eye(3)
    if kind == "hinge":
        axis = element.find("axis")
        turn = align_z(_unit(np.array([1.0, 0.0, 0.0] if axis is None else numbers_of(axis, "xyz", "1 0 0"))))
    ends = [element.find(end) for end in ("link1", "link2")]
    frames = []
    for end in ends:
        rotation = rotation_of(*numbers_of(end, "rpy", "0 0 0"))
        frames.append(Pose(np.array(numbers_of(end, "xyz", "0 0 0")), rotation @ turn))
    return Loop(element.get("name"), kind, ends[0].get("link"), ends[1].get("link"), *frames)


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


def _limits(joint: yourdfpy.Joint) -> Limits:
    limit = joint.limit
    if limit is None or joint.type == "fixed":
        return Limits()
    bounded = joint.type in ("revolute", "prismatic")
    return Limits(
        lower=limit.lower if bounded and limit.lower is not None else -inf,
        upper=limit.upper if bounded and limit.upper is not None else inf,
        velocity=inf if limit.velocity is None else limit.velocity,
        effort=inf if limit.effort is None else limit.effort,
    )


def find_mesh(filename: str, path: Path) -> Path:
    """Return where a mesh should be: beside the URDF, or in its package; the file need not exist."""
    folder = path.resolve().parent
    for scheme in ("package://", "model://"):
        if filename.startswith(scheme):
            package, _, rest = filename.removeprefix(scheme).partition("/")
            places = [place / rest for place in _package_folders(package, folder)]
            return next((place for place in places if place.is_file()), places[0] if places else folder / rest)
    # many packages keep urdf/ beside meshes/ and count paths from the folder of both
    places = [Path(os.path.normpath(place / filename.removeprefix("file://"))) for place in (folder, folder.parent)]
    return next((place for place in places if place.is_file()), places[0])


def _package_folders(package: str, folder: Path) -> Iterator[Path]:
    """Yield the folders that can be the ROS package: above the URDF, then in ROS_PACKAGE_PATH."""
    for above in (folder, *folder.parents):
        if above.name == package:
            yield above
        elif (above / package).is_dir():
            yield above / package
    for entry in filter(None, os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep)):
        place = Path(entry)
        if place.name == package:
            yield place
        elif (place / package).is_dir():
            yield place / package


def _pose(matrix: np.ndarray | None) -> Pose:
    return Pose() if matrix is None else Pose(matrix[:3, 3].copy(), matrix[:3, :3].copy())


def _vector(values: np.ndarray) -> Vector:
    return tuple(float(value) for value in values)


def _unit(axis: np.ndarray) -> np.ndarray:
    """Return the axis with length one, a zero axis unchanged for check_tree to refuse."""
    length = np.linalg.norm(axis)
    return axis / length if length > 0.0 else axis


def _number(text: str | None, default: Any) -> Any:
    return default if text is None else float(text)
