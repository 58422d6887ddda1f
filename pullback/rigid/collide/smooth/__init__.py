"""Smooth convex shapes, known by their support functions (docs/derivations/smooth.md)."""
