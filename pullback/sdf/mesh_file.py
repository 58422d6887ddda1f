"""Read the triangles of a mesh file, and nothing else: no textures, no archives, no files besides its own buffers."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pullback.core.errors import PullbackError, shortened
from pullback.core.files import check_archive, check_expansion, check_limit, check_regular, open_plain, read_plain

if TYPE_CHECKING:
    import trimesh

Color = tuple[int, int, int]

FORMATS = (".stl", ".obj", ".ply", ".off", ".glb", ".gltf", ".dae", ".3mf")
# what a triangle costs in memory: three vertices and three indices
TRIANGLE_BYTES = 96
COMPONENTS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT2": 4, "MAT3": 9, "MAT4": 16}


def read_surface(path: str | Path, *, process: bool = True) -> trimesh.Trimesh:
    """Return the triangles of a mesh file as one trimesh; `process` merges vertices that are the same."""
    return _read(path, lambda scene: scene.to_mesh(), process)


def read_parts(path: str | Path) -> list[tuple[trimesh.Trimesh, Color | None]]:
    """Return the meshes of a file with the colour of each, None where it has none; textures are not read."""
    parts = _read(path, lambda scene: scene.dump(), True)
    return [(part, _color_of(part)) for part in parts if len(getattr(part, "faces", ()))]


def _color_of(mesh: Any) -> Color | None:
    """Return the colour of a mesh's material, or the mean of its faces' colours."""
    visual = mesh.visual
    if visual is None or not visual.defined:
        return None
    material = getattr(visual, "material", None)
    rgba = visual.main_color if material is None else material.main_color
    r, g, b = (int(x) for x in rgba[:3])
    # materials that have a texture, or nothing at all, come as black
    return (r, g, b) if r or g or b else None


def _read(path: str | Path, convert: Callable[[Any], Any], process: bool) -> Any:
    """Open a mesh file within limits and return what `convert` makes of trimesh's scene."""
    import trimesh

    path = Path(path)
    kind = path.suffix.lower()
    check_regular(path)
    if kind not in FORMATS:
        raise PullbackError(f"mesh file {str(path)!r} ends in {kind!r}; convert it to one of: {', '.join(FORMATS)}")
    with open_plain(path, "mesh_bytes") as file:
        if kind == ".3mf":
            check_archive(path, "mesh_bytes")
        try:
            if kind in (".glb", ".gltf"):
                _check_gltf(path)
            scene = trimesh.load_scene(
                file,  # pyright: ignore[reportArgumentType]
                file_type=kind[1:],
                resolver=_buffers_beside(path),
                skip_materials=True,
                process=process,
            )
            _check_instances(scene, path)
            found = convert(scene)
        except PullbackError:
            raise
        except ImportError as error:
            raise PullbackError(f"mesh file {str(path)!r} takes another package: {error}; install it") from error
        except Exception as error:
            # trimesh raises what its parsers happen to meet
            reason = shortened((str(error).splitlines() or [""])[0] or type(error).__name__, 400)
            raise PullbackError(f"mesh file {str(path)!r} cannot be read: {reason}; export it again") from error
    meshes = found if isinstance(found, list) else [found]
    if not any(isinstance(mesh, trimesh.Trimesh) and len(mesh.faces) for mesh in meshes):
        raise PullbackError(f"mesh file {str(path)!r} has no triangles; give a surface")
    return found


def _check_instances(scene: Any, path: Path) -> None:
    """Raise if the meshes of a scene, each as often as it is placed, are too many triangles."""
    triangles = {name: len(getattr(mesh, "faces", ())) for name, mesh in scene.geometry.items()}
    placed = sum(triangles[scene.graph[node][1]] for node in scene.graph.nodes_geometry)
    check_limit("mesh_bytes", TRIANGLE_BYTES * placed, f"{str(path)!r} takes, with {placed:,} triangles,")


def _check_gltf(path: Path) -> None:
    """Raise if the arrays that a glTF file declares are more than it may grow to."""
    raw = read_plain(path, "mesh_bytes")
    if path.suffix.lower() == ".glb":
        (length,) = struct.unpack_from("<I", raw, 12)
        raw = raw[20 : 20 + length]
    header = json.loads(raw)
    # 8 bytes: more than any type of component takes
    sizes = (8 * int(a["count"]) * COMPONENTS.get(a["type"], 16) for a in header.get("accessors", ()))
    external = sum(
        int(b["byteLength"]) for b in header.get("buffers", ()) if not b.get("uri", "data:").startswith("data:")
    )
    check_expansion(path, sizes, path.stat().st_size + external, "mesh_bytes")


def _buffers_beside(path: Path) -> Any:
    """Return what trimesh gets other files by: the buffers (.bin) of a glTF file, no textures."""
    from trimesh.resolvers import Resolver

    class Buffers(Resolver):
        def __init__(self) -> None:
            pass

        def get(self, name: str) -> bytes:
            beside = (path.parent / name).resolve()
            if beside.suffix.lower() != ".bin" or not beside.is_relative_to(path.parent.resolve()):
                raise FileNotFoundError(f"{name} is not read: only .bin files beside {path.name} are")
            return read_plain(beside, "mesh_bytes")

        def keys(self) -> list[str]:
            return []

        def write(self, name: str, data: Any) -> None:
            raise NotImplementedError

        def namespaced(self, namespace: str) -> Resolver:
            return self

    return Buffers()
