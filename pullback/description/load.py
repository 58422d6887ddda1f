"""Read a robot by name or from a file, whichever format it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path

from pullback.core.errors import DescriptionError, shortened, unknown_name
from pullback.description.check import check_tree
from pullback.description.mjcf import read_mjcf
from pullback.description.tree import Tree
from pullback.description.urdf import read_urdf
from pullback.description.xacro_file import ADVICE, expand_xacro
from pullback.description.xml_file import parse_xml

ROBOTS = (
    "allegro", "ant", "cart_pole", "fetch_arm", "hopper", "iiwa7", "laikago", "panda", "panda_gripper",
    "racecar", "ur5",
)  # fmt: skip
PENDULUM = re.compile(r"pendulum(\d{1,9})")
SUFFIXES = (".urdf", ".xml", ".mjcf", ".xacro")
OTHERS = {
    (
        ".usd",
        ".usda",
        ".usdc",
        ".usdz",
    ): "USD is not read; export the robot as URDF or MJCF where it was made",
    (".sdf",): "Gazebo's SDF is not read; give the URDF or MJCF of the robot",
    (".stl", ".obj", ".dae", ".ply", ".off", ".glb", ".gltf", ".3mf"): (
        "this is a mesh, without joints; for a body of this shape call World.add_mesh, for a robot give its URDF"
    ),
    (".zip", ".tar", ".gz", ".xz", ".7z"): "this is an archive; unpack it, and give the URDF or MJCF in it",
}
"""Files that people have of robots, and what to do with them."""


def shipped_robots() -> list[str]:
    """Return the names of the robots that ship with Pullback; `pendulumN` exists for every N from 1."""
    return sorted([*ROBOTS, "pendulumN"])


Xacro = bool | Mapping[str, object]


def read(
    path_or_name: str | Path,
    *,
    strict: bool = False,
    repair: bool = False,
    xacro: Xacro = False,
    packages: Mapping[str, str | Path] | None = None,
) -> Tree:
    """Read a robot: a name from `shipped_robots()`, or the path of a .urdf, .xml or .mjcf file.

    With `strict`, an inertia that no body can have is an error instead of a warning; with `repair` it becomes the
    nearest one that a body can have. `xacro` and `packages` are those of `pb.load`.
    """
    if isinstance(path_or_name, str):
        tree = _shipped(path_or_name)
        if tree is not None:
            check_tree(tree, strict=strict, repair=repair)
            return tree
        if not _looks_like_path(path_or_name):
            missing = unknown_name("robot", path_or_name, shipped_robots())
            raise DescriptionError(f"{missing} Or give the path of a .urdf or .xml file.")
    if not isinstance(path_or_name, str | PathLike):
        raise DescriptionError(f"{shortened(repr(path_or_name))} is no robot; give its name or the path of a file")
    folders = {name: Path(folder).expanduser() for name, folder in (packages or {}).items()}
    path = Path(path_or_name).expanduser()
    if path.suffix.lower() == ".xacro" or xacro:
        return _read_xacro(path, xacro, folders, strict=strict, repair=repair)
    return _read_file(path, folders, strict=strict, repair=repair)


def _shipped(name: str) -> Tree | None:
    if name in ROBOTS:
        return import_module(f"pullback.description.assets.{name}").tree()
    pendulum = PENDULUM.fullmatch(name)
    if pendulum:
        return import_module("pullback.description.assets.pendulum").tree(int(pendulum[1]))
    return None


def _looks_like_path(text: str) -> bool:
    path = Path(text)
    known = (*SUFFIXES, *(suffix for suffixes in OTHERS for suffix in suffixes))
    return path.suffix.lower() in known or len(path.parts) > 1 or path.exists()


def _read_xacro(path: Path, xacro: Xacro, packages: Mapping[str, Path], *, strict: bool, repair: bool) -> Tree:
    if xacro is False:
        raise DescriptionError(f"{path.name} is xacro; {ADVICE}")
    text = expand_xacro(path, {} if xacro is True else xacro, packages)
    return read_urdf(path, text=text, packages=packages, strict=strict, repair=repair)


def _read_file(path: Path, packages: Mapping[str, Path], *, strict: bool, repair: bool) -> Tree:
    suffix = path.suffix.lower()
    for suffixes, advice in OTHERS.items():
        if suffix in suffixes:
            raise DescriptionError(f"{path.name} is no robot description: {advice}")
    if suffix == ".urdf":
        return read_urdf(path, packages=packages, strict=strict, repair=repair)
    if suffix == ".mjcf":
        return read_mjcf(path, strict=strict, repair=repair)
    root = parse_xml(path).tag
    if root == "robot":
        return read_urdf(path, packages=packages, strict=strict, repair=repair)
    if root == "mujoco":
        return read_mjcf(path, strict=strict, repair=repair)
    raise DescriptionError(
        f"{path.name} is no robot description: its root element is <{root}>; expected <robot> (URDF) or <mujoco> (MJCF)"
    )
