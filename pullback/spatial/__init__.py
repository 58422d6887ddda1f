"""Rotations, transforms and spatial vectors: Warp functions for kernels, and the torch ones the border needs."""
