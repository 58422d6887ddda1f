"""Find the mesh files that a URDF names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

SCHEMES = ("package://", "model://")
# where ROS 1, ROS 2 and Gazebo are told about their packages
PLACES = ("ROS_PACKAGE_PATH", "AMENT_PREFIX_PATH", "COLCON_PREFIX_PATH", "CMAKE_PREFIX_PATH", "GAZEBO_MODEL_PATH")


def find_mesh(filename: str, path: Path) -> Path:
    """Return where a mesh should be: beside the URDF, or in its package; the file need not exist.

    `package://name/rest` is looked for in a folder of that name above the URDF or beside one of those, in a folder
    above that holds `rest`, and in the packages of ROS's environment variables.
    """
    folder = path.resolve().parent
    filename = unquote(filename) if "%" in filename else filename
    for scheme in SCHEMES:
        if filename.startswith(scheme):
            package, _, rest = filename.removeprefix(scheme).partition("/")
            places = [place / rest for place in _package_folders(package, folder)]
            # a package that was renamed or unpacked without its folder
            above = [place / rest for place in (folder, *folder.parents)] if rest else []
            return _first([*places, *above], places[0] if places else folder / rest)
    # many packages keep urdf/ beside meshes/ and count paths from the folder of both
    places = [Path(os.path.normpath(place / filename.removeprefix("file://"))) for place in (folder, folder.parent)]
    return _first(places, places[0])


def _first(places: list[Path], default: Path) -> Path:
    return next((place for place in places if _is_file(place)), default)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        # a name too long, or with a zero byte
        return False


def _package_folders(package: str, folder: Path) -> Iterator[Path]:
    """Yield the folders that can be the ROS package."""
    for above in (folder, *folder.parents):
        if above.name == package:
            yield above
        elif (above / package).is_dir():
            yield above / package
    for variable in PLACES:
        for entry in filter(None, os.environ.get(variable, "").split(os.pathsep)):
            place = Path(entry)
            if place.name == package:
                yield place
            for below in (place / package, place / "share" / package):
                if below.is_dir():
                    yield below
