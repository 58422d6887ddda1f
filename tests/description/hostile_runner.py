"""Measure what reading each hostile file costs.

`python -m tests.description.hostile_runner FOLDER` writes the files to a folder and reads each in a process of its own,
forked from one that has imported everything; it prints JSON, a line for each: name, outcome, seconds, megabytes, text.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from tests.description.hostile_files import BALL, CASES, LINK, MUJOCO, ROBOT

# wall-clock seconds, for a reader that waits for a pipe
PATIENCE = 30


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


def memory(field: str) -> float:
    """Return a figure of this process [MB]."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) / 1000


def measure(read: Callable[[Path], object], path: Path) -> dict[str, object]:
    """Read a file in this process and return what it cost."""
    from pullback.core.errors import PullbackError

    before, start = memory("VmRSS"), time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path)
        outcome, text = "read", ""
    except PullbackError as error:
        outcome, text = "refused", str(error)
    except BaseException as error:
        outcome, text = f"raw {type(error).__name__}", str(error)[:500]
    # processor time: other work on the machine does not count
    seconds = time.process_time() - start
    return {"outcome": outcome, "seconds": seconds, "megabytes": memory("VmHWM") - before, "text": text}


def main(folder: Path) -> None:
    """Write the files, read each in a process of its own, and print what it cost."""
    for name, (_, write, _) in CASES.items():
        write(folder / name)
    read = readers()
    # what is only loaded with the first file of its kind is not the file's cost
    for name, example in (("a.urdf", ROBOT % LINK), ("a.xml", MUJOCO % (b"", BALL))):
        (folder / name).write_bytes(example)
        read["urdf"](folder / name)
    for name, (reader, _, _) in CASES.items():
        print(json.dumps({"name": name, **in_a_child(read[reader], folder / name)}), flush=True)


def in_a_child(read: Callable[[Path], object], path: Path) -> dict[str, object]:
    """Measure a file in a forked process, which is ended if it takes too long."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        # readers of others print
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        signal.alarm(PATIENCE)
        os.write(theirs, json.dumps(measure(read, path)).encode()[:60_000])
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        found = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(found) if found else {"outcome": f"ended by signal {status}", "seconds": 99, "megabytes": 0}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
