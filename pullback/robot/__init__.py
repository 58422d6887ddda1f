"""Articulated robots as torch modules: kinematics and dynamics with hand-derived adjoints."""
