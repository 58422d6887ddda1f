"""A VTK series holds the elements there are at each moment and their temperatures, as other readers see them."""

import base64
import xml.etree.ElementTree as ET
import zlib

import numpy as np
import pytest
import torch

import pullback as pb
import pullback.thermal as th
from tests.thermal.cases import wall

TYPES = {"Float32": np.float32, "Int32": np.int32, "UInt8": np.uint8}


def arrays(path):
    """Return the arrays of a .vtu by name, unpacked as VTK's format says, and what its piece counts."""
    root = ET.parse(path).getroot()
    assert root.attrib["compressor"] == "vtkZLibDataCompressor"
    found = {}
    for element in root.iter("DataArray"):
        text = element.text.strip()
        # one block: number, size, size of the last, packed size; 32 bytes are 44 characters
        blocks, size, last, packed = np.frombuffer(base64.b64decode(text[:44]), dtype=np.uint64).tolist()
        data = base64.b64decode(text[44:])
        assert (blocks, last, packed) == (1, 0, len(data))
        raw = zlib.decompress(data)
        assert len(raw) == size
        found[element.attrib["Name"]] = np.frombuffer(raw, dtype=TYPES[element.attrib["type"]])
    return found, root.find(".//Piece").attrib


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    process = wall()
    history = process.run(200.0, snapshots=[0, 20, 40, 60])
    path = tmp_path_factory.mktemp("vtk") / "run" / "wall.pvd"
    return process, history, th.write_vtk(path, process, history, doubled=2 * history.snapshots)


def test_the_series_lists_its_moments(series):
    path = series[2]
    rows = [row.attrib for row in ET.parse(path).getroot().iter("DataSet")]
    assert [float(row["timestep"]) for row in rows] == pytest.approx([0.0, 0.4, 0.8, 1.2])
    assert all((path.parent / row["file"]).is_file() for row in rows)


def test_each_moment_holds_what_is_there_and_its_temperatures(series):
    process, history, path = series
    counts = []
    for k, row in enumerate(ET.parse(path).getroot().iter("DataSet")):
        found, piece = arrays(path.parent / row.attrib["file"])
        alive = np.flatnonzero(process.births <= history.times[history.snapshot_steps[k]] + 1e-9)
        counts.append(len(alive))
        assert piece == {"NumberOfPoints": str(len(found["temperature"])), "NumberOfCells": str(len(alive))}
        assert (found["types"] == 12).all()
        assert found["offsets"].tolist() == list(range(8, 8 * len(alive) + 1, 8))
        # the corners of each element are where the mesh has them, and as warm
        corners = process.mesh.elements[alive].reshape(-1)
        points = found["Points"].reshape(-1, 3)[found["connectivity"]]
        np.testing.assert_allclose(points, process.mesh.nodes[corners], atol=1e-8)
        warm = history.snapshots[k].numpy()[corners]
        np.testing.assert_allclose(found["temperature"][found["connectivity"]], warm, rtol=1e-6)
        np.testing.assert_allclose(found["doubled"][found["connectivity"]], 2 * warm, rtol=1e-6)
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == len(process.mesh.elements)


def test_meshio_reads_the_same(series):
    meshio = pytest.importorskip("meshio")
    process, history, path = series
    mesh = meshio.read(path.with_suffix("") / "wall_3.vtu")
    np.testing.assert_allclose(mesh.points, process.mesh.nodes, atol=1e-8)
    assert mesh.cells[0].type == "hexahedron"
    assert np.array_equal(mesh.cells[0].data, process.mesh.elements)
    np.testing.assert_allclose(mesh.point_data["temperature"], history.final.numpy(), rtol=1e-6)


def test_what_cannot_be_written_is_refused(series, tmp_path):
    process, history, _ = series
    with pytest.raises(pb.PullbackError, match="the history has no snapshots; ask for them"):
        th.write_vtk(tmp_path / "x.pvd", process, process.run(200.0))
    with pytest.raises(pb.PullbackError, match=r"heat has shape \(3,\); expected \(4, \d+\): moments, nodes"):
        th.write_vtk(tmp_path / "x.pvd", process, history, heat=torch.zeros(3))
