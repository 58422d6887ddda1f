"""Soft bodies, cloth, fluids and sand, with gradients by whatever sets their motion (docs/soft.md, docs/cloth.md)."""

from pullback.soft.body import Body, ball, block, solid
from pullback.soft.cloth.materials import Cord, Fabric
from pullback.soft.cloth.pieces import Rope, Sheet, rope, sheet
from pullback.soft.cloth.sim import ClothRollout, ClothSim, ClothState
from pullback.soft.coupling import Coupled, CoupledRollout, CoupledState
from pullback.soft.domain import Domain, Wall
from pullback.soft.materials import Elastic, Fluid, Material, Plastic, Sand
from pullback.soft.sim import SoftSim
from pullback.soft.state import SoftRollout, SoftState

__all__ = [
    "Body",
    "ClothRollout",
    "ClothSim",
    "ClothState",
    "Cord",
    "Coupled",
    "CoupledRollout",
    "CoupledState",
    "Domain",
    "Elastic",
    "Fabric",
    "Fluid",
    "Material",
    "Plastic",
    "Rope",
    "Sand",
    "Sheet",
    "SoftRollout",
    "SoftSim",
    "SoftState",
    "Wall",
    "ball",
    "block",
    "rope",
    "sheet",
    "solid",
]
