"""Meshes from files: the published hourglass, keyword files, meshio."""

from pathlib import Path

import numpy as np
import pytest

from pullback import thermal as th
from pullback.core.errors import PullbackError

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def published():
    mesh = th.read_mesh(DATA / "hourglass.k.xz", unit=1e-3)
    path = th.read_toolpath(DATA / "hourglass_toolpath.crs.xz", unit=1e-3)
    return mesh, path, th.read_births(DATA / "hourglass.k.xz")


def test_published_hourglass_mesh(published):
    mesh, _, _ = published
    build, plate = mesh.element_set("build"), mesh.element_set("plate")
    assert (len(mesh.nodes), len(mesh.elements), len(build), len(plate)) == (18_438, 15_070, 5_040, 10_030)
    assert mesh.volumes[build].sum() * 1e9 == pytest.approx(3061, abs=0.5)
    assert mesh.volumes[plate].sum() * 1e9 == pytest.approx(78_413, abs=1)
    corners = mesh.nodes[mesh.elements[build]]
    assert np.allclose(corners.min(axis=(0, 1)), [-0.01, -0.01, 0])
    assert np.allclose(corners.max(axis=(0, 1)), [0.01, 0.01, 0.028])
    edges = mesh.edge_lengths[build] * 1e3
    assert edges.min() == pytest.approx(0.18, abs=0.01)
    assert np.median(edges) == pytest.approx(1, abs=0.05)
    # the file's set 3, held at 300 K, is the underside
    assert np.array_equal(mesh.node_set("bottom"), mesh.node_set("set 3"))
    assert len(th.build_layers(mesh)) == 28


def test_published_births_and_toolpath(published):
    mesh, path, births = published
    born = births[np.isfinite(births)]
    assert len(born) == 5_040
    assert len(np.unique(born)) == 1_674
    assert (born.min(), born.max()) == (1.8108, 323.0385)
    assert np.array_equal(np.flatnonzero(np.isfinite(births)), mesh.element_set("build"))
    assert len(path.t) == 1_882
    assert path.duration == pytest.approx(323.452, abs=1e-3)
    assert path.lit_time == pytest.approx(305.2, abs=0.05)
    assert path.duration - path.lit_time == pytest.approx(18.2, abs=0.05)
    th.check_support(mesh, births)


def test_births_agree_with_the_published_ones(published):
    mesh, path, theirs = published
    build = mesh.element_set("build")
    ours = th.births(mesh, path, radius=1.2e-3, unreached="nearest")
    apart = np.abs(ours[build] - theirs[build])
    # theirs are times of rows of the path, up to 0.35 s apart
    assert (apart < 0.3).mean() > 0.995
    assert np.median(apart) < 0.1


def test_free_faces_of_the_published_part_close(published):
    mesh, _, births = published
    faces = th.faces_over_time(mesh, births)
    for time in (0.0, 100.0, 400.0):
        now = (faces.start <= time) & (time < faces.end)
        corners = mesh.nodes[faces.nodes[now]]
        area = 0.5 * np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1])
        assert np.abs(area.sum(axis=0)).max() < 1e-15


KEYWORDS = """*KEYWORD
*PART
the Build of today
         1         1         1
the plate
         2         1         1
*ELEMENT_SOLID
       7       1       5       6       7       8       9      10      11      12
       3       2       1       2       3       4       5       6       7       8
*NODE
$ nid x y z
       1             0.0             0.0             0.0       0       0
       2             1.0             0.0             0.0       0       0
       3             1.0             1.0             0.0       0       0
       4             0.0             1.0             0.0       0       0
{rest}
*SET_NODE_LIST
         5
         1         2         3         4         0         0         0         0
*END
"""


def keyword_file(tmp_path, **changes):
    upper = "\n".join(f"{n:8d}{x:16.9f}{y:16.9f}{z:16.9f}" for n, x, y, z in [
        (5, 0, 0, 1), (6, 1, 0, 1), (7, 1, 1, 1), (8, 0, 1, 1), (9, 0, 0, 2), (10, 1, 0, 2), (11, 1, 1, 2),
        (12, 0, 1, 2), (99, 5, 5, 5),
    ])  # fmt: skip
    text = KEYWORDS.replace("{rest}", upper)
    for old, new in changes.get("replace", []):
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "part.k"
    file.write_text(text)
    return file


def test_keyword_file_with_titles(tmp_path):
    mesh = th.read_mesh(keyword_file(tmp_path), unit=0.5)
    assert mesh.element_set("build").tolist() == [0]
    assert mesh.element_set("plate").tolist() == [1]
    assert len(mesh.nodes) == 12
    assert mesh.volumes == pytest.approx([0.125, 0.125])
    assert mesh.node_set("set 5").tolist() == mesh.node_set("bottom").tolist() == [0, 1, 2, 3]


def test_numbers_that_touch_are_read_by_width(tmp_path):
    tight = "       3  1.00000000E+00  1.00000000E+00-0.000000000E+00"
    mesh = th.read_mesh(
        keyword_file(
            tmp_path, replace=[("       3             1.0             1.0             0.0       0       0", tight)]
        )
    )
    assert mesh.volumes == pytest.approx([1, 1])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "       7       1       5",
            "       7       1      98",
            "element 7 has node 98, which the file does not define",
        ),
        ("       7       1       5       6", "       7       1       x       6", "line 8: 'x' is no number"),
        ("       3       2       1", "       7       2       1", "element 7 is defined twice"),
        ("*ELEMENT_SOLID", "*ELEMENT_SHELL", "no \\*ELEMENT_SOLID"),
        ("*NODE\n", "*NODES\n", "no \\*NODE"),
        (
            "*SET_NODE_LIST\n",
            "*DEFINE_CURVE\n         1\n 1.5 8.0\n*SET_NODE_LIST\n",
            "birth of element 8, which is not",
        ),
    ],
)
def test_bad_keyword_files_name_the_place(tmp_path, old, new, message):
    with pytest.raises(PullbackError, match=message):
        th.read_mesh(keyword_file(tmp_path, replace=[(old, new)]))


def test_files_without_what_is_asked_for(tmp_path):
    with pytest.raises(PullbackError, match=r"no \*DEFINE_CURVE 1"):
        th.read_births(keyword_file(tmp_path))
    with pytest.raises(PullbackError, match=r"none.k' does not exist"):
        th.read_mesh(tmp_path / "none.k")
    with pytest.raises(PullbackError, match="unit = 0"):
        th.read_mesh(keyword_file(tmp_path), unit=0)


def test_meshio_is_asked_for_when_absent(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "meshio", None)
    with pytest.raises(PullbackError, match=r"takes meshio: pip install 'pullback\[mesh\]'"):
        th.read_mesh(tmp_path / "part.vtu")


@pytest.mark.parametrize("suffix", [".vtu", ".vtk", ".inp"])
def test_what_meshio_reads(tmp_path, suffix):
    meshio = pytest.importorskip("meshio")
    mesh = th.box_on_plate((0.004, 0.002, 0.002), 0.001, (0.006, 0.004, 0.002))
    cells = [("hexahedron", mesh.elements), ("quad", mesh.faces.nodes[:3])]
    sets = {"build": [mesh.element_set("build"), np.array([], dtype=int)]} if suffix == ".inp" else None
    spare = np.append(mesh.nodes, [[9.0, 9.0, 9.0]], axis=0)
    meshio.Mesh(spare * 1e3, cells, cell_sets=sets).write(tmp_path / f"part{suffix}")
    read = th.read_mesh(tmp_path / f"part{suffix}", unit=1e-3)
    assert np.allclose(read.nodes, mesh.nodes)
    assert np.array_equal(read.elements, mesh.elements)
    assert len(read.node_set("bottom")) == len(mesh.node_set("bottom"))
    if sets:
        assert np.array_equal(read.element_set("build"), mesh.element_set("build"))


def test_meshes_without_hexahedra_are_refused(tmp_path):
    meshio = pytest.importorskip("meshio")
    points = [[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    meshio.Mesh(points, [("tetra", [[0, 1, 2, 3]])]).write(tmp_path / "tet.vtu")
    with pytest.raises(PullbackError, match="has tetra cells; only eight-node hexahedra"):
        th.read_mesh(tmp_path / "tet.vtu")
    meshio.Mesh(points, [("triangle", [[0, 1, 2]])]).write(tmp_path / "flat.vtu")
    with pytest.raises(PullbackError, match="no hexahedra, only triangle"):
        th.read_mesh(tmp_path / "flat.vtu")
    (tmp_path / "part.xyzw").write_text("?")
    with pytest.raises(PullbackError, match="meshio cannot read"):
        th.read_mesh(tmp_path / "part.xyzw")
