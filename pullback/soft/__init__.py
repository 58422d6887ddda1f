"""Soft bodies, fluids and sand as material points, with gradients by whatever sets their motion (docs/soft.md)."""

from pullback.soft.body import Body, ball, block, solid
from pullback.soft.coupling import Coupled, CoupledRollout, CoupledState
from pullback.soft.domain import Domain, Wall
from pullback.soft.materials import Elastic, Fluid, Material, Plastic, Sand
from pullback.soft.sim import SoftSim
from pullback.soft.state import SoftRollout, SoftState

__all__ = [
    "Body",
    "Coupled",
    "CoupledRollout",
    "CoupledState",
    "Domain",
    "Elastic",
    "Fluid",
    "Material",
    "Plastic",
    "Sand",
    "SoftRollout",
    "SoftSim",
    "SoftState",
    "Wall",
    "ball",
    "block",
    "solid",
]
