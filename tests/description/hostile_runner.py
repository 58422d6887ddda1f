"""Measure what reading each hostile file costs.

`python -m tests.description.hostile_runner FOLDER` writes the files to a folder and reads each in a process of its own,
forked from one that has imported everything; it prints JSON, a line for each: name, outcome, seconds, megabytes, text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from checks.children import in_a_child
from tests.description.hostile_files import BALL, CASES, LINK, MUJOCO, ROBOT


def readers() -> dict[str, Callable[[Path], object]]:
    """Import everything, and return what reads each kind of file."""
    import meshio  # noqa: F401
    import mujoco  # noqa: F401
    import trimesh.exchange.load  # noqa: F401

    import pullback as pb
    from pullback.core.search_loop import Checkpoint
    from pullback.sdf.mesh_file import read_surface
    from pullback.thermal.gcode import read_gcode
    from pullback.thermal.mesh_files import read_mesh
    from pullback.thermal.toolpath import read_toolpath

    return {
        "urdf": pb.load,
        "mjcf": pb.load,
        "gcode": lambda path: read_gcode(path, feed=1.0),
        "toolpath": read_toolpath,
        "hexahedra": read_mesh,
        "surface": read_surface,
        "state": lambda path: Checkpoint(None, path, {}).resume(),  # pyright: ignore[reportArgumentType]
    }


def main(folder: Path) -> None:
    """Write the files, read each in a process of its own, and print what it cost."""
    for name, (_, write, _) in CASES.items():
        write(folder / name)
    read = readers()
    warm_up(read, folder)
    for name, (reader, _, _) in CASES.items():
        found = in_a_child(partial(read_and_discard, read[reader], folder / name))
        print(json.dumps({"name": name, **found}), flush=True)


def warm_up(read: dict[str, Callable[[Path], object]], folder: Path) -> None:
    """Read a file of each kind of description: what is only loaded with the first is not the file's cost."""
    for name, example in (("a.urdf", ROBOT % LINK), ("a.xml", MUJOCO % (b"", BALL))):
        (folder / name).write_bytes(example)
        read["urdf"](folder / name)


def read_and_discard(reader: Callable[[Path], object], path: Path) -> None:
    """Read a file, and return nothing of it."""
    reader(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
