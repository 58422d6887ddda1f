"""Temperatures over time as files for ParaView: one .vtu a moment, holding what is there by then, and a .pvd of all.

A .vtu is XML with its arrays packed by zlib and written in base64: numbers of bytes (blocks, their size, the last one's
size, packed size) as 64-bit integers, encoded apart, then the packed block.
"""

from __future__ import annotations

import base64
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pullback.core.errors import PullbackError
from pullback.thermal.mesh import Mesh
from pullback.thermal.process import History, Process

HEXAHEDRON = 12
"""VTK's number of an eight-node hexahedron."""
TYPES = {"f4": "Float32", "f8": "Float64", "i4": "Int32", "i8": "Int64", "u1": "UInt8"}


def write_vtk(path: str | Path, process: Process, history: History, **fields: Any) -> Path:
    """Write a run's snapshots, and return the path of the .pvd that lists them.

    path: of the .pvd; its moments go to a folder of the same name. fields: more values at nodes, (snapshots, nodes),
    under their names.
    """
    shots = history.snapshot_steps
    if not len(shots):
        raise PullbackError("the history has no snapshots; ask for them: process.run(..., snapshots=range(0, N, 50))")
    growth = process.growth
    alive = [np.sort(growth.elements[: growth.elements_alive[step]]) for step in shots]
    return write_series(path, process.mesh, history.times[shots], alive, {"temperature": history.snapshots, **fields})


def write_series(
    path: str | Path,
    mesh: Mesh,
    times: Sequence[float] | np.ndarray,
    alive: Sequence[np.ndarray],
    fields: Mapping[str, Any],
) -> Path:
    """Write values at nodes over time, and return the path of the .pvd.

    alive: the elements there are at each moment; fields: name -> (moments, nodes).
    """
    path = Path(path).with_suffix(".pvd")
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in fields.items():
        if tuple(values.shape) != (len(times), len(mesh.nodes)):
            raise PullbackError(
                f"{name} has shape {tuple(values.shape)}; expected ({len(times)}, {len(mesh.nodes)}): moments, nodes"
            )
    digits = len(str(max(len(times) - 1, 0)))
    rows = []
    for k, (moment, elements) in enumerate(zip(times, alive)):
        file = folder / f"{path.stem}_{k:0{digits}d}.vtu"
        write_vtu(file, mesh, elements, {name: _numpy(values[k]) for name, values in fields.items()})
        rows.append(f'    <DataSet timestep="{float(moment):.9g}" part="0" file="{folder.name}/{file.name}"/>\n')
    text = f'<VTKFile type="Collection" version="1.0" byte_order="{_byte_order()}">\n  <Collection>\n'
    path.write_text(
        '<?xml version="1.0"?>\n' + text + "".join(rows) + "  </Collection>\n</VTKFile>\n", encoding="utf-8"
    )
    return path


def write_vtu(path: Path, mesh: Mesh, elements: np.ndarray, fields: Mapping[str, np.ndarray]) -> None:
    """Write some elements of a mesh with values at its nodes (nodes,); nodes of none of these elements are left out."""
    corners = mesh.elements[elements]
    nodes, place = np.unique(corners, return_inverse=True)
    count = len(elements)
    points = _array("Points", mesh.nodes[nodes].astype(np.float32), components=3)
    cells = _array("connectivity", place.reshape(-1).astype(np.int32))
    cells += _array("offsets", 8 * np.arange(1, count + 1, dtype=np.int32))
    cells += _array("types", np.full(count, HEXAHEDRON, dtype=np.uint8))
    values = "".join(_array(name, x[nodes].astype(np.float32)) for name, x in fields.items())
    head = f'type="UnstructuredGrid" version="1.0" byte_order="{_byte_order()}" header_type="UInt64"'
    path.write_text(
        f'<?xml version="1.0"?>\n<VTKFile {head} compressor="vtkZLibDataCompressor">\n<UnstructuredGrid>\n'
        f'<Piece NumberOfPoints="{len(nodes)}" NumberOfCells="{count}">\n'
        f"<Points>\n{points}</Points>\n<Cells>\n{cells}</Cells>\n<PointData>\n{values}</PointData>\n"
        "</Piece>\n</UnstructuredGrid>\n</VTKFile>\n",
        encoding="utf-8",
    )


def _array(name: str, values: np.ndarray, components: int = 1) -> str:
    """Return an array as an XML element."""
    raw = np.ascontiguousarray(values).tobytes()
    packed = zlib.compress(raw, 6)
    header = np.array([1, len(raw), 0, len(packed)] if raw else [0, 0, 0], dtype=np.uint64).tobytes()
    text = base64.b64encode(header).decode() + (base64.b64encode(packed).decode() if raw else "")
    form = f'type="{TYPES[values.dtype.str[1:]]}" Name="{name}" format="binary"'
    if components > 1:
        form += f' NumberOfComponents="{components}"'
    return f"<DataArray {form}>\n{text}\n</DataArray>\n"


def _byte_order() -> str:
    return "LittleEndian" if sys.byteorder == "little" else "BigEndian"


def _numpy(x: Any) -> np.ndarray:
    return x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x)
