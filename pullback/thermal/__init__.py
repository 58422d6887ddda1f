"""Printing a part: meshes, toolpaths, heat, and the gradient of what comes out by what goes in."""

from pullback.thermal.births import FreeFaces, after_support, births, check_support, faces_over_time
from pullback.thermal.gcode import read_gcode
from pullback.thermal.hatch import build_layers, layers, rings
from pullback.thermal.implicit import Implicit
from pullback.thermal.ledger import EnergyLedger
from pullback.thermal.material import Material, constant_material, material
from pullback.thermal.mesh import Mesh
from pullback.thermal.mesh_files import read_births, read_mesh
from pullback.thermal.process import History, Process
from pullback.thermal.round_solids import hourglass
from pullback.thermal.solids import box, box_on_plate, solid
from pullback.thermal.source import Gaussian, Goldak
from pullback.thermal.toolpath import Toolpath, read_toolpath
from pullback.thermal.voxels import voxelize

__all__ = [
    "EnergyLedger",
    "FreeFaces",
    "Gaussian",
    "Goldak",
    "History",
    "Implicit",
    "Material",
    "Mesh",
    "Process",
    "Toolpath",
    "after_support",
    "births",
    "box",
    "box_on_plate",
    "build_layers",
    "check_support",
    "constant_material",
    "faces_over_time",
    "hourglass",
    "layers",
    "material",
    "read_births",
    "read_gcode",
    "read_mesh",
    "read_toolpath",
    "rings",
    "solid",
    "voxelize",
]
