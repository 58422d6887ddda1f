"""Find ROS packages, and the mesh files that a URDF names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

SCHEMES = ("package://", "model://")
# where ROS 1, ROS 2 and Gazebo are told about their packages
PLACES = ("ROS_PACKAGE_PATH", "AMENT_PREFIX_PATH", "COLCON_PREFIX_PATH", "CMAKE_PREFIX_PATH", "GAZEBO_MODEL_PATH")
# folders below an entry of ROS_PACKAGE_PATH that are looked through for packages, as many levels
DEPTH = 3

NONE: Mapping[str, Path] = {}


def find_mesh(filename: str, path: Path, packages: Mapping[str, Path] = NONE) -> Path:
    """Return where a mesh should be: beside the URDF, or in its package; the file need not exist.

    `package://name/rest` is looked for in the folder that `packages` gives the name, in one of that name above the URDF
    or beside one of those, in a folder above that holds `rest`, and in the packages of ROS's environment variables.
    """
    folder = path.resolve().parent
    filename = unquote(filename) if "%" in filename else filename
    for scheme in SCHEMES:
        if filename.startswith(scheme):
            package, _, rest = filename.removeprefix(scheme).partition("/")
            places = [place / rest for place in _package_folders(package, folder, packages)]
            # a package that was renamed or unpacked without its folder
            above = [place / rest for place in (folder, *folder.parents)] if rest else []
            return _first([*places, *above], places[0] if places else folder / rest)
    # many packages keep urdf/ beside meshes/ and count paths from the folder of both
    places = [Path(os.path.normpath(place / filename.removeprefix("file://"))) for place in (folder, folder.parent)]
    return _first(places, places[0])


def find_package(package: str, path: Path, packages: Mapping[str, Path] = NONE) -> Path | None:
    """Return the folder of a package, looked for as those of meshes are; None if there is none."""
    return next((place for place in _package_folders(package, path.resolve().parent, packages) if place.is_dir()), None)


def _first(places: list[Path], default: Path) -> Path:
    return next((place for place in places if _is_file(place)), default)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        # a name too long, or with a zero byte
        return False


def _package_folders(package: str, folder: Path, packages: Mapping[str, Path]) -> Iterator[Path]:
    """Yield the folders that can be the ROS package."""
    if package in packages:
        yield packages[package]
    for above in (folder, *folder.parents):
        if above.name == package or _names(above, package):
            yield above
        if (above / package).is_dir():
            yield above / package
    for variable in PLACES:
        for entry in filter(None, os.environ.get(variable, "").split(os.pathsep)):
            place = Path(entry)
            if place.name == package:
                yield place
            for below in (place / package, place / "share" / package):
                if below.is_dir():
                    yield below
            if variable == "ROS_PACKAGE_PATH":
                yield from _below(place, package)


def _below(place: Path, package: str) -> Iterator[Path]:
    """Yield the folders of a package below an entry of ROS_PACKAGE_PATH: src/stack/package, for instance."""
    level = [place]
    for _ in range(DEPTH):
        level = [entry for above in level for entry in _folders(above)]
        yield from (entry for entry in level if entry.name == package and (entry / "package.xml").is_file())


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(entry for entry in place.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return []


def _names(folder: Path, package: str) -> bool:
    """Tell whether a folder holds a package of that name, whatever the folder is called: its package.xml says so."""
    manifest = folder / "package.xml"
    try:
        return manifest.is_file() and f"<name>{package}</name>" in manifest.read_text(encoding="utf-8")[:20_000]
    except (OSError, ValueError):
        return False
