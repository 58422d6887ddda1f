"""What a robot's file has only for drawing: the shapes that links look like, and their colours.

Whatever cannot be drawn is left out without a word: a robot that simulates should not fail because of how it looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pullback.core.errors import DescriptionError, PullbackError
from pullback.description.mjcf import Reader, import_mujoco
from pullback.description.mjcf_limits import check_mjcf
from pullback.description.packages import NONE, find_mesh
from pullback.description.tree import Pose, Shape, Tree
from pullback.description.urdf import SIZES, numbers_of, rotation_of
from pullback.description.xml_file import parse_xml

Color = tuple[int, int, int]

INSTALLED = {
    "panda": "panda_description/urdf/panda.urdf",
    "panda_gripper": "panda_description/urdf/panda.urdf",
    "ur5": "ur_description/urdf/ur5_robot.urdf",
    "allegro": "allegro_hand_description/urdf/allegro_left_hand.urdf",
}
"""Shipped robots -> files of the package example-robot-data with the same links in the same frames, and meshes."""
DRAWN_GROUPS = 3
"""MuJoCo's own viewer draws geoms of groups 0 to 2."""


class Visual(NamedTuple):
    """A shape that a link is drawn by, and its colour (red, green, blue, 0 to 255) where the file gives one."""

    shape: Shape
    color: Color | None


def read_visuals(path: Path, text: bytes | None = None, packages: Mapping[str, Path] = NONE) -> dict[str, list[Visual]]:
    """Return what the links of a URDF or MJCF file are drawn by; a link with an odd visual is left out.

    `text` is what xacro made of the file, `packages` are the folders of ROS packages by name.
    """
    try:
        root = parse_xml(path, text=text)
        return _of_mjcf(path, root) if root.tag == "mujoco" else _of_urdf(path, root, packages)
    except (OSError, PullbackError):
        return {}


def visual_file(tree: Tree) -> Path | None:
    """Return the file that says how a robot looks: its own, or for a shipped robot that of example-robot-data."""
    if tree.visual_file is not None or tree.source not in INSTALLED:
        return tree.visual_file
    try:
        package = distribution("example-robot-data")
    except PackageNotFoundError:
        return None
    path = Path(str(package.locate_file(f"cmeel.prefix/share/example-robot-data/robots/{INSTALLED[tree.source]}")))
    return path if path.is_file() else None


# -- URDF --------------------------------------------------------------------------------------------------------


def _of_urdf(path: Path, root: Any, packages: Mapping[str, Path]) -> dict[str, list[Visual]]:
    named = {material.get("name"): _color(material) for material in root.findall("material")}
    found = {}
    for link in root.findall("link"):
        try:
            visuals = [_visual(visual, path, named, packages) for visual in link.findall("visual")]
        except (AttributeError, KeyError, ValueError, DescriptionError):
            continue
        if visuals and all(shape.mesh is None or shape.mesh.is_file() for shape, _ in visuals):
            found[link.get("name")] = visuals
    return found


def _visual(visual: Any, path: Path, named: dict[str, Color | None], packages: Mapping[str, Path]) -> Visual:
    """Return a visual as a shape on its link, with the colour of its material."""
    material = visual.find("material")
    color = None
    if material is not None:
        color = _color(material) or named.get(material.get("name"))
    geometry, frame = visual.find("geometry/*"), visual.find("origin")
    origin = Pose()
    if frame is not None:
        x, y, z = numbers_of(frame, "xyz", "0 0 0")
        roll, pitch, yaw = numbers_of(frame, "rpy", "0 0 0")
        origin = Pose(np.array([x, y, z]), rotation_of(roll, pitch, yaw))
    if geometry.tag == "mesh":
        scale = np.broadcast_to(numbers_of(geometry, "scale", "1"), 3)
        mesh = find_mesh(geometry.attrib["filename"], path, packages)
        shape = Shape("mesh", tuple(scale.tolist()), origin, mesh=mesh)
        return Visual(shape, color)
    size = [number for name in SIZES[geometry.tag] for number in numbers_of(geometry, name, "none")]
    return Visual(Shape(geometry.tag, tuple(size), origin), color)


def _color(material: Any) -> Color | None:
    """Return the colour of a material; None where it has none, or one that cannot be read."""
    color = material.find("color")
    try:
        return None if color is None else _rgb(numbers_of(color, "rgba", "none"))
    except (ValueError, DescriptionError):
        return None


def _rgb(rgba: Any) -> Color | None:
    numbers = np.asarray(rgba, float)
    if len(numbers) < 3 or not np.isfinite(numbers).all():
        return None
    r, g, b = np.clip(np.round(255.0 * numbers[:3]), 0, 255).astype(int).tolist()
    return r, g, b


# -- MJCF --------------------------------------------------------------------------------------------------------


def _of_mjcf(path: Path, root: Any) -> dict[str, list[Visual]]:
    check_mjcf(path, root)
    reader = Reader(import_mujoco(path), path)
    model = reader.model
    found: dict[str, list[Visual]] = {}
    for body in range(1, model.nbody):
        first = model.body_geomadr[body]
        geoms = [
            geom for geom in range(first, first + model.body_geomnum[body]) if model.geom_group[geom] < DRAWN_GROUPS
        ]
        # files that draw by meshes hide the shapes that touch in a further group, or give them no colour
        seen = [(geom, rgba) for geom in geoms if (rgba := _rgba(model, geom))[3] > 0.0]
        visuals = [
            Visual(shape, _rgb(rgba))
            for geom, rgba in seen
            if (shape := reader.bare_shape(geom, reader.link_names[body])) is not None
        ]
        if visuals and all(shape.type != "mesh" or (shape.mesh and shape.mesh.is_file()) for shape, _ in visuals):
            found[reader.link_names[body]] = visuals
    return found


def _rgba(model: Any, geom: int) -> np.ndarray:
    material = model.geom_matid[geom]
    return model.mat_rgba[material] if material >= 0 else model.geom_rgba[geom]
