"""Heat in a part being printed: meshes, toolpaths, temperatures, and their gradients by process parameters."""

from pullback.thermal.births import FreeFaces, after_support, births, check_support, faces_over_time
from pullback.thermal.design import Design, design
from pullback.thermal.gcode import read_gcode
from pullback.thermal.hatch import build_layers, layers, rings
from pullback.thermal.implicit import Implicit
from pullback.thermal.ledger import EnergyLedger
from pullback.thermal.material import Material, constant_material, material
from pullback.thermal.mesh import Mesh
from pullback.thermal.mesh_files import read_births, read_mesh
from pullback.thermal.objectives import (
    ParetoPoint,
    cooling_rate_at_solidification,
    dominated,
    heat_treatment_time,
    history_error,
    melt_pool_depth,
    pareto_sweep,
    spent_energy,
    weighted_sum,
)
from pullback.thermal.power import FreePower, KnotPower, NetworkPower, Power
from pullback.thermal.process import History, Process
from pullback.thermal.round_solids import hourglass
from pullback.thermal.solids import box, box_on_plate, solid
from pullback.thermal.source import Gaussian, Goldak
from pullback.thermal.toolpath import Toolpath, read_toolpath
from pullback.thermal.voxels import voxelize
from pullback.thermal.vtk import write_series, write_vtk

__all__ = [
    "Design",
    "EnergyLedger",
    "FreeFaces",
    "FreePower",
    "Gaussian",
    "Goldak",
    "History",
    "Implicit",
    "KnotPower",
    "Material",
    "Mesh",
    "NetworkPower",
    "ParetoPoint",
    "Power",
    "Process",
    "Toolpath",
    "after_support",
    "births",
    "box",
    "box_on_plate",
    "build_layers",
    "check_support",
    "constant_material",
    "cooling_rate_at_solidification",
    "design",
    "dominated",
    "faces_over_time",
    "heat_treatment_time",
    "history_error",
    "hourglass",
    "layers",
    "material",
    "melt_pool_depth",
    "pareto_sweep",
    "read_births",
    "read_gcode",
    "read_mesh",
    "read_toolpath",
    "rings",
    "solid",
    "spent_energy",
    "voxelize",
    "weighted_sum",
    "write_series",
    "write_vtk",
]
