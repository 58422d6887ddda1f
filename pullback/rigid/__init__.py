"""Rigid bodies that touch: worlds, collision, contact, and steps through time with their adjoint."""
