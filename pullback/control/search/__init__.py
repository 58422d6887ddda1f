"""Shooting: search over unknowns of a rollout."""
