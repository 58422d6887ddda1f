"""What a URDF file has only for drawing: the shapes that links look like. Odd ones are left out without a word."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pullback.core.errors import DescriptionError
from pullback.description.packages import NONE, find_mesh
from pullback.description.tree import Pose, Shape
from pullback.description.urdf import SIZES, numbers_of, rotation_of
from pullback.description.xml_file import parse_xml


def read_visuals(path: Path, text: bytes | None = None, packages: Mapping[str, Path] = NONE) -> dict[str, list[Shape]]:
    """Return the shapes that the links of a URDF file are drawn by; a link with an odd visual is left out.

    `text` is what xacro made of the file, `packages` are the folders of ROS packages by name.
    """
    try:
        root = parse_xml(path, text=text)
    except (OSError, DescriptionError):
        return {}
    found = {}
    for link in root.findall("link"):
        try:
            shapes = [_shape(visual, path, packages) for visual in link.findall("visual")]
        except (AttributeError, KeyError, ValueError):
            continue
        if shapes and all(shape.mesh is None or shape.mesh.is_file() for shape in shapes):
            found[link.get("name")] = shapes
    return found


def _shape(visual: Any, path: Path, packages: Mapping[str, Path]) -> Shape:
    """Return a visual as a shape on its link."""
    geometry, frame = visual.find("geometry/*"), visual.find("origin")
    origin = Pose()
    if frame is not None:
        x, y, z = numbers_of(frame, "xyz", "0 0 0")
        roll, pitch, yaw = numbers_of(frame, "rpy", "0 0 0")
        origin = Pose(np.array([x, y, z]), rotation_of(roll, pitch, yaw))
    if geometry.tag == "mesh":
        scale = np.broadcast_to(numbers_of(geometry, "scale", "1"), 3)
        mesh = find_mesh(geometry.attrib["filename"], path, packages)
        return Shape("mesh", tuple(scale.tolist()), origin, mesh=mesh)
    size = [number for name in SIZES[geometry.tag] for number in numbers_of(geometry, name, "none")]
    return Shape(geometry.tag, tuple(size), origin)
