"""Printing a part: meshes, toolpaths, heat, and the gradient of what comes out by what goes in."""

from pullback.thermal.births import FreeFaces, after_support, births, check_support, faces_over_time
from pullback.thermal.gcode import read_gcode
from pullback.thermal.hatch import build_layers, layers, rings
from pullback.thermal.mesh import Mesh
from pullback.thermal.mesh_files import read_births, read_mesh
from pullback.thermal.round_solids import hourglass
from pullback.thermal.solids import box, box_on_plate, solid
from pullback.thermal.toolpath import Toolpath, read_toolpath
from pullback.thermal.voxels import voxelize

__all__ = [
    "FreeFaces",
    "Mesh",
    "Toolpath",
    "after_support",
    "births",
    "box",
    "box_on_plate",
    "build_layers",
    "check_support",
    "faces_over_time",
    "hourglass",
    "layers",
    "read_births",
    "read_gcode",
    "read_mesh",
    "read_toolpath",
    "rings",
    "solid",
    "voxelize",
]
