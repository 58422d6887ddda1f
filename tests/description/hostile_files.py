"""Files that try to eat time or memory, or that are simply broken."""

from __future__ import annotations

import base64
import gzip
import json
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

CASES: dict[str, tuple[str, Callable[[Path], None], bool]] = {}
"""Name of the file -> (reader, what writes it, whether it may also be read)."""

ROBOT = b'<robot name="x">%s</robot>'
XYZ = b"property double x\nproperty double y\nproperty double z\nend_header\n"
LINK = b'<link name="a"/>'
MUJOCO = b"<mujoco>%s<worldbody>%s</worldbody></mujoco>"
BALL = b'<body name="b"><freejoint/><geom size="1"/></body>'


def case(name: str, *, reader: str | None = None, readable: bool = False):
    def register(write: Callable[[Path], object]):
        kinds = {".urdf": "urdf", ".xml": "mjcf", ".gcode": "gcode", ".crs": "toolpath", ".k": "hexahedra"}
        stem = name.removesuffix(".xz").removesuffix(".gz")
        CASES[name] = (reader or kinds.get(Path(stem).suffix, "surface"), write, readable)
        return write

    return register


def content(name: str, data: bytes, **options) -> None:
    case(name, **options)(lambda path: path.write_bytes(data))


def chain(count: int, inside: bytes = b"") -> bytes:
    links = b"".join(b'<link name="l%d"/>' % k for k in range(count))
    joints = b"".join(
        b'<joint name="j%d" type="revolute"><parent link="l%d"/><child link="l%d"/>%s</joint>'
        % (k, k, k + 1, inside.replace(b"NEXT", b"j%d" % (k + 1)))
        for k in range(count - 1)
    )
    return ROBOT % (links + joints)


# -- robots ------------------------------------------------------------------------------------------------------

content("empty.urdf", b"")
content("noise.urdf", bytes(range(256)) * 100)
content("zeros.urdf", bytes(100_000))
content("truncated.urdf", b'<robot name="x"><link name="a"><inertial>')
content("words.urdf", b"this is no XML")
content("utf16.urdf", (ROBOT % b"").decode().encode("utf-16"))
content("latin1.urdf", b'<robot name="\xe9\xff"><link name="a"/></robot>')
content("deep.urdf", ROBOT % (b"<a>" * 20_000 + b"</a>" * 20_000))
content("many_elements.urdf", ROBOT % (b"<a/>" * 3_000_000))
content("many_attributes.urdf", ROBOT % (b"<link " + b" ".join(b'a%d="1"' % k for k in range(300_000)) + b"/>"))
content("long_name.urdf", ROBOT % (b'<link name="' + b"a" * 2_000_000 + b'"/><joint name="j" type="fixed"/>'))
content(
    "long_number.urdf",
    ROBOT % (b'<link name="a"><inertial><mass value="' + b"9" * 5_000_000 + b'"/></inertial></link>'),
)
content(
    "many_numbers.urdf",
    ROBOT % (b'<link name="a"><inertial><mass value="' + b"x " * 2_000_000 + b'"/></inertial></link>'),
)
content(
    "brackets.urdf",
    ROBOT % (b'<link name="a"><inertial><mass value="' + b"$(optenv " * 200_000 + b'"/></inertial></link>'),
)
content("declarations.urdf", b"<?xml " * 500_000)
content("prefixes.urdf", b"<robot>" + b"".join(b"<p%d:a/>" % k for k in range(100_000)))
content("chain_2000.urdf", chain(2000), readable=True)
content("chain_5000.urdf", chain(5000), readable=True)
content("chain_50000.urdf", chain(50_000))
content("mimic_chain.urdf", chain(2000, b'<mimic joint="NEXT"/>'), readable=True)
content("unknown_mimics.urdf", chain(5000, b'<mimic joint="nobody"/>'), readable=True)
content(
    "unknown_parents.urdf",
    ROBOT
    % (
        b"".join(b'<link name="%s%d"/>' % (b"a" * 90, k) for k in range(9000))
        + b'<joint name="j" type="fixed"><parent link="'
        + b"a" * 99
        + b'"/><child link="b"/></joint>'
    ),
)
content("roots.urdf", ROBOT % b"".join(b'<link name="l%d"/>' % k for k in range(10_000)))
content(
    "loop.urdf",
    ROBOT
    % (
        b'<link name="r"/>'
        + b"".join(
            b'<link name="l%d"/><joint name="j%d" type="fixed"><parent link="l%d"/><child link="l%d"/></joint>'
            % (k, k, k, (k + 1) % 5000)
            for k in range(5000)
        )
    ),
)
content(
    "laughs.urdf",
    b'<!DOCTYPE r [<!ENTITY a "ha">'
    + b"".join(b'<!ENTITY %c "%s">' % (98 + k, b"&%c;" % (97 + k) * 20) for k in range(12))
    + b"]>"
    + ROBOT % b'<link name="&m;"/>',
)
content(
    "quadratic.urdf",
    b'<!DOCTYPE r [<!ENTITY a "' + b"x" * 1_000_000 + b'">]>' + ROBOT % (b'<link name="' + b"&a;" * 2000 + b'"/>'),
)
content("external.urdf", b'<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/hostname">]>' + ROBOT % b'<link name="&a;"/>')
content("xacro.urdf", b'<robot xmlns:xacro="http://www.ros.org/wiki/xacro"><xacro:macro name="m"/></robot>')
content("nan.urdf", ROBOT % b'<link name="a"><inertial><mass value="nan"/></inertial></link>')
content("overflow.urdf", ROBOT % b'<link name="a"><inertial><mass value="1e400"/></inertial></link>')
case("folder.urdf")(lambda path: path.mkdir())
case("pipe.urdf")(os.mkfifo)
case("endless.urdf")(lambda path: path.symlink_to("/dev/zero"))
case("dangling.urdf")(lambda path: path.symlink_to("nowhere"))
case("circle.urdf")(lambda path: path.symlink_to(path))
case("sparse.urdf")(lambda path: (path.touch(), os.truncate(path, 50_000_000_000)))

# -- MJCF --------------------------------------------------------------------------------------------------------

content("empty.xml", b"")
content("noise.xml", b"<mujoco>" + bytes(range(128, 256)) * 100)
content("root.xml", b"<a/>")
content("no_body.xml", MUJOCO % (b"", b""))
content("replicate.xml", MUJOCO % (b"", b'<replicate count="100000000">' + BALL + b"</replicate>"))
content("nested.xml", MUJOCO % (b"", b'<replicate count="300">' * 3 + BALL + b"</replicate>" * 3))
content("cable.xml", MUJOCO % (b"", b'<body name="c"><composite type="cable" count="100000000 1 1" size="1"/></body>'))
content(
    "flexcomp.xml", MUJOCO % (b"", b'<body name="c"><flexcomp name="f" type="grid" count="1000 1000 1000"/></body>')
)
content("hfield.xml", MUJOCO % (b'<asset><hfield name="h" nrow="100000" ncol="100000" size="1 1 1 1"/></asset>', BALL))
content(
    "texture.xml",
    MUJOCO % (b'<asset><texture name="t" type="2d" builtin="checker" width="40000" height="40000"/></asset>', BALL),
    readable=True,
)
content("sphere.xml", MUJOCO % (b'<asset><mesh name="m" builtin="supersphere" params="9000 1 1"/></asset>', BALL))
content("plate.xml", MUJOCO % (b'<asset><mesh name="m" builtin="plate" params="9000 9000"/></asset>', BALL))
content("keys.xml", MUJOCO % (b'<size nkey="100000000"/>', BALL))
content("userdata.xml", MUJOCO % (b'<size nuserdata="2000000000"/>', BALL))
content("memory.xml", MUJOCO % (b'<size memory="500G"/>', BALL), readable=True)
content("not_a_count.xml", MUJOCO % (b"", b'<replicate count="lots">' + BALL + b"</replicate>"))
content("infinite.xml", MUJOCO % (b"", b'<replicate count="inf">' + BALL + b"</replicate>"))
content("include_itself.xml", b'<mujoco><include file="include_itself.xml"/></mujoco>')
content("include_pipe.xml", b'<mujoco><include file="pipe.urdf"/></mujoco>')
content("include_endless.xml", b'<mujoco><include file="endless.urdf"/></mujoco>')
content("include_bomb.xml", b'<mujoco><include file="replicate.xml"/></mujoco>')
content("mesh_pipe.xml", MUJOCO % (b'<asset><mesh name="m" file="pipe.stl"/></asset>', BALL))
content("mesh_endless.xml", MUJOCO % (b'<asset><mesh name="m" file="endless.stl"/></asset>', BALL))
content("mesh_missing.xml", MUJOCO % (b'<asset><mesh name="m" file="nowhere.stl"/></asset>', BALL))
content("deep.xml", MUJOCO % (b"", b"<body>" * 20_000 + b"</body>" * 20_000))

# -- toolpaths ---------------------------------------------------------------------------------------------------

content("empty.gcode", b"")
content("noise.gcode", bytes(range(256)) * 100)
content("brackets.gcode", b"G1 " + b"(" * 900_000)
content("pairs.gcode", b"G1 X1 " + b"()" * 400_000, readable=True)
content("moves.gcode", b"G1 " * 100_000)
content("letters.gcode", b"X" * 900_000)
content("blanks.gcode", b"G1 X" + b" " * 900_000 + b"Y")
content("line.gcode", b"G1 X1\n" + b"1" * 30_000_000)
content("newlines.gcode", b"\n" * 1_000_000)
content("digits.gcode", b"G1 F100 X" + b"9" * 900_000)
content("no_moves.gcode", b"M104 S200\n")
case("pipe.gcode")(os.mkfifo)
case("endless.gcode")(lambda path: path.symlink_to("/dev/zero"))
case("folder.gcode")(lambda path: path.mkdir())
case("sparse.gcode")(lambda path: (path.touch(), os.truncate(path, 50_000_000_000)))


def packed_zeros(path: Path) -> None:
    """Write 6 GB of blank lines in under a megabyte."""
    packer = lzma.LZMACompressor(preset=0)
    block = b"\n" * 10_000_000
    one = packer.compress(block * 12) + packer.flush()
    # streams one after another are one file; ten are enough to be refused
    path.write_bytes(one * 50)


case("bomb.gcode.xz")(packed_zeros)
case("bomb.k.xz")(packed_zeros)
case("bomb.crs.xz")(packed_zeros)
case("bomb.gcode.gz")(lambda path: path.write_bytes(gzip.compress(b"\n" * 60_000_000, 1) * 20))
content("empty.gcode.xz", b"")
content("noise.gcode.xz", bytes(range(256)) * 100)
content("truncated.gcode.xz", lzma.compress(b"G1 X1 F100\n" * 1000)[:-20])
content("noise.gcode.gz", bytes(range(256)) * 100)
content("empty.crs", b"")
content("noise.crs", bytes(range(256)) * 100)
content("words.crs", b"0 0 0 0 1\n" + b"a " * 400_000)
content("nan.crs", b"0 0 0 0 1\n1 nan 0 0 1\n")
content("back.crs", b"1 0 0 0 1\n0 0 0 0 1\n")

# -- hexahedra ---------------------------------------------------------------------------------------------------

content("empty.k", b"")
content("noise.k", bytes(range(256)) * 100)
content("big_ids.k", b"*ELEMENT_SOLID\n" + b",".join([b"9" * 300] * 10) + b"\n*NODE\n1,0,0,0\n")
content("inf_curve.k", b"*DEFINE_CURVE\ninf\n1.0,1\n*ELEMENT_SOLID\n1,1,1,2,3,4,5,6,7,8\n*NODE\n1,0,0,0\n")
content("no_curve.k", b"*DEFINE_CURVE\n,\n*ELEMENT_SOLID\n1,1,1,2,3,4,5,6,7,8\n*NODE\n1,0,0,0\n")
content(
    "same.k",
    b"*ELEMENT_SOLID\n" + b"".join(b"%d,%d,1,1,1,1,1,1,1,1\n" % (k, k) for k in range(1, 20_000)) + b"*NODE\n1,0,0,0\n",
)
content("commas.k", b"*ELEMENT_SOLID\n" + b"," * 900_000)
content("empty.vtu", b"", reader="hexahedra")
content("noise.vtu", bytes(range(256)) * 100, reader="hexahedra")
content(
    "laughs.vtu",
    b'<!DOCTYPE r [<!ENTITY a "ha">'
    + b"".join(b'<!ENTITY %c "%s">' % (98 + k, b"&%c;" % (97 + k) * 20) for k in range(12))
    + b"]><VTKFile>&m;</VTKFile>",
    reader="hexahedra",
)
content(
    "counts.vtk",
    b"# vtk DataFile Version 3.0\nx\nBINARY\nDATASET UNSTRUCTURED_GRID\nPOINTS 900000000000 double\n",
    reader="hexahedra",
)
content(
    "counts.msh",
    b"$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes\n900000000000\n1 0 0 0\n$EndNodes\n",
    reader="hexahedra",
)
content("unknown.suffix", b"abc", reader="hexahedra")
content("python.pkl", b"cos\nsystem\n(S'true'\ntR.", reader="hexahedra")


def compressed_vtu(path: Path) -> None:
    blocks = [zlib.compress(bytes(100_000_000), 9)] * 20
    header = struct.pack(f"<{3 + len(blocks)}I", len(blocks), 100_000_000, 0, *map(len, blocks))
    data = base64.b64encode(header) + base64.b64encode(b"".join(blocks))
    array = b'<DataArray type="Float64" Name="%s" NumberOfComponents="3" format="binary">%s</DataArray>'
    path.write_bytes(
        b'<VTKFile type="UnstructuredGrid" version="0.1" byte_order="LittleEndian" header_type="UInt32" '
        b'compressor="vtkZLibDataCompressor"><UnstructuredGrid><Piece NumberOfPoints="1" NumberOfCells="0"><Points>'
        + array
        % (b"Points", data)
        + b'</Points><Cells><DataArray type="Int64" Name="connectivity" format="ascii"></DataArray></Cells></Piece>'
        b"</UnstructuredGrid></VTKFile>"
    )


case("bomb.vtu", reader="hexahedra")(compressed_vtu)

# -- surfaces ----------------------------------------------------------------------------------------------------


def archive(path: Path, name: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file, file.open(name, "w") as entry:
        for _ in range(60):
            entry.write(bytes(10_000_000))


def gltf(**header) -> bytes:
    text = json.dumps({"asset": {"version": "2.0"}, **header}).encode()
    text += b" " * (-len(text) % 4)
    return struct.pack("<4sIIII", b"glTF", 2, 20 + len(text), len(text), 0x4E4F534A) + text


def scene_of_many(path: Path) -> None:
    """Write one mesh of a few triangles that is placed a million times."""
    points = struct.pack("<9f", 0, 0, 0, 1, 0, 0, 0, 1, 0) * 2000
    indices = struct.pack("<6000H", *range(6000))
    body = points + indices
    count = 20_000
    text = json.dumps(
        {
            "asset": {"version": "2.0"},
            "scene": 0,
            "scenes": [{"nodes": list(range(count))}],
            "nodes": [{"mesh": 0}] * count,
            "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
            "accessors": [
                {"bufferView": 0, "componentType": 5126, "count": 6000, "type": "VEC3"},
                {"bufferView": 1, "componentType": 5123, "count": 6000, "type": "SCALAR"},
            ],
            "bufferViews": [
                {"buffer": 0, "byteOffset": 0, "byteLength": len(points)},
                {"buffer": 0, "byteOffset": len(points), "byteLength": len(indices)},
            ],
            "buffers": [{"byteLength": len(body)}],
        }
    ).encode()
    text += b" " * (-len(text) % 4)
    chunks = struct.pack("<II", len(text), 0x4E4F534A) + text + struct.pack("<II", len(body), 0x004E4942) + body
    path.write_bytes(struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks)


for suffix in ("stl", "obj", "ply", "off", "glb", "gltf", "dae", "3mf"):
    content(f"empty.{suffix}", b"")
    content(f"noise.{suffix}", bytes(range(256)) * 100)
    content(f"words.{suffix}", b"these are words\n" * 1000)
case("pipe.stl")(os.mkfifo)
case("endless.stl")(lambda path: path.symlink_to("/dev/zero"))
case("folder.stl")(lambda path: path.mkdir())
case("sparse.stl")(lambda path: (path.touch(), os.truncate(path, 50_000_000_000)))
content("count.stl", bytes(80) + struct.pack("<I", 4_000_000_000) + bytes(50))
content("solid.stl", b"solid x\n" + b"facet normal 0 0 1\n" * 50_000)
content("far.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 999999999999\n")
content("polygon.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf " + b"1 2 3 " * 50_000 + b"\n", readable=True)
content(
    "counts.ply",
    b"ply\nformat binary_little_endian 1.0\nelement vertex 90000000000\n" + XYZ,
)
content(
    "ascii_counts.ply",
    b"ply\nformat ascii 1.0\nelement vertex 90000000000\n" + XYZ + b"0 0 0\n",
)
content("counts.off", b"OFF\n90000000000 1 0\n0 0 0\n")
content("zeros.glb", gltf(bufferViews=[], accessors=[{"componentType": 5126, "count": 300_000_000, "type": "MAT4"}]))
content("huge.glb", gltf(bufferViews=[], accessors=[{"componentType": 5126, "count": 10**15, "type": "MAT4"}]))
case("scene.glb")(scene_of_many)
content(
    "outside.gltf",
    json.dumps(
        {
            "asset": {"version": "2.0"},
            "buffers": [{"uri": "../../etc/passwd", "byteLength": 10}],
            "bufferViews": [{"buffer": 0, "byteLength": 10}],
            "accessors": [],
        }
    ).encode(),
)
content(
    "laughs.dae",
    b'<!DOCTYPE r [<!ENTITY a "ha">'
    + b"".join(b'<!ENTITY %c "%s">' % (98 + k, b"&%c;" % (97 + k) * 20) for k in range(12))
    + b"]><COLLADA>&m;</COLLADA>",
)
case("archive.zip")(lambda path: archive(path, "x.stl"))
case("archive.stl")(lambda path: archive(path, "x.stl"))
case("archive.3mf")(lambda path: archive(path, "3D/3dmodel.model"))
content("packed.stl.gz", gzip.compress(bytes(50_000_000)))


def good_surface(path: Path) -> None:
    """Write a box, so that what is refused above is refused for a reason."""
    import trimesh

    trimesh.creation.box((1, 2, 3)).export(path)


for suffix in ("stl", "obj", "ply", "off", "glb", "gltf", "dae", "3mf"):
    case(f"good.{suffix}", readable=True)(good_surface)
content("good.gcode.xz", lzma.compress(b"G1 X1 F100\nX2\n"), readable=True)
content("good.gcode.gz", gzip.compress(b"G1 X1 F100\nX2\n"), readable=True)
content("good.xml", MUJOCO % (b"", b'<replicate count="30" offset="3 0 0">' + BALL + b"</replicate>"), readable=True)

# -- checkpoints -------------------------------------------------------------------------------------------------

content("empty.pt", b"", reader="state")
content("noise.pt", bytes(range(256)) * 100, reader="state")
content("pickle.pt", b"\x80\x02cos\nsystem\nU\x04trueq\x00\x85q\x01Rq\x02.", reader="state")
case("archive.pt", reader="state")(lambda path: archive(path, "archive/data.pkl"))
case("pipe.pt", reader="state")(os.mkfifo)
case("folder.pt", reader="state")(lambda path: path.mkdir())
case("sparse.pt", reader="state")(lambda path: (path.touch(), os.truncate(path, 50_000_000_000)))


@case("other.pt", reader="state")
def other_state(path: Path) -> None:
    import torch

    torch.save([1, 2, 3], path)
