"""Convex shapes: their vertices, edges and faces, and which of them touch (docs/derivations/convex.md)."""
