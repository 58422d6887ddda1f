"""System identification from measured motion."""
