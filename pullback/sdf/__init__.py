"""Shapes by their signed distance: primitives, their combinations, grids of meshes, height fields (docs/sdf.md)."""

from pullback.sdf.field import Field
from pullback.sdf.shapes import (
    Shape,
    box,
    capsule,
    cylinder,
    grid,
    heights,
    plane,
    sphere,
    torus,
)

__all__ = ["Field", "Shape", "box", "capsule", "cylinder", "grid", "heights", "plane", "sphere", "torus"]
